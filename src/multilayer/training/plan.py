"""The plan of a run: rows, batches, epochs, schedules and checkpoints, as pure functions of the step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core import random
from ..engines import Order
from ..nn.schedules import Schedule

CHECKPOINTS = 25
"""Once the interval between checkpoints grows, it is at most 1 / CHECKPOINTS of the steps so far."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be done, fixed for the whole run."""

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
    """Steps between two checkpoints, at first."""
    metric: str
    larger: bool
    shuffled: bool = True
    """Whether the rows of an epoch are permuted. False for a user's data loader, whose rows are numbered as they are
    loaded, and for an ensemble, in which each member has its own order."""
    seen: int | None = None
    """Rows that an epoch takes of those, the first of its permutation; all of them unless said."""
    repeats: bool = True
    """Whether steps can be taken again from long ago; a user's own loader keeps few of its batches."""

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
        rows = self.rows
        if self.shuffled:
            rows = rows[random.permutation(len(rows), seed=self.seed, epoch=epoch)]
        return Order(epoch=epoch, rows=rows[: self.seen], batch=self.batch)

    def schedules(self, first: int, count: int) -> dict[str, NDArray[np.float64]]:
        """Rate, decay and dropout of the steps from `first` (from 0) on."""
        at = np.arange(first, first + count)
        return {
            "rate": self.rate * self.rate_schedule(at, self.steps),
            "decay": self.decay * self.decay_schedule(at, self.steps),
            "dropout": self.dropout_schedule(at, self.steps),
        }
