"""Every source of rows gives the same table."""

from __future__ import annotations

import gzip
import io
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather as feather
import pyarrow.parquet as parquet
import pytest
import scipy.sparse as sparse

from multilayer.data import bundled, read, readers
from multilayer.data.table import from_numpy, from_texts, to_numpy
from multilayer.errors import DataError, OptionError
from support.training_rows import prepare

COLUMNS: dict[str, Any] = {
    "age": [31.5, 20.0, 44.25, 18.0, 60.0, 27.5],
    "pets": [0, 2, 1, 0, 3, 1],
    "city": ["Rome", "Oslo", "Rome", "Bonn", "Oslo", "Bonn"],
    "out": ["no", "yes", "yes", "no", "yes", "no"],
}
TABLE = pa.table(COLUMNS)


def numbers(source: Any, **options: Any) -> tuple[Any, ...]:
    ready = prepare(source, **options)
    return ready.data.x[:].tobytes(), np.asarray(ready.data.codes).tobytes(), ready.data.y.tobytes()


def files(folder: Path) -> dict[str, Path]:
    pa_csv.write_csv(TABLE, folder / "t.csv")
    (folder / "t.csv.gz").write_bytes(gzip.compress((folder / "t.csv").read_bytes()))
    (folder / "t.tsv").write_text((folder / "t.csv").read_text().replace(",", "\t"))
    parquet.write_table(TABLE, folder / "t.parquet")
    feather.write_feather(TABLE, str(folder / "t.feather"))
    with pa.ipc.new_stream(str(folder / "t.arrow"), TABLE.schema) as writer:
        writer.write_table(TABLE)
    pd.DataFrame(COLUMNS).to_json(folder / "t.jsonl", orient="records", lines=True)
    return {path.name: path for path in sorted(folder.iterdir())}


def test_every_file_gives_the_same_numbers(tmp_path: Path) -> None:
    expected = numbers(TABLE, target="out")
    found = files(tmp_path)
    assert len(found) == 7
    for path in found.values():
        assert numbers(path, target="out") == expected, path
        assert numbers(str(path), target="out") == expected, path


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame(COLUMNS),
        pl.DataFrame(COLUMNS),
        pl.LazyFrame(COLUMNS),
        TABLE,
        TABLE.to_batches()[0],
        COLUMNS,
        TABLE.to_pylist(),
        pd.DataFrame(COLUMNS).astype({"city": "category", "out": "category"}),
    ],
    ids=lambda frame: type(frame).__module__ + "." + type(frame).__name__,
)
def test_every_frame_gives_the_same_numbers(frame: Any) -> None:
    assert numbers(frame, target="out") == numbers(TABLE, target="out")


