"""After a non-finite step, the fused engine trains from a loaded state as if the step had not happened."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import multilayer as ml
from multilayer.data.batches import Data
from multilayer.engines import Chunk, Order, Settings
from multilayer.engines.fused_engine import FusedEngine
from multilayer.spec import Spec

CLEAN, BAD = np.arange(32), np.arange(32, 64)


def engine(core: str, **settings: Any) -> FusedEngine:
    """Make an engine with 64 rows, one of which has an infinite target. Five inputs do not fill a vector of 16."""
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(64, 5)).astype(np.float32), draw.normal(size=(64, 1)).astype(np.float32)
    y[40, 0] = np.inf
    return FusedEngine(
        Spec.parse("5-8:tanh-1"),
        Data(x=x, y=y),
        Settings(loss="mse", statistics_every=1, **settings),
        threads=1,
        core=core,
    )


def run(engine: FusedEngine, rows: Any) -> Chunk:
    order = Order(epoch=0, rows=rows, batch=16)
    one = np.ones(order.steps)
    return engine.run(order, rate=1e-3 * one, decay=0 * one, dropout=one)


@pytest.mark.parametrize("core", ["auto", "reference"])
@pytest.mark.parametrize("settings", [{}, {"clip_norm": 1.0}, {"average": 0.9}], ids=["plain", "clipped", "averaged"])
def test_training_after_loading_a_state_is_not_affected_by_a_bad_step(core: str, settings: dict[str, Any]) -> None:
    fresh, mended = engine(core, **settings), engine(core, **settings)
    state = mended.state()
    assert run(mended, BAD).bad is not None
    mended.load(state)
    expected, found = run(fresh, CLEAN), run(mended, CLEAN)
    assert (found.bad, found.finite) == (None, True)
    assert found.loss.tobytes() == expected.loss.tobytes()
    assert [vars(one) for one in found.statistics] == [vars(one) for one in expected.statistics]  # NaN ≠ NaN
    for name, value in fresh.state().tensors().items():
        assert mended.state().tensors()[name].tobytes() == value.tobytes(), name


def test_clipping_ignores_an_earlier_non_finite_gradient() -> None:
    fresh, mended = engine("auto", clip_norm=1.0), engine("auto", clip_norm=1.0)
    mended.gradients(BAD, epoch=0)
    found = mended.gradients(CLEAN, epoch=0)
    assert mended.apply(found, rate=0.1, decay=0.0) == fresh.apply(found, rate=0.1, decay=0.0)
    for name, value in fresh.state().parameters.items():
        assert mended.state().parameters[name].tobytes() == value.tobytes(), name


@pytest.mark.parametrize("engine", ["numpy", "fused"])
def test_a_run_that_diverges_rolls_back_and_completes(engine: str) -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(400, 5))
    y = x @ draw.normal(size=5) + 0.1 * draw.normal(size=400)
    how: dict[str, Any] = dict(optimizer="sgd", learning_rate=100.0, schedule="constant", epochs=6, seed=1, quiet=True)
    done = ml.fit("5-8:relu-1", (x, y), task="regression", engine=engine, **how)
    assert sum(event["event"] == "rollback" for event in done.events) == 3
    assert not done.failed
    assert done.metrics["r2"] > 0.95
