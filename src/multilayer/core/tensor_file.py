"""The format of model files and checkpoints: safetensors with JSON in its metadata. Reading a file runs no code.

    8 bytes     n, the length of the header
    n bytes     header, JSON: tensor → {dtype, shape, data_offsets}, and __metadata__ → {"multilayer": JSON string}
    the rest    the bytes of the tensors, without gaps

The JSON string is `meta` of the caller, with `kind` (model or checkpoint), `version`, and `sha256` of the rest.
It contains no times, and keys and tensors are sorted, so equal content gives equal bytes.

Files are not trusted. Lengths are checked before memory is allocated. Unknown names, types and keys are errors. The
hash detects damage. The safetensors library, which creates the arrays, checks that the header describes every byte
exactly once. No other format is read.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import FileError, unknown_name
from . import atomic_files, canonical_json, machine
from .formatting import short

Tensors = dict[str, NDArray[Any]]
Kind = Literal["model", "checkpoint"]

KEY = "multilayer"
MAX_HEADER = 1 << 22
MAX_FILE = 1 << 36
MAX_RANK = 8
MAX_NAME = 500


@dataclass(frozen=True, kw_only=True)
class Form:
    """The content of a kind of file: version, keys of the JSON, and the first parts of the names of tensors."""

    version: int
    required: frozenset[str]
    optional: frozenset[str] = frozenset()
    groups: frozenset[str]


FORMS: dict[str, Form] = {
    "model": Form(
        version=1,
        required=frozenset({"spec", "encoding", "loss"}),
        optional=frozenset({"calibration", "members", "other_encodings", "other_specs", "versions", "weights"}),
        groups=frozenset({"network", "encoding", "calibration"}),
    ),
    "checkpoint": Form(
        version=1,
        required=frozenset({"extra", "purpose", "step"}),
        groups=frozenset({"parameters", "buffers", "optimizer", "averages", "counters"}),
    ),
}

_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "|u1",
    "BOOL": "|b1",
}
_NAMES = {np.dtype(code): name for name, code in _DTYPES.items()}
# Letters, digits and a few other characters, so that a name is never a path, and is safe to print.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.\-]*)*")


def save(
    path: str | os.PathLike[str], tensors: Mapping[str, NDArray[Any]], meta: Mapping[str, Any], *, kind: Kind = "model"
) -> str:
    """Write a file atomically and return the SHA-256 of its bytes.

    `kind` and `version` are added to `meta`, and `load` returns them.
    """
    data = encode(tensors, meta, kind=kind)
    atomic_files.write(path, data)
    return hashlib.sha256(data).hexdigest()


def load(
    path: str | os.PathLike[str], *, kind: Kind = "model", sha256: str | None = None, root: Path | None = None
) -> tuple[Tensors, dict[str, Any]]:
    """Return the tensors and the metadata of a file. If `sha256` is given, the file must have that hash.

    `root` is the folder of a run. No symbolic link below it is followed.
    """
    where = os.fspath(path)
    data = atomic_files.read(path, limit=min(MAX_FILE, machine.physical_memory()), root=root)
    if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
        raise FileError(
            f"{where}: damaged: its SHA-256 differs from the one recorded when it was written: use an undamaged copy"
        )
    return decode(data, kind=kind, where=where)


def encode(tensors: Mapping[str, NDArray[Any]], meta: Mapping[str, Any], *, kind: Kind = "model") -> bytes:
    """Return the bytes of the file."""
    from safetensors.numpy import save as to_bytes

    plain = {name: _plain(name, tensors[name]) for name in sorted(tensors)}
    where = f"a {kind} to be saved"
    _check_names(plain, kind, where)
    metadata = {"kind": kind, "version": FORMS[kind].version, **meta}
    _check_metadata(metadata, kind, where)
    data = to_bytes(plain, metadata={KEY: canonical_json.dumps(metadata | {"sha256": _digest(metadata, plain)})})
    header = int.from_bytes(data[:8], "little")
    if header > MAX_HEADER or len(data) > MAX_FILE:
        raise FileError(
            f"{where}: at most {MAX_HEADER:,} bytes of header and {MAX_FILE:,} in all are allowed, "
            f"got {header:,} and {len(data):,}"
        )
    return data


def decode(data: bytes, *, kind: Kind = "model", where: str = "model file") -> tuple[Tensors, dict[str, Any]]:
    """Return the tensors and the metadata. Invalid data raises a FileError that begins with `where`."""
    import safetensors
    from safetensors.numpy import load as from_bytes

    header = _header(data, where)
    outer = _object(header.pop("__metadata__", None), f"{where}: __metadata__", required={KEY})
    if not isinstance(outer[KEY], str):
        raise FileError(f"{where}: __metadata__ must contain a string under {KEY!r}")
    _check_layout(header, len(data) - 8 - int.from_bytes(data[:8], "little"), where)
    _check_names(header, kind, where)
    metadata = _object(canonical_json.loads(outer[KEY], f"{where}: metadata"), f"{where}: metadata")
    recorded = metadata.pop("sha256", None)
    _check_metadata(metadata, kind, f"{where}: metadata")
    try:
        found = from_bytes(data)
    except (safetensors.SafetensorError, ValueError, KeyError, OverflowError, MemoryError) as error:
        raise FileError(f"{where}: not a safetensors file that can be read: {error}") from None
    tensors = {name: found[name] for name in sorted(found)}
    if tensors.keys() != header.keys():
        raise FileError(f"{where}: the header and the file contain different tensors")
    if _digest(metadata, tensors) != recorded:
        raise FileError(f"{where}: damaged: its content does not have the stored SHA-256: use an undamaged copy")
    return tensors, metadata


# Reading


def _header(data: bytes, where: str) -> dict[str, Any]:
    if len(data) < 8:
        raise FileError(f"{where}: not a model file: at least 8 bytes are needed, got {len(data)}")
    length = int.from_bytes(data[:8], "little")
    if length > MAX_HEADER:
        if _is_text(data):
            remedy = "pass a .safetensors file or the folder of a run"
            raise FileError(f"{where}: not a model file but text, such as a table: {remedy}")
        hint = "it is a zip archive or a pickle, which can run code and is never read" if _foreign(data) else "damaged"
        raise FileError(f"{where}: not a model file: a header has at most {MAX_HEADER:,} bytes, got {length:,}: {hint}")
    if length > len(data) - 8:
        raise FileError(f"{where}: cut short: a header of {length:,} bytes is stated, {len(data) - 8:,} are there")
    text = data[8 : 8 + length]
    if not text.startswith(b"{") or not text.rstrip(b" ").endswith(b"}"):
        raise FileError(f"{where}: not a model file: its header is not a JSON object padded with spaces")
    return _object(canonical_json.loads(text, f"{where}: header"), f"{where}: header")


def _is_text(data: bytes) -> bool:
    """Return whether a file begins with printable text. Only the error message depends on it."""
    start = data[:1000].decode("utf-8", "ignore")
    return len(start) > len(data[:1000]) // 2 and all(c.isprintable() or c in "\t\r\n\ufeff" for c in start)


def _foreign(data: bytes) -> bool:
    """Return whether a file is an archive or a pickle. Only the error message depends on it."""
    return data.startswith((b"PK", b"\x80", b"\x93NUMPY", b"\x1f\x8b"))


def _check_layout(header: dict[str, Any], size: int, where: str) -> None:
    """Check what safetensors does not check: types and sizes that numpy supports, and whether the file is truncated.

    safetensors raises an error for tensors whose bytes overlap, have a gap, or do not fit their type and shape.
    """
    reached = 0
    for name, entry in header.items():
        here = f"{where}: tensor {name[:80]!r}"
        fields = _object(entry, here, required={"dtype", "shape", "data_offsets"})
        dtype, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
        if not isinstance(dtype, str) or dtype not in _DTYPES:
            raise FileError(f"{here}: {unknown_name('dtype', str(dtype)[:40], _DTYPES)}")
        if not _whole_numbers(shape) or len(shape) > MAX_RANK:
            raise FileError(f"{here}: shape must be at most {MAX_RANK} whole numbers, got {short(shape, 80)}")
        if not _whole_numbers(offsets) or len(offsets) != 2:
            raise FileError(f"{here}: data_offsets must be two whole numbers, got {short(offsets, 80)}")
        # Sizes are limited for empty tensors too, where the product is 0.
        if math.prod(max(side, 1) for side in shape) * np.dtype(_DTYPES[dtype]).itemsize > MAX_FILE:
            raise FileError(f"{here}: too large: {dtype} of shape {short(shape, 80)}")
        reached = max(reached, offsets[1])
    if reached != size:
        word = "cut short" if reached > size else "bytes left over"
        raise FileError(f"{where}: {word}: the tensors have {reached:,} bytes, {size:,} are there")


def _object(value: object, where: str, *, required: Iterable[str] = ()) -> dict[str, Any]:
    """Return the value if it is a JSON object, with exactly the required keys, if any."""
    if not isinstance(value, dict):
        raise FileError(f"{where} must be a JSON object, got {short(value, 80)}")
    found = cast("dict[str, Any]", value)
    if required:
        _check_keys(found, frozenset(required), frozenset(), where)
    return found


# Both ways


def _check_metadata(metadata: dict[str, Any], kind: Kind, where: str) -> None:
    """Check the kind and the version first, because another kind or a newer version can have other keys."""
    form = FORMS[kind]
    if metadata.get("kind") != kind:
        raise FileError(f"{where}: a {kind} is needed, got the kind {short(metadata.get('kind'), 80)}")
    version = metadata.get("version")
    if type(version) is not int or version != form.version:
        newer = type(version) is int and version > form.version
        remedy = "update multilayer to read it" if newer else "no such version exists"
        raise FileError(f"{where}: version must be at most {form.version}, got {short(version, 80)}: {remedy}")
    _check_keys(metadata, form.required | {"kind", "version"}, form.optional, where)


def _check_keys(found: Mapping[str, Any], required: frozenset[str], optional: frozenset[str], where: str) -> None:
    for key in found:
        if key not in required | optional:
            raise FileError(f"{where}: {unknown_name('key', str(key)[:80], required | optional)}")
    for key in sorted(required - found.keys()):
        raise FileError(f"{where}: the key {key!r} is missing")


def _check_names(names: Iterable[str], kind: Kind, where: str) -> None:
    groups = FORMS[kind].groups
    for name in names:
        if len(name) > MAX_NAME or not _NAME.fullmatch(name):
            raise FileError(
                f"{where}: the name of a tensor must have letters, digits, _ . - and / between parts, "
                f"at most {MAX_NAME} characters, got {short(name, 80)}"
            )
        group = name.partition("/")[0]
        if group not in groups:
            raise FileError(f"{where}: tensor {name[:80]!r}: {unknown_name('group', group[:80], groups)}")


def _plain(name: str, value: NDArray[Any]) -> NDArray[Any]:
    """Return the array as it is stored: one of the known types, little-endian, in C order."""
    array = np.asarray(value)
    little = array.dtype.newbyteorder("<")
    if little not in _NAMES or array.ndim > MAX_RANK:
        raise FileError(
            f"tensor {name!r} must hold numbers of one of the types {', '.join(str(d) for d in _NAMES)} "
            f"in at most {MAX_RANK} dimensions, got {array.dtype} of shape {array.shape}"
        )
    return np.array(array, dtype=little, order="C", copy=None)


def _digest(metadata: Mapping[str, Any], tensors: Tensors) -> str:
    """Return the SHA-256 of the JSON, then of the name, type, shape and bytes of each tensor."""
    digest = hashlib.sha256(canonical_json.dumps(metadata).encode())
    for name, array in tensors.items():
        line = canonical_json.dumps([name, _NAMES[array.dtype], list(array.shape)])
        digest.update(f"\n{line}\n".encode())
        digest.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
    return digest.hexdigest()


def _whole_numbers(value: object) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 62 for n in cast("list[object]", value))
