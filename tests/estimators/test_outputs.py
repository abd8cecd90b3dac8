"""Predictions: quantiles, counts, intervals, several targets, several labels."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from multilayer import MLPClassifier, MLPRegressor
from multilayer.errors import OptionError
from support.quick_estimators import QUICK, numbers

# Losses


def test_quantile_loss() -> None:
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, size=(600, 1))
    y = x[:, 0] + generator.normal(scale=0.5, size=600)
    model = MLPRegressor(**{**QUICK, "epochs": 24, "learning_rate": 0.02}, loss="quantile(0.1, 0.5, 0.9)").fit(x, y)
    low, middle, high = model.predict_quantiles(x).T
    np.testing.assert_array_equal(model.predict(x), middle)
    for q, found in ((0.1, low), (0.5, middle), (0.9, high)):
        assert abs((y < found).mean() - q) < 0.1
    with pytest.raises(OptionError, match=r"trained for the quantiles \[0.1, 0.5, 0.9\], got 0.25"):
        model.predict_quantiles(x, [0.25])


def test_the_median_of_quantiles_without_it() -> None:
    """It is interpolated between the levels around 0.5. If all levels are on one side, it is the nearest level."""
    x, y = numbers(200)

    def found(levels: str) -> tuple[np.ndarray, np.ndarray]:
        model = MLPRegressor(**QUICK, loss=f"quantile({levels})").fit(x, y)
        return model.predict(x), model.predict_quantiles(x, [float(q) for q in levels.split(",")])

    middle, levels = found("0.1, 0.9")
    np.testing.assert_allclose(middle, levels.mean(1), rtol=1e-12)
    middle, levels = found("0.2, 0.4, 0.8")
    np.testing.assert_allclose(middle, 0.75 * levels[:, 1] + 0.25 * levels[:, 2], rtol=1e-12)
    middle, levels = found("0.6, 0.7")
    np.testing.assert_array_equal(middle, levels[:, 0])
    middle, levels = found("0.1, 0.2")
    np.testing.assert_array_equal(middle, levels[:, 1])
    middle, levels = found("0.1, 0.5, 0.8, 0.9")
    np.testing.assert_array_equal(middle, levels[:, 1])
    both = MLPRegressor(**QUICK, loss="quantile(0.1, 0.9)").fit(x, np.stack([y, -y], 1))
    np.testing.assert_allclose(both.predict(x), both.predict_quantiles(x, [0.1, 0.9]).mean(-1), rtol=1e-12)


@pytest.mark.parametrize("levels", ["0.1, 0.9", "0.05, 0.1, 0.5", "0.2, 0.4, 0.8", "0.6, 0.7"])
def test_metrics_are_computed_from_predictions(levels: str) -> None:
    """History, `evaluate` and `score` give the same metrics. The tolerance is for y in float32."""
    x, y = numbers(120)
    options = {**QUICK, "epochs": 1, "loss": f"quantile({levels})", "metric": "mae"}
    model = MLPRegressor(**options).fit(x[:80], y[:80], X_val=x[80:], y_val=y[80:])
    error = np.abs(model.predict(x[80:]) - y[80:]).mean()
    assert model.history_["mae"] == pytest.approx([error], rel=1e-6)
    assert model.model_.evaluate((x[80:], y[80:]))["mae"] == pytest.approx(error, rel=1e-6)
    assert model.history_["r2"] == pytest.approx([model.score(x[80:], y[80:])], rel=1e-5)


def test_invalid_quantiles_and_coverages() -> None:
    x, y = numbers(60)
    model = MLPRegressor(**QUICK).fit(x, y)
    for quantiles in (0.5, [], ["a"], "a", [[0.5]]):
        with pytest.raises(OptionError, match=r"quantiles must be a list of numbers, such as \[0.1, 0.9\], got"):
            model.predict_quantiles(x, quantiles)  # type: ignore[arg-type]
    for coverage in ("a", None):
        with pytest.raises(OptionError, match="coverage must be a number above 0 and below 1, got"):
            model.predict_interval(x, coverage)  # type: ignore[arg-type]


def test_poisson_and_mae_losses() -> None:
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, size=(300, 2))
    counts = generator.poisson(np.exp(1.5 * x[:, 0]))
    model = MLPRegressor(**{**QUICK, "epochs": 16, "learning_rate": 0.02}, loss="poisson").fit(x, counts)
    assert (model.predict(x) > 0).all()
    assert model.score(x, counts) > 0.2
    assert np.corrcoef(model.predict(x), np.exp(1.5 * x[:, 0]))[0, 1] > 0.8
    robust = MLPRegressor(**{**QUICK, "epochs": 16, "learning_rate": 0.02}, loss="mae").fit(x, counts)
    assert np.isfinite(robust.predict(x)).all()


def test_intervals_cover_new_rows() -> None:
    """With 600 held-out and 2,000 new rows, the standard error of the coverage is about 0.014. Four are allowed."""
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, size=(2600, 2))
    y = 1000 * (x[:, 0] + generator.normal(scale=0.5, size=2600))
    model = MLPRegressor(**QUICK).fit(x[:600], y[:600])
    low, high = model.predict_interval(x[600:], coverage=0.9).T
    assert abs(((low <= y[600:]) & (y[600:] <= high)).mean() - 0.9) < 4 * 0.014
    quantiles = model.predict_quantiles(x[600:], [0.25, 0.75])
    assert abs((y[600:] < quantiles[:, 0]).mean() - 0.25) < 0.1
    assert abs((y[600:] < quantiles[:, 1]).mean() - 0.75) < 0.1


@pytest.mark.parametrize("loss", ["poisson", "quantile(0.9)", "quantile(0.25, 0.75)", "quantile(0.1, 0.5, 0.9)"])
def test_intervals_of_every_loss(loss: str) -> None:
    """With 240 held-out and 2,000 new rows, the standard error of the coverage is about 0.021. Four are allowed, and
    the part that ties of counts add."""
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, size=(2600, 2))
    y = generator.poisson(np.exp(1 + x[:, 0]))
    model = MLPRegressor(**QUICK, loss=loss).fit(x[:600], y[:600])
    low, high = model.predict_interval(x[600:]).T
    covered = ((low <= y[600:]) & (y[600:] <= high)).mean()
    assert 0.9 - 4 * 0.021 < covered < 0.98
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_interval(x[600:]), np.stack([low, high], 1))
    narrow = model.predict_interval(x, coverage=0.01)
    assert (narrow[:, 0] <= narrow[:, 1]).all()
    if loss == "poisson":
        assert low.min() >= 0
        assert (model.predict_quantiles(x, [0.01, 0.9]) >= 0).all()
    both = MLPRegressor(**QUICK, loss=loss).fit(x[:200], np.stack([y, y + 1], 1)[:200])
    assert both.predict_interval(x).shape == (2600, 2, 2)


def test_too_few_rows_for_an_interval_are_reported() -> None:
    x, y = numbers(15)
    model = MLPRegressor(**QUICK).fit(x, y)
    with pytest.warns(UserWarning, match=r"coverage=0.9 needs 9 held-out rows .*, got 6, so the interval is inf"):
        found = model.predict_interval(x)
    assert np.isinf(found).all()
    assert np.isfinite(model.predict_interval(x, coverage=0.8)).all()
    with pytest.warns(UserWarning, match=r"the quantile 0.05 needs 19 held-out rows .*, got 6, so it is infinite"):
        found = model.predict_quantiles(x, [0.05, 0.1, 0.5, 0.95])
    assert (found[:, [0, 1, 3]] == [-np.inf, -np.inf, np.inf]).all()
    assert np.isfinite(model.predict_quantiles(x, [0.2, 0.5, 0.8])).all()


@pytest.mark.parametrize("q", [1e-300, 5e-324, 1e-17, np.float64(1e-17)])
def test_quantiles_too_extreme_for_the_number_of_rows(q: float) -> None:
    model = MLPRegressor(**QUICK).fit(*numbers(15))
    with pytest.warns(UserWarning, match=rf"the quantile {float(q)} needs 1e\+\d+ held-out rows"):
        assert (model.predict_quantiles(numbers(3)[0], [q]) == -np.inf).all()


def test_a_warning_shows_all_digits_of_the_coverage() -> None:
    x, y = numbers(15)
    model = MLPRegressor(**QUICK).fit(x, y)
    with pytest.warns(UserWarning, match=r"coverage=0.999999999 needs 1,000,000,0\d\d held-out rows"):
        model.predict_interval(x, 1 - 1e-9)
    with pytest.warns(UserWarning, match=r"the quantile 0.999999999 needs 1,000,000,0\d\d held-out rows"):
        model.predict_quantiles(x, [1 - 1e-9])


def test_several_targets() -> None:
    x, y = numbers(200)
    both = np.stack([y, 100 * x[:, 2]], 1)
    model = MLPRegressor(**{**QUICK, "epochs": 24}).fit(x, both)
    assert model.predict(x).shape == (200, 2)
    assert model.score(x, both) > 0.5
    assert model.predict_interval(x).shape == (200, 2, 2)
    assert model.predict_quantiles(x, [0.5]).shape == (200, 2, 1)


def test_several_labels() -> None:
    x, y = numbers(200)
    labels = np.stack([x[:, 0] > 0, x[:, 1] > 0.5, y > 0], 1).astype(int)
    model = MLPClassifier(**{**QUICK, "epochs": 24}).fit(x, labels)
    p = model.predict_proba(x)
    assert p.shape == (200, 3)
    np.testing.assert_array_equal(model.predict(x), (p > 0.5).astype(int))
    assert (model.predict(x) == labels).mean() > 0.8
