"""Any column as it comes: missing, text, categories, unseen, constant, infinite, many, few, sparse, far out."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sparse
from sklearn.pipeline import make_pipeline

from multilayer import MLPClassifier, MLPRegressor
from multilayer.errors import DataError
from quick import QUICK, classes, numbers, people


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_a_table_as_it_comes(kind: str) -> None:
    frame, y = people()
    table: Any = {"pandas": frame, "polars": pl.from_pandas(frame), "pyarrow": pl.from_pandas(frame).to_arrow()}[kind]
    model = MLPClassifier(**QUICK).fit(table, y.to_numpy())
    p = model.predict_proba(table)
    assert p.shape == (120, 2)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-12)
    assert list(model.classes_) == ["left", "stayed"]
    if kind == "polars":  # the same table, the same model
        other = MLPClassifier(**QUICK).fit(frame, y)
        np.testing.assert_array_equal(other.predict_proba(frame), p)


def test_texts_in_an_array() -> None:
    x = np.array([["a", 1.0, None], ["b", 2.0, "u"], ["a", None, "v"]] * 20, dtype=object)
    y = np.array([0, 1, 1] * 20)
    model = MLPClassifier(**QUICK).fit(x, y)
    assert model.score(x, y) > 0.9
    texts = np.array([["a", "u"], ["b", "v"]] * 20)
    assert MLPClassifier(**QUICK).fit(texts, y[:40] % 2).predict(texts).shape == (40,)


def test_a_list_of_rows_is_the_array_of_them() -> None:
    """Numbers beside texts stay numbers."""
    rows = [["a", 1.5], ["b", 2.0], ["a", None]] * 20
    y = [0, 1, 1] * 20
    array = np.array(rows, dtype=object)
    listed, given = MLPClassifier(**QUICK).fit(rows, y), MLPClassifier(**QUICK).fit(array, y)
    assert str(listed.spec_).startswith("2+cat(2)-")
    np.testing.assert_array_equal(listed.predict_proba(rows), given.predict_proba(array))


def test_anything_in_an_array_of_objects() -> None:
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
    with pytest.raises(DataError, match="column 'x0': must hold numbers, text, true and false, or dates, got struct"):
        MLPClassifier(**QUICK).fit(mixed, y)


def test_whole_numbers_beyond_64_bits() -> None:
    x, y = numbers(60)
    frame = pd.DataFrame({"a": x[:, 0], "big": [10**30 * i for i in range(60)]})
    model = MLPRegressor(**QUICK).fit(frame, y)
    assert model.spec_.inputs.numeric == 2
    with pytest.raises(DataError, match="row 60, column 'big': numbers must be finite, got inf"):
        MLPRegressor(**QUICK).fit(frame.assign(big=[0] * 59 + [10**400]), y)


def test_a_tensor() -> None:
    torch = pytest.importorskip("torch")
    x, y = numbers(60)
    model = MLPRegressor(**QUICK).fit(torch.tensor(x, requires_grad=True), torch.tensor(y))
    np.testing.assert_array_equal(model.predict(torch.tensor(x)), MLPRegressor(**QUICK).fit(x, y).predict(x))


def test_what_training_did_not_see() -> None:
    frame, y = people()
    model = MLPClassifier(**QUICK).fit(frame, y)
    new = frame.copy()
    new.loc[:4, "city"] = "Lugano"
    new.loc[5:9, "income"] = np.nan  # never missing in training
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        p = model.predict_proba(new)
        make_pipeline(model).predict(new)  # below scikit-learn too
        MLPRegressor(**QUICK).fit(np.c_[new["age"], np.full(len(new), np.nan)], new["income"].fillna(0))
    assert np.isfinite(p).all()
    assert "columns left aside" in str(said[-1].message)
    assert {one.filename for one in said} == {__file__}  # a warning is at the user's line
    told = "; ".join(str(one.message) for one in said)
    assert "'city': 5 rows with 1 value that training did not see: read as unknown" in told
    assert "'income': 5 missing values, none in training: read as the median" in told
    absent = frame.copy()
    absent["city"] = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.isfinite(model.predict_proba(absent)).all()


def test_missing_numbers() -> None:
    x, y = numbers(200)
    x[np.random.default_rng(0).random(x.shape) < 0.2] = np.nan
    x[:, 3] = np.nan  # nothing at all
    with pytest.warns(UserWarning, match=r"columns left aside: 'x3' \(empty\): leave them out"):
        model = MLPRegressor(**QUICK).fit(x, y)
    assert np.isfinite(model.predict(x)).all()
    assert np.isfinite(model.predict(np.full((1, 4), np.nan))).all()


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinite_values_are_refused_with_their_place(value: float) -> None:
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


def test_constants_and_nothing_but_constants() -> None:
    x, y = numbers()
    x[:, 2] = 7.0
    assert np.isfinite(MLPRegressor(**QUICK).fit(x, y).predict(x)).all()
    flat = MLPRegressor(**QUICK).fit(np.ones((60, 2)), y[:60])
    np.testing.assert_allclose(flat.predict(np.ones((1, 2))), y[:60].mean(), atol=0.5)
    same = MLPRegressor(**QUICK).fit(x, np.full(120, 3.0))
    np.testing.assert_allclose(same.predict(x), 3.0, atol=1e-6)


def test_names_that_are_numbers() -> None:
    x, y = numbers()
    frame = pd.DataFrame(x)  # columns 0, 1, 2, 3
    model = MLPRegressor(**QUICK).fit(frame, y)
    assert not hasattr(model, "feature_names_in_")
    np.testing.assert_array_equal(model.predict(frame), model.predict(frame.rename(columns=lambda name: name)))
    mixed = pd.DataFrame(x, columns=[2000, 2001, 1, 0])
    assert MLPRegressor(**QUICK).fit(mixed, y).predict(mixed).shape == (120,)


def test_two_columns_of_one_name_are_refused() -> None:
    x, y = numbers()
    with pytest.raises(DataError, match="columns must have names of their own, got 'a' twice: rename one"):
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
    """Beyond 512 columns numbers go in as they are: the embedding would be most of the network."""
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
    """2,000 names, most of them once: they are left aside, which is told, and the rest of the table still counts."""
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"name": [f"n{i}" for i in generator.integers(0, 2000, 800)], "x": generator.normal(size=800)})
    y = (frame["x"] > 0).astype(int)
    with pytest.warns(UserWarning, match=r"columns left aside: 'name' \(text with many different values.*: leave them"):
        model = MLPClassifier(**QUICK).fit(frame, y)
    assert model.score(frame, y) > 0.8
    new = pd.DataFrame({"name": ["someone new"] * 200, "x": generator.normal(size=200)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert model.score(new, (new["x"] > 0).astype(int)) > 0.8


def test_rows_predicted_alone_have_the_bits_of_a_batch() -> None:
    """With the recipe's own widths, in one epoch."""
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


def test_label_types() -> None:
    x, y = classes(90, count=2)
    for names in (["no", "yes"], [False, True], [-1, 1], [0.0, 1.0]):
        labels = np.asarray(names)[y]
        model = MLPClassifier(**QUICK).fit(x, labels)
        assert model.predict(x).dtype == labels.dtype
        assert set(model.predict(x).tolist()) <= set(labels.tolist())
    with pytest.raises(ValueError, match="Unknown label type"):
        MLPClassifier(**QUICK).fit(x, np.linspace(0, 1, 90))
