"""Losses of the estimators and of `ml.fit` that need the torch engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import multilayer as ml
from multilayer import MLPClassifier
from multilayer.errors import OptionError
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


def test_a_loss_function_in_torch() -> None:
    """A function that computes the loss of the task trains the same network as the name of the loss."""
    import torch.nn.functional as F

    options: Any = {"engine": "torch", "epochs": 3, "quiet": True, "dtype": "float64"}
    named = ml.fit("4-8-3", "iris", loss="cross_entropy", **options)
    for reduction in ("none", "mean"):
        run = ml.fit("4-8-3", "iris", loss=lambda z, y, r=reduction: F.cross_entropy(z, y, reduction=r), **options)
        a, b = ([event["loss"] for event in one.events if event["event"] == "epoch"] for one in (run, named))
        assert a == pytest.approx(b, rel=1e-9)
        assert run.metrics == pytest.approx(named.metrics)
    weight = np.linspace(0.5, 1.5, 150)
    weighted = [
        ml.fit("4-8-3", "iris", loss=loss, sample_weight=weight, **options).metrics["log_loss"]
        for loss in ("cross_entropy", lambda z, y: F.cross_entropy(z, y, reduction="none"))
    ]
    assert weighted[0] == pytest.approx(weighted[1])


def test_a_loss_function_for_the_recipe() -> None:
    x, y = classes(240)
    run = ml.fit(
        None, (x, y), loss=lambda z, y: ((z - y) ** 2).sum(-1), epochs=4, hidden=8, task="regression", quiet=True
    )
    assert run.model is not None
    assert run.events[0]["engine"] == "torch"


def test_loss_functions_that_cannot_be_used(tmp_path: Path) -> None:
    options: Any = {"epochs": 1, "quiet": True}
    with pytest.raises(OptionError, match="a loss function cannot be saved in a run folder"):
        ml.fit("4-8-3", "iris", loss=lambda z, y: z.mean(), run=tmp_path / "run", **options)
    with pytest.raises(OptionError, match="a loss function needs the torch engine, got engine='fused': omit engine"):
        ml.fit("4-8-3", "iris", loss=lambda z, y: z.mean(), engine="fused", **options)
    with pytest.raises(
        OptionError, match=r"must return a tensor with the loss of each of \d+ rows, or their mean, got"
    ):
        ml.fit("4-8-3", "iris", loss=lambda z, y: z, **options)
    with pytest.raises(OptionError, match=r"must return a tensor .*, got float"):
        ml.fit("4-8-3", "iris", loss=lambda z, y: 1.0, **options)
