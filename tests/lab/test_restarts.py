"""Convex models end at one optimum and networks at several, and the distances are those of every permutation."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy.optimize import minimize

from multilayer.lab.experiments.restarts import (
    Settings,
    convex,
    distance,
    failures,
    logistic_ending,
    networks,
    squared_weights,
    units,
)
from multilayer.lab.training import Network, Task
from support.experiments import tiny


def test_convex_models_have_one_optimum_and_small_networks_fail() -> None:
    rows = tiny("restarts").rows
    assert convex(rows, "distance") < 1e-3
    assert convex(rows, "disagreement") == 0.0
    assert networks(rows).mean("distance") > 0.3
    assert failures(rows, min) > failures(rows, max)


def test_the_optimum_of_logistic_regression_is_that_of_another_solver() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    task = Task(x=x, y=(x[:, 0] + rng.normal(size=60) > 0).astype(np.int64))
    settings = Settings(penalty=0.05)

    def objective(w: np.ndarray) -> float:
        margins = (2 * task.y - 1) * (x @ w[:2] + w[2])
        return float(np.logaddexp(0, -margins).mean() + 0.025 * (w[:2] ** 2).sum())

    found = minimize(objective, np.zeros(3), tol=1e-12)
    for seed in range(3):
        ending = logistic_ending(settings, task, task, seed)
        assert ending.objective == pytest.approx(found.fun, rel=1e-6)
        np.testing.assert_allclose(ending.weights[0], found.x[:2], atol=1e-3)


def test_the_distance_is_the_smallest_over_all_permutations_of_the_units() -> None:
    rng = np.random.default_rng(1)
    one, other = rng.normal(size=(2, 5, 3))
    smallest = min(np.linalg.norm(one - other[list(order)]) for order in permutations(range(5)))
    expected = smallest / np.sqrt(np.linalg.norm(one) * np.linalg.norm(other))
    assert distance(one, other) == pytest.approx(expected)
    assert distance(one, one[::-1]) == 0.0


def test_the_units_hold_all_weights_of_a_network() -> None:
    network = Network.initial("3-4:relu-2", seed=0)
    assert units(network).shape == (4, 3 + 1 + 2)
    assert squared_weights(network) == pytest.approx((units(network)[:, [0, 1, 2, 4, 5]] ** 2).sum())
