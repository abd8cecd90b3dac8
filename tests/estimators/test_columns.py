"""Columns of all kinds: missing values, strings, categories, unseen values, constants, infinities, outliers, sparse
matrices, many and few columns."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sparse
from sklearn.pipeline import make_pipeline

import multilayer as ml
from multilayer import MLPClassifier, MLPRegressor
from multilayer.errors import DataError
from support.quick_estimators import QUICK, classes, numbers, people

pytestmark = pytest.mark.filterwarnings("ignore:columns dropped")


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_a_table_with_columns_of_all_kinds(kind: str) -> None:
    frame, y = people()
    table: Any = {"pandas": frame, "polars": pl.from_pandas(frame), "pyarrow": pl.from_pandas(frame).to_arrow()}[kind]
    model = MLPClassifier(**QUICK).fit(table, y.to_numpy())
    p = model.predict_proba(table)
    assert p.shape == (120, 2)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-12)
    assert list(model.classes_) == ["left", "stayed"]
    if kind == "polars":  # the same table gives the same model
        other = MLPClassifier(**QUICK).fit(frame, y)
        np.testing.assert_array_equal(other.predict_proba(frame), p)


def test_strings_in_an_array() -> None:
    x = np.array([["a", 1.0, None], ["b", 2.0, "u"], ["a", None, "v"]] * 20, dtype=object)
    y = np.array([0, 1, 1] * 20)
    model = MLPClassifier(**QUICK).fit(x, y)
    assert model.score(x, y) > 0.9
    texts = np.array([["a", "u"], ["b", "v"]] * 20)
    assert MLPClassifier(**QUICK).fit(texts, y[:40] % 2).predict(texts).shape == (40,)


def test_a_list_of_rows_equals_an_object_array() -> None:
    """Numbers in rows with strings stay numbers."""
    rows = [["a", 1.5], ["b", 2.0], ["a", None]] * 20
    y = [0, 1, 1] * 20
    array = np.array(rows, dtype=object)
    listed, given = MLPClassifier(**QUICK).fit(rows, y), MLPClassifier(**QUICK).fit(array, y)
    assert str(listed.spec_).startswith("2+cat(2)-")
    np.testing.assert_array_equal(listed.predict_proba(rows), given.predict_proba(array))


def test_values_of_mixed_types_in_an_object_array() -> None:
    days = [pd.Timestamp("2020-01-01") + pd.Timedelta(i, "D") for i in range(60)]
    y = np.arange(60) % 2
    for column, inputs in (
        (days, "6-"),
        ([None if i == 3 else day.date() for i, day in enumerate(days)], "7-"),
        ([pd.NA if i % 7 == 3 else float(i) for i in range(60)], "3-"),
        ([10**30 * i for i in range(60)], "2-"),
        ([np.float32(i) for i in range(60)], "2-"),
    ):
        x = np.array([[value, i] for i, value in enumerate(column)], dtype=object)
        model = MLPClassifier(**QUICK).fit(x, y)
        assert str(model.spec_).startswith(inputs)
        assert model.predict(x).shape == (60,)
    mixed = np.array([[{"a": 1}, 1.0]] * 60, dtype=object)
    with pytest.raises(DataError, match="column 'x0': must contain numbers, text, booleans or dates, got struct"):
        MLPClassifier(**QUICK).fit(mixed, y)


def test_intervals_periods_and_mixed_values() -> None:
    x = np.random.default_rng(0).normal(size=80)
    months = pd.period_range("2020-01", periods=80, freq="M")
    frame = pd.DataFrame(
        {
            "cut": pd.cut(x, 4),
            "quarter": pd.qcut(x, 4),
            "interval": pd.Series(pd.IntervalIndex(pd.cut(x, 3))),
            "month": months,
            "months": pd.Categorical(months[:4].tolist() * 20),
            "mixed": pd.Series([1, "a", 2.5, None] * 20, dtype=object),
            "category": pd.Categorical([1, "a", 2.5, None] * 20),
            "pair": pd.Categorical([(1, 2), (2, 3)] * 40),
        }
    )
    assert {str(one) for one in frame.dtypes[2:4]} == {"interval[float64, right]", "period[M]"}
    y = (x > 0).astype(int)
    model = MLPClassifier(**QUICK).fit(frame, y)
    assert model.spec_.inputs.numeric == 5  # days, and the month on two circles
    assert model.spec_.inputs.categories == (4, 4, 3, 4, 3, 3, 2)
    p = model.predict_proba(frame)
    alone = [model.predict_proba(frame.iloc[i : i + 1]) for i in range(0, 80, 7)]
    np.testing.assert_array_equal(np.concatenate(alone), p[::7])
    for i in range(4):  # the dtype has only the category of this row
        row = frame.iloc[i : i + 1].copy()
        row["category"] = row["category"].cat.remove_unused_categories()
        row["cut"] = row["cut"].cat.remove_unused_categories()
        np.testing.assert_array_equal(model.predict_proba(row), p[i : i + 1])
    stamps = frame.assign(month=months.to_timestamp())
    np.testing.assert_array_equal(model.predict_proba(stamps), p)
    array = frame[["month", "mixed", "interval"]].to_numpy(dtype=object)
    listed = MLPClassifier(**QUICK).fit(array, y)
    assert listed.spec_.inputs.categories == (3, 3)
    alone = [listed.predict_proba(array[i : i + 1]) for i in range(8)]
    np.testing.assert_array_equal(np.concatenate(alone), listed.predict_proba(array)[:8])
    mixed = MLPClassifier(**QUICK).fit(array[:, 1:2], y)
    np.testing.assert_array_equal(mixed.predict_proba(array[:1, 1:2]), mixed.predict_proba(array[:, 1:2])[:1])


@pytest.mark.parametrize(
    "form", [pd.Series, list, lambda periods: np.array(periods, dtype=object), lambda periods: periods]
)
def test_times_may_be_periods(form: Any) -> None:
    x, y = numbers(60)
    months = pd.period_range("2015-01", periods=60, freq="M")
    by_month = MLPRegressor(**QUICK).fit(x, y, time_column=form(months))
    by_moment = MLPRegressor(**QUICK).fit(x, y, time_column=months.to_timestamp())
    np.testing.assert_array_equal(by_month.predict(x), by_moment.predict(x))


def test_whole_numbers_beyond_64_bits() -> None:
    x, y = numbers(60)
    frame = pd.DataFrame({"a": x[:, 0], "big": [10**30 * i for i in range(60)]})
    model = MLPRegressor(**QUICK).fit(frame, y)
    assert model.spec_.inputs.numeric == 2
    with pytest.raises(DataError, match="row 60, column 'big': numbers must be finite, got inf"):
        MLPRegressor(**QUICK).fit(frame.assign(big=[0] * 59 + [10**400]), y)


def test_a_tensor() -> None:
    import torch

    x, y = numbers(60)
    model = MLPRegressor(**QUICK).fit(torch.tensor(x, requires_grad=True), torch.tensor(y))
    np.testing.assert_array_equal(model.predict(torch.tensor(x)), MLPRegressor(**QUICK).fit(x, y).predict(x))


def test_values_that_training_did_not_contain() -> None:
    frame, y = people()
    model = MLPClassifier(**QUICK).fit(frame, y)
    new = frame.copy()
    new.loc[:4, "city"] = "Lugano"
    new.loc[5:9, "income"] = np.nan  # never missing in training
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        p = model.predict_proba(new)
        make_pipeline(model).predict(new)  # the warning points to the user's line, also through scikit-learn
        MLPRegressor(**QUICK).fit(np.c_[new["age"], np.full(len(new), np.nan)], new["income"].fillna(0))
    assert np.isfinite(p).all()
    assert "columns dropped" in str(caught[-1].message)
    assert {one.filename for one in caught} == {__file__}  # the warnings point to the user's line
    shown = "; ".join(str(one.message) for one in caught)
    assert "'city': 5 rows with 1 value that training did not see: read as unknown" in shown
    assert "'income': 5 missing values, none in training: read as the median" in shown
    absent = frame.copy()
    absent["city"] = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.isfinite(model.predict_proba(absent)).all()


def test_one_row_in_which_a_column_has_no_value() -> None:
    """pandas types a column without a value as floats."""
    n = 80
    frame = pd.DataFrame(
        {
            "age": np.random.default_rng(0).normal(size=n),
            "city": ["Bern", "Basel", None, "Bern"] * 20,
            "kind": pd.Categorical(["u", "v", "v", None] * 20),
            "ok": [True, False] * 40,
            "day": pd.date_range("2024-01-01", periods=n),
            "zoned": pd.date_range("2024-01-01", periods=n, tz="UTC"),
        }
    )
    y = (frame["age"] > 0).to_numpy()
    model = MLPClassifier(**QUICK).fit(frame, y)
    pieces = MLPClassifier(**QUICK).partial_fit(frame, y)
    for name in frame:
        for nothing in (np.nan, None, pd.NaT):
            row = frame.iloc[:1].assign(**{name: nothing})
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                p = model.predict_proba(row)
                np.testing.assert_array_equal(p, model.predict_proba(frame.assign(**{name: nothing}))[:1])
            MLPClassifier(**QUICK).fit(frame, y, X_val=row, y_val=y[:1])
            assert np.isfinite(pieces.partial_fit(row, y[:1]).predict_proba(frame)).all()


def test_one_row_of_objects_in_which_a_column_has_no_value() -> None:
    x = np.array(
        [[float(i), ["Bern", "Basel", None][i % 3], pd.Timestamp(i, unit="D")] for i in range(60)], dtype=object
    )
    model = MLPClassifier(**QUICK).fit(x, np.arange(60) % 2)
    for row in ([40.0, np.nan, np.nan], [np.nan, None, None], [np.nan, "Bern", pd.NaT]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert np.isfinite(model.predict_proba(np.array([row], dtype=object))).all()


def test_missing_numbers() -> None:
    x, y = numbers(200)
    x[np.random.default_rng(0).random(x.shape) < 0.2] = np.nan
    x[:, 3] = np.nan  # only missing values
    with pytest.warns(UserWarning, match=r"columns dropped: 'x3' \(empty: remove the column"):
        model = MLPRegressor(**QUICK).fit(x, y)
    assert np.isfinite(model.predict(x)).all()
    assert np.isfinite(model.predict(np.full((1, 4), np.nan))).all()


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinite_values_are_refused_with_row_and_column(value: float) -> None:
    frame, y = people()
    frame.loc[7, "income"] = value
    with pytest.raises(DataError, match=r"row 8, column 'income': numbers must be finite.*remove the row or leave"):
        MLPClassifier(**QUICK).fit(frame, y)
    x, z = numbers()
    far = x.copy()
    far[3, 1] = value
    fitted = MLPRegressor(**QUICK).fit(x, z)
    for form in (np.asarray, sparse.csr_matrix, sparse.csc_array, lambda a: a.astype(np.float32), np.ndarray.tolist):
        given: Any = form(far)
        fault = rf"row 4, column 'x1': numbers must be finite, got infinity, {value}: remove the row or leave"
        with pytest.raises(DataError, match=fault):
            MLPRegressor(**QUICK).fit(given, z)
        with pytest.raises(DataError, match=fault):
            fitted.predict(given)


def test_constant_columns() -> None:
    x, y = numbers()
    x[:, 2] = 7.0
    assert np.isfinite(MLPRegressor(**QUICK).fit(x, y).predict(x)).all()
    flat = MLPRegressor(**QUICK).fit(np.ones((60, 2)), y[:60])
    np.testing.assert_allclose(flat.predict(np.ones((1, 2))), y[:60].mean(), atol=0.5)
    same = MLPRegressor(**QUICK).fit(x, np.full(120, 3.0))
    np.testing.assert_allclose(same.predict(x), 3.0, atol=1e-6)


DAY = pd.Timestamp("2024-05-01")
NOTHING_VARIES: dict[str, Any] = {
    "text before a number": pd.DataFrame({"c": ["a"] * 60, "k": 1.0}),
    "a number before text": pd.DataFrame({"k": [1.0] * 60, "c": "a"}),
    "text": pd.DataFrame({"c": ["a"] * 60}),
    "categories": pd.DataFrame({"c": pd.Categorical(["a"] * 60)}),
    "true": pd.DataFrame({"c": [True] * 60}),
    "a day": pd.DataFrame({"c": [DAY] * 60}),
    "None": pd.DataFrame({"c": [None] * 60}),
    "NaT": pd.DataFrame({"c": pd.to_datetime([None] * 60)}),
    "NaN": np.full((60, 2), np.nan),
    "objects": np.array([["a", None]] * 60, dtype=object),
    "free text": pd.DataFrame({"c": [f"text {i}" for i in range(60)]}),
    "row numbers": pd.DataFrame({"id": range(60)}),
}


@pytest.mark.parametrize("kind", [MLPClassifier, MLPRegressor])
def test_a_table_of_only_free_text_is_dropped_with_a_warning(kind: Any) -> None:
    texts = pd.DataFrame({"c": [f"text {i}" for i in range(60)]})
    for fit in (kind(**QUICK).fit, kind(**QUICK).partial_fit):
        with pytest.warns(UserWarning, match=r"columns dropped: 'c' \(text with many different values"):
            model = fit(texts, np.arange(60) % 2)
        assert len(set(model.predict(texts))) == 1
    with pytest.raises(DataError, match=r"nothing to learn from: 'c' \(text with many different values"):
        ml.fit(None, (texts, np.arange(60) % 2))


def test_a_lazy_frame_is_refused() -> None:
    lazy = pl.LazyFrame({"a": np.arange(60.0)})
    fitted = MLPRegressor(**QUICK).fit(lazy.collect(), np.arange(60.0))
    for call in (lambda: MLPRegressor().fit(lazy, np.arange(60.0)), lambda: fitted.predict(lazy)):
        with pytest.raises(DataError, match=r"X must contain rows, got a LazyFrame.*: pass X.collect\(\)"):
            call()


@pytest.mark.parametrize("rows", [1, 60])
@pytest.mark.parametrize("X", NOTHING_VARIES.values(), ids=NOTHING_VARIES.keys())
def test_only_constant_columns(X: Any, rows: int, tmp_path: Any) -> None:
    given, y = X[:rows], numbers(60)[1][:rows]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "columns dropped")
        model = MLPRegressor(**QUICK).fit(given, y)
    found = model.predict(given)
    np.testing.assert_allclose(found, y.mean(), atol=0.5)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(MLPRegressor.load(tmp_path / "model").predict(given), found)


def test_a_model_of_constant_columns_predicts_one_value() -> None:
    y = numbers(60)[1]
    model = MLPRegressor(**QUICK).fit(pd.DataFrame({"c": ["a"] * 60}), y)
    flat = model.predict(pd.DataFrame({"c": ["a"]}))
    for other in ("b", None, 7.0, DAY):
        np.testing.assert_array_equal(model.predict(pd.DataFrame({"c": [other]})), flat)
    with pytest.warns(UserWarning, match=r"columns dropped: 'x0', 'x1' \(empty: remove"):
        MLPRegressor(**QUICK).fit(np.full((60, 2), np.nan), y)


def test_names_that_are_numbers() -> None:
    x, y = numbers()
    frame = pd.DataFrame(x)  # columns 0, 1, 2, 3
    model = MLPRegressor(**QUICK).fit(frame, y)
    assert not hasattr(model, "feature_names_in_")
    np.testing.assert_array_equal(model.predict(frame), model.predict(frame.rename(columns=lambda name: name)))
    mixed = pd.DataFrame(x, columns=[2000, 2001, 1, 0])
    assert MLPRegressor(**QUICK).fit(mixed, y).predict(mixed).shape == (120,)


def test_names_that_look_like_numbers_are_kept_in_a_file(tmp_path: Any) -> None:
    x, y = numbers()
    texts = pd.DataFrame(x, columns=["2020", "2021", "-1", "0"])
    for frame, named in ((texts, True), (texts.rename(columns=int), False)):
        models = MLPRegressor(**QUICK).fit(frame, y), MLPRegressor(**QUICK).partial_fit(frame, y)
        for model in models:
            model.save(tmp_path / "model")
            loaded = MLPRegressor.load(tmp_path / "model")
            assert hasattr(loaded, "feature_names_in_") == named
            np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))  # warnings are errors


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinity_in_a_constant_column_is_refused(value: float) -> None:
    x, y = numbers()
    x[:, 2] = 7.0
    far = x.copy()
    far[4, 2] = value
    names = ["x0", "x1", "x2", "x3"]
    objects = np.array([["a", *row] for row in x], dtype=object), np.array([["a", *row] for row in far], dtype=object)
    forms: list[tuple[Any, Any, str]] = [
        (x, far, "x2"),
        (pd.DataFrame(x, columns=names), pd.DataFrame(far, columns=names), "x2"),
        (pl.DataFrame(x, schema=names), pl.DataFrame(far, schema=names), "x2"),
        (*objects, "x3"),
    ]
    for plain, wrong, name in forms:
        model = MLPRegressor(**QUICK).fit(plain, y)
        with pytest.raises(DataError, match=f"row 5, column '{name}': numbers must be finite, got .*inf"):
            model.predict(wrong)
        assert np.isfinite(model.predict(plain)).all()


def test_dates_are_refused_as_regression_targets() -> None:
    x, y = numbers()
    days = pd.date_range("2020-01-01", periods=120)
    for given in (days, pd.Series(days), days.to_numpy(), days - days[0]):
        with pytest.raises(DataError, match=r"y must be numbers, got (datetime|timedelta)64.*: convert dates to days"):
            MLPRegressor(**QUICK).fit(x, given)
    with pytest.raises(DataError, match="y_val must be numbers, got datetime64"):
        MLPRegressor(**QUICK).fit(x, y, X_val=x, y_val=days)


def test_duplicate_column_names_are_refused() -> None:
    x, y = numbers()
    with pytest.raises(DataError, match="column names must be unique, got 'a' twice: rename one"):
        MLPRegressor(**QUICK).fit(pd.DataFrame(x, columns=list("abac")), y)


@pytest.mark.parametrize("rows", [1, 2, 3, 7])
def test_few_rows(rows: int) -> None:
    x, y = numbers(rows)
    assert np.isfinite(MLPRegressor(**QUICK).fit(x, y).predict(x)).all()
    labels = np.arange(rows) % 2
    model = MLPClassifier(**QUICK).fit(x, labels)
    assert model.predict(x).shape == (rows,)


def test_one_column_and_one_class() -> None:
    x, y = numbers(100, 1)
    assert MLPRegressor(**{**QUICK, "epochs": 24}).fit(x, y).score(x, y) > 0.5
    model = MLPClassifier(**QUICK).fit(x, np.full(100, "only"))
    assert set(model.predict(x)) == {"only"}
    np.testing.assert_array_equal(model.predict_proba(x), np.ones((100, 1)))


def test_ten_thousand_columns() -> None:
    """With more than 512 columns, numbers are not embedded. The embedding would be most of the network."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(60, 10_000)).astype(np.float32)
    model = MLPClassifier(**{**QUICK, "epochs": 2}).fit(x, (x[:, 0] > 0).astype(int))
    assert model.spec_.n_parameters < 10_000 * (16 + 2) + 1000
    assert model.predict(x).shape == (60,)


