"""Between Arrow and numpy, by their buffers.

Arrow's own ways import pandas wherever it is installed, which takes longer than most of what is done here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

pc: Any = pyarrow.compute
"""Arrow's functions: they are made when it is imported, so that no type checker knows them."""


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
