"""The plan of a run: rows, batches, epochs, schedules and checkpoints, as pure functions of the step.

The default options of networks that the user describes train to convergence. The constants are in `runs.config`:

    batch size      BATCH, or the power of two that gives about STEPS_PER_EPOCH steps; at least SMALLEST_BATCH
    epochs          STEPS steps, but at least FEWEST_EPOCHS and at most MOST_EPOCHS epochs
    learning rate   RATE · min(1, √(WIDE / n)), where n is the largest number of inputs of any layer
    patience        PATIENCE · epochs, at least LEAST_PATIENCE; none if `epochs` is given or no rows are held out
    averaging       the weights are averaged with β = AVERAGE; not if `epochs` is given
    calibration     temperature scaling of class probabilities, if rows are held out

Small tables need many epochs, because an epoch has few steps. Wide layers need a lower learning rate: one step of Adam
changes each weight by about the learning rate, so the change of a unit grows with its number of inputs.

The constants were chosen with bench/default_rule.py. The tabular recipe has its own defaults, in recipe.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core import random
from ..data import TrainingData
from ..engines import Order
from ..engines.config import AVERAGE
from ..nn import losses
from ..nn.schedules import Schedule
from ..runs.config import (
    BATCH,
    CHECKPOINTS,
    FEWEST_EPOCHS,
    LEAST_PATIENCE,
    MOST_EPOCHS,
    PATIENCE,
    SMALLEST_BATCH,
    STEPS,
    STEPS_PER_EPOCH,
    Config,
    learning_rate,
)
from ..spec import Spec

COUNTED_EPOCHS = 8
"""Number of epochs in which units are counted, besides the first and the last: a compromise between detail and time
(bench/counters.py)."""


def with_defaults(config: Config, spec: Spec, prepared: TrainingData) -> Config:
    """Return the configuration with a value for each option left at None."""
    chosen: dict[str, Any] = {}
    if config.learning_rate is None:
        chosen["learning_rate"] = learning_rate(spec)
    if config.epochs is None:
        rows = min(len(prepared.train), config.epoch_rows or len(prepared.train))
        chosen["epochs"] = epochs(rows, chosen_batch(prepared, config))
        if config.patience is None and len(prepared.validation):
            chosen["patience"] = max(LEAST_PATIENCE, int(PATIENCE * chosen["epochs"]))
        if config.average is None:
            chosen["average"] = AVERAGE
    if config.calibrate is None:
        probabilities = losses.get(prepared.encoding.loss).gives_probabilities
        chosen["calibrate"] = probabilities and len(prepared.validation) > 0
    return replace(config, **chosen)


def chosen_batch(prepared: TrainingData, config: Config) -> int:
    """Return the batch size: the one in `config`, else the default for the number of rows."""
    return batch_size(len(prepared.train)) if config.batch_size is None else config.batch_size


def batch_size(rows: int) -> int:
    """Return the default batch size: smaller for few rows, so that an epoch has enough steps.

    >>> batch_size(150), batch_size(1_500), batch_size(60_000)
    (16, 32, 256)
    """
    return max(SMALLEST_BATCH, min(BATCH, 1 << max(0, (rows // STEPS_PER_EPOCH).bit_length() - 1)))


def epochs(rows: int, batch: int) -> int:
    """Return the number of epochs that gives about `STEPS` steps.

    >>> epochs(4, 16), epochs(120, 16), epochs(60_000, 256)
    (1500, 1000, 34)
    """
    steps = math.ceil(rows / batch)
    return min(MOST_EPOCHS, max(FEWEST_EPOCHS, round(STEPS / max(steps, 1))))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The plan of a run. It does not change during the run."""

    rows: NDArray[np.int64]
    batch: int
    epochs: int
    seed: int
    rate: float
    decay: float
    rate_schedule: Schedule
    decay_schedule: Schedule
    dropout_schedule: Schedule
    log_every: int
    checkpoint_every: int
    """Initial number of steps between two checkpoints."""
    metric: str
    larger: bool
    shuffled: bool = True
    """Whether the rows of an epoch are permuted. False for a user's data loader, whose rows are numbered as they are
    loaded, and for an ensemble, in which each member has its own order."""
    seen: int | None = None
    """Number of rows in an epoch: the first ones of its permutation. None for all rows."""
    repeats: bool = True
    """Whether any earlier step can be repeated. False for a user's data loader, of which few batches are kept."""
    checkpoints_thin_out: bool = False
    """Whether the interval between checkpoints doubles whenever the number of steps has doubled."""

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.rows[: self.seen]) // self.batch)

    @property
    def steps(self) -> int:
        return self.epochs * self.steps_per_epoch

    def next_checkpoint(self, step: int) -> int:
        """Return the first step after `step` with a checkpoint. It depends only on `step`, also in a resumed run."""
        every = self.checkpoint_every
        if self.checkpoints_thin_out:
            every <<= max(0, (step // (CHECKPOINTS * every)).bit_length() - 1)
        return (step // every + 1) * every

    def order(self, epoch: int) -> Order:
        """Return the rows of an epoch in the order of training."""
        rows = self.rows
        if self.shuffled:
            rows = rows[random.permutation(len(rows), seed=self.seed, epoch=epoch)]
        return Order(epoch=epoch, rows=rows[: self.seen], batch=self.batch)

    def counts_units(self, epoch: int) -> bool:
        """Return whether the units are counted in an epoch, counted from 0: the first, the last, and some between."""
        return epoch in (0, self.epochs - 1) or (epoch + 1) % -(-self.epochs // COUNTED_EPOCHS) == 0

    def schedules(self, first: int, count: int) -> dict[str, NDArray[np.float64]]:
        """Return learning rate, weight decay and dropout factor of `count` steps from `first`, counted from 0."""
        at = np.arange(first, first + count)
        return {
            "rate": self.rate * self.rate_schedule(at, self.steps),
            "decay": self.decay * self.decay_schedule(at, self.steps),
            "dropout": self.dropout_schedule(at, self.steps),
        }
