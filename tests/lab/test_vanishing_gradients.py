"""The gradient vanishes with sigmoid and not with ReLU, also in a small network."""

from __future__ import annotations

import numpy as np

from multilayer.lab.experiments.vanishing_gradients import factor
from multilayer.lab.training import Network, Task
from support.experiments import tiny


def test_sigmoid_loses_the_gradient_and_relu_keeps_it() -> None:
    rows = tiny("vanishing_gradients").rows
    assert factor(rows, "sigmoid") < 0.35
    assert 0.6 < factor(rows, "relu") < 1.6


def test_the_gradients_are_those_of_differences_of_the_loss() -> None:
    rng = np.random.default_rng(0)
    network = Network.initial("3-4:tanh-2", seed=1)
    task = Task(x=rng.normal(size=(5, 3)), y=rng.normal(size=(5, 2)))
    exact = network.gradients(task)["linear1"].parameters["weight"]
    for place in ((0, 0), (3, 2)):
        losses = []
        for step in (1e-6, -1e-6):
            moved = {name: value.copy() for name, value in network.tensors.items()}
            moved["linear1.weight"][place] += step
            losses.append(Network(network.spec, moved).loss(task))
        assert np.isclose((losses[0] - losses[1]) / 2e-6, exact[place], rtol=1e-6)
