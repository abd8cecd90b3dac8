"""An ensemble of networks with the same spec, trained in parallel.

Each member has its own training rows, row order, dropout masks and initial parameters. The ensemble implements
`Engine`, so the loop, its policies, checkpoints and resume treat it like one network. Within a chunk, members run in
threads without waiting for each other. The result does not depend on the number of threads.

An `Order` holds positions instead of row numbers: position i of an epoch is the i-th row of each member's permutation
of its training rows. A member with fewer rows starts again with its first row, so that all members take the same steps.

`outputs` averages the predictions of the members that did not train on a row (out-of-fold). If no such member exists,
it averages all members.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
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
"""Seconds between two requests to stop."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Member:
    """One network of an ensemble: its engine, its training rows and the seed of its row order."""

    engine: Engine
    rows: Rows
    seed: int


@dataclass(frozen=True, kw_only=True, eq=False)
class OutOfFold:
    """The members that predict each of `rows`: those that did not train on it, or all members if all did."""

    rows: Rows
    places: list[Rows]
    """For each member, the positions of the rows that it predicts."""
    groups: list[tuple[Rows, list[tuple[int, Rows]]]]
    """Positions with the same members, and for each of these members the positions in its outputs."""

    @staticmethod
    def of(rows: Rows, seen: NDArray[np.bool_]) -> OutOfFold:
        """Group the rows by the members that predict them. `seen` (members, rows) are training rows."""
        predicts = ~seen
        predicts[:, ~predicts.any(0)] = True
        in_outputs = predicts.cumsum(1) - 1
        patterns, which = np.unique(predicts, axis=1, return_inverse=True)
        groups: list[tuple[Rows, list[tuple[int, Rows]]]] = []
        for i, pattern in enumerate(patterns.T):
            places = np.flatnonzero(which.reshape(-1) == i)
            groups.append((places, [(int(j), in_outputs[j, places]) for j in np.flatnonzero(pattern)]))
        return OutOfFold(rows=rows, places=[np.flatnonzero(member) for member in predicts], groups=groups)


