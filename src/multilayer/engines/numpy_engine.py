"""The reference engine: every layer, loss and optimizer by its definition in numpy.

It is slow, uses one thread and supports any dtype. The tests compare the other engines with it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ..core import random
from ..core.random import Purpose
from ..core.sparse import pieces
from ..data.batches import Batch, Data, Rows
from ..nn.layers import Pass
from ..nn.layers.base import Array, backward_through, forward_through
from ..spec import Spec
from .protocol import Chunk, Gradients, Order, Settings, SingleEngine, State, StepStatistics
from .unit_counts import UnitCounter


class NumpyEngine(SingleEngine):
    """Implements `Engine` in numpy."""

    name = "numpy"

    def __init__(
        self, spec: Spec, data: Data, settings: Settings, *, init: str = "auto", dtype: Any = np.float64
    ) -> None:
        super().__init__(spec, data, settings)
        self.dtype = dtype
        self._state = self.first_state(init, dtype)

    def run(self, order: Order, *, rate: Array, decay: Array, dropout: Array, count_units: bool = False) -> Chunk:
        order.check(rate=rate, decay=decay, dropout=dropout)
        taken: list[float] = []
        norms: list[float] = []
        statistics: list[StepStatistics] = []
        counter = UnitCounter(self.spec) if count_units else None
        for i, rows in enumerate(order.batches()):
            found = self._gradients(rows, order.epoch, float(dropout[i]), counter)
            norm = _norm(found.gradients)
            taken.append(found.loss)
            norms.append(norm)
            if not (math.isfinite(found.loss) and math.isfinite(norm)):
                return Chunk(loss=np.array(taken), gradient_norm=np.array(norms), bad=i)
            self.apply(found, rate=float(rate[i]), decay=float(decay[i]))
            if self.settings.statistics_every is not None and self._state.step % self.settings.statistics_every == 0:
                gradients, parameters = (
                    {name: _norm({name: value}) for name, value in values.items()}
                    for values in (found.gradients, self._state.parameters)
                )
                statistics.append(StepStatistics(place=i, gradients=gradients, parameters=parameters))
        finite = all(np.isfinite(p).all() for p in self._state.parameters.values())
        return Chunk(
            loss=np.array(taken),
            gradient_norm=np.array(norms),
            finite=finite,
            statistics=statistics,
            units={} if counter is None else counter.found(len(order.rows)),
        )

    def apply(self, gradients: Gradients, *, rate: float, decay: float) -> float:
        state, settings = self._state, self.settings
        norm = _norm(gradients.gradients)
        state.buffers.update({name: value.astype(self.dtype) for name, value in gradients.buffers.items()})
        t = state.step + 1
        for name, p in state.parameters.items():
            step = rate * state.rate_factor * settings.rate_factors.get(name, 1.0)
            shrink = settings.decay_factors.get(name, float(self.spec.parameters[name].decays))
            g = gradients.gradients[name]
            if settings.clip_norm is not None and norm > settings.clip_norm:
                g = g * (settings.clip_norm / norm)
            if settings.clip_value is not None:
                g = np.clip(g, -settings.clip_value, settings.clip_value)
            slots = {slot: values[name] for slot, values in state.optimizer.items()}
            if settings.l2 * shrink:
                g = g + settings.l2 * shrink * p
            p = p * (1 - step * decay * shrink)
            change, fresh = self.optimizer.update(g, slots, step, t)
            state.parameters[name] = (p - change).astype(self.dtype)
            for slot, value in fresh.items():
                state.optimizer[slot][name] = value.astype(self.dtype)
            if settings.average is not None:
                mean = settings.average * state.averages[name] + (1 - settings.average) * state.parameters[name]
                state.averages[name] = mean.astype(self.dtype)
        self._state = replace(state, step=t)
        return norm

    def outputs(self, rows: Rows, *, averaged: bool = False) -> Array:
        values = self._state.averages if averaged and self._state.averages else self._state.parameters
        found: list[Array] = []
        for part in pieces(len(rows), self.spec.inputs.numeric):
            inputs = self._inputs(self.data.take(rows[part]))
            found.append(forward_through(self.spec.layers, inputs, self._tensors(values), self._pass())[0])
        return np.concatenate(found)

    def state(self) -> State:
        return self._state.copy()

    def load(self, state: State) -> None:
        state.check(self.spec, self.optimizer, averaged=self.settings.average is not None)
        self._state = state.copy()

    def gradients(self, rows: Rows, *, epoch: int, dropout: float = 1.0) -> Gradients:
        return self._gradients(rows, epoch, dropout, None)

    @np.errstate(over="ignore", invalid="ignore")  # `run` checks for values that are not finite
    def _gradients(self, rows: Rows, epoch: int, dropout: float, counter: UnitCounter | None) -> Gradients:
        tensors = self._tensors(self._state.parameters)
        parts = iter(range(1 << 24))

        def keep(d: int, p: float) -> Array:
            mask = random.keep(
                self.settings.seed, Purpose.DROPOUT, rows=rows, units=d, p=p * dropout, epoch=epoch, part=next(parts)
            )
            return (mask / (1 - p * dropout)).astype(self.dtype)

        run = self._pass(training=True, keep=keep, watch=None if counter is None else counter.watch)
        batch = self.data.take(rows, epoch=epoch)
        z, caches = forward_through(self.spec.layers, self._inputs(batch), tensors, run)  # (B, C)
        y = batch.y
        weight = np.ones(len(rows)) if batch.weight is None else batch.weight
        share = (weight / weight.sum()).astype(self.dtype)  # 1/B each for equal weights
        dz = self.loss.slope(z, y) * share[:, None]
        _, found = backward_through(self.spec.layers, dz.astype(self.dtype), caches, tensors)
        # In the order of the spec, not of a loaded state, so that the norm has the same bits.
        gradients = {name: np.zeros_like(self._state.parameters[name]) for name in self.spec.parameters}
        for place, g in found.items():
            gradients[self.spec.tensor_names[place]] += g  # the gradient of a shared tensor is the sum over its layers
        loss = float((self.loss.rows(z, y) * share).sum()) if len(share) else math.nan  # the mean of no rows
        return Gradients(loss=loss, gradients=gradients, buffers=run.updates)

    def _pass(self, **how: Any) -> Pass:
        return Pass(categories=self.spec.inputs.categories, **how)

    def _inputs(self, batch: Batch) -> Any:
        x = batch.x.astype(self.dtype)
        return x if batch.codes is None else (x, batch.codes)

    def _tensors(self, values: dict[str, Array]) -> dict[str, Array]:
        places = {place: values[stored] for place, stored in self.spec.tensor_names.items()}
        return places | self._state.buffers


@np.errstate(over="ignore", invalid="ignore")
def _norm(gradients: dict[str, Array]) -> float:
    return math.sqrt(sum(float((g.astype(np.float64) ** 2).sum()) for g in gradients.values()))
