"""The noise falls as 1/√B, small batches scale perfectly, and the noise scale is that of the diagnostics."""

from __future__ import annotations

import numpy as np
import pytest

from multilayer.diagnostics.curvature import noise_scale as estimated
from multilayer.lab.experiments.batch_size import (
    critical,
    deviation,
    for_small,
    noise_scale,
    noise_slope,
    row_gradients,
)
from multilayer.lab.rows import Rows
from multilayer.lab.training import Network, Task
from multilayer.nn import losses
from support.experiments import tiny


def test_the_noise_falls_and_small_batches_save_steps() -> None:
    rows = tiny("batch_size").rows
    assert noise_slope(rows) == pytest.approx(-0.5, abs=0.08)
    assert for_small(rows) > 1.4


def test_the_gradients_of_rows_have_the_gradient_of_all_as_mean_and_the_noise_scale_of_the_diagnostics() -> None:
    rng = np.random.default_rng(0)
    task = Task(x=rng.normal(size=(4000, 3)), y=rng.normal(size=(4000, 1)) + 1)
    network = Network.initial("3-4:tanh-1", seed=1)
    each = row_gradients(network, task)
    whole = np.concatenate([v.ravel() for g in network.gradients(task).values() for v in g.parameters.values()])
    np.testing.assert_allclose(each.mean(0), whole, rtol=1e-9, atol=1e-12)
    exact = noise_scale(each)
    found = estimated(network.spec, network.tensors, task.x, None, task.targets, losses.get("mse"))
    assert exact == pytest.approx(found, rel=0.5)
    assert deviation(each, 16, 2000, seed=0) == pytest.approx(np.sqrt(exact / 16), rel=0.05)


def test_the_fit_finds_the_critical_batch_size() -> None:
    rows = Rows({"seed": 0, "kind": "steps", "batch": b, "steps": 20 * (1 + 30 / b)} for b in (1, 4, 16, 64, 256))
    assert critical(rows) == pytest.approx((20, 30), rel=0.03)