class Ensemble:
    """Implements `Engine` for several members."""

    def __init__(self, members: Sequence[Member], loss: Loss, *, threads: int) -> None:
        self.members, self.loss, self.threads = tuple(members), loss, named_options.threads(threads)
        self.name = self.members[0].engine.name
        self.data: Data = self.members[0].engine.data
        self.networks = len(self.members)
        self.places = max(len(member.rows) for member in self.members)
        self._start()
        self._epoch, self._orders = -1, list[Rows]()
        self._out_of_fold: OutOfFold | None = None
        self._seen = np.zeros((len(self.members), len(self.data)), dtype=np.bool_)
        for seen, member in zip(self._seen, self.members, strict=True):
            seen[member.rows] = True

    @property
    def notes(self) -> tuple[str, ...]:
        return self.members[0].engine.notes

    def close(self) -> None:
        if self._owner == os.getpid():
            self._pool.shutdown(wait=True)
        for member in reversed(self.members):  # each one restores the number of threads that it found
            member.engine.close()

    def stop(self) -> None:
        for member in self.members:
            member.engine.stop()

    def _start(self) -> None:
        self._pool, self._owner = ThreadPoolExecutor(max(1, min(self.threads, len(self.members)))), os.getpid()

    # The protocol

    def run(self, order: Order, *, rate: Array, decay: Array, dropout: Array, count_units: bool = False) -> Chunk:
        orders = self._orders_of(order.epoch)

        def one(i: int) -> Chunk:
            member_order = replace(order, rows=orders[i][order.rows])
            return self.members[i].engine.run(
                member_order, rate=rate, decay=decay, dropout=dropout, count_units=count_units
            )

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
                    gradients=_with_prefixes([found.gradients for found in statistics]),
                    parameters=_with_prefixes([found.parameters for found in statistics]),
                )
                for statistics in zip(*(chunk.statistics for chunk in chunks), strict=False)
            ],
            units=_with_prefixes([chunk.units for chunk in chunks]),
        )

    def own_rows(self, rows: Rows, epoch: int) -> Rows:
        return np.unique(np.concatenate([order[rows] for order in self._orders_of(epoch)]))

    def gradients(self, rows: Rows, *, epoch: int, dropout: float = 1.0) -> Gradients:
        found = self._each(lambda i: self.members[i].engine.gradients(rows, epoch=epoch, dropout=dropout))
        return Gradients(
            loss=float(np.mean([one.loss for one in found])),
            gradients=_with_prefixes([one.gradients for one in found]),
            buffers=_with_prefixes([one.buffers for one in found]),
        )

    def apply(self, gradients: Gradients, *, rate: float, decay: float) -> float:
        values = _without_prefixes(gradients.gradients, len(self.members))
        moved = _without_prefixes(gradients.buffers, len(self.members))
        found = [replace(gradients, gradients=g, buffers=b) for g, b in zip(values, moved, strict=True)]
        return float(np.mean(self._each(lambda i: self.members[i].engine.apply(found[i], rate=rate, decay=decay))))

    def outputs(self, rows: Rows, *, averaged: bool = False) -> Array:
        if not len(rows):
            return self.members[0].engine.outputs(rows, averaged=averaged)
        chosen = self._out_of_fold_of(rows)
        z = self._each(lambda i: self.members[i].engine.outputs(rows[chosen.places[i]], averaged=averaged))
        found = np.empty((len(rows), z[0].shape[1]))
        for places, members in chosen.groups:
            found[places] = combined(self.loss, [z[i][at] for i, at in members])
        return found

    def member_outputs(self, rows: Rows, *, averaged: bool = False) -> Array:
        return np.stack(self._each(lambda i: self.members[i].engine.outputs(rows, averaged=averaged)))

    def state(self) -> State:
        return join_states(self._each(lambda i: self.members[i].engine.state()))

    def load(self, state: State) -> None:
        states = split_states(state, len(self.members))
        self._each(lambda i: self.members[i].engine.load(states[i]))

    # Members

    def _each(self, call: Callable[[int], T]) -> list[T]:
        """Call a function for each member in parallel. After a signal, the main thread stops all members."""
        if self._owner != os.getpid():
            self._start()  # a forked process has no threads of its parent
        futures = [self._pool.submit(call, i) for i in range(len(self.members))]
        try:
            return [future.result() for future in futures]
        except BaseException:
            self._stop(futures)
            raise

    def _stop(self, futures: Sequence[Future[Any]]) -> None:
        """Stop all members and wait for them. A member that has not begun its call ignores a request, so repeat it."""
        while True:
            for future, member in zip(futures, self.members, strict=True):
                if not future.cancel() and not future.done():
                    member.engine.stop()
            if not wait(futures, timeout=STOP_RETRY_SECONDS).not_done:
                return

    def _out_of_fold_of(self, rows: Rows) -> OutOfFold:
        """Return the members that predict each row. The same rows are evaluated after every epoch, so keep it."""
        if self._out_of_fold is None or not np.array_equal(self._out_of_fold.rows, rows):
            self._out_of_fold = OutOfFold.of(rows, self._seen[:, rows])
        return self._out_of_fold

    def _orders_of(self, epoch: int) -> list[Rows]:
        if epoch != self._epoch:
            self._orders = [
                np.resize(member.rows[random.permutation(len(member.rows), seed=member.seed, epoch=epoch)], self.places)
                for member in self.members
            ]
            self._epoch = epoch
        return self._orders


def join_states(states: Sequence[State]) -> State:
    """Return one state for several members. The names of tensors start with `memberN/`."""
    first = states[0]
    return State(
        parameters=_with_prefixes([one.parameters for one in states]),
        buffers=_with_prefixes([one.buffers for one in states]),
        optimizer={slot: _with_prefixes([one.optimizer[slot] for one in states]) for slot in first.optimizer},
        averages=_with_prefixes([one.averages for one in states]),
        step=first.step,
        rate_factor=first.rate_factor,
    )


def split_states(state: State, members: int) -> list[State]:
    """Return the states of the members, the inverse of `join_states`."""
    slots = {slot: _without_prefixes(values, members) for slot, values in state.optimizer.items()}
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
            zip(
                *(_without_prefixes(v, members) for v in (state.parameters, state.buffers, state.averages)), strict=True
            )
        )
    ]


def _with_prefixes(values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{member_name(i)}/{name}": value for i, one in enumerate(values) for name, value in one.items()}


def _without_prefixes(values: dict[str, Any], members: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{} for _ in range(members)]
    places = {member_name(i): i for i in range(members)}
    for name, value in values.items():
        member, _, rest = name.partition("/")
        if member in places:
            found[places[member]][rest] = value
        else:  # from an ensemble with another number of members: loading fails with the name of the tensor
            found[0][name] = value
    return found


def member_name(i: int) -> str:
    return f"member{i + 1}"


def _mean(values: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    return np.mean(values, axis=0)
