"""An overtrained network is over-confident, scaling repairs it, and the calibration error is that of a plain loop."""

from __future__ import annotations

import numpy as np
import pytest

from multilayer.lab.experiments.overconfidence import BINS, bins, calibration_error, excess, quality, scaled
from support.experiments import tiny


def test_an_overtrained_network_is_overconfident_and_scaling_lowers_its_loss() -> None:
    rows = tiny("overconfidence").rows
    assert excess(rows) > 0.02
    assert scaled(rows, "log_loss") < 0.95
    assert scaled(rows, "error") == pytest.approx(1.0)
    assert scaled(rows, "ece") < 1.0


def test_the_calibration_error_is_that_of_a_loop_over_the_bins() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), size=500)
    y = rng.integers(3, size=500)
    expected = 0.0
    for i in range(BINS):
        own = [k for k in range(500) if i / BINS <= p[k].max() < (i + 1) / BINS]
        if own:
            right = np.mean([p[k].argmax() == y[k] for k in own])
            expected += len(own) / 500 * abs(right - np.mean([p[k].max() for k in own]))
    assert calibration_error(p, y) == pytest.approx(expected)
    assert sum(one["rows"] for one in bins(p, y)) == 500


def test_a_sure_and_wrong_prediction_has_error_and_calibration_error_1() -> None:
    found = quality(np.array([[1.0, 0.0]]), np.array([1]))
    assert (found["error"], found["ece"], found["confidence"]) == (1.0, 1.0, 1.0)
    assert quality(np.array([[0.25, 0.75]]), np.array([1]))["log_loss"] == pytest.approx(-np.log(0.75))
