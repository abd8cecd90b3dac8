"""Policies control a run: when to stop, when to roll back, and when to report a problem. Observers only read events.

The loop calls both through their interfaces. A policy receives every step once and in order (`watch`), and every event
(`decide`). If several policies return an action, the loop takes the strongest: stop, then rollback, then continue.
Observers receive every event and may return further events. The state of a policy is part of a checkpoint, so a resumed
run decides like an uninterrupted one. A rollback restores the state too, except what `kept_on_rollback` returns.

    EarlyStopping   stops if a metric has not improved for `patience` epochs
    Spikes          reacts to a loss above a limit: median + k · 1.4826 · MAD of the last losses, and at least three
                    times the largest of them. The gradient norm must have grown as well.
    Plateau         reports once that the training loss has stopped falling, and what to do. It reports nothing before
                    the learning rate has reached its peak, or after the schedule has lowered it.
    TimeLimit       stops after a number of seconds

The median and the median absolute deviation (MAD) are robust: spikes hardly change the limit (Hampel 1974). The state
is JSON. It does not contain the elapsed time, so a resumed run has its full time limit again.
"""

from __future__ import annotations

import itertools
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import OptionError, unknown_name
from ..runs.config import ON_SPIKE, OnSpike
from ..runs.events import NO_MISTAKES, EpochEnd, Event


@dataclass(frozen=True, kw_only=True)
class Continue:
    """Continue training. `notice` is a message for the user, with a remedy."""

    notice: tuple[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Rollback:
    """Restore the last checkpoint, and multiply the learning rate by `rate_factor` from there on.

    The averaged weights, the best epoch and the state of the policies are restored as well.
    """

    reason: str
    rate_factor: float = 0.1


@dataclass(frozen=True, kw_only=True)
class Stop:
    """End the run. `timed_out` is whether a time limit asks for it."""

    reason: str
    timed_out: bool = field(default=False, repr=False)


Action = Continue | Rollback | Stop
_STRENGTH: dict[type[Any], int] = {Continue: 0, Rollback: 1, Stop: 2}


def strongest(actions: Iterable[Action]) -> Action:
    """Return the action that the loop takes if several policies return one.

    >>> strongest([Continue(), Rollback(reason="spike"), Stop(reason="time")])
    Stop(reason='time')
    """
    chosen: Action = Continue()
    for action in actions:
        if _STRENGTH[type(action)] > _STRENGTH[type(chosen)]:
            chosen = action
    return chosen


@dataclass(frozen=True, kw_only=True, eq=False)
class Steps:
    """Steps that were just taken: the number of the first, counted from 1, and the loss and gradient norm of each."""

    first: int
    loss: NDArray[np.float64]
    gradient_norm: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Found:
    """An action to take after one of the watched steps.

    `place` is the index of the step among them. `limit` is the limit that its loss exceeded, if any.
    """

    place: int
    action: Action
    limit: float | None = None


class Policy(Protocol):
    """The interface of a policy, such as early stopping or a time limit."""

    def watch(self, steps: Steps) -> Found | None:
        """Return the first step that needs an action. The policy must not update its state for later steps."""
        ...

    def decide(self, event: Event) -> Action: ...

    def on_non_finite(self, what: str) -> Action:
        """Return the action for a value that is not finite. The run stops if every policy continues."""
        ...

    def state(self) -> dict[str, Any]:
        """Return the state to save in a checkpoint, as JSON."""
        ...

    def load(self, state: dict[str, Any]) -> None: ...

    def kept_on_rollback(self) -> dict[str, Any]:
        """Return the part of the state that a rollback does not restore."""
        ...


class Observer(Protocol):
    """The interface of an observer, such as a log, a progress bar or a tracker. It does not change the run."""

    def notice(self, event: Event) -> Iterable[Event] | None:
        """Receive an event. Return further events (`Measured`, `Notice`) to emit them to every observer.

        Returned events become part of the log. They must depend only on the event and the state of the engine, so that
        a resumed run emits the same ones. They are ignored if `event` was itself returned by an observer, or is a
        `Resume`. An observer that reads the engine needs the attribute `measures = True`. The loop then interrupts the
        engine at the step of every `Progress` event.
        """
        ...


def any_measures(observers: Iterable[Observer]) -> bool:
    """Return whether an observer reads the engine. Observers of users may leave `measures` out."""
    return any(getattr(observer, "measures", False) for observer in observers)


MIN_SPIKE_RATIO = 3.0
"""A loss is a spike only if it is at least this many times the largest of the last losses."""

MIN_SPIKE_TO_INITIAL = 0.5
"""A loss is a spike only if it is at least this many times the initial loss. The loss of a single hard batch, in a
network that has nearly learned its task, is lower."""

IMMEDIATE_SPIKE_TO_INITIAL = 10.0
"""A single step is a spike if its loss is at least this many times the initial loss."""

SMALL_RATE = 0.1
"""A flat loss is not reported if the learning rate is below this fraction of its peak: the schedule is the cause."""

NEARLY_ZERO = 0.01
"""A flat training loss is not reported if it is below this fraction of the first loss."""

UNSTEADY = 0.4
"""The loss of a plateau goes up and down if it rises in at least this fraction of the epochs."""

MIN_SPIKE_STEPS = 3
"""With a lower loss, this number of consecutive steps must exceed the limit. A single batch with outliers is not a
spike."""


class BasePolicy:
    """A policy that always continues. The policies below override its methods."""

    def watch(self, steps: Steps) -> Found | None:
        return None

    def decide(self, event: Event) -> Action:
        return Continue()

    def on_non_finite(self, what: str) -> Action:
        return Continue()

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: dict[str, Any]) -> None:
        """Do nothing, because there is no state."""

    def kept_on_rollback(self) -> dict[str, Any]:
        return {}


