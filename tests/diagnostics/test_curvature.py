"""The gradient noise scale and the sharpness, against closed forms and PyTorch in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import multilayer as ml
from multilayer.diagnostics.curvature import gradient_of, noise_scale, sharpness
from multilayer.nn import losses

MSE = losses.get("mse")


def test_the_sharpness_of_linear_regression_is_that_of_the_covariance() -> None:
    spec = ml.Spec.parse("3-1")
    x = np.random.default_rng(0).normal(size=(200, 3)) * [1, 2, 3]
    values = ml.initialise(spec, seed=0)
    inputs = np.c_[x, np.ones(200)]
    expected = np.linalg.eigvalsh(2 * inputs.T @ inputs / 200)[-1]
    found = sharpness(spec, values, x, None, np.zeros((200, 1)), MSE)
    assert found.converged
    assert found.eigenvalue == pytest.approx(expected, rel=1e-3)
    assert found.stable_rate == pytest.approx(2 / expected, rel=1e-3)


def test_gradient_descent_is_stable_below_the_rate_and_diverges_above() -> None:
    spec = ml.Spec.parse("3-1")
    x = np.random.default_rng(0).normal(size=(200, 3))
    y = x[:, :1]
    values = ml.initialise(spec, seed=0)
    found, gradient = sharpness(spec, values, x, None, y, MSE), gradient_of(spec, values, x, None, y, MSE)
    for factor, stable in ((0.95, True), (1.1, False)):
        weights = np.array([1.0, -2.0, 3.0, 0.5])
        for _ in range(400):
            weights = weights - factor * found.stable_rate * gradient(weights)
        assert bool(np.linalg.norm(gradient(weights)) < 1e-3) is stable


@pytest.mark.parametrize("text", ["3-5:tanh-2", "2-4:gelu-[4:tanh]*2-1"])
def test_the_sharpness_is_that_of_the_hessian_of_pytorch(text: str) -> None:
    spec = ml.Spec.parse(text)
    model = ml.build(text, seed=3).double()
    names = list(spec.parameters)
    g = np.random.default_rng(1)
    x, y = g.normal(size=(40, spec.inputs.numeric)), g.normal(size=(40, spec.d_out))
    flat = torch.cat([model.get_parameter(name).detach().ravel() for name in names])

    def loss(weights: torch.Tensor) -> torch.Tensor:
        sizes = [spec.parameters[name].size for name in names]
        parts = {
            name: part.reshape(spec.parameters[name].shape)
            for name, part in zip(names, weights.split(sizes), strict=True)
        }
        z = torch.func.functional_call(model, parts, (torch.from_numpy(x),))
        return ((z - torch.from_numpy(y)) ** 2).mean()

    hessian = torch.autograd.functional.hessian(loss, flat).numpy()
    values = {name: model.get_parameter(name).detach().numpy() for name in names}
    expected = np.linalg.eigvalsh(hessian)[-1]
    assert sharpness(spec, values, x, None, y, MSE).eigenvalue == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("seed", [2, 13, 20])
def test_the_sharpness_is_the_largest_eigenvalue_also_if_a_negative_one_is_larger_in_size(seed: int) -> None:
    spec, g = ml.Spec.parse("2-3:tanh-1"), np.random.default_rng(seed)
    values, x, y = ml.initialise(spec, seed=seed), g.normal(size=(40, 2)), 20 * g.normal(size=(40, 1))
    gradient = gradient_of(spec, values, x, None, y, MSE)
    weights = np.concatenate([np.asarray(values[name], np.float64).ravel() for name in spec.parameters])
    hessian = [(gradient(weights + 1e-5 * e) - gradient(weights - 1e-5 * e)) / 2e-5 for e in np.eye(len(weights))]
    eigenvalues = np.linalg.eigvalsh(np.array(hessian))
    assert -eigenvalues[0] > eigenvalues[-1]
    found = sharpness(spec, values, x, None, y, MSE)
    assert found.eigenvalue == pytest.approx(eigenvalues[-1], rel=0.02)
    assert found.stable_rate == pytest.approx(2 / eigenvalues[-1], rel=0.02)


def test_the_noise_scale_of_a_known_gradient() -> None:
    """For y = w x with one weight and x = 1, the gradient of a row is 2 (w − y), so Σ and G are known."""
    spec = ml.Spec.parse("1-1")
    y = np.random.default_rng(0).normal(loc=1.0, scale=2.0, size=(4096, 1))
    values = {"linear1.weight": np.zeros((1, 1)), "linear1.bias": np.zeros(1)}
    x = np.zeros((4096, 1))
    expected = y.var() / y.mean() ** 2
    assert noise_scale(spec, values, x, None, y, MSE) == pytest.approx(expected, rel=0.25)


def test_rows_with_equal_gradients_have_no_noise() -> None:
    spec = ml.Spec.parse("1-1")
    values = {"linear1.weight": np.ones((1, 1)), "linear1.bias": np.zeros(1)}
    x, y = np.ones((64, 1)), np.zeros((64, 1))
    assert noise_scale(spec, values, x, None, y, MSE) == pytest.approx(0.0, abs=1e-9)
    assert math.isnan(noise_scale(spec, values, x[:8], None, y[:8], MSE))
