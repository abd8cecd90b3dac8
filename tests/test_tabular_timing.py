"""A time limit kept by planning: what becomes fewer, by how much, and what stands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from multilayer.data import prepare
from multilayer.tabular import timing
from multilayer.tabular.recipe import Recipe
from multilayer.tabular.timing import SHARE, Within, seconds_of_step
from multilayer.training.config import Config
from multilayer.training.session import chosen_batch

X = np.random.default_rng(0).normal(size=(512, 3))


def planned(
    seconds: float, step: float, monkeypatch: pytest.MonkeyPatch, asked: frozenset[str] = frozenset()
) -> Config:
    """The plan for a limit where one step of one member takes so long; two threads."""
    monkeypatch.setattr(timing, "seconds_of_step", lambda spec, prepared, config: step)
    ready = prepare((X, X[:, 0]), folds=8)
    config = Config(**{**Recipe().before(_table()), "threads": 2})
    return Within(Recipe(hidden=(16,)), seconds).network(ready, config, asked)[1]


def _table() -> Any:
    from multilayer.data import read

    return read((X, X[:, 0]))


def test_enough_time_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(1e6, 0.001, monkeypatch)
    assert (plan.ensemble, plan.epochs) == (4, 256)


def test_epochs_become_fewer_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps an epoch of 10 ms, two threads: 75 % of 4 s are 300 epochs of one member, 75 for each of four."""
    plan = planned(4.0, 0.01, monkeypatch)
    assert plan.ensemble == 4
    assert plan.epochs == int(SHARE * 4.0 * 2 / (2 * 0.01) / 4) == 75


def test_then_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of that: 60 epochs of one member are one member's, not 15 for each of four."""
    plan = planned(0.8, 0.01, monkeypatch)
    assert plan.ensemble == 1
    assert plan.epochs == 60
    kept = planned(0.8, 0.01, monkeypatch, asked=frozenset({"ensemble"}))
    assert (kept.ensemble, kept.epochs) == (4, 15)  # what was asked for stands


def test_there_is_always_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(1e-6, 10.0, monkeypatch)
    assert (plan.ensemble, plan.epochs) == (1, 1)


def test_steps_are_timed() -> None:
    ready = prepare((X, X[:, 0]))
    spec, config = Recipe(hidden=(16,)).network(ready, Config(engine="fused", init="data"), frozenset())
    assert chosen_batch(ready, config) == 256
    assert 0 < seconds_of_step(spec, ready, config) < 5
