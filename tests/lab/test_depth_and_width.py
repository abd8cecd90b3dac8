"""Depth has exponentially many pieces, and compositions are learned better by deep networks."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from multilayer.errors import OptionError
from multilayer.lab import tables
from multilayer.lab.experiments.depth_and_width import GENERATED, deep_sawtooth, error, generated, shallow_wrong, width
from multilayer.lab.running import run
from multilayer.lab.training import Network, Task
from multilayer.spec import Spec
from support.experiments import tiny


def test_depth_separates_alternating_points_and_learns_compositions() -> None:
    result = tiny("depth_and_width")
    rows = result.rows
    own = rows.where(folds=6)
    assert own.mean("deep_wrong") == 0
    assert own.mean("shallow_wrong") > 1 / 6
    composition = rows.where(task="composition")
    assert composition.where(depth=3).mean("error") < 0.9 * composition.where(depth=1).mean("error")
    assert max(rows.having(lambda row: "parameters" in row).values("parameters")) <= 500
    assert "linear pieces" in result.summary


def test_the_deep_network_is_the_tent_applied_again_and_again() -> None:
    x = np.linspace(0, 1, 777)
    expected = x
    for k in range(1, 6):
        expected = np.where(expected < 0.5, 2 * expected, 2 - 2 * expected)
        np.testing.assert_allclose(deep_sawtooth(k).outputs(x[:, None])[:, 0], expected, atol=1e-12)
        assert deep_sawtooth(k).spec.n_parameters == 6 * k + 1


@pytest.mark.parametrize(("points", "units"), [(9, 2), (9, 3), (8, 2), (12, 4), (9, 8), (5, 0)])
def test_no_function_with_so_many_crossings_has_fewer_points_wrong(points: int, units: int) -> None:
    """Brute force: all ways to cut the points into units + 2 runs with one label each, starting with either label."""
    labels = np.arange(points) % 2
    fewest = points
    for cuts in combinations(range(points + 1), units + 1):
        runs = np.searchsorted(cuts, np.arange(points), side="right") % 2
        fewest = min(fewest, int((runs != labels).sum()), int((runs == labels).sum()))
    assert shallow_wrong(points, units) == pytest.approx(fewest / points)


@pytest.mark.parametrize(("inputs", "outputs", "depth"), [(1, 1, 1), (8, 1, 3), (64, 10, 6), (10, 2, 2)])
def test_the_width_is_the_largest_within_the_parameters(inputs: int, outputs: int, depth: int) -> None:
    def parameters(units: int) -> int:
        return Spec.parse("-".join([str(inputs), *[f"{units}:relu"] * depth, str(outputs)])).n_parameters

    found = width(inputs, outputs, depth, 2000)
    assert parameters(found) <= 2000 < parameters(found + 1)


def test_the_rows_of_a_task_are_not_shared_and_are_scaled() -> None:
    for name in GENERATED[:3]:
        split = generated(name, 400, seed=1)
        x = np.concatenate([part.x for part in split])
        assert len(np.unique(x, axis=0)) == len(x) == 800
        assert np.concatenate([part.y for part in split]).std() == pytest.approx(1)
    parity = generated("parity", 400, seed=1).test
    assert len(np.unique(parity.x, axis=0)) == 1024
    np.testing.assert_array_equal(parity.y, (np.prod(parity.x, axis=1) < 0).astype(int))


def test_the_error_is_relative_to_the_standard_deviation_or_a_share_of_rows() -> None:
    zero = Network.initial("1-1", "zeros")
    x = np.arange(4.0)[:, None]
    assert error(zero, Task(x=x, y=np.array([2.0, -2.0, 2.0, -2.0]))) == 1.0
    assert error(Network.initial("1-2", "zeros"), Task(x=x, y=np.array([0, 0, 0, 1]), loss="cross_entropy")) == 1.5 / 5
    assert tables.of("diabetes").y.std() == pytest.approx(1)


def test_one_depth_alone_is_an_error() -> None:
    with pytest.raises(OptionError, match="give two or more depths"):
        run("depth_and_width", depths=(3,), workers=1)
