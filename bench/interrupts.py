"""Measure how fast Ctrl-C interrupts a long training step.   python bench/interrupts.py [ROWS NETWORK [LOSS]]

A timer sends a signal every 2 ms during one training step on ROWS rows, and then during a prediction of the rows. The
script prints the maximum and the 90 % quantile of the time until Python handles a signal. Required: at most 100 ms.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from multilayer.data.batches import Data
from multilayer.engines import Order, Settings
from multilayer.engines.fused_engine import FusedEngine
from multilayer.spec import Spec

CASES = (
    (16_000, "784-1024-1024-10", "mse"),
    (16_000, "784-1024:batchnorm-1024-10", "mse"),
    (16_000, "784-1024:layernorm-[layernorm-1024:silu-1024]-10", "mse"),
    (200_000, "20-64-64-2", "mse"),
    (256, "784-2048-2048-10", "mse"),
    (1_000, "1000-4000-1", "mse"),
    (8_000, "50-columns(plr)-2", "mse"),
    # Little work in matrix products: norms, activations, a loss with many classes, categories.
    (60_000, "200:batchnorm-[layernorm:gelu]*8-8:relu-2", "mse"),
    (100_000, "10-1000", "cross_entropy"),
    (100_000, "4+cat(400, 400)-columns-8-2", "mse"),
)


def engine_of(rows: int, network: str, loss: str) -> FusedEngine:
    spec = Spec.parse(network)
    x = np.random.default_rng(0).normal(size=(rows, spec.inputs.numeric)).astype(np.float32)
    codes = [np.arange(rows) % (n + 1) for n in spec.inputs.categories]
    classes = loss == "cross_entropy"
    y = np.arange(rows) % spec.d_out if classes else np.zeros((rows, spec.d_out), dtype=np.float32)
    return FusedEngine(spec, Data(x=x, codes=np.stack(codes, 1) if codes else None, y=y), Settings(loss=loss))


def waits(call: Callable[[], object]) -> tuple[float, list[float]]:
    """Return the seconds of a call, and the seconds between handled signals."""
    call()
    handled: list[float] = []
    signal.signal(signal.SIGALRM, lambda *_: handled.append(time.perf_counter()))
    start = time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    call()
    end = time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, 0)
    return end - start, np.diff([start, *(moment for moment in handled if moment < end), end]).tolist()


def main() -> None:
    given = sys.argv[1:]
    cases = ((int(given[0]), given[1], (*given, "mse")[2]),) if len(given) > 1 else CASES
    one = np.ones(1)
    for rows, network, loss in cases:
        engine, order = engine_of(rows, network, loss), Order(epoch=0, rows=np.arange(rows), batch=rows)
        calls = {
            "step": partial(engine.run, order, rate=1e-3 * one, decay=0 * one, dropout=one),
            "outputs": partial(engine.outputs, order.rows),
        }
        for name, call in calls.items():
            taken, between = waits(call)
            tenth, most = 1e3 * np.quantile(between, 0.9), 1e3 * max(between)
            print(
                f"{rows:8,} rows of {network:50s} {name} {taken:6.2f} s, "
                f"waits: maximum {most:4.0f} ms, 90 % at most {tenth:4.0f} ms",
                flush=True,
            )


if __name__ == "__main__":
    main()
