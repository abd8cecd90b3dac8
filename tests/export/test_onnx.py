"""ONNX models compared with `TrainedModel`: every layer and activation, realistic tables, every task.

Tolerance: both sides compute in float32 (eps 6e-8) and sum in different orders. The longest sums have 784 terms with a
rounding error of about √784·eps ≈ 2e-6. After a few layers, the error is at most 1e-5 of the largest output.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
from typer.testing import CliRunner

import multilayer as ml
from multilayer import MLPClassifier, MLPRegressor
from multilayer.cli.main import app
from multilayer.core import atomic_files
from multilayer.data import Column, Encoding, Task
from multilayer.data.table import from_texts
from multilayer.errors import DataError, MissingExtra, OptionError, StorageError
from multilayer.export.onnx import activations as onnx_activations
from multilayer.export.onnx import layers
from multilayer.export.onnx import model as exporting
from multilayer.models.trained_model import Member, TrainedModel
from multilayer.nn import activations
from multilayer.nn.calibration import Calibration
from multilayer.nn.layers import KINDS
from multilayer.spec import Spec
from multilayer.spec.initialization import initialise
from support.cases import ALL, Case, rows_for
from support.models import with_tensors
from support.quick_estimators import QUICK, classes, numbers, people

pytestmark = pytest.mark.filterwarnings("ignore:columns dropped")

TOLERANCE = 1e-5
"""Relative to the largest value, because an output near 0 has the rounding error of the terms of its sum."""


def session_of(model: Any, path: Path) -> onnxruntime.InferenceSession:
    """Export the model, validate the file with the checker of ONNX, and open it in the runtime."""
    ml.to_onnx(model, path)
    onnx.checker.check_model(str(path), full_check=True)
    return opened(path)


def opened(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # idle threads of the runtime use the CPU
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def feed(session: onnxruntime.InferenceSession, table: Any) -> dict[str, np.ndarray]:
    """Return a table as inputs of the model, as docs/explanation/export.md describes."""
    if not isinstance(table, pd.DataFrame):
        return {"x": np.asarray(table, dtype=np.float64)}
    given: dict[str, np.ndarray] = {}
    for one in session.get_inputs():
        column, values = table[one.name], None
        if one.type == "tensor(string)":
            values = column.astype(object).where(column.notna(), "").to_numpy()
        elif column.dtype.kind in "Mm":
            zero = pd.Timestamp(0, tz=column.dt.tz) if column.dtype.kind == "M" else pd.Timedelta(0)
            values = (column - zero).dt.total_seconds().to_numpy()
        elif column.dtype == object and hasattr(column.iloc[0], "hour"):  # times of day
            values = np.array([t.hour * 3600 + t.minute * 60 + t.second for t in column], dtype=np.float64)
        elif column.dtype == object and hasattr(column.iloc[0], "toordinal"):  # dates
            values = pd.to_datetime(column).astype("datetime64[s]").astype(np.int64).to_numpy().astype(np.float64)
        given[one.name] = column.to_numpy(dtype=np.float64, na_value=np.nan) if values is None else values
    return given


PARTS = (slice(None), slice(3, 4))
"""Batches: all rows, and one row."""


def assert_close(found: np.ndarray, expected: np.ndarray, *, largest: float | None = None) -> None:
    assert found.shape == expected.shape
    largest = np.abs(expected).max(initial=0) if largest is None else largest
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE * largest)


def assert_same(model: Any, table: Any, path: Path) -> onnxruntime.InferenceSession:
    """Compare labels and probabilities, or predictions."""
    session = session_of(model, path)
    predictor: TrainedModel = getattr(model, "model_", getattr(model, "model", model))
    inputs, names = feed(session, table), [one.name for one in session.get_outputs()]
    expected = {"prediction": predictor.predict(table)}
    if predictor.encoding.task.classifies:
        expected = {"label": expected["prediction"], "probabilities": predictor.predict_proba(table)}
    for rows in PARTS:
        found = dict(zip(names, session.run(None, {k: v[rows] for k, v in inputs.items()}), strict=True))
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            if name == "label":
                assert found[name].dtype.kind == values.dtype.kind.replace("U", "O")
                assert found[name].tolist() == values[rows].tolist()
            else:
                assert_close(found[name], values[rows], largest=np.abs(values).max(initial=0))
    return session


# Layers and activations


def predictor_of(spec: Spec, *, members: int = 1) -> TrainedModel:
    """Return a model without scaling, whose predictions are the raw outputs of the network."""
    F, sizes, T = spec.inputs.numeric, spec.inputs.categories, spec.d_out
    values = {f"c{i}": from_texts(f"v{j:03}" for j in range(1, n + 1)) for i, n in enumerate(sizes)}
    columns = [Column(name=f"n{i}", family="number", kind="numeric", parts=(0,)) for i in range(F)]
    columns += [Column(name=name, family="text", kind="categorical") for name in values]
    names = tuple(f"y{i}" for i in range(T))
    encoding = Encoding(
        columns=tuple(columns),
        task=Task(kind="multioutput", names=names, mean=(0.0,) * T, std=(1.0,) * T),
        loss="mse",
        scaling="none",
        center=np.zeros(F),
        scale=np.ones(F),
        fill=np.zeros(F),
        vocabularies=values,
        positional=not sizes,
    )
    made: list[Member] = []
    for i in range(members):
        generator = np.random.default_rng(i)
        tensors: dict[str, np.ndarray] = {}
        for name, value in initialise(spec, seed=3 + i).items():
            moved = value + 0.1 * np.abs(generator.normal(size=value.shape)) * (name not in spec.buffers)
            tensors[name] = moved.astype(np.float32)
        made.append(Member(spec=spec, tensors=tensors, encoding=encoding))
    return TrainedModel(members=tuple(made))


def table_for(spec: Spec, rows: int) -> Any:
    x, codes = rows_for(spec, rows)
    if codes is None:
        return x
    frame = pd.DataFrame({f"n{i}": x[:, i] for i in range(x.shape[1])})
    for i in range(codes.shape[1]):
        frame[f"c{i}"] = [None if code == 0 else f"v{code:03}" for code in codes[:, i]]
    return frame


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


# Files


def test_equal_models_give_equal_bytes(tmp_path: Path) -> None:
    model = predictor_of(Spec.parse("3+cat(2, 9)-columns(pbld)-4:tanh-2"), members=2)
    model.save(tmp_path / "model.safetensors")
    again = ml.load(tmp_path / "model.safetensors")
    for name, one in (("a", model), ("b", again)):
        one.to_onnx(tmp_path / f"{name}.onnx")
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    made = onnx.load(tmp_path / "a.onnx")
    constants = {one.name: onnx.numpy_helper.to_array(one) for one in made.graph.initializer}
    for name, value in model.tensors.items():
        np.testing.assert_array_equal(constants[f"network/{name}"], value)
    assert made.graph.input[0].doc_string == "numbers, NaN for missing values"


def test_members_are_averaged_as_probabilities(tmp_path: Path) -> None:
    """The probabilities are extreme, and the temperature is far from 1."""
    x, y = classes()
    model = MLPClassifier(**QUICK).fit(x, y).model_
    sure = with_tensors(model, lambda name, value: 20 * value if "linear2" in name else value)
    cold = replace(sure, calibration=Calibration(temperature=0.5))
    assert_same(cold, x, tmp_path / "model.onnx")


def test_a_run_a_model_and_an_estimator_are_exported_with_all_members(tmp_path: Path) -> None:
    frame, y = people()
    run = ml.fit(None, frame.assign(outcome=y), target="outcome", ensemble=3, epochs=2, quiet=True)
    assert run.model is not None
    estimator = MLPClassifier(**QUICK).fit(frame, y)
    path = tmp_path / "model.onnx"
    for given, model, members in ((run, run.model, 3), (run.model, run.model, 3), (estimator, estimator, 2)):
        session = session_of(given, path)
        label, probabilities = session.run(None, feed(session, frame))
        assert (label == model.predict(frame)).all()
        assert_close(probabilities, model.predict_proba(frame))
        assert onnx.load(path).graph.doc_string.split(";")[0].endswith(f"average of {members} members")


def test_a_failed_write_keeps_the_existing_file(folder: Path) -> None:
    path = folder / "model.onnx"
    path.write_bytes(b"before")

    def full(name: str) -> None:
        if name == "write.rename":
            raise OSError(28, "No space left on device")

    atomic_files.hook = full
    with pytest.raises(StorageError, match="the disk is full"):
        predictor_of(Spec.parse("2-1")).to_onnx(path)
    assert path.read_bytes() == b"before"
    assert [one.name for one in folder.iterdir()] == ["model.onnx"]


def test_models_that_cannot_be_exported_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.onnx"
    with pytest.raises(OptionError, match=r"a trained model is needed .* got Spec\('2-1'\)"):
        ml.to_onnx(Spec.parse("2-1"), path)
    alone = MLPClassifier().fit(np.zeros((5, 1)), ["a"] * 5)
    with pytest.raises(OptionError, match="there is no network"):
        alone.to_onnx(path)
    monkeypatch.setattr(exporting, "LARGEST", 10)
    with pytest.raises(OptionError, match="must hold at most 10 bytes of numbers, got"):
        predictor_of(Spec.parse("2-1")).to_onnx(path)
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtra, match=r"export to ONNX needs onnx.*pip install 'multilayer\[onnx\]'"):
        predictor_of(Spec.parse("2-1")).to_onnx(path)
    assert not path.exists()


def test_the_command(tmp_path: Path) -> None:
    model = predictor_of(Spec.parse("3-2"))
    model.save(tmp_path / "model.safetensors")

    def run(*args: str) -> Any:
        return CliRunner().invoke(app, ["export", *args], env={"COLUMNS": "300"})

    done = run(str(tmp_path / "model.safetensors"))
    assert done.exit_code == 0, done.output
    assert "written: " in done.stdout
    assert ": one network, with its preprocessing" in done.stdout
    x = np.ones((2, 3))
    assert_close(opened(tmp_path / "model.onnx").run(None, {"x": x})[0], model.outputs(x))
    assert (
        run(str(tmp_path), "--to", "onnx", "--out", str(tmp_path / "b.onnx")).exit_code == 0
    )  # a folder, such as that of a run
    assert (tmp_path / "b.onnx").read_bytes() == (tmp_path / "model.onnx").read_bytes()
    failed = run(str(tmp_path), "--to", "onx")
    assert failed.exit_code == 2
    assert "unknown format 'onx': did you mean 'onnx'?" in failed.stderr
    assert run(str(tmp_path / "none.safetensors")).exit_code == 2


def test_export_needs_no_torch(tmp_path: Path) -> None:
    predictor_of(Spec.parse("3-2")).save(tmp_path / "model.safetensors")
    code = (
        "import sys, multilayer as ml\n"
        "ml.to_onnx(ml.load('model.safetensors'), 'model.onnx')\n"
        "assert not {'torch', 'sklearn', 'onnxruntime'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "model.onnx").exists()
