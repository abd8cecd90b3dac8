"""What a user may ask of the estimators, each by what it changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score

from multilayer import MLPClassifier, MLPRegressor
from multilayer.errors import OptionError
from quick import QUICK, classes, numbers


def test_network_options() -> None:
    x, y = classes()
    model = MLPClassifier(**{**QUICK, "hidden": (12, 8)}, activation=("relu", "tanh"), dropout=0.0).fit(x, y)
    text = str(model.spec_)
    assert "12" in text
    assert "blend(relu)" in text
    assert "blend(tanh)" in text
    assert "dropout" not in text
    assert model.config_["learning_rate"] == 0.04  # what was not asked for is the recipe's
    linear = MLPClassifier(**{**QUICK, "hidden": ()}).fit(x, y)
    assert linear.predict(x).shape == y.shape
    with pytest.raises(OptionError, match=r"hidden must be widths such as \(256, 256\), got 16"):
        MLPClassifier(**{**QUICK, "hidden": 16}).fit(x, y)
    with pytest.raises(OptionError, match="activation must be one, or one for each of 1 layers, got 2"):
        MLPClassifier(**QUICK, activation=("relu", "tanh")).fit(x, y)


def test_training_options() -> None:
    x, y = numbers()
    asked: dict[str, Any] = {"loss": "huber(delta=1)", "metric": "mae", "learning_rate": 0.05, "weight_decay": 0.1}
    model = MLPRegressor(**QUICK, **asked, n_threads=1, device="cpu").fit(x, y)
    assert {name: model.config_[name] for name in asked} == asked
    assert model.config_["ensemble"] == 2
    assert model.config_["threads"] == 1
    assert len(model.history_["loss"]) == 8 == len(model.history_["validation_loss"])  # the validation curve
    assert "mae" in model.history_
    assert model.n_iter_ == 8
    with pytest.raises(OptionError, match="unknown loss 'msee': did you mean 'mse'"):
        MLPRegressor(loss="msee").fit(x, y)
    with pytest.raises(OptionError, match="epochs must be positive, got 0"):
        MLPRegressor(epochs=0).fit(x, y)


def test_cost() -> None:
    model = MLPClassifier(**QUICK).fit(*classes())
    assert model.cost_.parameters == model.spec_.n_parameters
    assert model.cost_.forward > 2 * 16 * 3


# Seeds and bits


def test_a_seed_fixes_everything_on_any_number_of_threads() -> None:
    x, y = classes()
    models = [MLPClassifier(**QUICK, n_threads=threads).fit(x, y) for threads in (1, 2, 3)]
    assert len({model.model_.to_bytes() for model in models}) == 1
    other = MLPClassifier(**{**QUICK, "random_state": 1}).fit(x, y)
    assert not np.array_equal(other.predict_proba(x), models[0].predict_proba(x))


def test_generators_move_on_and_global_state_does_not() -> None:
    x, y = numbers(80)
    generator = np.random.RandomState(0)
    model = MLPRegressor(**{**QUICK, "random_state": generator})
    first, second = model.fit(x, y).predict(x), model.fit(x, y).predict(x)
    assert not np.array_equal(first, second)
    before = np.random.get_state()
    MLPRegressor(**QUICK).fit(x, y)
    after = np.random.get_state()
    assert before[2] == after[2]
    np.testing.assert_array_equal(before[1], after[1])


# Weights


def test_sample_weight_zero_is_absence() -> None:
    x, y = numbers(100)
    weight = np.ones(100)
    weight[::3] = 0
    keep = weight > 0
    with_zero = MLPRegressor(**QUICK).fit(x, y, weight).predict(x)
    without = MLPRegressor(**QUICK).fit(x[keep], y[keep], weight[keep]).predict(x)
    np.testing.assert_array_equal(with_zero, without)
    with pytest.raises(ValueError, match="Negative values in data"):
        MLPRegressor(**QUICK).fit(x, y, -weight)


def test_class_weight_moves_what_is_predicted() -> None:
    generator = np.random.default_rng(0)
    y = (generator.random(300) < 0.12).astype(int)
    x = generator.normal(size=(300, 2)) + y[:, None]
    plain, balanced, mapped = (
        MLPClassifier(**{**QUICK, "epochs": 16}, class_weight=weight).fit(x, y)
        for weight in (None, "balanced", {0: 1.0, 1: 8.0})
    )
    shares = [model.predict(x).mean() for model in (plain, balanced, mapped)]
    assert shares[1] > 1.5 * shares[0]
    assert shares[2] > 1.5 * shares[0]
    scores = [balanced_accuracy_score(y, model.predict(x)) for model in (plain, balanced)]
    assert scores[1] > scores[0]
    with pytest.raises(OptionError, match="class_weight names 7: classes are"):
        MLPClassifier(**QUICK, class_weight={7: 1.0}).fit(x, y)
    with pytest.raises(OptionError, match="must be 'balanced' or a mapping, got 'even'"):
        MLPClassifier(**QUICK, class_weight="even").fit(x, y)


# Rows held out


def test_validation_of_ones_own() -> None:
    x, y = classes(160)
    model = MLPClassifier(**QUICK).fit(x[:100], y[:100], X_val=x[100:], y_val=y[100:])
    worse = MLPClassifier(**QUICK).fit(x[:100], y[:100], X_val=x[100:], y_val=(y[100:] + 1) % 3)
    assert model.history_["validation_loss"][-1] < worse.history_["validation_loss"][-1]
    assert model.history_["loss"] == worse.history_["loss"]  # validation rows do not train
    with pytest.raises(OptionError, match="need both X_val and y_val, got one"):
        MLPClassifier(**QUICK).fit(x, y, X_val=x)
    with pytest.raises(OptionError, match=r"classes are \[0, 1, 2\], got .*9"):
        MLPClassifier(**QUICK).fit(x, y, X_val=x[:2], y_val=[0, 9])


def test_weights_of_validation_rows() -> None:
    """Rows of weight 0 decide nothing; the others are judged as if those were not there."""
    x, y = numbers(160)
    weight = np.where(np.arange(60) < 30, 1.0, 0.0)
    half = MLPRegressor(**QUICK).fit(x[:100], y[:100], X_val=x[100:], y_val=y[100:], sample_weight_val=weight)
    alone = MLPRegressor(**QUICK).fit(x[:100], y[:100], X_val=x[100:130], y_val=y[100:130])
    np.testing.assert_allclose(half.history_["validation_loss"], alone.history_["validation_loss"], rtol=1e-9)
    with pytest.raises(OptionError, match="sample_weight_val needs X_val and y_val"):
        MLPRegressor(**QUICK).fit(x, y, sample_weight_val=weight)


@pytest.mark.parametrize("validation", ["auto", 0.25, None])
def test_validation_options(validation: Any) -> None:
    x, y = numbers(100)
    model = MLPRegressor(**QUICK, validation=validation).fit(x, y)
    assert ("validation_loss" in model.history_) == (validation is not None)
    if validation is None:
        with pytest.raises(OptionError, match="intervals need rows that were held out"):
            model.predict_interval(x)


def test_groups_are_held_out_whole() -> None:
    """Rows of a group are copies with one noisy target: judged on copies of what they trained on, members would seem
    twice as good as they are."""
    generator = np.random.default_rng(0)
    x = np.repeat(generator.normal(size=(30, 3)), 6, axis=0)
    y = np.repeat(generator.normal(size=30), 6)
    options = {**QUICK, "epochs": 32}
    apart = MLPRegressor(**options).fit(x, y, groups=np.repeat(np.arange(30), 6))
    mixed = MLPRegressor(**options).fit(x, y)
    assert min(apart.history_["validation_loss"]) > 1.5 * min(mixed.history_["validation_loss"])


@pytest.mark.parametrize("kind", [float, "datetime64[D]"])
def test_the_latest_rows_are_held_out(kind: Any) -> None:
    """The last fifth has targets that nothing before tells of."""
    x, y = numbers(100)
    times = np.random.default_rng(1).permutation(100)
    y = y + 100 * (times >= 80)
    by_time = MLPRegressor(**QUICK).fit(x, y, times=times.astype("int64").astype(kind))
    assert by_time.history_["loss"][-1] < 2
    assert min(by_time.history_["validation_loss"]) > 1000  # in deviations of the training rows, squared
    assert by_time.predict(x).max() < 10


# Time


def test_time_limit_is_kept_by_planning() -> None:
    x, y = numbers(3000, 8)
    model = MLPRegressor(time_limit=3.0, random_state=0).fit(x, y)
    assert model.config_["epochs"] * model.config_["ensemble"] < 256
    assert model.n_iter_ <= model.config_["epochs"]
    assert model.score(x, y) > 0
