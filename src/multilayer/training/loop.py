"""The training loop: run the steps in chunks, call the policies, and emit events to the observers.

A chunk ends at the end of the epoch, at a checkpoint, or after about 50 ms, so that the loop can react to signals. The
chunks do not change the result. If a policy acts on a step inside a chunk, the loop goes back to the start of the chunk
and runs it again up to this step.

The best state is kept in memory. Its checkpoint is written just before the next checkpoint of kind `last`. A killed run
resumes from a `last` checkpoint, so it always finds the best state up to that step. The last best state is written at
the end of the run.

The loop can return to two positions:

    start of the chunk   to end at an exact step, or to run the steps one by one after a value that is not finite
    last checkpoint      for a rollback; a killed run resumes here

Copying the state for every chunk would take too long. The loop keeps an older copy and the orders since then, and
computes the start of the chunk from them, bit for bit.
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

from ..engines import Chunk, Engine, Order, State, StepStatistics, UnitCounts
from ..runs.checkpoints import Kind
from ..runs.events import Checkpoint, EpochEnd, Event, Measured, NonFinite, Notice, Progress, RolledBack, Spike
from ..spec import Spec
from . import unit_summary
from .failure_inspection import bad_parameter, first_bad, largest_gradient_layer
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
"""Duration of a chunk, at least one step. A signal is noticed after a chunk."""

MAX_COPY_SHARE = 0.01
"""Largest fraction of the time of a run for copies of its state."""


@dataclass
class Sums:
    """Running sums since the last `Progress` event, or over an epoch."""

    loss: float = 0.0
    norm: float = 0.0
    steps: int = 0
    rows: int = 0
    weighted: float = 0.0

    def take(self, losses: list[float], norms: list[float], rows: list[int]) -> None:
        """Add steps in their order, so that the result does not depend on the chunks."""
        self.loss, self.norm = reduce(add, losses, self.loss), reduce(add, norms, self.norm)
        self.steps, self.rows = self.steps + len(losses), self.rows + sum(rows)
        self.weighted = reduce(add, (loss * n for loss, n in zip(losses, rows, strict=True)), self.weighted)


@dataclass
class Position:
    """The position of the run. A checkpoint contains it, the state of the engine and the states of the policies."""

    step: int = 0
    epoch: int = 0
    best: float | None = None
    best_loss: float | None = None
    """Validation loss of the best epoch. It decides between epochs with the same metric."""
    best_step: int | None = None
    unsaved_best: bool = False
    """Whether the best epoch has no checkpoint in the log yet."""
    progress: Sums = field(default_factory=Sums)
    in_epoch: Sums = field(default_factory=Sums)
    units: dict[str, UnitCounts] = field(default_factory=dict[str, UnitCounts])
    """Counts of the units of the current epoch, if it is counted. They are replaced, not changed."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Snapshot:
    """A complete copy of the run at one step."""

    state: State
    policies: list[dict[str, Any]]
    position: Position
    best: State | None


