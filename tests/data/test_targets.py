"""Tasks: inference from the target, and the conversion of targets to numbers and of outputs to predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from multilayer.data import Task, targets
from multilayer.engines import Order, Settings
from multilayer.engines.numpy_engine import NumpyEngine
from multilayer.errors import DataError, OptionError
from multilayer.spec import Spec
from support.training_rows import prepare

N = 60
X = np.random.default_rng(0).normal(size=(N, 3))
I = np.arange(N)  # noqa: E741

INFERRED: list[tuple[str, Any, str, int]] = [
    ("words", np.array(["a", "b"])[I % 2], "binary", 1),
    ("booleans", I % 2 == 0, "binary", 1),
    ("0 and 1", I % 2, "binary", 1),
    ("1 and 2 as floats", I % 2 + 1.0, "binary", 1),
    ("halves", I % 2 + 0.5, "regression", 1),
    ("three words", np.array(["a", "b", "c"])[I % 3], "multiclass", 3),
    ("twelve numbers", I % 12, "multiclass", 12),
    ("thirteen, too few rows each", I % 13, "regression", 1),
    ("whole numbers, all different", I, "regression", 1),
    ("decimals", X[:, 0], "regression", 1),
    ("categories of numbers", pd.Series(I % 30).astype("category"), "multiclass", 30),
    ("two columns of numbers", X[:, :2], "multioutput", 2),
    ("two columns of 0 and 1", np.stack([I % 2, I // 2 % 2], 1), "multilabel", 2),
    ("one column, two dimensions", I[:, None] % 2, "binary", 1),
]


@pytest.mark.parametrize(("name", "y", "kind", "outputs"), INFERRED, ids=[case[0] for case in INFERRED])
def test_tasks_are_inferred(name: str, y: Any, kind: str, outputs: int) -> None:
    ready = prepare((X, y))
    assert (ready.encoding.task.kind, ready.encoding.outputs) == (kind, outputs)
    assert any(note.startswith("task: ") for note in ready.notes)


def test_the_option_task_overrides_inference() -> None:
    assert prepare((X, I % 2), task="regression").encoding.task.kind == "regression"
    assert prepare((X, I), task="multiclass", validation=None).encoding.outputs == N
    assert prepare((X, I % 3), task="classification").encoding.task.kind == "multiclass"
    assert not any(note.startswith("task") for note in prepare((X, I % 2), task="binary").notes)
    for options, error, fault in (
        ({"task": "binry"}, OptionError, "unknown task 'binry': did you mean 'binary'"),
        ({"task": "regression", "loss": "cross_entropy"}, OptionError, "cross_entropy is a loss for classes"),
        ({"task": "binary", "loss": "poisson"}, OptionError, "poisson is a loss for numbers"),
    ):
        with pytest.raises(error, match=fault):
            prepare((X, I % 2), **options)
    with pytest.raises(DataError, match="a binary task must have one target, got 2"):
        prepare((X, X[:, :2]), task="binary")
    with pytest.raises(OptionError, match="cross_entropy needs one class per row, got several labels"):
        prepare((X, np.stack([I % 2, I // 2 % 2], 1)), loss="cross_entropy")
    with pytest.raises(DataError, match="several targets must be numbers or have two values each"):
        prepare((X, np.array([["a", "b"], ["c", "d"], ["e", "b"]])[I % 3]))


COUNTS = (
    "column 'y': {} is a loss for numbers, but the target has {} values, like classes: set task=regression or task=cl"
)


@pytest.mark.parametrize("loss", ["mse", "mae", "huber(2)", "quantile(0.1, 0.9)", "poisson"])
@pytest.mark.parametrize("values", [2, 12])
def test_a_loss_for_numbers_with_a_target_like_classes_needs_the_option_task(loss: str, values: int) -> None:
    counts = I % values
    with pytest.raises(OptionError, match=COUNTS.format(loss.partition("(")[0], values)):
        prepare((X, counts), loss=loss)
    assert not prepare((X, counts), loss=loss, task="regression").encoding.task.classifies
    assert prepare((X, np.array(["no", "yes"])[I % 2]), loss="mse").encoding.task.kind == "binary"
    assert prepare((X, pd.Series(counts).astype("category")), loss="mse").encoding.task.classifies


LOSSES: list[tuple[Any, str, tuple[int, ...], int]] = [
    (I % 2, "binary_cross_entropy", (N, 1), 1),
    (I % 2, "cross_entropy", (N,), 2),
    (I % 2 > 0, "mse", (N, 1), 1),
    (I % 2, "perceptron", (N, 1), 1),
    (I % 3, "cross_entropy(label_smoothing=0.1)", (N,), 3),
    (I % 3, "binary_cross_entropy", (N, 3), 3),
    (np.array(["a", "b", "c"])[I % 3], "mse", (N, 3), 3),
    (X[:, 0], "huber", (N, 1), 1),
    (X[:, 0], "quantile(0.1, 0.5, 0.9)", (N, 1), 3),
    (X[:, :2], "quantile(0.1, 0.9)", (N, 2), 4),
    (np.stack([I % 2, I // 2 % 2], 1), "binary_cross_entropy", (N, 2), 2),
    (X[:, 0] ** 2, "poisson", (N, 1), 1),
]


@pytest.mark.parametrize(("y", "loss", "shape", "outputs"), LOSSES, ids=[f"{i} {c[1]}" for i, c in enumerate(LOSSES)])
def test_every_loss_has_targets_that_an_engine_can_train_on(
    y: Any, loss: str, shape: tuple[int, ...], outputs: int
) -> None:
    ready = prepare((X, y), loss=loss, validation=None)
    assert (ready.data.y.shape, ready.encoding.outputs) == (shape, outputs)
    engine = NumpyEngine(Spec.parse(f"3-4-{outputs}"), ready.data, Settings(loss=loss))
    one = np.ones(2)
    chunk = engine.run(Order(epoch=0, rows=ready.train, batch=30), rate=0.01 * one, decay=0 * one, dropout=one)
    assert np.isfinite(chunk.loss).all()
    z = engine.outputs(ready.train)
    prediction = ready.encoding.decode(z)
    assert len(prediction) == N
    if ready.encoding.task.classifies:
        p = ready.encoding.probabilities(z)
        assert ((p >= 0) & (p <= 1)).all()
        if ready.encoding.task.kind != "multilabel":
            np.testing.assert_allclose(p.sum(1), 1, rtol=1e-12)
            np.testing.assert_array_equal(np.array(ready.encoding.task.classes[0])[p.argmax(1)], prediction)
    else:
        with pytest.raises(DataError, match="has no probabilities"):
            ready.encoding.probabilities(z)


def test_decoded_classes_have_their_original_values() -> None:
    for values in (["no", "yes"], [False, True], [1, 5], [-1.5, 2.5], ["1", "2"]):
        task = Task(kind="binary", names=("y",), classes=(tuple(values),))
        found = targets.decode(task, np.array([[-1.0], [2.0]]), "binary_cross_entropy")
        assert found.tolist() == values
        assert targets.from_dict(targets.to_dict(task)) == task


def test_decoded_numbers_have_their_original_units() -> None:
    y = 1000 + 50 * X[:, :2]
    ready = prepare((X, y), validation=None, dtype="float64")
    np.testing.assert_allclose(ready.data.y.mean(0), 0, atol=1e-9)
    np.testing.assert_allclose(ready.encoding.decode(ready.data.y), y, rtol=1e-12)
    single = prepare((X, y[:, 0]), validation=None, dtype="float64")
    assert single.encoding.decode(single.data.y).shape == (N,)
    counts = prepare((X, I), loss="poisson", task="regression", validation=None, dtype="float64")
    np.testing.assert_allclose(counts.data.y[:, 0], I / np.mean(I), rtol=1e-12)  # an output of 0 is the mean
    np.testing.assert_allclose(counts.encoding.decode(np.log(counts.data.y + 1)), I + np.mean(I), rtol=1e-12)
    crossed = prepare((X, y[:, 0]), loss="quantile(0.1, 0.5, 0.9)", validation=None).encoding
    assert (np.diff(crossed.decode(np.array([[0.5, -1.0, 0.7], [3.0, 2.0, 1.0]])), axis=1) > 0).all()
    three = prepare((X, y[:, 0]), loss="quantile(0.1, 0.5, 0.9)", validation=None).encoding
    assert three.decode(np.zeros((5, 3))).shape == (5, 3)
    two = prepare((X, y), loss="quantile(0.1, 0.9)", validation=None).encoding
    assert two.decode(np.zeros((5, 4))).shape == (5, 2, 2)


def test_a_constant_target_gives_a_note() -> None:
    ready = prepare((X, np.full(N, 2.5)))
    assert "target 'y' is the same in every training row" in ready.notes
    np.testing.assert_array_equal(ready.encoding.decode(np.zeros((3, 1))), [2.5] * 3)


def test_targets_are_standardised_by_training_rows() -> None:
    y = 10.0 + X[:, 0]
    before = prepare((X, y), seed=3)
    y[before.validation] += 1000.0
    after = prepare((X, y), seed=3)
    np.testing.assert_array_equal(before.train, after.train)
    assert after.encoding.task.mean == pytest.approx([y[after.train].mean()])
    assert after.encoding.task.std == pytest.approx([y[after.train].std()])
