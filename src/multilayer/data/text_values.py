"""What text means: missing values, numbers, true and false, dates and times. One rule for every source of a table.

A column of text from a data frame, Parquet, Arrow, JSON lines, a dictionary, a list of rows or an array is read as the
same column of a CSV file would be: by Arrow's CSV parser, over all of its values.

    missing      nothing, a blank, NA, N/A, NaN, null and their spellings, and ?
    types        the first that every value has: whole number, true or false, date, time, date and time, number, text
    codes        whole numbers of which any has leading zeros, such as 00123, stay text

Columns that a data frame declares as categories are not text: they stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from ..errors import DataError
from .arrow import from_texts, pc
from .tables import Table, short, where

MISSING = [*pa_csv.ConvertOptions().null_values, "?", " ", "<NA>"]
NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
PADDED = r"^\s*0\d+\s*$"
LONGEST = 1000
"""Characters of the longest text that can be a number or a date."""
SAMPLE = 1000
"""Values that are parsed first: free text ends there."""

Hints = Mapping[str, Any]
_WORDS = from_texts(MISSING)


def convert_options(*, point: str = ".", types: Hints | None = None) -> Any:
    """How Arrow's CSV parser converts text to values."""
    return pa_csv.ConvertOptions(
        null_values=MISSING, strings_can_be_null=True, decimal_point=point, column_types=dict(types or {})
    )


def is_text(column: Any) -> bool:
    kind = column.type
    return pa.types.is_large_string(kind) or pa.types.is_string(kind) or pa.types.is_string_view(kind)


def inferred(column: Any) -> Any:
    """A column of text with the type that its values have in common; text with nulls for missing values otherwise.

    >>> inferred(pa.chunked_array([["2024-12-31", "NA", "2025-01-01"]])).type
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
    """A column of text with nulls where it holds a word for a missing value that is not a `known` category."""
    text = text.cast(pa.large_string())
    words = pc.is_in(text, value_set=_WORDS)
    if known is not None and pa.types.is_large_string(known.type):
        words = pc.and_not(words, pc.is_in(text, value_set=known))
    return pc.if_else(words, pa.scalar(None, pa.large_string()), text) if pc.any(words).as_py() else text


def _parsed(values: Any, kind: Any = None) -> Any:
    """Distinct strings as Arrow's CSV parser reads them: as `kind`, or as the type that it infers."""
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


def interpreted(table: Table) -> tuple[Table, dict[str, Any]]:
    """A table to train on with each text column as what it means, and the columns that turned out not to be text.
    Labels of `(X, y)` stay as they are: predictions are to be compared with them."""
    texts = {name: column for name, column in table.columns.items() if is_text(column) and name not in table.targets}
    columns = {name: inferred(column) for name, column in texts.items()}
    found = {name: column for name, column in columns.items() if not is_text(column)}
    return (replace(table, columns={**table.columns, **columns}) if columns else table), found


def interpreted_as(table: Table, names: Iterable[str], hints: Hints, known: Mapping[str, Any]) -> Table:
    """A table to predict for, with the text columns `names` as what they were in training: of the types in `hints`, of
    the type that their values have in common otherwise. `known` are the categories of training."""
    columns: dict[str, Any] = {}
    for name in names:
        column = table.columns.get(name)
        if column is None or not is_text(column):
            continue
        kind = hints.get(name)
        columns[name] = (
            inferred(column)
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
        row = first_not(text, kind) or 0
        got = short(text[row].as_py())
        raise DataError(f"{where(table, name, row)}: must be {said(kind)} as in training, got {got}") from None


def first_not(column: Any, kind: Any) -> int | None:
    """The first row, from 0, whose text cannot be cast to a type; None where all can."""
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


def said(kind: Any) -> str:
    """An Arrow type in the words of a message."""
    return {"bool": "true or false", "date32[day]": "a date"}.get(str(kind), str(kind))
