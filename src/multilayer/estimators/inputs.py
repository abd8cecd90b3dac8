"""Checks and conversions of X: data frames, and arrays of numbers, strings or Python objects."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..core.formatting import short
from ..data import columns as C
from ..data import read
from ..data.arrays import arrow_of, is_missing, parts_of_dataset, reads_as_text, texts_of
from ..data.table import Table, to_numpy, where
from ..errors import DataError, OptionError, unknown_name
from ..models.trained_model import TrainedModel


def from_dataset(X: Any, y: Any, names: Sequence[str] | None = None) -> tuple[Any, Any]:
    """Return the rows and the targets of a torch or Hugging Face dataset. Return other values unchanged.

    For a Hugging Face dataset, y may be the name of the target column, or a list of names. `names` are the columns of
    the training rows, which are selected.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(X, torch.utils.data.Dataset) and not hasattr(X, "with_format"):
        parts = parts_of_dataset(X, name=f"the dataset {type(X).__name__}")
        return parts[0], parts[1] if y is None and len(parts) > 1 else y
    if not type(X).__module__.startswith("datasets."):
        return X, y
    table: Any = X.with_format("arrow")[:] if hasattr(X, "with_format") and hasattr(X, "__len__") else read(X)
    if names is not None and set(names) <= set(table.column_names):
        return table.select(list(names)), y
    targets = [y] if isinstance(y, str) else y if isinstance(y, list) and all(isinstance(one, str) for one in y) else []
    if not targets:
        return table, y
    absent = [name for name in targets if name not in table.column_names]
    if absent:
        raise DataError(f"y: {unknown_name('column', absent[0], table.column_names)}")
    chosen: Any = table.select(targets).to_pandas()
    return table.drop_columns(targets), chosen if len(targets) > 1 else chosen[targets[0]]


def as_rows(X: Any) -> Any:
    """Convert X to a form that scikit-learn's checks keep unchanged: tensors to numpy, Arrow batches to tables, masked
    values to missing values, arrays of strings and bytes to objects."""
    if hasattr(X, "detach"):  # a torch tensor
        X = X.detach().cpu().numpy()
    if type(X).__name__ == "LazyFrame":
        raise DataError("X must contain rows, got a LazyFrame, which is only a query: pass X.collect()")
    if isinstance(X, pa.RecordBatch):
        return pa.Table.from_batches([X])
    X = unmasked(X)
    if getattr(X, "ndim", 2) == 1:
        _refuse_labels(np.asarray(X))
    if isinstance(X, list | tuple):
        rows = np.asarray(X, dtype=object)
        _refuse_labels(rows)
        return rows if rows.ndim == 2 and any(isinstance(one, str | bytes) for one in rows.ravel().tolist()) else X
    if not isinstance(X, np.ndarray) or X.dtype.kind not in "US" or X.ndim != 2:
        return X
    return np.array([_decoded(one, "the array") for one in X.ravel().tolist()], dtype=object).reshape(X.shape)


def _refuse_labels(X: NDArray[Any]) -> None:
    if X.ndim == 1 and len(X) and isinstance(X[0], str):
        raise DataError(
            f"Expected 2D array, got 1D array of {len(X):,} strings: pass X before y, and [[…]] for one row"
        )


def unmasked(values: Any) -> Any:
    """Convert a masked array to an array with missing values. Return other values unchanged."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    masked: Any = values
    if not np.ma.is_masked(masked):
        return masked.data
    numbers = masked.dtype.kind in "biufc"
    found = masked.data.astype(np.result_type(masked.dtype, np.float64) if numbers else object)
    found[masked.mask] = np.nan if numbers else None
    return found


def _decoded(value: Any, what: str) -> Any:
    """Decode bytes to a string."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise DataError(f"{what}: bytes must be text in UTF-8, got {short(value)}: decode them to strings") from None


def text_columns_of_model(model: TrainedModel | None) -> set[int]:
    """Return the positions of columns that were text in training. Numbers in them are converted to text."""
    encodings = [] if model is None else model.encodings
    return {i for e in encodings for i, one in enumerate(e.columns) if one.family == "text" and one.kind != "drop"}


def text_columns_of_table(table: Any) -> set[int]:
    """Return the positions of text columns in a table to train on."""
    found = read(table)
    names = [(i, name) for i, name in enumerate(found.names) if name not in found.places]
    return {i for i, name in names if C.family_of(found.column(name), where(found, name)) == "text"}


def is_frame(X: Any) -> bool:
    """Return whether X is a data frame or an Arrow table."""
    return hasattr(X, "columns") and hasattr(X, "shape")


