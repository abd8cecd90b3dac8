"""Parity: the constructed networks have it, more units find it more often."""

from __future__ import annotations

import numpy as np
import pytest

from multilayer.lab.experiments.parity import (
    fewest_thresholds,
    parity,
    sigmoids,
    success,
    threshold_functions,
    thresholds,
    tree,
)
from multilayer.lab.training import Network
from multilayer.spec import Spec
from support.experiments import tiny


def test_more_units_find_the_parity_more_often() -> None:
    result = tiny("parity")
    rows = result.rows
    assert rows.where(kind="constructed").mean("wrong") == 0
    assert success(rows, "4n units") > success(rows, "n/2 + 1 units")
    assert success(rows, "4n units", 2) == 1
    assert "5 bits" in result.summary


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_the_constructed_networks_have_the_parity(n: int) -> None:
    task = parity(n)
    expected = [bin(row).count("1") % 2 for row in range(2**n)]
    np.testing.assert_array_equal(task.y, expected)
    for make, units in ((thresholds, n), (sigmoids, n // 2 + 1), (tree, None)):
        network = make(n)
        np.testing.assert_array_equal(network.outputs(task.x)[:, 0] > 0.5, np.array(expected) == 1)
        if units:
            assert network.tensors["linear1.weight"].shape == (units, n)


def test_the_tree_has_the_parity_exactly_and_two_units_per_pair() -> None:
    network = tree(8)
    np.testing.assert_array_equal(network.outputs(parity(8).x)[:, 0], parity(8).y)
    assert [len(network.tensors[f"linear{i}.bias"]) for i in (1, 2, 3)] == [8, 4, 2]


def test_all_threshold_functions_are_found() -> None:
    assert [len(threshold_functions(n)) for n in (1, 2, 3)] == [4, 14, 104]  # OEIS A000609
    assert [fewest_thresholds(n) for n in (2, 3)] == [2, 3]


def test_random_threshold_networks_with_fewer_units_than_bits_do_not_have_the_parity() -> None:
    rng = np.random.default_rng(0)
    task = parity(3)
    best = 1.0
    for _ in range(300):
        tensors = {
            "linear1.weight": rng.normal(size=(2, 3)),
            "linear1.bias": rng.normal(size=2),
            "linear2.weight": rng.normal(size=(1, 2)),
            "linear2.bias": rng.normal(size=1),
        }
        network = Network(Spec.parse("3-2:step-1"), tensors)
        best = min(best, network.error(task))
    assert 0 < best < 0.5
