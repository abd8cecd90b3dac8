"""Several members of one spec, each on rows, order, masks and first values of its own, trained side by side.

An `Engine` like the others: the loop, its policies, checkpoints and resume need not know. Members are spread over
threads without waiting for each other inside a chunk; each runs on one core unless there are more cores than members,
and since an engine's bits do not depend on its threads, neither do the ensemble's.

The loop's order holds places, not rows: place i of an epoch is the i-th row of each member's own permutation of its own
training rows. Members whose rows are fewer begin again with their first, so that all take the same steps.

`outputs` are what the members that did not train on a row make of it together; all of them, where all or none did.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..core import named_options, random
from ..data.batches import Data, Rows
from ..nn.calibration import combined
from ..nn.layers.base import Array
from ..nn.losses import Loss
from .protocol import Chunk, Engine, Gradients, Order, State, StepStatistics

T = TypeVar("T")

STOP_RETRY_SECONDS = 0.05
"""Seconds until members are asked again to end."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Member:
    """`rows` are those it trains on, `seed` that of its order."""

    engine: Engine
    rows: Rows
    seed: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Judges:
    """Who judges each of `rows`: the members that did not train on it; all of them, where all did."""

    rows: Rows
    asked: list[Rows]
    """By member, the places of the rows that it judges."""
    groups: list[tuple[Rows, list[tuple[int, Rows]]]]
    """Places with the same judges: one group for each fold, and one for all. With each judge, where its answers are."""

    @staticmethod
    def of(rows: Rows, seen: NDArray[np.bool_]) -> Judges:
        asked = ~seen
        asked[:, ~asked.any(0)] = True
        answers = asked.cumsum(1) - 1
        patterns, which = np.unique(asked, axis=1, return_inverse=True)
        groups: list[tuple[Rows, list[tuple[int, Rows]]]] = []
        for i, pattern in enumerate(patterns.T):
            places = np.flatnonzero(which.reshape(-1) == i)
            groups.append((places, [(int(j), answers[j, places]) for j in np.flatnonzero(pattern)]))
        return Judges(rows=rows, asked=[np.flatnonzero(mine) for mine in asked], groups=groups)


