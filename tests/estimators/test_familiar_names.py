"""Names and values that users know from scikit-learn and other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import multilayer as ml
from multilayer import MLPClassifier, MLPRegressor
from multilayer.errors import OptionError
from support.quick_estimators import QUICK, classes, numbers


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("hidden_layer_sizes", "did you mean 'hidden'?"),
        ("max_iter", "did you mean 'epochs'?"),
        ("early_stopping", "did you mean 'patience'?"),
        ("n_jobs", "did you mean 'n_threads'?"),
        ("epcohs", "did you mean 'epochs'?"),
        ("eval_set", "pass X_val and y_val to fit$"),
        ("time_column", "pass it to fit$"),
        ("sample_weight_val", "pass it to fit$"),
        ("callbacks", "pass them to set_callbacks$"),
        ("optimizer", r"ml.fit has this option, ml.fit\(None, \(X, y\), optimizer=…\)$"),
    ],
)
@pytest.mark.parametrize("make", [MLPClassifier, MLPRegressor])
def test_an_estimator_names_its_own_option_for_a_familiar_one(make: Any, name: str, advice: str) -> None:
    fault = f"{make.__name__}: unknown argument '{name}': {advice}"
    for error in (TypeError, OptionError):
        with pytest.raises(error, match=fault):
            make(**{name: 1})
    with pytest.raises(ValueError, match=fault):
        make().set_params(**{name: 1})


def test_fit_of_an_estimator_names_the_right_place() -> None:
    x, y = classes()
    model: Any = MLPClassifier()
    with pytest.raises(TypeError, match=r"MLPClassifier.fit: unknown argument 'eval_set': pass X_val and y_val$"):
        model.fit(x, y, eval_set=[(x, y)])
    with pytest.raises(TypeError, match=r"'epochs': pass it to the constructor, MLPClassifier\(epochs=…\)"):
        model.fit(x, y, epochs=3)
    for name, meant in (("times", "time_column"), ("validation_weight", "sample_weight_val"), ("group", "groups")):
        with pytest.raises(TypeError, match=f"unknown argument '{name}': did you mean '{meant}'"):
            model.fit(x, y, **{name: y})
    with pytest.raises(TypeError, match="did you mean 'sample_weight'"):
        model.partial_fit(x, y, sample_weights=y)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("taget", "target"),
        ("time", "time_column"),
        ("times", "time_column"),
        ("weight", "sample_weight"),
        ("validation_weight", "sample_weight_val"),
        ("groups", "group"),
        ("sample_weights", "sample_weight"),
        ("max_iter", "epochs"),
        ("early_stopping", "patience"),
        ("eval_set", "validation"),
        ("callbacks", "each_epoch"),
        ("random_state", "seed"),
        ("verbose", "quiet"),
        ("lr", "learning_rate"),
    ],
)
def test_ml_fit_suggests_from_all_of_its_options(name: str, meant: str) -> None:
    options: Any = {name: 1}
    with pytest.raises(OptionError, match=f"fit: unknown option '{name}': did you mean '{meant}'?"):
        ml.fit(None, "iris", **options)


@pytest.mark.parametrize("name", ["arch", "network", "model"])
def test_the_network_is_named_spec(name: str) -> None:
    cost: Any = ml.cost
    with pytest.raises(OptionError, match=f"cost: unknown argument '{name}': did you mean 'spec'?"):
        cost(**{name: "4-3"})


def test_one_hidden_layer_is_a_number() -> None:
    x, y = classes()
    several, one = (MLPClassifier(**{**QUICK, "hidden": hidden}).fit(x, y) for hidden in ((16,), np.int64(16)))
    assert several.spec_ == one.spec_
    assert clone(one).hidden == 16
    assert ml.fit(None, (x, y), hidden=8, epochs=1, quiet=True).model.spec.layers[2].d_out == 8


def test_losses_of_scikit_learn() -> None:
    x, y = numbers()
    for theirs, ours in (("squared_error", "mse"), ("absolute_error", "mae")):
        model = MLPRegressor(**QUICK, loss=theirs).fit(x, y)
        assert model.config_["loss"] == model.model_.encoding.loss == ours
        assert ml.cost("4-8-1", loss=theirs) == ml.cost("4-8-1", loss=ours)


def test_patience_stops_early() -> None:
    x, y = classes()
    options: Any = {**QUICK, "epochs": 200, "learning_rate": 0.2}
    model = MLPClassifier(**options, patience=3).fit(x, y)
    assert model.n_iter_ < 200
    assert model.config_["patience"] == 3
    assert MLPClassifier(**QUICK).fit(x, y).n_iter_ == QUICK["epochs"]


def test_categorical_columns_of_an_array_are_named_by_number() -> None:
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.integers(0, 5, 120), rng.normal(size=120)])
    y = np.isin(x[:, 0], (1, 3))
    for categorical in ([0], "0", 0):
        model = MLPClassifier(**QUICK, categorical=categorical).fit(x, y)
        assert [column.name for column in model.model_.encoding.categorical] == ["x0"]
    assert MLPClassifier(**QUICK, categorical=[0]).partial_fit(x, y).model_.encoding.categorical
    with pytest.raises(OptionError, match=r"categorical: .* unknown column"):
        MLPClassifier(**QUICK, categorical=["colour"]).fit(x, y)
