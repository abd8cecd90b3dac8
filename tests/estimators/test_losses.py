"""Losses of the estimators and of `ml.fit` that need the torch engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import multilayer as ml
from multilayer import MLPClassifier
from support.quick_estimators import QUICK, classes


@pytest.mark.parametrize("count", [2, 3])
def test_focal_loss_by_name(count: int) -> None:
    x, y = classes(240, count)
    options: Any = {**QUICK, "ensemble": 1, "epochs": 24}
    model = MLPClassifier(**options, loss="focal(gamma=2)").fit(x, y)
    assert model.config_["engine"] == "torch"
    assert model.score(x, y) > 0.8
    assert model.model_.encoding.loss == "focal(gamma=2)"
    # Calibration uses the cross-entropy, so confidence and accuracy agree.
    assert model.predict_proba(x).max(1).mean() == pytest.approx(model.score(x, y), abs=0.15)
    assert np.allclose(model.predict_proba(x).sum(1), 1)


def test_focal_loss_without_smoothing_is_cross_entropy_at_gamma_zero() -> None:
    options: Any = {"engine": "torch", "epochs": 3, "quiet": True, "dtype": "float64"}
    runs = [ml.fit("4-8-3", "iris", loss=loss, **options) for loss in ("focal(gamma=0)", "cross_entropy")]
    a, b = ([event["loss"] for event in run.events if event["event"] == "epoch"] for run in runs)
    assert a == pytest.approx(b, rel=1e-9)
