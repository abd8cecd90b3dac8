"""Read tables from arrays: numpy, scipy sparse, torch, .npy and .npz files, and the idx files of MNIST.

    2 dimensions      columns x0, x1, …
    3 or 4            images: (rows, height, width) or (rows, height, width, channels); torch's channels are moved last
    idx               two zero bytes, a type, the number of dimensions, each dimension as a big-endian 32-bit number,
                      the values

Files are read without pickle, because a pickle can run code.
"""

from __future__ import annotations

import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..core.formatting import short
from ..core.machine import available_memory, require_memory
from ..core.sparse import Sparse
from ..errors import DataError
from .table import NOT_UNICODE, Matrix, Table, check_size, from_numpy, is_unicode

IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
X_NAMES = ("x", "data", "features", "inputs", "images", "x_train", "train_images")
Y_NAMES = ("y", "target", "targets", "label", "labels", "y_train", "train_labels")


def table_of_array(array: Any, *, name: str) -> Table:
    """Return an array of 2 dimensions, or a structured array, as a table. Arrays of 3 or 4 dimensions are images."""
    if isinstance(array, np.ma.MaskedArray):
        masked: Any = array
        array = masked.astype(np.float64).filled(np.nan) if masked.dtype.kind in "iuf" else masked.filled()
    values = np.asarray(array)
    _check_real(values, name)
    if values.dtype.names:
        columns = {field: arrow_of(values[field], f"{name}: column {field!r}") for field in values.dtype.names}
        return _require_rows(Table(name=name, columns=columns))
    if values.ndim not in (2, 3, 4):
        hint = "use reshape(-1, 1) for a single column, reshape(1, -1) for a single row"
        raise DataError(f"{name}: an array must have 2 dimensions, or 3 or 4 for images, got {values.ndim}: {hint}")
    if 0 in values.shape:
        raise DataError(f"{name}: a table needs at least one row and one column, got an array of shape {values.shape}")
    image = None
    if values.ndim > 2:
        height, width, channels = (*values.shape[1:], 1)[:3]
        image = (int(height), int(width), int(channels))
        values = values.reshape(len(values), -1)
    names = tuple(f"x{i}" for i in range(values.shape[1]))
    if values.dtype.kind in "iufb":
        matrix = values.astype(np.uint8) if values.dtype.kind == "b" else values
        if matrix.dtype.itemsize > 8 or not matrix.dtype.isnative:
            matrix = matrix.astype(np.float64 if matrix.dtype.kind == "f" else np.int64)
        top = 255.0 if image and values.dtype == np.uint8 else None
        return Table(name=name, matrix=matrix, matrix_names=names, image=image, top=top, positional=True)
    columns = {column: arrow_of(values[:, i], f"{name}: column {column!r}") for i, column in enumerate(names)}
    return Table(name=name, columns=columns, positional=True)


def arrow_of(values: Any, what: str) -> Any:
    """Return a column of numpy, pandas or Python values as an Arrow array. Periods become their start times."""
    _check_real(values, what)
    if type(getattr(values, "dtype", None)).__name__ == "PeriodDtype":
        values = np.asarray(getattr(values, "dt", values).to_timestamp())
    try:
        if isinstance(values, np.ndarray) and values.dtype.kind in "biuf" and values.dtype.isnative:
            return pa.chunked_array([from_numpy(values)])
        items: Any = values.tolist() if isinstance(values, np.ndarray) and values.dtype.kind != "M" else values
        return pa.chunked_array([pa.array(items, from_pandas=True)])
    except UnicodeEncodeError:
        raise surrogate_error(values, what) from None
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, TypeError) as error:
        if all(
            is_missing(value) or isinstance(value, int | float | Decimal) for value in values
        ):  # outside Arrow's range
            return pa.chunked_array([pa.array([None if is_missing(one) else _float(one) for one in values])])
        if all(is_missing(value) or type(value).__name__ == "Period" for value in values):
            return arrow_of([None if is_missing(one) else one.to_timestamp() for one in values], what)
        raise DataError(f"{what}: must hold values of one type: {_first_other_type(values, error)}") from None


def surrogate_error(values: Iterable[Any], what: str) -> DataError:
    """Return the error for the first string that cannot be written as UTF-8."""
    bad = ((row, one) for row, one in enumerate(values) if isinstance(one, str) and not is_unicode(one))
    row, text = next(bad, (0, ""))
    return DataError(f"{what}: row {row + 1:,}: {NOT_UNICODE}, got {short(text)}: correct it or leave it empty")


def texts_of(values: Iterable[Any]) -> list[str | None]:
    """Convert Python values to strings. Missing values become None."""
    return [None if is_missing(value) else str(value) for value in values]


def reads_as_text(values: Iterable[Any]) -> bool:
    """Return whether a column of Python objects is read as text: it contains strings, bytes or pandas intervals."""
    kinds = {type(value) for value in values if not is_missing(value)}
    return any(issubclass(kind, str | bytes) or kind.__name__ == "Interval" for kind in kinds)


