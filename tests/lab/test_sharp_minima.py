"""Sharpness changes with the batch and with a rescaling, and the rescaling keeps the function."""

from __future__ import annotations

import numpy as np
import pytest

from multilayer.lab.curvature import Surface
from multilayer.lab.experiments.sharp_minima import rescaled
from multilayer.lab.training import Network, Task, Training, train
from support.experiments import tiny


def test_large_batches_end_sharper_and_gradient_descent_at_the_edge() -> None:
    rows = tiny("sharp_minima").rows
    batches = rows.where(kind="batch")
    assert batches.where(batch=60).mean("sharpness") > batches.where(batch=2).mean("sharpness")
    edge = rows.where(kind="edge")
    last = edge.where(steps=max(edge.values("steps")))
    assert 0.7 < last.mean("stability") < 1.3


def test_a_rescaled_network_is_the_same_function_with_another_curvature() -> None:
    generator = np.random.default_rng(0)
    task = Task(x=generator.normal(size=(20, 4)), y=generator.normal(size=(20, 2)))
    network = Network.initial("4-6:relu-2", seed=3)
    scaled = rescaled(network, 8.0)
    np.testing.assert_allclose(scaled.outputs(task.x), network.outputs(task.x), rtol=1e-12)
    before, after = (Surface(one, task) for one in (network, scaled))
    # the second derivative by the weights of the second layer is multiplied by 8², by those of the first divided by 8²
    ratio = after.hessian(after.weights) / np.where(np.abs(h := before.hessian(before.weights)) > 1e-3, h, np.nan)
    size = network.tensors["linear1.weight"].size
    assert np.nanmedian(np.diag(ratio)[:size]) == pytest.approx(1 / 64, rel=1e-3)
    assert np.nanmedian(np.diag(ratio)[size + 6 : -2]) == pytest.approx(64, rel=1e-3)


def test_gradient_descent_is_stable_below_two_over_the_sharpness_only() -> None:
    task = Task(x=np.array([[1.0], [2.0]]), y=np.array([1.0, 0.0]))
    sharpness = Surface(Network.initial("1-1"), task).sharpness()
    for factor, stable in ((0.95, True), (1.05, False)):
        options = Training(steps=400, optimizer="sgd", learning_rate=factor * 2 / sharpness, dtype="float64")
        losses = train("1-1", task, options).losses
        assert (losses[-1] < losses[0]) == stable
