"""Paths between solutions, and critical points of the XOR network."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from multilayer.lab.curvature import Surface, flat
from multilayer.lab.experiments.loss_landscape import (
    XOR,
    XOR_SPEC,
    classified,
    filter_normalized,
    matched,
    stationary,
)
from multilayer.lab.training import Network
from support.experiments import tiny


def test_matching_and_bending_lower_the_barrier() -> None:
    rows = tiny("loss_landscape").rows.where(kind="barrier")
    straight, same, bent = (rows.where(path=path).mean("barrier") for path in ("straight", "matched", "bent"))
    assert straight > same > 0
    assert bent < 0.5 * straight


def test_matching_finds_the_nearest_of_all_orders_and_keeps_the_function() -> None:
    first, second = (Network.initial("3-4:relu-2", seed=seed) for seed in (1, 2))
    found = matched(first, second)
    x = np.random.default_rng(0).normal(size=(7, 3))
    np.testing.assert_allclose(found.outputs(x), second.outputs(x), atol=1e-12)
    names = ("linear1.weight", "linear1.bias", "linear2.weight")
    distances: list[float] = []
    for order in permutations(range(4)):
        own = [second.tensors[name][:, order] if name == names[2] else second.tensors[name][[*order]] for name in names]
        distances.append(
            sum(float(np.square(first.tensors[name] - one).sum()) for name, one in zip(names, own, strict=True))
        )
    nearest = (
        np.square(flat(first) - flat(found)).sum()
        - np.square(first.tensors["linear2.bias"] - found.tensors["linear2.bias"]).sum()
    )
    assert nearest == pytest.approx(min(distances))


def test_directions_have_the_norms_of_the_units() -> None:
    network = Network.initial("3-4:relu-2", seed=1)
    direction = filter_normalized(network, np.random.default_rng(0))
    weight = network.tensors["linear1.weight"]
    norms = np.linalg.norm(direction[: weight.size].reshape(weight.shape), axis=1)
    np.testing.assert_allclose(norms, np.linalg.norm(weight, axis=1))
    assert (direction[weight.size : weight.size + 4] == 0).all(), "biases do not change"


def test_the_constant_output_is_a_saddle_without_a_negative_eigenvalue() -> None:
    surface = Surface(Network.initial(XOR_SPEC), XOR)
    constant = np.zeros(9)
    assert np.abs(surface.gradient(constant)).max() < 1e-12
    assert np.linalg.eigvalsh(surface.hessian(constant))[0] > -1e-6
    assert surface.loss(constant) == pytest.approx(0.16)
    assert classified(surface, constant, np.random.default_rng(0)) == "flat saddle"


def test_points_that_are_found_have_no_gradient() -> None:
    surface = Surface(Network.initial(XOR_SPEC), XOR)
    generator = np.random.default_rng(5)
    found = [stationary(surface, generator.normal(size=9)) for _ in range(2)]
    points = [point for point in found if point is not None]
    assert points
    for point in points:
        assert np.linalg.norm(surface.gradient(point)) < 1e-12


def test_a_saturated_output_is_not_a_critical_point() -> None:
    surface = Surface(Network.initial(XOR_SPEC), XOR)
    saturated = np.zeros(9)
    saturated[-1] = 19.0
    assert np.linalg.norm(surface.gradient(saturated)) < 1e-7
    assert stationary(surface, saturated) is None
