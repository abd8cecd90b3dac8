"""What a column is: its family (what its values are) and its kind (how a network reads them).

    family     values                               kind unless told
    number     whole, decimal, floating; durations  numeric       one number
    boolean    true, false                          categorical   of two values
    text       words                                categorical   where few differ; otherwise dropped, and said
    date       days                                 date          day number, year and week on a circle
    datetime   moments                              datetime      the same, and the day on a circle
    time       times of day                         time          hours, and the day on a circle
    empty      nothing at all                       dropped

Circles: (sin, cos) of 2π times the part of the year, week or day that has passed. Text has few values where at most 20
differ, or at most half as many as there are training rows and at most 10,000; of what a frame says is a category the
10,000 most frequent are learned. At prediction a column must be of the family it had in training, or of one that loses
nothing: `check_family` is the list. One without a single value is of every family, whatever type its reader gave it.
`type_inference` finds the type of text columns.
Moments with a time zone and those without are never read as each other; those with one may come in any zone.
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
    "datetime": "moments",
    "time": "times of day",
    "empty": "nothing",
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
"""What each kind adds to its column's name, one for each number it gives."""

FEW_VALUES, MAX_CATEGORIES = 20, 10_000
FREE_TEXT = "text with many different values"
OTHER_DATES = "dates in another format than 2024-12-31"
DATES = r"^\s*(\d{1,4}[./-]\d{1,2}[./-]\d{1,4}|\d{1,2}[ -][A-Za-z]{3,9}\.?[ -]\d{2,4})([ T,]|$)"
MOSTLY_NUMBERS = 0.9
"""Text of which so many values are numbers was meant to be numbers."""
LARGEST = float(np.finfo(np.float32).max)
SCALINGS = ("auto", "standard", "robust", "none")


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of the training table. `parts` are the numbers of its kind that are used, by place."""

    name: str
    family: Family
    kind: Kind
    parts: tuple[int, ...] = ()
    indicator: bool = False
    zone: bool | None = None
    """Whether moments had a time zone; None for other families, and for models saved before it was kept."""
    numbered: bool = field(default=False, compare=False)
    """Whether the column names of the data frame were numbers. They are strings here."""
    why: str = field(default="", compare=False)
    """Why a column was dropped, for those who fit; files do not tell."""


def family_of(column: Any, what: str) -> Family:
    """The family of an Arrow column; one that is none is refused by name."""
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
        f"{what}: must hold numbers, text, true and false, or dates, got {kind}: spread it over columns or drop it"
    )


def is_category(column: Any) -> bool:
    """Whether a data frame says that its values are categories."""
    return pa.types.is_dictionary(column.type)


def plain(column: Any) -> Any:
    """Without a dictionary, and text as one Arrow type."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string(column.type) or pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    return column


def missing(column: Any) -> NDArray[np.bool_]:
    """Where a column holds nothing, or not a number."""
    if pa.types.is_dictionary(column.type):
        column = plain(column)
    return to_numpy(pc.is_null(column, nan_is_null=True))


def _typed(column: Any) -> Any:
    """A plain column, of no type where it holds no value: what came as one is what a reader made of nothing."""
    column = plain(column)
    return pa.chunked_array([pa.nulls(len(column))]) if missing(column).all() else column


def numbers(table: Table, name: str, kind: Kind) -> Floats:
    """The numbers that a column gives, NaN where a value is missing.   → (N, parts)."""
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
    """Numbers, durations (in seconds) or booleans as float64; whole numbers past 2^53 are rounded."""
    if pa.types.is_duration(column.type):
        seconds = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[column.type.unit]
        return floats(column.cast(pa.int64())) / seconds
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    return to_numpy(column if column.type == pa.float64() else pc.cast(column, pa.float64(), safe=False))


