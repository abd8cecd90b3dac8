"""Integers with formulas: operations that keep the formula, and those that return a plain number."""

from __future__ import annotations

import json

import numpy as np

from multilayer.core.counts import Count, count, named


def test_operations_with_integers_keep_the_formula() -> None:
    B, I, O = named(B=2, I=3, O=5)  # noqa: E741
    found = 2 * B * (I + O) - B * 1 + 0
    assert (found, found.formula, found.numbers) == (30, "2·B·(I + O) − B", "2·2·(3 + 5) − 2")
    assert (B - (I + O)).formula == "B − (I + O)"
    assert (B * np.int64(7)).formula == "B·7"
    assert B * count(0) == 0
    assert json.dumps(found) == "30"


def test_operations_with_fractions_return_plain_numbers() -> None:
    (B,) = named(B=3)
    for found, value in (
        (B * 0.5, 1.5),
        (0.5 * B, 1.5),
        (B + 0.5, 3.5),
        (0.5 + B, 3.5),
        (B - 0.5, 2.5),
        (0.5 - B, -2.5),
    ):
        assert found == value
        assert not isinstance(found, Count)