def test_sparse() -> None:
    x = sparse.random(200, 300, density=0.02, random_state=0, format="csr")
    y = (x[:, :20].sum(1) > 0.1).astype(int)
    y = np.asarray(y).ravel()
    model = MLPClassifier(**QUICK).fit(x, y)
    dense = MLPClassifier(**QUICK).fit(x.toarray(), y)
    np.testing.assert_array_equal(model.predict_proba(x), dense.predict_proba(x.toarray()))
    for form in (sparse.csc_matrix, sparse.coo_array, sparse.csr_array):
        np.testing.assert_array_equal(model.predict(form(x)), model.predict(x))


def test_heavy_tails() -> None:
    generator = np.random.default_rng(0)
    x = generator.standard_cauchy(size=(300, 3)) ** 3
    y = np.arctan(x[:, 0]) + 0.1 * generator.normal(size=300)
    model = MLPRegressor(**{**QUICK, "epochs": 24}).fit(x, y)
    assert model.score(x, y) > 0.5
    far = MLPRegressor(**{**QUICK, "epochs": 24}).fit(x, y * 10.0 ** generator.integers(-9, 9, 300))
    found = far.predict(x)
    assert np.isfinite(found).all()


def test_high_cardinality() -> None:
    """2,000 names, most of them used once, are dropped with a warning. The other columns are still used."""
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"name": [f"n{i}" for i in generator.integers(0, 2000, 800)], "x": generator.normal(size=800)})
    y = (frame["x"] > 0).astype(int)
    for given in (frame.assign(name=frame["name"].astype("category")), frame):
        with pytest.warns(UserWarning, match=r"columns dropped: 'name' \(text with many different values.*group its"):
            model = MLPClassifier(**QUICK).fit(given, y)
    assert model.score(frame, y) > 0.8
    new = pd.DataFrame({"name": ["someone new"] * 200, "x": generator.normal(size=200)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert model.score(new, (new["x"] > 0).astype(int)) > 0.8


def test_large_whole_numbers_that_floats_round() -> None:
    y = numbers(80)[1]
    large = (2**60 + np.arange(80)).astype(np.uint64)
    warning = r"columns dropped: 'big' \(whole numbers too large to differ as floats: subtract the smallest"
    frame = pd.DataFrame({"big": large, "x": y})
    for columns in (["big", "x"], ["big"]):
        with pytest.warns(UserWarning, match=warning):
            model = MLPRegressor(**QUICK).fit(frame[columns], y)
        assert np.isfinite(model.predict(frame[columns])).all()
    with pytest.warns(UserWarning, match=warning.replace("big", "x0")):
        MLPRegressor(**QUICK).fit(np.stack([large, large[::-1] - np.arange(80, dtype=np.uint64) * 2**53], 1), y)
    near = MLPRegressor(**QUICK).fit(frame.assign(big=np.arange(80) * 2**50), y)
    assert near.spec_.inputs.numeric == 2


def test_predictions_of_single_rows_are_bit_identical_to_those_of_a_batch() -> None:
    """The network has the widths of the recipe."""
    x, y = classes(80)
    model = MLPClassifier(ensemble=2, epochs=1, random_state=0).fit(x, y)
    alone = np.concatenate([model.predict_proba(x[i : i + 1]) for i in range(0, 80, 3)])
    np.testing.assert_array_equal(alone, model.predict_proba(x)[::3])
    order = np.random.default_rng(0).permutation(80)
    np.testing.assert_array_equal(model.predict_proba(x[order]), model.predict_proba(x)[order])


def test_training_data_is_not_changed() -> None:
    frame, y = people()
    before, x_before = frame.copy(deep=True), classes()[0]
    MLPClassifier(**QUICK).fit(frame, y).predict(frame)
    pd.testing.assert_frame_equal(frame, before)
    x, labels = classes()
    x.setflags(write=False)
    MLPClassifier(**QUICK).fit(x, labels)
    np.testing.assert_array_equal(x, x_before)


@pytest.mark.parametrize("size", [1e308, 1e300, 1e-300, 1e38, 5e-324])
def test_weights_of_any_size(size: float) -> None:
    x, y = numbers(80)
    plain = MLPRegressor(**QUICK).fit(x, y, sample_weight=np.ones(80)).predict(x)
    found = MLPRegressor(**QUICK).fit(x, y, sample_weight=np.full(80, size))
    np.testing.assert_array_equal(found.predict(x), plain)
    found.partial_fit(x, y, sample_weight=np.full(80, size))
    assert np.isfinite(found.predict(x)).all()
    labels = (x[:, 0] > 0).astype(int)
    weight = np.where(np.arange(80) < 40, size, 1.0)
    for class_weight in (None, "balanced"):
        judged = MLPClassifier(**QUICK, class_weight=class_weight).fit(x, labels, sample_weight=weight)
        assert np.isfinite(judged.predict_proba(x)).all()


def test_validation_weights_do_not_change_training_weights() -> None:
    x, y = numbers(80)
    given: dict[str, Any] = {"sample_weight": np.arange(1.0, 81), "X_val": x, "y_val": y}
    plain, far = (
        MLPRegressor(**QUICK).fit(x, y, **given, sample_weight_val=np.full(80, size)).predict(x) for size in (1, 1e300)
    )
    np.testing.assert_array_equal(far, plain)


def test_label_types() -> None:
    x, y = classes(90, count=2)
    for names in (["no", "yes"], [False, True], [-1, 1], [0.0, 1.0]):
        labels = np.asarray(names)[y]
        model = MLPClassifier(**QUICK).fit(x, labels)
        assert model.predict(x).dtype == labels.dtype
        assert set(model.predict(x).tolist()) <= set(labels.tolist())
    with pytest.raises(ValueError, match="Unknown label type"):
        MLPClassifier(**QUICK).fit(x, np.linspace(0, 1, 90))
