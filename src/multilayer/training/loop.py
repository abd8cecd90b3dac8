"""The loop: cut the work, run it, ask the policies, emit events to the observers.

Work is cut at whatever comes next: the end of the epoch, a due checkpoint, or about 50 ms of steps, so that signals are
answered. How it is cut never changes a result: whatever must happen at a step happens at that step, by running the
chunk again up to it where necessary.

The best state is kept in memory. Its checkpoint is written just before the next checkpoint of kind `last`. A killed run
resumes from a `last` checkpoint, so it always finds the best state up to that step. The last best state is written at
the end of the run.

Two places are kept: where the chunk began (so that a step can be cut exactly, or looked at closely when a value was not
finite) and the last checkpoint (what a rollback returns to, and what a killed run resumes from). The state of the first
is not copied for every chunk: an earlier one, and the work done since, make it again bit for bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..engines import Chunk, Engine, Order, State, StepStatistics
from ..runs.checkpoints import Kind
from ..runs.events import Checkpoint, EpochEnd, Event, Measured, NonFinite, Notice, Progress, RolledBack, Spike
from .failure_inspection import bad_parameter, blame, first_bad
from .plan import Plan
from .policies import (
    Action,
    Continue,
    Found,
    Observer,
    Policy,
    Rollback,
    Steps,
    Stop,
    any_measures,
    better,
    states,
    strongest,
    value_of,
)

CHUNK_SECONDS = 0.05

COPIES = 0.01
"""The share of its time that a run may spend on copies of its state."""


@dataclass
class Sums:
    """Running sums between two lines of progress, or over an epoch."""

    loss: float = 0.0
    norm: float = 0.0
    steps: int = 0
    rows: int = 0
    weighted: float = 0.0

    def take(self, losses: list[float], norms: list[float], rows: list[int]) -> None:
        """Adds up in the steps' order: the same bits however the steps were cut."""
        self.loss, self.norm = reduce(add, losses, self.loss), reduce(add, norms, self.norm)
        self.steps, self.rows = self.steps + len(losses), self.rows + sum(rows)
        self.weighted = reduce(add, (loss * n for loss, n in zip(losses, rows, strict=True)), self.weighted)


@dataclass
class Position:
    """Where the run is; with the engine's and the policies' state, all that a checkpoint holds."""

    step: int = 0
    epoch: int = 0
    best: float | None = None
    best_loss: float | None = None
    """The validation loss of that epoch, where the metric is another."""
    best_step: int | None = None
    unsaved_best: bool = False
    """Whether the best epoch has no checkpoint in the log yet."""
    progress: Sums = field(default_factory=Sums)
    in_epoch: Sums = field(default_factory=Sums)


@dataclass(frozen=True, kw_only=True, eq=False)
class Snapshot:
    """A whole place in time to return to."""

    state: State
    policies: list[dict[str, Any]]
    position: Position
    best: State | None


