"""Convert an `Encoding` to JSON and arrays for a model file, and back exactly.

    JSON      names, kinds, classes and options
    arrays    center, scale, fill and vocabularies; a vocabulary of strings is stored as UTF-8 bytes and end positions

Two keys of a column are optional: `zone` for timestamps (if it is absent in an old model, timestamps with and without a
time zone are accepted), and `numbered` if the column names of the data frame were numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..core.formatting import short
from ..errors import DataError, unknown_name
from ..nn import losses
from . import columns as C
from . import targets
from .columns import SCALINGS, Column
from .table import from_bytes, from_numpy, to_numpy

if TYPE_CHECKING:
    from .encoding import Encoding

Arrays = Mapping[str, NDArray[Any]]
FORMAT = "multilayer.encoding"
VERSION = 1
KEYS = {"format", "version", "columns", "task", "loss", "scaling", "image", "top", "positional"}
NUMBERS = ("center", "scale", "fill")
RANGE = ("low", "high")
"""Optional: models that were saved before ranges were stored do not have them."""


def to_parts(encoding: Encoding) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    arrays: dict[str, NDArray[Any]] = {name: getattr(encoding, name) for name in NUMBERS if len(encoding.center)}
    arrays |= {name: getattr(encoding, name) for name in RANGE if len(encoding.low)}
    columns: list[dict[str, Any]] = []
    for i, column in enumerate(encoding.columns):
        entry: dict[str, Any] = {"name": column.name, "family": column.family, "kind": column.kind}
        entry |= {"parts": list(column.parts), "indicator": column.indicator, "keys": None}
        entry |= {} if column.zone is None else {"zone": column.zone}
        entry |= {"numbered": True} if column.numbered else {}
        if column.name in encoding.vocabularies:
            entry["keys"], stored = _store(encoding.vocabularies[column.name])
            arrays |= {f"vocabulary{i}{end}": value for end, value in stored.items()}
        columns.append(entry)
    data = {
        "format": FORMAT,
        "version": VERSION,
        "columns": columns,
        "task": targets.to_dict(encoding.task),
        "loss": encoding.loss,
        "scaling": encoding.scaling,
        "image": None if encoding.image is None else list(encoding.image),
        "top": encoding.top,
        "positional": encoding.positional,
    }
    return data, arrays


def from_parts(data: dict[str, Any], arrays: Arrays) -> dict[str, Any]:
    """Return the fields of a stored encoding. Raise an error if they are inconsistent."""
    try:
        return _from_parts(data, arrays)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, pa.ArrowException) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"not an encoding: {type(error).__name__}: {short(str(error))}") from None


def _from_parts(data: dict[str, Any], arrays: Arrays) -> dict[str, Any]:
    if set(data) != KEYS or data["format"] != FORMAT:
        raise DataError(f"not an encoding: it must have the keys {', '.join(sorted(KEYS))}, got {short(sorted(data))}")
    if not isinstance(data["positional"], bool):
        raise DataError(f"positional of an encoding must be true or false, got {short(data['positional'])}")
    if data["version"] != VERSION:
        raise DataError(
            f"the encoding has version {data['version']!r}, this package reads version {VERSION}: update the package"
        )
    task = targets.from_dict(data["task"])
    task.outputs(losses.get(data["loss"]).name)  # raises an error for an unknown task or loss
    columns: list[Column] = []
    vocabularies: dict[str, Any] = {}
    used = {*NUMBERS, *RANGE}
    for i, entry in enumerate(cast("list[dict[str, Any]]", data["columns"])):
        if not isinstance(entry["name"], str) or not isinstance(entry["indicator"], bool):
            raise DataError(f"a column of an encoding must have a name and an indicator, got {short(entry)}")
        kind = C.check_kind(entry["kind"], entry["name"])
        if entry["family"] not in C.DEFAULT_KIND:
            raise DataError(f"unknown family {entry['family']!r} of column {entry['name']!r}")
        parts = tuple(int(part) for part in entry["parts"])
        if any(part not in range(len(C.PARTS.get(kind, ()))) for part in parts):
            raise DataError(f"column {entry['name']!r} of kind {kind} has no parts {parts}")
        columns.append(
            Column(
                name=str(entry["name"]),
                family=entry["family"],
                kind=kind,
                parts=parts,
                indicator=entry["indicator"] is True,
                zone=_zone(entry),
                numbered=entry.get("numbered") is True,
            )
        )
        if (entry["keys"] is not None) != (kind == "categorical"):
            raise DataError(f"column {entry['name']!r} of kind {kind} has keys {entry['keys']!r}")
        if kind == "categorical":
            ends = (".text", ".ends") if entry["keys"] == "text" else ("",)
            used |= {f"vocabulary{i}{end}" for end in ends}
            vocabularies[entry["name"]] = _load(entry["keys"], [arrays[f"vocabulary{i}{end}"] for end in ends])
    names = [column.name for column in columns]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"the columns of an encoding must have distinct names, got {twice!r} twice")
    for name, words in vocabularies.items():
        if words.null_count or len(words.unique()) != len(words):
            raise DataError(f"the categories of column {name!r} must be distinct and not missing")
    if data["scaling"] not in (*SCALINGS, "range"):
        raise DataError(unknown_name("scaling", str(data["scaling"]), (*SCALINGS, "range")))
    unknown = sorted(set(arrays) - used)
    if unknown:
        raise DataError(f"unknown arrays of an encoding: {short(unknown)}")
    n = sum(len(column.parts) for column in columns)
    numbers = {name: np.asarray(arrays.get(name, np.zeros(0)), dtype=np.float64) for name in NUMBERS}
    for name, value in numbers.items():
        if value.shape != (n,) or not np.isfinite(value).all() or (name == "scale" and not (value > 0).all()):
            raise DataError(f"{name} of an encoding must be {n} finite numbers, and the scales positive")
    if any(array.dtype != np.float64 for name, array in arrays.items() if name in (*NUMBERS, *RANGE)):
        raise DataError("center, scale, fill, low and high of an encoding must be float64")
    low, high = (np.asarray(arrays.get(name, np.zeros(0))) for name in RANGE)
    if low.shape not in ((0,), (n,)) or low.shape != high.shape or not (np.isfinite(low) & (low <= high)).all():
        raise DataError(f"low and high of an encoding must be {n} numbers each, and low not above high")
    if not np.isfinite(high).all():
        raise DataError("high of an encoding must be finite")
    image, top = data["image"], data["top"]
    if image is not None and (len(image) != 3 or not all(type(side) is int and side > 0 for side in image)):
        raise DataError(f"the image of an encoding must be three positive whole numbers, got {short(image)}")
    if top is not None and not 0 < float(top) < np.inf:
        raise DataError(f"the top of an encoding must be positive and finite, got {short(top)}")
    return dict(
        columns=tuple(columns),
        task=task,
        loss=str(data["loss"]),
        scaling=str(data["scaling"]),
        **numbers,
        low=low,
        high=high,
        vocabularies=vocabularies,
        image=None if image is None else (int(image[0]), int(image[1]), int(image[2])),
        top=None if top is None else float(top),
        positional=data["positional"] is True,
    )


def _zone(entry: dict[str, Any]) -> bool | None:
    zone = entry.get("zone")
    if zone is not None and (not isinstance(zone, bool) or entry["family"] != "datetime"):
        raise DataError(f"column {entry['name']!r} of family {entry['family']} has the zone {short(zone)}")
    return zone


def _store(values: Any) -> tuple[str, dict[str, NDArray[Any]]]:
    if pa.types.is_large_string(values.type):
        strings = [str(value).encode() for value in values.to_pylist()]
        ends = np.cumsum([len(string) for string in strings], dtype=np.int64)
        return "text", {".text": np.frombuffer(b"".join(strings), dtype=np.uint8), ".ends": ends}
    if pa.types.is_boolean(values.type):
        return "boolean", {"": to_numpy(values).astype(np.uint8)}
    return ("integer" if pa.types.is_integer(values.type) else "number"), {"": to_numpy(values)}


def _load(keys: str, stored: list[NDArray[Any]]) -> Any:
    if keys == "text":
        if [one.dtype for one in stored] != [np.uint8, np.int64]:
            raise DataError("a vocabulary of strings must be bytes and end positions")
        text, ends = stored[0].tobytes(), [int(end) for end in stored[1]]
        starts = [0, *ends[:-1]]
        if starts != sorted(starts) or (ends and ends[-1] != len(text)):
            raise DataError("the last string of a vocabulary must end where its bytes end")
        return from_bytes(text, np.array(ends, dtype=np.int64))
    types: dict[str, Any] = {"boolean": pa.bool_(), "integer": pa.int64(), "number": pa.float64()}
    if keys not in types:
        raise DataError(f"keys must be text, boolean, integer or number, got {keys!r}")
    return from_numpy(np.asarray(stored[0])).cast(types[keys])
