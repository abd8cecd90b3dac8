"""scikit-learn's contract: its own checks on both estimators, and what stands in for the two that cannot hold.

The checks fit some hundred times, so the recipe is cut down; nothing else is special: no tag asks for leniency. Two
checks are expected to fail, as for scikit-learn's own forests and boosting: that a weight of 2 equals a row given twice
to 1e-7. Orders, masks and parts held out are drawn by row, so that two rows are not one. What does hold, on average
over seeds, is tested here instead.
"""

from __future__ import annotations

from typing import Any
from unittest import SkipTest

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from multilayer import MLPClassifier, MLPRegressor

CUT_DOWN: dict[str, Any] = {"ensemble": 2, "epochs": 40, "hidden": (16,), "batch_size": 32, "random_state": 0}
UNLIKE = (
    "rows are drawn one by one: a weight is like a repetition on average only, see test_weights_act_like_repetition"
)


def expected(estimator: Any) -> dict[str, str]:
    return {f"check_sample_weight_equivalence_on_{kind}_data": UNLIKE for kind in ("dense", "sparse")}


@parametrize_with_checks([MLPClassifier(**CUT_DOWN), MLPRegressor(**CUT_DOWN)], expected_failed_checks=expected)
def test_contract(estimator: Any, check: Any, tried: Any) -> None:
    name = type(estimator).__name__
    try:
        check(estimator)
    except SkipTest as reason:
        tried(f"scikit-learn's checks of {name} skipped: {str(reason)[:70]}", 1)
        raise
    except AssertionError:
        tried(f"scikit-learn's checks of {name} that failed, expected or not", 1)
        raise
    tried(f"scikit-learn's checks of {name} passed", 1)


@pytest.mark.parametrize("estimator", [MLPClassifier(), MLPRegressor()])
def test_no_tag_asks_for_leniency(estimator: Any) -> None:
    tags = get_tags(estimator)
    assert not tags.non_deterministic
    assert not tags._skip_test
    for kind in (tags.classifier_tags, tags.regressor_tags):
        assert kind is None or not kind.poor_score
    assert tags.input_tags.allow_nan
    assert tags.input_tags.categorical
    assert tags.input_tags.sparse


def test_weights_act_like_repetition(tried: Any) -> None:
    """Two kinds of rows that contradict each other, one with weights of 2 and 3, one with 0 and 1, so that weights
    decide what is right. Over 30 seeds the mean prediction with weights is that with rows repeated so often: nearer
    than a tenth of what weights change at all, and at every point within four standard errors of the difference."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(100, 2))
    heavy = generator.random(100) < 0.5
    y = np.where(heavy, 1.0, -1.0) + 0.5 * np.sin(2 * x[:, 0])
    weight = np.where(heavy, generator.integers(2, 4, 100), generator.integers(0, 2, 100))
    at = generator.normal(size=(20, 2))
    repeated = np.repeat(np.arange(100), weight)
    rows: dict[str, tuple[Any, Any, Any]] = {
        "weighted": (x, y, weight),
        "repeated": (x[repeated], y[repeated], None),
        "plain": (x, y, None),
    }
    model = MLPRegressor(**{**CUT_DOWN, "ensemble": 1, "batch_size": 300, "validation": None, "learning_rate": 0.02})
    found = {
        name: np.stack([clone(model).set_params(random_state=s).fit(a, b, w).predict(at) for s in range(30)])
        for name, (a, b, w) in rows.items()
    }
    apart = found["weighted"] - found["repeated"]
    error = apart.std(0, ddof=1) / np.sqrt(30)
    effect = found["plain"].mean(0) - found["repeated"].mean(0)
    assert np.sqrt((apart.mean(0) ** 2).mean()) < 0.1 * np.sqrt((effect**2).mean())
    assert (np.abs(apart.mean(0)) < 4 * error).all()
    tried("weights against repetition: fits", 90)
