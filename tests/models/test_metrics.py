"""Metrics compared with scikit-learn, with and without weights, and metrics without a value."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as theirs

from multilayer.data import Task
from multilayer.errors import OptionError
from multilayer.models import metrics

N = 80
RNG = np.random.default_rng(0)
WEIGHTS = [None, RNG.random(N) + 0.1]
BINARY = Task(kind="binary", names=("y",), classes=(("no", "yes"),))
MULTI = Task(kind="multiclass", names=("y",), classes=((0, 1, 2),))
LABELS = Task(kind="multilabel", names=("a", "b"), classes=((0, 1), (0, 1)))
NUMBER = Task(kind="regression", names=("y",), mean=(10.0,), std=(3.0,))
NUMBERS = Task(kind="multioutput", names=("a", "b"), mean=(10.0, -5.0), std=(3.0, 0.5))


def every(task: Task, y: Any, z: Any, loss: str, weight: Any) -> dict[str, float]:
    return metrics.measure(task, y, z, loss=loss, weight=weight, names=metrics.names_for(task))


@pytest.mark.parametrize("weight", WEIGHTS, ids=["plain", "weighted"])
def test_binary(weight: Any) -> None:
    y, z = RNG.integers(0, 2, (N, 1)).astype(float), RNG.normal(size=(N, 1))
    p = 1 / (1 + np.exp(-z[:, 0]))
    found = every(BINARY, y, z, "binary_cross_entropy", weight)
    truth, given = y[:, 0].astype(int), (p > 0.5).astype(int)
    expected = {
        "accuracy": theirs.accuracy_score(truth, given, sample_weight=weight),
        "balanced_accuracy": theirs.balanced_accuracy_score(truth, given, sample_weight=weight),
        "log_loss": theirs.log_loss(truth, p, sample_weight=weight),
        "auc": theirs.roc_auc_score(truth, p, sample_weight=weight),
        "average_precision": theirs.average_precision_score(truth, p, sample_weight=weight),
        "f1": theirs.f1_score(truth, given, sample_weight=weight),
    }
    assert found == pytest.approx(expected, rel=1e-12)
    two = np.concatenate([0 * z, z], 1)
    assert every(BINARY, truth, two, "cross_entropy", weight) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("weight", WEIGHTS, ids=["plain", "weighted"])
def test_multiclass(weight: Any) -> None:
    y, z = RNG.integers(0, 3, N), RNG.normal(size=(N, 3))
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    given = p.argmax(1)
    one_by_one = [theirs.roc_auc_score(y == c, p[:, c], sample_weight=weight) for c in range(3)]
    expected = {
        "accuracy": theirs.accuracy_score(y, given, sample_weight=weight),
        "balanced_accuracy": theirs.balanced_accuracy_score(y, given, sample_weight=weight),
        "log_loss": theirs.log_loss(y, p, sample_weight=weight),
        "auc": np.mean(one_by_one),
        "average_precision": theirs.average_precision_score(y, p, sample_weight=weight),
        "f1": theirs.f1_score(y, given, average="macro", sample_weight=weight),
    }
    assert every(MULTI, y, z, "cross_entropy", weight) == pytest.approx(expected, rel=1e-12)
    mixed = np.eye(3)[y]
    assert every(MULTI, mixed, z, "cross_entropy", weight) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("weight", WEIGHTS, ids=["plain", "weighted"])
def test_multilabel(weight: Any) -> None:
    y, z = RNG.integers(0, 2, (N, 2)).astype(float), RNG.normal(size=(N, 2))
    p = 1 / (1 + np.exp(-z))
    expected = {
        "accuracy": 1 - theirs.hamming_loss(y, p > 0.5, sample_weight=weight),
        "log_loss": np.mean([theirs.log_loss(y[:, i], p[:, i], sample_weight=weight) for i in range(2)]),
        "auc": theirs.roc_auc_score(y, p, average="macro", sample_weight=weight),
        "average_precision": theirs.average_precision_score(y, p, average="macro", sample_weight=weight),
        "f1": theirs.f1_score(y, p > 0.5, average="macro", sample_weight=weight),
    }
    assert every(LABELS, y, z, "binary_cross_entropy", weight) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("weight", WEIGHTS, ids=["plain", "weighted"])
@pytest.mark.parametrize("task", [NUMBER, NUMBERS], ids=["one", "two"])
def test_regression(task: Task, weight: Any) -> None:
    T = len(task.names)
    y, z = RNG.normal(size=(N, T)), RNG.normal(size=(N, T))
    truth, given = y * task.std + task.mean, z * task.std + task.mean
    expected = {
        "rmse": theirs.root_mean_squared_error(truth, given, sample_weight=weight),
        "mae": theirs.mean_absolute_error(truth, given, sample_weight=weight),
        "r2": theirs.r2_score(truth, given, sample_weight=weight),
    }
    assert every(task, y, z, "mse", weight) == pytest.approx(expected, rel=1e-12)


MEDIANS: list[tuple[str, list[float]]] = [
    ("0.1, 0.5, 0.9", [0, 1, 0]),
    ("0.05, 0.1, 0.5", [0, 0, 1]),
    ("0.2, 0.4, 0.8", [0, 0.75, 0.25]),
    ("0.1, 0.9", [0.5, 0.5]),
    ("0.6, 0.7", [1, 0]),
    ("0.1, 0.2", [0, 1]),
    ("0.3", [1]),
]
"""Levels, and the weight of each in the median."""


@pytest.mark.parametrize(("levels", "share"), MEDIANS, ids=[levels for levels, _ in MEDIANS])
@pytest.mark.parametrize("task", [NUMBER, NUMBERS], ids=["one", "two"])
def test_the_median_of_quantiles_is_evaluated(task: Task, levels: str, share: list[float]) -> None:
    T = len(task.names)
    y, z = RNG.normal(size=(N, T)), np.sort(RNG.normal(size=(N, T, len(share))), axis=2)
    median = every(task, y, z @ share, "mse", None)
    assert every(task, y, z.reshape(N, -1), f"quantile({levels})", None) == pytest.approx(median, rel=1e-12)


def test_the_median_needs_no_other_level() -> None:
    """An infinite quantile does not change the median."""
    y, z = RNG.normal(size=(N, 1)), np.sort(RNG.normal(size=(N, 3)), axis=1)
    known = every(NUMBER, y, z, "quantile(0.1, 0.5, 0.9)", None)
    z[:, 2] = np.inf
    assert every(NUMBER, y, z, "quantile(0.1, 0.5, 0.9)", None) == known


@pytest.mark.parametrize("weight", WEIGHTS, ids=["plain", "weighted"])
@pytest.mark.parametrize("levels", [1, 2, 5, 1000])
@pytest.mark.parametrize(
    ("name", "function"),
    [("auc", theirs.roc_auc_score), ("average_precision", theirs.average_precision_score)],
    ids=["auc", "average precision"],
)
def test_areas_where_scores_are_equal(name: str, function: Any, levels: int, weight: Any) -> None:
    y, z = RNG.integers(0, 2, (N, 1)).astype(float), RNG.integers(0, levels, (N, 1)) / 100
    found = metrics.measure(BINARY, y, z, loss="binary_cross_entropy", weight=weight, names=[name])
    assert found[name] == pytest.approx(function(y[:, 0], z[:, 0], sample_weight=weight), rel=1e-12)


def test_average_precision_of_classes_without_a_row_and_of_rows_without_weight() -> None:
    y, z = np.array([0, 0, 3, 3]), RNG.normal(size=(4, 4))
    task = Task(kind="multiclass", names=("y",), classes=((0, 1, 2, 3),))
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    present = [theirs.average_precision_score(y == c, p[:, c]) for c in (0, 3)]
    assert every(task, y, z, "cross_entropy", None)["average_precision"] == pytest.approx(np.mean(present))
    score, yes = np.array([[3.0], [2.0], [1.0]]), np.array([[0.0], [1.0], [0.0]])
    weight = np.array([0.0, 1.0, 1.0])  # the row with the highest score does not count
    assert every(BINARY, yes, score, "binary_cross_entropy", weight)["average_precision"] == 1


def test_metrics_are_shown_in_one_order() -> None:
    found = every(BINARY, np.array([[1.0], [0.0]]), np.zeros((2, 1)), "binary_cross_entropy", None)
    assert list(metrics.shown(dict(sorted(found.items())))) == list(found)


def test_classes_that_are_never_predicted_or_never_true() -> None:
    y, z = np.array([0, 0, 3, 3]), np.eye(4)[[0, 1, 1, 3]]
    task = Task(kind="multiclass", names=("y",), classes=((0, 1, 2, 3),))
    found = every(task, y, z, "cross_entropy", None)
    given = z.argmax(1)
    assert found["f1"] == pytest.approx(theirs.f1_score(y, given, average="macro", zero_division=0))
    assert found["balanced_accuracy"] == 0.5
    nothing = every(BINARY, np.array([[1.0], [0.0]]), np.full((2, 1), -3.0), "binary_cross_entropy", None)
    assert nothing["f1"] == 0


def test_measuring_imports_no_scikit_learn() -> None:
    code = """
