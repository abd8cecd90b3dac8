"""`read`: read a file, a data frame, arrays or a dataset as a `Table`.

    path                .csv .tsv .txt .jsonl .ndjson .parquet .arrow .feather .ipc .npy .npz, idx, or a folder of idx
                        files; all except Parquet and Arrow may be gzipped. The first bytes determine the format; the
                        name only distinguishes text formats
    name                a bundled set: digits, iris, …, xor, spirals(turns=2), …; a file with this name, or a folder
                        that contains idx files, takes precedence
    (X, y)              one of the following, and its target
    data frame          pandas, polars, pyarrow and others that narwhals supports
    arrays              numpy, scipy sparse, torch tensors
    datasets            torch and Hugging Face
    dict, list of dict  columns, rows

Optional libraries that are not imported yet are never imported to recognize an object.
"""

from __future__ import annotations

import gzip
import os
import re
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..core import atomic_files
from ..core.machine import available_memory
from ..errors import DataError, option, unknown_name
from . import arrays, bundled
from .arrow_files import COPIES, read_arrow, read_arrow_stream, read_parquet
from .columns import FAMILY_NAMES, family_of
from .table import Table, check_names, check_size, from_texts
from .text_files import SNIFFED, first_line, read_csv, read_json_lines
from .type_inference import Hints, convert_text, is_text

WIDE = 64
"""A frame with at least this many columns of the same number type is read as one array. This is faster, but copies."""
CHUNK = 1 << 24
"""Bytes of a gzipped file that are decompressed at a time."""
NAMED = 5
"""Largest number of columns that a note names."""
SUFFIXES = (".csv", ".tsv", ".tab", ".txt", ".jsonl", ".ndjson", ".parquet", ".arrow", ".feather", ".npy", ".npz")


def read(source: Any) -> Table:
    """Read a table for training.

    Text columns are converted to the type of their values, for every source (see `type_inference`). The labels in `y`
    of `(X, y)` are not converted.

    Parameters
    ----------
    source : path, str, tuple, data frame, array, dataset, dict or list of dict
        The data. The module docstring lists the formats.

    Returns
    -------
    Table

    Raises
    ------
    DataError
        If the source cannot be read. The message names the source and, if possible, the row and the column.

    Examples
    --------
    >>> table = read({"age": ["31", "NA"], "city": ["Rome", "Oslo"]})
    >>> table.names, table.column("age").to_pylist()
    (('age', 'city'), [31, None])
    """
    return source if isinstance(source, Table) else with_meaning(read_raw(source))


def with_meaning(table: Table) -> Table:
    """Convert text columns to the type of their values, and add a note that names the converted columns."""
    found, changed = convert_text(table)
    if not changed:
        return found
    words = [f"{name!r} ({FAMILY_NAMES[family_of(column, name)]})" for name, column in list(changed.items())[:NAMED]]
    more = f" and {len(changed) - NAMED:,} more" if len(changed) > NAMED else ""
    written = {name: table.columns[name] for name in changed}
    return replace(found, written=written, notes=(*table.notes, f"read from text: {', '.join(words)}{more}"))


def read_raw(source: Any, *, hints: Hints | None = None) -> Table:
    """Read the table of a source without converting text, except for CSV files. `hints` are the Arrow types of columns
    in training, for sources without types: text files, and columns of Python objects in data frames."""
    if isinstance(source, Table):
        return source
    if isinstance(source, (str, Path)):
        return read_path(source, hints)
    if isinstance(source, tuple) and len(cast("tuple[Any, ...]", source)) == 2:
        X, y = cast("tuple[Any, Any]", source)
        return _with_target(read_raw(X, hints=hints), y)
    table = _of_object(source, hints)
    if not len(table) or not table.names:
        raise DataError(f"{table.name}: a table needs at least one row and one column, got none")
    return table


