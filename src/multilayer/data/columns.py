"""The type of a column: its family (the type of its values) and its kind (the numbers that a network gets from it).

    family     values                                   default kind   numbers
    number     integers, decimals, floats, durations    numeric        one number
    boolean    true, false                              categorical    a code
    text       strings                                  categorical    a code; dropped if there are too many values
    date       dates                                    date           day number; year and week as (sin, cos)
    datetime   timestamps                               datetime       the same, and the day as (sin, cos)
    time       times of day                             time           hours; the day as (sin, cos)
    empty      missing values only                      drop

(sin, cos) are the sine and cosine of 2π times the fraction of the year, week or day that has passed.

Text is categorical if it has at most 20 different values. With n training rows, it is also categorical if it has at
most 10,000 and at most n / 2 different values. If a data frame declares a column as categorical, its 10,000 most
frequent values are used.

At prediction, a column must have its family of training, or one that can be converted exactly: see `check_family`. A
column without values is accepted as any family. Timestamps must have a time zone if they had one in training, and no
time zone otherwise; the zones may differ. `type_inference` finds the types of text columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..core.formatting import short
from ..errors import DataError, unknown_name
from .preprocessing import DateParts
from .table import Table, from_numpy, pc, to_numpy, where
from .type_inference import NUMBER, first_invalid

Floats = NDArray[np.float64]
Family = Literal["number", "boolean", "text", "date", "datetime", "time", "empty"]
Kind = Literal["numeric", "categorical", "date", "datetime", "time", "drop"]

KINDS: tuple[Kind, ...] = ("numeric", "categorical", "date", "datetime", "time", "drop")
DEFAULT_KIND: dict[Family, Kind] = {
    "number": "numeric",
    "boolean": "categorical",
    "text": "categorical",
    "date": "date",
    "datetime": "datetime",
    "time": "time",
    "empty": "drop",
}
FAMILY_NAMES: dict[Family, str] = {
    "number": "numbers",
    "boolean": "true or false",
    "text": "text",
    "date": "dates",
    "datetime": "timestamps",
    "time": "times of day",
    "empty": "missing values only",
}
PARTS: dict[Kind, tuple[str, ...]] = {
    "numeric": ("",),
    "date": (" (days)", " (year, sin)", " (year, cos)", " (week, sin)", " (week, cos)"),
    "datetime": (
        *(" (days)", " (year, sin)", " (year, cos)", " (week, sin)", " (week, cos)"),
        *(" (day, sin)", " (day, cos)"),
    ),
    "time": (" (hours)", " (day, sin)", " (day, cos)"),
}
"""Suffixes of the column name, one for each number that a kind gives."""

FEW_VALUES, MAX_CATEGORIES = 20, 10_000
FREE_TEXT = "text with many different values"
OTHER_DATES = "dates in another format than 2024-12-31"
DATES = r"^\s*(\d{1,4}[./-]\d{1,2}[./-]\d{1,4}|\d{1,2}[ -][A-Za-z]{3,9}\.?[ -]\d{2,4})([ T,]|$)"
MOSTLY_NUMBERS = 0.9
"""If this fraction of the values of a text column are numbers, the other values are considered errors."""
LARGEST = float(np.finfo(np.float32).max)
SCALINGS = ("auto", "standard", "robust", "none")


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of the training table. `parts` lists the numbers of its kind that are used, by position."""

    name: str
    family: Family
    kind: Kind
    parts: tuple[int, ...] = ()
    indicator: bool = False
    zone: bool | None = None
    """Whether timestamps had a time zone. None for other families, and for models saved before it was stored."""
    numbered: bool = field(default=False, compare=False)
    """Whether the column names of the data frame were numbers. They are strings here."""
    why: str = field(default="", compare=False)
    """Why the column was dropped. This is not stored in files."""


def family_of(column: Any, what: str) -> Family:
    """Return the family of an Arrow column. Raise an error if its type has none, such as a list."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    t = pa.types
    if t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind) or t.is_duration(kind):
        return "number"
    if t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind):
        return "text"
    families: list[tuple[Any, Family]] = [
        (t.is_boolean, "boolean"),
        (t.is_date, "date"),
        (t.is_timestamp, "datetime"),
        (t.is_time, "time"),
        (t.is_null, "empty"),
    ]
    for test, family in families:
        if test(kind):
            return family
    raise DataError(
        f"{what}: must contain numbers, text, booleans or dates, got {kind}: split it into several columns or drop it"
    )


def is_category(column: Any) -> bool:
    """Return whether a data frame declares the values of a column as categories."""
    return pa.types.is_dictionary(column.type)


def plain(column: Any) -> Any:
    """Return a column without dictionary encoding, and text as one Arrow type."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string(column.type) or pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    return column