def is_missing(value: Any) -> bool:
    """Return whether a Python value is a missing value: None, NaN, NaT or pandas' NA."""
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, float) and value != value)
        or (isinstance(value, Decimal) and value.is_nan())
    )


def _float(value: float | Decimal) -> float:
    """Convert a number to a float. A number that is too large becomes infinite, and a later check reports its row."""
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf


def _check_real(values: Any, what: str) -> None:
    if getattr(values, "dtype", None) is not None and getattr(values.dtype, "kind", "") == "c":
        remedy = "pass its real part and its imaginary part as separate columns"
        raise DataError(f"{what}: numbers must be real, got {values.dtype}: {remedy}")


def _first_other_type(values: Any, error: Exception) -> str:
    """Describe the first value whose type differs from the types before it, for an error message."""
    kinds: dict[type, int] = {}
    for row, value in enumerate(values):
        if value is None or (isinstance(value, float) and value != value):
            continue
        kind = float if isinstance(value, (int, float, np.number)) and not isinstance(value, bool) else type(value)
        if kinds and kind not in kinds:
            return f"row {row + 1:,} holds {short(value)} after {next(iter(kinds)).__name__} in the rows before"
        kinds.setdefault(kind, row)
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def target_columns(y: Any, *, n: int, name: str) -> dict[str, Any]:
    """Return the target of `(X, y)` as named columns. y is an array."""
    label = getattr(y, "name", None)
    values = np.asarray(_numpy(y))
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim not in (1, 2):
        raise DataError(f"{name}: the target must have one or two dimensions, got {values.ndim}")
    label = label if isinstance(label, str) and label else "y"
    many = [values] if values.ndim == 1 else list(values.T)
    names = [label] if values.ndim == 1 else [f"{label}{i}" for i in range(len(many))]
    found = {one: arrow_of(column, f"{name}: the target {one!r}") for one, column in zip(names, many, strict=True)}
    return check_length(found, n=n, name=name)


def check_length(found: dict[str, Any], *, n: int, name: str) -> dict[str, Any]:
    """Return the columns of the target. They must have as many rows as X."""
    for column in found.values():
        if len(column) != n:
            raise DataError(f"{name}: X and y must have the same number of rows, got {n:,} and {len(column):,}")
    return found


def _numpy(values: Any) -> Any:
    """Convert a torch tensor to numpy, with the channels of images last. Return any other value unchanged."""
    if not hasattr(values, "detach"):
        return values
    values = values.detach().cpu()
    array = (values.to_dense() if str(values.layout) != "torch.strided" else values).numpy()
    return np.moveaxis(array, -3, -1) if array.ndim in (3, 4) and array.shape[-3] in (1, 3, 4) else array


def table_of_tensor(tensor: Any, *, name: str) -> Table:
    return table_of_array(_numpy(tensor), name=name)


def table_of_sparse(matrix: Any, *, name: str) -> Table:
    """Return a scipy sparse matrix as a table. It stays sparse unless values are missing."""
    _check_real(matrix, name)
    if len(matrix.shape) != 2 or 0 in matrix.shape:
        raise DataError(f"{name}: a table needs at least one row and one column, got a matrix of shape {matrix.shape}")
    found = Sparse.of_scipy(matrix)
    if not np.isnan(found.values).any():
        names = tuple(f"x{i}" for i in range(found.shape[1]))
        return Table(name=name, matrix=found, matrix_names=names, positional=True)
    rows, columns = found.shape
    remedy = "fill them, or select fewer columns"
    what = f"{name}: {rows:,} rows × {columns:,} columns as a dense array, because values are missing ({remedy})"
    require_memory(12 * rows * columns, what)
    return table_of_array(matrix.toarray(), name=name)


def parts_of_dataset(dataset: Any, *, name: str) -> list[Matrix]:
    """Return the rows of a torch Dataset and, if its items are (row, target) pairs, the targets."""
    if hasattr(dataset, "tensors"):
        parts = [_numpy(tensor) for tensor in dataset.tensors]
    else:
        try:
            items = [dataset[i] for i in range(len(dataset))]
        except TypeError:
            raise DataError(f"{name}: a dataset must have a length: a stream of rows cannot be shuffled") from None
        if not items:
            raise DataError(f"{name}: a table needs at least one row, got an empty dataset")
        pairs = [item if isinstance(item, (tuple, list)) else (item,) for item in items]
        try:
            parts = [np.stack([np.asarray(_numpy(pair[i])) for pair in pairs]) for i in range(len(pairs[0]))]
        except (ValueError, IndexError, TypeError) as error:
            raise DataError(f"{name}: all items must contain arrays of the same shapes: {error}") from None
    if len(parts) > 2:
        raise DataError(f"{name}: an item must be a row, or a row and its target, got {len(parts)} parts")
    return parts


def table_of_dataset(dataset: Any, *, name: str) -> Table:
    """Return a torch Dataset of rows, or of (row, target) pairs, as a table."""
    parts = parts_of_dataset(dataset, name=name)
    rows = parts[0]
    table = table_of_array(rows[:, None] if rows.ndim == 1 else rows, name=name)
    if len(parts) == 1:
        return table
    columns = target_columns(parts[1], n=len(table), name=name)
    return table.with_columns(columns, targets=tuple(columns))


