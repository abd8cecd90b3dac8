"""ReLU units die at a large learning rate, and those of leaky ReLU do not."""

from __future__ import annotations

import numpy as np

from multilayer.lab.experiments.dead_units import after, unit_states
from multilayer.lab.tables import class_count, classification
from multilayer.lab.training import Training, train
from support.experiments import tiny


def test_units_die_at_a_large_rate_only() -> None:
    result = tiny("dead_units")
    small, large = min(result.settings["rates"]), max(result.settings["rates"])
    assert after(result.rows, "relu", large, "died") > after(result.rows, "relu", small, "died") + 0.1
    assert after(result.rows, "leaky_relu", large, "dead") == after(result.rows, "leaky_relu", large, "flat") == 0.0


def test_a_dead_unit_gets_no_gradient_and_no_other_relu_unit_is_dead() -> None:
    task = classification("digits")
    spec = f"{task.x.shape[1]}-16:relu-{class_count(task)}"
    network = train(spec, task, Training(steps=100, learning_rate=0.3, batch=64, seed=1)).network
    z = network.values(task.x)[0]["relu1"].x
    state = unit_states("relu", z)
    assert 0 < state.dead.sum() < 16
    np.testing.assert_array_equal(state.dead, z.max(axis=0) <= 0)
    rows = np.abs(network.gradients(task)["linear1"].parameters["weight"]).max(axis=1)
    np.testing.assert_array_equal(rows == 0, state.dead)