def _of_object(source: Any, hints: Hints | None) -> Table:
    if isinstance(source, np.ndarray):
        return arrays.table_of_array(source, name="the array")
    if isinstance(source, (pa.Table, pa.RecordBatch)):
        return _of_arrow(source, "the Arrow table")
    if isinstance(source, Mapping):
        return _of_mapping(cast("Mapping[Any, Any]", source))
    kind = f"{type(source).__module__}.{type(source).__qualname__}"
    if kind.startswith("datasets."):
        return _of_hugging_face(source)
    if hasattr(source, "toarray") and hasattr(source, "nnz"):
        return arrays.table_of_sparse(source, name="the sparse matrix")
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(source, torch.Tensor):
        return arrays.table_of_tensor(source, name="the tensor")
    if torch is not None and isinstance(source, torch.utils.data.Dataset):
        return arrays.table_of_dataset(source, name=f"the dataset {type(source).__name__}")
    if torch is not None and isinstance(source, torch.utils.data.DataLoader):
        raise DataError("a DataLoader gives batches in its own order: give its dataset, loader.dataset")
    if isinstance(source, Sequence):
        items = cast("Sequence[Any]", source)
        if items and all(isinstance(item, Mapping) for item in items):
            return _of_rows(items)
        try:
            values = np.array(items)
        except ValueError as error:
            raise DataError(f"the list: rows must have the same length: {first_line(error)}") from None
        if values.dtype.kind in "US":  # numpy converts numbers in the same list to strings
            values = np.array(items, dtype=object)
        return arrays.table_of_array(values, name="the list")
    return _of_frame(source, kind, hints)


# Files


def means_bundled(source: str | Path) -> bool:
    """Return whether a source is the name of a bundled set, and not of a file or a folder with data."""
    path = Path(source)
    return isinstance(source, str) and bundled.known(source) and not (path.is_file() or _images(path))


def read_path(source: str | Path, hints: Hints | None = None) -> Table:
    path = Path(source)
    if means_bundled(source):
        return bundled.load(str(source))
    if path.is_dir():
        if (path / "config.json").is_file() and (path / "events.jsonl").is_file():
            raise DataError(f"{source}: expected a table, got the folder of a run: pass a file with rows")
        return _folder(path)
    if not path.exists():
        if path.suffix or len(path.parts) > 1:
            raise DataError(f"{source}: there is no such file: check the path")
        raise DataError(
            f"{source}: there is no such file, and {unknown_name('bundled set', str(source), bundled.names())}"
        )
    with atomic_files.reported("read", path), atomic_files.opened(path) as file:
        start = file.read(16)
    try:
        if start.startswith(b"PAR1"):
            return _of_arrow(read_parquet(path), str(path))
        if start.startswith(b"ARROW1"):
            return _of_arrow(read_arrow(path), str(path))
        if start.startswith(b"\x93NUMPY"):
            return arrays.read_npy(path)
        if start.startswith(b"PK\x03\x04"):
            return arrays.read_npz(path)
        data = unpacked(path)
    except (pa.ArrowException, OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {first_line(error)}: check that the file is complete") from None
    return _of_bytes(data, path, hints)


def unpacked(path: Path) -> bytes:
    """Return the bytes of a file, decompressed if it is gzipped. Raise an error if they do not fit in memory."""
    limit = available_memory() // COPIES
    with atomic_files.opened(path) as file:
        zipped = file.read(2) == b"\x1f\x8b"
        size = os.fstat(file.fileno()).st_size
        file.seek(0)
        if not zipped:
            check_size(path, size, limit, "holds")
            return file.read(limit + 1)
        chunks: list[bytes] = []
        with gzip.open(file) as stream:
            total = 0
            while chunk := stream.read(CHUNK):
                total += len(chunk)
                check_size(path, total, limit, f"has {size:,} bytes and decompresses to at least")
                chunks.append(chunk)
        return b"".join(chunks)


def _of_bytes(data: bytes, path: Path, hints: Hints | None) -> Table:
    name, suffix = str(path), path.name.lower().removesuffix(".gz").rpartition(".")[2]
    if data[:2] == b"\x00\x00" and data[2:3] and data[2] in arrays.IDX_TYPES:
        return _idx_with_labels(data, path)
    if suffix in ("jsonl", "ndjson", "json"):
        return read_json_lines(data, name=name)
    if suffix in ("csv", "tsv", "tab", "txt", "data", "dat"):
        tabs = suffix in ("tsv", "tab") and b"\t" in data[:SNIFFED].partition(b"\n")[0]
        return read_csv(data, name=name, delimiter="\t" if tabs else None, hints=hints)
    if suffix in ("arrow", "ipc", "arrows"):
        try:
            return _of_arrow(read_arrow_stream(data, path), name)
        except (pa.ArrowException, OSError) as error:
            raise DataError(
                f"{name}: cannot be read as an Arrow file: {first_line(error)}: check that it is complete"
            ) from None
    if suffix in ("parquet", "feather", "npy", "npz") or "idx" in path.name:
        raise DataError(f"{name}: does not begin like a {suffix} file: check that the file is complete")
    raise DataError(f"{name}: {unknown_name('kind of file', '.' + suffix, SUFFIXES)}")


def _idx_with_labels(data: bytes, path: Path) -> Table:
    """Return the images of an idx file, with labels if the folder contains them under MNIST's names."""
    values = arrays.read_idx(data, name=str(path))
    if values.ndim == 1:
        raise DataError(f"{path}: contains labels only: pass the file of images, or the folder")
    labels_name = re.sub(r"images([-.])idx\d", r"labels\1idx1", path.name)
    options = (labels_name, labels_name.removesuffix(".gz"), labels_name + ".gz")
    other = next((path.with_name(name) for name in options if path.with_name(name).exists()), None)
    labels = None if other is None or other == path else arrays.read_idx(_unzipped(other), name=str(other))
    return arrays.idx_table(values, labels, name=str(path))


def _unzipped(path: Path) -> bytes:
    try:
        return unpacked(path)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {first_line(error)}: check that the file is complete") from None


def _folder(path: Path) -> Table:
    """Return the training images of a folder in MNIST's layout."""
    found = _images(path)
    training = [p for p in found if "train" in p.name]
    if not found or len(training or found) > 1:
        got = len(training or found)
        raise DataError(
            f"{path}: a folder must contain one idx file of training images, got {got}: pass a file with rows"
        )
    chosen = (training or found)[0]
    table = read_path(chosen)
    rest = [p for p in found if p != chosen]
    notes = (f"{rest[0]} is not used: {option('validation', str(rest[0]))} uses it for validation",) if rest else ()
    return replace(table, notes=(*table.notes, *notes))


def _images(path: Path) -> list[Path]:
    """Return the image files of a folder. Return an empty list if the path is not a folder."""
    return sorted(p for p in path.iterdir() if re.search(r"images[-.]idx", p.name)) if path.is_dir() else []


# Objects


def _of_arrow(table: Any, name: str) -> Table:
    if not table.num_rows or not table.num_columns:
        raise DataError(f"{name}: a table needs at least one row and one column, got none")
    plain = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
    return Table.of_arrow(plain, name=name)


def _of_mapping(source: Mapping[Any, Any]) -> Table:
    if any(hasattr(value, "column_names") for value in source.values()):
        raise DataError(
            f"expected one dataset, got a dictionary of datasets: choose one of {', '.join(map(str, source))}"
        )
    columns: dict[str, Any] = {}
    for name, values in source.items():
        if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
            raise DataError(f"the dictionary: column {name!r} must be a list or an array, got {values!r}")
        columns[str(name)] = arrays.arrow_of(values, f"the dictionary: column {name!r}")
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"the dictionary: columns must have the same length, got {lengths}")
    check_names(list(columns), "the dictionary")
    return Table(name="the dictionary", columns=columns)


