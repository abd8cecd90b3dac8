"""Trackers: the calls that they receive, when they are ended, how they are selected, and what happens if one fails."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multilayer.errors import MissingExtra, OptionError
from multilayer.runs.events import Event, NonFinite, Notice, Resume, message_for
from multilayer.training.trackers import TRACKERS, TrackerObserver, adapt, get, replay, values_of
from support.findings import DEAD, NOISE, event_of
from support.tracked_runs import RUN, START, Recorder, end, epoch, feed

# Calls that a tracker receives


def test_names_and_steps() -> None:
    tracker = Recorder()
    feed(tracker, RUN)
    assert tracker.calls[0] == (
        "start",
        {
            "epochs": 2,
            "optimizer": "adam",
            "seed": 7,
            "network": "4-8-3",
            "parameters": 67,
            "rows": 100,
            "held_out": 25,
            "dropped": 1,
            "task": "multiclass",
            "metric": "accuracy",
            "engine": "numpy",
            "versions": {"numpy": "2"},
        },
        None,
    )
    first, second, *_ = tracker.of("log")
    assert first == (
        {"train/running_loss": 0.6, "train/gradient_norm": math.inf, "train/learning_rate": 1e-3},
        5,
        999.5,
    )
    assert second == (
        {
            "train/loss": 0.4,
            "train/epoch": 1,
            "train/seconds": 1.0,
            "train/rows_per_second": 100.0,
            "validation/loss": 0.5,
            "validation/accuracy": 0.9,
        },
        10,
        1000.0,
    )
    assert tracker.of("log")[-1] == ({"final/accuracy": 0.95}, 20, 1002.0)
    assert tracker.calls[-1] == ("finish", "finished")


def test_without_validation_there_are_no_validation_values() -> None:
    assert not [name for name in values_of(epoch(0, validation=None)) if name.startswith("validation")]


def test_messages_for_the_user_are_alerts() -> None:
    tracker = Recorder()
    feed(tracker, RUN)
    alerts = [(what.title, step) for what, step in tracker.of("alert")]
    assert alerts == [
        ("not finite", 5),
        ("spike", 12),
        ("rollback", 10),
        ("notice", 10),
        ("not finite", 20),
    ]


def test_findings_are_alerts_or_else_numbers() -> None:
    run = [START, epoch(0), event_of(DEAD), event_of(NOISE), end()]
    tracker = Recorder()
    feed(tracker, run)
    assert [(what.level, what.title, step) for what, step in tracker.of("alert")] == [
        ("warn", "dead units: relu1", 50),
        ("warn", "label noise", 50),
    ]
    assert not [values for values, *_ in tracker.of("log") if any("findings" in name for name in values)]

    class Logger:
        def __init__(self) -> None:
            self.logged: list[tuple[dict[str, float], int]] = []

        def log(self, values: dict[str, float], step: int) -> None:
            self.logged.append((values, step))

    logger = Logger()
    feed(adapt(logger), run)
    assert logger.logged[1:3] == [({"findings/dead_units": 1.0}, 50), ({"findings/label_noise": 1.0}, 50)]


def test_consecutive_non_finite_values_cause_one_alert() -> None:
    tracker = Recorder()
    bad, good = math.nan, 0.5
    feed(tracker, [START, *(epoch(i, validation=v) for i, v in enumerate([bad, bad, good, bad]))])
    assert [what.text for what, _ in tracker.of("alert")] == ["validation/loss is nan"] * 2
    assert [step for _, step in tracker.of("alert")] == [10, 40]
    assert [math.isnan(values["validation/loss"]) for values, *_ in tracker.of("log")] == [True, True, False, True]


@pytest.mark.parametrize(
    ("event", "level", "text"),
    [
        (RUN[4], "warn", "the loss 9 exceeds its limit 2; gradient norm 50, largest in linear1; rows 3, 4"),
        (RUN[5], "warn", "back to step 10, rate × 0.1: the loss exceeded its limit"),
        (
            NonFinite(step=1, where="gradient", layer="linear1", unit=3, rows=list(range(7))),
            "error",
            "first in the gradient of linear1, unit 3; rows 0, 1, 2, 3, 4 and 2 more",
        ),
        (
            NonFinite(step=1, where="parameter", layer="linear1", unit=None, rows=[]),
            "error",
            "first in the parameter of linear1; no rows",
        ),
        (Notice(step=1, message="so", remedy=""), "info", "so"),
        (Resume(step=1, checkpoint="c/8", kept=1, notes=[]), "info", "resumes from c/8"),
        (Resume(step=0, checkpoint="", kept=0, notes=["c/9 is cut"]), "warn", "resumes from the start; c/9 is cut"),
    ],
)
def test_messages_of_events(event: Event, level: str, text: str) -> None:
    words = message_for(event)
    assert words is not None
    assert (words.level, words.text) == (level, text)


def test_the_model_file_is_logged_at_the_end_if_it_exists(tmp_path: Path) -> None:
    model = tmp_path / "model.safetensors"
    for exists in (False, True):
        if exists:
            model.write_bytes(b"")
        tracker = Recorder()
        replay(RUN, tracker, model=model)
        assert tracker.of("artifact") == ([(model,)] if exists else [])
        assert tracker.calls[-1] == ("finish", "finished")


def test_a_resumed_run_passes_its_step() -> None:
    tracker = Recorder()
    feed(tracker, [Resume(step=10, checkpoint="c/10", kept=3, notes=[]), epoch(1), end()])
    assert tracker.calls[0] == ("start", {}, 10)
    assert [step for _, step, _ in tracker.of("log")] == [20, 20]


def test_replay_leaves_out_superseded_events() -> None:
    log: list[Event] = [START, epoch(0), epoch(1, accuracy=0.1), Resume(step=10, checkpoint="c", kept=2, notes=[])]
    tracker = Recorder()
    replay([*log, epoch(1, accuracy=0.8), end()], tracker)
    assert [values.get("validation/accuracy") for values, *_ in tracker.of("log")] == [0.9, 0.8, None]
    tracker = Recorder()
    replay(log, tracker)
    assert tracker.calls[-1] == ("finish", "interrupted")
    tracker = Recorder()
    replay([], tracker)
    assert tracker.calls == []


def test_a_run_without_an_end_is_ended_by_close() -> None:
    tracker = Recorder()

    def broken() -> None:
        with TrackerObserver(tracker) as observer:
            observer.notice(START)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken()
    assert tracker.calls[-1] == ("finish", "failed")
    tracker = Recorder()
    with TrackerObserver(tracker) as observer:
        for event in RUN:
            observer.notice(event)
        observer.notice(epoch(3))
    assert tracker.of("finish") == [("finished",)]
    TrackerObserver(Recorder()).close()


def test_histograms_are_four_numbers_by_default() -> None:
    tracker = Recorder()
    tracker.histogram("linear1/weight", np.array([1.0, 3.0]), 5)
    assert tracker.of("log")[0][0] == {
        "linear1/weight/mean": 2.0,
        "linear1/weight/std": 1.0,
        "linear1/weight/min": 1.0,
        "linear1/weight/max": 3.0,
    }


# Trackers that fail


@pytest.mark.parametrize("fails", ["start", "log", "alert", "finish"])
def test_a_tracker_that_fails_is_dropped_with_one_warning(fails: str) -> None:
    tracker, warnings = Recorder(fails=fails), list[str]()
    with TrackerObserver(tracker, warn=warnings.append) as observer:
        for event in RUN:
            observer.notice(event)
    (warning,) = warnings
    assert warning == (
        "recorder failed and receives no further events; the log of the run is complete: "
        f"ConnectionError: {fails} broke"
    )
    assert observer.tracker is None
    assert fails == "finish" or not tracker.of("finish")


def test_the_warning_is_a_python_warning_by_default() -> None:
    tracker = TrackerObserver(Recorder(fails="start"))
    with pytest.warns(RuntimeWarning, match="recorder failed and receives no further events"):
        tracker.notice(START)


def test_replay_does_not_hide_errors() -> None:
    with pytest.raises(ConnectionError, match="log broke"):
        replay(RUN, Recorder(fails="log"))


def test_ctrl_c_in_a_tracker_is_not_a_failure() -> None:
    class Slow(Recorder):
        def log(self, values: Any, step: int, *, time: float | None = None) -> None:
            raise KeyboardInterrupt

    tracker = TrackerObserver(Slow(), warn=pytest.fail)
    tracker.notice(START)
    with pytest.raises(KeyboardInterrupt):
        tracker.notice(epoch(0))


# Which tracker


def test_unknown_names_are_errors() -> None:
    with pytest.raises(OptionError, match="unknown tracker 'tensorbord': did you mean 'tensorboard'"):
        get("tensorbord")
    with pytest.raises(OptionError, match="tensorboard: unknown option 'foldr': did you mean 'folder'"):
        get("tensorboard", foldr="x")


@pytest.mark.parametrize(
    ("name", "missing"),
    [("wandb", "wandb"), ("trackio", "trackio"), ("mlflow", "mlflow"), ("tensorboard", "tensorboard")],
)
def test_a_missing_library_is_reported_before_training(
    name: str, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(module: str) -> Any:
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr("multilayer.training.trackers.tools.importlib.import_module", refuse)
    with pytest.raises(MissingExtra, match=rf"logging to {name} needs {missing}.*multilayer\[{missing}\]"):
        get(name)


def test_a_broken_library_is_not_reported_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(module: str) -> Any:
        raise ModuleNotFoundError("No module named 'google'", name="google")

    monkeypatch.setattr("multilayer.training.trackers.tools.importlib.import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="google"):
        get("wandb")


def test_extras_are_declared() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert set(TRACKERS) <= set(project["project"]["optional-dependencies"])


def test_an_object_that_is_not_a_tracker_is_an_error() -> None:
    with pytest.raises(
        OptionError, match=r"cannot log to dict: give one of mlflow, tensorboard, trackio, wandb, a W&B"
    ):
        adapt({})
    with pytest.raises(OptionError, match="cannot log to tuple"):
        adapt((1, 2))
    own = Recorder()
    assert adapt(own) is own


def test_importing_trackers_imports_no_tool() -> None:
    code = "import sys, json, multilayer.training, multilayer.training.trackers; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in json.loads(done.stdout)}
    assert not loaded & {"rich", "torch", "tensorboard", "wandb", "trackio", "mlflow", "lightning"}
