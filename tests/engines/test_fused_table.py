"""Category codes and row numbers: the compiled core uses them as indices, so it gets checked copies."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from multilayer.core.sparse import Sparse
from multilayer.data.batches import Batch, Data
from multilayer.engines import Order, Settings
from multilayer.engines.fused_engine import FusedEngine, PredictProgram
from multilayer.errors import DataError, OptionError
from multilayer.spec import Spec
from multilayer.spec.initialization import initialise
from support.cases import rows_for
from support.engines import CORES, every_core, fused_engine, run

TYPED = Spec.parse("3+cat(50)-columns-8:relu-1")


def typed(rows: int = 40) -> Data:
    x, codes = rows_for(TYPED, rows)
    return Data(x=x, y=np.zeros((rows, 1)), codes=codes)


def engine(data: Data, core: str = "kernels") -> FusedEngine:
    return FusedEngine(TYPED, data, Settings(loss="mse"), threads=1, **CORES[core])


def program(text: str = "3+cat(2, 4)-columns-4:tanh-2") -> PredictProgram:
    spec = Spec.parse(text)
    return PredictProgram(spec, initialise(spec, seed=0), threads=1)


def unchanged(batch: Batch, data: Data, rows: Any, epoch: int) -> Batch:
    return batch


def engine_with_made_rows(kind: str) -> FusedEngine:
    """Return an engine whose training rows are computed for each batch: from a sparse table or by augmentation."""
    x = np.random.default_rng(0).normal(size=(30, 4))
    if kind == "sparse":
        data = Data(x=Sparse.of_rows(x, np.zeros(4)), y=np.ones((30, 1)))
    else:
        data = Data(x=x, y=np.ones((30, 1)), augment=unchanged)
    return FusedEngine(Spec.parse("4-6:tanh-1"), data, Settings(loss="mse"), threads=1)


# Codes


@every_core
def test_later_changes_to_codes_do_not_affect_an_engine(core: str) -> None:
    data = typed()
    assert data.codes is not None
    found, rows = engine(data, core), np.arange(40)
    before = found.outputs(rows)
    gradients = found.gradients(rows, epoch=0).gradients
    data.codes[:] = 51 - data.codes  # valid for other rows, or out of range: 51
    np.testing.assert_array_equal(found.outputs(rows), before)
    for name, g in found.gradients(rows, epoch=0).gradients.items():
        np.testing.assert_array_equal(g, gradients[name])


def test_changed_codes_are_copied_and_checked_again() -> None:
    data = typed()
    assert data.codes is not None
    engine(data)
    data.codes[:] = 7
    found, expected = (engine(d).outputs(np.arange(40)) for d in (data, Data(x=data.x, y=data.y, codes=data.codes)))
    np.testing.assert_array_equal(found, expected)
    data.codes[3] = 51
    with pytest.raises(DataError, match="got 51 in row 3"):
        engine(data)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float64])
def test_engines_on_the_same_table_share_a_copy_of_its_codes(dtype: type) -> None:
    spec = Spec.parse("1+cat(2, 3, 4, 5, 6, 7, 8, 9)-columns-1")
    x, codes = rows_for(spec, 50_000)
    assert codes is not None
    data = Data(x=x.astype(np.float32), y=np.zeros((50_000, 1), np.float32), codes=codes.astype(dtype))
    engines, most = list[FusedEngine](), list[int]()
    tracemalloc.start()
    for _ in range(2):
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        engines.append(FusedEngine(spec, data, Settings(loss="mse"), threads=1))
        most.append(tracemalloc.get_traced_memory()[1] - before)
    tracemalloc.stop()
    assert codes.nbytes < most[0] < 1.5 * codes.nbytes  # plus the masks of one column
    assert most[1] < 0.5 * codes.nbytes


def test_prediction_reads_a_copy_of_its_codes() -> None:
    given, read = np.ones((2, 2), np.int64), list[np.ndarray]()
    predicting = program()
    predicting.core = SimpleNamespace(outputs=lambda x, codes: read.append(codes))  # type: ignore[assignment]
    predicting.outputs(np.zeros((2, 3), np.float32), given)
    assert not np.shares_memory(read[0], given)


@pytest.mark.parametrize("code", [1.9, np.nan, -0.5, 1e300, 5, -1])
def test_prediction_refuses_invalid_codes(code: float) -> None:
    codes = np.ones((3, 2), dtype=np.int64 if isinstance(code, int) else np.float64)
    predicting, x = program(), np.zeros((3, 3), np.float32)
    expected = predicting.outputs(x, codes.astype(np.int64))
    np.testing.assert_array_equal(predicting.outputs(x, codes), expected)
    codes[2, 1] = code
    with pytest.raises(DataError, match=r"category column 1 must hold whole numbers from 0 .* to 4, got .* in row 2"):
        predicting.outputs(x, codes)


def test_prediction_of_no_rows() -> None:
    assert program("3-2").outputs(np.zeros((0, 3))).shape == (0, 2)
    assert program().outputs(np.zeros((0, 3)), np.zeros((0, 2))).shape == (0, 2)


@pytest.mark.parametrize("codes", [np.ones((2, 1)), np.full((2, 3), 0.5), np.ones((3, 2))])
def test_prediction_refuses_codes_of_the_wrong_shape(codes: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"codes must have (one column for each categorical input|as many rows as x)"):
        program().outputs(np.zeros((2, 3), np.float32), codes)


# Rows


@pytest.mark.parametrize("rows", [np.array([0.9]), np.array([np.nan]), np.ones(30, np.bool_), np.array(["1"])])
def test_rows_that_are_not_integers_are_refused(rows: Any) -> None:
    for found in (fused_engine("4-3"), engine_with_made_rows("sparse"), engine_with_made_rows("augmented")):
        for call in (
            found.outputs,
            lambda rows, found=found: found.gradients(rows, epoch=0),
            lambda rows, found=found: run(found, Order(epoch=0, rows=rows, batch=30)),
        ):
            with pytest.raises(OptionError, match=f"rows must be whole numbers, got {rows.dtype}: convert a mask"):
                call(rows)


def test_rows_of_any_integer_type_and_empty_lists_are_accepted() -> None:
    for found in (fused_engine("4-3"), engine_with_made_rows("sparse")):
        expected = found.outputs(np.arange(4))
        for dtype in (np.uint8, np.int32, np.uint64, ">i8"):
            np.testing.assert_array_equal(found.outputs(np.arange(4).astype(dtype)), expected)
        assert len(found.outputs([])) == 0  # type: ignore[arg-type]


def test_rows_are_read_from_a_copy() -> None:
    """No thread can change the row numbers after they were checked."""
    given, read = np.arange(4), list[np.ndarray]()
    found = fused_engine("4-3")
    found._core = SimpleNamespace(outputs=lambda table, rows, averaged: read.append(rows))  # type: ignore[assignment]
    found.outputs(given)
    assert not np.shares_memory(read[0], given)


@pytest.mark.parametrize("kind", ["sparse", "augmented"])
def test_rows_outside_the_table_are_refused_before_any_step(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multilayer.engines.fused_engine.MAX_ROWS_PER_CALL", 2)
    found = engine_with_made_rows(kind)
    for rows in (np.array([0, 1, 2, 30]), np.array([0, 1, 2, -1])):
        for call in (found.outputs, lambda rows: found.gradients(rows, epoch=0)):
            with pytest.raises(IndexError, match=r"row (30|-1) is not in a table of 30"):
                call(rows)
        with pytest.raises(IndexError, match=r"row (30|-1) is not in a table of 30"):
            run(found, Order(epoch=0, rows=rows, batch=2))
    assert found.state().step == 0


@pytest.mark.parametrize("kind", ["sparse", "augmented"])
def test_an_order_without_rows_takes_no_step(kind: str) -> None:
    chunk = run(engine_with_made_rows(kind), Order(epoch=0, rows=np.arange(0), batch=4))
    assert (len(chunk.loss), chunk.bad, chunk.finite) == (0, None, True)
