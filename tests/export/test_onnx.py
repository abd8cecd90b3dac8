"""ONNX models compared with `TrainedModel`: every layer and activation, realistic tables, every task."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest
from typer.testing import CliRunner

import multilayer as ml
from multilayer import MLPClassifier, MLPRegressor
from multilayer.cli.main import app
from multilayer.errors import DataError
from multilayer.export.onnx import activations as onnx_activations
from multilayer.export.onnx import layers
from multilayer.nn import activations
from multilayer.nn.layers import KINDS
from multilayer.spec import Spec
from support.cases import ALL, Case
from support.onnx_sessions import (
    PARTS,
    assert_close,
    assert_same,
    feed,
    predictor_of,
    session_of,
    table_for,
)
from support.quick_estimators import QUICK, classes, numbers, people

pytestmark = pytest.mark.filterwarnings("ignore:columns dropped", "ignore:.*far outside the training range")

# Layers and activations


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_every_layer_and_activation(case: Case, tmp_path: Path) -> None:
    model = predictor_of(case.spec)
    table = table_for(case.spec, 33)
    session = session_of(model, tmp_path / "model.onnx")
    given, expected = feed(session, table), model.outputs(table)
    for rows in PARTS:
        z = session.run(None, {name: value[rows] for name, value in given.items()})[0]
        assert_close(z.reshape(expected[rows].shape), expected[rows])


def test_every_layer_has_a_writer() -> None:
    assert set(layers.WRITERS) == set(KINDS.values())
    assert set(onnx_activations.WRITERS) <= set(activations.catalogue)  # the others are operators of ONNX


def test_running_statistics_and_bin_edges_are_exported(tmp_path: Path) -> None:
    spec = Spec.parse("3-columns(piecewise, d_numeric=4, n=6)-4:batchnorm:tanh-2")
    model = predictor_of(spec)
    generator = np.random.default_rng(0)
    for name, value in model.tensors.items():
        if name in spec.buffers:
            value[:] = np.sort(generator.uniform(0.1, 3, size=value.shape), axis=-1)
    x = generator.uniform(-1, 4, size=(20, 3))
    assert_close(session_of(model, tmp_path / "model.onnx").run(None, {"x": x})[0], model.outputs(x))


def test_a_float64_model_is_exported_in_float32(tmp_path: Path) -> None:
    x, y = numbers()
    run = ml.fit("4-8:tanh-1", (x, y), dtype="float64", engine="fused", epochs=2, quiet=True)
    assert_same(run, x, tmp_path / "model.onnx")


# Tables and tasks


@pytest.mark.filterwarnings(
    "ignore:.*(training did not see|none in training|1 and 0 are read as true and false):UserWarning"
)
def test_a_table_with_many_types_and_unseen_values(tmp_path: Path) -> None:
    X, y = people(150)
    model = MLPClassifier(**QUICK).fit(X, y)
    assert len(model.model_.members) == 2
    assert model.model_.calibration.temperature != 1
    session = assert_same(model, X, tmp_path / "model.onnx")
    assert [one.name for one in session.get_inputs()] == [name for name in X if name != "constant"]
    new = X.head(6).copy()
    new["city"] = ["Basel", "Bern", None, "Zürich ", "zürich", "Genève"]
    new.loc[1, ["age", "income"]] = np.nan
    new.loc[2, "income"] = 1e30
    new["active"] = [1.0, 0.0, np.nan, 1.0, 0.0, np.nan]
    new.loc[4, "since"] = pd.NaT
    assert_same(model, new, tmp_path / "model.onnx")


@pytest.mark.filterwarnings("ignore:.*none in training:UserWarning")
@pytest.mark.parametrize("names", [[1, 2, 5], ["a", "b", "ü"], [1.0, 2.0, 5.0]], ids=["whole", "text", "floats"])
def test_classes_keep_their_type(names: list[Any], tmp_path: Path) -> None:
    x, y = classes()
    model = MLPClassifier(**QUICK).fit(x, np.array(names)[y])
    x[::7, 1] = np.nan
    x[:, 2] *= 1e6
    session = assert_same(model, x, tmp_path / "model.onnx")
    assert [(one.name, one.shape) for one in session.get_inputs()] == [("x", ["rows", 4])]


def test_boolean_targets(tmp_path: Path) -> None:
    x, y = numbers()
    x[::5, 0] = np.nan
    x[:, 3] = 7  # a dropped column is still part of the input
    assert_same(MLPClassifier(**QUICK).fit(x, y > 0), x, tmp_path / "model.onnx")


@pytest.mark.parametrize(
    ("loss", "count"),
    [
        ("cross_entropy", 2),
        ("binary_cross_entropy(0.1)", 3),
        ("mse", 2),
        ("mse", 3),
        ("perceptron", 2),
        ("perceptron", 3),
    ],
)
def test_classification_losses(loss: str, count: int, tmp_path: Path) -> None:
    x, y = classes(count=count)
    model = MLPClassifier(**{**QUICK, "epochs": 2}, loss=loss, validation=0.2).fit(x, y)
    assert_same(model, np.concatenate([x, 5 * x]), tmp_path / "model.onnx")


def test_scores_that_are_all_negative(tmp_path: Path) -> None:
    x, y = classes()
    model = replace(MLPClassifier(**QUICK, loss="mse").fit(x, y).model_, calibration=None)
    for name, value in model.tensors.items():
        if name.endswith("linear2.bias"):
            value -= 99
    assert (model.outputs(x) < 0).all()
    assert_same(model, x, tmp_path / "model.onnx")


def test_multilabel_targets(tmp_path: Path) -> None:
    x, y = numbers()
    assert_same(MLPClassifier(**QUICK).fit(x, np.stack([y > 0, y > 1], 1)), x, tmp_path / "model.onnx")
    table = pd.DataFrame({"a": x[:, 0], "b": x[:, 1]})
    targets = pd.DataFrame({"p": np.where(y > 0, "up", "down"), "q": np.where(y > 1, "high", "low")})
    run = ml.fit("2-8:tanh-2", pd.concat([table, targets], axis=1), target=["p", "q"], epochs=2, quiet=True)
    assert_same(run, table, tmp_path / "labels.onnx")


def test_predictions_stay_within_the_training_targets(tmp_path: Path) -> None:
    x, y = numbers()
    model = MLPRegressor(**QUICK).fit(x, 1e6 * y + 5e8)
    far = np.concatenate([x, 100 * x])
    predicted = model.predict(far)
    assert (predicted == predicted.min()).sum() > 1  # some are clipped to the bound
    assert_same(model, far, tmp_path / "model.onnx")


@pytest.mark.parametrize("loss", ["poisson", "mae", "quantile(0.1, 0.5, 0.9)"])
@pytest.mark.parametrize("targets", [1, 2])
def test_regression_losses(loss: str, targets: int, tmp_path: Path) -> None:
    x, y = numbers()
    several = np.abs(np.stack([y, 10 * y + 3], 1))
    model = MLPRegressor(**QUICK, loss=loss).fit(x, several[:, 0] if targets == 1 else several)
    session = assert_same(model, x, tmp_path / "model.onnx")
    quantiles = [3] if loss.startswith("quantile") else []
    assert session.get_outputs()[0].shape == ["rows", *([2] if targets == 2 else []), *quantiles]


def test_a_constant_count_next_to_another_target(tmp_path: Path) -> None:
    x, _ = numbers()
    y = np.stack([np.full(len(x), 3), np.random.default_rng(0).poisson(2, len(x))], 1)
    model = MLPRegressor(**QUICK, loss="poisson").fit(x, y)
    session = assert_same(model, x, tmp_path / "model.onnx")
    np.testing.assert_allclose(session.run(None, feed(session, x))[0][:, 0], 3, rtol=1e-6)


@pytest.mark.parametrize("scaling", ["standard", "robust", "none"])
def test_scalings_with_missing_values(scaling: str, tmp_path: Path) -> None:
    x, y = numbers()
    x[:, 0] = np.exp(x[:, 0])  # the mean is not the median
    x[::6, 0] = np.nan
    run = ml.fit("5-8:tanh-1", (x, y), scaling=scaling, epochs=2, quiet=True)
    assert_same(run, x, tmp_path / "model.onnx")


def test_values_far_outside_of_a_robust_scale(tmp_path: Path) -> None:
    x, y = numbers()
    x[:, 0] *= 1e-160
    x[:2, 0] = 1e-3, -1e-3  # their squares overflow
    run = ml.fit("4-8:tanh-1", (x, y), scaling="robust", epochs=2, quiet=True)
    assert_same(run, x, tmp_path / "model.onnx")


def test_dates_times_and_durations(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    moments = pd.Timestamp("1969-06-01") + pd.to_timedelta(rng.integers(0, 3 * 10**9, 200), unit="s")
    table = pd.DataFrame(
        {
            "moment": moments,
            "zoned": moments[::-1].tz_localize("Europe/Zurich", ambiguous=True, nonexistent="shift_forward"),
            "day": pd.Series(moments).dt.date,
            "clock": pd.Series(moments).dt.time,
            "took": pd.to_timedelta(rng.integers(0, 10**6, 200), unit="ms"),
            "y": rng.normal(size=200),
        }
    )
    table.loc[::9, "moment"] = pd.NaT
    run = ml.fit(None, table, target="y", epochs=2, ensemble=1, quiet=True)
    kinds = {column.kind for column in run.model.encoding.columns}
    assert kinds == {"datetime", "date", "time", "numeric"}
    assert_same(run, table, tmp_path / "model.onnx")


def test_numbers_as_categories(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"shop": rng.choice([3, 17, 2**40], 100), "size": rng.choice([0.5, 1.25], 100)})
    y = (table["shop"] == 17) + table["size"]
    model = MLPRegressor(**QUICK).fit(table.astype("category"), y)
    new = table.astype(float)
    new.loc[0, "shop"], new.loc[1, "size"], new.loc[2, "shop"] = 4, 0.5000001, np.nan
    with pytest.warns(UserWarning, match="training did not see"):
        assert_same(model, new, tmp_path / "model.onnx")
    model.fit((table + 2**60).astype("category"), y)
    with pytest.raises(DataError, match=r"column 'shop': numbers as categories must lie within ±2\^53 in ONNX, got 11"):
        model.to_onnx(tmp_path / "model.onnx")


def test_images(tmp_path: Path) -> None:
    run = ml.fit("64-8:relu-10", "digits", epochs=1, quiet=True)
    assert_same(run, np.random.default_rng(0).integers(0, 17, size=(20, 64)), tmp_path / "model.onnx")


def test_columns_that_are_constant_in_every_chunk(tmp_path: Path) -> None:
    rows = pd.DataFrame({"a": np.linspace(-1, 1, 40), "n": [3.0] * 40, "c": ["u"] * 40})
    model = MLPClassifier(**QUICK).partial_fit(rows, np.arange(40) % 2, classes=[0, 1]).model_
    assert_same(model, pd.DataFrame({"a": [0.1, 0.2], "n": [3.0, 9.0], "c": ["u", "other"]}), tmp_path / "m.onnx")


def test_an_empty_string_is_missing_unless_it_was_a_category(tmp_path: Path) -> None:
    table = pd.DataFrame({"kind": ["", "b", "c"] * 30, "v": np.arange(90.0), "y": [0.0, 1.0, 2.0] * 30})
    table["kind"] = table["kind"].astype("category")
    run = ml.fit(None, table, target="y", epochs=2, quiet=True)
    with pytest.warns(UserWarning, match="column 'kind': an empty string was a category in training"):
        assert_same(run, table, tmp_path / "model.onnx")


def test_empty_strings_and_missing_values_are_different_categories(tmp_path: Path) -> None:
    """An empty string was a category in training, so an unseen string is passed for missing values."""
    table = pd.DataFrame(
        {"kind": ["", None, "c", "d"] * 30, "more": ["", "b", "c", "d"] * 30, "fine": list("abcd") * 30}
    ).astype("category")
    model = MLPClassifier(**QUICK).fit(table, [1, 0, 1, 0] * 30)
    message = (
        "columns 'kind', 'more': an empty string was a category in training, so it is not a missing value in ONNX: "
        "pass a string that did not occur in training for missing values, or train without empty strings"
    )
    with pytest.warns(UserWarning, match=message):
        session = session_of(model, tmp_path / "model.onnx")
    assert [port.doc_string for port in onnx.load(tmp_path / "model.onnx").graph.input] == [
        "text, a string that did not occur in training for missing values",
        "text, a string that did not occur in training for missing values",
        "text, an empty string for missing values",
    ]
    model.save(tmp_path / "model.safetensors")
    done = CliRunner().invoke(app, ["export", str(tmp_path / "model.safetensors")])
    assert done.stderr == f"warning: {message}\n"
    rows = table.head(2)
    given = {name: np.array(["a", "a"], dtype=object) for name in table} | {"kind": np.array(["", "?"], dtype=object)}
    expected = rows.assign(more="a", fine="a")
    with pytest.warns(UserWarning, match="more"):  # "a" is unknown there
        assert_close(session.run(None, given)[1], model.predict_proba(expected))


def test_a_model_from_partial_fit(tmp_path: Path) -> None:
    x, y = classes()
    model = MLPClassifier(**QUICK).partial_fit(x, np.array(["a", "b", "c"])[y])
    found = assert_same(model, x, tmp_path / "model.onnx").run(["label"], {"x": x})[0]
    assert found.tolist() == model.predict(x).tolist()


def test_columns_may_have_the_names_of_operators(tmp_path: Path) -> None:
    x, y = numbers()
    names = ["encoding/IsNaN1", "encoding/constant1", "network/linear1.weight", "a b/ü"]
    table = pd.DataFrame(x, columns=names)
    run = ml.fit("4-3:tanh-1", pd.concat([table, pd.Series(y, name="y")], axis=1), target="y", epochs=1, quiet=True)
    assert_same(run, table, tmp_path / "model.onnx")
    table = table.rename(columns={"a b/ü": "prediction"})
    model = MLPRegressor(**QUICK).fit(table, y)
    with pytest.raises(DataError, match=r"column 'prediction' has the name of an output .* rename the column"):
        model.to_onnx(tmp_path / "model.onnx")
