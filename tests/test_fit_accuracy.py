"""How good the defaults are, on data that comes with the dependencies; and how often few hidden units are enough."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

import multilayer as ml
from multilayer.data import Table, read
from soak import FULL


def parted(name: str, share: float) -> tuple[Table, Table]:
    """The rows of a bundled set to train on, and those to test on, always the same."""
    table = read(name)
    labels = table.column(table.targets[0]).to_numpy()
    train, test = train_test_split(np.arange(len(table)), test_size=share, random_state=0, stratify=labels)
    return table.take(np.sort(train)), table.take(np.sort(test))


def test_digits_with_the_defaults() -> None:
    """What `mlp train digits` does, on three quarters of the rows; the mean over five seeds."""
    train, test = parted("digits", 0.25)
    found = []
    for seed in range(5):
        run = ml.fit(None, train, seed=seed, quiet=True)
        assert run.model is not None
        found.append(run.model.evaluate(test)["accuracy"])
    assert np.mean(found) >= 0.975, found


def test_spirals() -> None:
    train, test = parted("spirals", 0.25)
    run = ml.fit("2-32:tanh-32:tanh-1", train, epochs=150, learning_rate=0.01, quiet=True)
    assert run.model is not None
    assert run.model.evaluate(test)["accuracy"] >= 0.98


@pytest.mark.parametrize("hidden", [2, 3])
@pytest.mark.parametrize("name", ["xor", "songs"])
def test_how_often_few_units_solve_it(name: str, hidden: int, tried: Any) -> None:
    """Two units can hold the solution but are not always led to it; eight are (test_fit). Reported, hardly asserted."""
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
