"""Encoded tables and training batches, as engines read them.

`Data` is a whole table, and `Batch` is a subset of its rows. An augmentation changes a training batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..core.sparse import Sparse
from ..errors import OptionError
from ..nn.layers.base import Array

Rows = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Rows as numbers: x (B, F), codes (B, C) or None, y, weight (B,) or None.

    y is (B,) class numbers, (B, C) probabilities of classes where an augmentation mixed them, or (B, targets) numbers.
    """

    x: Array
    y: NDArray[Any]
    codes: NDArray[np.int64] | None = None
    weight: Array | None = None


class Augment(Protocol):
    """Changes a training batch. A pure function of the rows' own numbers and the epoch, so that it gives the same
    numbers however the work is cut and whichever engine asks; `data` is the whole table, for mixing rows."""

    def __call__(self, batch: Batch, data: Data, rows: Rows, epoch: int) -> Batch: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Data(Batch):
    """A whole table; engines take their training batches from `take`, which makes the rows of a sparse one."""

    x: Array | Sparse  # pyright: ignore[reportIncompatibleVariableOverride]
    augment: Augment | None = None

    def __len__(self) -> int:
        return len(self.x)

    @property
    def made(self) -> bool:
        """Whether rows of training have to be made, and are not there to be read."""
        return self.augment is not None or isinstance(self.x, Sparse)

    def take(self, rows: Rows, *, epoch: int | None = None) -> Batch:
        """The given rows; augmented for training where an epoch is given, and there are any."""
        rows = row_numbers(rows)
        require_within(rows, len(self))
        batch = Batch(
            x=self.x[rows],
            y=self.y[rows],
            codes=None if self.codes is None else self.codes[rows],
            weight=None if self.weight is None else self.weight[rows],
        )
        if self.augment is None or epoch is None or not len(rows):
            return batch
        return self.augment(batch, self, rows, epoch)


def row_numbers(rows: NDArray[Any]) -> Rows:
    """A copy of row numbers. Refuses fractions and masks, which would be read as other rows."""
    given = np.asarray(rows)
    if given.size and given.dtype.kind not in "iu":
        raise OptionError(f"rows must be whole numbers, got {given.dtype}: of a mask, give np.flatnonzero(mask)")
    return np.array(given, dtype=np.int64, order="C")


def require_within(rows: Rows, n: int) -> None:
    """Refuses rows that a table of n has not, as the compiled core does: numpy would count from the end."""
    for row in rows[(rows < 0) | (rows >= n)][:1].tolist():
        raise IndexError(f"row {row} is not in a table of {n}")
