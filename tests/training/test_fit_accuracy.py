"""How accurate the defaults are on the bundled sets, and how often few hidden units are enough."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import train_test_split

import multilayer as ml
from multilayer.data import Table, read
from support.long_tests import FULL


def split(name: str, seed: int, share: float = 0.2) -> tuple[Table, Table]:
    """Return the training and the test rows of a bundled set."""
    table = read(name)
    labels = table.column(table.targets[0]).to_numpy()
    strata = None if name == "diabetes" else labels
    train, test = train_test_split(np.arange(len(table)), test_size=share, random_state=seed, stratify=strata)
    return table.take(np.sort(train)), table.take(np.sort(test))


def test_digits_with_the_defaults() -> None:
    """What `mlp train digits` does, on three quarters of the rows; the mean over five seeds."""
    train, test = split("digits", seed=0, share=0.25)
    found = []
    for seed in range(5):
        run = ml.fit(None, train, seed=seed, quiet=True)
        assert run.model is not None
        found.append(run.model.evaluate(test)["accuracy"])
    assert np.mean(found) >= 0.975, found


@pytest.mark.parametrize(
    ("name", "spec", "splits", "needed"),
    [
        ("iris", "4-16-3", 10, 0.95),
        ("wine", "13-32-3", 10, 0.96),
        ("breast_cancer", "30-32-1", 10, 0.95),
        ("moons", "2-16-1", 2, 0.96),
        ("spirals", "2-32-32-1", 2, 0.97),
        ("digits", "64-64-10", 2, 0.97),
    ],
)
def test_a_given_network_is_accurate_without_options(name: str, spec: str, splits: int, needed: float) -> None:
    found: list[float] = []
    for seed in range(splits):
        train, test = split(name, seed)
        model = ml.fit(spec, train, seed=seed, quiet=True).model
        assert model is not None
        found.append(model.evaluate(test)["accuracy"])
    assert np.mean(found) >= needed, found


@pytest.mark.parametrize(
    ("name", "spec", "seeds", "needed"),
    [("xor", "2-8:tanh-1", 10, 10), ("songs", "2-8:tanh-1", 20, 20), ("parity(4)", "4-16:tanh-1", 10, 9)],
)
def test_a_boolean_function_is_learned_without_options(name: str, spec: str, seeds: int, needed: int) -> None:
    """Every seed trains on all rows and must give each row its class."""
    models = [ml.fit(spec, name, seed=seed, validation=None, quiet=True).model for seed in range(seeds)]
    assert sum(model is not None and model.evaluate(name)["accuracy"] == 1 for model in models) >= needed


def test_a_regression_without_options_is_as_good_as_ridge_regression() -> None:
    ours: list[float] = []
    ridge: list[float] = []
    for seed in range(10):
        train, test = split("diabetes", seed)
        model = ml.fit("10-32-1", train, seed=seed, quiet=True).model
        assert model is not None
        ours.append(model.evaluate(test)["rmse"])
        (X, y), (X_test, y_test) = (
            (
                np.stack([part.column(name).to_numpy() for name in part.names if name != "progression"], 1),
                part.column("progression").to_numpy(),
            )
            for part in (train, test)
        )
        ridge.append(float(np.sqrt(np.mean((RidgeCV().fit(X, y).predict(X_test) - y_test) ** 2))))
    assert np.mean(ours) <= 1.05 * np.mean(ridge)


@pytest.mark.parametrize("hidden", [2, 3])
@pytest.mark.parametrize("name", ["xor", "songs"])
def test_how_often_few_units_solve_it(name: str, hidden: int, tried: Any) -> None:
    """Two units can represent the solution, but training does not always find it. The rate is reported."""
    seeds = 20 if FULL else 10
    solved = 0
    for seed in range(seeds):
        run = ml.fit(
            f"2-{hidden}:tanh-1",
            name,
            seed=seed,
            engine="numpy",
            epochs=300,
            batch_size=16,
            learning_rate=0.05,
            validation=None,
            schedule="constant",
            weight_decay=0.0,
            quiet=True,
        )
        assert run.model is not None
        solved += run.model.evaluate(name)["accuracy"] == 1.0
    tried(f"{name} with {hidden} hidden units: solved of {seeds} seeds", solved)
    assert solved > 0
