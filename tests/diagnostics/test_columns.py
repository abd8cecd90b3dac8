"""Bins of single columns, and the skill of a column that leaks the target."""

from __future__ import annotations

import numpy as np
import pytest

from multilayer.diagnostics.columns import BINS, _bins, _skill

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
    counts = np.bincount(_bins(G.normal(size=1000)))
    assert counts.tolist() == [1000 // BINS] * BINS


def test_bins_of_a_column_with_repeats() -> None:
    values = np.concatenate([np.zeros(300), np.full(60, 2.5), 5 * G.random(640)])
    bins = _bins(values)
    assert len(set(bins[:300])) == len(set(bins[300:360])) == 1
    assert not set(bins[:300]) & set(bins[300:])
    assert not set(bins[300:360]) & set(bins[360:])
    assert np.bincount(bins[360:]).tolist() == pytest.approx([1000 / BINS] * 13, abs=1)
    order = np.argsort(values[360:])
    assert (np.diff(bins[360:][order]) >= 0).all()


@pytest.mark.parametrize(("distinct", "bins"), [(1, 1), (BINS, BINS), (BINS + 1, BINS), (300, BINS)])
def test_equal_values_are_in_one_bin(distinct: int, bins: int) -> None:
    values = np.repeat(np.arange(float(distinct)), 5)
    found = _bins(values)
    assert len(set(zip(found, values, strict=True))) == distinct
    assert len(set(found)) == bins
