"""Pipes, devices, compressed files larger than memory and invalid Unicode give a typed error."""

from __future__ import annotations

import errno
import gzip
import io
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.ipc as ipc
import pyarrow.parquet as parquet
import pytest
from typer.testing import CliRunner

import multilayer as ml
from multilayer import MLPClassifier
from multilayer.cli.main import app
from multilayer.data import arrays, arrow_files, read, readers, text_files
from multilayer.errors import DataError, MultilayerError, StorageError
from support.quick_estimators import QUICK

HALF = "a\ud800"
Y = np.arange(40) % 2


@pytest.fixture
def special(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    os.mkfifo(tmp_path / "pipe.csv")
    with monkeypatch.context() as inside, socket.socket(socket.AF_UNIX) as made:
        inside.chdir(tmp_path)  # the path of a socket may have about 100 characters
        made.bind("socket.csv")
    return {
        "a pipe": str(tmp_path / "pipe.csv"),
        "a device": "/dev/zero",
        "a socket": str(tmp_path / "socket.csv"),
    }


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    run = ml.fit("1-2-1", (np.arange(40.0)[:, None], Y), epochs=1, quiet=True)
    assert run.model is not None
    run.model.save(folder / "model.safetensors")
    return str(folder / "model.safetensors")


@pytest.mark.parametrize("kind", ["a pipe", "a device", "a socket"])
def test_pipes_devices_and_sockets_are_rejected_before_they_are_read(
    kind: str, special: dict[str, str], model: str
) -> None:
    path = special[kind]
    calls = [
        ["train", path, "--target", "y"],
        ["train", "iris", "--config", path],
        ["train", "iris", "--validation", path],
        ["predict", model, path],
        ["predict", path, "iris"],
        ["evaluate", model, path],
    ]
    for call in calls:
        done = CliRunner().invoke(app, call)
        assert done.exit_code == 2, done.output
        assert f"it is not a regular file but {kind}: give the path of a file" in " ".join(done.stderr.split())
    for read_it in (lambda: read(path), lambda: ml.load(path)):
        with pytest.raises(StorageError, match=f"not a regular file but {kind}"):
            read_it()


def test_an_option_file_with_deeply_nested_brackets_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "deep.toml").write_text("x = " + 5000 * "[")
    done = CliRunner().invoke(app, ["train", "iris", "--config", str(tmp_path / "deep.toml")])
    assert done.exit_code == 2
    assert "brackets are nested too deeply" in " ".join(done.stderr.split())


def test_an_option_file_with_a_number_of_thousands_of_digits_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(f"epochs = 1{5000 * '0'}")
    done = CliRunner().invoke(app, ["train", "iris", "--config", str(tmp_path / "long.toml")])
    assert done.exit_code == 2
    assert "long.toml is not TOML: Exceeds the limit" in " ".join(done.stderr.split())


# Files that are larger than they look


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (readers, arrays, arrow_files):
        monkeypatch.setattr(module, "available_memory", lambda: 1 << 20)


@contextmanager
def counted_memory() -> Iterator[pa.MemoryPool]:
    """Yield a memory pool that records the peak memory that Arrow allocates inside the block."""
    usual = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(counted)
    try:
        yield counted
    finally:
        pa.set_memory_pool(usual)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("line", [b"1,0\n" * 100_000, b"1" * 400_000, b"0" * 400_000 + b",1\n"])
def test_a_gzipped_file_that_memory_cannot_hold_is_rejected(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(b"a,y\n" + line))
    said = rf"bomb.csv.gz: has {path.stat().st_size:,} bytes and decompresses to at least 400,\d+ bytes, more than the "
    with pytest.raises(DataError, match=rf"{said}262,144 that fit in the available memory: split the file"):
        read(path)
    path.with_name("plain.csv").write_bytes(b"a,y\n" + line)
    with pytest.raises(DataError, match=r"plain.csv: holds 400,\d+ bytes, more than the 262,144"):
        read(path.with_name("plain.csv"))