class Piece(NamedTuple):
    """Work that the engine did, so that it can do it again."""

    order: Order
    schedules: dict[str, NDArray[np.float64]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Mark:
    """A place in time to return to by doing the first `pieces` since `anchor` again."""

    anchor: State
    since: list[Piece]
    pieces: int
    policies: list[dict[str, Any]]
    position: Position
    best: State | None


class Outcome(NamedTuple):
    """How a run came to its end."""

    status: Literal["finished", "stopped", "interrupted"]
    reason: str


@dataclass(kw_only=True)
class Loop:
    """One run of a plan on an engine."""

    plan: Plan
    engine: Engine
    policies: Sequence[Policy]
    observers: Sequence[Observer]
    evaluate: Callable[[Engine], tuple[float | None, dict[str, float]]]
    """Validation loss and metrics, now."""
    save: Callable[[State, dict[str, Any], Kind], Checkpoint | None]
    """Save a checkpoint. None is returned if no event tells of it."""
    asked: Sequence[Callable[[Event], Action]] = ()
    """Who decides after an epoch beside the policies, and is not part of what is saved."""
    interrupted: Callable[[], int | None] = lambda: None
    """The signal that asked for the end, if one did."""
    position: Position = field(default_factory=Position)
    best: State | None = None
    seconds: float = 0.0
    per_step: float = 0.0
    emitted: int = 0
    """Events emitted so far, those that a resume took back not counted."""
    saved: int | None = None
    """The step of the last checkpoint."""
    _anchor: State | None = None
    """A state of the engine's, and what it did since."""
    _since: list[Piece] = field(default_factory=list[Piece])
    _behind: float = 0.0
    """Seconds of work since."""
    _copying: float = 0.0
    """Seconds that a copy of the state took."""
    good: Snapshot = field(init=False)
    """At the last checkpoint, or at the start."""
    failed: bool = False
    """Whether it ended because loss, gradient or parameters left their senses."""
    _order: Order | None = None

    def run(self) -> Outcome:
        """Trains to the end of the plan, or until something stops it."""
        self.good = self._snapshot()
        ended: Stop | None = None
        while ended is None and self.position.step < self.plan.steps:
            ended = self._chunk()
            if ended is None and self.interrupted() is not None:
                if self.saved != self.position.step:
                    self._checkpoint(scheduled=False)
                return Outcome("interrupted", "a signal asked for it")
        self._checkpoint_best()
        return Outcome("finished", "all epochs are done") if ended is None else Outcome("stopped", ended.reason)

    # One chunk

    def _chunk(self) -> Stop | None:
        plan, position = self.plan, self.position
        order = self._order_of(position.epoch)
        within = position.step - position.epoch * plan.steps_per_epoch
        count = min(self._until_due(), order.steps - within)
        before = self._mark()
        chunk = self._take(order, within, count)
        if chunk.bad is not None or not chunk.finite:
            return self._not_finite(before, order, within, count if chunk.bad is None else chunk.bad)
        steps = Steps(first=position.step + 1, loss=chunk.loss, gradient_norm=chunk.gradient_norm)
        found = self._watch(steps)
        if found is not None and found.place + 1 < count:
            self._return(before)
            chunk = self._take(order, within, found.place + 1)
            steps = replace(steps, loss=chunk.loss, gradient_norm=chunk.gradient_norm)
            found = self._watch(steps)
        self._advance(order, within, chunk)
        if found is not None and not isinstance(found.action, Continue):
            return self._spiked(found, order, within, steps)
        ended = self._finish_epoch() if self.position.step % plan.steps_per_epoch == 0 else None
        if ended is None and self.position.step == plan.next_checkpoint(self.position.step - 1):
            self._checkpoint()
        return ended

    def _order_of(self, epoch: int) -> Order:
        if self._order is None or self._order.epoch != epoch:
            self._order = self.plan.order(epoch)
        return self._order

    def _until_due(self) -> int:
        """Steps to the next thing that is due, or as many as 50 ms hold."""
        plan, step = self.plan, self.position.step
        marks = [plan.steps_per_epoch]
        # Whoever measures must find the engine at that step.
        if not plan.repeats or any_measures(self.observers):
            marks.append(plan.log_every)
        due = min(plan.next_checkpoint(step) - step, *(every - step % every for every in marks))
        return max(1, min(due, int(CHUNK_SECONDS / self.per_step) if self.per_step else 1))

    def _take(self, order: Order, within: int, count: int) -> Chunk:
        rows = order.rows[within * order.batch : (within + count) * order.batch]
        piece = Piece(replace(order, rows=rows), self.plan.schedules(self.position.step, count))
        started = time.perf_counter()
        chunk = self.engine.run(piece.order, **piece.schedules)
        taken = time.perf_counter() - started
        self._since.append(piece)
        self._behind += taken
        self.seconds += taken
        self.per_step = taken / count
        return chunk

    def _rows(self, order: Order, step: int) -> NDArray[np.int64]:
        """The rows of the table that a step of the epoch is made of; an ensemble's members have rows of their own."""
        rows = order.rows[step * order.batch : (step + 1) * order.batch]
        return self.engine.own_rows(rows, order.epoch)

    def _watch(self, steps: Steps) -> Found | None:
        """The earliest step that any policy would act on; the strongest of those at the same step."""
        found = [answer for policy in self.policies if (answer := policy.watch(steps)) is not None]
        if not found:
            return None
        place = min(answer.place for answer in found)
        first = [answer for answer in found if answer.place == place]
        action = strongest(answer.action for answer in first)
        return next(answer for answer in first if answer.action == action)

    def _advance(self, order: Order, within: int, chunk: Chunk) -> None:
        """Counts the steps taken, and emits progress where it is due."""
        position, every = self.position, self.plan.log_every
        losses, norms = chunk.loss.tolist(), chunk.gradient_norm.tolist()
        left = len(order.rows) - within * order.batch
        sizes = [order.batch] * (len(losses) - 1) + [min(order.batch, left - (len(losses) - 1) * order.batch)]
        first = 0
        while first < len(losses):
            part = slice(first, first + every - position.step % every)
            for sums in (position.progress, position.in_epoch):
                sums.take(losses[part], norms[part], sizes[part])
            for found in chunk.statistics:
                if first <= found.place < part.stop:
                    self._emit_statistics(found, position.step + found.place - first + 1)
            first, position.step = part.stop, position.step + len(losses[part])
            if position.step % every == 0:
                self._emit_progress()

    # What may follow

    def _spiked(self, found: Found, order: Order, within: int, steps: Steps) -> Stop | None:
        if found.limit is None:
            return self._act(found.action)
        rows = self._rows(order, within + found.place)
        self.emit(
            Spike(
                step=self.position.step,
                loss=float(steps.loss[found.place]),
                limit=found.limit,
                gradient_norm=float(steps.gradient_norm[found.place]),
                layer=blame(self.engine, rows, epoch=order.epoch),
                rows=rows.tolist(),
            )
        )
        self.failed = isinstance(found.action, Stop)
        return self._act(found.action)

    def _not_finite(self, before: Mark, order: Order, within: int, bad: int) -> Stop | None:
        """Back to before the chunk, forward to just before the bad step, and a close look at it.

        A step is bad if its loss or gradient is not finite, or if its update makes a parameter so.
        """
        self._return(before)
        found: NonFinite | None = None
        for place in range(bad):
            place_before = self._mark()
            chunk = self._take(order, within + place, 1)
            found = None if chunk.finite else bad_parameter(self.engine.state())
            if found is not None:
                self._return(place_before)
                bad = place
                break
            self._advance(order, within + place, chunk)
        rows = self._rows(order, within + bad)
        step = self.position.step + 1
        if found is None:
            found = first_bad(self.engine, rows, epoch=order.epoch, step=step)
        else:
            found = replace(found, step=step, rows=rows.tolist())
        self.emit(found)
        what = f"a {found.where} that is not finite in {found.layer} at step {step}"
        action = strongest(policy.broken(what) for policy in self.policies)
        self.failed = not isinstance(action, Rollback)
        return self._act(Stop(reason=what) if isinstance(action, Continue) else action)

    def _act(self, action: Action) -> Stop | None:
        if isinstance(action, Stop):
            return action
        if isinstance(action, Rollback):
            surviving = [policy.survives() for policy in self.policies]
            self._load(self.good.state)
            self._set(self.good)
            for policy, kept in zip(self.policies, surviving, strict=True):
                policy.load({**policy.state(), **kept})
            factor = self.good.state.rate_factor * action.rate_factor
            self._load(replace(self.good.state, rate_factor=factor))
            step = self.position.step
            self.emit(RolledBack(step=step, to_step=step, rate_factor=factor, reason=action.reason))
            self._checkpoint()
        return None

    def _finish_epoch(self) -> Stop | None:
        position, sums = self.position, self.position.in_epoch
        validation, metrics = self.evaluate(self.engine)
        event = EpochEnd(
            step=position.step,
            epoch=position.epoch + 1,
            loss=sums.weighted / max(sums.rows, 1),
            seconds=self.seconds,
            rows_per_second=sums.rows / max(self.seconds, 1e-9),
            gradient_norm=sums.norm / max(sums.steps, 1),
            validation_loss=validation,
            metrics=metrics,
        )
        position.epoch += 1
        position.in_epoch = Sums()
        self.seconds = 0.0
        self.emit(event)
        value = value_of(event, self.plan.metric)
        losses = (event.validation_loss, position.best_loss)
        if value is not None and better(value, position.best, larger=self.plan.larger, losses=losses):
            position.best, position.best_loss, position.best_step = value, event.validation_loss, position.step
            self.best, position.unsaved_best = self._state(), True
        actions = [decide(event) for decide in (*(policy.decide for policy in self.policies), *self.asked)]
        for action in actions:
            if isinstance(action, Continue) and action.notice is not None:
                self.emit(Notice(step=position.step, message=action.notice[0], remedy=action.notice[1]))
        return self._act(strongest(actions))

    # Places in time

    def _state(self) -> State:
        """The engine's, now: copied where it has moved since the last copy."""
        if self._anchor is None or self._since:
            started = time.perf_counter()
            self._anchor, self._since, self._behind = self.engine.state(), [], 0.0
            self._copying = time.perf_counter() - started
        return self._anchor

    def _load(self, state: State) -> None:
        self.engine.load(state)
        self._anchor, self._since, self._behind = state, [], 0.0

    def _snapshot(self) -> Snapshot:
        return Snapshot(
            state=self._state(), policies=states(self.policies), position=_copy(self.position), best=self.best
        )

    def _mark(self) -> Mark:
        again = self.plan.repeats and self._behind < max(CHUNK_SECONDS, self._copying / COPIES)
        return Mark(
            anchor=self._anchor if self._anchor is not None and again else self._state(),
            since=self._since,
            pieces=len(self._since),
            policies=states(self.policies),
            position=_copy(self.position),
            best=self.best,
        )

    def _return(self, place: Mark) -> None:
        self._load(place.anchor)
        for piece in place.since[: place.pieces]:
            self.engine.run(piece.order, **piece.schedules)
        self._since = place.since[: place.pieces]
        self._set(place)

    def _set(self, place: Snapshot | Mark) -> None:
        for policy, state in zip(self.policies, place.policies, strict=True):
            policy.load(state)
        self.position = _copy(place.position)
        self.best = place.best

    def _checkpoint(self, *, scheduled: bool = True) -> None:
        """Save the current state, and before it the best state if it is new.

        `scheduled` checkpoints are also written in an uninterrupted run, so a resumed run emits them again.
        """
        emitted, unsaved = self.emitted, self.position.unsaved_best
        self._checkpoint_best()
        if scheduled:
            emitted = self.emitted
        else:
            self.position.unsaved_best = unsaved
        self.good, self.saved = self._snapshot(), self.position.step
        self._save(self.good.state, {**extra_of(self.good), "told": emitted, "scheduled": scheduled}, "last")

    def _checkpoint_best(self) -> None:
        """Save the best state, unless the log already has a checkpoint of it."""
        if self.position.unsaved_best and self.best is not None:
            self.position.unsaved_best = False
            self._save(self.best, {}, "best")

    def _save(self, state: State, extra: dict[str, Any], kind: Kind) -> None:
        event = self.save(state, extra, kind)
        if event is not None:
            self.emit(event)

    # Events

    def emit(self, event: Event, *, counted: bool = True) -> None:
        """Every observer gets it, then what any of them answered, one round of that; answers to answers are dropped.

        A resume does not count, since it is not part of what happened, nor does it get answers.
        """
        answers = [answer for observer in self.observers for answer in observer.notice(event) or ()]
        self.emitted += counted
        for answer in answers if counted else ():
            for observer in self.observers:
                observer.notice(answer)
            self.emitted += 1

    def _emit_statistics(self, found: StepStatistics, step: int) -> None:
        for name, values in (("gradient_norm", found.gradients), ("parameter_norm", found.parameters)):
            self.emit(Measured(step=step, name=name, values=dict(values)))

    def _emit_progress(self) -> None:
        position, sums = self.position, self.position.progress
        rate = self.plan.rate * self.plan.rate_schedule(position.step - 1, self.plan.steps)
        self.emit(
            Progress(
                step=position.step,
                epoch=position.epoch + 1,
                loss=sums.loss / sums.steps,
                gradient_norm=sums.norm / sums.steps,
                learning_rate=rate * self.good.state.rate_factor,
            )
        )
        position.progress = Sums()


def _copy(position: Position) -> Position:
    found = Position(**vars(position))
    found.progress, found.in_epoch = Sums(**vars(position.progress)), Sums(**vars(position.in_epoch))
    return found


def extra_of(place: Snapshot) -> dict[str, Any]:
    """What a checkpoint holds beside the engine's state, as JSON."""
    position = place.position
    return {
        "policies": place.policies,
        "position": {**vars(position), "progress": vars(position.progress), "in_epoch": vars(position.in_epoch)},
    }


def position_of(extra: dict[str, Any]) -> Position:
    """The other way."""
    values = dict(extra["position"])
    progress, in_epoch = Sums(**values.pop("progress")), Sums(**values.pop("in_epoch"))
    return Position(**values, progress=progress, in_epoch=in_epoch)
