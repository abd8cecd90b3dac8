"""Options of the estimators, tested by their effects."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.metrics import balanced_accuracy_score

import multilayer as ml
from multilayer import MLPClassifier, MLPRegressor
from multilayer.errors import DataError, OptionError
from multilayer.runs.config import RECIPE_RATE
from support.quick_estimators import QUICK, classes, numbers


def test_network_options() -> None:
    x, y = classes()
    model = MLPClassifier(**{**QUICK, "hidden": (12, 8)}, activation=("relu", "tanh"), dropout=0.0).fit(x, y)
    text = str(model.spec_)
    assert "12" in text
    assert "blend(relu)" in text
    assert "blend(tanh)" in text
    assert "dropout" not in text
    assert model.config_["learning_rate"] == 0.04  # the recipe chooses options that are not given
    linear = MLPClassifier(**{**QUICK, "hidden": ()}).fit(x, y)
    assert linear.predict(x).shape == y.shape
    with pytest.raises(OptionError, match=r"hidden must be a width or widths such as \(256, 256\), got 1.5"):
        MLPClassifier(**{**QUICK, "hidden": 1.5}).fit(x, y)
    array = MLPClassifier(**{**QUICK, "hidden": np.array([12, 8])}, activation=np.array(["relu", "tanh"]), dropout=0.0)
    assert array.fit(x, y).spec_ == model.spec_
    with pytest.raises(OptionError, match="activation must be a name such as 'relu', or one for each layer, got 5"):
        MLPClassifier(**QUICK, activation=5).fit(x, y)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="activation must be one name, or one for each of 1 layers, got 2"):
        MLPClassifier(**QUICK, activation=("relu", "tanh")).fit(x, y)


def test_the_docs_have_every_rate_of_the_recipe() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "estimator-options.md").read_text(encoding="utf-8")
    line = next(line for line in page.splitlines() if line.startswith("| `learning_rate`"))
    assert re.findall(r"0\.\d+", line) == [str(rate) for rate in RECIPE_RATE.values()]


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
    for threads in (0, -1, "x", 1.5):
        with pytest.raises(OptionError, match="n_threads must be a whole number of at least 1, or None for all, got"):
            MLPRegressor(n_threads=threads).fit(x, y)  # type: ignore[arg-type]
    for seed in (-1, 2**64):
        with pytest.raises(OptionError, match=r"random_state must be at least 0 and below 2\^64, got"):
            MLPRegressor(random_state=seed).fit(x, y)


def test_the_validation_loss_of_classes_shows_overfitting() -> None:
    """Networks become overconfident on random labels. The loss shows it, but not the loss at the best temperature."""
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(120, 4)), generator.integers(0, 2, 120)
    options = {**QUICK, "epochs": 48, "hidden": (64,), "learning_rate": 0.03, "dropout": 0.0}
    history = MLPClassifier(**options).fit(x, y).history_
    assert history["validation_loss"] == history["log_loss"]
    assert history["validation_loss"][-1] > 1.2 * min(history["validation_loss"])
    assert history["tempered_loss"][-1] < 0.72  # close to that of a constant prediction, log 2 = 0.69
    assert "tempered_loss" not in MLPRegressor(**QUICK).fit(x, y).history_


def test_probabilities_are_calibrated_after_label_smoothing() -> None:
    """Networks trained on smoothed labels of 70 % predict 70 %. Calibration uses the labels without smoothing."""
    x, fresh = np.random.default_rng(0).normal(size=(2, 1000, 3))
    options = {**QUICK, "epochs": 24, "ensemble": 1}
    model = MLPClassifier(**options, loss="cross_entropy(label_smoothing=0.6)").fit(x, x[:, 0] > 0)
    right = model.score(fresh, fresh[:, 0] > 0)
    assert right > 0.95
    assert model.predict_proba(fresh).max(1).mean() == pytest.approx(right, abs=0.03)


def test_cost(tmp_path: Path) -> None:
    model = MLPClassifier(**QUICK).fit(*classes())
    assert model.cost_.parameters == model.spec_.n_parameters
    assert model.cost_.forward > 2 * 16 * 3
    model.save(tmp_path / "model")
    loaded = MLPClassifier.load(tmp_path / "model")
    assert (loaded.cost_.batch, loaded.cost_.parameters) == (1, model.cost_.parameters)


@pytest.mark.parametrize("way", ["fit", "partial_fit"])
def test_cost_uses_the_batch_size_and_optimizer_of_the_fit(way: str) -> None:
    model = getattr(MLPClassifier(**{**QUICK, "batch_size": 24}), way)(*classes())
    found, config = model.cost_, model.config_
    assert (found.engine, found.optimizer, found.batch) == ("fused", config["optimizer"], 24)
    assert config["engine"] == "fused"
    assert config["optimizer"] == "adamw(beta2=0.95)"
    assert found.loss.name == model.model_.encoding.loss
    model.config_ = {**config, "average": 0.99, "clip_norm": 1.0, "engine": "torch", "optimizer": "sgd"}
    other = ml.cost(model.spec_, batch=24, optimizer="sgd", loss=found.loss.name, clip=True, average=True)
    assert model.cost_ == other


# Seeds


def test_a_seed_gives_the_same_model_with_any_number_of_threads() -> None:
    x, y = classes()
    models = [MLPClassifier(**QUICK, n_threads=threads).fit(x, y) for threads in (1, 2, 3)]
    assert len({model.model_.to_bytes() for model in models}) == 1
    other = MLPClassifier(**{**QUICK, "random_state": 1}).fit(x, y)
    assert not np.array_equal(other.predict_proba(x), models[0].predict_proba(x))


def test_generators_advance_and_global_state_does_not() -> None:
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


def test_rows_with_weight_zero_have_no_effect() -> None:
    x, y = numbers(100)
    weight = np.ones(100)
    weight[::3] = 0
    keep = weight > 0
    with_zero = MLPRegressor(**QUICK).fit(x, y, weight).predict(x)
    without = MLPRegressor(**QUICK).fit(x[keep], y[keep], weight[keep]).predict(x)
    np.testing.assert_array_equal(with_zero, without)
    with pytest.raises(ValueError, match="Negative values in data"):
        MLPRegressor(**QUICK).fit(x, y, -weight)


def test_class_weight_changes_predictions() -> None:
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
    with pytest.raises(OptionError, match="class_weight must name classes of the target, got 7: classes are"):
        MLPClassifier(**QUICK, class_weight={np.int64(7): 1.0}).fit(x, y)
    with pytest.raises(OptionError, match="must be 'balanced' or a mapping, got 'even'"):
        MLPClassifier(**QUICK, class_weight="even").fit(x, y)
    for weight in (5, [1, 2]):
        with pytest.raises(OptionError, match=r"class_weight must be 'balanced' or a mapping such as \{0: 2.0\}, got"):
            MLPClassifier(**QUICK, class_weight=weight).fit(x, y)  # type: ignore[arg-type]
    for value in (-1, np.nan, np.inf, "a", True):
        with pytest.raises(OptionError, match=r"class_weight must be 0 or more and finite, got .* for 1"):
            MLPClassifier(**QUICK, class_weight={0: 1.0, 1: value}).fit(x, y)  # type: ignore[dict-item]


# Held-out rows


def test_separate_validation_rows() -> None:
    x, y = classes(160)
    model = MLPClassifier(**QUICK).fit(x[:100], y[:100], X_val=x[100:], y_val=y[100:])
    worse = MLPClassifier(**QUICK).fit(x[:100], y[:100], X_val=x[100:], y_val=(y[100:] + 1) % 3)
    assert model.history_["validation_loss"][-1] < worse.history_["validation_loss"][-1]
    assert model.history_["loss"] == worse.history_["loss"]  # validation rows are not used for training
    with pytest.raises(OptionError, match="need both X_val and y_val, got one"):
        MLPClassifier(**QUICK).fit(x, y, X_val=x)
    with pytest.raises(OptionError, match=r"y_val: the classes are \[0, 1, 2\], got 9 in row 2"):
        MLPClassifier(**QUICK).fit(x, y, X_val=x[:2], y_val=[0, 9])


def test_weights_of_validation_rows() -> None:
    """Validation rows with weight 0 have no effect on losses and intervals."""
    x, y = numbers(160)
    weight = np.where(np.arange(60) < 30, 1.0, 0.0)
    half = MLPRegressor(**QUICK).fit(x[:100], y[:100], X_val=x[100:], y_val=y[100:], sample_weight_val=weight)
    alone = MLPRegressor(**QUICK).fit(x[:100], y[:100], X_val=x[100:130], y_val=y[100:130])
    np.testing.assert_allclose(half.history_["validation_loss"], alone.history_["validation_loss"], rtol=1e-9)
    np.testing.assert_array_equal(half.predict_interval(x), alone.predict_interval(x))
    strange = np.where(weight == 0, 1000, 0) + y[100:]
    far = MLPRegressor(**QUICK).fit(x[:100], y[:100], X_val=x[100:], y_val=strange, sample_weight_val=weight)
    np.testing.assert_array_equal(far.predict_interval(x), alone.predict_interval(x))
    held_out = {"X_val": x[100:], "y_val": y[100:] > 0, "sample_weight_val": weight}
    some = MLPClassifier(**QUICK).fit(x[:100], y[:100] > 0, **held_out)
    few = MLPClassifier(**QUICK).fit(x[:100], y[:100] > 0, X_val=x[100:130], y_val=y[100:130] > 0)
    np.testing.assert_array_equal(some.predict_proba(x), few.predict_proba(x))
    with pytest.raises(OptionError, match="sample_weight_val needs X_val and y_val"):
        MLPRegressor(**QUICK).fit(x, y, sample_weight_val=weight)
    own: dict[str, Any] = {"X_val": x[100:], "y_val": y[100:]}
    with pytest.raises(ValueError, match=r"sample_weight.shape == \(70,\), expected \(60,\)"):
        MLPRegressor(**QUICK).fit(x[:100], y[:100], **own, sample_weight_val=np.ones(70))
    held: Any = {"validation": (x[100:], y[100:]), "epochs": 1, "quiet": True}
    with pytest.raises(
        DataError, match=r"weights must be one number for each of 60 rows, got an array of shape \(70,\)"
    ):
        ml.fit("4-1", (x[:100], y[:100]), **held, sample_weight_val=np.ones(70))
    with pytest.raises(DataError, match=r"validation weights must not all be 0, got .*: pass a weight above 0"):
        ml.fit("4-1", (x[:100], y[:100]), **held, sample_weight_val=np.zeros(60))


def test_validation_rows_without_a_target_are_refused() -> None:
    x, y = numbers(100)
    y[97] = np.nan
    with pytest.raises(ValueError, match="Input y_val contains NaN"):
        MLPRegressor(**QUICK).fit(x[:80], y[:80], X_val=x[80:], y_val=y[80:])
    with pytest.raises(ValueError, match="Input y_val contains NaN"):
        MLPClassifier(**QUICK).fit(x[:80], y[:80] > 0, X_val=x[80:], y_val=np.where(np.isnan(y[80:]), np.nan, 1.0))
    missing = y.astype(object)
    missing[97] = pd.NA
    with pytest.raises(ValueError, match="Input y contains NaN"):
        MLPRegressor(**QUICK).fit(x, missing)
    with pytest.raises(
        OptionError, match="validation must be 'auto', a fraction of the rows or None, got 'iris': pass"
    ):
        MLPRegressor(**QUICK, validation="iris").fit(x[:80], y[:80])  # type: ignore[arg-type]
    frame: Any = pd.DataFrame(x).assign(outcome=y)
    with pytest.raises(OptionError, match="got a data frame: pass separate rows to fit as X_val and y_val"):
        MLPRegressor(**QUICK, validation=frame).fit(x, np.arange(len(x)))


@pytest.mark.parametrize("validation", ["auto", 0.25, None])
def test_validation_options(validation: Any) -> None:
    x, y = numbers(100)
    model = MLPRegressor(**QUICK, validation=validation).fit(x, y)
    assert ("validation_loss" in model.history_) == (validation is not None)
    if validation is None:
        with pytest.raises(OptionError, match="intervals need the errors on held-out rows"):
            model.predict_interval(x)


def test_all_rows_of_a_group_are_held_out_together() -> None:
    """Rows of a group are copies with the same noisy target. If copies of training rows are held out, the validation
    loss is much too low."""
    generator = np.random.default_rng(0)
    x = np.repeat(generator.normal(size=(30, 3)), 6, axis=0)
    y = np.repeat(generator.normal(size=30), 6)
    options = {**QUICK, "epochs": 32}
    grouped = MLPRegressor(**options).fit(x, y, groups=np.repeat(np.arange(30), 6))
    mixed = MLPRegressor(**options).fit(x, y)
    assert min(grouped.history_["validation_loss"]) > 1.5 * min(mixed.history_["validation_loss"])


@pytest.mark.parametrize("kind", [float, "datetime64[D]"])
def test_the_latest_rows_are_held_out(kind: Any) -> None:
    """The targets of the last fifth cannot be predicted from earlier rows."""
    x, y = numbers(100)
    times = np.random.default_rng(1).permutation(100)
    y = y + 100 * (times >= 80)
    by_time = MLPRegressor(**QUICK).fit(x, y, time_column=times.astype("int64").astype(kind))
    assert by_time.history_["loss"][-1] < 2
    assert min(by_time.history_["validation_loss"]) > 1000  # in deviations of the training rows, squared
    assert by_time.predict(x).max() < 10


def test_a_class_that_only_the_latest_rows_have_is_reported() -> None:
    x, _ = numbers(100)
    y = np.where(np.arange(100) >= 90, "new", np.where(x[:, 0] > 0, "up", "down"))
    with pytest.warns(UserWarning, match="no training row has the class 'new': all its rows are among the latest"):
        MLPClassifier(**QUICK).fit(x, y, time_column=np.arange(100))


DAYS = pd.date_range("2020-01-01", periods=100)
TIMES: dict[str, Any] = {
    "a time zone": pd.Series(DAYS.tz_localize("Europe/Berlin")),
    "datetime objects": list(DAYS),
    "dates": [day.date() for day in DAYS],
    "strings": DAYS.astype(str),
    "strings with a time zone": [f"{day:%Y-%m-%dT%H:%M}Z" for day in DAYS],
    "nanoseconds": pd.to_datetime(np.arange(100) + 1_577_836_800_000_000_000),
    "whole numbers past 2^53": np.arange(100) + 2**60,
    "durations": pd.to_timedelta(np.arange(100), "s"),
    "polars": pl.Series(DAYS),
    "nullable integers": pd.Series(np.arange(100), dtype="Int64"),
}


@pytest.mark.parametrize("kind", TIMES)
def test_times_of_all_types(kind: str) -> None:
    """All types give the same order, and thus the same model."""
    x, y = numbers(100)
    found = MLPRegressor(**QUICK).fit(x, y, time_column=TIMES[kind]).predict(x)
    np.testing.assert_array_equal(found, MLPRegressor(**QUICK).fit(x, y, time_column=np.arange(100.0)).predict(x))


INVALID: list[tuple[str, Any, str]] = [
    ("time_column", pd.Series([pd.NaT, *DAYS[1:]]), "every row must have a time, got none in row 1: remove the row"),
    ("time_column", np.r_[0.0, np.nan, np.arange(98)], "every row must have a time, got none in row 2"),
    ("time_column", ["2020-01-01"] * 99 + ["later"], "strings such as 2024-12-31 23:59, got 'later' in row 100"),
    ("time_column", np.arange(100) > 50, "times must be numbers, dates or timestamps, got true or false: convert them"),
    ("time_column", np.ones((100, 2)), "there must be one time for each of 100 rows, got 100×2 values"),
    ("time_column", 3, "there must be one time for each of 100 rows, got 3"),
    ("time_column", "when", r"time_column must have one value per row, got 'when': pass the column, X\['when'\]"),
    ("groups", np.ones((100, 2)), "there must be one group for each of 100 rows, got 100×2 values"),
    ("groups", [None, *range(99)], "every row must have a group, got none in row 1: remove the row"),
    ("groups", np.r_[np.arange(99.0), np.nan], "every row must have a group, got none in row 100"),
    ("groups", np.arange(5), "there must be one group for each of 100 rows, got 5 values"),
    ("groups", 3, "there must be one group for each of 100 rows, got 3"),
    ("groups", "who", r"groups must have one value per row, got 'who': pass the column, X\['who'\]"),
    ("groups", np.array([1, "a"] * 50, dtype=object), "groups must be of one type, got int and str: convert them"),
]


@pytest.mark.parametrize(("name", "values", "fault"), INVALID, ids=[f"{i} {c[0]}" for i, c in enumerate(INVALID)])
def test_invalid_groups_and_times(name: str, values: Any, fault: str) -> None:
    x, y = numbers(100)
    with pytest.raises((DataError, OptionError), match=fault):
        MLPRegressor(**QUICK).fit(x, y, **{name: values})


# Time


def test_the_plan_keeps_the_time_limit() -> None:
    x, y = numbers(3000, 8)
    model = MLPRegressor(time_limit=3.0, random_state=0).fit(x, y)
    assert model.config_["epochs"] * model.config_["ensemble"] < 256
    assert model.n_iter_ <= model.config_["epochs"]
    assert model.score(x, y) > 0