def check_finite(values: Floats, table: Table, name: str) -> Floats:
    """Refuses numbers beyond float32, in which networks compute; NaN means missing and is allowed."""
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
    """Text that the user declared to be numbers or dates."""
    wanted: Any = {
        "numeric": pa.float64(),
        "date": pa.date32(),
        "datetime": pa.timestamp("us"),
        "time": pa.time64("us"),
    }
    try:
        return pc.cast(column, wanted[kind])
    except pa.ArrowInvalid:
        row = first_invalid(column, wanted[kind]) or 0
        value = short(column[row].as_py())
        remedy = "correct it, or give the column another kind in columns"
        raise DataError(f"{where(table, name, row)}: must be {_KIND_NAMES[kind]}, got {value}: {remedy}") from None


_KIND_NAMES = {
    "numeric": "a number",
    "date": "a date such as 2024-12-31",
    "datetime": "a moment such as 2024-12-31 23:59",
}
_KIND_NAMES["time"] = "a time such as 23:59"


def _seconds(column: Any, kind: Kind, table: Table, name: str) -> Floats:
    """Seconds since midnight, or since 1970-01-01."""
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if pa.types.is_time(column.type) != (kind == "time"):
        raise DataError(
            f"{where(table, name)}: must be {_KIND_NAMES[kind]}, got {column.type}: give it another kind in columns"
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
            raise DataError(f"{where(table, name)}: whole numbers as categories must be below 2^63") from None
    return _nan_to_null(check_finite(floats(column), table, name))


def _nan_to_null(values: Floats) -> Any:
    made = from_numpy(values)
    return pa.chunked_array([pc.if_else(pc.is_nan(made), pa.nulls(len(values), pa.float64()), made)])


def vocabulary(keys: Any) -> Any:
    """The values that occur, in order, as one Arrow array."""
    found = pc.drop_null(pc.unique(keys))
    found = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    return found.take(pc.array_sort_indices(found)) if len(found) else found


def most_frequent(keys: Any, n: int) -> Any:
    """The n values that occur most often, the first in order of those that occur as often, in order."""
    counted = pc.value_counts(pc.drop_null(keys))
    values, counts = counted.field("values"), to_numpy(counted.field("counts"))
    rank = np.empty(len(values), dtype=np.int64)
    rank[to_numpy(pc.array_sort_indices(values)).astype(np.int64)] = np.arange(len(values))
    chosen = np.lexsort((rank, -counts))[:n]
    return values.take(from_numpy(chosen[np.argsort(rank[chosen])]))


def has_distinct_integers(column: Any) -> bool:
    """Whether a column of whole numbers has several, of any size."""
    column = plain(column)
    if not pa.types.is_integer(column.type):
        return False
    ends = pc.min_max(column)
    return ends["min"].as_py() != ends["max"].as_py()


def reads_as_categories(n_values: int, n_rows: int) -> bool:
    """Whether text with so many different values over so many rows reads as categories."""
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
    """Whether the moments of a column have a time zone; None where it holds no moments."""
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
        said = {True: "with a time zone", False: "without a time zone"}
        raise DataError(
            f"{where(table, name)}: was moments {said[zone]} in training, got moments {said[zoned]}, {column.type}: "
            "convert the column (nothing is converted silently)"
        )
    if given == trained or trained == "empty":
        return None
    if trained == "boolean" and given == "number":
        values = floats(plain(column))
        odd = ~np.isin(values, (0.0, 1.0)) & ~np.isnan(values)
        if not odd.any():
            return f"{name!r} was true or false in training: 1 and 0 are read as true and false"
        row = int(np.flatnonzero(odd)[0])
        raise DataError(f"{where(table, name, row)}: was true or false in training, got {values[row]:g}: convert it")
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
        "convert the column (nothing is converted silently)"
    )


def check_kind(kind: str, name: str) -> Kind:
    for known in KINDS:
        if kind == known:
            return known
    raise DataError(f"column {name!r}: {unknown_name('kind', kind, KINDS)}")
