"""The model file: safetensors with one JSON text in its metadata. Reading one runs no code, whatever is in it.

    8 bytes     n, the length of the header
    n bytes     header, JSON: tensor → {dtype, shape, data_offsets}, and __metadata__ → {"multilayer": JSON text}
    the rest    the tensors' bytes, one after the other, none left over

The JSON text is the caller's `meta`, with `kind` (model or checkpoint), `version`, and `sha256` over everything else.
Nothing in it tells the time, keys and tensors are sorted: equal content is equal bytes.

Files are not trusted. Lengths are checked before memory is allocated. Only known names, types and keys are accepted.
The hash detects damage. The safetensors library, which makes the arrays, checks that the header describes every byte
once. No other format is read.
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
    """What a kind of file holds: its version, the keys of its JSON, and the first parts of its tensors' names."""

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
# Parts of letters, digits and the like, so that a name can be a path nowhere and shows as what it is.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.\-]*)*")


def save(
    path: str | os.PathLike[str], tensors: Mapping[str, NDArray[Any]], meta: Mapping[str, Any], *, kind: Kind = "model"
) -> str:
    """Writes the file as a whole (see `atomic_files`) and gives the SHA-256 of its bytes.

    `kind` and `version` are filled in; `load` gives them back with the rest of `meta`.
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
        raise FileError(f"{where}: damaged: its SHA-256 is not the one that was recorded when it was written")
    return decode(data, kind=kind, where=where)


def encode(tensors: Mapping[str, NDArray[Any]], meta: Mapping[str, Any], *, kind: Kind = "model") -> bytes:
    """The bytes of the file."""
    from safetensors.numpy import save as to_bytes

    plain = {name: _plain(name, tensors[name]) for name in sorted(tensors)}
    where = f"a {kind} to be saved"
    _check_names(plain, kind, where)
    about = {"kind": kind, "version": FORMS[kind].version, **meta}
    _check_about(about, kind, where)
    data = to_bytes(plain, metadata={KEY: canonical_json.dumps(about | {"sha256": _digest(about, plain)})})
    header = int.from_bytes(data[:8], "little")
    if header > MAX_HEADER or len(data) > MAX_FILE:
        raise FileError(
            f"{where}: at most {MAX_HEADER:,} bytes of header and {MAX_FILE:,} in all are allowed, "
            f"got {header:,} and {len(data):,}"
        )
    return data


def decode(data: bytes, *, kind: Kind = "model", where: str = "model file") -> tuple[Tensors, dict[str, Any]]:
    """The other way; anything that `encode` could not have meant is one FileError that begins with `where`."""
    import safetensors
    from safetensors.numpy import load as from_bytes

    header = _header(data, where)
    metadata = _object(header.pop("__metadata__", None), f"{where}: __metadata__", required={KEY})
    if not isinstance(metadata[KEY], str):
        raise FileError(f"{where}: __metadata__ must hold a text under {KEY!r}")
    _check_layout(header, len(data) - 8 - int.from_bytes(data[:8], "little"), where)
    _check_names(header, kind, where)
    about = canonical_json.loads(metadata[KEY], f"{where}: metadata")
    about = _object(about, f"{where}: metadata")
    noted = about.pop("sha256", None)
    _check_about(about, kind, f"{where}: metadata")
    try:
        found = from_bytes(data)
    except (safetensors.SafetensorError, ValueError, KeyError, OverflowError, MemoryError) as error:
        raise FileError(f"{where}: not a safetensors file that can be read: {error}") from None
    tensors = {name: found[name] for name in sorted(found)}
    if tensors.keys() != header.keys():
        raise FileError(f"{where}: the header names other tensors than the file holds")
    if _digest(about, tensors) != noted:
        raise FileError(f"{where}: damaged: its content does not have the SHA-256 it states; use a copy that is whole")
    return tensors, about


# Reading


def _header(data: bytes, where: str) -> dict[str, Any]:
    if len(data) < 8:
        raise FileError(f"{where}: not a model file: at least 8 bytes are needed, got {len(data)}")
    length = int.from_bytes(data[:8], "little")
    if length > MAX_HEADER:
        if _is_text(data):
            remedy = "pass a .safetensors file or the folder of a run"
            raise FileError(f"{where}: not a model file but text, such as a table: {remedy}")
        hint = "it is a zip archive or a pickle, which may run code and is never read" if _foreign(data) else "damaged"
        raise FileError(f"{where}: not a model file: a header has at most {MAX_HEADER:,} bytes, got {length:,}: {hint}")
    if length > len(data) - 8:
        raise FileError(f"{where}: cut short: a header of {length:,} bytes is stated, {len(data) - 8:,} are there")
    text = data[8 : 8 + length]
    if not text.startswith(b"{") or not text.rstrip(b" ").endswith(b"}"):
        raise FileError(f"{where}: not a model file: its header is not a JSON object padded with spaces")
    return _object(canonical_json.loads(text, f"{where}: header"), f"{where}: header")


def _is_text(data: bytes) -> bool:
    """Whether a file begins with printable lines, for the message alone."""
    start = data[:1000].decode("utf-8", "ignore")
    return len(start) > len(data[:1000]) // 2 and all(c.isprintable() or c in "\t\r\n\ufeff" for c in start)


def _foreign(data: bytes) -> bool:
    """Archives and pickles by their first bytes, for the message alone."""
    return data.startswith((b"PK", b"\x80", b"\x93NUMPY", b"\x1f\x8b"))


def _check_layout(header: dict[str, Any], size: int, where: str) -> None:
    """Check what safetensors does not check: types and sizes that numpy supports, and whether the file is truncated.

    safetensors itself refuses tensors whose bytes overlap, leave a gap, or do not fit their type and shape.
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
        # An empty tensor may not have sides that only a zero makes possible.
        if math.prod(max(side, 1) for side in shape) * np.dtype(_DTYPES[dtype]).itemsize > MAX_FILE:
            raise FileError(f"{here}: too large: {dtype} of shape {short(shape, 80)}")
        reached = max(reached, offsets[1])
    if reached != size:
        word = "cut short" if reached > size else "bytes left over"
        raise FileError(f"{where}: {word}: the tensors have {reached:,} bytes, {size:,} are there")


