"""Invalid model files (R7): a list of hostile, damaged and foreign bytes, each with the expected error.

`python tests/support/malformed_files.py` loads all of them in a process with limited memory, and prints the number of
files and the longest time.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import pickle
import random
import struct
import sys
import time
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from multilayer.core import canonical_json, tensor_file
from multilayer.errors import FileError

META = {"spec": {"layers": [1, 2]}, "encoding": {"columns": ["a", "ü"]}, "loss": "mse"}
TENSORS = {
    "encoding/edges": np.arange(4, dtype=np.int64),
    "network/linear1.bias": np.array([1.0, -0.0, np.nan], dtype=np.float32),
    "network/linear1.weight": np.arange(6, dtype=np.float32).reshape(3, 2),
}
GOOD = tensor_file.encode(TENSORS, META)


class Payload:
    """An object that creates a file when it is unpickled."""

    def __init__(self, marker: str) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self.marker, "w")


LAYOUT = (
    "can be read: .*(invalid shape, data type, or offset|invalid offset) for tensor|cut short: the|bytes left over: the"
)
"""Errors for tensors of a header that do not match the bytes: from safetensors, or ours for a wrong total size."""


def header_of(data: bytes = GOOD) -> dict[str, Any]:
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])


def data_of(data: bytes = GOOD) -> bytes:
    return data[8 + int.from_bytes(data[:8], "little") :]


def raw(header: object, data: bytes | None = None, *, length: int | None = None) -> bytes:
    text = (
        header if isinstance(header, bytes) else json.dumps(header, ensure_ascii=False).encode("utf-8", "surrogatepass")
    )
    size = len(text) if length is None else length
    return struct.pack("<Q", size) + text + (data_of() if data is None else data)


def with_tensor(name: str = "network/linear1.weight", **fields: object) -> bytes:
    header = header_of()
    header[name] = {key: value for key, value in (header[name] | fields).items() if value is not ...}
    return raw(header)


def with_about(**changes: object) -> bytes:
    """Return the file with changed keys in its metadata and a matching hash."""
    about = json.loads(header_of()["__metadata__"]["multilayer"]) | changes
    about = {key: value for key, value in about.items() if value is not ...}
    noted = about.pop("sha256", None)
    if "sha256" not in changes:
        noted = tensor_file._digest(about, {name: TENSORS[name] for name in sorted(TENSORS)})
    if changes.get("sha256") is not ...:
        about["sha256"] = noted
    header = header_of()
    header["__metadata__"]["multilayer"] = canonical_json.dumps(about)
    return raw(header)


def lengths() -> Iterator[tuple[str, bytes, str]]:
    for n in range(8):
        yield f"{n} bytes", GOOD[:n], "at least 8 bytes are needed"
        yield f"{n} zeros", b"\0" * n, "at least 8 bytes are needed"
    for n in (8, 9, 16, 100, 4096):
        yield f"{n} zeros", b"\0" * n, "header is not a JSON object"
    for n in (0, 1, 2, 3, 10):
        yield f"header of {n}", raw(GOOD[8:], b"", length=n), "header is not a JSON object"
    size = len(GOOD)
    for n in (size - 7, size, size + 1, 10**6, 1 << 22):
        yield f"header of {n}", raw(GOOD[8:], b"", length=n), "cut short: a header of"
    for n in ((1 << 22) + 1, 1 << 24, (1 << 31) - 1, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1):
        yield f"header of {n}", raw(GOOD[8:], b"", length=n), "a header has at most 4,194,304 bytes"
    for n in (1, 7, 8, 9):
        yield f"shorter header by {n}", raw(GOOD[8:], b"", length=len(json.dumps(header_of())) - n), "header|cut"
    yield "the length in the other order", struct.pack(">Q", len(GOOD)) + GOOD[8:], "a header has at most"


def truncations() -> Iterator[tuple[str, bytes, str]]:
    for n in sorted({*range(8, len(GOOD), max(1, len(GOOD) // 40)), *range(len(GOOD) - 8, len(GOOD))}):
        yield f"cut to {n}", GOOD[:n], "cut short|not a JSON object"
    for more in (b"\0", b" ", b"\n", b"PK\5\6" + b"\0" * 18, GOOD, data_of()):
        yield f"{len(more)} bytes more", GOOD + more, "bytes left over"


def headers() -> Iterator[tuple[str, bytes, str]]:
    text = json.dumps(header_of()).encode()
    for name, bad, message in (
        ("nothing", b"", "not a JSON object"),
        ("spaces", b" " * 64, "not a JSON object"),
        ("a list", b"[]", "not a JSON object"),
        ("a text", b'"{}"', "not a JSON object"),
        ("a number", b"12345678", "not a JSON object"),
        ("null", b"null", "not a JSON object"),
        ("no end", text[:-1], "not JSON"),
        ("no end, within a text", text[:-1] + b'"', "not a JSON object"),
        ("two", text + text, "Extra data"),
        ("a comma", text[:-1] + b",}", "not JSON"),
        ("a comment", b"{/**/" + text[1:], "not JSON"),
        ("other quotes", text.replace(b'"', b"'"), "not JSON"),
        ("a leading space", b" " + text, "not a JSON object"),
        ("a leading tab", b"\t" + text, "not a JSON object"),
        ("padded by line ends", text + b"\n\n", "not a JSON object"),
        ("padded by tabs", text + b"\t", "not a JSON object"),
        ("padded by zeros", text + b"\0\0\0", "not a JSON object"),
        ("a mark", b"\xef\xbb\xbf" + text, "not a JSON object"),
        ("UTF-16", text.decode().encode("utf-16-le"), "not a JSON object|not JSON"),
        ("UTF-32", text.decode().encode("utf-32-le"), "not a JSON object|not JSON"),
        ("bad UTF-8", text.replace(b"bias", b"\xff\xfe\xfd\xfc"), "not UTF-8"),
        ("overlong UTF-8", text.replace(b"bias", b"\xc0\x80as"), "not UTF-8"),
        ("a surrogate", text.replace(b"bias", b"\xed\xa0\x80"), "not UTF-8"),
        ("half a pair", text.replace(b"bias", b"\\ud800"), "not UTF-8"),
        ("NaN", b'{"a":NaN}', "NaN is not a JSON number"),
        ("Infinity", b'{"a":Infinity}', "Infinity is not a JSON number"),
        ("1e999", b'{"a":1e999}', "too large"),
        ("many digits", b'{"a":' + b"9" * 5000 + b"}", "header: Exceeds"),
        ("a key twice", b'{"a":1,"a":2}', "'a' occurs twice"),
        ("a tensor twice", text[:-1] + b"," + text[1:], "occurs twice"),
        (
            "a key of a tensor twice",
            text.replace(b'"shape": [3]', b'"shape": [3], "shape": [3]'),
            "'shape' occurs twice",
        ),
        ("metadata twice", b'{"__metadata__":{},' + text[1:], "'__metadata__' occurs twice"),
        ("an escaped key twice", b'{"a":1,"\\u0061":2}', "'a' occurs twice"),
        ("deep lists", b'{"a":' + b"[" * 1000 + b"]" * 1000 + b"}", "at most 64 levels"),
        ("deep objects", b'{"a":' * 1000 + b"1" + b"}" * 1000, "at most 64 levels"),
        ("very deep", b'{"a":' + b"[" * 250_000 + b"]" * 250_000 + b"}", "at most 64 levels"),
        ("very deep, open", b'{"a":' + b"[" * 290_000 + b"}", "at most 64 levels"),
        ("very many", b'{"a":[' + b"[]," * 1_300_000 + b"[]]}", "at most 300,000 lists"),
        ("very many tensors", b"{" + b",".join(b'"%d":{}' % i for i in range(290_000)) + b"}", "__metadata__ must be"),
        ("a long name", b'{"' + b"a" * 4_000_000 + b'":{}}', "__metadata__ must be"),
        ("control characters", b'{"\x01":1}', "not JSON"),
        ("an empty object", b"{}", "__metadata__ must be a JSON object, got None"),
    ):
        yield name, raw(bad), message


def metadata() -> Iterator[tuple[str, bytes, str]]:
    for value in (None, [], "", 1, True, [[]]):
        yield f"metadata {value!r}", raw(header_of() | {"__metadata__": value}), "__metadata__ must be a JSON object"
    yield "no metadata", raw({k: v for k, v in header_of().items() if k != "__metadata__"}), "got None"
    good = header_of()["__metadata__"]
    for value in ({}, {"format": "pt"}, {"Multilayer": good["multilayer"]}):
        yield f"metadata {value!r}"[:40], raw(header_of() | {"__metadata__": value}), "is missing|unknown key"
    for key in ("format", "multilayer2", "", "__reduce__"):
        yield f"also {key!r}", raw(header_of() | {"__metadata__": good | {key: "x"}}), f"unknown key '{key}'"
    for value in (None, 1, {}, [], True):
        yield (
            f"not a text: {value!r}",
            raw(header_of() | {"__metadata__": {"multilayer": value}}),
            "must contain a string",
        )
    for text, message in (
        ("", "metadata: not JSON"),
        ("{", "metadata: not JSON"),
        ("[]", "metadata must be a JSON object"),
        ("null", "metadata must be a JSON object"),
        ('"a"', "metadata must be a JSON object"),
        ("{}", "a model is needed, got the kind None"),
        ('{"kind":"model","kind":"model"}', "'kind' occurs twice"),
        ('{"kind":NaN}', "NaN is not"),
        ('{"kind":"model","version":' + "9" * 5000 + "}", "metadata: Exceeds"),
        ("[" * 100_000, "at most 64 levels"),
        ('{"a":' * 100_000, "at most 64 levels"),
        ('"\\ud800"', "not UTF-8"),
        ("\x80\x04\x95", "not JSON"),
    ):
        yield f"text {text[:30]!r}", raw(header_of() | {"__metadata__": {"multilayer": text}}), message


def about() -> Iterator[tuple[str, bytes, str]]:
    for kind in ("checkpoint", "Model", "", None, 1, ["model"], {"model": 1}, True):
        yield f"kind {kind!r}", with_about(kind=kind), "a model is needed, got the kind"
    yield "no kind", with_about(kind=...), "a model is needed, got the kind None"
    for version in (2, 3, 1000, 10**30):
        yield f"version {version}", with_about(version=version), "update multilayer to read it"
    for version in (0, -1, 1.0, True, "1", None, [1], {}, 1.5, ...):
        yield f"version {version!r}", with_about(version=version), "no such version exists"
    yield "a newer version with other keys", with_about(version=2, news=1), "update multilayer to read it"
    for key in ("spec", "encoding", "loss"):
        yield f"no {key}", with_about(**{key: ...}), f"the key '{key}' is missing"
    for key in ("Spec", "specs", "__class__", "py/object", "", "time", "code"):
        yield f"key {key!r}", with_about(**{key: 1}), f"unknown key '{key}'"
    for sha256 in (..., None, "", "0" * 64, 1, [], "A" * 64, True):
        yield (
            f"sha256 {sha256!r}"[:20],
            with_about(sha256=sha256),
            "damaged: its content does not have the stored SHA-256",
        )


def dtypes() -> Iterator[tuple[str, bytes, str]]:
    for dtype in (
        "F8_E4M3",
        "F8_E5M2",
        "BF16",
        "C64",
        "F128",
        "F4",
        "f32",
        "float32",
        "<f4",
        "O",
        "",
        "F32 ",
        "I128",
        "STR",
    ):
        yield f"dtype {dtype!r}", with_tensor(dtype=dtype), "unknown dtype"
    for dtype in (None, 32, [], ["F32"], {"F32": 1}, True, 1.5):
        yield f"dtype {dtype!r}", with_tensor(dtype=dtype), "unknown dtype"
    for dtype in ("F64", "F16", "I64", "I16", "I8", "U8", "U64", "BOOL"):
        yield f"dtype {dtype}", with_tensor(dtype=dtype), LAYOUT
    for dtype in ("I32", "U32"):
        yield f"dtype {dtype}", with_tensor(dtype=dtype), "damaged: its content"


def shapes() -> Iterator[tuple[str, bytes, str]]:
    for shape in (
        None,
        6,
        "6",
        {},
        [-3, -2],
        [3, -2],
        [3.0, 2.0],
        [3, 2.5],
        ["3", "2"],
        [True, 6],
        [None],
        [[3, 2]],
        [3, []],
    ):
        yield f"shape {shape!r}", with_tensor(shape=shape), "shape must be at most 8 whole numbers"
    yield "nine sides", with_tensor(shape=[1] * 7 + [3, 2]), "shape must be at most 8 whole numbers"
    yield "many sides", with_tensor(shape=[1] * 10_000), "shape must be at most 8 whole numbers"
    for shape in ([1 << 62], [1 << 63], [1 << 64], [10**40], [(1 << 64) + 6]):
        yield f"shape {shape!r}", with_tensor(shape=shape), "shape must be at most 8 whole numbers"
    for shape in ([1 << 32, 1 << 32], [1 << 61, 8], [1 << 60, 16, 1], [1 << 40, 6], [1 << 61], [(1 << 62) - 1, 4]):
        yield f"shape {shape!r}", with_tensor(shape=shape), "too large"
    for shape in ([0, 1 << 61], [1 << 40, 0, 1 << 40], [1 << 36, 0]):
        yield f"shape {shape!r}", with_tensor(shape=shape, data_offsets=[28, 28]), "too large"
    for shape in ([], [3], [2], [3, 3], [0], [7], [3, 2, 2], [1 << 20]):
        yield f"shape {shape!r}", with_tensor(shape=shape), LAYOUT
    for shape in ([2, 3], [6], [1, 6], [6, 1, 1]):
        yield f"shape {shape!r}", with_tensor(shape=shape), "damaged: its content"


def offsets() -> Iterator[tuple[str, bytes, str]]:
    begin, end = header_of()["network/linear1.weight"]["data_offsets"]
    for value in (None, begin, "0", {}, [], [begin], [begin, end, end], [begin, None], ["a", "b"], [[begin, end]]):
        yield f"offsets {value!r}", with_tensor(data_offsets=value), "data_offsets must be two whole numbers"
    for value in ([-24, 0], [begin, -1], [float(begin), end], [True, 25], [begin, 1 << 62], [1 << 64, (1 << 64) + 24]):
        yield f"offsets {value!r}", with_tensor(data_offsets=value), "data_offsets must be two whole numbers"
    for value in ([end, begin], [begin, begin], [begin, end - 1], [begin, end + 1], [0, end], [begin, 1 << 61], [1, 0]):
        yield f"offsets {value!r}", with_tensor(data_offsets=value), LAYOUT
    for value in ([0, 24], [begin - 1, end - 1], [begin - 4, end - 4], [20, 44]):
        yield f"offsets {value!r}", with_tensor(data_offsets=value), LAYOUT
    for value in ([begin + 1, end + 1], [end, end + 24], [10**6, 10**6 + 24], [(1 << 62) - 25, (1 << 62) - 1]):
        yield f"offsets {value!r}", with_tensor(data_offsets=value), LAYOUT
    header, data = header_of(), data_of()
    moved = {
        k: v | {"data_offsets": [n + 8 for n in v["data_offsets"]]} if k[0] != "_" else v for k, v in header.items()
    }
    yield "a hole at the start", raw(moved, b"\0" * 8 + data), LAYOUT
    yield "a hole at the end", raw(header, data + b"\0" * 8), "bytes left over"
    yield "data missing", raw(header, data[:-4]), "cut short"
    yield "no data", raw(header, b""), "cut short"
    for k in range(3):
        names = [name for name in header if name != "__metadata__"]
        yield f"without {names[k]}", raw({n: v for n, v in header.items() if n != names[k]}), LAYOUT
    yield "no tensors", raw({"__metadata__": header["__metadata__"]}), "bytes left over"
    yield "no tensors, no data", raw({"__metadata__": header["__metadata__"]}, b""), "damaged: its content"
    twin = header | {"network/twin": header["network/linear1.weight"]}
    yield "two tensors in one place", raw(twin), LAYOUT
    swapped = dict(header)
    swapped["encoding/edges"] = header["encoding/edges"] | {"data_offsets": [24, 56]}
    swapped["network/linear1.weight"] = header["network/linear1.weight"] | {"data_offsets": [0, 24]}
    yield "places exchanged", raw(swapped), LAYOUT


def names() -> Iterator[tuple[str, bytes, str]]:
    header = header_of()
    entry = header.pop("network/linear1.weight")
    for name in (
        *("", " ", ".", "..", "/", "//", "../x", "/etc/passwd", "network/", "network//w", "/network/w", "network/../w"),
        *(
            "network/w\0",
            "network/w\n",
            "network/ w",
            "network\\w",
            "network/\u202ew",
            "nеtwork/w",
            "network/é",
            "C:/w",
        ),
        *(
            "network/" + "a" * 500,
            "network/" + "a/" * 1000 + "a",
            "network/.w",
            "network/-w",
            "network/w$(id)",
            "network/w;",
        ),
    ):
        yield f"name {name[:20]!r}", raw(header | {name: entry}), "the name of a tensor must have letters"
    for name in ("w", "other/w", "Network/w", "optimizer/w", "networks/w", "__class__", "config.json", "a" * 500):
        yield f"name {name[:20]!r}", raw(header | {name: entry}), "unknown group"
    for name in ("network/other", "network/linear1.Weight", "encoding/linear1.weight", "network/linear1.weight.x"):
        yield f"name {name!r}", raw(header | {name: entry}), "damaged: its content"


def entries() -> Iterator[tuple[str, bytes, str]]:
    name = "network/linear1.weight"
    for value in (None, [], "F32", 0, True, [1, 2]):
        yield f"entry {value!r}", raw(header_of() | {name: value}), "must be a JSON object"
    for key in ("dtype", "shape", "data_offsets"):
        yield f"no {key}", with_tensor(**{key: ...}), f"the key '{key}' is missing"
    for key in ("Dtype", "offset", "file", "external_data", "__reduce__", "strides"):
        yield f"also {key}", with_tensor(**{key: 1}), f"unknown key '{key}'"
    yield "an empty entry", raw(header_of() | {name: {}}), "is missing"


def archives(marker: str) -> Iterator[tuple[str, bytes]]:
    """Yield pickles, and archives of pickles, that create a file if their own loader reads them."""
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        yield f"pickle {protocol}", pickle.dumps(Payload(marker), protocol)
        yield f"pickle {protocol} in a list", pickle.dumps({"state_dict": [Payload(marker)]}, protocol)
    yield "gzip", gzip.compress(pickle.dumps(Payload(marker)), mtime=0)
    npy = io.BytesIO()
    np.save(npy, np.array([Payload(marker)], dtype=object), allow_pickle=True)
    yield "npy", npy.getvalue()
    npz = io.BytesIO()
    np.savez(npz, a=np.array([Payload(marker)], dtype=object))
    yield "npz", npz.getvalue()
    torch = io.BytesIO()
    with zipfile.ZipFile(torch, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Payload(marker), 2))
        archive.writestr("archive/version", "3\n")
    yield "torch zip", torch.getvalue()
    yield "torch legacy", pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(Payload(marker), 2)
    yield "json", json.dumps({"py/reduce": [{"py/function": "builtins.open"}, {"py/tuple": [marker, "w"]}]}).encode()
    yield "a pickle behind a length", struct.pack("<Q", 200) + pickle.dumps(Payload(marker)).ljust(200)
    yield "a pickle as header", raw(pickle.dumps(Payload(marker)))
    yield "a zip behind a model", GOOD + torch.getvalue()


def foreign() -> Iterator[tuple[str, bytes, str]]:
    for name, data in archives("/nonexistent/marker"):
        yield name, data, "not a model file|bytes left over|at least 8|cut short"
    for name, data in (
        ("PNG", b"\x89PNG\r\n\x1a\n" + b"\0" * 100),
        ("ELF", b"\x7fELF\2\1\1" + b"\0" * 100),
        ("HDF5", b"\x89HDF\r\n\x1a\n" + b"\0" * 100),
        ("HTML", b"<!doctype html><script>alert(1)</script>"),
        ("CSV", b"a,b,c\n1,2,3\n"),
        ("a script", b"#!/bin/sh\nrm -rf /\n"),
        ("Parquet", b"PAR1" + b"\0" * 100 + b"PAR1"),
        ("ONNX", b"\x08\x07\x12\x07pytorch" + b"\0" * 100),
        ("GGUF", b"GGUF\3\0\0\0" + b"\0" * 100),
        ("JSON", b'{"format":"multilayer-spec","version":1}'),
        ("LFS pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"),
        ("text", "Übung macht den Meister".encode()),
        ("random", random.Random(0).randbytes(4096)),
        ("ones", b"\xff" * 4096),
    ):
        yield name, data, "not a model file|cut short"


def flips(count: int = 400, seed: int = 0) -> Iterator[tuple[str, bytes, str]]:
    """Yield files with a single changed bit. Each is detected by its structure or by the hash."""
    generator = random.Random(seed)
    for place in sorted(generator.sample(range(len(GOOD) * 8), min(count, len(GOOD) * 8))):
        changed = bytearray(GOOD)
        changed[place // 8] ^= 1 << place % 8
        yield f"bit {place % 8} of byte {place // 8}", bytes(changed), "model file: "


CATEGORIES = {
    "lengths": lengths,
    "truncations": truncations,
    "headers": headers,
    "metadata": metadata,
    "about": about,
    "dtypes": dtypes,
    "shapes": shapes,
    "offsets": offsets,
    "names": names,
    "entries": entries,
    "foreign": foreign,
    "flips": flips,
}


def seconds_to_refuse(name: str, data: bytes) -> float:
    """Return the processor time to reject a file; for slow files the best of three, because of other processes."""
    best = math.inf
    for _ in range(3):
        start = time.process_time()
        try:
            tensor_file.decode(data)
            raise SystemExit(f"{name} was accepted")
        except FileError:
            best = min(best, time.process_time() - start)
        if best < 0.5:
            break
    return best


def limited() -> dict[str, Any]:
    """Load all files with limited memory. Return the number of rejected files and the longest time."""
    import resource

    with open("/proc/self/statm") as about:
        now = int(about.read().split()[0]) * resource.getpagesize()
    limit = now + (256 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    slowest, refused = 0.0, 0
    for category in CATEGORIES.values():
        for name, data, _ in category():
            refused += 1
            slowest = max(slowest, seconds_to_refuse(name, data))
    return {"refused": refused, "slowest": slowest}


if __name__ == "__main__":
    json.dump(limited(), sys.stdout)
