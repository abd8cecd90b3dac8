"""Splits: every row is on one side, the seed determines the result, and each kind has its documented properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multilayer.data import splits
from multilayer.errors import DataError, OptionError
from support.training_rows import prepare


def whole(pair: splits.Pair, n: int) -> None:
    train, held_out = pair
    assert len(train) > 0
    assert len(held_out) > 0
    np.testing.assert_array_equal(np.sort(np.concatenate(pair)), np.arange(n))


@settings(deadline=None, max_examples=60)
@given(n=st.integers(2, 300), share=st.floats(0.01, 0.99), seed=st.integers(0, 2**32), k=st.integers(1, 9))
def test_every_row_is_on_one_side(n: int, share: float, seed: int, k: int) -> None:
    labels = np.arange(n) * 7919 % k
    pair = splits.holdout(n, share, seed=seed)
    whole(pair, n)
    assert len(pair[1]) == min(max(round(n * share), 1), n - 1)
    whole(splits.by_time(np.arange(n)[::-1].astype(float), share), n)
    classes = np.unique(labels, return_inverse=True)[1]
    pair = splits.stratified(classes, share, seed=seed)
    whole(pair, n)
    if np.bincount(classes).max() > 1:
        counts, held = np.bincount(classes), np.bincount(classes[pair[1]], minlength=classes.max() + 1)
        assert (counts - held >= 1).all()
        assert (np.abs(held - counts * share) <= 1 + counts * abs(len(pair[1]) / n - share) + 1e-9).all()
    if classes.max() > 0:
        train, held_out = splits.grouped(classes, share, seed=seed)
        whole((train, held_out), n)
        assert not set(classes[train]) & set(classes[held_out])


def test_a_split_depends_only_on_the_seed() -> None:
    a, b, c = (splits.holdout(100, 0.2, seed=seed)[1].tolist() for seed in (0, 0, 1))
    assert a == b != c
    assert splits.holdout(10, 0.3, seed=7)[1].tolist() == KNOWN


KNOWN = [2, 8, 9]
"""The split for a seed must not change between versions."""


def test_rows_with_equal_times_are_on_the_same_side() -> None:
    times = np.array([1.0, 2.0, 2.0, 2.0, 3.0])
    train, held_out = splits.by_time(times, 0.4)
    assert (train.tolist(), held_out.tolist()) == ([0], [1, 2, 3, 4])
    with pytest.raises(DataError, match="at least two different times"):
        splits.by_time(np.ones(5), 0.4)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, 2.0, float("nan")])
def test_invalid_fractions_are_rejected(share: float) -> None:
    with pytest.raises(OptionError, match="above 0 and below 1"):
        splits.holdout(10, share, seed=0)


def test_too_few_rows_or_groups_are_rejected() -> None:
    with pytest.raises(DataError, match="at least two rows, got 1: train with validation=None"):
        splits.holdout(1, 0.5, seed=0)
    with pytest.raises(DataError, match="at least two groups"):
        splits.grouped(np.zeros(5, dtype=np.int64), 0.5, seed=0)


# Splits of whole tables

X = np.arange(200.0).reshape(100, 2)
TABLE = {"t": np.arange(100) * 3 % 101, "g": [f"g{i % 10}" for i in range(100)], "a": X[:, 0], "y": np.arange(100) % 4}


def test_values_of_validation() -> None:
    for validation, sizes in (("auto", (80, 20)), (0.1, (90, 10)), (None, (100, 0))):
        ready = prepare((X, np.arange(100) % 4), validation=validation)
        assert (len(ready.train), len(ready.validation)) == sizes
    ready = prepare((X[:9], np.arange(9) % 2))
    assert len(ready.validation) == 0
    assert "no rows held out: 9 rows are fewer than 10 (validation=0.2 overrides)" in ready.notes
    assert len(prepare((X[:9], np.arange(9) % 2), validation=0.2).validation) == 2
    assert len(prepare((X[:10], np.arange(10) % 2)).validation) == 2
    for bad in (1, True, 0):
        with pytest.raises(OptionError, match="validation must be a fraction, None or separate data"):
            prepare((X, np.arange(100) % 4), validation=bad)


def test_columns_of_groups_and_times_split_the_rows_and_are_not_inputs() -> None:
    ready = prepare(TABLE, target="y", group="g")
    groups = np.array(TABLE["g"])
    assert not set(groups[ready.train]) & set(groups[ready.validation])
    assert [c.name for c in ready.encoding.columns] == ["t", "a"]
    ready = prepare(TABLE, target="y", time_column="t")
    times = np.asarray(TABLE["t"])
    assert times[ready.train].max() < times[ready.validation].min()
    assert [c.name for c in ready.encoding.columns] == ["g", "a"]
    assert "t" in [
        c.name for c in prepare(TABLE, target="y", time_column="t", columns={"t": "numeric"}).encoding.columns
    ]
    with pytest.raises(OptionError, match="split by group or by time_column, got both: remove one"):
        prepare(TABLE, target="y", time_column="t", group="g")


def test_separate_validation_data() -> None:
    y = np.arange(100) % 4
    ready = prepare((X, y), validation=(X[:7] + 0.5, y[:7]))
    assert (len(ready.train), len(ready.validation), len(ready.data)) == (100, 7, 107)
    assert ready.validation.tolist() == list(range(100, 107))
    assert ready.origin[100:].tolist() == list(range(7))
    alone = prepare((X, y), validation=None)
    assert alone.encoding == ready.encoding
    np.testing.assert_array_equal(alone.encoding.apply(X[:7] + 0.5)[0], ready.data.x[100:])
    with pytest.raises(DataError, match=r"^validation: .*row 1, column 'y': must be one of \[0, 1, 2, 3\], got 9"):
        prepare((X, y), validation=(X[:7], y[:7] + 9))


def test_errors_in_validation_data_say_that_it_is_the_validation_data() -> None:
    rows = {"a": [1.0, 2.0], "y": [0, 1]}
    with pytest.raises(DataError, match=r"^validation: .*: 1 column of training missing: 'b'"):
        prepare({"a": range(20), "b": range(20), "y": [0, 1] * 10}, target="y", validation=rows)
    weights = {"validation": rows, "sample_weight_val": [1.0]}
    with pytest.raises(DataError, match=r"^validation: .*: weights must be one number for each of 2 rows"):
        prepare({"a": range(20), "y": [0, 1] * 10}, target="y", **weights)


def test_a_time_column_of_other_dates_is_an_error_that_shows_one() -> None:
    days = [f"2024-01-{i + 1:02}" for i in range(19)]
    message = r"row 20, column 't': a split by time needs numbers or dates such as 2024-12-31, got '20\.01\.2024'"
    with pytest.raises(DataError, match=f"{message}: convert the column"):
        prepare({"t": [*days, "20.01.2024"], "a": range(20), "y": [0, 1] * 10}, target="y", time_column="t")
    with pytest.raises(DataError, match=r"column 't': a split by time needs .*, got true or false: convert"):
        prepare({"t": [True, False] * 10, "a": range(20), "y": [0, 1] * 10}, target="y", time_column="t")


def test_one_row_is_too_few_to_train() -> None:
    with pytest.raises(DataError, match=r"at least two classes and two rows, got \('yes',\) in one row"):
        prepare({"a": [1.0], "y": ["yes"]}, target="y")
    with pytest.raises(DataError, match="training needs at least two rows, got one, so every column is constant"):
        prepare({"a": [1.0], "y": [2.5]}, target="y", task="regression")


# Folds


@pytest.mark.parametrize(("n", "k"), [(10, 2), (97, 8), (64, 8), (9, 9)])
def test_every_row_is_in_one_fold(n: int, k: int) -> None:
    for strata in (None, np.arange(n) % 3, np.linspace(0, 1, n) ** 3):
        part = splits.folds(n, k, seed=1, strata=strata)
        sizes = np.bincount(part, minlength=k)
        assert sizes.sum() == n
        assert sizes.max() - sizes.min() <= 1
        assert splits.folds(n, k, seed=1, strata=strata).tolist() == part.tolist()
        if n > 10:
            assert splits.folds(n, k, seed=2, strata=strata).tolist() != part.tolist()


def test_folds_are_stratified() -> None:
    classes = np.repeat([0, 1, 2], [70, 25, 5])
    part = splits.folds(100, 5, seed=0, strata=classes)
    for i in range(5):
        assert np.bincount(classes[part == i], minlength=3).tolist() == [14, 5, 1]


def test_folds_are_stratified_by_a_numeric_target() -> None:
    """Neighboring rows by target are in different parts, so the quantiles of the parts differ by one rank at most."""
    y = np.random.default_rng(0).lognormal(sigma=2, size=160)
    part = splits.folds(160, 8, seed=0, strata=y)
    rank = y.argsort().argsort()
    for i in range(8):
        assert sorted(rank[part == i] // 8) == list(range(20))


def test_group_folds_keep_groups_whole_and_have_similar_sizes() -> None:
    groups = np.repeat(np.arange(20), np.arange(1, 21))
    part = splits.grouped_folds(groups, 4, seed=0)
    assert all(len(set(part[groups == g])) == 1 for g in range(20))
    sizes = np.bincount(part)
    assert len(sizes) == 4
    assert sizes.max() - sizes.min() <= 20  # the largest group
    assert np.bincount(splits.grouped_folds(np.array([0, 0, 1]), 8, seed=0)).tolist() == [2, 1]
    with pytest.raises(DataError, match="at least two groups"):
        splits.grouped_folds(np.zeros(5, dtype=np.int64), 2, seed=0)


def test_ensemble_members_hold_out_different_folds() -> None:
    y = np.arange(100) % 4
    ready = prepare((X, y), ensemble=5)
    assert [len(part) for part in ready.folds] == [20] * 5
    assert all(np.bincount(y[part]).tolist() == [5] * 4 for part in ready.folds)
    assert ready.train.tolist() == ready.validation.tolist() == list(range(100))
    assert "100 rows, each held out by one of 5 members, stratified by class" in ready.notes
    grouped = prepare(TABLE, target="y", group="g", ensemble=5)
    names = np.array(TABLE["g"])
    assert sum(len(set(names[part])) for part in grouped.folds) == 10
    assert any("whole groups of 'g'" in note for note in grouped.notes)
    own = prepare(TABLE, target="y", group=np.arange(100) // 25, ensemble=8)
    assert len(own.folds) == 4
    numbers = prepare((X, np.linspace(0, 1, 100)), ensemble=4, task="regression")
    assert any("stratified by target value" in note for note in numbers.notes)
    two = prepare((X, np.random.default_rng(0).normal(size=(100, 2))), ensemble=4, task="multioutput")
    assert any("at random" in note for note in two.notes)


def test_few_members_hold_out_a_fifth_each() -> None:
    ready = prepare((X, np.arange(100) % 4), ensemble=2)
    assert [len(part) for part in ready.folds] == [20, 20]
    assert ready.validation.tolist() == sorted(np.concatenate(ready.folds).tolist())
    assert len(ready.train) == 100
    assert "40 of 100 rows, each held out by one of 2 members, stratified by class" in ready.notes


@pytest.mark.parametrize("members", [2, 4])
def test_few_members_leave_the_largest_group_to_train_on(members: int) -> None:
    groups = np.repeat(np.arange(9), [60] + [5] * 8)
    ready = prepare((X, X[:, 0]), group=groups, ensemble=members)
    assert [len(part) for part in ready.folds] == [10] * members
    assert not (groups[ready.validation] == 0).any()
    every = prepare((X, X[:, 0]), group=groups, ensemble=5)
    assert [len(part) for part in every.folds] == [60, 10, 10, 10, 10]


def test_groups_of_equal_size_are_held_out_in_the_order_of_their_parts() -> None:
    groups = np.repeat(np.arange(10), 10)
    part = splits.grouped_folds(groups, 5, seed=3)
    folds = prepare((X, X[:, 0]), group=groups, ensemble=3, seed=3).folds
    assert [rows.tolist() for rows in folds] == [np.flatnonzero(part == i).tolist() for i in range(3)]


@pytest.mark.parametrize(
    ("rows", "members", "said"), [(10, 8, "1 or 2 of 8"), (10, 10, "2 of 10"), (10, 5, "one of 5")]
)
def test_a_note_states_how_many_members_hold_out_a_row(rows: int, members: int, said: str) -> None:
    ready = prepare((X[:rows], X[:rows, 0]), ensemble=members, task="regression")
    assert len(ready.folds) == 5
    assert f"10 rows, each held out by {said} members, stratified by target value" in ready.notes


def test_groups_and_times_hold_out_rows_of_small_tables() -> None:
    few = X[:8]
    assert len(prepare((few, few[:, 0]), ensemble=4).validation) == 0
    assert len(prepare((few, few[:, 0]), ensemble=4, group=np.arange(8) // 2).validation) == 2
    assert len(prepare((few, few[:, 0]), ensemble=4, time_column=np.arange(8)).validation) == 2


def test_no_folds_if_one_split_is_requested() -> None:
    y = np.arange(100) % 4
    for options in ({"validation": 0.2}, {"validation": None}, {"validation": (X[:9], y[:9])}):
        assert prepare((X, y), ensemble=4, **options).folds == ()  # type: ignore[arg-type]
    late = prepare(TABLE, target="y", time_column="t", ensemble=4)
    times = np.asarray(TABLE["t"])
    assert late.folds == ()
    assert times[late.train].max() < times[late.validation].min()
    assert prepare((X[:9], y[:9]), ensemble=4).folds == ()


# Weights


def test_weights() -> None:
    y = np.array([0] * 75 + [1] * 25)
    weight = np.linspace(0, 2, 100)
    ready = prepare((X, y), sample_weight=weight, validation=None)
    assert ready.data.weight is not None
    np.testing.assert_allclose(ready.data.weight, weight[1:], rtol=1e-6)
    assert "1 row of weight 0 left out" in ready.notes
    assert ready.origin.tolist() == list(range(1, 100))
    balanced = prepare((X, y), class_weight="balanced", seed=1)
    made = balanced.data.weight
    assert made is not None
    np.testing.assert_allclose([made[y == c].sum() for c in (0, 1)], 50, rtol=1e-6)  # held out or not
    mapped = prepare((X, y), class_weight={1: 3.0}, sample_weight=np.full(100, 2.0), validation=None).data.weight
    assert mapped is not None
    assert set(mapped.tolist()) == {2.0, 6.0}
    by_name = prepare({"w": np.full(100, 2.0), "a": X[:, 0], "y": y}, target="y", sample_weight="w")
    assert [c.name for c in by_name.encoding.columns] == ["a"]


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"sample_weight": np.ones(5)}, "one number for each of 100 rows, got"),
        ({"sample_weight": -np.ones(100)}, "weights must be 0 or more and finite, got -1"),
        ({"sample_weight": np.zeros(100)}, "no row has a target and a weight above 0"),
        ({"class_weight": "balance"}, "must be 'balanced' or a mapping, got 'balance'"),
        ({"class_weight": {7: 1.0}}, "class_weight must name classes of the target, got 7: classes are 0, 1"),
        ({"class_weight": {1: -1.0}}, "class_weight must be 0 or more and finite, got -1.0 for 1"),
        ({"class_weight": "balanced", "task": "regression"}, "needs a task with one class per row, got regression"),
    ],
)
def test_invalid_weights_are_rejected(options: dict[str, object], fault: str) -> None:
    with pytest.raises((DataError, OptionError), match=fault):
        prepare((X, np.arange(100) % 2), **options)  # type: ignore[arg-type]


def test_a_class_with_one_row_keeps_it_for_training() -> None:
    train, held_out = splits.stratified(np.array([0, 0, 0, 1]), 0.75, seed=0)
    assert 3 in train
    assert len(held_out) == 2