def better(value: float, than: float | None, *, larger: bool, losses: tuple[Any, Any] = (None, None)) -> bool:
    """Return whether a metric improved. NaN is never an improvement.

    If the metric is equal, the lower of the two `losses` is better: with few rows, many epochs have the same accuracy,
    and the first of them is rarely the best.
    """
    if np.isnan(value):
        return False
    if value == than and None not in losses:
        return losses[0] < losses[1]
    return than is None or (value > than if larger else value < than)


class EarlyStopping(BasePolicy):
    """Stop when `metric` ("loss" for the validation loss) has not improved for `patience` epochs."""

    def __init__(self, metric: str, *, larger: bool, patience: int) -> None:
        if patience < 1:
            raise OptionError(f"patience must be at least 1, got {patience}")
        self.metric, self.larger, self.patience = metric, larger, patience
        self.best: float | None = None
        self.waited = 0

    def decide(self, event: Event) -> Action:
        value = value_of(event, self.metric)
        if value is None:
            return Continue()
        if better(value, self.best, larger=self.larger):
            self.best, self.waited = value, 0
            return Continue()
        self.waited += 1
        if self.waited < self.patience:
            return Continue()
        return Stop(reason=f"{self.metric} has not improved for {self.waited} epochs")

    def state(self) -> dict[str, Any]:
        return {"best": self.best, "waited": self.waited}

    def load(self, state: dict[str, Any]) -> None:
        self.best, self.waited = state["best"], state["waited"]


class NoMistakes(BasePolicy):
    """Stop the perceptron rule after an epoch without a mistake, when every gradient is zero.

    The model is then that of the last epoch, even if another epoch was better on the held-out rows.
    """

    def decide(self, event: Event) -> Action:
        if isinstance(event, EpochEnd) and event.gradient_norm == 0:
            return Stop(reason=NO_MISTAKES)
        return Continue()


def value_of(event: Event, metric: str) -> float | None:
    """Return the value of a metric if the event is the end of an epoch, else None."""
    if not isinstance(event, EpochEnd):
        return None
    return event.validation_loss if metric == "loss" else event.metrics.get(metric)


