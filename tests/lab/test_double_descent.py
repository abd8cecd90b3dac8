"""The test error peaks where parameters and rows are equally many, and the measurements agree with exact values."""

from __future__ import annotations

import numpy as np
import pytest

from multilayer.lab.experiments.double_descent import Descent, decomposition, least_squares, weak_error
from support.experiments import tiny


def test_the_error_peaks_at_the_threshold_and_falls_beyond() -> None:
    rows = tiny("double_descent").rows
    for model in ("random", "network"):
        found = Descent(rows, model)
        assert 0.5 < found.peak_at < 2
        assert found.rise > 2
        assert found.fall < 0.5


@pytest.mark.parametrize("p", [4, 40])
def test_the_error_of_weak_features_is_the_mean_over_many_training_sets(p: int) -> None:
    n, count, noise = 12, 60, 0.4
    generator = np.random.default_rng(0)
    beta = np.full(count, count**-0.5)
    errors: list[float] = []
    for _ in range(1500):
        x = generator.normal(size=(n, count))
        found = least_squares(x[:, :p], x @ beta + noise * generator.normal(size=n))
        errors.append(float(np.square(found - beta[:p]).sum() + np.square(beta[p:]).sum()))
    expected = weak_error(n, p, p / count, 1 - p / count, noise**2)
    assert np.mean(errors) == pytest.approx(expected, rel=5 * np.std(errors) / np.mean(errors) / 1500**0.5)


def test_bias_and_variance_add_up_to_the_error() -> None:
    generator = np.random.default_rng(0)
    true, predictions = generator.normal(size=50), generator.normal(size=(7, 50))
    found = decomposition(predictions, true)
    assert found["test_error"] == pytest.approx(np.square(predictions - true).mean())
    assert found["variance"] == pytest.approx(predictions.var(axis=0, ddof=1).mean())


def test_least_squares_takes_the_solution_of_smallest_norm() -> None:
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(5, 9)), generator.normal(size=5)
    found = least_squares(x, y)
    np.testing.assert_allclose(found, x.T @ np.linalg.solve(x @ x.T, y), atol=1e-10)
