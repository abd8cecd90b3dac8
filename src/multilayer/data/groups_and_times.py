"""What stands beside the rows of a table to split them by: groups and times that came as a value for each row.

Both become numbers that keep their order alone. Groups are any values of one type; times are numbers, dates, moments or
texts of them. A row without either is refused, since it could stand on any side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..core.formatting import short
from ..errors import DataError
from . import columns as C
from .arrays import arrow_of, is_missing
from .arrow import pc, to_numpy
from .table import Table
from .text_values import first_not


def group_numbers(groups: Any, table: Table) -> NDArray[np.int64]:
    """Groups that came as a value for each row, by their numbers in rising order."""
    values = _one_each(groups, table, "group")
    _refuse_none(np.array([is_missing(value) for value in values.tolist()]), table, "group")
    try:
        return np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)
    except TypeError:
        kinds = sorted({type(value).__name__ for value in values.tolist()})
        remedy = "give texts or whole numbers alone"
        raise DataError(f"{table.name}: groups must be of one type, got {' and '.join(kinds)}: {remedy}") from None


def moments(times: Any, table: Table) -> NDArray[np.float64]:
    """Times that came as a value for each row, by their places in time: moments of every unit stay apart."""
    _one_each(times, table, "time")
    column = C.plain(times.to_arrow() if hasattr(times, "to_arrow") else arrow_of(times, f"{table.name}: the times"))
    _refuse_none(C.missing(column), table, "time")
    family = C.family_of(column, f"{table.name}: the times")
    if family == "text":
        column, family = _read_moments(column, table), "datetime"
    if family == "number":
        values = to_numpy(column) if pa.types.is_integer(column.type) else C.floats(column)
    elif family in ("date", "datetime"):
        unit = "ns" if pa.types.is_timestamp(column.type) and column.type.unit == "ns" else "us"
        values = to_numpy(column.cast(pa.timestamp(unit, tz=getattr(column.type, "tz", None))).cast(pa.int64()))
    else:
        raise DataError(f"{table.name}: times must be numbers, dates or moments, got {C.SAID[family]}: convert them")
    return np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.float64)


def _read_moments(texts: Any, table: Table) -> Any:
    for kind in (pa.timestamp("us"), pa.timestamp("us", tz="UTC")):
        try:
            return pc.cast(texts, kind)
        except pa.ArrowInvalid:
            continue
    row = first_not(texts, pa.timestamp("us")) or 0
    raise DataError(
        f"{table.name}: times must be numbers, dates or texts such as 2024-12-31 23:59, got "
        f"{short(texts[row].as_py())} in row {row + 1:,}"
    )


def _one_each(values: Any, table: Table, what: str) -> NDArray[Any]:
    found = np.asarray(values)
    if found.shape != (len(table),):
        got = f"got {found.item()!r}" if found.ndim == 0 else f"got {'×'.join(f'{n:,}' for n in found.shape)} values"
        raise DataError(f"{table.name}: a {what} for each of {len(table):,} rows is needed, {got}")
    return found


def _refuse_none(nothing: NDArray[np.bool_], table: Table, what: str) -> None:
    if nothing.any():
        row = int(np.flatnonzero(nothing)[0])
        raise DataError(f"{table.name}: every row needs a {what}, got none in row {row + 1:,}: leave the row out")