import sys, numpy as np
from multilayer.models import metrics
from multilayer.data import Task
task = Task(kind="binary", names=("y",), classes=((0, 1),))
y = z = np.array([[0.0], [1.0]])
metrics.measure(task, y, z, loss="binary_cross_entropy", names=metrics.names_for(task))
assert not {"sklearn", "scipy"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_metrics_without_a_value_are_nan() -> None:
    one = metrics.measure(BINARY, np.zeros((4, 1)), RNG.normal(size=(4, 1)), loss="binary_cross_entropy")
    assert math.isnan(one["auc"])
    none = metrics.measure(
        BINARY, np.zeros((4, 1)), RNG.normal(size=(4, 1)), loss="binary_cross_entropy", names=["average_precision"]
    )
    assert math.isnan(none["average_precision"])
    assert not math.isnan(one["accuracy"])
    y, z = np.array([[0.0], [1.0], [0.0]]), np.array([[0.5], [math.nan], [0.0]])
    areas = ["auc", "average_precision"]
    found = metrics.measure(BINARY, y, z, loss="binary_cross_entropy", names=areas)
    assert all(math.isnan(found[name]) for name in areas)
    unseen = np.array([1.0, 0.0, 1.0])
    z[1] = 1.0
    found = metrics.measure(BINARY, y, z, loss="binary_cross_entropy", names=["auc"], weight=unseen)
    assert math.isnan(found["auc"])
    assert math.isnan(metrics.measure(NUMBER, np.zeros((3, 1)), np.ones((3, 1)), loss="mse")["r2"])
    empty = metrics.measure(NUMBER, np.zeros((0, 1)), np.zeros((0, 1)), loss="mse")
    assert all(math.isnan(value) for value in empty.values())
    sure = metrics.measure(BINARY, np.ones((2, 1)), np.full((2, 1), -1e4), loss="binary_cross_entropy")
    assert math.isfinite(sure["log_loss"])


def test_names() -> None:
    assert metrics.get("rmse").better == "lower"
    assert metrics.get("auc").better == "higher"
    for kind, usual in metrics.USUAL.items():
        assert all(kind in metrics.get(name).tasks for name in usual)
    with pytest.raises(OptionError, match="unknown metric 'acuracy': did you mean 'accuracy'"):
        metrics.get("acuracy")
    with pytest.raises(OptionError, match="auc does not fit a regression task: it has rmse, mae, r2"):
        metrics.measure(NUMBER, np.zeros((1, 1)), np.zeros((1, 1)), loss="mse", names=["auc"])


def test_a_probability_of_zero_is_a_large_but_finite_log_loss() -> None:
    from multilayer.models.metrics import log_loss

    found = log_loss(np.array([0]), np.array([[0.0, 1.0]]), np.ones(1))
    assert found == pytest.approx(-np.log(np.finfo(np.float64).eps))
