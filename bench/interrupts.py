"""How soon is Ctrl-C heard within a step that takes long?   python bench/interrupts.py [ROWS NETWORK]

A timer asks for attention every 2 ms while one step of so many rows is made; what is printed is the longest time that
it had to wait, and that of nine tenths of the step. 100 ms are wanted.
"""

from __future__ import annotations

import signal
import sys
import time

import numpy as np

from multilayer.engine import Data, Order, Settings
from multilayer.engine.fused_engine import FusedEngine
from multilayer.spec import Spec

CASES = (
    (16_000, "784-1024-1024-10"),
    (16_000, "784-1024:batchnorm-1024-10"),
    (16_000, "784-1024:layernorm-[layernorm-1024:silu-1024]-10"),
    (200_000, "20-64-64-2"),
    (256, "784-2048-2048-10"),
)


def waits(rows: int, network: str) -> tuple[float, list[float]]:
    """Seconds of a step, and between two answers within it."""
    spec, one = Spec.parse(network), np.ones(1)
    x = np.random.default_rng(0).normal(size=(rows, spec.inputs.numeric)).astype(np.float32)
    engine = FusedEngine(spec, Data(x=x, y=np.zeros((rows, spec.d_out), dtype=np.float32)), Settings(loss="mse"))
    order = Order(epoch=0, rows=np.arange(rows), batch=rows)

    def step() -> float:
        start = time.perf_counter()
        engine.run(order, rate=1e-3 * one, decay=0 * one, dropout=one)
        return time.perf_counter() - start

    step()
    heard: list[float] = []
    signal.signal(signal.SIGALRM, lambda *_: heard.append(time.perf_counter()))
    start = time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    taken = step()
    signal.setitimer(signal.ITIMER_REAL, 0)
    within = [start, *(moment for moment in heard if moment < start + taken), start + taken]
    return taken, np.diff(within).tolist()


def main() -> None:
    cases = CASES if len(sys.argv) < 3 else ((int(sys.argv[1]), sys.argv[2]),)
    for rows, network in cases:
        taken, between = waits(rows, network)
        spread = np.quantile(between, 0.9)
        print(
            f"{rows:8,} rows of {network:50s} {taken:6.2f} s a step, waits of {1e3 * max(between):4.0f} ms at most, "
            f"{1e3 * spread:4.0f} for nine of ten"
        )


if __name__ == "__main__":
    main()