# Files


READ_ERRORS = (
    *(ValueError, TypeError, KeyError, OSError, EOFError, MemoryError, OverflowError, RecursionError, SyntaxError),
    *(NotImplementedError, tokenize.TokenError, zipfile.BadZipFile, zlib.error, struct.error),
)
"""Exceptions that numpy raises for a damaged file. A header is a Python literal and .npz is a zip archive, so errors of
their parsers can occur too."""


def read_npy(path: Path) -> Table:
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except READ_ERRORS as error:
        raise DataError(f"{path}: cannot be read as .npy: {_describe_error(error)}") from None
    return table_of_array(np.asarray(values), name=str(path))


def _read_sparse(path: Path) -> Table:
    """Read a file of `scipy.sparse.save_npz`."""
    from scipy.sparse import load_npz

    try:
        found = load_npz(path)
    except READ_ERRORS as error:
        raise DataError(f"{path}: cannot be read as a sparse matrix: {_describe_error(error)}") from None
    return table_of_sparse(found, name=str(path))


def read_npz(path: Path) -> Table:
    """Read an .npz file: arrays X and y (or one of their usual names), a scipy sparse matrix, or columns.

    If there are X and y, other arrays, such as x_test and y_test, are ignored, and a note names them.
    """
    try:
        with zipfile.ZipFile(path) as packed:
            size = sum(one.file_size for one in packed.infolist())
            if not all(one.filename.endswith(".npy") for one in packed.infolist()):
                what = "an Excel workbook" if "[Content_Types].xml" in packed.namelist() else "a zip file"
                raise DataError(f"{path}: is {what}, which cannot be read as a table: save it as CSV or Parquet")
        check_size(path, size, available_memory() // 2, "decompresses to")
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {key: stored[key] for key in stored.files}
    except DataError:
        raise
    except READ_ERRORS as error:
        raise DataError(f"{path}: cannot be read as .npz: {_describe_error(error)}") from None
    if {"format", "shape", "data"} <= arrays.keys():
        return _read_sparse(path)
    lower = {key.lower(): key for key in arrays}
    x = next((lower[key] for key in X_NAMES if key in lower), None)
    if x is None:
        columns = {key: value for key, value in arrays.items() if value.ndim == 1}
        if not columns or len(columns) < len(arrays) or len({len(value) for value in columns.values()}) > 1:
            raise DataError(f"{path}: must contain arrays X and y, or columns of equal length, got {', '.join(arrays)}")
        made = {key: arrow_of(value, f"{path}: column {key!r}") for key, value in columns.items()}
        return _require_rows(Table(name=str(path), columns=made))
    table = table_of_array(arrays[x], name=str(path))
    y = next((lower[key] for key in Y_NAMES if key in lower), None)
    rest = [key for key in arrays if key not in (x, y)]
    if rest:
        remedy = "save them as X and y in another file for validation or mlp evaluate"
        used = f"{x} and {y}" if y is not None else x
        table = replace(table, notes=(f"arrays ignored: {', '.join(rest)}; only {used} are read: {remedy}",))
    if y is None:
        return table
    columns = target_columns(arrays[y], n=len(table), name=str(path))
    return table.with_columns(columns, targets=tuple(columns))


def read_idx(data: bytes, *, name: str) -> Matrix:
    """Return the array of an idx file."""
    if len(data) < 4 or data[:2] != b"\x00\x00" or data[2] not in IDX_TYPES or not 1 <= data[3] <= 4:
        raise DataError(f"{name}: not an idx file: it must begin with the bytes 00 00, a type and 1 to 4 dimensions")
    n_dims, kind = data[3], np.dtype(IDX_TYPES[data[2]])
    start = 4 + 4 * n_dims
    if len(data) < start:
        raise DataError(f"{name}: the idx file ends inside its header")
    shape = tuple(int(n) for n in np.frombuffer(data, ">u4", count=n_dims, offset=4))
    expected = int(np.prod([int(n) for n in shape], dtype=object)) * kind.itemsize
    if len(data) - start != expected:
        raise DataError(
            f"{name}: an array of shape {shape} needs {expected:,} bytes after the header, got {len(data) - start:,}"
        )
    return np.frombuffer(data, kind, offset=start).reshape(shape).astype(kind.newbyteorder("="))


def idx_table(images: Matrix, labels: Matrix | None, *, name: str) -> Table:
    table = table_of_array(images, name=name)
    if labels is None:
        return table
    if labels.ndim != 1:
        raise DataError(f"{name}: labels must have one dimension, got {labels.ndim}")
    columns = target_columns(labels, n=len(table), name=name)
    return table.with_columns({"label": columns["y"]}, targets=("label",))


def _require_rows(table: Table) -> Table:
    if not len(table):
        raise DataError(f"{table.name}: a table needs at least one row, got none")
    return table


def _describe_error(error: BaseException) -> str:
    words = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
    return (
        "it contains Python objects, which could run code: save plain numbers"
        if "pickle" in words or "Python objects" in words
        else words
    )
