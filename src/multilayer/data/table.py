"""`Table`: named columns of equal length, from any source.

Columns are Arrow arrays. Numbers that were read as one numpy array or sparse matrix stay one matrix. Messages begin
with the name of the source, and count rows from 1, without the header of a file.

`to_numpy` and `from_numpy` share buffers. Arrow's own functions are slower at first use, because they import pandas if
it is installed.
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
"""Arrow's compute functions. Arrow creates them at import, so type checkers do not know them."""

Rows = NDArray[np.int64]
Matrix = NDArray[Any]
Shape = tuple[int, int, int]
"""Height, width and channels of an image, in the order of its numbers in a row."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """A table of named columns, as `read` returns it.

    Parameters
    ----------
    name : str
        What the table was read from, such as a path. Messages begin with it.
    columns : mapping of str to Arrow array
        The first columns.
    matrix : array or Sparse, optional
        Numbers (rows, columns) that follow the columns.
    matrix_names : tuple of str
        Column names of `matrix`.
    targets : tuple of str
        Columns that the source declares as targets.
    image : tuple of 3 int, optional
        Height, width and channels, if the rows of `matrix` are images.
    top : float, optional
        Largest possible value of a pixel: 255 for bytes.
    positional : bool
        Whether the source has no column names, so that columns are identified by position.
    notes : tuple of str
        Messages of the reader for the user.
    origin : array of int, optional
        Position of each row in the source, from 0, if rows were dropped.
    written : mapping of str to Arrow array
        The original text of columns that were converted from text.
    target_names : tuple of str
        Names of the targets in the trained model, if they differ from the column names.
    class_names : tuple
        Classes in the trained model, if the target column contains class numbers from 0.
    numbered : bool
        Whether the column names were numbers in the source.
    """

    name: str
    columns: Mapping[str, Any] = field(default_factory=dict[str, Any])
    matrix: Matrix | Sparse | None = None
    matrix_names: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    image: Shape | None = None
    top: float | None = None
    positional: bool = False
    notes: tuple[str, ...] = ()
    origin: Rows | None = None
    written: Mapping[str, Any] = field(default_factory=dict[str, Any])
    target_names: tuple[str, ...] = ()
    class_names: tuple[Any, ...] = ()
    numbered: bool = False

    @staticmethod
    def of_arrow(table: Any, *, name: str, **known: Any) -> Table:
        """Return an Arrow table as a `Table`. Its column names must not be empty, and must be distinct."""
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
        """Position of each column of the matrix."""
        return {name: i for i, name in enumerate(self.matrix_names)}

    def column(self, name: str) -> Any:
        """Return a column as an Arrow array."""
        if name in self.columns:
            return self.columns[name]
        if name in self.places and self.matrix is not None:
            return pa.chunked_array([from_numpy(self.matrix[:, self.places[name]])])
        raise DataError(f"{self.name}: {unknown_name('column', name, self.names)}")

    def take(self, rows: Rows) -> Table:
        """Return the table of the given rows, counted from 0, in the given order."""
        columns = {name: column.take(from_numpy(rows)) for name, column in self.columns.items()}
        written = {name: column.take(from_numpy(rows)) for name, column in self.written.items()}
        matrix = None if self.matrix is None else rows_of(self.matrix, rows)
        origin = self.origin[rows] if self.origin is not None else rows
        return replace(self, columns=columns, written=written, matrix=matrix, origin=origin)

    def with_columns(self, columns: Mapping[str, Any], *, targets: tuple[str, ...] = ()) -> Table:
        """Return the table with additional columns of the same length before the others."""
        return replace(self, columns={**columns, **self.columns}, targets=targets or self.targets)


def check_names(names: list[str], source: str) -> None:
    """Raise an error if a column has no name, or two columns have the same name."""
    first: dict[str, int] = {}
    for place, name in enumerate(names, 1):
        if not name.strip():
            raise DataError(f"{source}: column {place} has no name: add its name to the header")
        if not is_unicode(name):
            raise DataError(f"{source}: column {place}: {NOT_UNICODE}, got {name!r}: rename the column")
        if name in first:
            where = f"columns {first[name]} and {place}"
            raise DataError(f"{source}: {where} are both called {name!r}: rename one, column names must be distinct")
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
    """Return the beginning of a message about a column, or about one of its values. `row` counts from 0."""
    if row is None:
        return f"{table.name}: column {column!r}"
    number = row if table.origin is None else int(table.origin[row])
    return f"{table.name}: row {number + 1:,}, column {column!r}"


# Between Arrow and numpy


def to_numpy(column: Any) -> NDArray[Any]:
    """Convert an Arrow array of numbers or booleans. Nulls become NaN in floats, and are undefined in other types.

    >>> to_numpy(pa.chunked_array([[1.5, None], [2.5]]))
    array([1.5, nan, 2.5])
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # it has no chunks
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
    """Convert an array of numbers or booleans to Arrow, without nulls.

    >>> from_numpy(np.array([True, False])).to_pylist()
    [True, False]
    """
    n, kind = len(values), pa.bool_() if values.dtype == np.bool_ else pa.from_numpy_dtype(values.dtype)
    packed = np.packbits(values, bitorder="little") if values.dtype == np.bool_ else np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, n, [None, pa.py_buffer(packed)])


def from_texts(strings: Iterable[str]) -> Any:
    """Convert strings to an Arrow array.

    >>> from_texts(["no", "yes"]).to_pylist()
    ['no', 'yes']
    """
    encoded = [text.encode() for text in strings]
    return from_bytes(b"".join(encoded), np.cumsum([len(text) for text in encoded], dtype=np.int64))


def from_bytes(data: bytes, ends: NDArray[np.int64]) -> Any:
    """Make an Arrow array of strings from UTF-8 bytes and end positions. Arrow raises an error if they do not match."""
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), ends])
    made = pa.Array.from_buffers(pa.large_string(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    made.validate(full=True)
    return made


def _bits(buffer: Any, start: int, n: int) -> NDArray[np.bool_]:
    packed = np.frombuffer(buffer, np.uint8, count=(start + n + 7) // 8)
    return np.unpackbits(packed, count=start + n, bitorder="little")[start:].astype(np.bool_)