def _of_rows(rows: Sequence[Mapping[str, Any]]) -> Table:
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {
        str(name): arrays.arrow_of([row.get(name) for row in rows], f"the rows: column {name!r}") for name in names
    }
    check_names(list(columns), "the rows")
    return Table(name="the rows", columns=columns)


def _of_hugging_face(source: Any) -> Table:
    if not hasattr(source, "with_format"):
        raise DataError("a Hugging Face dataset must be a single split, such as data['train']")
    if not hasattr(source, "__len__"):
        raise DataError("a Hugging Face dataset must not be streamed, because its rows are shuffled: load it in full")
    return _of_arrow(source.with_format("arrow")[:], "the dataset")


def _of_frame(source: Any, kind: str, hints: Hints | None) -> Table:
    name = f"the {kind.partition('.')[0]} frame"
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(source, pandas.DataFrame):
        return _of_pandas(source, name, hints)
    import narwhals as nw
    from narwhals.exceptions import DuplicateError

    try:
        frame = nw.from_native(source)
    except TypeError:
        raise DataError(f"data must be a path, a data frame, arrays or a dataset, got {kind}") from None
    except DuplicateError:
        check_names([str(column) for column in source.columns], name)
        raise
    if isinstance(frame, nw.LazyFrame):
        frame = frame.collect()
    labels = [str(column) for column in frame.columns]
    check_names(labels, name)
    block = _block(frame) if len(labels) >= WIDE or hints is not None else None
    if block is not None:
        return Table(name=name, matrix=block, matrix_names=tuple(labels))
    series = [(one.to_native(), one.to_arrow, one.to_list, one.dtype == nw.Object) for one in frame.iter_columns()]
    return _of_columns(labels, series, name, hints)


