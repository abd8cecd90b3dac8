"""Costs that are measured: a step takes longer than a forward pass, and the fused layers compute what numpy does."""

from __future__ import annotations

import time

import numpy as np
import pytest

from multilayer.lab.experiments.cost_claims import BOOK, engine, flops_per_parameter, mean_ratio, smallest
from support.experiments import tiny


def test_a_step_takes_longer_than_a_forward_pass() -> None:
    rows = tiny("cost_claims").rows
    assert mean_ratio(rows, "step / forward") > 1.3
    assert mean_ratio(rows, "separate / products") > 0.9
    assert (rows.numbers("value") > 0).all()


def test_the_fused_layers_compute_what_separate_calls_compute() -> None:
    own = engine("8-(8:relu)*4-1", 16, seed=2)
    a = np.asarray(own.data.x)
    state = own.state().parameters
    for i in range(1, 5):
        a = np.maximum(a @ state[f"linear{i}.weight"].T, 0)
        assert not state[f"linear{i}.bias"].any()
    np.testing.assert_allclose(own.outputs(np.arange(16)), a @ state["linear5.weight"].T, rtol=1e-4, atol=1e-5)
    own.close()


def test_the_smallest_time_is_that_of_the_call() -> None:
    def work(seconds: float) -> None:
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass

    times = smallest({"short": lambda: work(0.002), "long": lambda: work(0.008)}, rounds=5)
    assert times["long"] / times["short"] == pytest.approx(4, rel=0.2)


def test_the_flops_per_parameter_are_those_of_the_products() -> None:
    """Each weight is used in two FLOPs forward, two for its gradient, and two for dA except in the first layer."""
    first, rest = 784 * 256, 256 * 128 + 128 * 10
    assert flops_per_parameter(BOOK) == pytest.approx((4 * first + 6 * rest) / (first + rest), rel=0.02)
