"""Sparse matrices: results are bit-identical to dense ones on every engine, and need less memory."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sparse

import multilayer as ml
from multilayer import MLPClassifier, MLPRegressor
from multilayer.core import machine
from multilayer.core.sparse import Sparse, joined, rows_of
from multilayer.data import read
from multilayer.data.batches import Data
from multilayer.engines import Engine, Order, Settings
from multilayer.engines.fused_engine import FusedEngine
from multilayer.engines.numpy_engine import NumpyEngine
from multilayer.engines.torch_engine import TorchEngine
from multilayer.errors import DataError, MultilayerError, OptionError
from multilayer.runs.events import EpochEnd
from multilayer.spec import Spec
from support.training_rows import prepare

pytestmark = pytest.mark.filterwarnings("ignore:columns dropped")

QUICK: Any = {"hidden": (16,), "epochs": 4, "ensemble": 2, "random_state": 0}
ENGINES = (FusedEngine, TorchEngine, NumpyEngine)


def matrix(rows: int = 120, columns: int = 40, density: float = 0.1, seed: int = 0) -> Any:
    return sparse.random(rows, columns, density=density, random_state=seed, format="csr", dtype=np.float64)


def with_base(seed: int = 0) -> Sparse:
    found = Sparse.of_scipy(matrix(seed=seed).astype(np.float32))
    base = np.linspace(-1, 1, 40, dtype=np.float32)
    return Sparse(base=base, starts=found.starts, columns=found.columns, values=found.values)


# The matrix


@pytest.mark.parametrize("form", ["csr_matrix", "csc_matrix", "coo_matrix", "lil_matrix", "csr_array", "dok_array"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint8, np.bool_])
def test_every_format_and_type_gives_the_numbers_of_scipy(form: str, dtype: type) -> None:
    given = getattr(sparse, form)((10 * matrix()).astype(dtype))
    found, whole = Sparse.of_scipy(given), given.toarray()
    assert found.shape == whole.shape
    assert found.dtype == (whole.dtype if whole.dtype.kind == "f" else np.float64)
    np.testing.assert_array_equal(found[:], whole)
    np.testing.assert_array_equal(found[5:50:3], whole[5:50:3])
    np.testing.assert_array_equal(found[np.array([7, 7, 0, 119])], whole[[7, 7, 0, 119]])
    np.testing.assert_array_equal(found[:, [3, 0, 39]], whole[:, [3, 0, 39]])
    np.testing.assert_array_equal(found[:, 4], whole[:, 4])
    assert found[np.zeros(0, dtype=np.int64)].shape == (0, 40)


def test_duplicate_entries_are_summed_and_the_matrix_is_not_changed() -> None:
    given = sparse.coo_matrix((np.array([1.0, 2.0, 4.0]), ([0, 0, 1], [2, 2, 0])), shape=(2, 3)).tocsr(copy=True)
    twice = sparse.csr_matrix((np.array([1.0, 2.0]), np.array([2, 2]), np.array([0, 2])), shape=(1, 3))
    np.testing.assert_array_equal(Sparse.of_scipy(given)[:], [[0, 0, 3], [4, 0, 0]])
    np.testing.assert_array_equal(Sparse.of_scipy(twice)[:], [[0, 0, 3]])
    assert twice.nnz == 2


def test_selected_and_concatenated_rows_are_sparse() -> None:
    one, other = with_base(), with_base(seed=1)
    places = np.array([4, 4, 90, 0])
    picked = rows_of(one, places)
    assert isinstance(picked, Sparse)
    np.testing.assert_array_equal(picked[:], one[:][places])
    both = joined(one, other)
    assert isinstance(both, Sparse)
    np.testing.assert_array_equal(both[:], np.concatenate([one[:], other[:]]))
    np.testing.assert_array_equal(both[:, 7], both[:][:, 7])
    for mixed in (joined(one, other[:]), joined(one[:], other)):
        assert isinstance(mixed, Sparse)
        np.testing.assert_array_equal(mixed[:], both[:])
    for i in range(len(one.values)):
        assert one[:][one.place(i)] == one.values[i]


# Engines


def run(engine: Engine, rows: int) -> Any:
    order = Order(epoch=0, rows=np.random.default_rng(0).permutation(rows), batch=32)
    ones = np.ones(order.steps)
    return engine.run(order, rate=0.01 * ones, decay=0 * ones, dropout=ones)


@pytest.mark.parametrize("make", ENGINES)
@pytest.mark.parametrize("numbers", [1 << 24, 64])
def test_engines_give_the_bits_of_dense_rows(make: Any, numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multilayer.core.sparse.NUMBERS", numbers)  # blocks of one batch, or of all rows
    x = with_base()
    y = np.arange(len(x)) % 3
    spec, settings = Spec.parse("40-8:tanh:dropout(0.2)-3"), Settings(loss="cross_entropy")
    sparse_one, plain = (make(spec, Data(x=rows, y=y), settings) for rows in (x, x[:]))
    found, expected = run(sparse_one, len(x)), run(plain, len(x))
    np.testing.assert_array_equal(found.loss, expected.loss)
    assert sparse_one.state().equals(plain.state())
    rows = np.array([5, 3, 119, 5])
    np.testing.assert_array_equal(sparse_one.outputs(rows), plain.outputs(rows))
    mine, theirs = (engine.gradients(rows, epoch=1) for engine in (sparse_one, plain))
    assert all(np.array_equal(g, theirs.gradients[name]) for name, g in mine.gradients.items())
    assert sparse_one.outputs(np.zeros(0, dtype=np.int64)).shape == (0, 3)


# Tables


@pytest.mark.parametrize("scaling", ["standard", "robust", "none"])
def test_scaled_numbers_equal_those_of_dense_rows(scaling: str) -> None:
    given, y = matrix(density=0.3), np.arange(120) % 2
    found, plain = (prepare((x, y), scaling=scaling, seed=3) for x in (given, given.toarray()))
    assert isinstance(found.data.x, Sparse)
    assert found.encoding == plain.encoding
    assert found.notes == plain.notes
    np.testing.assert_array_equal(found.data.x[:], plain.data.x)
    np.testing.assert_array_equal(found.train, plain.train)


def test_constant_columns_are_dropped() -> None:
    given = sparse.hstack([matrix(columns=3), sparse.csr_matrix((120, 2)), matrix(columns=2, seed=5)]).tocsr()
    found, plain = (prepare((x, np.arange(120) % 2), seed=0) for x in (given, given.toarray()))
    assert found.data.x.shape == (120, 5)
    np.testing.assert_array_equal(found.data.x[:], plain.data.x)
    assert any("'x3', 'x4' (constant: " in note for note in found.notes)


def test_a_fit_with_validation_data_and_weights_equals_that_of_dense_rows() -> None:
    x, more = matrix(rows=200, density=0.2), matrix(rows=50, density=0.2, seed=9)
    y, also = np.asarray(x.sum(1)).ravel(), np.asarray(more.sum(1)).ravel()
    weight = np.linspace(1, 2, 200)
    one = MLPRegressor(**QUICK).fit(x, y, X_val=more, y_val=also, sample_weight=weight)
    other = MLPRegressor(**QUICK).fit(x.toarray(), y, X_val=more.toarray(), y_val=also, sample_weight=weight)
    np.testing.assert_array_equal(one.predict(more), other.predict(more.toarray()))
    np.testing.assert_array_equal(one.predict(more.toarray()), other.predict(more))
    parts = [MLPRegressor(**QUICK).partial_fit(form(x), y).partial_fit(form(x), y) for form in (lambda x: x, _plain)]
    np.testing.assert_array_equal(parts[0].predict(x), parts[1].predict(x))


def _plain(x: Any) -> Any:
    return x.toarray()


class Killed(Exception):
    pass


class Killer:
    """End a run after its third epoch, like a crash."""

    def notice(self, event: Any) -> None:
        if isinstance(event, EpochEnd) and event.epoch == 3:
            raise Killed


def test_a_run_folder_is_resumed_reported_and_predicts(tmp_path: Path) -> None:
    x = matrix(rows=300, density=0.2)
    y = (np.asarray(x[:, :5].sum(1)).ravel() > 0.5).astype(int)
    whole = ml.fit("40-8-1", (x, y), epochs=6, run=tmp_path / "whole", quiet=True)
    with pytest.raises(Killed):
        ml.fit("40-8-1", (x, y), epochs=6, run=tmp_path / "half", quiet=True, observers=[Killer()])
    other = x.copy()
    other.data[0] += 1
    with pytest.raises(MultilayerError, match="data"):
        ml.resume(tmp_path / "half", data=(other, y), quiet=True)
    ml.resume(tmp_path / "half", data=(x, y), quiet=True)
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "half")]
    assert models[0] == models[1]
    assert (tmp_path / "whole" / "report.html").stat().st_size > 100_000
    assert whole.model.predict(x).shape == (300,)
    assert whole.model.evaluate((x, y))["accuracy"] > 0.5


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e300])
def test_invalid_values_are_errors_with_row_and_column(value: float) -> None:
    x = matrix(density=0.3).tolil()
    x[6, 2] = value
    with pytest.raises(DataError, match="row 7, column 'x2'"):
        ml.fit("40-4-1", (x.tocsr(), np.arange(120) % 2), epochs=1, quiet=True)


def test_missing_values_make_the_matrix_dense_if_there_is_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    x = matrix(density=0.3)
    x.data[3] = np.nan
    assert isinstance(prepare((x, np.arange(120) % 2)).data.x, np.ndarray)
    monkeypatch.setattr(machine, "physical_memory", lambda: 10_000)
    message = "the sparse matrix: 120 rows × 40 columns as a dense array, because values are missing"
    with pytest.raises(OptionError, match=message):
        prepare((x, np.arange(120) % 2))


def test_stored_zeros_make_no_difference() -> None:
    x, y = matrix(), np.arange(120) % 2
    zeros = x.copy()
    zeros.data[:5] = 0
    plain = ml.fit("40-4-1", (zeros.toarray(), y), epochs=1, quiet=True)
    for given in (zeros, sparse.csr_matrix(zeros.toarray())):
        assert ml.fit("40-4-1", (given, y), epochs=1, quiet=True).model.to_bytes() == plain.model.to_bytes()
    assert Sparse.of_scipy(zeros).values.all()


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr"])
def test_a_sparse_npz_file_is_read(form: str, tmp_path: Path) -> None:
    given = matrix().asformat(form)
    sparse.save_npz(tmp_path / "x.npz", given)
    table = read(tmp_path / "x.npz")
    assert isinstance(table.matrix, Sparse)
    np.testing.assert_array_equal(table.matrix[:], given.toarray())


def test_an_invalid_sparse_npz_file_is_an_error(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", format=np.array(b"csr"), shape=np.array([2, 2]), data=np.ones(2))
    with pytest.raises(DataError, match="cannot be read as a sparse matrix"):
        read(tmp_path / "x.npz")


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_an_empty_matrix_is_an_error(shape: tuple[int, int]) -> None:
    with pytest.raises(DataError, match="at least one row and one column"):
        prepare((sparse.csr_matrix(shape), np.zeros(shape[0])))


def test_a_wide_matrix_needs_a_fraction_of_the_dense_memory(tmp_path: Path) -> None:
    """4,000 rows of 20,000 columns would need 320 MB in float32. This includes the report."""
    x = sparse.random(4_000, 20_000, density=0.001, random_state=0, format="csr")
    y = np.asarray(x[:, :50].sum(1)).ravel() > 0.02
    tracemalloc.start()
    try:
        width = prepare((x, y)).data.x.shape[1]
        run = ml.fit(f"{width}-4-1", (x, y), epochs=1, run=tmp_path / "run", quiet=True)
        run.model.predict(x)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 160e6
    found = json.loads((tmp_path / "run" / "report.json").read_text())["importance"]
    assert found["of"] == width
    assert 100 <= len(found["columns"]) < width


def test_estimators_accept_missing_values() -> None:
    x = matrix(density=0.3)
    x.data[3] = np.nan
    y = np.arange(120) % 2
    one, other = (MLPClassifier(**QUICK).fit(form, y) for form in (x, x.toarray()))
    np.testing.assert_array_equal(one.predict_proba(x), other.predict_proba(x.toarray()))
