"""Short training runs that compare learning rates. Each starts from the same state and takes the same batches.

    range test   one run whose learning rate grows exponentially; it shows where the loss falls and where it diverges
    trial        a run with the schedules of the training, shortened to a few steps; it ends with the held-out loss

Because the runs share initial parameters, batches and held-out rows, their losses can be compared row by row. The state
of the engine is restored after the last run. What to conclude from the losses is decided in `learning_rate_finder`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core import random
from ..engines import Engine, Order, State
from ..nn import losses
from ..nn.losses import Loss
from .plan import Plan
from .setup import Setup

CHUNK = 64
"""Largest number of steps of one call of the engine. Ctrl-C on a slow engine and a divergence are noticed after it."""
DIVERGED = 2.0
"""The range test has diverged when the smoothed loss is this many times its largest value at the start."""
CALM = 0.1
"""Fraction of the range test at its start, where the learning rates are too low to change the loss."""
SMOOTHING = 0.05
"""Window of the smoothing, as a fraction of the steps of the range test."""
OWN_SHARE = 0.2
"""Fraction of the training rows that the trials hold out if the training itself holds out no rows."""

Floats = NDArray[np.float64]


class RangeTest(NamedTuple):
    """Learning rates, the loss of the batch at each of them, and the smoothed loss.

    `diverged_at` is the learning rate at which the loss diverged, or None. The run stops there.
    """

    rates: Floats
    losses: Floats
    smoothed: Floats
    diverged_at: float | None


@dataclass(kw_only=True, eq=False)
class ShortRuns:
    """Short runs on an engine. Use it as a context manager, so that the state of the engine is restored."""

    engine: Engine
    plan: Plan
    """The plan of the training, with the rows that the short runs train on."""
    loss: Loss
    held_out: NDArray[np.int64]
    """Held-out rows, in random order."""
    advance: Callable[[int], None] = lambda steps: None
    """Function called with the number of steps after each call of the engine."""
    start: State = field(init=False)
    """The state before the first step."""
    _orders: dict[int, Order] = field(default_factory=dict[int, Order])

    @staticmethod
    def of(setup: Setup) -> ShortRuns:
        """Return short runs of a training that is set up. If it holds out no rows, a part of its rows is held out."""
        plan, seed = setup.plan, setup.config.seed
        rows, held_out = plan.rows, setup.prepared.validation
        if not len(held_out):
            mixed = rows[random.permutation(len(rows), seed=seed, epoch=0)]
            cut = int(OWN_SHARE * len(rows))
            rows, held_out = np.sort(mixed[cut:]), mixed[:cut]
        else:
            held_out = held_out[random.permutation(len(held_out), seed=seed, epoch=0)]
        return ShortRuns(
            engine=setup.engine,
            plan=replace(plan, rows=rows),
            loss=losses.unsmoothed(setup.loss),
            held_out=held_out,
        )

    def __enter__(self) -> ShortRuns:
        self.start = self.engine.state()
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.load(self.start)

    def range_test(self, rates: Floats) -> RangeTest:
        """Train with these rates, one per step, until the loss diverges. Decay and dropout are those of the start."""
        first = self.plan.schedules(0, 1)
        fixed = {name: np.full(len(rates), first[name][0]) for name in ("decay", "dropout")}
        found = np.zeros(0)
        for part, finite in self._run({"rate": rates, **fixed}):
            found = np.append(found, part)
            smoothed = smooth(found, SMOOTHING * len(rates))
            at = diverged(smoothed, max(1, int(CALM * len(rates))))
            if at is not None or not finite:
                end = len(found) - 1 if at is None else at
                return RangeTest(rates[: end + 1], found[: end + 1], smoothed[: end + 1], float(rates[end]))
        return RangeTest(rates, found, smooth(found, SMOOTHING * len(rates)), None)

    def trial(self, rate: float, steps: int, held_out: int) -> Floats | None:
        """Train with the schedules of the training, shortened to `steps`. Return the losses of some held-out rows.

        None means that the run diverged.
        """
        at, plan = np.arange(steps), self.plan
        schedules = {
            "rate": rate * plan.rate_schedule(at, steps),
            "decay": plan.decay * plan.decay_schedule(at, steps),
            "dropout": plan.dropout_schedule(at, steps),
        }
        for _, finite in self._run(schedules):
            if not finite:
                return None
        found = self.row_losses(held_out)
        return found if np.isfinite(found).all() else None

    def start_losses(self, held_out: int) -> Floats:
        """Return the losses of some held-out rows before training."""
        self.engine.load(self.start)
        return self.row_losses(held_out)

    def row_losses(self, count: int) -> Floats:
        """Return the loss of each of the first held-out rows, times its weight. The mean weight is 1."""
        data, rows = self.engine.data, self.held_out[:count]
        with np.errstate(all="ignore"):
            found = self.loss.rows(self.engine.outputs(rows), data.y[rows]).astype(np.float64)
            if data.weight is None:
                return found
            weight = data.weight[rows]
            return found * weight / weight.mean()

    def _run(self, schedules: dict[str, Floats]) -> Iterator[tuple[Floats, bool]]:
        """Run the steps from the start. Yield the losses of each call, and whether they and the parameters are finite.

        The run ends at the first value that is not finite.
        """
        self.engine.load(self.start)
        plan, first, total = self.plan, 0, len(schedules["rate"])
        while first < total:
            epoch, within = divmod(first, plan.steps_per_epoch)
            count = min(CHUNK, plan.steps_per_epoch - within, total - first)
            order = self._order(epoch)
            rows = order.rows[within * order.batch : (within + count) * order.batch]
            part = {name: values[first : first + count] for name, values in schedules.items()}
            with np.errstate(all="ignore"):
                chunk = self.engine.run(
                    replace(order, rows=rows), rate=part["rate"], decay=part["decay"], dropout=part["dropout"]
                )
            self.advance(count)
            good = chunk.bad is None and chunk.finite
            yield chunk.loss[: count if chunk.bad is None else chunk.bad + 1], good
            if not good:
                return
            first += count

    def _order(self, epoch: int) -> Order:
        if epoch not in self._orders:
            self._orders = {epoch: self.plan.order(epoch), **{e: o for e, o in self._orders.items() if e == 0}}
        return self._orders[epoch]


def smooth(values: Floats, window: float) -> Floats:
    """Return the exponential moving average of the values, divided by 1 − βᵗ so that it is not biased towards 0.

    `window` is the number of steps after which the weight of a value is divided by e, β = exp(−1 / window).

    >>> smooth(np.array([2.0, 2.0, 8.0]), 2.0).round(2).tolist()
    [2.0, 2.0, 5.04]
    """
    beta = math.exp(-1 / max(window, 1e-3))
    mean, found = 0.0, np.empty(len(values))
    for i, value in enumerate(values.tolist()):
        mean = beta * mean + (1 - beta) * value
        found[i] = mean / (1 - beta ** (i + 1))
    return found


def diverged(smoothed: Floats, calm: int) -> int | None:
    """Return the first step whose smoothed loss is not finite, or far above its maximum in the first `calm` steps.

    >>> diverged(np.array([1.0, 0.9, 0.6, 2.5]), 2), diverged(np.array([1.0, 0.9, 0.1, 1.9]), 2)
    (3, None)
    """
    top = float(np.max(smoothed[:calm]))
    with np.errstate(invalid="ignore"):
        bad = ~np.isfinite(smoothed) | (smoothed > top + (DIVERGED - 1) * abs(top))
    return int(np.argmax(bad)) if bad.any() else None
