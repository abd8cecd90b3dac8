"""Tables with constant columns only, and extreme numbers: equal predictions for all rows, or a clear error."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest

import multilayer as ml
from multilayer import MLPClassifier, MLPRegressor
from multilayer.errors import DataError
from support.quick_estimators import QUICK, numbers
from support.training_rows import prepare

pytestmark = pytest.mark.filterwarnings("ignore:columns dropped")

Y = np.arange(40) % 2
DAYS = pd.DataFrame({"c": pd.to_datetime(["2024-01-01"] * 40)})
FLAT: dict[str, tuple[Any, Any]] = {
    "numbers": (np.ones((40, 1)), np.array([[1.0], [2.0], [50.0], [np.nan]])),
    "two columns": (np.ones((40, 2)), np.array([[1.0, 1.0], [2.0, 7.0], [50.0, 9.0]])),
    "a frame": (pd.DataFrame({"c": [1] * 40}), pd.DataFrame({"c": [1, 2, 50]})),
    "text": (pd.DataFrame({"c": ["a"] * 40}), pd.DataFrame({"c": ["a", "b", None]})),
    "categories": (pd.DataFrame({"c": ["a"] * 40}, dtype="category"), pd.DataFrame({"c": ["a", "b"]})),
    "dates": (DAYS, pd.DataFrame({"c": pd.to_datetime(["2024-01-01", "2030-05-05"])})),
    "dates as text": (pd.DataFrame({"c": ["2024-01-01"] * 40}), pd.DataFrame({"c": ["2024-01-01", "2030-05-05"]})),
    "booleans": (pd.DataFrame({"c": [True] * 40}), pd.DataFrame({"c": [True, False]})),
    "pictures": (np.ones((40, 3, 3)), np.stack([np.ones((3, 3)), np.full((3, 3), 50.0)])),
}


@pytest.mark.parametrize("form", FLAT)
def test_a_table_without_variation_predicts_the_same_for_every_row(form: str) -> None:
    trained, new = FLAT[form]
    run = ml.fit(None, (trained, Y), keep_constant=True, epochs=2, quiet=True)
    assert run.model is not None
    assert len(np.unique(run.model.predict_proba(new), axis=0)) == 1
    with pytest.raises(DataError, match="all columns were dropped, so there is nothing to learn from"):
        ml.fit(None, (trained, Y), epochs=2, quiet=True)
    if form != "pictures":
        model = MLPClassifier(**QUICK).fit(trained, Y)
        assert len(np.unique(model.predict_proba(new), axis=0)) == 1


@pytest.mark.filterwarnings("ignore:.*(none in training|that training did not see)")
@pytest.mark.parametrize("form", [form for form in FLAT if form != "pictures"])
def test_pieces_without_variation_predict_the_same_for_every_row_until_a_piece_varies(form: str) -> None:
    trained, new = FLAT[form]
    model = MLPClassifier(**QUICK).partial_fit(trained, Y, classes=[0, 1])
    model = pickle.loads(pickle.dumps(model)).partial_fit(trained, Y)
    p = model.predict_proba(new)
    assert len(np.unique(p, axis=0)) == 1
    np.testing.assert_allclose(p[0], 0.5, atol=0.1)  # the two classes are as frequent
    varied = new[:2] if isinstance(new, np.ndarray) else new.iloc[:2]
    p = model.partial_fit(varied, [0, 1]).predict_proba(varied)
    assert (p[0] != p[1]).any()


def test_a_regression_on_pieces_without_variation_predicts_the_mean() -> None:
    model = MLPRegressor(random_state=0, ensemble=2).partial_fit(np.ones((40, 2)), Y * 1.0)
    np.testing.assert_allclose(model.predict([[1.0, 1.0], [50.0, 2.0]]), 0.5, atol=0.1)


def test_a_constant_column_with_missing_values_is_only_an_indicator() -> None:
    x = np.where(np.arange(40)[:, None] % 3 == 0, np.nan, 5.0)
    p = MLPClassifier(**QUICK).fit(x, Y).predict_proba([[5.0], [6.0], [1e30], [np.nan]])
    np.testing.assert_array_equal(p[:2], p[1:3])
    assert (p[3] != p[0]).any()


@pytest.mark.parametrize("factor", [1e-90, 1e-30, 1e30])
def test_a_target_may_have_any_unit(factor: float) -> None:
    x, y = numbers(60)
    expected = MLPRegressor(**QUICK).fit(x, y).predict(x)
    # A factor that is not a power of two changes the rounding of the target and of the float32 arithmetic.
    np.testing.assert_allclose(MLPRegressor(**QUICK).fit(x, y * factor).predict(x) / factor, expected, rtol=1e-4)


@pytest.mark.parametrize("factor", [1e-300, 1e300])
def test_a_target_with_extremely_small_or_large_values_is_refused(factor: float) -> None:
    x, y = numbers(60)
    said = "must differ by at least 1e-100.*: multiply it" if factor < 1 else "must lie within .*: rescale the column"
    with pytest.raises(DataError, match=said):
        MLPRegressor(**QUICK).fit(x, y * factor)
    with pytest.raises(DataError, match=said):
        ml.fit(None, (x, y * factor), epochs=1, quiet=True)


@pytest.mark.parametrize("scaling", ["standard", "robust"])
@pytest.mark.parametrize("factor", [2.0**-500, 2.0**-990, 2.0**100])
def test_features_may_have_any_unit(scaling: str, factor: float) -> None:
    x, y = numbers(60)
    expected = prepare((x, y), scaling=scaling).data.x
    np.testing.assert_allclose(prepare((x * factor, y), scaling=scaling).data.x, expected, rtol=1e-6, atol=1e-6)


def test_images_may_have_any_unit() -> None:
    x = numbers(60, 9)[0].reshape(60, 3, 3)
    found = np.asarray(prepare((x * 1e-300, Y.repeat(2)[:60])).data.x)
    assert 0.5 < found.std() < 2


def test_features_beyond_float32_are_refused() -> None:
    x, y = numbers(60)
    with pytest.raises(DataError, match=r"row 1, column 'x0': numbers must lie within .*: rescale the column"):
        ml.fit(None, (x * 1e300, y), epochs=1, quiet=True)


@pytest.mark.filterwarnings("ignore:.*far outside the training range")
def test_outputs_that_are_not_finite_are_refused_with_their_row() -> None:
    """Finite values and finite weights whose products overflow: a label for such a row would mean nothing."""
    x = np.random.default_rng(0).normal(size=(60, 2))
    model = ml.fit("2-8-1", (x, x[:, 0] > 0), epochs=2, quiet=True).model
    assert model is not None
    far = np.array([[0.0, 0.0], [3e38, 3e38]])
    for call in (model.predict, model.predict_proba):
        with pytest.raises(DataError, match="row 2: the network's outputs are not finite: values are too far from"):
            call(far)
    assert np.isfinite(model.predict_proba(far[:1])).all()
