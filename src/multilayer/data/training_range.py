"""The range of the training rows: which numbers of new rows are far outside it.

A number is far outside the range [low, high] if it is ≤ low − (high − low) or ≥ high + (high − low).

The check has two steps. First, encoded numbers are compared with encoded limits. This is quick and finds all columns
that may have such numbers, because encoding preserves the order of numbers. Encoding can round different numbers to the
same value, so the original values of these columns are then compared with the limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.sparse import Sparse
from .preprocessing import NumberStep, apply_steps

Floats = NDArray[np.float64]
FEW_ROWS = 32
"""Up to this number of rows, each row is compared with the limits. With more, only the extremes are compared."""
BLOCK = 8192
"""Rows are joined to blocks of about this many numbers before their extremes are computed."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingRange:
    """The range (V,) of each number before its `steps`. In encoded rows, missing-value indicators come last."""

    low: Floats
    high: Floats
    steps: tuple[NumberStep, ...]
    indicators: int

    @cached_property
    def limits(self) -> tuple[Floats, Floats]:
        """The values (V,) at and beyond which a number is far outside the range."""
        with np.errstate(over="ignore"):
            width = self.high - self.low
            return self.low - width, self.high + width

    @cached_property
    def _encoded_limits(self) -> Mapping[Any, tuple[NDArray[Any], NDArray[Any]]]:
        """The limits of all encoded numbers, also the indicators, by type."""
        indicators = np.ones(self.indicators)
        low, high = (apply_steps(self.steps, limit, np.float64) for limit in self.limits)
        low, high = np.concatenate([low, -indicators]), np.concatenate([high, 2 * indicators])
        return {np.dtype(one): (low.astype(one), high.astype(one)) for one in (np.float32, np.float64)}

    def is_near(self, x: NDArray[Any] | Sparse) -> bool:
        """Return whether all numbers are finite and not far outside the range. False if this is not known."""
        if isinstance(x, Sparse) or not len(self.low):
            return False
        low, high = self._encoded_limits[x.dtype]
        smallest, largest = (x, x) if len(x) <= FEW_ROWS else _ends(x)
        return bool(((smallest > low) & (largest < high)).all())

    def maybe_far(self, x: NDArray[Any] | Sparse) -> NDArray[np.int64]:
        """Return the positions of the numbers of x that may be far outside the range in some rows."""
        if not len(self.low) or not len(x):
            return np.zeros(0, dtype=np.int64)
        low, high = self._encoded_limits[x.dtype]
        if isinstance(x, Sparse):
            far = (x.base <= low) | (x.base >= high)
            far[x.columns[(x.values <= low[x.columns]) | (x.values >= high[x.columns])]] = True
        else:
            smallest, largest = _ends(x)
            far = (smallest <= low) | (largest >= high)
        return np.flatnonzero(far[: len(self.low)])

    def count_far(self, place: int, values: Floats) -> int:
        """Return how many values of a number, before its steps, are far outside its range."""
        low, high = (limit[place] for limit in self.limits)
        return int(((values <= low) | (values >= high)).sum())


def _ends(x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the smallest and the largest number of each column.   (N, F) → (F,), (F,)

    numpy is slow for short rows, so several rows are joined to one long row first.
    """
    together = max(1, BLOCK // x.shape[1]) if x.shape[1] and x.flags.c_contiguous else 1
    whole = len(x) // together * together
    found: list[NDArray[Any]] = []
    for reduce in (np.minimum.reduce, np.maximum.reduce):
        parts = [reduce(x[whole:], axis=0)] if whole < len(x) else []
        if whole:
            wide = reduce(x[:whole].reshape(-1, together * x.shape[1]), axis=0)
            parts.append(reduce(wide.reshape(together, -1), axis=0))
        found.append(reduce(np.stack(parts), axis=0))
    return found[0], found[1]
