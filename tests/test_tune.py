"""The search: its trials, what ends them, going on after a kill, the plot, and the command."""

from __future__ import annotations

import json
import math
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from multilayer.cli.main import app
from multilayer.data import read
from multilayer.errors import DataError, OptionError
from multilayer.events import EpochEnd
from multilayer.plots import Point, search_figure
from multilayer.runs import RunFolder
from multilayer.tabular import tune
from multilayer.tabular.tune import SPACE, Candidate, Search, Trial, best_of, search
from multilayer.training.fit import fit

OPTIONS: dict[str, Any] = {"epochs": 24, "threads": 1}
DEFAULT = {name: dimension.default for name, dimension in SPACE.items()}


def table(rows: int = 120) -> Any:
    x = np.random.default_rng(0).normal(size=(rows, 3))
    return read((x, np.sin(2 * x[:, 0]) + x[:, 1]))


def run(folder: Path, trials: int, **how: Any) -> Search:
    return search(table(), folder, source={}, options=OPTIONS, trials=trials, **how)


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks of at most 32 units, so that a trial takes a fraction of a second."""
    small = tune.Dimension(low=8, high=32, log=True, whole=True, default=16)
    monkeypatch.setitem(SPACE, "width", small)


def test_trials_differ_and_the_first_is_the_recipe(folder: Path) -> None:
    told: list[tuple[Trial, Trial | None]] = []
    found = run(folder, 7, told=lambda trial, best: told.append((trial, best)))
    assert [trial.number for trial in found.trials] == list(range(1, 8))
    assert found.trials[0].values == {**DEFAULT, "width": 16}
    assert len({json.dumps(trial.values) for trial in found.trials}) == 7
    for trial in found.trials:
        assert set(trial.values) == set(SPACE)
        assert 8 <= trial.values["width"] <= 32
        assert trial.value is not None
        assert math.isfinite(trial.value)
    assert found.best.value == min(t.value for t in found.trials if t.value is not None and not t.pruned)
    assert [trial.number for trial, _ in told] == list(range(1, 8))
    assert told[-1][1] == found.best


def test_a_search_goes_on_where_it_was(folder: Path) -> None:
    whole = run(folder / "whole", 6)
    run(folder / "cut", 2)
    again = run(folder / "cut", 6)
    assert [(t.values, t.value) for t in again.trials] == [(t.values, t.value) for t in whole.trials]
    with pytest.raises(OptionError, match="is a search with another seed: 0, got 1: name another folder"):
        run(folder / "cut", 6, seed=1)


def test_a_trial_that_was_cut_off_is_run_again(folder: Path) -> None:
    whole = run(folder / "whole", 3)

    # Ctrl-C in the middle of the second trial: an observer of the run presses it.
    pressed = Press(at=2)
    original = tune._Watch.notice
    try:
        tune._Watch.notice = pressed.wrap(original)  # type: ignore[method-assign]
        cut = run(folder / "cut", 3)
    finally:
        tune._Watch.notice = original  # type: ignore[method-assign]
    assert cut.signal == signal.SIGINT
    assert len(cut.trials) == 1
    again = run(folder / "cut", 3)
    assert again.signal is None
    assert [(t.values, t.value) for t in again.trials] == [(t.values, t.value) for t in whole.trials]


class Press:
    """Presses Ctrl-C in the first epoch of one trial."""

    def __init__(self, at: int) -> None:
        self.at, self.trials = at, 0

    def wrap(self, notice: Any) -> Any:
        def watched(watch: Any, event: Any) -> None:
            if isinstance(event, EpochEnd) and event.epoch == 1:
                self.trials += 1
                if self.trials == self.at:
                    os.kill(os.getpid(), signal.SIGINT)
            notice(watch, event)

        return watched


def test_bad_trials_are_cut_short(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the sixth on, trials whose loss is far above the others' end at the first epoch that may end them."""
    original = tune._Watch.notice
    seen: dict[int, int] = {}

    def worse(watch: Any, event: Any) -> None:
        if isinstance(event, EpochEnd):
            number = watch.trial.number
            seen[number] = event.epoch
            from dataclasses import replace

            event = replace(event, validation_loss=1.0 if number < 5 else 50.0)
        original(watch, event)

    monkeypatch.setattr(tune._Watch, "notice", worse)
    found = run(folder, 7)
    assert [trial.pruned for trial in found.trials] == [False] * 5 + [True] * 2
    assert seen[0] == 6  # a quarter of 24 epochs
    assert seen[5] < 6
    assert found.best.number == 1


def test_time_limit(folder: Path) -> None:
    found = run(folder, 1000, time_limit=0.5)
    assert 1 <= len(found.trials) < 100


def test_nothing_that_ended() -> None:
    bad = Trial(number=1, values=DEFAULT, value=None, pruned=False, seconds=1.0)
    assert best_of([bad]) is None
    with pytest.raises(OptionError, match="no trial came to its end"):
        _ = Search(trials=(bad,)).best


def test_a_candidate_is_a_recipe() -> None:
    values = {**DEFAULT, "width": 24, "depth": 2, "dropout": 0.0, "rate": 0.5, "weight_decay": 0.1, "embedding": "plr"}
    done = fit(Candidate(values), table(), epochs=2, ensemble=2, quiet=True)
    assert done.model is not None
    text = str(done.model.spec)
    assert "columns(plr)" in text
    assert "24" in text
    config = done.events[0]["config"]
    assert (config["weight_decay"], config["learning_rate"], config["ensemble"]) == (0.1, 0.1, 2)
    pictures = np.zeros((60, 4, 4), dtype=np.uint8)
    with pytest.raises(DataError, match="recipes for tables, got pictures: use mlp train"):
        fit(Candidate(values), (pictures, np.arange(60) % 2), quiet=True)


def test_figure() -> None:
    points = [
        Point(number=i + 1, values={"width": 16 * (i + 1), "embedding": "ab"[i % 2]}, loss=1 / (i + 1), pruned=i == 2)
        for i in range(5)
    ]
    figure = search_figure(points, {"width": True, "embedding": False}, title="Search")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["trial", "width", "embedding"]
    assert figure.axes[1].get_xscale() == "log"
    assert [label.get_text() for label in figure.axes[2].get_xticklabels()] == ["a", "b"]
    assert "the best is trial 5" in "".join(text.get_text() for text in figure.texts)


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
    assert "that of the recipe as it is" in again.stdout


def test_help() -> None:
    text = CliRunner().invoke(app, ["tune", "--help"]).stdout
    assert "--time-limit" in text
    assert "mlp tune people.csv --target income" in text
