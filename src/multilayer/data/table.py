"""`Table`: named columns of equal length, whatever they came from.

Columns are Arrow arrays; a block of numbers that came as one numpy array stays one matrix. Rows are counted from 1 in
messages, a file's header not counted. A table knows what it was read from, so that a message can name it.

`to_numpy` and `from_numpy` convert by buffers: Arrow's own functions import pandas if it is installed, which takes
longer than most of what is done here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from ..core.sparse import Sparse, rows_of
from ..errors import DataError, unknown_name

pc: Any = pyarrow.compute
"""Arrow's functions: they are made when it is imported, so that no type checker knows them."""

Rows = NDArray[np.int64]
Matrix = NDArray[Any]
Shape = tuple[int, int, int]
"""Height, width and channels of rows that are pictures, in the order their numbers stand."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """`columns` first, then the columns of `matrix`, which has one row for each row of the table."""

    name: str
    columns: Mapping[str, Any] = field(default_factory=dict[str, Any])
    matrix: Matrix | Sparse | None = None
    matrix_names: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    """Columns that the source itself says are the target."""
    image: Shape | None = None
    top: float | None = None
    """The largest number a picture's rows can hold: 255 for bytes."""
    positional: bool = False
    """Whether the names of the columns were made up, so that their places count."""
    notes: tuple[str, ...] = ()
    origin: Rows | None = None
    """Where each row stood in the source, from 0, where some were left out."""
    written: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The text of columns that were text in the source and are now of the type that the text means."""

    target_names: tuple[str, ...] = ()
    """Names of the targets in the trained model, if they differ from those of the columns."""
    class_names: tuple[Any, ...] = ()
    """Classes in the trained model, if the target column holds class numbers from 0."""
    numbered: bool = False
    """Whether the column names were numbers in the source."""

    @staticmethod
    def of_arrow(table: Any, *, name: str, **known: Any) -> Table:
        """Columns of an Arrow table. Names must be there and differ."""
        names = [str(column) for column in table.column_names]
        check_names(names, name)
        return Table(name=name, columns=dict(zip(names, table.columns, strict=True)), **known)

    def __len__(self) -> int:
        if self.matrix is not None:
            return len(self.matrix)
        return len(next(iter(self.columns.values()))) if self.columns else 0

    @cached_property
    def names(self) -> tuple[str, ...]:
        return (*self.columns, *self.matrix_names)

    @cached_property
    def places(self) -> dict[str, int]:
        """Where each column of the matrix stands in it."""
        return {name: i for i, name in enumerate(self.matrix_names)}

    def column(self, name: str) -> Any:
        """One column as an Arrow array."""
        if name in self.columns:
            return self.columns[name]
        if name in self.places and self.matrix is not None:
            return pa.chunked_array([from_numpy(self.matrix[:, self.places[name]])])
        raise DataError(f"{self.name}: {unknown_name('column', name, self.names)}")

    def take(self, rows: Rows) -> Table:
        """The given rows, counted from 0, in that order."""
        columns = {name: column.take(from_numpy(rows)) for name, column in self.columns.items()}
        written = {name: column.take(from_numpy(rows)) for name, column in self.written.items()}
        matrix = None if self.matrix is None else rows_of(self.matrix, rows)
        origin = self.origin[rows] if self.origin is not None else rows
        return replace(self, columns=columns, written=written, matrix=matrix, origin=origin)

    def with_columns(self, columns: Mapping[str, Any], *, targets: tuple[str, ...] = ()) -> Table:
        """More columns of the same length, before the others."""
        return replace(self, columns={**columns, **self.columns}, targets=targets or self.targets)


def check_names(names: list[str], source: str) -> None:
    """Every column has a name of its own."""
    first: dict[str, int] = {}
    for place, name in enumerate(names, 1):
        if not name.strip():
            raise DataError(f"{source}: column {place} has no name: every column needs one, give it a header")
        if not is_unicode(name):
            raise DataError(f"{source}: column {place}: {NOT_UNICODE}, got {name!r}: rename the column")
        if name in first:
            where = f"columns {first[name]} and {place}"
            raise DataError(f"{source}: {where} are both called {name!r}: names must differ, rename one")
        first[name] = place


NOT_UNICODE = "text must not contain half of a surrogate pair"


def is_unicode(text: str) -> bool:
    """Return whether a string can be written as UTF-8.

    >>> is_unicode("σ"), is_unicode("\\ud800")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_size(path: object, size: int, limit: int, verb: str) -> None:
    """Raise an error if a file does not fit in memory."""
    if size > limit:
        raise DataError(
            f"{path}: {verb} {size:,} bytes, more than the {limit:,} that fit in the available memory: "
            "split the file, or free some memory"
        )


def where(table: Table, column: str, row: int | None = None) -> str:
    """The beginning of a message about a column, or about one value: `row` counts from 0."""
    if row is None:
        return f"{table.name}: column {column!r}"
    number = row if table.origin is None else int(table.origin[row])
    return f"{table.name}: row {number + 1:,}, column {column!r}"


# Between Arrow and numpy


def to_numpy(column: Any) -> NDArray[Any]:
    """Numbers or booleans of an Arrow array. Nulls become NaN where they can, else whatever stands there.

    >>> to_numpy(pa.chunked_array([[1.5, None], [2.5]]))
    array([1.5, nan, 2.5])
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # no chunk at all
        return np.zeros(0, dtype=array.type.to_pandas_dtype())
    start, n = array.offset, len(array)
    buffer = array.buffers()[1]
    if pa.types.is_boolean(array.type):
        return np.zeros(0, dtype=np.bool_) if buffer is None else _bits(buffer, start, n)
    dtype = np.dtype(array.type.to_pandas_dtype())
    values = np.zeros(n, dtype=dtype) if buffer is None else np.frombuffer(buffer, dtype, count=start + n)[start:]
    if array.null_count and dtype.kind == "f":
        values = values.copy()
        values[_bits(pc.is_null(array).buffers()[1], 0, n)] = np.nan
    return values


def from_numpy(values: NDArray[Any]) -> Any:
    """An Arrow array of numbers or booleans, none of them null.

    >>> from_numpy(np.array([True, False])).to_pylist()
    [True, False]
    """
    n, kind = len(values), pa.bool_() if values.dtype == np.bool_ else pa.from_numpy_dtype(values.dtype)
    packed = np.packbits(values, bitorder="little") if values.dtype == np.bool_ else np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, n, [None, pa.py_buffer(packed)])


def from_texts(texts: Iterable[str]) -> Any:
    """An Arrow array of texts.

    >>> from_texts(["no", "yes"]).to_pylist()
    ['no', 'yes']
    """
    encoded = [text.encode() for text in texts]
    return from_bytes(b"".join(encoded), np.cumsum([len(text) for text in encoded], dtype=np.int64))


def from_bytes(data: bytes, ends: NDArray[np.int64]) -> Any:
    """Texts from their UTF-8 bytes and where each ends; Arrow refuses what does not fit together."""
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), ends])
    made = pa.Array.from_buffers(pa.large_string(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    made.validate(full=True)
    return made


def _bits(buffer: Any, start: int, n: int) -> NDArray[np.bool_]:
    packed = np.frombuffer(buffer, np.uint8, count=(start + n + 7) // 8)
    return np.unpackbits(packed, count=start + n, bitorder="little")[start:].astype(np.bool_)
