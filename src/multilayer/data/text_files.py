"""Read CSV, TSV and JSON lines with Arrow's parsers. This module determines their options and checks the file.

    delimiter       , ; tab or |: the one for which the numbers of values in the first records differ least
    header          the first record; names must not be empty, and must be distinct. A first column without a name that
                    only numbers the rows is ignored, because pandas writes its index in this form
    decimal comma   if the delimiter is ; or tab, and the file contains numbers such as 1,5 but no number such as 1.5
    types           as in `type_inference`, over the whole file; at prediction, columns that were text stay text

A file must be UTF-8 without NUL bytes. A byte order mark is skipped.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from ..core.formatting import short
from ..core.machine import available_memory
from ..errors import DataError
from .table import Table, check_names, check_size, pc, to_numpy
from .type_inference import NUMBER, PADDED, Hints, convert_options, describe_type, first_invalid

DELIMITERS = (",", ";", "\t", "|")
BOM = b"\xef\xbb\xbf"
COMMA_NUMBER = r"^\s*[+-]?\d+,\d+([eE][+-]?\d+)?\s*$"
BLOCK = 8 << 20
SNIFFED = 4 << 20
"""Bytes at the start of a file in which the header must end."""
LONGEST_LINE = 64 << 20
"""Largest number of bytes of a line. This is enough for about a million columns."""
COLUMN, COLUMN_OF_BLOCK = 10 << 10, 2 << 10
"""Bytes that Arrow needs for each column, and for each column of a block. Measured with 20,000 columns."""


def read_csv(data: bytes, *, name: str, delimiter: str | None = None, hints: Hints | None = None) -> Table:
    """Read a CSV file. `hints` are the Arrow types of columns in training."""
    data = check_text(data, name)
    if b"\n" not in data and b"\r" not in data:
        raise DataError(f"{name}: a table needs a header and at least one row, got a single line")
    delimiter, header = sniff(data, name, delimiter)
    blocks = -(-len(data) // BLOCK)
    needed = len(header) * (COLUMN + blocks * COLUMN_OF_BLOCK)
    check_size(name, needed, available_memory(), f"has {len(header):,} columns, which need at least")
    found, notes = _parse(data, name, delimiter, header, dict(hints or {}), "."), []
    if delimiter in ";\t" and _decimal_commas(found):
        found = _parse(data, name, delimiter, header, dict(hints or {}), ",")
        notes.append("numbers are written with a decimal comma")
    if found.num_rows == 0:
        raise DataError(f"{name}: a table needs at least one row after its header, got none")
    if data.count(b'"') % 2:
        _check_quotes(found, name)
    found, codes = _padded_codes(found, data, name, delimiter, header, dict(hints or {}))
    found, names, more = _drop_nameless(found, [cell.strip() for cell in header])
    check_names(names, name)
    _check_not_data(names, name)
    found = found.rename_columns(names)
    for column in names:
        if pa.types.is_binary(found[column].type):
            _raise_not_utf8(found[column], column, name)
    return Table.of_arrow(found, name=name, notes=(*notes, *codes, *more))


def check_text(data: bytes, name: str) -> bytes:
    """Check the bytes of a text file. Return them without the byte order mark."""
    for mark, encoding in ((b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"), (b"\x00\x00\xfe\xff", "UTF-32")):
        if data.startswith(mark):
            raise DataError(f"{name}: a text file must be UTF-8, got {encoding}: save it as UTF-8")
    data = data.removeprefix(BOM)
    if not data[:4096].strip() and not data.strip():
        raise DataError(f"{name}: the file is empty: a table needs a header and rows")
    _check_lines(data, name)
    nul = data.find(b"\x00")
    if nul >= 0:
        line = data.count(b"\n", 0, nul) + 1
        raise DataError(
            f"{name}: line {line:,}: a text file must not contain NUL bytes: check that it is not binary or UTF-16"
        )
    return data


def _check_lines(data: bytes, name: str) -> None:
    """Raise an error for a very long line before parsing. Arrow would need minutes for it, and copies of the file."""
    start = 0
    while len(data) - start > LONGEST_LINE:
        stop = start + LONGEST_LINE + 1
        end = max(data.rfind(b"\n", start, stop), data.rfind(b"\r", start, stop))
        if end < 0:
            line = data.count(b"\n", 0, start) + 1
            raise DataError(
                f"{name}: line {line:,}: a line must have at most {LONGEST_LINE:,} bytes, got more: check its line "
                "breaks and quotes"
            )
        start = end + 1


def sniff(data: bytes, name: str, delimiter: str | None = None) -> tuple[str, list[str]]:
    """Return the delimiter of a CSV file and its header."""
    start = data[:SNIFFED]
    try:
        text = start.decode()
    except UnicodeDecodeError as error:
        if error.start < len(start) - 4:
            line = data.count(b"\n", 0, error.start) + 1
            raise DataError(
                f"{name}: line {line:,}: a text file must be UTF-8, got the byte 0x{start[error.start]:02x}: "
                "save it as UTF-8"
            ) from None
        text = start[: error.start].decode()
    best: tuple[float, int, str, list[str]] | None = None
    for mark in DELIMITERS if delimiter is None else (delimiter,):
        records: list[list[str]] = []
        try:
            for record in csv.reader(io.StringIO(text, newline=""), delimiter=mark):
                if record:
                    records.append(record)
                if len(records) == 50:
                    break
        except csv.Error:
            pass  # a field of more than 131,072 characters; the records before it are enough
        if not records or (len(records[0]) < 2 and best is not None):
            continue
        widths = Counter(map(len, records))
        even = widths[len(records[0])] / len(records) if len(records[0]) > 1 else 0.0
        candidate = (even, len(records[0]), mark, records[0])
        if best is None or candidate[:2] > best[:2]:
            best = candidate
    if best is None:
        raise DataError(f"{name}: no header could be read: the first record must contain the column names")
    return best[2], best[3]


def _parse(data: bytes, name: str, delimiter: str, header: list[str], hints: dict[str, Any], point: str) -> Any:
    raw = {cell.strip(): cell for cell in header}
    options: dict[str, Any] = {
        "parse_options": pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=b'"' in data),
        "convert_options": convert_options(
            point=point, types={raw[column]: kind for column, kind in hints.items() if column in raw}
        ),
    }
    try:
        try:
            found = pa_csv.read_csv(_stream(data), read_options=pa_csv.ReadOptions(block_size=BLOCK), **options)
        except pa.ArrowInvalid as error:
            if "straddl" not in str(error):
                raise
            whole = pa_csv.ReadOptions(block_size=min(len(data) + 1, (1 << 31) - 1))
            found = pa_csv.read_csv(_stream(data), read_options=whole, **options)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise _explain(data, name, delimiter, header, hints, error) from None
    if found.num_columns != len(header):
        raise DataError(f"{name}: the header must be a single line: check its quotes")
    return found


def _stream(data: bytes) -> Any:
    """Copy bytes to memory of Arrow.

    Arrow's threads may release the bytes while Python exits. If Python owned their memory, the process would abort.
    """
    held = pa.allocate_buffer(len(data))
    np.frombuffer(held, dtype=np.uint8)[:] = np.frombuffer(data, dtype=np.uint8)
    return pa.BufferReader(held)


def _explain(
    data: bytes, name: str, delimiter: str, header: list[str], hints: dict[str, Any], error: Exception
) -> DataError:
    """Return an error with row and column for a file that Arrow cannot parse."""
    try:
        data.decode()
    except UnicodeDecodeError as bad:
        line = data.count(b"\n", 0, bad.start) + 1
        return DataError(
            f"{name}: line {line:,}: a text file must be UTF-8, got the byte 0x{data[bad.start]:02x}: save it as UTF-8"
        )
    ragged: list[Any] = []

    def note(row: Any) -> str:
        ragged.append(row)
        return "skip"

    one_by_one = pa_csv.ReadOptions(use_threads=False, block_size=min(max(BLOCK, len(data) + 1), (1 << 31) - 1))
    quotes = pa_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=note)
    texts = convert_options(types={cell: pa.large_string() for cell in header})
    try:
        found = pa_csv.read_csv(_stream(data), read_options=one_by_one, parse_options=quotes, convert_options=texts)
    except (pa.ArrowInvalid, UnicodeDecodeError) as again:
        return DataError(f"{name}: cannot be read as CSV: {first_line(again)}")
    if ragged:
        row = ragged[0]
        place = f"row {row.number - 1:,}" if row.number else "a row"
        return DataError(
            f"{name}: {place} has {row.actual_columns:,} values, but the header has {row.expected_columns:,} names: "
            f"{short(row.text)}: check its quotes and delimiters"
        )
    for cell, column in zip(header, found.columns, strict=False):
        kind = hints.get(cell.strip())
        bad = None if kind is None else first_invalid(column, kind)
        if bad is not None:
            return DataError(
                f"{name}: row {bad + 1:,}, column {cell.strip()!r}: must be {describe_type(kind)} as in training, "
                f"got {short(column[bad].as_py())}"
            )
    return DataError(f"{name}: cannot be read as CSV: {first_line(error)}")


def _decimal_commas(found: Any) -> bool:
    commas = False
    for column in found.columns:
        if pa.types.is_floating(column.type):
            return False
        if pa.types.is_string(column.type):
            unique = pc.drop_null(pc.unique(column))
            both = pc.or_(pc.match_substring_regex(unique, COMMA_NUMBER), pc.match_substring_regex(unique, NUMBER))
            commas |= bool(len(unique) and pc.all(both).as_py())
    return commas


def _padded_codes(
    found: Any, data: bytes, name: str, delimiter: str, header: list[str], hints: dict[str, Any]
) -> tuple[Any, list[str]]:
    """Return the table with columns of numbers with leading zeros as text, such as 00123, and notes that name them."""
    whole = [i for i, column in enumerate(found.columns) if pa.types.is_integer(column.type) and header[i].strip()]
    if not whole or re.search(rb'(?:^|[,;|"\s])0\d', data) is None:
        return found, []
    texts = _parse(data, name, delimiter, header, hints | {header[i].strip(): pa.large_string() for i in whole}, ".")
    notes: list[str] = []
    for i in whole:
        column = texts.column(i)
        padded = pc.index(pc.match_substring_regex(column, PADDED), pa.scalar(value=True)).as_py()
        if padded >= 0:
            found = found.set_column(i, found.column_names[i], column)
            example = short(column[padded].as_py().strip())
            notes.append(f"{header[i].strip()!r} has leading zeros, such as {example}: read as text, not as numbers")
    return found, notes


def _drop_nameless(found: Any, names: list[str]) -> tuple[Any, list[str], list[str]]:
    """Drop a first column without a name that numbers the rows, and empty columns without a name. Add notes."""
    notes: list[str] = []
    left_out: set[int] = set()
    for place in reversed([i for i, name in enumerate(names) if not name]):
        column = found.column(place)
        if counts_rows(column) and place == 0:
            notes.append("the first column has no name and only numbers the rows: ignored")
        elif column.null_count == len(column):
            notes.append(f"column {place + 1} has no name and no values: ignored")
        else:
            continue
        left_out.add(place)
    kept = [i for i in range(len(names)) if i not in left_out]
    return found.select(kept), [names[i] for i in kept], notes


def counts_rows(column: Any) -> bool:
    """Return whether a column contains consecutive whole numbers."""
    if not pa.types.is_integer(column.type) or column.null_count or len(column) < 2:
        return False
    values = to_numpy(column)
    return bool((np.diff(values.astype(np.float64)) == 1).all())


def _check_not_data(names: list[str], source: str) -> None:
    """Raise an error if the first record is a row, not a header: 5.1,3.5,1.4,0.2,setosa."""
    numbers = [name for name in names if re.match(NUMBER, name)]
    if len(names) > 1 and len(numbers) >= len(names) - 1 and any("." in name for name in numbers):
        raise DataError(f"{source}: the first record must contain the column names, got {short(', '.join(names))}")


def _check_quotes(found: Any, source: str) -> None:
    """Raise an error for a quote that is never closed: the last value would contain the rest of the file."""
    last = found.num_rows - 1
    for place, column in enumerate(found.columns, 1):
        value = column[last].as_py()
        if isinstance(value, str) and "\n" in value:
            raise DataError(f"{source}: row {last + 1:,}, column {place}: a quote must be closed, got {short(value)}")


def _raise_not_utf8(column: Any, name: str, source: str) -> None:
    row = first_invalid(column, pa.large_string()) or 0
    raise DataError(
        f"{source}: row {row + 1:,}, column {name!r}: a text file must be UTF-8, got {short(column[row].as_py())}: "
        "save it as UTF-8"
    )


def read_json_lines(data: bytes, *, name: str) -> Table:
    data = check_text(data, name)
    if data.lstrip().startswith(b"["):
        raise DataError(f"{name}: JSON lines must have one object per line, got a list: write one row per line")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(f"{name}: line {line:,}: a text file must be UTF-8, got 0x{data[error.start]:02x}") from None
    options = pa_json.ReadOptions(block_size=min(max(BLOCK, len(data) + 1), (1 << 31) - 1), use_threads=False)
    try:
        found = pa_json.read_json(_stream(data), read_options=options)
        times = [pa.field(one.name, pa.large_string()) for one in found.schema if pa.types.is_timestamp(one.type)]
        if times:  # Arrow reads dates as timestamps too; the text distinguishes them
            as_text = pa_json.ParseOptions(explicit_schema=pa.schema(times), unexpected_field_behavior="infer")
            read = pa_json.read_json(_stream(data), read_options=options, parse_options=as_text)
            found = read.select(found.column_names)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError) as error:
        words = re.sub(r"in row (\d+)", lambda m: f"in row {int(m[1]) + 1:,}", first_line(error))
        words = re.sub(r"Column\(/?([^)]*)\)", lambda m: f"column {m[1]!r}" if m[1] else "the row", words)
        raise DataError(f"{name}: cannot be read as JSON lines: {words}: write one object per line") from None
    if not found.num_rows or not found.num_columns:
        raise DataError(f"{name}: a table needs at least one row and one column, got none")
    return Table.of_arrow(found, name=name)


def first_line(error: BaseException) -> str:
    """Return the first line of the message of a library."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
