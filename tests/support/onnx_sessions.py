"""Run ONNX models and compare them with `TrainedModel`.

Tolerance: both sides compute in float32 (eps 6e-8) and sum in different orders. The longest sums have 784 terms with a
rounding error of about √784·eps ≈ 2e-6. After a few layers, the error is at most 1e-5 of the largest output.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pandas as pd

import multilayer as ml
from multilayer.data import Column, Encoding, Task
from multilayer.data.table import from_texts
from multilayer.models.members import Member
from multilayer.models.trained_model import TrainedModel
from multilayer.spec import Spec
from multilayer.spec.initialization import initialise
from support.cases import rows_for

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
