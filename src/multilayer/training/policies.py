"""Policies decide about the run: when to stop, when to roll back, when to report something. Observers only look.

The loop calls both without knowing their names. A policy sees every step once (`watch`), in order, and every event
(`decide`). Of several actions, the loop takes the strongest: stop, then rollback, then continue. Observers receive
every event and may answer with further events. The state of a policy is part of a checkpoint, so a resumed run decides
like an uninterrupted one. A rollback restores the state too, except what `survives` returns.

    EarlyStopping   no better value of a metric for `patience` epochs
    Spikes          a loss above its running band: median + k · 1.4826 · MAD of the last losses, at least three times
                    the largest of them, and a gradient that grew with it
    Plateau         a training loss that has stopped falling: reported once, with its remedy, and not while the
                    schedule is about to raise the rate itself
    TimeLimit       seconds of this process

A band of median and absolute deviations (Hampel 1974) is not moved by the spikes it looks for. Everything that must
survive a checkpoint is in `state`, as JSON; the clock is not, so a resumed run has its full time again.
"""

from __future__ import annotations

import itertools
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import OptionError, unknown_name
from ..runs.events import NO_MISTAKES, EpochEnd, Event


@dataclass(frozen=True, kw_only=True)
class Continue:
    """Go on; `notice` is something a person should know, and its remedy."""

    notice: tuple[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Rollback:
    """Return to the last good checkpoint, with averages, best and patience, and multiply the rate from there on."""

    reason: str
    rate_factor: float = 0.1


@dataclass(frozen=True, kw_only=True)
class Stop:
    """End the run."""

    reason: str


Action = Continue | Rollback | Stop
_STRENGTH: dict[type[Any], int] = {Continue: 0, Rollback: 1, Stop: 2}


def strongest(actions: Iterable[Action]) -> Action:
    """What the loop does when several policies answer.

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
    """Steps just taken: the number of the first (from 1), and each one's loss and gradient norm."""

    first: int
    loss: NDArray[np.float64]
    gradient_norm: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Found:
    """A step among those watched after which to act: its place, what to do, and the limit that its loss went over."""

    place: int
    action: Action
    limit: float | None = None


class Policy(Protocol):
    """Decides. Early stopping, spikes, plateaus and time limits are policies."""

    def watch(self, steps: Steps) -> Found | None:
        """The first step that calls for action; what it has seen up to there, and not beyond, is remembered."""
        ...

    def decide(self, event: Event) -> Action: ...

    def broken(self, what: str) -> Action:
        """What to do about a value that is not finite; where no policy has an answer, the run stops."""
        ...

    def state(self) -> dict[str, Any]:
        """What must be saved, as JSON."""
        ...

    def load(self, state: dict[str, Any]) -> None: ...

    def survives(self) -> dict[str, Any]:
        """The part of the state that a rollback does not take back."""
        ...


class Observer(Protocol):
    """Looks and changes nothing: logs, progress bars, trackers, diagnostics."""

    def notice(self, event: Event) -> Iterable[Event] | None:
        """Hears of an event, and may answer with others (`Measured`, `Notice`), which every observer then hears of.

        Answers are part of the log, so they must follow from the event and the engine's state alone: a resumed run
        emits the same ones. What is answered to an answer, or to a resume, is ignored. One that looks at the engine
        has `measures = True`: only then does the engine stand at the step of a line of progress.
        """
        ...


def any_measures(observers: Iterable[Observer]) -> bool:
    """Return whether an observer reads the engine. Observers of users may leave `measures` out."""
    return any(getattr(observer, "measures", False) for observer in observers)


OnSpike = Literal["rollback", "stop", "ignore"]


MULTIPLE = 3.0
"""A spike is so many times the largest loss of the band, at least."""

SHARE_OF_START = 0.5
"""And this share of what the loss was at first: below that, one hard batch of a network that has nearly learned its
task looks like a spike and is none."""

SPIKE_OVER_START = 10.0
"""So many times what the loss was at first is a spike at once."""

SMALL_RATE = 0.1
"""Fraction of the peak learning rate below which the schedule explains a flat loss."""

UNSTEADY = 0.4
"""Fraction of epochs with a rising loss from which the loss of a plateau counts as unsteady."""

IN_A_ROW = 3
"""Otherwise so many steps in a row are: one batch with rows far out looks like a spike and is none."""


class Quiet:
    """A policy that does nothing; the others say only where they differ."""

    def watch(self, steps: Steps) -> Found | None:
        return None

    def decide(self, event: Event) -> Action:
        return Continue()

    def broken(self, what: str) -> Action:
        return Continue()

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: dict[str, Any]) -> None:
        """Nothing to take back."""

    def survives(self) -> dict[str, Any]:
        return {}


