"""`Sparse`: rows that mostly hold one value in each column, as text counted by words does.

    row r = base, but values[i] in column columns[i] for starts[r] ≤ i < starts[r + 1]

Asking for rows or columns gives plain arrays of those alone, so what reads a block at a time needs no other code and
no memory for the whole. A scipy matrix has a base of zeros; scaled numbers have another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Places = NDArray[np.int64]

NUMBERS = 1 << 22
"""As many are made plain at a time."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sparse:
    base: Array
    starts: Places
    columns: Places
    values: Array

    ndim = 2

    @staticmethod
    def of_scipy(matrix: Any) -> Sparse:
        """A scipy matrix of real numbers in any form; entries that stand twice are added up, as scipy means them."""
        found = matrix.tocsr(copy=True)
        found.sum_duplicates()
        found.eliminate_zeros()
        values = found.data if found.data.dtype.kind == "f" else found.data.astype(np.float64)
        return Sparse(
            base=np.zeros(found.shape[1], dtype=values.dtype),
            starts=found.indptr.astype(np.int64),
            columns=found.indices.astype(np.int64),
            values=values,
        )

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), len(self.base)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    @staticmethod
    def of_rows(x: Array, base: Array) -> Sparse:
        """Plain rows, by where they differ from a base."""
        differs = x != base
        rows, columns = np.nonzero(differs)
        starts = np.concatenate([[0], np.cumsum(differs.sum(1))])
        return Sparse(base=base, starts=starts, columns=columns, values=x[rows, columns])

    def __getitem__(self, key: Any) -> Array:
        """Rows by slice or places; or columns, as [:, places], of all rows."""
        if isinstance(key, tuple):
            _, places = key
            wanted = np.atleast_1d(places)
            found = np.empty((len(self), len(wanted)), dtype=self.dtype)
            for i, column in enumerate(wanted.tolist()):
                found[:, i] = self.base[column]
                mine = self._by_column[self._ends[column] : self._ends[column + 1]]
                found[self._rows[mine], i] = self.values[mine]
            return found if np.ndim(places) else found[:, 0]
        picked = self.rows(np.arange(len(self))[key])
        found = np.empty(picked.shape, dtype=self.dtype)
        found[:] = self.base
        found[picked._rows, picked.columns] = picked.values
        return found

    def rows(self, places: Places) -> Sparse:
        """These rows, still sparse."""
        counts = self.starts[places + 1] - self.starts[places]
        starts = np.concatenate([[0], np.cumsum(counts)])
        at = np.repeat(self.starts[places] - starts[:-1], counts) + np.arange(starts[-1])
        return replace(self, starts=starts, columns=self.columns[at], values=self.values[at])

    @staticmethod
    def joined(above: Sparse, below: Sparse) -> Sparse:
        """One after the other; both have the same base."""
        return replace(
            above,
            starts=np.concatenate([above.starts, above.starts[-1] + below.starts[1:]]),
            columns=np.concatenate([above.columns, below.columns]),
            values=np.concatenate([above.values, below.values]),
        )

    def place(self, i: int) -> tuple[int, int]:
        """Row and column of the i-th value."""
        return int(np.searchsorted(self.starts, i, side="right")) - 1, int(self.columns[i])

    @cached_property
    def _rows(self) -> Places:
        """The row of each value."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    @cached_property
    def _by_column(self) -> Places:
        """Places of values, column after column."""
        return np.argsort(self.columns, kind="stable")

    @cached_property
    def _ends(self) -> Places:
        return np.concatenate([[0], np.cumsum(np.bincount(self.columns, minlength=len(self.base)))])


def rows_of(matrix: Any, places: Places) -> Any:
    """Some rows of an array or of a sparse one, as what it is."""
    return matrix.rows(places) if isinstance(matrix, Sparse) else matrix[places]


def joined(above: Any, below: Any) -> Any:
    """Rows one after the other; sparse where either is."""
    if not isinstance(above, Sparse) and not isinstance(below, Sparse):
        return np.concatenate([above, below])
    base = above.base if isinstance(above, Sparse) else below.base
    return Sparse.joined(*(part if isinstance(part, Sparse) else Sparse.of_rows(part, base) for part in (above, below)))


def pieces(rows: int, width: int, most: int | None = None) -> list[slice]:
    """Cuts rows of so many numbers into parts that may be plain at a time; one empty part where there are none."""
    size = max(1, NUMBERS // max(width, 1))
    size = size if most is None else min(size, most)
    return [slice(start, start + size) for start in range(0, max(rows, 1), size)]
