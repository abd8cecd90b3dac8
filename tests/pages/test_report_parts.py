"""Intervals, calibration and column importance of a report, on small artificial samples."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from multilayer.data import Task
from multilayer.models import importance
from multilayer.pages.report import quality


def test_the_bootstrap_respects_row_weights() -> None:
    truth = np.array([0, 1] * 20)
    p = np.eye(2)[np.where(np.arange(40) < 30, truth, 1 - truth)]  # the last ten rows are wrong
    weight = np.where(np.arange(40) < 30, 2.0, 0.0)
    found = quality._bootstrap(truth, p, weight, ["accuracy"], 20)
    assert found["accuracy"].tolist() == pytest.approx([1.0] * 20)


def test_calibrated_probabilities_are_rarely_reported_as_miscalibrated() -> None:
    g = np.random.default_rng(0)
    task = Task(kind="binary", names=("y",), classes=((0, 1),))
    within = 0
    for _ in range(40):
        yes = g.random(200)
        truth = (g.random(200) < yes).astype(np.int64)
        sample: Any = SimpleNamespace(
            task=task, loss="binary_cross_entropy", sides=(truth, np.stack([1 - yes, yes], 1))
        )
        found = quality.calibration(sample)
        assert found is not None
        within += found["ece"] <= found["chance"]
    assert within >= 33  # 38 expected; fewer than 33 has a chance of 1 in 2,000


def test_a_shuffled_column_moves_all_its_numbers_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(12.0).reshape(4, 3)
    order = np.array([2, 0, 3, 1])
    seen: list[np.ndarray] = []

    def outputs(model: Any, x: np.ndarray, codes: Any, judges: Any) -> np.ndarray:
        seen.append(x.copy())
        return np.zeros((len(x), 1))

    class Four(SimpleNamespace):
        def __len__(self) -> int:
            return 4

    monkeypatch.setattr(importance, "outputs", outputs)
    monkeypatch.setattr(importance, "_metric", lambda sample, z, function: 0.0)
    sample: Any = Four(x=x, codes=None, judges=None, model=None)
    columns: list[importance.Place] = [("day", [0, 1], None), ("size", [2], None)]
    assert len(list(importance._values(sample, columns, order, None))) == 2
    (block,) = seen
    np.testing.assert_array_equal(block[:4], np.column_stack([x[order][:, :2], x[:, 2]]))
    np.testing.assert_array_equal(block[4:], np.column_stack([x[:, :2], x[order][:, 2]]))
