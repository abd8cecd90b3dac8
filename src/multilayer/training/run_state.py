"""The state of a run, computed from its events, and its curves as text. `progress.py` displays them.

The horizontal axis of a curve is the whole plan, so a curve grows with the progress bar above it. A column shows the
mean of its points. A column without points shows the value of the next one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..runs.events import EpochEnd, Event, Progress, Resume, RolledBack, Start
from .policies import better, value_of

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS = "_.,-~+*#"

MOST_POINTS = 2000

Point = tuple[int, float]
"""A step and a value."""


@dataclass
class RunState:
    """Progress, speed, remaining time, best epoch and curves of a run."""

    steps: int
    epochs: int
    steps_per_epoch: int
    metric: str = "loss"
    larger: bool = False
    step: int = 0
    origin: int = 0
    """Step at which this process started."""
    learning_rate: float | None = None
    epoch_rows: int | None = None
    rows_per_second: float | None = None
    last: EpochEnd | None = None
    bests: list[EpochEnd] = field(default_factory=list[EpochEnd])
    """Every epoch that was better than all earlier epochs."""
    train: list[Point] = field(default_factory=list[Point])
    validation: list[Point] = field(default_factory=list[Point])
    metrics: dict[str, list[Point]] = field(default_factory=dict[str, list[Point]])
    taken: int = 0
    """Steps of this process, including those that were rolled back."""
    began: float = field(default_factory=lambda: time.monotonic())

    @property
    def epoch(self) -> int:
        """The current epoch, counted from 1."""
        return min(self.step // max(self.steps_per_epoch, 1) + 1, self.epochs)

    @property
    def best(self) -> tuple[float, int] | None:
        """The best value of the metric, and its epoch, counted from 1."""
        value = self.value(self.bests[-1]) if self.bests else None
        return None if value is None else (value, self.bests[-1].epoch)

    @property
    def share(self) -> float:
        return min(self.step / self.steps, 1.0) if self.steps else 1.0

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    @property
    def left(self) -> float | None:
        """Remaining seconds at the speed so far, including evaluations."""
        return self.elapsed / self.taken * max(self.steps - self.step, 0) if self.taken else None

    @property
    def speed(self) -> float | None:
        """Rows per second in the last epoch, without its evaluation. In the first epoch, an estimate so far."""
        if self.rows_per_second is not None or self.epoch_rows is None or not self.taken:
            return self.rows_per_second
        return self.epoch_rows / max(self.steps_per_epoch, 1) * self.taken / max(self.elapsed, 1e-9)

    def take(self, event: Event) -> None:
        """Update the state with an event."""
        if isinstance(event, Resume | RolledBack):
            self.step = event.step
        else:  # a `best` checkpoint is emitted later, but has the step of its epoch
            self.taken += max(event.step - self.step, 0)
            self.step = max(event.step, self.step)
        match event:
            case Start():
                self.epoch_rows = min(event.rows, event.config.get("epoch_rows") or event.rows)
            case Progress():
                self.learning_rate = event.learning_rate
                self.train.append((event.step, event.loss))
            case EpochEnd():
                self._take_epoch(event)
            case RolledBack():
                self._forget(event.to_step)
            case Resume():
                self._forget(event.step)
                self.origin = event.step
                self.taken, self.began = 0, time.monotonic()
            case _:
                pass
        for points in (self.train, self.validation, *self.metrics.values()):
            if len(points) > MOST_POINTS:
                points[:] = thinned(points)

    def _take_epoch(self, event: EpochEnd) -> None:
        self.last, self.rows_per_second = event, event.rows_per_second
        if not self.train or self.train[-1][0] <= event.step - self.steps_per_epoch:
            self.train.append((event.step, event.loss))
        if event.validation_loss is not None:
            self.validation.append((event.step, event.validation_loss))
        for name, value in event.metrics.items():
            self.metrics.setdefault(name, []).append((event.step, value))
        value = self.value(event)
        best, losses = self.best, (event.validation_loss, self.bests[-1].validation_loss if self.bests else None)
        if value is not None and better(value, best[0] if best else None, larger=self.larger, losses=losses):
            self.bests.append(event)

    def value(self, event: EpochEnd) -> float | None:
        """Return the value that selects the best epoch: the metric, or the training loss without held-out rows."""
        value = value_of(event, self.metric)
        return event.loss if value is None and self.metric == "loss" else value

    def _forget(self, after: int) -> None:
        """Remove the points and best epochs after step `after`, for a rollback or a resume."""
        self.bests = [event for event in self.bests if event.step <= after]
        for points in (self.train, self.validation, *self.metrics.values()):
            points[:] = [point for point in points if point[0] <= after]


def thinned(points: Sequence[Point]) -> list[Point]:
    """Return half as many points: the mean of each two, at the later step. The last point is kept.

    >>> thinned([(1, 2.0), (2, 4.0), (3, 5.0), (4, 6.0)])
    [(2, 3.0), (3, 5.0), (4, 6.0)]
    """
    *earlier, last = points
    pairs = zip(earlier[::2], earlier[1::2], strict=False)
    odd = earlier[-1:] if len(earlier) % 2 else []
    return [*((b[0], (a[1] + b[1]) / 2) for a, b in pairs), *odd, last]


def columns(points: Sequence[Point], *, steps: int, width: int, origin: int = 0) -> list[float | None]:
    """Return a value for each of `width` columns, up to the last point: None for columns before `origin`.

    >>> columns([(2, 4.0), (6, 1.0)], steps=8, width=4)
    [4.0, 1.0, 1.0]
    """
    if not points or width < 1 or steps < 1:
        return []
    sums: dict[int, list[float]] = {}
    for step, value in points:
        sums.setdefault(_column(step, steps, width), []).append(value)
    first = min(_column(origin + 1, steps, width), min(sums))
    row: list[float | None] = [None] * (max(sums) + 1)
    following: float | None = None
    for i in range(len(row) - 1, first - 1, -1):
        following = sum(sums[i]) / len(sums[i]) if i in sums else following
        row[i] = following
    return row


def _column(step: int, steps: int, width: int) -> int:
    return min(max(step * width - 1, 0) // steps, width - 1)


def limits(*rows: Sequence[float | None]) -> tuple[float, float] | None:
    """Return the smallest and largest finite value of several curves, for a common scale."""
    finite = [value for row in rows for value in row if value is not None and math.isfinite(value)]
    return (min(finite), max(finite)) if finite else None


def sparkline(
    row: Sequence[float | None], *, within: tuple[float, float] | None, log: bool = False, blocks: str = BLOCKS
) -> str:
    """Return a curve as one line of text, with × for values that are not finite.

    `log` uses a logarithmic scale if all values are positive.

    >>> sparkline([8.0, 4.0, None, 2.0, 1.0], within=(1.0, 8.0), log=True)
    '█▆ ▃▁'
    """
    low, high = within if within is not None else (0.0, 0.0)
    if log and low > 0:
        row = [math.log(value) if value is not None and math.isfinite(value) else value for value in row]
        low, high = math.log(low), math.log(high)
    spread = high - low if high > low else 1.0
    top = len(blocks) - 1
    bad = "×" if blocks == BLOCKS else "x"
    marks = [
        " " if value is None
        else blocks[min(max(round((value - low) / spread * top), 0), top)] if math.isfinite(value)
        else bad
        for value in row
    ]  # fmt: skip
    return "".join(marks)
