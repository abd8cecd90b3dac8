"""Bins of single columns, and the skill of a column that leaks the target."""

from __future__ import annotations

import numpy as np
import pytest

from multilayer.diagnostics.columns import FEWEST_BINS, ROWS_PER_BIN, _bins, _skill

G = np.random.default_rng(0)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("smallest", [1e-9, 1.0])
def test_a_sparse_column_that_leaks_the_target_is_perfect(share: float, smallest: float) -> None:
    """Such as a refund, which is 0 for customers who stay."""
    left = G.permutation(2000) < 2000 * share
    refund = left * (smallest + G.random(2000))
    assert _skill(_bins(refund), np.eye(2)[left.astype(int)], classes=True) == 1.0
    assert _skill(_bins(-refund), np.eye(2)[left.astype(int)], classes=True) == 1.0


def test_bins_of_values_without_repeats_have_equal_numbers_of_rows() -> None:
    counts = np.bincount(_bins(G.normal(size=1200)))
    assert counts.tolist() == [ROWS_PER_BIN] * 100
    counts = np.bincount(_bins(G.normal(size=200)))
    assert counts.tolist() == [200 // FEWEST_BINS] * FEWEST_BINS


def test_bins_of_a_column_with_repeats() -> None:
    values = np.concatenate([np.zeros(300), np.full(60, 2.5), 5 * G.random(840)])
    bins = _bins(values)
    assert len(set(bins[:300])) == len(set(bins[300:360])) == 1
    assert not set(bins[:300]) & set(bins[300:])
    assert not set(bins[300:360]) & set(bins[360:])
    assert np.bincount(bins[360:]).tolist() == pytest.approx([ROWS_PER_BIN] * 70, abs=1)
    order = np.argsort(values[360:])
    assert (np.diff(bins[360:][order]) >= 0).all()


@pytest.mark.parametrize(("distinct", "bins"), [(1, 1), (20, 20), (300, 125)])
def test_equal_values_are_in_one_bin(distinct: int, bins: int) -> None:
    values = np.repeat(np.arange(float(distinct)), 5)
    found = _bins(values)
    assert len(set(zip(found, values, strict=True))) == distinct
    assert len(set(found)) == bins


def test_a_column_that_tells_one_of_many_classes_is_nearly_perfect() -> None:
    """Bins of a twentieth of the rows contain two classes as often as one."""
    truth = G.integers(0, 10, 600)
    told = truth + G.normal(0, 0.05, 600)
    assert _skill(_bins(told), np.eye(10)[truth], classes=True) > 0.9


def test_a_column_in_which_classes_overlap_is_not() -> None:
    truth = G.integers(0, 2, 600)
    column = truth + G.normal(0, 0.28, 600)  # 4 % are nearer to the other class
    assert 0.8 < _skill(_bins(column), np.eye(2)[truth], classes=True) < 0.93