def missing(column: Any) -> NDArray[np.bool_]:
    """Return which values of a column are null or NaN."""
    if pa.types.is_dictionary(column.type):
        column = plain(column)
    return to_numpy(pc.is_null(column, nan_is_null=True))


def _typed(column: Any) -> Any:
    """Return a plain column. If it has no values, its type is null, because readers choose a type arbitrarily."""
    column = plain(column)
    return pa.chunked_array([pa.nulls(len(column))]) if missing(column).all() else column


def numbers(table: Table, name: str, kind: Kind) -> Floats:
    """Return the numbers of a column, NaN where a value is missing.   → (N, parts)."""
    values = read_numbers(table, name, kind)
    return values[:, None] if kind == "numeric" else DateParts(kind=kind).apply(values)


def read_numbers(table: Table, name: str, kind: Kind) -> Floats:
    """Read a column as numbers; dates and times as seconds. NaN where a value is missing.   → (N,)"""
    if kind == "numeric" and name in table.places and table.matrix is not None:
        return check_finite(table.matrix[:, table.places[name]].astype(np.float64), table, name)
    column = table.column(name)
    if kind == "numeric" and (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        return check_finite(floats(column), table, name)
    column = _typed(column)
    family = family_of(column, where(table, name))
    if family == "text":
        column = _parsed(column, kind, table, name)
    if kind == "numeric":
        return check_finite(floats(column), table, name)
    return _seconds(column, kind, table, name)


def floats(column: Any) -> Floats:
    """Return numbers, durations (in seconds) or booleans as float64. Integers above 2^53 are rounded."""
    if pa.types.is_duration(column.type):
        seconds = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[column.type.unit]
        return floats(column.cast(pa.int64())) / seconds
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    return to_numpy(column if column.type == pa.float64() else pc.cast(column, pa.float64(), safe=False))


def check_finite(values: Floats, table: Table, name: str) -> Floats:
    """Raise an error for numbers beyond float32, the type in which networks compute. NaN (missing) is allowed."""
    with np.errstate(invalid="ignore"):
        bad = np.abs(values) > LARGEST
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        value = float(values[row])
        rule = "numbers must be finite" if np.isinf(value) else f"numbers must lie within ±{LARGEST:.2g} (float32)"
        remedy = "remove the row or leave the value empty" if np.isinf(value) else "rescale the column"
        raise DataError(f"{where(table, name, row)}: {rule}, got {value:g}: {remedy}")
    return values


def _parsed(column: Any, kind: Kind, table: Table, name: str) -> Any:
    """Convert text that the user declared as numbers or dates."""
    types: Any = {
        "numeric": pa.float64(),
        "date": pa.date32(),
        "datetime": pa.timestamp("us"),
        "time": pa.time64("us"),
    }
    try:
        return pc.cast(column, types[kind])
    except pa.ArrowInvalid:
        row = first_invalid(column, types[kind]) or 0
        value = short(column[row].as_py())
        remedy = "correct it, or choose another kind for the column in the option columns"
        raise DataError(f"{where(table, name, row)}: must be {_KIND_NAMES[kind]}, got {value}: {remedy}") from None


_KIND_NAMES = {
    "numeric": "a number",
    "date": "a date such as 2024-12-31",
    "datetime": "a timestamp such as 2024-12-31 23:59",
    "time": "a time such as 23:59",
}


def _seconds(column: Any, kind: Kind, table: Table, name: str) -> Floats:
    """Return seconds since midnight, or since 1970-01-01."""
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if pa.types.is_time(column.type) != (kind == "time"):
        raise DataError(
            f"{where(table, name)}: must be {_KIND_NAMES[kind]}, got {column.type}: choose another kind for the "
            "column in the option columns"
        )
    nothing = missing(column)
    if kind == "time":
        column = column.cast(pa.time64("us"), safe=False)
    else:
        if column.type == pa.date64():
            column = column.cast(pa.date32(), safe=False)
        column = column.cast(pa.timestamp("us", tz=getattr(column.type, "tz", None)), safe=False)
    seconds = to_numpy(column.cast(pa.int64())).astype(np.float64) / 1e6
    seconds[nothing] = np.nan
    return seconds


# Categories


def keys_of(column: Any, table: Table, name: str) -> Any:
    """Return the values of a categorical column: large_string, bool, int64 or float64. Dates and times become text."""
    column = _typed(column)
    family = family_of(column, where(table, name))
    if family in ("text", "boolean", "empty"):
        return column
    if family != "number":
        return column.cast(pa.large_string())
    if pa.types.is_integer(column.type):
        try:
            return column.cast(pa.int64())
        except pa.ArrowInvalid:
            raise DataError(f"{where(table, name)}: integers as categories must be below 2^63: use strings") from None
    return _nan_to_null(check_finite(floats(column), table, name))


def _nan_to_null(values: Floats) -> Any:
    made = from_numpy(values)
    return pa.chunked_array([pc.if_else(pc.is_nan(made), pa.nulls(len(values), pa.float64()), made)])


def vocabulary(keys: Any) -> Any:
    """Return the different values, sorted, as one Arrow array."""
    found = pc.drop_null(pc.unique(keys))
    found = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    return found.take(pc.array_sort_indices(found)) if len(found) else found


def most_frequent(keys: Any, n: int) -> Any:
    """Return the n most frequent values, sorted. Among equally frequent values, the first in order are chosen."""
    counted = pc.value_counts(pc.drop_null(keys))
    values, counts = counted.field("values"), to_numpy(counted.field("counts"))
    rank = np.empty(len(values), dtype=np.int64)
    rank[to_numpy(pc.array_sort_indices(values)).astype(np.int64)] = np.arange(len(values))
    chosen = np.lexsort((rank, -counts))[:n]
    return values.take(from_numpy(chosen[np.argsort(rank[chosen])]))


def has_distinct_integers(column: Any) -> bool:
    """Return whether a column of integers has different values, even if these are equal as floats."""
    column = plain(column)
    if not pa.types.is_integer(column.type):
        return False
    ends = pc.min_max(column)
    return ends["min"].as_py() != ends["max"].as_py()


def reads_as_categories(n_values: int, n_rows: int) -> bool:
    """Return whether text with `n_values` different values in `n_rows` rows is categorical."""
    return n_values <= FEW_VALUES or (n_values <= MAX_CATEGORIES and 2 * n_values <= n_rows)


def check_not_numbers(table: Table, name: str, values: Any, keys: Any, *, otherwise: str = "") -> None:
    """Raise an error for text that is nearly all numbers: a single word must not turn them into categories.

    `otherwise` is the remedy if the words are intended.
    """
    if name in table.targets or is_category(table.column(name)) or not len(values):
        return
    number = to_numpy(pc.match_substring_regex(values, NUMBER))
    if MOSTLY_NUMBERS <= number.mean() < 1 and len(values) >= 5:
        odd = values[int(np.flatnonzero(~number)[0])].as_py()
        row = cast(int, pc.index(keys, odd).as_py())
        raise DataError(
            f"{where(table, name, row)}: {number.sum():,} of {len(values):,} different values are numbers, "
            f"got {odd!r}: correct it{f', leave it empty, or {otherwise}' if otherwise else ' or leave it empty'}"
        )


# Drift


def has_zone(column: Any) -> bool | None:
    """Return whether the timestamps of a column have a time zone. None for other types."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return kind.tz is not None if pa.types.is_timestamp(kind) else None


def check_family(table: Table, name: str, trained: Family, *, zone: bool | None = None) -> str | None:
    """Check that a column has the family of training. Return a note if it differs but can be converted exactly.

    `zone` is the result of `has_zone` in training.
    """
    column = table.column(name)
    given = family_of(column, where(table, name))
    zoned = has_zone(column)
    if (given == trained and zone in (None, zoned)) or missing(column).all():
        return None
    if zone is not None and zoned is not None and zone != zoned:
        names = {True: "timestamps with a time zone", False: "timestamps without a time zone"}
        raise DataError(
            f"{where(table, name)}: was {names[zone]} in training, got {names[zoned]}, {column.type}: "
            "convert the column"
        )
    if given == trained or trained == "empty":
        return None
    if trained == "boolean" and given == "number":
        values = floats(plain(column))
        odd = ~np.isin(values, (0.0, 1.0)) & ~np.isnan(values)
        if not odd.any():
            return f"{name!r} was true or false in training: 1 and 0 are read as true and false"
        row = int(np.flatnonzero(odd)[0])
        raise DataError(f"{where(table, name, row)}: was true or false in training, got {values[row]:g}: use 1 or 0")
    if {trained, given} == {"date", "datetime"}:
        return f"{name!r} was {FAMILY_NAMES[trained]} in training, now it is {FAMILY_NAMES[given]}"
    values = plain(column)
    if given == "text" and trained == "number":
        row = first_invalid(values, pa.float64()) or int(np.flatnonzero(~missing(values))[0])
    else:
        row = int(np.flatnonzero(~missing(values))[0])
    value = short(values[row].as_py())
    raise DataError(
        f"{where(table, name, row)}: was {FAMILY_NAMES[trained]} in training, got {FAMILY_NAMES[given]}, {value}: "
        "convert the column"
    )


def check_kind(kind: str, name: str) -> Kind:
    for known in KINDS:
        if kind == known:
            return known
    raise DataError(f"column {name!r}: {unknown_name('kind', kind, KINDS)}")
