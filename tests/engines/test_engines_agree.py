"""The numpy and the torch engine over 50 steps in float64: every loss with every optimizer under a schedule."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from multilayer.engines import Settings
from multilayer.engines.numpy_engine import NumpyEngine
from multilayer.nn import losses, optimizers, schedules
from multilayer.spec import Spec
from support.engines import LOSSES, OPTIMIZERS, double, orders, table

SCHEDULES = ("constant", "cosine(warmup=0.1)", "one_cycle", "coslog", "flat_cosine", "step(0.25, 0.5)", "linear")
STEPS = 50


def test_the_tables_of_these_tests_are_complete() -> None:
    assert {losses.get(text).name for text in LOSSES} == set(losses.LOSSES)
    assert {optimizers.get(text).name for text in OPTIMIZERS} == set(optimizers.OPTIMIZERS)
    assert {text.partition("(")[0] for text in SCHEDULES} == set(schedules.SCHEDULES)


@pytest.mark.parametrize("loss", LOSSES)
def test_engines_agree_to_1e_9_over_50_steps(loss: str, tried: Any) -> None:
    """The tolerance is 1e-9 of the largest value of each tensor, because Adam amplifies rounding in tiny gradients."""
    spec = Spec.parse("5-6:tanh:dropout(0.2)-3")
    data, work = table(spec, 58, loss), orders(58, 6, 5)  # 10 steps per epoch, the last with 4 rows
    for i, optimizer in enumerate(OPTIMIZERS):
        factors = schedules.get(SCHEDULES[i % len(SCHEDULES)])(np.arange(STEPS), STEPS)
        settings = Settings(loss=loss, optimizer=optimizer, seed=3, average=0.9, clip_norm=1.0, l2=1e-3)
        oracle, engine = NumpyEngine(spec, data, settings), double(spec, data, settings)
        for order, start in zip(work, itertools.count(0, 10), strict=False):
            now = {"rate": 0.01 * factors[start : start + 10], "decay": np.full(10, 0.1), "dropout": np.ones(10)}
            expected, found = oracle.run(order, **now), engine.run(order, **now)
            np.testing.assert_allclose(found.loss, expected.loss, rtol=1e-9, atol=1e-12)
        assert engine.state().step == STEPS
        theirs = engine.state().tensors()
        for name, ours in oracle.state().tensors().items():
            scale = max(1.0, float(np.abs(ours).max(initial=0)))
            np.testing.assert_allclose(theirs[name], ours, rtol=0, atol=1e-9 * scale, err_msg=f"{optimizer}: {name}")
    tried("numpy and torch over 50 steps (loss × optimizer, alternating schedules)", len(OPTIMIZERS))
