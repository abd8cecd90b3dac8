"""Predictions for rows far outside the training range warn: how many rows, which column, which range."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from typer.testing import CliRunner

import multilayer as ml
from multilayer import MLPRegressor
from multilayer.cli.main import app
from multilayer.data import Encoding
from multilayer.errors import DataError
from multilayer.models.trained_model import TrainedModel
from support.quick_estimators import QUICK
from support.training_rows import prepare

X = np.linspace(0, 10, 41)[:, None]
Y = 3 * X[:, 0]
WARNING = r"^'x0': 2 rows far outside the training range \(0 to 10\): the predictions may be wrong$"


def trained(x: Any = X, **options: Any) -> TrainedModel:
    return ml.fit(None, (x, Y), **{"epochs": 1, "ensemble": 1, "quiet": True, "validation": None, **options}).model


def encoding_of(x: Any = X, **options: Any) -> Encoding:
    return prepare((x, Y), validation=None, **options).encoding


@pytest.mark.parametrize("scaling", ["standard", "robust", "none"])
def test_a_prediction_far_outside_the_training_range_warns_once_per_call(scaling: str, tmp_path: Path) -> None:
    model = trained(scaling=scaling)
    model.save(tmp_path / "model.safetensors")
    for one in (model, ml.load(tmp_path / "model.safetensors")):
        for call in (one.predict, one.outputs):
            with pytest.warns(UserWarning, match=WARNING) as warned:
                call([[20.0], [5.0], [-11.0]])
            assert len(warned) == 1
            assert warned[0].filename == __file__


def test_a_prediction_near_the_training_range_does_not_warn() -> None:
    trained().predict([[0.0], [10.0], [19.9], [-9.9], [np.nan]][:4])


def test_columns_with_few_different_values_have_no_range() -> None:
    for n, warns in ((9, False), (10, True)):
        for x in (X[:n], np.arange(41)[:, None] % n):
            notes = prepare((x, Y[: len(x)]), validation=None).encoding.encode([[1e6]]).notes
            assert [note.kind for note in notes] == ["range"] * warns


def test_an_estimator_warns_of_rows_far_outside_the_training_range_but_not_in_fit() -> None:
    x = np.append(X[:-1], [[1000.0]], axis=0)  # if it is held out, it is far outside the range of the other rows
    for seed in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = MLPRegressor(**{**QUICK, "random_state": seed, "ensemble": 2}).fit(x, Y)
    with pytest.warns(UserWarning, match="'x0': 1 row far outside the training range"):
        model.predict([[1e9]])


def test_mlp_predict_prints_the_rows_far_outside_the_training_range(tmp_path: Path) -> None:
    trained().save(tmp_path / "model.safetensors")
    pd.DataFrame({"x0": [20.0, 5.0, -11.0]}).to_csv(tmp_path / "new.csv", index=False)
    result = CliRunner().invoke(app, ["predict", str(tmp_path / "model.safetensors"), str(tmp_path / "new.csv")])
    assert result.exit_code == 0, result.output
    assert "'x0': 2 rows far outside the training range (0 to 10)" in " ".join(result.stderr.split())


def test_the_warning_names_each_column_with_its_range() -> None:
    days = pd.date_range("2024-01-01", periods=41)
    frame = pd.DataFrame({"a": X[:, 0], "b": 7.0, "day": days, "c": ["u", "v"] * 20 + ["u"], "y": Y})
    encoding = prepare(frame, target="y", validation=None).encoding
    new = frame.assign(a=-100.0, b=1e9, day=days + pd.Timedelta(days=400))
    assert [note for note in encoding.encode(new).notes if note.kind == "range"] == [
        "'a': 41 rows far outside the training range (0 to 10): the predictions may be wrong",
        "'day': 41 rows far outside the training range (2024-01-01 to 2024-02-10): the predictions may be wrong",
    ]


@pytest.mark.parametrize("scaling", ["standard", "robust"])
def test_heavy_tails_of_the_training_rows_are_not_far(scaling: str) -> None:
    x = np.exp(np.linspace(0, 40, 41))[:, None]  # the smooth clip encodes the largest values equally
    encoding = encoding_of(x, scaling=scaling)
    assert encoding.encode(x).notes == ()
    assert [note.kind for note in encoding.encode([[1e18]]).notes] == ["range"]


@pytest.mark.parametrize("rows", [1, 7, 33, 5000, 30_000])
@pytest.mark.parametrize("width", [1, 3])
def test_one_far_row_among_many_is_counted(rows: int, width: int) -> None:
    encoding = encoding_of(np.repeat(X, width, axis=1))
    for row in {0, rows // 2, rows - 1}:
        x = np.full((rows, width), 5.0)
        x[row, -1] = -20.0
        (note,) = encoding.encode(x).notes
        assert note.startswith(f"'x{width - 1}': 1 row far outside the training range (0 to 10)")


def test_sparse_rows_far_outside_the_training_range() -> None:
    dense = np.zeros((41, 3))
    dense[::2, 1] = np.linspace(0, 1, 21)
    dense[0, 0] = dense[1, 2] = 1
    x = scipy.sparse.csr_matrix(dense)
    encoding = encoding_of(x)
    assert encoding.encode(x).notes == ()
    found = encoding.encode(scipy.sparse.csr_matrix([[0.0, 9.0, 0.0], [0.0, -1.0, 1.0]])).notes
    assert [str(note) for note in found] == [
        "'x1': 2 rows far outside the training range (0 to 1): the predictions may be wrong"
    ]


def test_models_saved_before_ranges_were_stored_do_not_warn() -> None:
    data, arrays = encoding_of().to_parts()
    old = Encoding.from_parts(data, {name: one for name, one in arrays.items() if name not in ("low", "high")})
    assert old.encode([[1e9]]).notes == ()


@pytest.mark.parametrize(
    "wrong", [{"low": np.array([11.0])}, {"high": np.array([np.inf])}, {"low": np.zeros(2)}, {"high": np.zeros(0)}]
)
def test_a_damaged_range_is_an_error(wrong: dict[str, Any]) -> None:
    data, arrays = encoding_of().to_parts()
    with pytest.raises(DataError, match="of an encoding must be"):
        Encoding.from_parts(data, {**arrays, **wrong})
