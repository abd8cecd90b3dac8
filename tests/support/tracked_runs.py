"""Shared by the tests of trackers: the events of a run, and a tracker that records its calls."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

import pytest

from multilayer.runs.events import Checkpoint, End, EpochEnd, Event, Message, Notice, Progress, RolledBack, Spike, Start
from multilayer.training.trackers import Tracker, TrackerObserver

START = Start(
    step=0,
    time=999.0,
    network="4-8-3",
    parameters=67,
    rows=100,
    engine="numpy",
    seed=7,
    config={"epochs": 2, "optimizer": "adam", "seed": 7},
    versions={"numpy": "2"},
    task="multiclass",
    metric="accuracy",
    held_out=25,
    dropped=1,
)


def epoch(number: int, *, validation: float | None = 0.5, accuracy: float = 0.9) -> EpochEnd:
    return EpochEnd(
        step=10 * (number + 1),
        time=1000.0 + number,
        epoch=number + 1,
        loss=0.4,
        seconds=1.0,
        rows_per_second=100.0,
        validation_loss=validation,
        metrics={} if validation is None else {"accuracy": accuracy},
    )


def end(status: Any = "finished") -> End:
    return End(step=20, time=1002.0, status=status, reason="done", epoch=2, seconds=2.0, metrics={"accuracy": 0.95})


RUN: list[Event] = [
    START,
    Progress(step=5, time=999.5, epoch=1, loss=0.6, gradient_norm=math.inf, learning_rate=1e-3),
    epoch(0),
    Checkpoint(step=10, kind="best", path="checkpoints/10.safetensors", sha256="00"),
    Spike(step=12, loss=9.0, limit=2.0, gradient_norm=50.0, layer="linear1", rows=[3, 4]),
    RolledBack(step=10, to_step=10, rate_factor=0.1, reason="the loss exceeded its limit"),
    Notice(step=10, message="the loss is flat", remedy="raise the rate"),
    epoch(1, validation=math.nan),
    end(),
]


class Recorder(Tracker):
    """A tracker class of a user."""

    name: ClassVar[str] = "recorder"

    def __init__(self, *, fails: str = "") -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.fails = fails

    def start(self, config: Any, *, resumed_at: int | None = None) -> None:
        self._note("start", dict(config), resumed_at)

    def log(self, values: Any, step: int, *, time: float | None = None) -> None:
        self._note("log", dict(values), step, time)

    def alert(self, what: Message, step: int) -> None:
        self._note("alert", what, step)

    def artifact(self, path: Path) -> None:
        self._note("artifact", path)

    def finish(self, status: str) -> None:
        self._note("finish", status)

    def _note(self, name: str, *values: Any) -> None:
        if name == self.fails:
            raise ConnectionError(f"{name} broke")
        self.calls.append((name, *values))

    def of(self, name: str) -> list[tuple[Any, ...]]:
        return [call[1:] for call in self.calls if call[0] == name]


def feed(tracker: Tracker, events: list[Event]) -> None:
    tracker = TrackerObserver(tracker, warn=pytest.fail)
    for event in events:
        tracker.notice(event)
