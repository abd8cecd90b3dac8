"""`mlp tune`: output, files, time limit, error messages and the metric of the search."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from multilayer.cli.main import app
from multilayer.estimators import tuning
from multilayer.estimators.tuning import SPACE, Search
from multilayer.runs import RunFolder
from multilayer.runs.events import EpochEnd

pytestmark = pytest.mark.usefixtures("narrow")


def test_command(tmp_path: Path) -> None:
    import pandas as pd

    x = np.random.default_rng(0).normal(size=(90, 2))
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": np.where(x[:, 0] > 0, "yes", "no")}).to_csv(tmp_path / "t.csv")
    path = tmp_path / "search"
    command = ["tune", str(tmp_path / "t.csv"), "--target", "y", "--run", str(path), "--epochs", "16"]
    command += ["--ensemble", "2", "--threads", "1", "--plot", str(tmp_path / "p.png")]
    result = CliRunner().invoke(app, [*command, "--trials", "2", "--json"])
    assert result.exit_code == 0, result.output
    first, second, end = (json.loads(line) for line in result.stdout.splitlines())
    assert (first["trial"], second["trial"]) == (1, 2)
    assert end["end"]["run"] == str(path / "best")
    assert end["end"]["metrics"]["accuracy"] > 0.5
    assert (tmp_path / "p.png").stat().st_size > 5000
    assert RunFolder.open(path / "best").model.exists()
    again = CliRunner().invoke(app, [*command, "--trials", "2", "--quiet"])
    assert again.exit_code == 0, again.output
    assert "best of 2 trials: width" in again.stdout
    assert "with the defaults of the recipe" in again.stdout


def command(tmp_path: Path, *more: str) -> Any:
    """Run the command on a small table in `tmp_path`."""
    import pandas as pd

    if not (tmp_path / "t.csv").exists():
        x = np.random.default_rng(0).normal(size=(90, 2))
        frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": np.where(x[:, 0] > 0, "yes", "no")})
        frame.to_csv(tmp_path / "t.csv", index=False)
    arguments = [
        "tune",
        str(tmp_path / "t.csv"),
        "--target",
        "y",
        "--epochs",
        "16",
        "--ensemble",
        "1",
        "--threads",
        "1",
    ]
    return CliRunner().invoke(app, [*arguments, *more])


def counts(tmp_path: Path) -> None:
    import pandas as pd

    x = np.random.default_rng(0).normal(size=(120, 2))
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": np.arange(120) % 12})
    frame.to_csv(tmp_path / "t.csv", index=False)


@pytest.mark.parametrize("name", ["tune", "train"])
def test_a_regression_loss_needs_the_task_if_the_target_looks_like_classes(tmp_path: Path, name: str) -> None:
    counts(tmp_path)
    done = CliRunner().invoke(app, [name, str(tmp_path / "t.csv"), "--target", "y", "--loss", "mse", "--run", "r"])
    assert done.exit_code == 2
    expected = "mse is a loss for numbers, but the target has 12 values, like classes: set --task regression or"
    assert expected in done.stderr


def test_a_search_saves_its_task(tmp_path: Path) -> None:
    counts(tmp_path)
    path = tmp_path / "search"
    options = ("--run", str(path), "--trials", "1", "--quiet")
    done = command(tmp_path, *options, "--task", "regression", "--loss", "poisson", "--metric", "mae")
    assert done.exit_code == 0, done.output
    found = RunFolder.open(path / "best").config
    assert (found["effective"]["task"], found["effective"]["loss"]) == ("regression", "poisson")
    assert found["config"]["metric"] == "mae"
    again = command(tmp_path, *options, "--task", "multiclass")
    assert again.exit_code == 2
    assert "contains a search with --task regression, got multiclass: use another folder" in again.stderr


def test_a_search_saves_its_categorical_columns(tmp_path: Path) -> None:
    import pandas as pd

    x = np.random.default_rng(0).normal(size=(90, 1))
    codes = [*range(100, 189), "K7"]
    frame = pd.DataFrame({"a": x[:, 0], "code": codes, "y": np.where(x[:, 0] > 0, "yes", "no")})
    frame.to_csv(tmp_path / "t.csv", index=False)
    path = tmp_path / "search"
    options = ("--run", str(path), "--trials", "1", "--quiet")
    failed = command(tmp_path, *options)
    assert failed.exit_code == 2
    assert "or treat all its values as categories: --categorical 'code'" in failed.stderr
    done = command(tmp_path, *options, "--categorical", "code")
    assert done.exit_code == 0, done.output
    assert RunFolder.open(path / "best").config["data"]["categorical"] == ["code"]
    again = command(tmp_path, *options, "--categorical", "a", "--categorical", "code")
    assert again.exit_code == 2
    assert "contains a search with --categorical code, got a, code: use another folder" in again.stderr


def test_a_search_can_balance_classes(tmp_path: Path) -> None:
    path = tmp_path / "search"
    done = command(tmp_path, "--run", str(path), "--trials", "1", "--quiet", "--class-weight", "balanced")
    assert done.exit_code == 0, done.output
    assert RunFolder.open(path / "best").config["config"]["class_weight"] == "balanced"


def test_a_better_trial_replaces_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each trial is better than the one before. The runs of earlier trials are kept."""
    original = tuning._Reporter.notice

    def better(watch: Any, event: Any) -> None:
        if isinstance(event, EpochEnd):
            event = replace(event, validation_loss=1.0 / (1 + watch.trial.number))
        original(watch, event)

    monkeypatch.setattr(tuning._Reporter, "notice", better)
    path = tmp_path / "search"
    for trials, kept in (("1", set[str]()), ("2", {"best-001"}), ("2", {"best-001"}), ("3", {"best-001", "best-002"})):
        done = command(tmp_path, "--run", str(path), "--trials", trials, "--json")
        assert done.exit_code == 0, done.output
        end = json.loads(done.stdout.splitlines()[-1])["end"]
        assert end["run"] == str(path / "best")
        assert end["best"]["trial"] == int(trials)
        assert {found.name for found in path.glob("best-*")} == kept
        for name in (*kept, "best"):
            assert RunFolder.open(path / name).model.exists()
        values = json.loads((path / "best.json").read_text())
        assert values == {key: value for key, value in end["best"].items() if key in SPACE}