def _of_pandas(source: Any, name: str, hints: Hints | None) -> Table:
    """Read a pandas frame without narwhals, which would take most of the time of predicting a single row."""
    labels = [str(column) for column in source.columns]
    check_names(labels, name)
    kinds = source.dtypes.tolist()
    if (len(labels) >= WIDE or hints is not None) and labels and _plain_number(kinds[0]) and len(set(kinds)) == 1:
        return Table(name=name, matrix=source.to_numpy(), matrix_names=tuple(labels))

    def arrow(series: Any) -> Any:
        numbers = _plain_number(series.dtype)
        return pa.array(series.to_numpy(), from_pandas=True) if numbers else pa.Array.from_pandas(series)

    series = [(one, partial(arrow, one), one.to_list, one.dtype == object) for _, one in source.items()]
    return _of_columns(labels, series, name, hints)


def _plain_number(kind: Any) -> bool:
    native = isinstance(kind, np.dtype) and bool(kind.isnative)
    return native and (kind.kind in "iu" or (kind.kind == "f" and kind.itemsize in (4, 8)))


def _block(frame: Any) -> NDArray[Any] | None:
    """Return a frame as one array, or None if the number types of the columns differ or nulls change them."""
    kinds = set(frame.schema.values())
    kind = kinds.pop()
    if kinds or not kind.is_numeric() or kind.is_decimal():
        return None
    values = frame.to_numpy()
    return values if values.dtype.name == str(kind).lower() else None


Series = tuple[Any, Callable[[], Any], Callable[[], list[Any]], bool]
"""A column of a frame, functions that return it as Arrow and as a list, and whether it holds Python objects."""


def _of_columns(labels: list[str], series: list[Series], name: str, hints: Hints | None) -> Table:
    columns: dict[str, Any] = {}
    notes: list[str] = []
    for label, one in zip(labels, series, strict=True):
        columns[label] = _of_series(one, f"{name}: column {label!r}", (hints or {}).get(label))
        if hints is None and one[3] and pa.types.is_large_string(columns[label].type):
            notes.append(f"{label!r} holds values of several types: read as text")
    return Table(name=name, columns=columns, notes=tuple(notes))


def _of_series(series: Series, what: str, hint: Any) -> Any:
    """Convert a column of a frame to Arrow. These become text: categories of types that Arrow lacks, Python objects of
    several types that include strings, and categories or objects that were text in training."""
    given, to_arrow, to_list, objects = series
    if _plain_number(given.dtype):
        return pa.chunked_array([to_arrow()])
    if type(given.dtype).__name__ == "PeriodDtype":
        return arrays.arrow_of(given, what)
    categories = type(given.dtype).__name__ == "CategoricalDtype"
    loose = objects or categories
    try:
        found = pa.chunked_array([to_arrow()])
        odd = pa.types.is_dictionary(found.type) and pa.types.is_nested(_value_type(found))
        as_text = odd or isinstance(_value_type(found), pa.BaseExtensionType)
    except UnicodeEncodeError:
        raise arrays.surrogate_error(to_list(), what) from None
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, TypeError):
        found, as_text = None, arrays.reads_as_text(to_list())
    was_text = loose and hint == pa.large_string() and not (found is not None and is_text(found))
    if not as_text and not was_text:
        return arrays.arrow_of(to_list(), what) if found is None else found
    if categories:
        places = given.cat.codes.to_numpy()
        values = from_texts(map(str, given.cat.categories.tolist()))
        return pa.chunked_array([pa.DictionaryArray.from_arrays(pa.array(places, mask=places < 0), values)])
    return pa.chunked_array([pa.array(arrays.texts_of(to_list()), pa.large_string())])


def _value_type(column: Any) -> Any:
    return column.type.value_type if pa.types.is_dictionary(column.type) else column.type


def target_columns(y: Any, *, n: int, name: str) -> dict[str, Any]:
    """Return the target of `(X, y)` as named columns."""
    if not hasattr(y, "columns") and not hasattr(y, "to_frame"):
        return arrays.target_columns(y, n=n, name=name)
    table = read_raw(y if hasattr(y, "columns") else y.to_frame())
    found = {column: table.column(column) for column in table.names}
    if len(found) == 1 and not hasattr(y, "columns") and getattr(y, "name", None) is None:
        found = {"y": next(iter(found.values()))}
    return arrays.check_length(found, n=n, name=name)


def _with_target(table: Table, y: Any) -> Table:
    columns = target_columns(y, n=len(table), name=table.name)
    table = replace(table, targets=())
    columns = {_unique_name(name, table): column for name, column in columns.items()}
    return table.with_columns(columns, targets=tuple(columns))


def _unique_name(name: str, table: Table) -> str:
    """Return a name for the target that is not the name of a column of X."""
    while name in table.names:
        name = f"{name} (target)"
    return name