class Spikes(BasePolicy):
    """Detect a loss far above the last `window` losses. Roll back at most `most` times, then stop."""

    def __init__(self, *, on_spike: OnSpike = "rollback", most: int = 3, window: int = 64, width: float = 10.0) -> None:
        if on_spike not in ON_SPIKE:
            raise OptionError(unknown_name("value of on_spike", on_spike, ON_SPIKE))
        self.on_spike, self.most, self.width = on_spike, most, width
        self.losses: deque[float] = deque(maxlen=window)
        self.norms: deque[float] = deque(maxlen=window)
        self.start: list[float] = []
        self.over = 0
        self.rollbacks = 0

    def watch(self, steps: Steps) -> Found | None:
        if self.on_spike == "ignore":
            return None
        losses, norms = steps.loss.tolist(), steps.gradient_norm.tolist()
        # Steps without a jump of the loss are added together. Checking each step would take longer than the step of a
        # small network.
        jumps = [*(np.flatnonzero(steps.loss[1:] / MIN_SPIKE_RATIO > steps.loss[:-1]) + 1).tolist(), len(losses)]
        at = 0
        while at < len(losses):
            loss = losses[at]
            last, factor = self.losses[-1] if self.losses else np.inf, MIN_SPIKE_RATIO
            jumped = loss > factor * last and loss > factor * max(self.losses)  # the first test is cheap
            limit = self._limit() if jumped else None
            if limit is not None and loss > limit and norms[at] > 2 * float(np.median(self.norms)):
                self.over += 1
                immediate = not loss < IMMEDIATE_SPIKE_TO_INITIAL * float(np.median(self.start))
                if self.over >= MIN_SPIKE_STEPS or immediate:
                    self.over = 0
                    return Found(place=at, action=self.on_non_finite("the loss exceeded its limit"), limit=limit)
                at += 1  # without adding the loss, so that the limit does not change
                continue
            end = jumps[bisect_right(jumps, at)]
            self._add(losses[at:end], norms[at:end])
            at = end
        return None

    def _add(self, losses: list[float], norms: list[float]) -> None:
        self.over = 0
        self.losses.extend(losses)
        self.norms.extend(norms)
        self.start.extend(losses[: (self.losses.maxlen or 0) // 2 - len(self.start)])

    def on_non_finite(self, what: str) -> Action:
        """Roll back while the number of rollbacks allows it, then stop. A spike gets the same action."""
        if self.on_spike == "rollback" and self.rollbacks < self.most:
            self.rollbacks += 1
            return Rollback(reason=what)
        again = f" after {self.rollbacks} rollbacks" if self.rollbacks else ""
        return Stop(reason=f"{what}{again}")

    def _limit(self) -> float | None:
        """Return the limit of the loss, or None while there are too few losses.

        It is at least three times the largest of the last losses, because the losses of single batches differ that
        much when a network has nearly learned its task.
        """
        if len(self.losses) < (self.losses.maxlen or 0) // 2:
            return None
        middle = float(np.median(self.losses))
        spread = 1.4826 * float(np.median(np.abs(np.asarray(self.losses) - middle)))
        floor = MIN_SPIKE_TO_INITIAL * float(np.median(self.start))
        return max(middle + self.width * spread, MIN_SPIKE_RATIO * max(self.losses), floor)

    def state(self) -> dict[str, Any]:
        bands = {"losses": list(self.losses), "norms": list(self.norms), "start": list(self.start)}
        return {**bands, "over": self.over, **self.kept_on_rollback()}

    def load(self, state: dict[str, Any]) -> None:
        self.losses.clear()
        self.norms.clear()
        self.losses.extend(state["losses"])
        self.norms.extend(state["norms"])
        self.start, self.over = list(state["start"]), state["over"]
        self.rollbacks = state["rollbacks"]

    def kept_on_rollback(self) -> dict[str, Any]:
        return {"rollbacks": self.rollbacks}


class Plateau(BasePolicy):
    """Report once that the training loss decreased by less than `share` over `epochs` epochs.

    `rates` are the learning rates at the end of each epoch. If they come in cycles, the loss rises and falls with them,
    so whole cycles are compared, of at least `epochs` epochs together. Otherwise the means of the two halves of the
    last epochs are compared, once the rate has reached its peak. A loss that is below `NEARLY_ZERO` times the loss of
    the first epoch is not a plateau, because it cannot decrease much further.
    """

    def __init__(
        self, rates: Sequence[float] = (), *, epochs: int = 10, share: float = 0.01, remedy: str | None = None
    ) -> None:
        self.epochs, self.share, self.remedy = epochs, share, remedy
        self.cycle_ends = cycle_ends(rates)
        self.rates = rates
        self.peak = int(np.argmax(rates)) + 1 if len(rates) else 1
        self.losses: list[float] = []
        self.initial: float | None = None
        self.reported = False

    def decide(self, event: Event) -> Action:
        if not isinstance(event, EpochEnd):
            return Continue()
        if self.initial is None:
            self.initial = event.loss
        self.losses.append(event.loss)
        if not self.cycle_ends:
            self.losses = self.losses[-(self.epochs + 1) :]
        due = event.epoch in self.cycle_ends if self.cycle_ends else event.epoch - self.epochs >= self.peak
        if self.reported or not due or len(self.losses) <= self.epochs:
            return Continue()
        seen = self.losses
        (first, *_, last), past = seen, len(seen) - 1
        if self.cycle_ends:
            self.losses = [last]
        if not self.cycle_ends:  # compare halves, because single epochs are noisy; their means are half as far apart
            half = len(seen) // 2
            first, last = fmean(seen[:half]), fmean(seen[-half:])
        if first - last >= self.share * abs(first) * (1.0 if self.cycle_ends else 0.5):
            return Continue()
        planned = not self.cycle_ends and event.epoch <= len(self.rates)
        if planned and self.rates[event.epoch - 1] < SMALL_RATE * max(self.rates):
            return Continue()  # the loss is flat because the schedule has lowered the learning rate
        if last < NEARLY_ZERO * self.initial:
            return Continue()
        self.reported = True
        message = f"the training loss has fallen by less than {self.share:.0%} over {past} epochs"
        return Continue(notice=(message, self.remedy or self._remedy(seen)))

    def _remedy(self, losses: Sequence[float]) -> str:
        """Recommend smaller steps if the loss goes up and down or rises; otherwise report convergence."""
        least = self.share / 10  # relative; smaller changes are rounding errors
        rises = sum(after - before > least * abs(before) for before, after in itertools.pairwise(losses))
        if not self.cycle_ends and rises >= UNSTEADY * (len(losses) - 1):
            return "it goes up and down, so lower the learning rate or use a larger batch"
        if losses[-1] - losses[0] > self.share * abs(losses[0]):
            return "it has risen, so lower the learning rate"
        return "training has converged at this learning rate; a higher one may reach a lower loss"

    def state(self) -> dict[str, Any]:
        return {"losses": self.losses, "initial": self.initial, "told": self.reported}

    def load(self, state: dict[str, Any]) -> None:
        self.losses, self.reported = list(state["losses"]), state["told"]
        self.initial = state.get("initial", next(iter(self.losses), None))  # older runs did not store it


def cycle_ends(rates: Sequence[float]) -> set[int]:
    """Return the last epoch of each cycle of the learning rate, counted from 1.

    A cycle ends where the rate is lowest before it rises again, or with the last epoch. The result is empty if the rate
    never rises again.

    >>> sorted(cycle_ends([0.5, 1.0, 0.1, 0.9, 1.0, 0.2, 0.0])), cycle_ends([0.5, 1.0, 0.1])
    ([3, 7], set())
    """
    found: set[int] = set()
    falling = False
    for epoch, (rate, following) in enumerate(itertools.pairwise(rates), 1):
        if falling and following > rate:
            found.add(epoch)
        falling = following < rate or (falling and following == rate)
    return found | {len(rates)} if found else found


class TimeLimit(BasePolicy):
    """Stop a number of seconds after `began`, by default after the policy is made.

    The step at which the run stops depends on the speed of the machine, so the result is not reproducible.
    """

    def __init__(self, seconds: float, *, began: float | None = None) -> None:
        if not seconds > 0:
            raise OptionError(f"time_limit must be positive, got {seconds!r}")
        self.seconds = seconds
        self.started = time.monotonic() if began is None else began

    def watch(self, steps: Steps) -> Found | None:
        if time.monotonic() - self.started < self.seconds:
            return None
        reason = f"the time limit of {self.seconds:g} s was reached"
        return Found(place=len(steps.loss) - 1, action=Stop(reason=reason, timed_out=True))


def states(policies: Iterable[Any]) -> list[dict[str, Any]]:
    return [policy.state() for policy in policies]
