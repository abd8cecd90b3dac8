"""Model files: saved content is read back, equal content gives equal bytes, other files are errors (R7, R8, R15)."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import multilayer as ml
from multilayer.core import canonical_json, tensor_file
from multilayer.errors import FileError, MultilayerError, StorageError
from multilayer.runs import RunFolder
from support import malformed_files, malformed_models
from support.long_tests import FULL
from support.malformed_files import GOOD, META, TENSORS, data_of, header_of, raw
from support.models import with_tensors

Tried = Callable[[str, int], None]

GOLDEN = Path(__file__).parents[1] / "golden"
DTYPES = ["<f8", "<f4", "<f2", "<i8", "<i4", "<i2", "|i1", "<u8", "<u4", "<u2", "|u1", "|b1"]


def same(a: tensor_file.Tensors, b: tensor_file.Tensors) -> bool:
    return list(a) == list(b) and all(
        a[name].dtype == b[name].dtype and a[name].shape == b[name].shape and a[name].tobytes() == b[name].tobytes()
        for name in a
    )


# Saving and loading


def test_a_file_is_read_back(tmp_path: Path) -> None:
    sha256 = tensor_file.save(tmp_path / "m.safetensors", TENSORS, META)
    data = (tmp_path / "m.safetensors").read_bytes()
    assert data == GOOD
    assert sha256 == hashlib.sha256(data).hexdigest()
    tensors, about = tensor_file.load(tmp_path / "m.safetensors", sha256=sha256)
    assert same(tensors, dict(sorted(TENSORS.items())))
    assert about == META | {"kind": "model", "version": 1}
    assert all(array.flags.writeable and array.flags.aligned for array in tensors.values())
    assert tensor_file.encode(tensors, about) == data


NAMES = st.from_regex(r"\A(network|encoding|calibration)/[a-z0-9_][a-z0-9_.\-]{0,8}\Z")
ARRAYS = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(np.dtype(dtype), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text('aü[{\\"'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab}", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(NAMES, ARRAYS, max_size=5), JSON, st.randoms())
def test_any_content_survives_and_its_order_does_not_matter(
    tensors: dict[str, Any], spec: Any, shuffled: random.Random
) -> None:
    meta = META | {"spec": spec}
    data = tensor_file.encode(tensors, meta)
    found, about = tensor_file.decode(data)
    assert same(found, dict(sorted(tensors.items())))
    assert canonical_json.dumps(about) == canonical_json.dumps(meta | {"kind": "model", "version": 1})
    names, keys = list(tensors), list(meta)
    shuffled.shuffle(names)
    shuffled.shuffle(keys)
    assert tensor_file.encode({name: tensors[name] for name in names}, {key: meta[key] for key in keys}) == data


def test_the_memory_layout_does_not_matter() -> None:
    """Transposed, strided, reversed and big-endian arrays with equal numbers give equal bytes."""
    wide = np.arange(24.0).reshape(4, 6)
    for array in (wide.T, wide[::2, ::3], wide[::-1], wide.astype(">f8"), np.asfortranarray(wide)):
        plain = np.array(array, dtype="<f8", order="C")
        assert tensor_file.encode({"network/w": array}, META) == tensor_file.encode({"network/w": plain}, META)
        assert same(tensor_file.decode(tensor_file.encode({"network/w": array}, META))[0], {"network/w": plain})


def test_the_safetensors_library_reads_it(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    tensor_file.save(tmp_path / "m.safetensors", TENSORS, META)
    assert same(dict(sorted(load_file(tmp_path / "m.safetensors").items())), dict(sorted(TENSORS.items())))


@pytest.mark.parametrize(
    ("tensors", "meta", "message"),
    [
        ({"w": np.zeros(1)}, META, "unknown group 'w'"),
        ({"network/../w": np.zeros(1)}, META, "the name of a tensor must have letters"),
        ({"__metadata__": np.zeros(1)}, META, "unknown group '__metadata__'"),
        ({"network/w": np.array(["a"])}, META, "must hold numbers of one of the types"),
        ({"network/w": np.array([object()])}, META, "must hold numbers of one of the types"),
        ({"network/w": np.zeros(1, complex)}, META, "got complex128"),
        ({"network/w": np.zeros(1, np.longdouble)}, META, "must hold numbers"),
        ({"network/w": np.zeros(1, "M8[s]")}, META, "must hold numbers"),
        ({"network/w": np.zeros(1, [("a", "f4")])}, META, "must hold numbers"),
        ({"network/w": np.zeros((1,) * 9)}, META, "at most 8 dimensions"),
        ({}, {}, "a model to be saved: the key 'encoding' is missing"),
        ({}, META | {"tiem": 1}, "unknown key 'tiem'"),
        ({}, META | {"sha256": "x"}, "unknown key 'sha256'"),
        ({}, META | {"kind": "checkpoint"}, "a model is needed, got the kind 'checkpoint'"),
        ({}, META | {"version": 2}, "version must be at most 1, got 2"),
        ({}, META | {"loss": float("nan")}, "saved as JSON"),
        ({}, META | {"loss": {1: 2}}, "keys of JSON to be saved must be strings, got 1"),
        ({}, META | {"loss": "x" * (1 << 22)}, "at most 4,194,304 bytes of header"),
    ],
)
def test_content_that_cannot_be_saved_is_an_error(tmp_path: Path, tensors: Any, meta: Any, message: str) -> None:
    with pytest.raises(FileError, match=message):
        tensor_file.save(tmp_path / "m", tensors, meta)
    assert not os.listdir(tmp_path)


def test_a_file_of_another_kind_is_an_error(tmp_path: Path) -> None:
    tensor_file.save(
        tmp_path / "c", {"counters": np.zeros(2)}, {"extra": {}, "purpose": "last", "step": 1}, kind="checkpoint"
    )
    with pytest.raises(FileError, match="unknown group 'counters'"):
        tensor_file.load(tmp_path / "c")
    tensor_file.save(tmp_path / "m", {}, META)
    with pytest.raises(FileError, match="a checkpoint is needed, got the kind 'model'"):
        tensor_file.load(tmp_path / "m", kind="checkpoint")


def test_paths_that_are_not_files_are_errors(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("none", ".", "pipe", "/dev/zero", "\0"):
        with pytest.raises(StorageError, match="cannot read"):
            tensor_file.load(tmp_path / name)
    tensor_file.save(tmp_path / "m", TENSORS, META)
    with pytest.raises(FileError, match=r"m: damaged: its SHA-256 differs from the one recorded"):
        tensor_file.load(tmp_path / "m", sha256="0" * 64)


def test_a_file_larger_than_memory_is_an_error_at_once(tmp_path: Path) -> None:
    """The file is sparse: it has a terabyte, takes no space on the disk, and its header is valid."""
    path = tmp_path / "m"
    size = 1 << 40
    path.write_bytes(raw({"network/w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}, b""))
    os.truncate(path, size)
    start = time.monotonic()
    with pytest.raises(StorageError, match="bytes are allowed, the file has 1,099,511,627,776"):
        tensor_file.load(path)
    assert time.monotonic() - start < 1


# R7


@pytest.mark.parametrize("category", malformed_files.CATEGORIES)
def test_malformed_files(category: str, tried: Tried) -> None:
    count = 0
    for name, data, message in malformed_files.CATEGORIES[category]():
        with pytest.raises(FileError) as caught:
            tensor_file.decode(data, where="model file")
        text = str(caught.value)
        assert text.startswith("model file: "), (name, text)
        assert re.search(message, text), (name, text)
        assert len(text) < 1500, name
        assert "\n" not in text, name
        count += 1
    tried(f"R7: malformed model files, {category}", count)
    assert count >= 10


def test_loading_a_model_with_invalid_content_is_an_error(tmp_path: Path, tried: Tried) -> None:
    """The hash is correct. NaN weights would predict the first class for every row."""
    count = 0
    for name, data, message in malformed_models.meanings():
        (tmp_path / "model.safetensors").write_bytes(data)
        with pytest.raises(FileError) as caught:
            ml.load(tmp_path / "model.safetensors")
        text = str(caught.value)
        assert text.startswith(str(tmp_path / "model.safetensors")), (name, text)
        assert re.search(message, text), (name, text)
        assert len(text) < 1000, name
        count += 1
    tried("R7: model files with a correct hash and no meaning", count)
    assert count >= 200


def test_saving_a_model_with_weights_that_are_not_finite(tmp_path: Path) -> None:
    model = ml.fit("1-1", (np.arange(20.0)[:, None], np.arange(20.0)), epochs=1, quiet=True).model
    assert model is not None
    spoilt = with_tensors(model, lambda _, value: np.full_like(value, np.nan))
    for action in (lambda: spoilt.save(tmp_path / "m.safetensors"), spoilt.to_bytes):
        with pytest.raises(FileError, match=r"the model: linear1\.\w+ must be finite, got nan"):
            action()
    assert not (tmp_path / "m.safetensors").exists()


def test_malformed_files_with_little_memory(tried: Tried) -> None:
    done = subprocess.run([sys.executable, malformed_files.__file__], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["slowest"] < 1
    assert found["refused"] >= 300 + 400
    tried("R7: malformed model files, 256 MB of memory, none over 1 s", found["refused"])


def test_every_single_bit(tried: Tried) -> None:
    """Every changed bit of a file is detected."""
    count = 0
    for name, data, _ in malformed_files.flips(len(GOOD) * 8 if FULL else 1000, seed=1):
        with pytest.raises(FileError):
            pytest.fail(f"{name} was accepted: {tensor_file.decode(data)[1]}")
        count += 1
    tried("R7: single bits of a model file", count)


HOSTILE: list[Any] = [
    *(None, True, -1, 0, 1, 1.5, 2**31, 2**53, 2**63, 2**64, 10**100, "", "\0", "F32", "U8", "\ud83d\ude00"),
    *([], [[]], [0, 0], [0, 2**63], {}, {"a": {}}, "a" * 1000, "../", "network/w"),
]


def mutated(generator: random.Random) -> bytes:
    """Return a file with small changes of bytes, pieces, header values or lengths."""
    data = bytearray(GOOD)
    for _ in range(generator.choice((1, 1, 2, 5))):
        way = generator.randrange(6)
        place = generator.randrange(len(data) + 1)
        if way == 0 and data:
            data[min(place, len(data) - 1)] = generator.randrange(256)
        elif way == 1:
            data[place:place] = generator.randbytes(generator.choice((1, 8, 100)))
        elif way == 2:
            del data[place : place + generator.choice((1, 8, 100))]
        elif way == 3:
            piece = data[place : place + generator.randrange(60)]
            data[generator.randrange(len(data) + 1) :][:0] = piece
            data += piece
        elif way == 4:
            data[:8] = struct.pack(
                "<Q", generator.choice((0, 1, len(data), 2**22, 2**32, 2**63, generator.randrange(2000)))
            )
        else:
            header = header_of()
            name = generator.choice(list(header))
            field = generator.choice(list(header[name]))
            header[name][field] = generator.choice(HOSTILE)
            if generator.random() < 0.3:
                header[generator.choice(("network/w", "", "__metadata__", "encoding/edges"))] = generator.choice(
                    HOSTILE
                )
            data = bytearray(raw(header, data_of()))
    return bytes(data)


def test_fuzz(tried: Tried) -> None:
    generator = random.Random(0)
    good = dict(sorted(TENSORS.items()))
    count = 500_000 if FULL else 20_000
    accepted = 0
    for _ in range(count):
        data = mutated(generator)
        try:
            tensors, about = tensor_file.decode(data)
        except FileError:
            continue
        # An accepted file has the original content.
        accepted += 1
        assert same(tensors, good)
        assert about == META | {"kind": "model", "version": 1}
    tried("R7: mutated model files", count)
    assert accepted < count / 50


@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    for content in (data, raw(data), raw(b"{" + data + b"}"), raw(header_of(), data)):
        if content != GOOD:
            with pytest.raises(FileError):
                tensor_file.decode(content)


# R8


EXTENSIONS = (
    ".pt",
    ".pth",
    ".pkl",
    ".pickle",
    ".joblib",
    ".safetensors",
    ".npy",
    ".npz",
    ".json",
    ".bin",
    ".ckpt",
    ".h5",
    "",
)


def test_pickle_runs_the_payloads(tmp_path: Path) -> None:
    """Check that the payloads of the next test work with pickle."""
    import pickle

    marker = tmp_path / "ran"
    payloads = dict(malformed_files.archives(str(marker)))
    pickle.loads(payloads["pickle 4"]).close()
    assert marker.exists()


def test_no_payload_runs_under_any_extension(tmp_path: Path, tried: Tried) -> None:
    marker = tmp_path / "ran"
    count = 0
    for name, data in malformed_files.archives(str(marker)):
        for extension in EXTENSIONS:
            path = tmp_path / f"model{extension}"
            path.write_bytes(data)
            for kind in ("model", "checkpoint"):
                with pytest.raises(FileError):
                    tensor_file.load(path, kind=kind)
                assert not marker.exists(), (name, extension)
            count += 1
    tried("R8: pickle payloads under every extension", count)
    assert count >= 20 * len(EXTENSIONS)


def test_no_payload_runs_in_a_run_folder(tmp_path: Path, tried: Tried) -> None:
    from support import crash_saves

    marker = tmp_path / "ran"
    crash_saves.perform(
        tmp_path / "run", [crash_saves.Do("create"), crash_saves.Do("last", 1), crash_saves.Do("event", 1)]
    )
    count = 0
    for name, data in malformed_files.archives(str(marker)):
        for file in sorted((tmp_path / "run").rglob("*")):
            if not file.is_file():
                continue
            whole = file.read_bytes()
            file.write_bytes(data)
            for read in (
                lambda: RunFolder.open(tmp_path / "run").latest(),
                lambda: RunFolder.open(tmp_path / "run").events(),
            ):
                with contextlib.suppress(MultilayerError):
                    read()
                assert not marker.exists(), (name, file)
            file.write_bytes(whole)
            count += 1
    tried("R8: pickle payloads in a run folder", count)


def test_a_payload_in_a_tensor_does_not_run(tmp_path: Path) -> None:
    """The tensor of a valid model file is a pickle. It is loaded as numbers."""
    marker = tmp_path / "ran"
    for _, data in malformed_files.archives(str(marker)):
        tensors, _ = tensor_file.decode(
            tensor_file.encode({"network/w": np.frombuffer(data, np.uint8)}, META | {"loss": data.hex()})
        )
        assert tensors["network/w"].tobytes() == data
        assert not marker.exists()


def test_the_package_never_loads_code_from_data() -> None:
    """test_layout forbids imports of pickle. This test forbids arguments that allow it."""
    for path in Path(ml.__file__).parent.rglob("*.py"):
        text = path.read_text()
        for way in (r"weights_only\s*=\s*False", r"allow_pickle\s*=\s*True", r"trust_remote_code", r"torch\.load\("):
            assert not re.search(way, text), f"{path}: {way}"


# R15


def load_script(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("golden_write", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_golden_model_files_load() -> None:
    written = load_script(GOLDEN / "write.py")
    found = sorted(GOLDEN.glob("model-v*.safetensors"))
    assert [path.name for path in found] == [
        f"model-v{v + 1}.safetensors" for v in range(tensor_file.FORMS["model"].version)
    ]
    tensors, meta = written.model()
    for path in found:
        read, about = tensor_file.load(path)
        assert same(read, dict(sorted(tensors.items())))
        assert about["spec"] == meta["spec"]
        assert about["encoding"] == meta["encoding"]
        assert ml.Spec.from_dict(about["spec"]) == ml.Spec.parse("2-3:tanh-1")
    # The newest equals a file written now: equal content gives equal bytes, also with other versions of libraries.
    assert tensor_file.encode(tensors, meta) == found[-1].read_bytes()


def test_golden_runs_load(tmp_path: Path) -> None:
    written = load_script(GOLDEN / "write.py")
    found = sorted(GOLDEN.glob("run-v*"))
    assert len(found) == tensor_file.FORMS["checkpoint"].version
    for path in found:
        copy = tmp_path / path.name
        shutil.copytree(path, copy)
        copy.chmod(0o555)
        run = RunFolder.open(copy)
        assert run.config == {"seed": 1, "name": "größe"}
        assert [event.step for event in run.events()] == [0, 10, 10, 20]
        for loaded, step in ((run.latest(), 20), (run.best(), 10)):
            assert loaded is not None
            assert loaded.state.equals(written.state(step))
            assert loaded.extra == written.EXTRA
            assert loaded.notes == ()
        copy.chmod(0o755)
        assert sorted(os.listdir(copy)) == ["checkpoints", "config.json", "events.jsonl"]
