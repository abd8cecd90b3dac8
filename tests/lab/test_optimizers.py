"""Momentum and Adam need fewer steps than SGD, clipping allows larger rates, and the two measures are exact."""

from __future__ import annotations

import math

import numpy as np
import pytest

from multilayer.lab.experiments.optimizers import PLAIN, WINDOW, entropy, gain, largest_rate, share_of_sgd, steps_to
from multilayer.lab.rows import Rows
from multilayer.lab.training import Task
from support.experiments import tiny


def test_adam_needs_fewer_steps_and_clipping_allows_larger_rates() -> None:
    rows = tiny("optimizers").rows
    assert share_of_sgd(rows, "adam") < 0.9
    assert gain(rows, "clipping", PLAIN) > 1.3


def test_the_steps_are_counted_until_the_running_mean_is_below_the_target() -> None:
    losses = np.concatenate([np.ones(100), np.zeros(100)])
    assert steps_to(losses, 0.5) == 100 + WINDOW // 2 + 1
    assert steps_to(losses, 2.0) == WINDOW
    assert steps_to(losses[:100], 0.5) == steps_to(losses[:3], 2.0) == math.inf


def test_the_loss_of_a_constant_prediction_is_the_entropy() -> None:
    assert entropy(Task(x=np.zeros((4, 1)), y=np.array([0, 0, 3, 3]))) == pytest.approx(math.log(2))


def test_the_largest_rate_ends_before_the_first_failure_above_the_best_rate() -> None:
    fails = [True, False, False, True, False]
    steps = [math.inf, 9.0, 5.0, math.inf, 7.0]
    rows = Rows(
        {"seed": 0, "optimizer": "sgd", "remedy": "none", "rate": 2.0**i, "fails": fails[i], "steps": steps[i]}
        for i in range(5)
    )
    assert largest_rate(rows, "sgd", "none") == pytest.approx(4.0)


def test_an_optimizer_that_never_reaches_the_target_needs_infinitely_many_steps() -> None:
    steps = {"sgd": 9.0, "adam": math.inf}
    rows = Rows({"seed": 0, "optimizer": name, "remedy": "none", "rate": 1.0, "steps": n} for name, n in steps.items())
    assert share_of_sgd(rows, "adam") == math.inf
    assert share_of_sgd(rows, "sgd") == 1.0
    assert share_of_sgd(Rows({**row, "steps": math.inf} for row in rows), "sgd") == math.inf
