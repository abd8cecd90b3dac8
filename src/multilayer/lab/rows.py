"""A tidy table: one measurement per row, with what was varied in some columns and what was measured in others."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, unknown_name

Row = Mapping[str, Any]
"""Numbers, strings and booleans by column."""


class Rows(Sequence[Row]):
    """The rows of a result. Selections are `Rows` again.

    Examples
    --------
    >>> rows = Rows([{"width": 2, "seed": 0, "error": 0.5}, {"width": 4, "seed": 0, "error": 0.1}])
    >>> rows.where(width=4).mean("error")
    0.1
    >>> [(width, part.mean("error")) for (width,), part in rows.by("width")]
    [(2, 0.5), (4, 0.1)]
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._rows = [dict(row) for row in rows]

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Rows: ...
    def __getitem__(self, index: int | slice) -> Row | Rows:
        return Rows(self._rows[index]) if isinstance(index, slice) else self._rows[index]

    def __repr__(self) -> str:
        return f"Rows of {len(self)}: {', '.join(self.columns)}"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns. A row may lack some."""
        return tuple(dict.fromkeys(name for row in self._rows for name in row))

    def where(self, **values: Any) -> Rows:
        """Return the rows that have these values."""
        missing = object()
        return Rows(row for row in self._rows if all(row.get(k, missing) == v for k, v in values.items()))

    def having(self, test: Callable[[Row], bool]) -> Rows:
        """Return the rows that pass a test."""
        return Rows(row for row in self._rows if test(row))

    def by(self, *names: str) -> Iterator[tuple[tuple[Any, ...], Rows]]:
        """Yield each combination of values of these columns, with its rows, in the order of the first rows."""
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in self._rows:
            if all(name in row for name in names):
                groups.setdefault(tuple(row[name] for name in names), []).append(row)
        for key, rows in groups.items():
            yield key, Rows(rows)

    def distinct(self, name: str) -> list[Any]:
        """Return the values of a column without repetitions, in the order of the rows."""
        return list(dict.fromkeys(self.values(name)))

    def values(self, name: str) -> list[Any]:
        """Return the values of a column. Rows without it are left out."""
        found = [row[name] for row in self._rows if name in row]
        if not found:
            raise DataError(unknown_name("column", name, self.columns) if self else "no row has these values")
        return found

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return the values of a column as floating-point numbers."""
        return np.asarray(self.values(name), dtype=np.float64)

    def mean(self, name: str) -> float:
        """Return the mean of a column."""
        return float(self.numbers(name).mean())

    def median(self, name: str) -> float:
        """Return the median of a column."""
        return float(np.median(self.numbers(name)))

    def to_csv(self) -> str:
        """Return the rows as a CSV file with a header."""
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self._rows)
        return text.getvalue()

    def to_arrow(self) -> Any:
        """Return a `pyarrow.Table`, for example for ``to_pandas()``."""
        import pyarrow as pa

        return pa.Table.from_pydict({name: [row.get(name) for row in self._rows] for name in self.columns})
