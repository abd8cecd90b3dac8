"""scikit-learn's checks on both estimators, and replacements for two checks that are expected to fail.

The checks fit hundreds of models, so the networks are small. No tag skips a check. As for scikit-learn's own forests
and boosting, two checks are expected to fail: that a weight of 2 equals a repeated row to 1e-7. The order of rows, the
dropout masks and the held-out parts are drawn by row, so a repeated row has other draws. The tests here check instead
that both agree on average over seeds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any
from unittest import SkipTest

import numpy as np
import pytest
from scipy.sparse import csr_array
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


def check_array_api(estimator: Any) -> None:
    """This check needs SCIPY_ARRAY_API before SciPy is imported, so it runs in a separate process."""
    code = (
        "from multilayer import MLPClassifier, MLPRegressor\n"
        "from sklearn.utils.estimator_checks import check_array_api_input\n"
        f"check_array_api_input('estimator', {type(estimator).__name__}(**{CUT_DOWN!r}), array_namespace='numpy')"
    )
    env = os.environ | {"SCIPY_ARRAY_API": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@parametrize_with_checks([MLPClassifier(**CUT_DOWN), MLPRegressor(**CUT_DOWN)], expected_failed_checks=expected)
def test_contract(estimator: Any, check: Any, tried: Any) -> None:
    name = type(estimator).__name__
    try:
        check(estimator)
    except SkipTest as reason:
        if "SCIPY_ARRAY_API" in str(reason):
            check_array_api(estimator)
        elif "does not have a decision_function" not in str(reason):
            raise
        else:
            tried(f"scikit-learn's checks of {name} that do not apply: {reason}", 1)
            return
    except AssertionError:
        tried(f"scikit-learn's checks of {name} that failed, expected or not", 1)
        raise
    tried(f"scikit-learn's checks of {name} passed", 1)


@pytest.mark.parametrize("estimator", [MLPClassifier(), MLPRegressor()])
def test_no_tag_skips_checks(estimator: Any) -> None:
    tags = get_tags(estimator)
    assert not tags.non_deterministic
    assert not tags._skip_test
    for kind in (tags.classifier_tags, tags.regressor_tags):
        assert kind is None or not kind.poor_score
    assert tags.input_tags.allow_nan
    assert tags.input_tags.categorical
    assert tags.input_tags.sparse


SEEDS = 30


def contradictory(estimator: Any, *, sparse: bool) -> tuple[dict[str, dict[str, Any]], Any]:
    """Return arguments of fit with weights, with repeated rows and with neither, and rows to predict.

    Half of the rows contradict the others. Their weights are 2 or 3, those of the others 0 or 1, so predictions depend
    on the weights. A row and its repetitions are a group, so they are never split.
    """
    generator = np.random.default_rng(0)
    x, at = generator.normal(size=(100, 2)), generator.normal(size=(20, 2))
    heavy = generator.random(100) < 0.5
    y: Any = np.where(heavy, 1.0, -1.0) + 0.5 * np.sin(2 * x[:, 0])
    if isinstance(estimator, MLPClassifier):
        y = np.where(y > 0, "yes", "no")
    weight = np.where(heavy, generator.integers(2, 4, 100), generator.integers(0, 2, 100))
    if sparse:
        x, at = (csr_array(np.where(np.abs(one) < 0.5, 0.0, one)) for one in (x, at))
    ids, repeated = np.arange(100), np.repeat(np.arange(100), weight)
    ways: dict[str, dict[str, Any]] = {
        "weighted": {"X": x, "y": y, "sample_weight": weight, "groups": ids},
        "repeated": {"X": x[repeated], "y": y[repeated], "groups": ids[repeated]},
        "plain": {"X": x, "y": y, "groups": ids},
    }
    return ways, at


def predictions(model: Any, how: dict[str, Any], at: Any) -> np.ndarray:
    """Return predictions, or probabilities of the second class, of a fit with each seed: (S, N)."""
    fitted = [clone(model).set_params(random_state=seed).fit(**how) for seed in range(SEEDS)]
    return np.stack([m.predict_proba(at)[:, 1] if hasattr(m, "predict_proba") else m.predict(at) for m in fitted])


def agree(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether the means over seeds differ by less than four standard errors at every point."""
    error = np.sqrt((a.var(0, ddof=1) + b.var(0, ddof=1)) / SEEDS)
    return bool((np.abs(a.mean(0) - b.mean(0)) < 4 * error).all())


ALONE: dict[str, Any] = {"ensemble": 1, "validation": None}
DEFAULT: dict[str, Any] = {"ensemble": 4}
"""Each member holds out a different part of the rows, to choose the epoch and for calibration."""


@pytest.mark.parametrize(
    ("path", "sparse"),
    [(ALONE, False), (ALONE, True), (DEFAULT, False)],
    ids=["alone-dense", "alone-sparse", "default-dense"],
)
@pytest.mark.parametrize("kind", [MLPClassifier, MLPRegressor])
def test_weights_act_like_repetition(kind: Any, path: dict[str, Any], sparse: bool, tried: Any) -> None:
    """Over 30 seeds, the mean predictions with weights and with repeated rows agree. Their difference is less than a
    tenth of the effect of the weights. Predictions without weights do not agree."""
    model = kind(**{**CUT_DOWN, "batch_size": 300, "learning_rate": 0.02, **path})
    ways, at = contradictory(model, sparse=sparse)
    if path is ALONE:
        ways = {name: {**how, "groups": None} for name, how in ways.items()}
    found = {name: predictions(model, how, at) for name, how in ways.items()}
    difference, effect = (found[name].mean(0) - found["repeated"].mean(0) for name in ("weighted", "plain"))
    assert agree(found["weighted"], found["repeated"])
    assert not agree(found["plain"], found["repeated"])
    assert np.sqrt((difference**2).mean()) < 0.1 * np.sqrt((effect**2).mean())
    tried("weights against repetition: fits", len(ways) * SEEDS)
