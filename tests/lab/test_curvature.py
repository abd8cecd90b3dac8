"""The curvature of a network against exact Hessians."""

from __future__ import annotations

import numpy as np
import pytest

from multilayer.lab.curvature import Surface, flat, with_weights
from multilayer.lab.training import Network, Task


def test_the_hessian_of_a_linear_model_is_that_of_least_squares() -> None:
    generator = np.random.default_rng(0)
    task = Task(x=generator.normal(size=(20, 5)), y=generator.normal(size=20))
    surface = Surface(Network.initial("5-1"), task)
    inputs = np.column_stack([task.x, np.ones(20)])
    exact = 2 * inputs.T @ inputs / 20
    np.testing.assert_allclose(surface.hessian(surface.weights), exact, atol=1e-7)
    assert surface.sharpness() == pytest.approx(np.linalg.eigvalsh(exact)[-1], rel=1e-3)


def test_the_sharpness_is_the_largest_eigenvalue_also_if_one_of_larger_size_is_negative() -> None:
    generator = np.random.default_rng(1)
    task = Task(x=generator.normal(size=(9, 3)), y=20 * generator.normal(size=(9, 2)))
    surface = Surface(Network.initial("3-5:tanh-2", seed=1), task)
    sizes = np.linalg.eigvalsh(surface.hessian(surface.weights))
    assert sizes[0] < 0
    assert surface.sharpness() == pytest.approx(sizes[-1], rel=2e-3)


def test_the_gradient_is_that_of_differences_of_the_loss() -> None:
    generator = np.random.default_rng(0)
    task = Task(x=generator.normal(size=(6, 3)), y=generator.integers(0, 2, 6), loss="cross_entropy")
    surface = Surface(Network.initial("3-4:tanh-2", seed=1), task)
    for i, one in enumerate(1e-6 * np.eye(len(surface.weights))):
        slope = (surface.loss(surface.weights + one) - surface.loss(surface.weights - one)) / 2e-6
        assert slope == pytest.approx(surface.gradient(surface.weights)[i], abs=1e-7)


def test_weights_are_one_vector_and_back() -> None:
    network = Network.initial("3-4:relu-2", seed=2)
    again = with_weights(network, flat(network))
    assert all((again.tensors[name] == value).all() for name, value in network.tensors.items())


def test_the_sharpness_of_a_network_that_diverged_is_infinite() -> None:
    network = with_weights(Network.initial("2-1"), np.full(3, 1e200))
    assert Surface(network, Task(x=np.ones((3, 2)), y=np.zeros(3))).sharpness() == np.inf
