"""Types of X that scikit-learn's own checks do not preserve: strings, bytes, masked arrays and Arrow batches.
Validation rows are read like training rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from multilayer import MLPClassifier, MLPRegressor
from multilayer.errors import DataError
from support.quick_estimators import QUICK, numbers

Y = np.arange(40) % 2
ZIPS = np.array([["8001"], ["8002"], ["80A3"], ["8004"]] * 10)
DIGITS = np.array([["8001"], ["8002"], ["8003"], ["8004"]] * 10)
FORMS: dict[str, Any] = {
    "texts": np.asarray,
    "bytes": lambda x: x.astype("S"),
    "objects": lambda x: x.astype(object),
    "bytes that are objects": lambda x: x.astype("S").astype(object),
    "rows": np.ndarray.tolist,
}

# Strings


@pytest.mark.parametrize("form", FORMS)
def test_strings_of_all_types_give_the_same_model(form: str) -> None:
    """Also if all values to predict from are digits."""
    expected = MLPClassifier(**QUICK).fit(pd.DataFrame(ZIPS), Y)
    model = MLPClassifier(**QUICK).fit(FORMS[form](ZIPS), Y)
    assert model.model_.encoding.vocabularies["x0"].to_pylist() == ["8001", "8002", "8004", "80A3"]
    p = model.predict_proba(FORMS[form](ZIPS))
    np.testing.assert_array_equal(p, expected.predict_proba(pd.DataFrame(ZIPS)))
    for other in FORMS.values():
        np.testing.assert_array_equal(model.predict_proba(other(ZIPS[:1])), p[:1])
    pieces = MLPClassifier(**QUICK).partial_fit(FORMS[form](ZIPS), Y).partial_fit(FORMS[form](ZIPS[:2]), Y[:2])
    assert pieces.predict(FORMS[form](ZIPS[:1])).shape == (1,)


def test_a_column_of_strings_next_to_one_of_digits() -> None:
    x = np.concatenate([ZIPS, DIGITS], axis=1)
    model = MLPClassifier(**QUICK).fit(x, Y)
    assert (model.spec_.inputs.categories, model.spec_.inputs.numeric) == ((4,), 1)
    np.testing.assert_array_equal(model.predict_proba(x[:1]), model.predict_proba(x)[:1])


@pytest.mark.parametrize("form", FORMS)
def test_digits_are_numbers_unless_they_are_declared_as_categories(form: str) -> None:
    """The result is the same as for a CSV file."""
    expected = MLPClassifier(**QUICK).fit(DIGITS.astype(float), Y).predict_proba(DIGITS.astype(float))
    for given in (FORMS[form](DIGITS), pd.DataFrame(DIGITS)):
        model = MLPClassifier(**QUICK).fit(given, Y)
        assert model.spec_.inputs.numeric == 1
        np.testing.assert_array_equal(model.predict_proba(given), expected)
    categories = MLPClassifier(**QUICK).fit(pd.DataFrame(DIGITS, dtype="category"), Y)
    assert categories.spec_.inputs.categories == (4,)


@pytest.mark.parametrize("form", ["texts", "bytes", "objects"])
def test_digit_strings_are_read_as_numbers_by_a_model_of_numbers(form: str) -> None:
    """Objects that are all numbers are read as numbers, as scikit-learn requires. Then strings of digits are too."""
    for given in (DIGITS.astype(object), DIGITS.astype(float)):
        model = MLPClassifier(**QUICK).fit(given, Y)
        np.testing.assert_array_equal(model.predict_proba(FORMS[form](DIGITS)), model.predict_proba(given))


def test_bytes_that_cannot_be_decoded_are_refused() -> None:
    x = np.array([[b"\xff"], [b"a"]] * 20)
    for given in (x, x.astype(object)):
        with pytest.raises(DataError, match=r"the array.*: bytes must be text in UTF-8, got b'\\xff': decode them"):
            MLPClassifier(**QUICK).fit(given, Y)


def test_one_row_of_strings_needs_two_dimensions() -> None:
    with pytest.raises(ValueError, match="Expected 2D array, got 1D array"):
        MLPClassifier(**QUICK).fit(ZIPS[:, 0], Y)


# Validation rows


def test_validation_rows_are_read_like_the_training_rows() -> None:
    """The columns of an earlier fit have no effect."""
    first = np.array([["a", 1.0], ["b", 2.0]] * 20, dtype=object)
    other = first[:, ::-1].copy()
    own: dict[str, Any] = {"X_val": other[:4], "y_val": Y[:4]}
    again = MLPClassifier(**QUICK).fit(first, Y).fit(other, Y, **own)
    np.testing.assert_array_equal(
        again.predict_proba(other), MLPClassifier(**QUICK).fit(other, Y, **own).predict_proba(other)
    )


@pytest.mark.parametrize("form", [np.asarray, lambda x: pd.DataFrame(x, columns=["a"])])
def test_numeric_validation_rows_in_a_column_of_strings(form: Any) -> None:
    x = np.array([["a"], [1.0], [2], ["b"]] * 10, dtype=object)
    model = MLPClassifier(**QUICK).fit(form(x), Y, X_val=form(x[1:3]), y_val=Y[1:3])
    assert model.spec_.inputs.categories == (4,)
    assert len(model.history_["validation_loss"]) == 8


# Masked arrays


def test_masked_values_are_missing() -> None:
    x, y = numbers(60)
    mask = x > 1
    for given, plain in (
        (x, np.where(mask, np.nan, x)),
        (x.astype(np.float32), np.where(mask, np.nan, x.astype(np.float32))),
        ((9 * x).astype(int), np.where(mask, np.nan, (9 * x).astype(int))),
        (x > 0, np.where(mask, np.nan, x > 0)),
    ):
        masked = np.ma.array(given, mask=mask)
        model, expected = MLPRegressor(**QUICK).fit(masked, y), MLPRegressor(**QUICK).fit(plain, y)
        np.testing.assert_array_equal(model.predict(masked), expected.predict(plain))
    whole = np.ma.array((9 * x).astype(int))
    np.testing.assert_array_equal(
        MLPRegressor(**QUICK).fit(whole, y).predict(whole), MLPRegressor(**QUICK).fit(whole.data, y).predict(whole.data)
    )


def test_masked_objects_are_none() -> None:
    x = np.array([["a", 1.0], ["b", 2.5]] * 20, dtype=object)
    mask = np.arange(80).reshape(40, 2) % 7 == 0
    plain = np.where(mask, None, x)
    model = MLPClassifier(**QUICK).fit(np.ma.array(x, mask=mask), Y)
    assert model.spec_.inputs.categories == (2,)
    np.testing.assert_array_equal(
        model.predict_proba(np.ma.array(x, mask=mask)), MLPClassifier(**QUICK).fit(plain, Y).predict_proba(plain)
    )


@pytest.mark.parametrize("kind", [MLPClassifier, MLPRegressor])
def test_a_masked_target_is_none(kind: Any) -> None:
    with pytest.raises(ValueError, match="Input y contains NaN"):
        kind(**QUICK).fit(numbers(40)[0], np.ma.array(Y, mask=Y == 1))


# Arrow


def test_an_arrow_batch_has_column_names() -> None:
    x, y = numbers(60)
    frame = pd.DataFrame(x, columns=list("abcd"))
    batch = pa.RecordBatch.from_pandas(frame)
    for fit in ("fit", "partial_fit"):
        model = getattr(MLPRegressor(**QUICK), fit)(batch, y, sample_weight=np.ones(60))
        assert list(model.feature_names_in_) == list("abcd")
        assert not any(column.numbered for column in model.model_.encoding.columns)
        np.testing.assert_array_equal(model.predict(batch), model.predict(frame))
        with pytest.raises(ValueError, match="feature names should match"):
            model.predict(batch.select(list("dcba")))


@pytest.mark.parametrize("estimator", [MLPClassifier, MLPRegressor])
@pytest.mark.parametrize("kind", [list, np.array, pd.Series])
def test_text_targets_in_place_of_x_are_refused(estimator: Any, kind: Any) -> None:
    """Before, the error for `fit(y, X)` named neither X nor y."""
    x, _ = numbers()
    texts = kind(["low" if value > 0 else "high" for value in x[:, 0]])
    with pytest.raises(DataError, match=rf"Expected 2D array, got 1D array of {len(x)} strings: pass X before y"):
        estimator(**QUICK).fit(texts, x)


@pytest.mark.parametrize("kind", [list, np.array, pd.Series, pd.Categorical])
def test_a_regressor_for_text_targets_names_the_classifier(kind: Any) -> None:
    x, _ = numbers()
    y = ["low" if value > 0 else "high" for value in x[:, 0]]
    with pytest.raises(DataError, match=r"y must be numbers, got '(low|high)': MLPClassifier predicts classes"):
        MLPRegressor(**QUICK).fit(x, kind(y))


def test_a_regressor_takes_numbers_written_as_text() -> None:
    x, y = numbers()
    written = MLPRegressor(**QUICK).fit(x, [str(value) for value in y])
    assert np.array_equal(written.predict(x), MLPRegressor(**QUICK).fit(x, y).predict(x))
