"""Shared by the tests of engines: lists of losses, optimizers and cores, tables, orders of rows, and steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from multilayer.core import _core, random
from multilayer.data.batches import Data
from multilayer.engines import Chunk, Engine, Order, Settings
from multilayer.engines.fused_engine import FusedEngine
from multilayer.engines.fused_program import program_of
from multilayer.engines.torch_engine import TorchEngine
from multilayer.nn import losses
from multilayer.spec import Spec
from support.cases import LOSS_ROWS, OPTIMIZER_ROWS, rows_for

LOSSES = [text for row in LOSS_ROWS.values() for text in row.by_hand]
OPTIMIZERS = [text for row in OPTIMIZER_ROWS.values() for text in row.by_hand]
FUSED_LOSSES = [text for row in LOSS_ROWS.values() if row.kernel == "yes" for text in row.by_hand]
FUSED_OPTIMIZERS = [text for row in OPTIMIZER_ROWS.values() if row.kernel == "yes" for text in row.by_hand]
"""Names that the fused engine supports."""

CORES = {
    "double": {"dtype": "float64"},
    "plain loops": {"dtype": "float32", "core": "reference"},
    "kernels": {"dtype": "float32"},
}
"""Options of the fused engine that select its cores."""
every_core = pytest.mark.parametrize("core", CORES)


def table(spec: Spec, rows: int, loss: str = "mse", seed: int = 0) -> Data:
    x, codes = rows_for(spec, rows, seed)
    generator = np.random.default_rng(seed + 1)
    if losses.get(loss).classes:
        return Data(x=x, codes=codes, y=generator.integers(0, spec.d_out, size=rows))
    targets = spec.d_out // losses.get(loss).per_target
    return Data(x=x, codes=codes, y=generator.integers(0, 2, size=(rows, targets)).astype(float))


def orders(rows: int, batch: int, epochs: int, seed: int = 0) -> list[Order]:
    return [Order(epoch=e, rows=random.permutation(rows, seed=seed, epoch=e), batch=batch) for e in range(epochs)]


def run(engine: Engine, order: Order, *, rate: float = 0.01, decay: float = 0.0, dropout: float = 1.0) -> Chunk:
    steps = np.ones(order.steps)
    return engine.run(order, rate=rate * steps, decay=decay * steps, dropout=dropout * steps)


def double(spec: Spec, data: Data, settings: Settings, **how) -> TorchEngine:
    return TorchEngine(spec, data, settings, dtype="float64", **how)


def fused_engine(
    text: str = "4-6:batchnorm:prelu:dropout(0.3)-3", rows: int = 30, loss: str = "mse", **how: Any
) -> FusedEngine:
    spec = Spec.parse(text)
    made = {k: how.pop(k) for k in ("dtype", "core", "threads", "init") if k in how}
    return FusedEngine(spec, table(spec, rows, loss), Settings(loss=loss, **how), **made)


def on_all_threads(engine: FusedEngine, threads: int, kernels: str = "") -> FusedEngine:
    """Return the engine with a core that always uses all threads, also for small steps."""
    state = engine.state()
    engine._core = _core.fused(program_of(engine.spec, engine.settings), threads, kernels, all_threads=True)
    engine.load(state)
    return engine
