"""Feature importances of estimators and models: permutation importance on rows that were held out."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_selection import SelectFromModel
from sklearn.inspection import permutation_importance

import multilayer as ml
from multilayer import MLPClassifier, MLPRegressor
from multilayer.errors import OptionError
from multilayer.models.importance import Importance
from support.quick_estimators import QUICK, classes, numbers, people


def test_the_importances_of_a_fit_have_one_value_per_column() -> None:
    x, y = numbers(400)
    with pytest.warns(UserWarning, match="columns dropped: 'x4'"):
        model = MLPRegressor(**{**QUICK, "epochs": 32}).fit(np.column_stack([x, np.ones(len(x))]), y)
    found = model.feature_importances_
    assert found.shape == (5,)
    assert set(np.argsort(found)[-2:]) == {0, 1}  # the target depends on the first two columns
    assert found[4] == 0.0  # a constant column is dropped
    assert (model.feature_importances_ == found).all()


def test_importances_of_columns_of_every_kind() -> None:
    x, y = people(400)
    with pytest.warns(UserWarning, match="columns dropped: 'constant'"):
        model = MLPClassifier(**{**QUICK, "epochs": 32}).fit(x, y)
    found = dict(zip(model.feature_names_in_, model.feature_importances_, strict=True))
    assert {"age", "city"} == set(sorted(found, key=found.__getitem__)[-2:])
    assert found["constant"] == 0.0


def test_importances_agree_with_those_of_scikit_learn() -> None:
    """Both estimate the same expectation. With 300 rows and 30 rounds, they differ by about 0.01."""
    x, y = numbers(600)
    model = MLPRegressor(**{**QUICK, "epochs": 32}).fit(x[:300], y[:300])
    ours = model.model_.importance((x[300:], y[300:]), rounds=30)
    theirs = permutation_importance(model, x[300:], y[300:], n_repeats=30, random_state=0).importances_mean
    assert ours.value == pytest.approx(model.score(x[300:], y[300:]))
    for name, mean in zip(("x0", "x1", "x2", "x3"), theirs, strict=True):
        assert ours.means[name] == pytest.approx(mean, abs=0.05)


def test_scikit_learn_selects_columns_by_importance() -> None:
    x, y = classes(400)
    chosen = SelectFromModel(MLPClassifier(**{**QUICK, "epochs": 32}), max_features=2, threshold=-np.inf).fit(x, y)
    assert chosen.get_support().tolist() == [True, True, False, False]


def test_importances_need_rows_that_were_held_out() -> None:
    x, y = classes()
    for model in (
        MLPClassifier(**QUICK, validation=None).fit(x, y),
        MLPClassifier(**QUICK).partial_fit(x, y),
        pickle.loads(pickle.dumps(MLPClassifier(**QUICK).fit(x, y))),
    ):
        assert not hasattr(model, "feature_importances_")
        with pytest.raises(OptionError, match=r"needs the held-out rows of a fit.*use model_.importance"):
            _ = model.feature_importances_
    known = MLPClassifier(**QUICK).fit(x, y)
    values = known.feature_importances_
    assert (pickle.loads(pickle.dumps(known)).feature_importances_ == values).all()


def test_the_importance_of_a_model_on_a_table() -> None:
    model = ml.fit("4-16-3", "iris", epochs=40, quiet=True).model
    assert model is not None
    found = model.importance("iris", metric="log_loss", rounds=2)
    assert (found.metric, found.rows, found.rounds) == ("log_loss", 150, 2)
    assert list(found.means.values()) == sorted(found.means.values(), reverse=True)
    assert "petal width (cm)" in repr(found)
    assert "<meter" in found._repr_html_()
    assert found.means == model.importance("iris", metric="log_loss", rounds=2).means
    with pytest.raises(OptionError, match="rmse does not fit a multiclass task"):
        model.importance("iris", metric="rmse")


def test_names_of_columns_are_escaped_in_html() -> None:
    x, y = numbers(60, 2)
    model = MLPRegressor(**QUICK).fit(pd.DataFrame(x, columns=["<b>", "b"]), y).model_
    found = model.importance((pd.DataFrame(x, columns=["<b>", "b"]), y), rounds=1)
    assert isinstance(found, Importance)
    assert "&lt;b&gt;" in found._repr_html_()