def test_the_time_limit_includes_the_training_of_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of it is for trials. The final training fits into the rest."""
    limits: list[Any] = []
    original = tuning.search

    def searched(*args: Any, **how: Any) -> Search:
        limits.append(how["time_limit"])
        return original(*args, **how)

    monkeypatch.setattr(tuning, "search", searched)
    path = tmp_path / "search"
    done = command(tmp_path, "--run", str(path), "--trials", "1", "--time-limit", "1000", "--quiet")
    assert done.exit_code == 0, done.output
    assert limits == [500.0]
    config = RunFolder.open(path / "best").config["config"]
    assert 500 < config["time_limit"] < 1000
    assert config["epochs"] == 16


def test_no_time_for_a_trial(tmp_path: Path) -> None:
    path = tmp_path / "search"
    done = command(tmp_path, "--run", str(path), "--time-limit", "1e-6", "--quiet")
    assert done.exit_code == 0, done.output
    assert "the time limit was reached before the first trial ended: trained the defaults of the recipe" in done.stdout
    assert "warning: --time-limit must be enough to prepare, start and evaluate 1 member" in done.stderr
    assert RunFolder.open(path / "best").model.exists()


@pytest.mark.parametrize(
    ("more", "match"),
    [
        (("--ensemble", "0"), "--ensemble must be positive, got 0"),
        (("--time-limit", "-1"), "--time-limit must be positive, got -1"),
        (("--time-limit", "0"), "--time-limit must be positive, got 0"),
        (("--loss", "mze"), "unknown loss 'mze'"),
        (("--task", "numbers"), "unknown task 'numbers'"),
        (("--metric", "rmse"), "rmse does not fit a binary task"),
        (
            ("--class-weight", "even"),
            "--class-weight must be balanced, or each class once with its weight, such as yes=2,no=1, got 'even'",
        ),
        (("--group", "nobody"), "nobody"),
        (("--run", "t.csv"), "--run must be a folder, got the file t.csv: use another name"),
    ],
)
def test_an_invalid_option_is_one_message(
    more: tuple[str, ...], match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = command(tmp_path, *more)
    assert done.exit_code == 2
    assert match in done.stderr
    assert done.stderr.startswith("error: ")
    assert not (tmp_path / "runs").exists()


def test_help() -> None:
    text = CliRunner().invoke(app, ["tune", "--help"]).stdout
    assert "--time-limit" in text
    assert "mlp tune people.csv --target income" in text


@pytest.mark.parametrize(
    ("metric", "best", "value", "first"),
    [("accuracy", 2, 0.9, 0.6), ("log_loss", 3, 0.1, 0.2), ("loss", 3, 0.1, 0.2)],
)
def test_the_metric_selects_the_best_trial(
    metric: str, best: int, value: float, first: float, tmp_path: Path, looks: dict[int, tuple[float, float]]
) -> None:
    """The trial with the best accuracy has the worst loss."""
    options = ("--run", str(tmp_path / "search"), "--trials", "3", "--metric", metric)
    done = command(tmp_path, *options, "--json")
    assert done.exit_code == 0, done.output
    *trials, end = (json.loads(line) for line in done.stdout.splitlines())
    assert [trial[metric] for trial in trials] == [looks[i][metric == "accuracy"] for i in range(3)]
    assert (end["end"]["best"]["trial"], end["end"]["best"][metric]) == (best, value)
    again = command(tmp_path, *options)
    assert f"validation {metric}: {value}; with the defaults of the recipe: {first}" in again.stdout
    assert "3/3" in again.stderr
    assert f"best {metric} {value} (trial {best})" in again.stderr
    fewer = command(tmp_path, *options[:2], "--trials", "1", *options[4:])
    assert "3/3" in fewer.stderr
