"""Infer the types of text columns: missing values, numbers, booleans, dates and times. All sources have the same rules.

A text column of a data frame, a Parquet or Arrow file, JSON lines, a dictionary, a list of rows or an array is
converted as in a CSV file: Arrow's CSV parser reads all of its values.

    missing      an empty string, a blank, NA, N/A, NaN, null in their usual spellings, and ?
    types        the first type that fits every value: whole number, true or false, date, time, date and time, number,
                 text
    codes        a column stays text if any of its whole numbers has leading zeros, such as 00123

Categorical columns of a data frame are not text: they are not converted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from ..core.formatting import short
from ..errors import DataError
from .table import Table, from_texts, pc, where

MISSING = [*pa_csv.ConvertOptions().null_values, "?", " ", "<NA>"]
NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
PADDED = r"^\s*0\d+\s*$"
LONGEST = 1000
"""Largest length of a string that can be a number or a date."""
SAMPLE = 1000
"""Number of values that are parsed first. Parsing stops there for free text."""

Hints = Mapping[str, Any]
_MISSING = from_texts(MISSING)


def convert_options(*, point: str = ".", types: Hints | None = None) -> Any:
    """Return the options with which Arrow's CSV parser converts text to values."""
    return pa_csv.ConvertOptions(
        null_values=MISSING, strings_can_be_null=True, decimal_point=point, column_types=dict(types or {})
    )


def is_text(column: Any) -> bool:
    kind = column.type
    return pa.types.is_large_string(kind) or pa.types.is_string(kind) or pa.types.is_string_view(kind)


def infer_type(column: Any) -> Any:
    """Convert a text column to the type of its values. Otherwise, return text with nulls for missing values.

    >>> infer_type(pa.chunked_array([["2024-12-31", "NA", "2025-01-01"]])).type
    DataType(date32[day])
    """
    text = column.cast(pa.large_string())
    values = pc.drop_null(pc.unique(text))
    longest = pc.max(pc.utf8_length(values)).as_py()
    if longest is None or longest > LONGEST or is_text(_parsed(values[:SAMPLE])):
        return without_missing(text)
    found = _parsed(values)
    padded = pa.types.is_integer(found.type) and pc.any(pc.match_substring_regex(values, PADDED)).as_py()
    return without_missing(text) if is_text(found) or padded else found.take(pc.index_in(text, value_set=values))


def without_missing(text: Any, known: Any = None) -> Any:
    """Replace words for missing values by nulls in a text column, except words that are a `known` category."""
    text = text.cast(pa.large_string())
    missing = pc.is_in(text, value_set=_MISSING)
    if known is not None and pa.types.is_large_string(known.type):
        missing = pc.and_not(missing, pc.is_in(text, value_set=known))
    return pc.if_else(missing, pa.scalar(None, pa.large_string()), text) if pc.any(missing).as_py() else text


def _parsed(values: Any, kind: Any = None) -> Any:
    """Parse distinct strings with Arrow's CSV parser, as `kind` or as the type that it infers."""
    written = pa.BufferOutputStream()
    pa_csv.write_csv(
        pa.Table.from_arrays([values], [""]),
        written,
        pa_csv.WriteOptions(include_header=False, quoting_style="all_valid"),
    )
    data = written.getvalue()
    options = pa_csv.ReadOptions(column_names=["x"], use_threads=False, block_size=min(data.size + 1, (1 << 31) - 1))
    quotes = pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
    types = None if kind is None else {"x": kind}
    found = pa_csv.read_csv(
        pa.BufferReader(data), read_options=options, parse_options=quotes, convert_options=convert_options(types=types)
    )
    return found.column(0)


def convert_text(table: Table) -> tuple[Table, dict[str, Any]]:
    """Convert the text columns of a training table. Return the table, and the columns that are no longer text.

    Labels of `(X, y)` are not converted, so that predictions can be compared with them.
    """
    texts = {name: column for name, column in table.columns.items() if is_text(column) and name not in table.targets}
    columns = {name: infer_type(column) for name, column in texts.items()}
    found = {name: column for name, column in columns.items() if not is_text(column)}
    return (replace(table, columns={**table.columns, **columns}) if columns else table), found


def convert_text_as_trained(table: Table, names: Iterable[str], hints: Hints, known: Mapping[str, Any]) -> Table:
    """Convert the text columns `names` of new rows to their types in training, which are in `hints`. Infer the type of
    a column without a hint from its values. `known` has the categories in training."""
    columns: dict[str, Any] = {}
    for name in names:
        column = table.columns.get(name)
        if column is None or not is_text(column):
            continue
        kind = hints.get(name)
        columns[name] = (
            infer_type(column)
            if kind is None
            else without_missing(column, known.get(name))
            if pa.types.is_large_string(kind)
            else _as_type(column, kind, table, name)
        )
    return replace(table, columns={**table.columns, **columns}) if columns else table


def _as_type(column: Any, kind: Any, table: Table, name: str) -> Any:
    text = without_missing(column)
    values = pc.drop_null(pc.unique(text))
    if not len(values):
        return text
    try:
        return _parsed(values, kind).take(pc.index_in(text, value_set=values))
    except pa.ArrowInvalid:
        row = first_invalid(text, kind) or 0
        got = short(text[row].as_py())
        raise DataError(f"{where(table, name, row)}: must be {describe_type(kind)} as in training, got {got}") from None


def first_invalid(column: Any, kind: Any) -> int | None:
    """Return the first row, counted from 0, whose text cannot be cast to a type. None if every row can."""
    low, high = 0, len(column)
    if _casts(column, kind):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if _casts(column.slice(low, middle - low), kind):
            low = middle
        else:
            high = middle
    return low


def _casts(column: Any, kind: Any) -> bool:
    try:
        pc.cast(column, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def describe_type(kind: Any) -> str:
    """Describe an Arrow type for a message."""
    return {"bool": "true or false", "date32[day]": "a date"}.get(str(kind), str(kind))
