"""At equal FLOPs, GELU is narrower than ReLU and learns products of inputs better."""

from __future__ import annotations

import numpy as np
import pytest

from multilayer.costs import cost
from multilayer.lab.experiments.activation_functions import EXPERIMENT, network, products, ratio, tasks, widest
from support.experiments import tiny


def test_gelu_and_swiglu_learn_products_better_than_relu() -> None:
    rows = tiny("activation_functions").rows
    assert ratio(rows, "relu") == 1.0
    assert ratio(rows, "gelu", target="products") < 0.9
    assert rows.where(activation="gelu").mean("overhead") > 0.02


@pytest.mark.parametrize("name", ["relu", "gelu", "swiglu", "maxout"])
def test_the_width_is_the_largest_within_the_budget(name: str) -> None:
    allowed = cost(network("relu", (8, 1), 32), batch=64).step
    width = widest(name, (8, 1), allowed, 64)
    costs = [cost(network(name, (8, 1), own), batch=64).step for own in range(1, 40)]
    assert width == sum(own <= allowed for own in costs)
    assert (width == 32) == (name == "relu")


def test_targets_are_the_same_for_the_same_seed_only() -> None:
    (first, test), (again, _), (other, _) = (tasks(EXPERIMENT.tiny, "kinked", seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.y, again.y)
    assert not np.array_equal(first.y, other.y)
    assert (len(first), len(test)) == (300, 300)
    x = np.array([[1.0, 2.0, 3.0, 4.0]])
    w = np.random.default_rng(5).normal(size=2)
    assert products(x, np.random.default_rng(5))[0] == pytest.approx(3 * w[0] + 8 * w[1])