def check_unique_names(X: Any) -> Any:
    """Return the frame with column names as strings. Two columns with the same name are an error."""
    names: list[Any] = list(getattr(X, "column_names", X.columns))  # `columns` of an Arrow table are its values
    twice = [name for i, name in enumerate(names) if name in names[:i]] if len(set(names)) < len(names) else []
    if twice:
        raise DataError(f"column names must be unique, got {twice[0]!r} twice: rename one")
    if all(isinstance(name, str) for name in names):
        return X
    return X.rename(columns={name: str(name) for name in names})


def has_objects(X: Any) -> bool:
    """Return whether a two-dimensional array contains values that are not numbers."""
    array = X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object) if isinstance(X, list | tuple) else X
    kind = getattr(getattr(array, "dtype", None), "kind", None)
    return kind == "O" and array.ndim == 2 and not _all_numbers(cast("NDArray[Any]", array))


def _all_numbers(array: NDArray[Any]) -> bool:
    try:
        array.astype(np.float64)
    except (TypeError, ValueError):
        return False
    return True


def check_finite(X: Any) -> None:
    """Raise an error that names the first infinite number of an array or a sparse matrix."""
    values = X.data if hasattr(X, "tocsr") else X
    if values.dtype.kind != "f" or not np.isinf(values).any():
        return
    if values is X:
        row, column = (int(i) for i in np.argwhere(np.isinf(X))[0])
        value = X[row, column]
    else:
        place = int(np.flatnonzero(np.isinf(values))[0])
        row, column, value = int(np.searchsorted(X.indptr, place, "right")) - 1, int(X.indices[place]), values[place]
    what = "the array" if values is X else "the sparse matrix"
    raise DataError(
        f"{what}: row {row + 1:,}, column 'x{column}': numbers must be finite, got infinity, {value:g}: "
        "remove the row or leave the value empty"
    )


def check_dropped_columns_finite(table: Any, model: TrainedModel) -> None:
    """Raise the same error for numeric columns of a frame that training dropped."""
    dropped = {c.name for e in model.encodings for c in e.columns if c.kind == "drop" and c.family == "number"}
    if not dropped:
        return
    import narwhals as nw

    frame = table if isinstance(table, Table) else nw.from_native(table)
    given = frame.names if isinstance(frame, Table) else frame.columns
    chosen = [name for name in given if name in dropped]
    if not chosen:
        return
    found = frame if isinstance(frame, Table) else read(frame.select(chosen).to_native())
    for name in chosen:
        column = C.plain(found.column(name))
        if pa.types.is_floating(column.type) and np.isinf(to_numpy(column)).any():
            C.numbers(found, name, "numeric")  # its error names the row


def check_numbers(table: Any) -> None:
    """Check the numeric columns of a table if there is no network that would check them."""
    found = read(table)
    for name in found.names:
        if name in found.places or C.family_of(found.column(name), where(found, name)) == "number":
            C.numbers(found, name, "numeric")


def column(values: NDArray[Any], what: str, *, text: bool = False) -> Any:
    """Return one column of an object array: numbers or strings if all values are, else the type that Arrow infers.
    `text` is True if the column was text in training."""
    given: list[Any] = [None if is_missing(value) else _decoded(value, what) for value in values.tolist()]
    kinds = {type(value) for value in given if value is not None}
    if text or reads_as_text(given):
        return arrow_of(texts_of(given), what)
    if kinds != {bool} and all(issubclass(kind, int | float | np.number | np.bool_) for kind in kinds):
        return arrow_of(np.array([np.nan if value is None else float(value) for value in given]), what)
    return arrow_of(given, what)


def length_of(table: Any) -> int:
    """Return the number of rows."""
    return int(table.shape[0]) if hasattr(table, "shape") else len(table)


def target_names(y: Any, *, columns: AbstractSet[str], targets: int) -> tuple[str, ...]:
    """Return the names of y. Return no names if y has none, or if a column has the same name."""
    names: list[Any] = list(getattr(y, "column_names", y.columns)) if is_frame(y) else [getattr(y, "name", None)]
    free = all(isinstance(name, str) and name.strip() and name not in columns for name in names)
    return tuple(names) if free and len(set(names)) == targets else ()


def check_not_names(**arguments: Any) -> None:
    """Check that groups and times are values, not the name of a column."""
    for name, values in arguments.items():
        if isinstance(values, str):
            raise OptionError(f"{name} must have one value per row, got {values!r}: pass the column, X[{values!r}]")


def with_finite_dropped_columns(table: Any, model: TrainedModel | None) -> Any:
    """Check that the dropped columns are also finite, and return the table."""
    if model is not None:
        check_dropped_columns_finite(table, model)
    return table
