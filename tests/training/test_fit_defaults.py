"""The data determines epochs, rate, patience and calibration of a network that the user describes, unless set."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import multilayer as ml
from multilayer.cli.main import app
from multilayer.errors import OptionError
from multilayer.pages.report.report import report
from multilayer.training.time_budget import Planned, Workload
from support.run_folders import contents

CORNERS, AND, XOR = [[0, 0], [0, 1], [1, 0], [1, 1]], [0, 0, 0, 1], [0, 1, 1, 0]


def chosen(spec: Any, data: Any, **options: Any) -> tuple[Any, ...]:
    """Train for one epoch and return the chosen options: epochs, patience, learning rate, calibration."""
    run = ml.fit(spec, data, quiet=True, each_epoch=lambda now: now.epoch >= 1, **options)
    config = run.events[0]["config"]
    return tuple(config[name] for name in ("epochs", "patience", "learning_rate", "calibrate"))


def test_options_that_are_not_given_are_chosen() -> None:
    assert chosen("4-8-3", "iris") == (1000, 300, 0.01, True)
    assert chosen("4-8-3", "iris", epochs=7) == (7, None, 0.01, True)
    assert chosen("4-8-3", "iris", patience=7) == (1000, 7, 0.01, True)
    assert chosen("4-8-3", "iris", epochs=7, patience=3) == (7, 3, 0.01, True)
    assert chosen("4-8-3", "iris", learning_rate=0.5) == (1000, 300, 0.5, True)
    assert chosen("4-8-3", "iris", calibrate=False) == (1000, 300, 0.01, False)
    assert chosen("4-8-3", "iris", batch_size=120) == (1500, 450, 0.01, True)
    assert chosen("10-8-1", "diabetes") == (348, 104, 0.01, False)
    assert chosen("4-256-3", "iris") == (1000, 300, 0.005, True)


@pytest.mark.parametrize(
    "name", ["epochs", "learning_rate", "batch_size", "calibrate", "patience", "average", "threads"]
)
def test_none_leaves_an_option_to_the_recipe(name: str) -> None:
    """None means that an option is not set, so it must not replace the choice of the recipe."""
    how: dict[str, Any] = {"hidden": (4,), "ensemble": 2}
    assert chosen(None, "iris", **how) == chosen(None, "iris", **how, **{name: None})
    assert chosen("4-8-3", "iris") == chosen("4-8-3", "iris", **{name: None})


def test_a_time_limit_is_planned_when_epochs_is_none() -> None:
    run = ml.fit(None, "iris", hidden=(4,), epochs=None, time_limit=2.0, quiet=True)
    assert run.events[0]["config"]["epochs"] <= 256


def test_a_time_limit_that_allows_too_few_epochs_causes_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan of a single step finishes before the limit, so training is not cut short."""

    def one_step(self: Workload, *_: Any, **__: Any) -> Planned:
        return Planned(members=1, epochs=1, epoch_rows=self.batch, least=0.0, enough=0.0)

    monkeypatch.setattr(Workload, "planned", one_step)
    with pytest.warns(UserWarning, match="time_limit of 60 s was enough for only 1 step, so the model has hardly"):
        run = ml.fit(None, "iris", hidden=(4,), ensemble=1, time_limit=60.0, quiet=True)
    assert (run.end.status, run.end.step) == ("finished", 1)


def test_patience_without_held_out_rows_causes_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"patience has no effect: no rows are held out; set validation=0\.2"):
        ml.fit("4-8-3", "iris", epochs=1, patience=2, validation=None, quiet=True)
    assert chosen("4-8-3", "iris", validation=None) == (800, None, 0.01, False)


@pytest.mark.parametrize(
    ("data", "options"),
    [("diabetes", ["--arch", "10-4-1", "--patience", "5"]), ("and.csv", ["--target", "y", "--arch", "2-1:step"])],
)
def test_the_command_in_the_report_gives_an_identical_model(
    data: str, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{a},{b},{y}\n" for (a, b), y in zip(CORNERS, AND, strict=True))
    Path("and.csv").write_text("a,b,y\n" + rows)
    first = CliRunner().invoke(app, ["train", data, *options, "--run", "first", "-q"])
    assert first.exit_code == 0, first.output
    command = shlex.split(report(Path("first"))["again"]["command"])
    second = CliRunner().invoke(app, [*command[1:], "--run", "second", "-q"])
    assert second.exit_code == 0, second.output
    assert Path("first/model.safetensors").read_bytes() == Path("second/model.safetensors").read_bytes()


def test_a_resumed_run_keeps_the_chosen_options(tmp_path: Path) -> None:
    how: dict[str, Any] = {"quiet": True, "batch_size": 256}
    whole = ml.fit("10-4-1", "diabetes", **how)
    ml.fit("10-4-1", "diabetes", run=tmp_path / "run", each_epoch=lambda now: now.epoch >= 5, **how)
    log = tmp_path / "run" / "events.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))  # simulates a process that was killed
    resumed = ml.resume(tmp_path / "run", quiet=True)
    assert contents(resumed.model) == contents(whole.model)
    assert resumed.end.epoch == whole.end.epoch


def test_xor_is_learned_without_any_option() -> None:
    run = ml.fit("2-8:tanh-1", (CORNERS, XOR), quiet=True)
    assert run.model is not None
    assert run.model.predict(CORNERS).tolist() == XOR
    assert run.model.predict_proba(CORNERS)[np.arange(4), XOR].min() > 0.9


@pytest.mark.parametrize(("spec", "name"), [("2-8:tanh-1", "xor"), ("4-16-3", "iris"), ("30-16-1", "breast_cancer")])
def test_a_loss_that_still_falls_is_not_called_a_plateau(spec: str, name: str) -> None:
    """Epochs of small tables are short and noisy: ten of them do not show a trend."""
    run = ml.fit(spec, name, quiet=True)
    losses = [event["loss"] for event in run.events if event["event"] == "epoch"]
    assert np.mean(losses[-10:]) < np.mean(losses[len(losses) // 2 :][:10])  # it still falls
    assert [event["message"] for event in run.events if event["event"] == "notice"] == []


def test_a_step_output_on_a_loader_or_on_numbers_is_refused() -> None:
    import torch

    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.tensor(CORNERS, dtype=torch.float32), torch.tensor(AND)), batch_size=2
    )
    with pytest.raises(OptionError, match=r"a step output trains on a table, got a loader: remove the step"):
        ml.fit("2-1:step", loader, quiet=True)
    with pytest.raises(OptionError, match=r"a step output .* two classes, but the task is regression: remove the step"):
        ml.fit("10-1:step", "diabetes", quiet=True)
    with pytest.warns(UserWarning, match="layers before a step activation cannot learn"):
        ml.fit("2-1:step", (CORNERS, AND), loss="mse", task="regression", epochs=1, quiet=True)
