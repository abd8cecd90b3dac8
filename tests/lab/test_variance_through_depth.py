"""He keeps the variance through ReLU layers, and a variance of 1 or 0.01 does not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from multilayer.lab.experiments.variance_through_depth import change, geometric_mean, largest_change
from multilayer.spec import Spec
from multilayer.spec.initialization import initialise
from support.experiments import tiny


def test_he_is_steady_with_relu_and_fixed_variances_are_not() -> None:
    rows = tiny("variance_through_depth").rows
    assert largest_change(rows, "relu", "he") < 5
    assert change(rows, "relu", "normal(1)", "forward") > 1e5
    assert change(rows, "relu", "normal(0.01)", "forward") < 1e-3
    assert change(rows, "relu", "torch", "backward") < 1e-4
    assert largest_change(rows, "tanh", "xavier") < largest_change(rows, "tanh", "normal(1)") / 100


def test_the_mean_squares_are_those_of_a_plain_pass() -> None:
    """Other random rows give the same mean squares up to sampling."""
    result = tiny("variance_through_depth", seeds=1)
    n, depth = result.settings["width"], result.settings["depth"]
    found: dict[int, list[float]] = {i: [] for i in range(1, depth + 1)}
    for network in range(result.settings["networks"]):
        tensors = initialise(Spec.parse("-".join([str(n), *[f"{n}:relu"] * depth, str(n)])), "he", seed=network)
        a = np.random.default_rng(network).normal(size=(1000, n))
        for i in range(1, depth + 1):
            a = np.maximum(a @ tensors[f"linear{i}.weight"].T, 0)
            found[i].append(float(np.mean(a**2)))
    measured = result.rows.where(activation="relu", scheme="he")
    for i, values in found.items():
        assert measured.where(layer=i).mean("forward") == pytest.approx(math.sqrt(math.prod(values)), rel=0.3)
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
