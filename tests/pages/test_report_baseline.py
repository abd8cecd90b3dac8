"""The baseline of a report has the metrics of scikit-learn's dummy estimator, fitted on the training rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sk
from sklearn.dummy import DummyClassifier, DummyRegressor

import multilayer as ml
from multilayer.data import TrainingData
from multilayer.pages.report.report import report
from multilayer.pages.report.verdict import figure
from multilayer.training.run import Run, write_report
from multilayer.training.setup import Setup


def trained(X: np.ndarray, y: np.ndarray, path: Path) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Return the report of a short run, its training rows and its held-out rows."""
    kept: list[TrainingData] = []

    def keep(run: Run, setup: Setup, *rest: Any, **how: Any) -> None:
        kept.append(setup.prepared)
        write_report(run, setup, *rest, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("multilayer.training.fit.write_report", keep)
        ml.fit("3-4-" + str(1 if len(np.unique(y)) != 3 else 3), (X, y), epochs=1, run=path, quiet=True)
    (prepared,) = kept
    return report(path), prepared.origin[prepared.train], prepared.origin[prepared.validation]


def baselines(found: dict[str, Any]) -> dict[str, float]:
    return {entry["name"]: entry["baseline"] for entry in found["evaluation"]["metrics"]}


@pytest.mark.parametrize("shares", [(0.7, 0.3), (0.2, 0.5, 0.3)], ids=["binary", "multiclass"])
def test_the_baseline_for_classes_has_the_training_frequencies(shares: tuple[float, ...], tmp_path: Path) -> None:
    g = np.random.default_rng(0)
    X = g.normal(size=(200, 3))
    y = g.choice(len(shares), size=200, p=shares)
    found, train, held = trained(X, y, tmp_path / "run")
    dummy = DummyClassifier(strategy="prior").fit(X[train], y[train])
    predicted, p = dummy.predict(X[held]), dummy.predict_proba(X[held])
    first = 1 if len(shares) == 2 else 0  # of two classes, the second is the positive one
    expected = {
        "accuracy": sk.accuracy_score(y[held], predicted),
        "balanced_accuracy": sk.balanced_accuracy_score(y[held], predicted),
        "log_loss": sk.log_loss(y[held], p),
        "auc": 0.5,
        "average_precision": sk.average_precision_score(np.eye(len(shares))[y[held]][:, first:], p[:, first:]),
        "f1": sk.f1_score(y[held], predicted, average="binary" if len(shares) == 2 else "macro", zero_division=0.0),
    }
    assert baselines(found) == pytest.approx(expected, abs=1e-12)
    chosen = found["evaluation"]["metric"]
    sentences = " ".join(one["text"] for one in found["verdict"]["sentences"])
    assert figure(chosen, expected[chosen]) in sentences


def test_the_baseline_for_numbers_predicts_the_mean_of_the_training_rows(tmp_path: Path) -> None:
    g = np.random.default_rng(1)
    X = g.normal(size=(200, 3))
    y = np.exp(g.normal(size=200))  # skewed: the mean is far from the median
    found, train, held = trained(X, y, tmp_path / "run")
    predicted = DummyRegressor(strategy="mean").fit(X[train], y[train]).predict(X[held])
    expected = {
        "rmse": sk.root_mean_squared_error(y[held], predicted),
        "mae": sk.mean_absolute_error(y[held], predicted),
        "r2": sk.r2_score(y[held], predicted),
    }
    assert baselines(found) == pytest.approx(expected, rel=1e-5)  # targets are float32
    sentences = " ".join(one["text"] for one in found["verdict"]["sentences"])
    assert figure("rmse", baselines(found)["rmse"]) in sentences