class Ensemble:
    """Meets the `Engine` protocol."""

    def __init__(self, members: Sequence[Member], loss: Loss, *, threads: int) -> None:
        self.members, self.loss, self.threads = tuple(members), loss, named_options.threads(threads)
        self.name = self.members[0].engine.name
        self.data: Data = self.members[0].engine.data
        self.networks = len(self.members)
        self.places = max(len(member.rows) for member in self.members)
        self._start()
        self._epoch, self._orders = -1, list[Rows]()
        self._judges: Judges | None = None
        self._seen = np.zeros((len(self.members), len(self.data)), dtype=np.bool_)
        for seen, member in zip(self._seen, self.members, strict=True):
            seen[member.rows] = True

    @property
    def notes(self) -> tuple[str, ...]:
        return self.members[0].engine.notes

    def close(self) -> None:
        if self._owner == os.getpid():
            self._pool.shutdown(wait=True)
        for member in reversed(self.members):  # each restores the previous number of threads
            member.engine.close()

    def stop(self) -> None:
        for member in self.members:
            member.engine.stop()

    def _start(self) -> None:
        self._pool, self._owner = ThreadPoolExecutor(max(1, min(self.threads, len(self.members)))), os.getpid()

    # The protocol

    def run(self, order: Order, *, rate: Array, decay: Array, dropout: Array) -> Chunk:
        orders = self._orders_of(order.epoch)

        def one(i: int) -> Chunk:
            mine = replace(order, rows=orders[i][order.rows])
            return self.members[i].engine.run(mine, rate=rate, decay=decay, dropout=dropout)

        chunks = self._each(one)
        taken = min(len(chunk.loss) for chunk in chunks)
        bad = [chunk.bad for chunk in chunks if chunk.bad is not None]
        return Chunk(
            loss=_mean([chunk.loss[:taken] for chunk in chunks]),
            gradient_norm=_mean([chunk.gradient_norm[:taken] for chunk in chunks]),
            bad=min(bad) if bad else None,
            finite=all(chunk.finite for chunk in chunks),
            statistics=[
                StepStatistics(
                    place=statistics[0].place,
                    gradients=_joined([found.gradients for found in statistics]),
                    parameters=_joined([found.parameters for found in statistics]),
                )
                for statistics in zip(*(chunk.statistics for chunk in chunks), strict=False)
            ],
        )

    def own_rows(self, rows: Rows, epoch: int) -> Rows:
        return np.unique(np.concatenate([order[rows] for order in self._orders_of(epoch)]))

    def gradients(self, rows: Rows, *, epoch: int, dropout: float = 1.0) -> Gradients:
        found = self._each(lambda i: self.members[i].engine.gradients(rows, epoch=epoch, dropout=dropout))
        return Gradients(
            loss=float(np.mean([one.loss for one in found])),
            gradients=_joined([one.gradients for one in found]),
            buffers=_joined([one.buffers for one in found]),
        )

    def apply(self, gradients: Gradients, *, rate: float, decay: float) -> float:
        values = _parted(gradients.gradients, len(self.members))
        moved = _parted(gradients.buffers, len(self.members))
        found = [replace(gradients, gradients=g, buffers=b) for g, b in zip(values, moved, strict=True)]
        return float(np.mean(self._each(lambda i: self.members[i].engine.apply(found[i], rate=rate, decay=decay))))

    def outputs(self, rows: Rows, *, averaged: bool = False) -> Array:
        if not len(rows):
            return self.members[0].engine.outputs(rows, averaged=averaged)
        bench = self._judges_of(rows)
        z = self._each(lambda i: self.members[i].engine.outputs(rows[bench.asked[i]], averaged=averaged))
        found = np.empty((len(rows), z[0].shape[1]))
        for places, judges in bench.groups:
            found[places] = combined(self.loss, [z[i][at] for i, at in judges])
        return found

    def member_outputs(self, rows: Rows, *, averaged: bool = False) -> Array:
        return np.stack(self._each(lambda i: self.members[i].engine.outputs(rows, averaged=averaged)))

    def state(self) -> State:
        return joined(self._each(lambda i: self.members[i].engine.state()))

    def load(self, state: State) -> None:
        states = parted(state, len(self.members))
        self._each(lambda i: self.members[i].engine.load(states[i]))

    # Members

    def _each(self, call: Callable[[int], T]) -> list[T]:
        """What each member answers. Signals reach the main thread alone: it asks the others to end."""
        if self._owner != os.getpid():
            self._start()  # a forked child has none of its parent's threads
        asked = [self._pool.submit(call, i) for i in range(len(self.members))]
        try:
            return [one.result() for one in asked]
        except BaseException:
            self._stop(asked)
            raise

    def _stop(self, asked: Sequence[Future[Any]]) -> None:
        """Returns when all have ended. A member that is not yet within its call does not hear, and is asked again."""
        while True:
            for one, member in zip(asked, self.members, strict=True):
                if not one.cancel() and not one.done():
                    member.engine.stop()
            if not wait(asked, timeout=STOP_RETRY_SECONDS).not_done:
                return

    def _judges_of(self, rows: Rows) -> Judges:
        """The same rows are asked for after every epoch."""
        if self._judges is None or not np.array_equal(self._judges.rows, rows):
            self._judges = Judges.of(rows, self._seen[:, rows])
        return self._judges

    def _orders_of(self, epoch: int) -> list[Rows]:
        if epoch != self._epoch:
            self._orders = [
                np.resize(member.rows[random.permutation(len(member.rows), seed=member.seed, epoch=epoch)], self.places)
                for member in self.members
            ]
            self._epoch = epoch
        return self._orders


def joined(states: Sequence[State]) -> State:
    """One state of several members: every tensor under `memberN/`."""
    first = states[0]
    return State(
        parameters=_joined([one.parameters for one in states]),
        buffers=_joined([one.buffers for one in states]),
        optimizer={slot: _joined([one.optimizer[slot] for one in states]) for slot in first.optimizer},
        averages=_joined([one.averages for one in states]),
        step=first.step,
        rate_factor=first.rate_factor,
    )


def parted(state: State, members: int) -> list[State]:
    """The states that `joined` put together."""
    slots = {slot: _parted(values, members) for slot, values in state.optimizer.items()}
    return [
        State(
            parameters=parameters,
            buffers=buffers,
            optimizer={slot: values[i] for slot, values in slots.items()},
            averages=averages,
            step=state.step,
            rate_factor=state.rate_factor,
        )
        for i, (parameters, buffers, averages) in enumerate(
            zip(*(_parted(v, members) for v in (state.parameters, state.buffers, state.averages)), strict=True)
        )
    ]


def _joined(values: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {f"{member_name(i)}/{name}": value for i, one in enumerate(values) for name, value in one.items()}


def _parted(values: dict[str, Any], members: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{} for _ in range(members)]
    places = {member_name(i): i for i in range(members)}
    for name, value in values.items():
        member, _, rest = name.partition("/")
        if member in places:
            found[places[member]][rest] = value
        else:  # a tensor of another number of members: each refuses it by its name
            found[0][name] = value
    return found


def member_name(i: int) -> str:
    return f"member{i + 1}"


def _mean(values: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.mean(values, axis=0)