def _object(value: object, where: str, *, required: Iterable[str] = ()) -> dict[str, Any]:
    """A JSON object; where keys are required, with exactly those."""
    if not isinstance(value, dict):
        raise FileError(f"{where} must be a JSON object, got {short(value, 80)}")
    found = cast("dict[str, Any]", value)
    if required:
        _check_keys(found, frozenset(required), frozenset(), where)
    return found


# Both ways


def _check_about(about: dict[str, Any], kind: Kind, where: str) -> None:
    """Kind and version first: another kind, or a newer version, may have other keys."""
    form = FORMS[kind]
    if about.get("kind") != kind:
        raise FileError(f"{where}: a {kind} is needed, got the kind {short(about.get('kind'), 80)}")
    version = about.get("version")
    if type(version) is not int or version != form.version:
        newer = type(version) is int and version > form.version
        remedy = "update multilayer to read it" if newer else "no such version exists"
        raise FileError(f"{where}: version must be at most {form.version}, got {short(version, 80)}: {remedy}")
    _check_keys(about, form.required | {"kind", "version"}, form.optional, where)


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
                f"{where}: a tensor's name has letters, digits, _ . - and / between parts, "
                f"at most {MAX_NAME} in all, got {short(name, 80)}"
            )
        group = name.partition("/")[0]
        if group not in groups:
            raise FileError(f"{where}: tensor {name[:80]!r}: {unknown_name('group', group[:80], groups)}")


def _plain(name: str, value: NDArray[Any]) -> NDArray[Any]:
    """The array in the one form that is stored: a type of the closed set, little-endian, rows first."""
    array = np.asarray(value)
    little = array.dtype.newbyteorder("<")
    if little not in _NAMES or array.ndim > MAX_RANK:
        raise FileError(
            f"tensor {name!r} must hold numbers of a type among {', '.join(str(d) for d in _NAMES)} "
            f"in at most {MAX_RANK} dimensions, got {array.dtype} of shape {array.shape}"
        )
    return np.array(array, dtype=little, order="C", copy=None)


def _digest(about: Mapping[str, Any], tensors: Tensors) -> str:
    """SHA-256 over what a file says: its JSON, then each tensor's name, type, shape and bytes."""
    digest = hashlib.sha256(canonical_json.dumps(about).encode())
    for name, array in tensors.items():
        line = canonical_json.dumps([name, _NAMES[array.dtype], list(array.shape)])
        digest.update(f"\n{line}\n".encode())
        digest.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
    return digest.hexdigest()


def _whole_numbers(value: object) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 62 for n in cast("list[object]", value))