def better(value: float, than: float | None, *, larger: bool, losses: tuple[Any, Any] = (None, None)) -> bool:
    """Whether a metric improved; what is not a number never does. Where it is the same, a lower of the two losses
    decides: on few rows many epochs have the same accuracy, and the first of them is seldom the best."""
    if np.isnan(value):
        return False
    if value == than and None not in losses:
        return losses[0] < losses[1]
    return than is None or (value > than if larger else value < than)


class EarlyStopping(Quiet):
    """Stops when `metric` ("loss" for the validation loss) has not improved for `patience` epochs."""

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


class NoMistakes(Quiet):
    """Stop the perceptron rule after an epoch without a mistake, when every gradient is zero.

    The model is then that of the last epoch, even if another epoch was better on the held-out rows.
    """

    def decide(self, event: Event) -> Action:
        if isinstance(event, EpochEnd) and event.gradient_norm == 0:
            return Stop(reason=NO_MISTAKES)
        return Continue()


def value_of(event: Event, metric: str) -> float | None:
    """A metric's value at the end of an epoch, or None."""
    if not isinstance(event, EpochEnd):
        return None
    return event.validation_loss if metric == "loss" else event.metrics.get(metric)


class Spikes(Quiet):
    """Notices a loss far above the band of the last `window` losses; rolls back at most `most` times, then stops."""

    def __init__(self, *, on_spike: OnSpike = "rollback", most: int = 3, window: int = 64, width: float = 10.0) -> None:
        choices = ("rollback", "stop", "ignore")
        if on_spike not in choices:
            raise OptionError(unknown_name("value of on_spike", on_spike, choices))
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
        # Steps that are no leap from the one before are taken together: looking at each would cost more than a small
        # network's step.
        leaps = [*(np.flatnonzero(steps.loss[1:] / MULTIPLE > steps.loss[:-1]) + 1).tolist(), len(losses)]
        at = 0
        while at < len(losses):
            loss = losses[at]
            leapt = self.losses and loss > MULTIPLE * self.losses[-1] and loss > MULTIPLE * max(self.losses)
            limit = self._limit() if leapt else None
            if limit is not None and loss > limit and norms[at] > 2 * float(np.median(self.norms)):
                self.over += 1
                if self.over >= IN_A_ROW or not loss < SPIKE_OVER_START * float(np.median(self.start)):
                    self.over = 0
                    return Found(place=at, action=self.broken("the loss left its band"), limit=limit)
                at += 1  # and the band stays as it was
                continue
            end = leaps[bisect_right(leaps, at)]
            self._add(losses[at:end], norms[at:end])
            at = end
        return None

    def _add(self, losses: list[float], norms: list[float]) -> None:
        self.over = 0
        self.losses.extend(losses)
        self.norms.extend(norms)
        self.start.extend(losses[: (self.losses.maxlen or 0) // 2 - len(self.start)])

    def broken(self, what: str) -> Action:
        """Back to the last checkpoint while that is allowed, otherwise the end."""
        if self.on_spike == "rollback" and self.rollbacks < self.most:
            self.rollbacks += 1
            return Rollback(reason=what)
        again = f" after {self.rollbacks} rollbacks" if self.rollbacks else ""
        return Stop(reason=f"{what}{again}")

    def _limit(self) -> float | None:
        """Top of the band, once enough is seen to know one: never below three times the largest loss that was seen,
        because single batches of a network that has nearly learned its task differ that much without harm."""
        if len(self.losses) < (self.losses.maxlen or 0) // 2:
            return None
        middle = float(np.median(self.losses))
        spread = 1.4826 * float(np.median(np.abs(np.asarray(self.losses) - middle)))
        floor = SHARE_OF_START * float(np.median(self.start))
        return max(middle + self.width * spread, MULTIPLE * max(self.losses), floor)

    def state(self) -> dict[str, Any]:
        bands = {"losses": list(self.losses), "norms": list(self.norms), "start": list(self.start)}
        return {**bands, "over": self.over, **self.survives()}

    def load(self, state: dict[str, Any]) -> None:
        self.losses.clear()
        self.norms.clear()
        self.losses.extend(state["losses"])
        self.norms.extend(state["norms"])
        self.start, self.over = list(state["start"]), state["over"]
        self.rollbacks = state["rollbacks"]

    def survives(self) -> dict[str, Any]:
        return {"rollbacks": self.rollbacks}


class Plateau(Quiet):
    """Report once that the training loss decreased by less than `share` over `epochs` epochs.

    `rates` are the learning rates at the end of each epoch. If they come in cycles, the loss rises and falls with them,
    so whole cycles are compared, of at least `epochs` epochs together. Otherwise the means of the two halves of the
    last epochs are compared, once the rate has reached its peak.
    """

    def __init__(
        self, rates: Sequence[float] = (), *, epochs: int = 10, share: float = 0.01, remedy: str | None = None
    ) -> None:
        self.epochs, self.share, self.remedy = epochs, share, remedy
        self.wave_ends = wave_ends(rates)
        self.rates = rates
        self.peak = int(np.argmax(rates)) + 1 if len(rates) else 1
        self.losses: list[float] = []
        self.reported = False

    def decide(self, event: Event) -> Action:
        if not isinstance(event, EpochEnd):
            return Continue()
        self.losses.append(event.loss)
        if not self.wave_ends:
            self.losses = self.losses[-(self.epochs + 1) :]
        due = event.epoch in self.wave_ends if self.wave_ends else event.epoch - self.epochs >= self.peak
        if self.reported or not due or len(self.losses) <= self.epochs:
            return Continue()
        seen = self.losses
        (first, *_, last), past = seen, len(seen) - 1
        if self.wave_ends:
            self.losses = [last]
        if not self.wave_ends:  # halves, because single epochs are noisy; their middles are half the epochs apart
            half = len(seen) // 2
            first, last = fmean(seen[:half]), fmean(seen[-half:])
        if first - last >= self.share * abs(first) * (1.0 if self.wave_ends else 0.5):
            return Continue()
        planned = not self.wave_ends and event.epoch <= len(self.rates)
        if planned and self.rates[event.epoch - 1] < SMALL_RATE * max(self.rates):
            return Continue()  # the loss is flat because the schedule has lowered the learning rate
        self.reported = True
        message = f"the training loss has fallen by less than {self.share:.0%} over {past} epochs"
        return Continue(notice=(message, self.remedy or self._remedy(seen)))

    def _remedy(self, losses: Sequence[float]) -> str:
        """Recommend smaller steps if the loss goes up and down or rises; otherwise report convergence."""
        least = self.share / 10  # relative; smaller changes are rounding errors
        rises = sum(after - before > least * abs(before) for before, after in itertools.pairwise(losses))
        if not self.wave_ends and rises >= UNSTEADY * (len(losses) - 1):
            return "it goes up and down, so lower the learning rate or use a larger batch"
        if losses[-1] - losses[0] > self.share * abs(losses[0]):
            return "it has risen, so lower the learning rate"
        return "training has converged at this learning rate; a higher one may reach a lower loss"

    def state(self) -> dict[str, Any]:
        return {"losses": self.losses, "told": self.reported}

    def load(self, state: dict[str, Any]) -> None:
        self.losses, self.reported = list(state["losses"]), state["told"]


def wave_ends(rates: Sequence[float]) -> set[int]:
    """Epochs, from 1, that a wave ends with: where a rate is lowest before it rises again, and the last. None where the
    rate never rises again.

    >>> sorted(wave_ends([0.5, 1.0, 0.1, 0.9, 1.0, 0.2, 0.0])), wave_ends([0.5, 1.0, 0.1])
    ([3, 7], set())
    """
    found: set[int] = set()
    falling = False
    for epoch, (rate, following) in enumerate(itertools.pairwise(rates), 1):
        if falling and following > rate:
            found.add(epoch)
        falling = following < rate or (falling and following == rate)
    return found | {len(rates)} if found else found


class TimeLimit(Quiet):
    """Stops so many seconds after `began`, or from now on; the step it stops at is the clock's choice."""

    reason: ClassVar[str] = "the time limit of"

    def __init__(self, seconds: float, *, began: float | None = None) -> None:
        if not seconds > 0:
            raise OptionError(f"time_limit must be positive, got {seconds!r}")
        self.seconds = seconds
        self.started = time.monotonic() if began is None else began

    def watch(self, steps: Steps) -> Found | None:
        if time.monotonic() - self.started < self.seconds:
            return None
        return Found(place=len(steps.loss) - 1, action=Stop(reason=f"{self.reason} {self.seconds:g} s is up"))


def states(policies: Iterable[Any]) -> list[dict[str, Any]]:
    return [policy.state() for policy in policies]