def wide_frames(kind: str) -> list[Any]:
    """The same columns of one type, some of which vary, are constant, count the rows, or are missing in part or all."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(60, readers.WIDE)) * 100
    if kind == "float64":
        values[:, 1], values[::7, 2], values[1::2, 3] = np.nan, np.nan, np.nan
    values[:, 4], values[:, 5] = 3, np.arange(60)
    names = [f"c{i}" for i in range(readers.WIDE)]
    names[5] = "id"
    whole = values.astype(kind)
    if kind == "int64":
        whole[:, 6] = 2**60 + np.arange(60) % 3
    frame = pd.DataFrame(whole, columns=names)
    nullable = frame.astype("Float64" if kind.startswith("float") else "Int64")
    return [frame, pl.from_pandas(frame), pl.from_pandas(nullable), nullable]


@pytest.mark.parametrize("kind", ["float64", "float32", "int64", "uint8"])
def test_wide_frames_of_one_type_are_read_as_a_block_to_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    y = np.arange(60) % 2
    for frame in wide_frames(kind):
        with monkeypatch.context() as narrow:
            narrow.setattr(readers, "WIDE", sys.maxsize)
            apart, one_by_one = read(frame), prepare((frame, y))
            assert apart.matrix is None
        block, together = read(frame), prepare((frame, y))
        assert block.names == apart.names
        assert together.encoding.to_parts()[0] == one_by_one.encoding.to_parts()[0]
        assert together.notes == one_by_one.notes
        for name in ("center", "scale", "fill"):
            np.testing.assert_array_equal(getattr(together.encoding, name), getattr(one_by_one.encoding, name))
        np.testing.assert_array_equal(together.data.x, one_by_one.data.x)
        np.testing.assert_array_equal(together.encoding.apply(frame[:1])[0], one_by_one.data.x[:1])
    assert read(wide_frames(kind)[0]).matrix is not None


def test_wide_frames_of_several_types_are_read_column_by_column() -> None:
    mixed = wide_frames("int64")[0]
    mixed["c7"] = mixed["c7"] / 3
    found = read(mixed)
    assert found.matrix is None
    assert found.column("c6").to_pylist() == mixed["c6"].tolist()  # no digit is lost
    nothing = pl.DataFrame({f"c{i}": [2**60 + 1, None] for i in range(readers.WIDE)})
    assert read(nothing).column("c3").to_pylist() == [2**60 + 1, None]


def test_reading_a_frame_does_not_list_its_columns_for_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[int] = []
    columns = nw.DataFrame.columns.fget
    assert columns is not None
    monkeypatch.setattr(nw.DataFrame, "columns", property(lambda frame: listed.append(1) or columns(frame)))
    for width in (10, 200):
        mixed = pd.DataFrame({f"c{i}": ["a", "b"] if i % 2 else [1.0, 2.0] for i in range(width)})
        listed.clear()
        assert len(read(mixed).names) == width
        assert len(listed) < 5


def test_pairs_of_X_and_y() -> None:
    frame = pd.DataFrame(COLUMNS)
    expected = numbers(TABLE, target="out")
    X = frame.drop(columns="out")
    assert numbers((X, frame["out"])) == expected
    assert numbers((X, frame[["out"]])) == expected
    assert numbers((X, list(COLUMNS["out"]))) == expected
    assert numbers((pl.DataFrame(X.to_dict("list")), pl.Series("out", COLUMNS["out"]))) == expected
    assert prepare((X, frame["out"])).encoding.task.names == ("out",)
    assert prepare((X.rename(columns={"age": "out"}), frame["out"])).encoding.task.names == ("out (target)",)
    with pytest.raises(DataError, match="X and y must have the same number of rows, got 6 and 5"):
        prepare((X, COLUMNS["out"][:5]))


def arrays(dtype: Any = np.float64) -> tuple[Any, Any]:
    X = (np.arange(24).reshape(8, 3) ** 2 % 23).astype(dtype)
    return X, np.arange(8) % 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int64, np.uint8, np.longdouble, ">f8"])
def test_arrays_of_any_type_give_the_same_numbers(dtype: Any) -> None:
    assert numbers(arrays(dtype)) == numbers(arrays())


def test_arrays_of_any_layout_give_the_same_numbers() -> None:
    X, y = arrays()
    read_only = X.copy()
    read_only.flags.writeable = False
    masked = np.ma.masked_array(X, mask=np.zeros_like(X, dtype=bool))
    for form in (np.asfortranarray(X), read_only, X[::-1][::-1], sparse.csr_matrix(X), X.tolist(), masked):
        assert numbers((form, y)) == numbers((X, y))
    structured = np.array([tuple(row) for row in X], dtype=[("x0", "f8"), ("x1", "f8"), ("x2", "f8")])
    assert numbers((structured, y)) == numbers((X, y))
    holes = np.ma.masked_array(X, mask=X[2, 1] == X)
    assert prepare((holes, y)).encoding.numeric_names[-1].endswith("(missing)")


def test_lists_of_numbers_and_strings_have_a_type_per_column() -> None:
    rows = [[1, "a", 0.5], [2, "b", None], [3, "a", 2.5], [5, "b", 0.0]] * 10
    y = [row[0] > 2 for row in rows]
    encoding = prepare((rows, y), validation=None).encoding
    assert [column.kind for column in encoding.columns] == ["numeric", "categorical", "numeric"]
    frame = pd.DataFrame(rows, columns=["n", "word", "holes"])
    expected = prepare((frame, y), validation=None).encoding
    for found, wanted in zip(encoding.apply(rows), expected.apply(frame), strict=True):
        np.testing.assert_array_equal(found, wanted)  # type: ignore[arg-type]
    np.testing.assert_array_equal(expected.apply([[2, "b", 0.5]])[0], expected.apply(frame[1:2].fillna(0.5))[0])
    assert read([["1", "a"], ["2", "b"]]).column("x0").to_pylist() == [1, 2]


def test_torch_tensors_and_datasets() -> None:
    import torch

    X, y = arrays()
    Tx, Ty = torch.from_numpy(X), torch.from_numpy(y)
    assert numbers((Tx, Ty)) == numbers((X, y))
    assert numbers(torch.utils.data.TensorDataset(Tx, Ty)) == numbers((X, y))
    assert numbers(torch.utils.data.Subset(torch.utils.data.TensorDataset(Tx, Ty), range(8))) == numbers((X, y))
    pictures = torch.arange(8 * 3 * 4 * 5).reshape(8, 3, 4, 5).float()
    assert prepare((pictures, y)).encoding.image == (4, 5, 3)

    class Endless(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(())

    class Ragged(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, i: int) -> Any:
            return torch.zeros(i + 1), 0

    for source, fault in (
        (Endless(), "must have a length"),
        (Ragged(), "arrays of the same shapes"),
        (torch.utils.data.TensorDataset(Tx, Ty, Ty), "a row, or a row and its target, got 3"),
        (torch.utils.data.DataLoader(torch.utils.data.TensorDataset(Tx, Ty)), "give its dataset"),
    ):
        with pytest.raises(DataError, match=fault):
            read(source)


def test_hugging_face_datasets_by_their_arrow_tables() -> None:
    """The library is not a dependency. This class has the methods that are used."""

    class Dataset:
        def with_format(self, kind: str) -> Any:
            assert kind == "arrow"
            return self

        def __getitem__(self, key: Any) -> Any:
            assert key == slice(None)
            return TABLE

        def __len__(self) -> int:
            return 6

    Dataset.__module__ = "datasets.arrow_dataset"
    assert numbers(Dataset(), target="out") == numbers(TABLE, target="out")
    with pytest.raises(DataError, match="choose one of train, test"):
        read({"train": TABLE, "test": TABLE})


def idx(values: np.ndarray[Any, Any]) -> bytes:
    return bytes([0, 0, 8, values.ndim]) + b"".join(n.to_bytes(4, "big") for n in values.shape) + values.tobytes()


@pytest.mark.parametrize("zipped", [False, True])
def test_idx_files_and_folders(tmp_path: Path, zipped: bool) -> None:
    pack, end = (gzip.compress, ".gz") if zipped else (bytes, "")
    images = (np.arange(20 * 6) % 251).astype(np.uint8).reshape(20, 2, 3)
    labels = (np.arange(20) % 4).astype(np.uint8)
    for part, rows in (("train", slice(0, 15)), ("t10k", slice(15, 20))):
        (tmp_path / f"{part}-images-idx3-ubyte{end}").write_bytes(pack(idx(images[rows])))
        (tmp_path / f"{part}-labels-idx1-ubyte{end}").write_bytes(pack(idx(labels[rows])))
    ready = prepare(tmp_path, validation=tmp_path / f"t10k-images-idx3-ubyte{end}", task="multiclass")
    assert any("is not used: validation=" in note for note in ready.notes)
    assert (len(ready.train), len(ready.validation)) == (15, 5)
    assert ready.encoding.image == (2, 3, 1)
    np.testing.assert_array_equal(ready.data.x, (images.reshape(20, 6) / 255).astype(np.float32))
    np.testing.assert_array_equal(ready.data.y, labels)
    with pytest.raises(DataError, match="labels only"):
        read(tmp_path / f"train-labels-idx1-ubyte{end}")
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="one idx file of training images, got 0"):
        read(tmp_path / "none")


CODES = "zip,size,month,when,part,y\n" + "".join(
    f"{'00' if i % 3 else '90'}123,{i * 10},{i % 12 + 1:02},2024-01-0{i % 9 + 1},0.{i},{'abc'[i % 3]}\n"
    for i in range(60)
)
"""zip and month are codes; 0, 0.5 and dates are not."""


def test_numbers_with_leading_zeros_are_read_as_text_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(CODES)
    ready = prepare(tmp_path / "t.csv", target="y")
    kinds = {column.name: column.kind for column in ready.encoding.columns}
    expected = {"zip": "categorical", "size": "numeric", "month": "categorical", "when": "date", "part": "numeric"}
    assert kinds == expected
    assert ready.notes[:2] == (
        "'zip' has leading zeros, such as '00123': read as text, not as numbers",
        "'month' has leading zeros, such as '01': read as text, not as numbers",
    )
    assert ready.encoding.vocabularies["zip"].to_pylist() == ["00123", "90123"]
    (tmp_path / "new.csv").write_text("zip,size,month,when,part\n90123,5,11,2024-01-01,0.5\n")  # no zero to be seen
    new = ready.encoding.encode(tmp_path / "new.csv")
    assert new.codes is not None
    assert new.codes.all()  # known categories
    assert not new.notes
    (tmp_path / "new.csv").write_text("zip,size,month,when,part\n90123,005,11,2024-01-01,0.5\n")
    with pytest.raises(DataError, match="'size': was numbers in training, got text, '005'"):
        ready.encoding.encode(tmp_path / "new.csv")


def test_values_of_several_types_in_a_frame_are_read_as_text_with_a_note() -> None:
    table = read(pd.DataFrame({"a": [1, "x", 2.5, None], "b": ["u", "v", None, "v"]}))
    assert table.column("a").to_pylist() == ["1", "x", "2.5", None]
    assert table.notes == ("'a' holds values of several types: read as text",)
    one = readers.read_raw(pd.DataFrame({"a": pd.Series([1], dtype=object)}), hints={"a": pa.large_string()})
    assert one.column("a").to_pylist() == ["1"]
    assert not one.notes


@pytest.mark.parametrize("value", ["Infinity", "-Infinity", "1e400"])
def test_infinite_decimals_are_rejected_with_row_and_column(value: str) -> None:
    column = [Decimal("0.5"), Decimal("NaN"), Decimal("sNaN"), Decimal(value), Decimal(2)]
    for source in (pd.DataFrame({"a": column}), {"a": column}):
        with pytest.raises(DataError, match=r"row 4, column 'a': numbers must be finite, got -?inf: remove the row"):
            prepare((source, [0, 1, 0, 1, 0]))


def test_complex_numbers_are_rejected() -> None:
    x, y = np.ones((60, 2)), np.arange(60) % 2
    for source, where in (((x * 1j, y), "the array"), ((x, y * 1j), "the array: the target 'y'")):
        with pytest.raises(DataError, match=f"^{where}: numbers must be real, got complex128: pass its real part"):
            prepare(source)
    with pytest.raises(DataError, match=r"^the dictionary: column 'a': numbers must be real, got complex128"):
        prepare({"a": x[:, 0] * 1j, "y": y})


def test_leading_zeros_of_a_target_are_classes(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{i},{i % 2:02}\n" for i in range(60)))
    assert prepare(tmp_path / "t.csv").encoding.task.classes == (("00", "01"),)


def test_npy_and_npz(tmp_path: Path) -> None:
    X, y = arrays()
    np.savez(tmp_path / "t.npz", X=X, y=y)
    np.savez_compressed(tmp_path / "keras.npz", x_train=X, y_train=y, x_test=X, y_test=y)
    np.save(tmp_path / "t.npy", np.concatenate([X, y[:, None]], 1))
    assert numbers(tmp_path / "t.npz") == numbers((X, y)) == numbers(tmp_path / "keras.npz")
    assert read(tmp_path / "t.npz").notes == ()
    assert prepare(tmp_path / "keras.npz").notes[0] == (
        "arrays ignored: x_test, y_test; only x_train and y_train are read: "
        "save them as X and y in another file for validation or mlp evaluate"
    )
    encoding = prepare(tmp_path / "t.npy", target=-1).encoding
    again, pair = encoding.encode(tmp_path / "t.npy", targets=True), encoding.encode((X, y), targets=True)
    np.testing.assert_array_equal(again.y, pair.y)
    np.testing.assert_array_equal(encoding.apply(tmp_path / "t.npy")[0], encoding.apply(X)[0])
    assert numbers(tmp_path / "t.npy", target=-1) == numbers(tmp_path / "t.npy", target="x3") == numbers((X, y))


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        (None, "a path, a data frame, arrays or a dataset, got builtins.NoneType"),
        (7, "got builtins.int"),
        ("nowhere.csv", "nowhere.csv: there is no such file"),
        ("digts", "did you mean 'digits'"),
        (np.arange(3.0), "2 dimensions, or 3 or 4 for images, got 1"),
        (np.zeros((2, 2), dtype=complex), "numbers must be real, got complex128"),
        ([[1, 2], [3]], "rows must have the same length"),
        ([[1, "a"], ["x", "b"]], "^the list: column 'x0': .*row 2 holds 'x' after float in the rows before"),
        ({"a": [1, 2], "b": [1]}, "columns must have the same length, got {'a': 2, 'b': 1}"),
        ({"a": 3}, "column 'a' must be a list or an array, got 3"),
        ({"a": [1, "x"]}, "row 2 holds 'x' after float in the rows before"),
        ({}, "at least one row and one column"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "both called 'a'"),
        (pd.DataFrame({"a": []}), "at least one row"),
    ],
)
def test_sources_without_rows_are_rejected(source: Any, fault: str) -> None:
    with pytest.raises(DataError, match=fault):
        read(source)


# Bundled sets


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("digits", (1797, 64), 10),
        ("iris", (150, 4), 3),
        ("wine", (178, 13), 3),
        ("breast_cancer", (569, 30), 2),
        ("diabetes", (442, 10), 0),
        ("xor", (4, 2), 2),
        ("songs", (4, 2), 2),
        ("parity", (16, 4), 2),
        ("moons", (1000, 2), 2),
        ("circles", (1000, 2), 2),
        ("spirals", (1000, 2), 2),
    ],
)
def test_bundled_sets(name: str, shape: tuple[int, int], classes: int) -> None:
    ready = prepare(name)
    assert ready.data.x.shape == shape
    assert len(ready.encoding.task.classes[0] if ready.encoding.task.classes else ()) == classes
    assert name in bundled.names()


def test_generated_sets_depend_on_their_arguments_only() -> None:
    a, b = bundled.load("moons(n=50, noise=0.2)"), bundled.load("moons(50, 0.2)")
    assert a.column("x").equals(b.column("x"))
    assert not a.column("x").equals(bundled.load("moons(n=50, noise=0.2, seed=1)").column("x"))
    # A longer set begins as the shorter one: every number is keyed by its row.
    assert bundled.load("moons(n=99, noise=0.2)").column("x").slice(0, 50).equals(a.column("x"))
    assert set(bundled.load("spirals(arms=3)").column("curve").to_pylist()) == {0, 1, 2}
    parity = bundled.load("parity(bits=3)")
    bits = np.stack([to_numpy(parity.column(f"bit{i}")) for i in range(3)], 1)
    np.testing.assert_array_equal(to_numpy(parity.column("odd")), bits.sum(1) % 2)
    for text, fault in (
        ("parity(bits=2.5)", "whole number"),
        ("moons(noise=-1)", "noise must be"),
        ("xor(1)", "at most 0"),
    ):
        with pytest.raises(OptionError, match=fault):
            bundled.load(text)


# Between Arrow and numpy


def test_arrow_and_numpy_share_buffers() -> None:
    rng = np.random.default_rng(0)
    for values in (rng.normal(size=37), rng.integers(-9, 9, 37), rng.random(37) < 0.5, np.arange(37, dtype=np.uint8)):
        array = from_numpy(values)
        np.testing.assert_array_equal(to_numpy(array), values)
        np.testing.assert_array_equal(to_numpy(array.slice(5, 20)), values[5:25])
        np.testing.assert_array_equal(
            to_numpy(pa.chunked_array([array.slice(3, 9), array.slice(20)])), [*values[3:12], *values[20:]]
        )
        assert len(to_numpy(array.slice(0, 0))) == 0
    holes = pa.chunked_array([[1.5, None], [None, 2.5]]).slice(1, 3)
    np.testing.assert_array_equal(to_numpy(holes), [np.nan, np.nan, 2.5])
    assert from_texts(["", "é", "x" * 99]).to_pylist() == ["", "é", "x" * 99]


def test_reading_imports_nothing_heavy(tmp_path: Path) -> None:
    import subprocess

    out = io.BytesIO()
    pa_csv.write_csv(TABLE, out)
    (tmp_path / "t.csv").write_bytes(out.getvalue())
    parquet.write_table(TABLE, tmp_path / "t.parquet")
    code = (
        "import sys; from multilayer.data import DataOptions, make_training_data\n"
        "for name in ('t.csv', 't.parquet'):\n"
        f"    path = {str(tmp_path)!r} + '/' + name\n"
        "    make_training_data(path, DataOptions(target='out')).encoding.apply(path)\n"
        "make_training_data('xor'); make_training_data('songs'); make_training_data('moons')\n"
        "print(sorted({'torch', 'sklearn', 'pandas', 'scipy', 'matplotlib', 'polars'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
