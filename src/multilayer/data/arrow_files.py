"""Read Parquet and Arrow files. Their data is compressed, and is decoded only if it fits in the available memory.

    Parquet   numbers: the decoded size follows from the number of rows in the metadata
              text: read as a dictionary, so that each value is in memory once, and decoded batch by batch
    Arrow     the decompressed size of each buffer is read from the message headers in the file

Without these checks, a file of a few hundred bytes could use all memory of the machine.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as parquet

from ..core.machine import available_memory
from .table import check_size, pc

ROWS = 1 << 14
"""Rows of a Parquet file that are decoded at a time."""
COPIES = 4
"""Copies of the content of a file in memory during reading: raw bytes, Arrow buffers, columns, encoded numbers."""
_MAGIC = 8
"""Number of bytes before the stream in an Arrow file."""
_DICTIONARY, _BATCH = 2, 3
"""Types of Arrow messages that have buffers."""


def read_parquet(path: Path) -> Any:
    """Return the table of a Parquet file."""
    with parquet.ParquetFile(path) as stored:
        about, schema, limit = stored.metadata, stored.schema_arrow, available_memory() // COPIES
        decoded = about.num_rows * sum(_bits(field.type) for field in schema) // 8
        packed = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
        check_size(path, max(decoded, packed), limit, "decompresses to")
        if decoded + about.num_rows * packed <= limit or all(_fixed(field.type) for field in schema):
            return _checked(stored.read(), path)
    text_columns = [field.name for field in schema if _is_text(field.type)]
    found: list[Any] = []
    total = 0
    with parquet.ParquetFile(path, read_dictionary=text_columns) as stored:
        for batch in stored.iter_batches(batch_size=ROWS):
            total += sum(map(_decoded_size, batch.columns))
            check_size(path, total, limit, "decompresses to at least")
            found.append(pa.Table.from_batches([batch]).cast(schema))
    return _checked(pa.concat_tables([schema.empty_table(), *found]), path)


def read_arrow(path: Path) -> Any:
    """Return the table of an Arrow file."""
    with pa.memory_map(str(path)) as file:
        ipc.open_file(file)  # raises an error if the file is truncated, because the index is at the end
        return _read_stream(file, _MAGIC, path)


def read_arrow_stream(data: bytes, path: Path) -> Any:
    """Return the table of an Arrow stream."""
    return _read_stream(pa.BufferReader(data), 0, path)


def _read_stream(stream: Any, start: int, path: Path) -> Any:
    """Read the messages in file order. The index at the end of the file is not used, because it could list the same
    batch many times."""
    limit, total = available_memory() // COPIES, 0
    stream.seek(start)
    for message in ipc.MessageReader.open_stream(stream):
        total += decompressed_size(message)
        check_size(path, total, limit, "decompresses to")
    stream.seek(start)
    return _checked(ipc.open_stream(stream).read_all(), path)


def _checked(table: Any, path: Path) -> Any:
    """Validate the buffers of a table, because a file may contain any values, and check its decoded size."""
    table.validate(full=True)
    decoded = sum(_decoded_size(chunk) for column in table.columns for chunk in column.chunks)
    check_size(path, decoded, available_memory() // COPIES, "decompresses to")
    return table


def _decoded_size(column: Any) -> int:
    """Return the size in bytes that a column has when each row stores its text instead of the number of a category."""
    if not pa.types.is_dictionary(column.type) or not _is_text(column.type.value_type):
        return column.nbytes
    lengths = pc.binary_length(column.dictionary).cast(pa.int64())
    return column.indices.nbytes + (pc.sum(lengths.take(column.indices)).as_py() or 0)


def _is_text(kind: Any) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


def _fixed(kind: Any) -> bool:
    """Return whether all values of a type have the same size. Categories are stored as numbers."""
    try:
        return bool(kind.bit_width)
    except ValueError:
        return False


def _bits(kind: Any) -> int:
    """Return the bits per value. For text, only the offset at which the value ends is counted."""
    try:
        return int(kind.bit_width)
    except ValueError:
        return 32


# Arrow. A message is described by a FlatBuffers table, which Arrow has verified: https://arrow.apache.org/docs/format


def decompressed_size(message: Any) -> int:
    """Return the bytes of the buffers of a message after decompression."""
    about, body = message.metadata.to_pybytes(), message.body
    kind, table = _header(about)
    if kind == _DICTIONARY:  # it contains a record batch
        table = _follow(about, _field(about, table, 1))
    elif kind != _BATCH:
        return 0
    buffers = _field(about, table, 2)
    compressed = _field(about, table, 3) is not None
    if not compressed or buffers is None or body is None:
        return 0 if body is None else body.size
    first = _follow(about, buffers)
    total = 0
    for i in range(_number("I", about, first)):
        place, size = struct.unpack_from("<qq", about, first + 4 + 16 * i)
        if size >= 8:  # a compressed buffer begins with its decompressed size, or with -1 if it is not compressed
            stated = _number("q", body, place)
            total += size if stated < 0 else stated
    return total


def _header(about: bytes) -> tuple[int, int]:
    """Return the type of a message and the position of the table that describes it."""
    root = _follow(about, 0)
    kind, table = _field(about, root, 1), _field(about, root, 2)
    return (0, 0) if kind is None or table is None else (_number("B", about, kind), _follow(about, table))


def _field(about: bytes, table: int, number: int) -> int | None:
    """Return the position of a field in a table, or None if the field is absent."""
    fields = table - _number("i", about, table)
    entry = 4 + 2 * number
    offset = _number("H", about, fields + entry) if entry < _number("H", about, fields) else 0
    return table + offset if offset else None


def _follow(about: bytes, place: int | None) -> int:
    """Return the position that an offset points to."""
    return 0 if place is None else place + _number("I", about, place)


def _number(form: str, data: Any, place: int) -> int:
    return struct.unpack_from(f"<{form}", data, place)[0]
