"""More units approximate better, polynomials do not, and the constructed networks are what they should be."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from multilayer.errors import OptionError
from multilayer.lab.constructions import (
    Target,
    best_monotone,
    best_polynomial,
    error,
    grid,
    narrow,
    polygon,
    shallow,
    staircase,
)
from multilayer.lab.experiments.universal_approximation import rate
from multilayer.lab.running import run
from support.experiments import tiny


def test_the_error_falls_with_the_units_unless_the_activation_is_a_polynomial() -> None:
    rows = tiny("universal_approximation").rows
    assert rate(rows, "relu") < -1.5 < rate(rows, "sigmoid") < -0.5
    for method, activation, factor in (
        ("constructed", "sigmoid", 3),
        ("constructed", "relu", 10),
        ("trained", "relu", 1),
    ):
        own = rows.where(method=method, activation=activation)
        few, most = min(own.values("units")), max(own.values("units"))
        assert own.where(units=few).mean("error") > factor * own.where(units=most).mean("error")
    own = rows.where(method="polynomial", inputs=1)
    assert own.where(units=4).mean("error") == pytest.approx(own.where(units=64).mean("error"), rel=1e-6)
    for row in own:
        limit = rows.where(method="limit", inputs=1, activation=row["activation"], seed=row["seed"])
        assert row["error"] > limit.mean("error") - 1e-9


@pytest.mark.parametrize("d", [1, 2])
def test_a_narrow_deep_network_is_the_polygon_of_the_wide_one(d: int) -> None:
    target = Target.random(d, 4, seed=3)
    units = polygon(target, 32)
    x = np.random.default_rng(0).uniform(-1, 1, (50, d))
    deep = narrow(units)
    assert {tensor.shape[0] for tensor in deep.tensors.values()} == {1, d + 2}
    np.testing.assert_allclose(deep.outputs(x), shallow(units, "relu").outputs(x), atol=1e-11)


def test_the_polygon_interpolates_and_the_staircase_has_the_heights_of_the_target() -> None:
    target = Target.random(1, 4, seed=1)
    nodes = np.linspace(-1, 1, 9)
    x = np.linspace(-1, 1, 300)[:, None]
    found = shallow(polygon(target, 8), "relu").outputs(x)[:, 0]
    np.testing.assert_allclose(found, np.interp(x[:, 0], nodes, target(nodes[:, None])), atol=1e-12)
    middles = -1 + 2 / 9 * (np.arange(9) + 0.5)[:, None]
    found = shallow(staircase(target, 8), "sigmoid").outputs(middles)[:, 0]
    np.testing.assert_allclose(found, target(middles), atol=1e-3)  # e^(−STEEPNESS/2) of a step is missing


def test_the_error_of_a_polygon_has_the_order_of_its_bound() -> None:
    target = Target.random(1, 4, seed=2)
    h, x = 2 / 128, grid(1)[:, 0]
    curvature = np.abs(np.gradient(np.gradient(target(grid(1)), x), x)).max()
    assert 0.8 < error(target, shallow(polygon(target, 128), "relu").outputs) / (h**2 / 8 * curvature) <= 1.01


def test_the_best_polynomial_has_the_bound_of_de_la_vallee_poussin() -> None:
    """Any 4 points give a lower bound of the error of parabolas. The largest of these is the smallest error."""
    target = Target.random(1, 4, seed=4)
    x = np.linspace(-1, 1, 33)
    y = target(x[:, None])
    sets = np.array(list(combinations(range(33), 4)))
    chosen = x[sets]
    weights = np.stack(
        [1 / np.prod([chosen[:, i] - chosen[:, j] for j in range(4) if j != i], axis=0) for i in range(4)], axis=1
    )
    bound = (np.abs((weights * y[sets]).sum(axis=1)) / np.abs(weights).sum(axis=1)).max()
    assert bound <= best_polynomial(target, 2) <= 1.02 * bound


def test_the_best_monotone_function_for_a_hill_misses_half_of_its_height() -> None:
    hill = Target(np.array([[np.pi]]), np.zeros(1), 2.0)
    assert best_monotone(hill) == pytest.approx(0.5)
    rising = Target(np.array([[np.pi / 2]]), np.array([-np.pi / 2]), 2.0)
    assert best_monotone(rising) == 0.0


def test_too_few_units_for_the_waves_are_an_error() -> None:
    with pytest.raises(OptionError, match="units must be two or more numbers from 4 on"):
        run("universal_approximation", units=(2, 8), workers=1)
