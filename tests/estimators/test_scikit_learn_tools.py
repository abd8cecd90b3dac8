"""Estimators in scikit-learn's tools: pipelines, searches, calibration, parallel jobs, metadata routing, frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from joblib import Parallel, delayed
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.ensemble import StackingClassifier, VotingRegressor
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.impute import SimpleImputer
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, RandomizedSearchCV, cross_val_score, cross_validate
from sklearn.multioutput import ClassifierChain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from multilayer import MLPClassifier, MLPRegressor
from support.quick_estimators import QUICK, classes, numbers, people

pytestmark = pytest.mark.filterwarnings("ignore:columns dropped")


def test_pipeline() -> None:
    x, y = classes()
    made = make_pipeline(StandardScaler(), MLPClassifier(**QUICK)).fit(x, y)
    assert made.score(x, y) > 0.6
    assert made[:-1].transform(x).shape == x.shape


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_grid_search(n_jobs: int) -> None:
    x, y = classes(90)
    search = GridSearchCV(
        MLPClassifier(**QUICK), {"hidden": [(8,), (16,)], "dropout": [0.0]}, cv=2, n_jobs=n_jobs, error_score="raise"
    ).fit(x, y)
    assert search.best_params_["hidden"] in [(8,), (16,)]
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.predict(x).shape == y.shape
    alone = clone(search.best_estimator_).fit(x, y)  # other processes give bit-identical results
    np.testing.assert_array_equal(alone.predict_proba(x), search.predict_proba(x))


def test_random_search_over_a_pipeline() -> None:
    x, y = numbers()
    search = RandomizedSearchCV(
        make_pipeline(SelectKBest(f_regression, k=3), MLPRegressor(**QUICK)),
        {"mlpregressor__learning_rate": [0.02, 0.1], "mlpregressor__weight_decay": [0.0, 0.02]},
        n_iter=2,
        cv=2,
        random_state=0,
        error_score="raise",
    )
    assert np.isfinite(search.fit(x, y).best_score_)


def test_cross_validation() -> None:
    x, y = classes()
    scores = cross_val_score(MLPClassifier(**QUICK), x, y, cv=3, error_score="raise")
    assert scores.shape == (3,)
    assert scores.mean() > 0.5
    x, y = numbers()
    found = cross_validate(
        MLPRegressor(**QUICK), x, y, cv=2, scoring=["r2", "neg_mean_absolute_error"], error_score="raise"
    )
    assert np.isfinite(found["test_r2"]).all()


def test_calibrated_classifier() -> None:
    x, y = classes()
    made = CalibratedClassifierCV(MLPClassifier(**QUICK), cv=2).fit(x, y)
    np.testing.assert_allclose(made.predict_proba(x).sum(1), 1)


def test_column_transformer() -> None:
    frame, y = people()
    columns = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["age", "income"]),
            ("texts", OneHotEncoder(handle_unknown="ignore"), ["city", "plan"]),
        ]
    )
    made = make_pipeline(columns, MLPClassifier(**QUICK)).fit(frame, y)
    assert set(made.predict(frame)) <= {"left", "stayed"}


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_frames_between_steps(kind: str) -> None:
    """With `set_output`, transformers return data frames, and the estimator stores their column names."""
    frame, y = people()
    source: Any = frame.drop(columns=["since"]) if kind == "pandas" else pl.from_pandas(frame.drop(columns=["since"]))
    columns = make_column_transformer(
        (SimpleImputer(), ["age", "income"]), ("passthrough", ["city"]), verbose_feature_names_out=False
    ).set_output(transform=kind)
    made = make_pipeline(columns, MLPClassifier(**QUICK)).fit(source, y.to_numpy())
    assert list(made[-1].feature_names_in_) == ["age", "income", "city"]
    assert made.predict(source).shape == (len(frame),)


def test_clone_and_parameters() -> None:
    model = MLPRegressor(**QUICK, dropout=0.3, loss="mae")
    again = clone(model)
    assert again.get_params() == model.get_params()
    assert not hasattr(again.fit(*numbers()).set_params(dropout=0.1), "classes_")
    assert again.dropout == 0.1
    assert not hasattr(clone(again), "model_")


def test_joblib() -> None:
    x, y = numbers(80)

    def fitted(seed: int) -> np.ndarray:
        return MLPRegressor(**{**QUICK, "random_state": seed}).fit(x, y).predict(x)

    together = Parallel(n_jobs=2)(delayed(fitted)(seed) for seed in (0, 1))
    np.testing.assert_array_equal(np.stack(list(together)), np.stack([fitted(0), fitted(1)]))
    threads = Parallel(n_jobs=2, prefer="threads")(delayed(fitted)(seed) for seed in (0, 1))
    np.testing.assert_array_equal(np.stack(list(threads)), np.stack([fitted(0), fitted(1)]))


def test_predicting_from_several_threads() -> None:
    x, y = numbers(80)
    model = MLPRegressor(**QUICK).fit(x, y)
    expected = model.predict(x)
    for found in Parallel(n_jobs=4, prefer="threads")(delayed(model.predict)(x) for _ in range(8)):
        np.testing.assert_array_equal(found, expected)


def test_metadata_routing() -> None:
    x, y = classes(90)
    weight, groups = np.random.default_rng(0).uniform(0.5, 2, 90), np.arange(90) // 3
    with config_context(enable_metadata_routing=True):
        model = MLPClassifier(**QUICK).set_fit_request(sample_weight=True, groups=True)
        model.set_score_request(sample_weight=True)
        found = cross_validate(
            make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model),
            x,
            y,
            cv=GroupKFold(2),
            params={"sample_weight": weight, "groups": groups},
            error_score="raise",
        )
        assert np.isfinite(found["test_score"]).all()
        request = model.get_metadata_routing().fit.requests
    assert {name for name, asked in request.items() if asked} == {"sample_weight", "groups"}
    assert set(request) >= {"X_val", "y_val", "sample_weight_val", "groups", "time_column", "sample_weight"}


def test_other_tools() -> None:
    x, y = classes(90, count=2)
    stack = StackingClassifier([("ours", MLPClassifier(**QUICK))], LogisticRegression(), cv=2).fit(x, y)
    assert stack.predict(x).shape == y.shape
    chain = ClassifierChain(MLPClassifier(**QUICK)).fit(x, np.stack([y, 1 - y], 1))
    assert chain.predict(x).shape == (90, 2)
    x, z = numbers(90)
    vote = VotingRegressor([("a", MLPRegressor(**QUICK)), ("b", MLPRegressor(**QUICK))]).fit(x, z)
    assert vote.predict(x).shape == z.shape
    model = MLPRegressor(**{**QUICK, "epochs": 32}).fit(x, z)
    importance = permutation_importance(model, x, z, n_repeats=2, random_state=0).importances_mean
    assert importance[:2].min() > importance[2:].max()  # the target depends on two columns
    assert partial_dependence(model, x, [0], grid_resolution=5)["average"].shape == (1, 5)


def test_column_names_must_not_change() -> None:
    frame, y = people()
    model = MLPClassifier(**QUICK).fit(frame, y)
    assert list(model.feature_names_in_) == list(frame.columns)
    assert model.n_features_in_ == frame.shape[1]
    with pytest.raises(ValueError, match="feature names should match those that were passed during fit"):
        model.predict(frame.rename(columns={"age": "years"}))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame.drop(columns="age"))
    shuffled = frame[frame.columns[::-1]]
    with pytest.raises(ValueError, match="must be in the same order"):
        model.predict(shuffled)
    assert isinstance(model.predict(pd.DataFrame(frame)), np.ndarray)
