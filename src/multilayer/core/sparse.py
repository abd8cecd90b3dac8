"""`Sparse`: a matrix in which most values of a column are equal, such as word counts of documents.

    row r = base, but values[i] in column columns[i] for starts[r] ≤ i < starts[r + 1]

Indexing returns dense arrays of the selected rows or columns. Code that reads the matrix in blocks therefore works
without changes, and without memory for the dense matrix. The base of a scipy matrix is 0. Scaled numbers have another
base.
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
"""Number of values that are converted to dense arrays at a time."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sparse:
    base: Array
    starts: Places
    columns: Places
    values: Array

    ndim = 2

    @staticmethod
    def of_scipy(matrix: Any) -> Sparse:
        """Convert a scipy matrix of real numbers in any format. Duplicate entries are summed, as in scipy."""
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
        """Convert dense rows. Values that differ from the base are stored."""
        differs = x != base
        rows, columns = np.nonzero(differs)
        starts = np.concatenate([[0], np.cumsum(differs.sum(1))])
        return Sparse(base=base, starts=starts, columns=columns, values=x[rows, columns])

    def __getitem__(self, key: Any) -> Array:
        """Return dense rows by slice or indices, or dense columns as [:, indices]."""
        if isinstance(key, tuple):
            _, places = key
            selected = np.atleast_1d(places)
            found = np.empty((len(self), len(selected)), dtype=self.dtype)
            for i, column in enumerate(selected.tolist()):
                found[:, i] = self.base[column]
                stored = self._by_column[self._ends[column] : self._ends[column + 1]]
                found[self._rows[stored], i] = self.values[stored]
            return found if np.ndim(places) else found[:, 0]
        picked = self.rows(np.arange(len(self))[key])
        found = np.empty(picked.shape, dtype=self.dtype)
        found[:] = self.base
        found[picked._rows, picked.columns] = picked.values
        return found

    def rows(self, places: Places) -> Sparse:
        """Return some rows as a sparse matrix."""
        counts = self.starts[places + 1] - self.starts[places]
        starts = np.concatenate([[0], np.cumsum(counts)])
        at = np.repeat(self.starts[places] - starts[:-1], counts) + np.arange(starts[-1])
        return replace(self, starts=starts, columns=self.columns[at], values=self.values[at])

    @staticmethod
    def joined(above: Sparse, below: Sparse) -> Sparse:
        """Concatenate the rows of two matrices with the same base."""
        return replace(
            above,
            starts=np.concatenate([above.starts, above.starts[-1] + below.starts[1:]]),
            columns=np.concatenate([above.columns, below.columns]),
            values=np.concatenate([above.values, below.values]),
        )

    def place(self, i: int) -> tuple[int, int]:
        """Return the row and the column of the i-th stored value."""
        return int(np.searchsorted(self.starts, i, side="right")) - 1, int(self.columns[i])

    @cached_property
    def _rows(self) -> Places:
        """The row of each stored value."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    @cached_property
    def _by_column(self) -> Places:
        """The indices of the stored values, sorted by column."""
        return np.argsort(self.columns, kind="stable")

    @cached_property
    def _ends(self) -> Places:
        return np.concatenate([[0], np.cumsum(np.bincount(self.columns, minlength=len(self.base)))])


def rows_of(matrix: Any, places: Places) -> Any:
    """Return some rows of a dense or sparse matrix, as the same type."""
    return matrix.rows(places) if isinstance(matrix, Sparse) else matrix[places]


def joined(above: Any, below: Any) -> Any:
    """Concatenate rows. The result is sparse if one of the two is."""
    if not isinstance(above, Sparse) and not isinstance(below, Sparse):
        return np.concatenate([above, below])
    base = above.base if isinstance(above, Sparse) else below.base
    return Sparse.joined(*(part if isinstance(part, Sparse) else Sparse.of_rows(part, base) for part in (above, below)))


def pieces(rows: int, width: int, most: int | None = None) -> list[slice]:
    """Split rows into blocks that are converted to dense arrays one at a time. For 0 rows, return one empty block."""
    size = max(1, NUMBERS // max(width, 1))
    size = size if most is None else min(size, most)
    return [slice(start, start + size) for start in range(0, max(rows, 1), size)]
