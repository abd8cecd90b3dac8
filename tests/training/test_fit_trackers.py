"""The option `trackers` of `fit` and `mlp train`: names, objects of the user, and trackers that fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import multilayer as ml
from multilayer.cli.main import app
from multilayer.errors import MissingExtra, OptionError
from multilayer.runs.events import End, EpochEnd, Event, Measured, Resume
from multilayer.training import trackers
from multilayer.training.trackers import selection as choosing
from multilayer.training.trackers import values_of
from support.tracked_runs import START, Recorder, feed

FAST: dict[str, Any] = {"recipe": "plain", "engine": "numpy", "epochs": 3, "quiet": True}


def scalars(folder: Path) -> dict[str, list[int]]:
    """The steps of every curve that TensorBoard finds in a folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder))
    found.Reload()
    return {tag: [event.step for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def mlp(*args: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(args))
    assert done.exit_code == code, f"{done.output}\n{done.exception!r}"
    return done.output


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # from TensorBoard itself
def test_tensorboard_is_written_into_the_run(tmp_path: Path) -> None:
    run = ml.fit(None, "iris", run=tmp_path / "run", trackers=["tensorboard"], **FAST)
    found = scalars(tmp_path / "run" / "tensorboard")
    ends = [event.step for event in run.log if isinstance(event, EpochEnd)]
    assert found["train/loss"] == found["validation/accuracy"] == ends
    assert "final/accuracy" in found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    requested: list[tuple[str, dict[str, Any]]] = []
    recorder = Recorder()
    real = choosing.get

    def get(name: str, /, **where: Any) -> Any:
        requested.append((name, where))
        return recorder if name == "wandb" else real(name, **where)

    monkeypatch.setattr(choosing, "get", get)
    options = ("--engine", "numpy", "--epochs", "3", "--quiet")
    mlp("train", "iris", "--track", "tensorboard", "--track", "wandb", *options)
    assert requested == [
        ("tensorboard", {"folder": Path("runs/iris-001/tensorboard")}),
        ("wandb", {"name": "iris-001"}),
    ]
    assert scalars(tmp_path / "runs/iris-001/tensorboard")
    assert [call[0] for call in recorder.calls if call[0] != "log"] == ["start", "artifact", "finish"]


def test_objects_of_the_user_get_every_event() -> None:
    class Logger:
        """A logger with the methods of a Lightning logger."""

        def __init__(self) -> None:
            self.steps: list[int] = []
            self.hyperparams: dict[str, Any] = {}

        def log_hyperparams(self, params: dict[str, Any]) -> None:
            self.hyperparams = params

        def log_metrics(self, metrics: dict[str, float], step: int) -> None:
            self.steps.append(step)

    logger, recorder = Logger(), Recorder()
    run = ml.fit(None, "iris", trackers=[logger, recorder], **FAST)
    assert logger.hyperparams["epochs"] == 3
    assert {event.step for event in run.log if isinstance(event, EpochEnd | End)} <= set(logger.steps)
    assert [step for _, step, _ in recorder.of("log")] == logger.steps
    assert recorder.calls[-1] == ("finish", "finished")


class Minimal:
    """An object with only `log(dict, step)`; the name of its second parameter is arbitrary."""

    def __init__(self) -> None:
        self.logged: list[tuple[dict[str, float], int]] = []

    def log(self, values: dict[str, float], at: int) -> None:
        self.logged.append((values, at))


class Touchy:
    """An object whose attributes raise an error."""

    def __getattr__(self, name: str) -> Any:
        raise ConnectionError(f"no {name}")


class LikeWandb(Minimal):
    def log(self, values: dict[str, float], step: int) -> None:
        raise ConnectionError("offline")

    def finish(self) -> None: ...


def test_an_object_that_can_only_log_is_enough() -> None:
    minimal, recorder = Minimal(), Recorder()
    ml.fit(None, "iris", trackers=[minimal, recorder], **FAST)
    assert minimal.logged == [(values, step) for values, step, _ in recorder.of("log")]


def test_an_object_that_cannot_be_inspected_is_dropped_with_one_warning() -> None:
    recorder = Recorder()
    with pytest.warns(RuntimeWarning, match=r"Touchy failed .* ConnectionError: no \w+$") as warned:
        ml.fit(None, "iris", trackers=[Touchy(), recorder], **FAST)
    assert len(warned) == 1
    assert recorder.calls[-1] == ("finish", "finished")


def test_an_object_of_the_user_is_named_by_its_type() -> None:
    with pytest.warns(RuntimeWarning, match=r"LikeWandb failed .* ConnectionError: offline$"):
        ml.fit(None, "iris", trackers=[LikeWandb()], **FAST)


@pytest.mark.parametrize("at", ["start", "log", "artifact", "finish"])
def test_a_tracker_that_fails_is_dropped_with_one_warning(at: str, tmp_path: Path) -> None:
    bad, good = Recorder(fails=at), Recorder()
    with pytest.warns(RuntimeWarning, match=f"recorder failed and receives no further events; .* {at} broke") as warned:
        run = ml.fit(None, "iris", run=tmp_path / "run", trackers=[bad, good], **FAST)
    assert len(warned) == 1
    assert run.end.status == "finished"
    assert good.calls[-1] == ("finish", "finished")
    plain = ml.fit(None, "iris", **FAST)
    assert plain.model is not None
    assert run.model is not None
    assert all(np.array_equal(run.model.tensors[name], value) for name, value in plain.model.tensors.items())


def test_the_warning_is_a_line_of_the_progress_display(capfd: pytest.CaptureFixture[str]) -> None:
    ml.fit(None, "iris", trackers=[Recorder(fails="log")], **FAST | {"quiet": False})
    output = capfd.readouterr().err
    assert output.count("tracker: recorder failed and receives no further events") == 1


def test_a_run_that_fails_ends_its_trackers() -> None:
    class Breaking:
        def notice(self, event: Event) -> None:
            if isinstance(event, EpochEnd):
                raise KeyError("broken")

    recorder = Recorder()
    with pytest.raises(KeyError):
        ml.fit(None, "iris", observers=[Breaking()], trackers=[recorder], **FAST)
    assert recorder.calls[-1] == ("finish", "failed")


def test_trackers_receive_the_step_of_a_resume(tmp_path: Path) -> None:
    ml.fit(None, "iris", run=tmp_path / "run", checkpoint_every=5, **FAST)
    log = tmp_path / "run" / "events.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))
    recorder = Recorder()
    run = ml.resume(tmp_path / "run", trackers=[recorder], quiet=True)
    resumed = next(event for event in run.log if isinstance(event, Resume))
    assert recorder.of("start") == [({}, resumed.step)]
    assert recorder.calls[-1] == ("finish", "finished")


@pytest.mark.parametrize(
    ("trackers", "error", "message"),
    [
        (["tensorbord"], OptionError, "unknown tracker 'tensorbord': did you mean 'tensorboard'"),
        ("wandb", OptionError, r"trackers must be a list, got 'wandb': trackers=\['wandb'\]"),
        ([object()], OptionError, "cannot log to object: give one of mlflow, tensorboard, trackio, wandb"),
    ],
)
def test_an_invalid_tracker_creates_no_run_folder(trackers: Any, error: type, message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=message):
        ml.fit(None, "iris", run=tmp_path / "run", trackers=trackers, **FAST)
    assert not (tmp_path / "run").exists()


def test_a_missing_library_is_reported_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingExtra, match="logging to mlflow needs mlflow"):
        ml.fit(None, "iris", run=tmp_path / "run", trackers=["mlflow"], **FAST)
    monkeypatch.chdir(tmp_path)
    assert "needs mlflow" in " ".join(mlp("train", "iris", "--track", "mlflow", "--quiet", code=2).split())
    assert not list(tmp_path.iterdir())


def test_what_observers_measure_is_logged() -> None:
    event = Measured(step=7, name="dead units", values={"linear1": 0.25, "linear2": [1.0, 2.0, 3.0], "none": []})
    assert values_of(event) == {"measured/dead units/linear1": 0.25}
    recorder = Recorder()
    feed(recorder, [START, event])
    assert recorder.of("log") == [
        ({"measured/dead units/linear1": 0.25}, 7, None),
        (
            {
                "measured/dead units/linear2/mean": 2.0,
                "measured/dead units/linear2/std": pytest.approx(0.8165, abs=1e-4),
                "measured/dead units/linear2/min": 1.0,
                "measured/dead units/linear2/max": 3.0,
            },
            7,
            None,
        ),
    ]


def test_names_of_runs() -> None:
    assert trackers.for_run("tensorboard", Path("runs/a-001")).folder == Path("runs/a-001/tensorboard")  # type: ignore[attr-defined]