@pytest.mark.usefixtures("little_memory")
def test_parquet_arrow_and_npz_files_larger_than_memory_are_rejected(tmp_path: Path) -> None:
    table = pa.table({"a": np.zeros(200_000), "y": np.zeros(200_000)})
    parquet.write_table(table, tmp_path / "t.parquet")
    feather.write_feather(table, tmp_path / "t.feather", compression="zstd")
    feather.write_feather(table, tmp_path / "chunks.feather", compression="lz4", chunksize=10_000)
    with ipc.new_stream(tmp_path / "t.arrows", table.schema, options=ipc.IpcWriteOptions(compression="zstd")) as out:
        out.write_table(table)
    words = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), ["x" * 4_000_000])
    feather.write_feather(pa.table({"a": words}), tmp_path / "category.feather", compression="zstd")
    np.savez_compressed(tmp_path / "t.npz", X=np.zeros((200_000, 2)))
    for name in ("t.parquet", "t.feather", "chunks.feather", "t.arrows", "category.feather", "t.npz"):
        assert (tmp_path / name).stat().st_size < 100_000
        said = rf"{name}: decompresses to .* fit in the available memory"
        with counted_memory() as counted, pytest.raises(DataError, match=said):
            read(tmp_path / name)
        assert counted.max_memory() < 1 << 20, name


@pytest.mark.usefixtures("little_memory")
def test_a_parquet_file_of_repeated_text_that_memory_cannot_hold_is_rejected(tmp_path: Path) -> None:
    """Each value is stored once, so the size of the table follows neither from the file size nor from the metadata."""
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"a": ["x" * 1000] * 10_000, "y": [0, 1] * 5_000}), path)
    assert path.stat().st_size < 20_000
    with pytest.raises(DataError, match=r"t.parquet: decompresses to at least 10,\d+,\d+ bytes, more than the 262,144"):
        read(path)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
def test_a_parquet_file_of_a_long_text_in_many_rows_is_rejected_before_it_is_decoded(kind: Any, tmp_path: Path) -> None:
    """2,000 rows of 100,000 characters fit in one batch of a file of less than 2,000 bytes."""
    long = pa.array(["x" * 100_000]).cast(kind)
    rows = pa.DictionaryArray.from_arrays(pa.array(np.zeros(2000, dtype="int32")), long)
    parquet.write_table(pa.table({"a": rows}), tmp_path / "t.parquet", store_schema=False, compression="zstd")
    assert (tmp_path / "t.parquet").stat().st_size < 2000
    with (
        counted_memory() as counted,
        pytest.raises(DataError, match=r"t.parquet: decompresses to at least 200,\d+,\d+ bytes, more than the 262,144"),
    ):
        read(tmp_path / "t.parquet")
    assert 0 < counted.max_memory() < 100_000_000


@pytest.mark.usefixtures("little_memory")
def test_categories_of_long_texts_that_memory_cannot_hold_are_rejected(tmp_path: Path) -> None:
    """Each category is in memory once, but the rows are encoded from the strings."""
    rows = pa.DictionaryArray.from_arrays(pa.array(np.zeros(2000, dtype="int8")), ["x" * 100_000])
    table = pa.table({"a": rows, "y": [0, 1] * 1000})
    parquet.write_table(table, tmp_path / "t.parquet")
    feather.write_feather(table, tmp_path / "t.feather")
    for name in ("t.parquet", "t.feather"):
        with pytest.raises(DataError, match=rf"{name}: decompresses to (at least )?200,\d+,\d+ bytes, more than the"):
            read(tmp_path / name)


@pytest.mark.parametrize("compression", ["zstd", "lz4", "uncompressed"])
def test_compressed_tables_that_fit_in_memory_are_read(
    compression: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_files, "available_memory", lambda: 16 << 20)
    words = ["a", None, "long " * 20] * 10_000
    table = pa.table(
        {
            "number": np.arange(30_000.0),
            "text": words,
            "large": pa.array(words, pa.large_string()),
            "category": pa.array(words).dictionary_encode(),
            "flag": pa.array([True, False, None] * 10_000),
            "nothing": pa.nulls(30_000),
        }
    )
    feather.write_feather(table, tmp_path / "t.feather", compression=compression, chunksize=7000)
    packed = "none" if compression == "uncompressed" else compression
    parquet.write_table(table, tmp_path / "t.parquet", compression=packed)
    for name in ("t.feather", "t.parquet"):
        assert {key: column.to_pylist() for key, column in read(tmp_path / name).columns.items()} == table.to_pydict()


