"""The base class of trackers, and the observer that passes events to a tracker.

    start(config) → log(values, step) … → finish(status)

`alert`, `artifact` and `histogram` are optional. Values are logged under these names:

    end of an epoch    train/loss  train/epoch  train/seconds  train/rows_per_second
                       validation/loss  validation/accuracy  …
    fixed steps        train/running_loss  train/gradient_norm  train/learning_rate
    measurements       measured/NAME/…: a number, or a distribution over units or bins
    findings           findings/KIND, which is 1, for tools without alerts
    end of the run     final/…

Values that are not finite are passed on, because each tool displays them in its own way. The first of consecutive
non-finite values also causes an alert. A rollback does not remove logged values.

There are no queues and threads here, because the tools have their own.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.formatting import number
from ...runs.events import (
    End,
    EpochEnd,
    Event,
    FindingEvent,
    Measured,
    Message,
    Progress,
    Resume,
    Start,
    effective,
    message_for,
)


class Tracker(ABC):
    """Base class of trackers. Subclass it to add a tracker. A tracker that raises an error is dropped."""

    name: str = "tracker"
    """Name in warnings."""

    @abstractmethod
    def start(self, config: Mapping[str, Any], *, resumed_at: int | None = None) -> None:
        """Start logging. `resumed_at` is the step from which a run resumes; values logged after it are superseded."""

    @abstractmethod
    def log(self, values: Mapping[str, float], step: int, *, time: float | None = None) -> None:
        """Log the values of a step. `time` is the time in seconds since 1970, by default now."""

    @abstractmethod
    def finish(self, status: str) -> None:
        """End what `start` created."""

    def alert(self, what: Message, step: int) -> None:
        """Send a message to the user, if the tool supports it."""
        return

    @property
    def has_alerts(self) -> bool:
        """Whether `alert` stores the message. By default, whether the subclass defines `alert`."""
        return type(self).alert is not Tracker.alert

    def artifact(self, path: Path) -> None:
        """Store a file, if the tool supports it."""
        return

    def histogram(self, name: str, values: NDArray[np.floating[Any]], step: int) -> None:
        """Log a distribution. By default, its mean, standard deviation, minimum and maximum are logged."""
        summary = {"mean": np.mean, "std": np.std, "min": np.min, "max": np.max}
        self.log({f"{name}/{key}": float(of(values)) for key, of in summary.items()}, step)


def warn(message: str) -> None:
    """Report a dropped tracker as a Python warning. Callers can pass another function."""
    warnings.warn(message, RuntimeWarning, stacklevel=2)


class TrackerObserver:
    """Passes events to a tracker. A tracker that fails is dropped with one warning, and training continues.

    `model` is the model file to pass to the tracker at the end, if it exists then.
    """

    def __init__(self, tracker: Tracker, *, model: Path | None = None, warn: Callable[[str], None] = warn) -> None:
        self.tracker: Tracker | None = tracker
        self.model = model
        self._warn = warn
        self._feed = _Feed(tracker, model)

    def notice(self, event: Event) -> None:
        self._guard(lambda: self._feed.take(event))

    def close(self) -> None:
        """End tracking with the status "failed", unless the run has ended."""
        self._guard(lambda: self._feed.end("failed"))

    def __enter__(self) -> TrackerObserver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _guard(self, act: Callable[[], None]) -> None:
        if self.tracker is None:
            return
        try:
            act()
        except Exception as error:  # an error of a tool must not stop training
            name, self.tracker = self.tracker.name, None
            self._warn(left_out(name, error))


def left_out(name: str, error: Exception) -> str:
    """Return the warning about a tracker that failed."""
    why = f"{type(error).__name__}: {error}".rstrip(": ")
    return f"{name} failed and receives no further events; the log of the run is complete: {why}"


def replay(events: Iterable[Event], tracker: Tracker, *, model: Path | None = None) -> None:
    """Log the events of a finished run, without superseded events. Errors of the tracker are raised."""
    feed = _Feed(tracker, model)
    for event in effective(events):
        feed.take(event)
    feed.end("interrupted")


class _Feed:
    """Translate events into calls of a tracker."""

    def __init__(self, tracker: Tracker, model: Path | None) -> None:
        self.tracker, self.model = tracker, model
        self.started = self.ended = False
        self.bad: set[str] = set()

    def take(self, event: Event) -> None:
        if self.ended:
            return
        if not self.started:
            self.started = True
            self.tracker.start(
                config_of(event) if isinstance(event, Start) else {},
                resumed_at=event.step if isinstance(event, Resume) else None,
            )
        values = values_of(event)
        if isinstance(event, FindingEvent) and not self.tracker.has_alerts:
            values = {f"findings/{event.finding['kind']}": 1.0}
        if values:
            self._alert_bad(values, event.step)
            self.tracker.log(values, event.step, time=event.time)
        if isinstance(event, Measured):
            for key, found in event.values.items():
                if isinstance(found, list) and found:
                    self.tracker.histogram(
                        f"measured/{event.name}/{key}", np.asarray(found, dtype=np.float64), event.step
                    )
        message = message_for(event)
        if message is not None:
            self.tracker.alert(message, event.step)
        if isinstance(event, End):
            if self.model is not None and self.model.exists():
                self.tracker.artifact(self.model)
            self.end(event.status)

    def end(self, status: str) -> None:
        if self.started and not self.ended:
            self.ended = True
            self.tracker.finish(status)

    def _alert_bad(self, values: Mapping[str, float], step: int) -> None:
        bad = {name for name, value in values.items() if not math.isfinite(value)}
        new = sorted(bad - self.bad)
        self.bad = (self.bad - set(values)) | bad
        if new:
            text = ", ".join(f"{name} is {number(values[name])}" for name in new)
            self.tracker.alert(Message("warn", "not finite", text), step)


def config_of(event: Start) -> dict[str, Any]:
    """Return the configuration of a run, with facts about its network and data."""
    facts = ("network", "parameters", "rows", "held_out", "dropped", "task", "metric", "engine", "seed")
    return {**event.config, **{name: getattr(event, name) for name in facts}, "versions": dict(event.versions)}


_UNITS = {"dead": "dead_count", "saturated": "saturated_count", "inactive": "inactive"}
"""Values of a layer in a tracker, and their keys in `EpochEnd.units`."""


def values_of(event: Event) -> dict[str, float]:
    """Return the values of an event by their names in a tracker. Most events have none.

    >>> values_of(Progress(step=50, epoch=1, loss=0.5, gradient_norm=2.0, learning_rate=0.001))
    {'train/running_loss': 0.5, 'train/gradient_norm': 2.0, 'train/learning_rate': 0.001}
    """
    match event:
        case Progress():
            return {
                "train/running_loss": event.loss,
                "train/gradient_norm": event.gradient_norm,
                "train/learning_rate": event.learning_rate,
            }
        case EpochEnd():
            validation = {} if event.validation_loss is None else {"validation/loss": event.validation_loss}
            return {
                "train/loss": event.loss,
                "train/epoch": event.epoch,
                "train/seconds": event.seconds,
                "train/rows_per_second": event.rows_per_second,
                **validation,
                **{f"validation/{name}": value for name, value in event.metrics.items()},
                **{
                    f"{layer}/{name}": found[key]
                    for layer, found in event.units.items()
                    for name, key in _UNITS.items()
                },
            }
        case Measured():
            return {f"measured/{event.name}/{key}": v for key, v in event.values.items() if not isinstance(v, list)}
        case End():
            return {f"final/{name}": value for name, value in event.metrics.items()}
        case _:
            return {}