class EngineCall(NamedTuple):
    """The arguments of a call of `Engine.run`, to repeat it."""

    order: Order
    schedules: dict[str, NDArray[np.float64]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Mark:
    """The start of a chunk, stored as an older state `anchor`, and the number of the calls `since` then to repeat."""

    anchor: State
    since: list[EngineCall]
    calls: int
    policies: list[dict[str, Any]]
    position: Position
    best: State | None


class Outcome(NamedTuple):
    """The reason why a run ended."""

    status: Literal["finished", "stopped", "interrupted"]
    reason: str
    timed_out: bool = False
    """Whether a time limit stopped the run."""


@dataclass(kw_only=True)
class Loop:
    """Train by a plan on an engine, as a loop over chunks."""

    plan: Plan
    spec: Spec
    """The network of the engine, or of each member of an ensemble."""
    engine: Engine
    policies: Sequence[Policy]
    observers: Sequence[Observer]
    evaluate: Callable[[Engine], tuple[float | None, dict[str, float]]]
    """Return the validation loss and metrics of the current parameters."""
    save: Callable[[State, dict[str, Any], Kind], Checkpoint | None]
    """Save a checkpoint. Return the event to emit, if any."""
    callbacks: Sequence[Callable[[Event], Action]] = ()
    """Functions that return an action after an epoch, like policies. They have no state in checkpoints."""
    interrupted: Callable[[], int | None] = lambda: None
    """Return the number of the signal that was received, if any."""
    position: Position = field(default_factory=Position)
    best: State | None = None
    seconds: float = 0.0
    per_step: float = 0.0
    emitted: int = 0
    """Number of events emitted so far, without those that a resume superseded."""
    saved: int | None = None
    """The step of the last checkpoint."""
    _anchor: State | None = None
    """The last copy of the state of the engine."""
    _since: list[EngineCall] = field(default_factory=list[EngineCall])
    """The calls of the engine since then."""
    _behind: float = 0.0
    """Seconds of these calls."""
    _copying: float = 0.0
    """Seconds of the last copy of the state."""
    good: Snapshot = field(init=False)
    """The run at the last checkpoint, or at the start."""
    failed: bool = False
    """Whether training diverged."""
    _order: Order | None = None

    def run(self) -> Outcome:
        """Train until the plan ends, a policy stops the run, or a signal is received."""
        self.good = self._snapshot()
        ended: Stop | None = None
        while ended is None and self.position.step < self.plan.steps:
            ended = self._chunk()
            if ended is None and self.interrupted() is not None:
                if self.saved != self.position.step:
                    self._checkpoint(scheduled=False)
                return Outcome("interrupted", "a signal stopped training")
        self._checkpoint_best()
        if ended is None:
            return Outcome("finished", "all epochs are done")
        return Outcome("stopped", ended.reason, timed_out=ended.timed_out)

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
        """Return the number of steps of the next chunk."""
        plan, step = self.plan, self.position.step
        intervals = [plan.steps_per_epoch]
        # An observer that reads the engine needs its state at the step of the event.
        if not plan.repeats or any_measures(self.observers):
            intervals.append(plan.log_every)
        due = min(plan.next_checkpoint(step) - step, *(every - step % every for every in intervals))
        return max(1, min(due, int(CHUNK_SECONDS / self.per_step) if self.per_step else 1))

    def _take(self, order: Order, within: int, count: int) -> Chunk:
        rows = order.rows[within * order.batch : (within + count) * order.batch]
        call = EngineCall(replace(order, rows=rows), self.plan.schedules(self.position.step, count))
        started = time.perf_counter()
        chunk = self.engine.run(call.order, **call.schedules, count_units=self.plan.counts_units(order.epoch))
        taken = time.perf_counter() - started
        self._since.append(call)
        self._behind += taken
        self.seconds += taken
        self.per_step = taken / count
        return chunk

    def _rows(self, order: Order, step: int) -> NDArray[np.int64]:
        """Return the rows of the table in a step of the epoch. Ensemble members have different rows."""
        rows = order.rows[step * order.batch : (step + 1) * order.batch]
        return self.engine.own_rows(rows, order.epoch)

    def _watch(self, steps: Steps) -> Found | None:
        """Return the earliest step at which a policy acts, with the strongest action for this step."""
        found = [answer for policy in self.policies if (answer := policy.watch(steps)) is not None]
        if not found:
            return None
        place = min(answer.place for answer in found)
        first = [answer for answer in found if answer.place == place]
        action = strongest(answer.action for answer in first)
        return next(answer for answer in first if answer.action == action)

    def _advance(self, order: Order, within: int, chunk: Chunk) -> None:
        """Add finished steps to the position and the sums, and emit the `Progress` and `Measured` events among them."""
        position, every = self.position, self.plan.log_every
        losses, norms = chunk.loss.tolist(), chunk.gradient_norm.tolist()
        position.units = unit_summary.added(position.units, chunk.units)
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

    # Spikes, values that are not finite, and the end of an epoch

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
                layer=largest_gradient_layer(self.engine, rows, epoch=order.epoch),
                rows=rows.tolist(),
            )
        )
        self.failed = isinstance(found.action, Stop)
        return self._act(found.action)

    def _not_finite(self, before: Mark, order: Order, within: int, bad: int) -> Stop | None:
        """Return to the start of the chunk, run up to the bad step, and emit an event about its cause.

        A step is bad if its loss, its gradient or an updated parameter is not finite.
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
        action = strongest(policy.on_non_finite(what) for policy in self.policies)
        self.failed = not isinstance(action, Rollback)
        return self._act(Stop(reason=what) if isinstance(action, Continue) else action)

    def _act(self, action: Action) -> Stop | None:
        if isinstance(action, Stop):
            return action
        if isinstance(action, Rollback):
            kept_states = [policy.kept_on_rollback() for policy in self.policies]
            self._load(self.good.state)
            self._set(self.good)
            for policy, kept in zip(self.policies, kept_states, strict=True):
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
            units=unit_summary.summary(position.units, self.spec),
        )
        position.epoch += 1
        position.in_epoch, position.units = Sums(), {}
        self.seconds = 0.0
        self.emit(event)
        value = value_of(event, self.plan.metric)
        losses = (event.validation_loss, position.best_loss)
        if value is not None and better(value, position.best, larger=self.plan.larger, losses=losses):
            position.best, position.best_loss, position.best_step = value, event.validation_loss, position.step
            self.best, position.unsaved_best = self._state(), True
        actions = [decide(event) for decide in (*(policy.decide for policy in self.policies), *self.callbacks)]
        for action in actions:
            if isinstance(action, Continue) and action.notice is not None:
                self.emit(Notice(step=position.step, message=action.notice[0], remedy=action.notice[1]))
        return self._act(strongest(actions))

    # Copies of the run, and checkpoints

    def _state(self) -> State:
        """Return a copy of the state of the engine. The last copy is used again if no step was run since."""
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
        again = self.plan.repeats and self._behind < max(CHUNK_SECONDS, self._copying / MAX_COPY_SHARE)
        return Mark(
            anchor=self._anchor if self._anchor is not None and again else self._state(),
            since=self._since,
            calls=len(self._since),
            policies=states(self.policies),
            position=_copy(self.position),
            best=self.best,
        )

    def _return(self, place: Mark) -> None:
        self._load(place.anchor)
        for call in place.since[: place.calls]:
            self.engine.run(call.order, **call.schedules, count_units=False)  # `position` has the counts
        self._since = place.since[: place.calls]
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
        """Pass an event to every observer, then the events that they returned.

        Events that are returned for returned events are dropped. With `counted=False`, as for a resume, the event is
        not part of the numbering of the log, and returned events are dropped as well.
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
    """Return the content of a checkpoint besides the state of the engine, as JSON."""
    position = place.position
    return {
        "policies": place.policies,
        "position": {
            **vars(position),
            "progress": vars(position.progress),
            "in_epoch": vars(position.in_epoch),
            "units": unit_summary.to_json(position.units),
        },
    }


def position_of(extra: dict[str, Any]) -> Position:
    """Return the position of a checkpoint. The inverse of `extra_of`."""
    values = dict(extra["position"])
    progress, in_epoch = Sums(**values.pop("progress")), Sums(**values.pop("in_epoch"))
    units = unit_summary.from_json(values.pop("units", {}))  # earlier versions did not count units
    return Position(**values, progress=progress, in_epoch=in_epoch, units=units)
