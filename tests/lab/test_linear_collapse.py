"""Linear networks are one map, fail at XOR, and equal units stay equal."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

from multilayer.lab.experiments.linear_collapse import BITS, XOR, last, most_right, one_unit, spread
from multilayer.lab.training import Network
from support.experiments import tiny


def test_depth_without_activations_adds_nothing_and_equal_units_stay_equal() -> None:
    result = tiny("linear_collapse")
    rows = result.rows
    assert max(rows.where(fact="depth").values("difference")) < 1e-12
    assert rows.where(network="any weights").mean("right") == 3
    assert rows.where(network="linear").numbers("output") == pytest.approx(0.5, abs=0.01)
    assert rows.where(network="tanh").mean("right") == 4
    assert last(rows, "zero").mean("spread") == 0
    assert last(rows, "random").mean("spread") > 0.1
    assert last(rows, "random").mean("accuracy") > last(rows, "zero").mean("accuracy") + 0.2
    assert "at most 3 rows" in result.summary


def test_a_linear_program_finds_no_plane_with_more_rows_right_than_the_search() -> None:
    x = np.column_stack([BITS, np.ones(4)])
    possible = []
    for signs in product((-1.0, 1.0), repeat=4):
        found = linprog(np.zeros(3), A_ub=-np.array(signs)[:, None] * x, b_ub=-np.ones(4), bounds=(None, None))
        if found.success:
            possible.append(int(((np.array(signs) > 0) == (XOR.y > 0.5)).sum()))
    assert len(possible) == 14
    assert max(possible) == most_right(width=3, trials=500, seed=0)


def test_one_unit_replaces_equal_units_only() -> None:
    x = np.random.default_rng(0).normal(size=(20, 3))
    equal, random = (Network.initial("3-4:sigmoid-5:sigmoid-2", init, seed=1) for init in ("constant(0.3)", "xavier"))
    assert spread(equal, 2) == 0
    np.testing.assert_allclose(one_unit(equal, 2).outputs(x), equal.outputs(x), rtol=1e-13)
    assert spread(random, 2) == pytest.approx(
        max(random.tensors[f"linear{i}.weight"].std(axis=0).max() for i in (1, 2))
    )
    assert np.abs(one_unit(random, 2).outputs(x) - random.outputs(x)).max() > 0.01