def test_a_read_error_of_the_system_gives_a_storage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(readers.atomic_files, "opened", lambda path: Broken())
    (tmp_path / "t.csv").write_text("a,y\n1,0\n")
    with pytest.raises(StorageError, match=r"cannot read .*t.csv \(EIO\): the disk reports a fault"):
        read(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("name", "data", "line"),
    [
        ("one.csv", b"1" * 2000, 1),
        ("second.csv", b"a,y\n" + b"1" * 2000, 2),
        ("last.csv", b"a,y\n" + b"1,0\n" * 500 + b'1,"' + b"1" * 2000, 502),
        ("text.jsonl", b'{"a": "' + b"1" * 2000 + b'"}\n', 1),
    ],
)
def test_a_very_long_line_is_rejected_before_parsing(
    name: str, data: bytes, line: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_files, "LONGEST_LINE", 1000)
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=f"{name}: line {line}: a line must have at most 1,000 bytes, got more"):
        read(tmp_path / name)
    (tmp_path / "fits.csv").write_bytes(b"a,y\r" + b"1,0\r" * 500)
    assert len(read(tmp_path / "fits.csv")) == 500


def test_more_columns_than_fit_in_memory_are_rejected_before_parsing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_files, "available_memory", lambda: 1 << 20)
    for n in (10, 200):
        (tmp_path / f"{n}.csv").write_text(",".join(f"c{i}" for i in range(n)) + "\n" + ",".join("1" * n) + "\n")
    with pytest.raises(DataError, match=r"200.csv: has 200 columns, which need at least .* bytes, more than"):
        read(tmp_path / "200.csv")
    assert len(read(tmp_path / "10.csv").names) == 10


def test_a_gzipped_file_that_fits_is_read(tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a,y\n") + gzip.compress(b"1,0\n2,1\n"))
    assert read(tmp_path / "t.csv.gz").column("a").to_pylist() == [1, 2]


# Half of a surrogate pair

FRAME = pd.DataFrame({"a": np.arange(40.0), "y": Y})
OBJECTS = pd.Series([HALF, "b"] * 20, dtype=object)


def fit(*args: Any, **options: Any) -> Any:
    return ml.fit(*args, epochs=1, quiet=True, **options)


HALVES: dict[str, Any] = {
    "dictionary": lambda folder: fit(None, {"a": [HALF] * 40, "y": Y.tolist()}, target="y"),
    "rows": lambda folder: fit(None, [{"a": HALF, "y": 1}, {"a": "b", "y": 0}] * 20, target="y"),
    "list": lambda folder: fit(None, ([[HALF, 1.0], ["b", 2.0]] * 20, Y)),
    "frame": lambda folder: fit(None, (pd.DataFrame({"a": OBJECTS}), Y)),
    "category": lambda folder: fit(None, (pd.DataFrame({"a": pd.Categorical(OBJECTS)}), Y)),
    "column": lambda folder: fit(None, {HALF: np.arange(40.0), "y": Y}, target="y"),
    "estimator": lambda folder: MLPClassifier(**QUICK).fit(pd.DataFrame({"a": OBJECTS}), Y),
    "array": lambda folder: MLPClassifier(**QUICK).fit(OBJECTS.to_numpy()[:, None], Y),
    "labels of an estimator": lambda folder: MLPClassifier(**QUICK).fit(FRAME[["a"]], OBJECTS.to_numpy()),
    "labels": lambda folder: fit(None, (FRAME[["a"]], OBJECTS.tolist())),
    "classes": lambda folder: fit(None, (FRAME[["a"]], ["a", "b"] * 20), classes=[HALF, "b"]),
    "target": lambda folder: fit(None, FRAME, target=HALF),
    "categorical": lambda folder: fit(None, FRAME, target="y", categorical=HALF),
    "loss": lambda folder: fit(None, FRAME, target="y", loss=HALF),
    "run": lambda folder: fit("1-2-1", FRAME, target="y", run=folder / HALF),
    "file": lambda folder: fit(None, folder / f"{HALF}.csv", target="y"),
    "model": lambda folder: ml.load(folder / HALF),
    "prediction": lambda folder: fit("1-2-1", FRAME, target="y").model.predict([{"a": HALF}]),
}


@pytest.mark.parametrize("place", HALVES)
def test_half_of_a_surrogate_pair_is_rejected(place: str, tmp_path: Path) -> None:
    with pytest.raises(MultilayerError, match=r"surrogate pair|unknown|no such file"):
        HALVES[place](tmp_path)


def test_a_command_with_arguments_that_are_not_utf_8(tmp_path: Path) -> None:
    for call in (["train", "iris", "--target", HALF], ["train", f"{HALF}.csv"], ["predict", HALF, "iris"]):
        done = CliRunner().invoke(app, call)
        assert done.exit_code == 2
        assert "Traceback" not in done.output
