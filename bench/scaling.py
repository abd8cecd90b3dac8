"""Measure how the time of a training step grows with the rows of the table and with the width of the network.

    rows         784-256-128-10 at batch size 256, tables of 10⁴ to 10⁶ rows: time per row, required: within 10 %
    width        n-n-n-10 at batch size 256, n from 32 to 2048: time per FLOP, required: no increase
    first step   `ml.fit` with a single step, from the call to its return, required: at most 50 ms

Only this package is measured: epochs of the fused engine with rows in random order. Sizes alternate, and the best time
of each size counts, so that other processes affect all sizes equally.

    python bench/scaling.py [--row-rounds 12] [--width-rounds 60] [--rows 1000000] [--json FILE]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from contest import about, numbers, report

import multilayer as ml
from multilayer.core import machine, random
from multilayer.data.batches import Data
from multilayer.engines import Order, Settings
from multilayer.engines.fused_engine import FusedEngine
from multilayer.spec import Spec

BATCH = 256
WIDTHS = (32, 64, 128, 256, 512, 1024, 2048)


class Slice:
    """Steps of one engine. Each run continues with the next rows of a random order."""

    def __init__(self, text: str, data: Data, steps: int, threads: int) -> None:
        self.engine = FusedEngine(
            Spec.parse(text), data, Settings(loss="cross_entropy", optimizer="adam"), threads=threads
        )
        self.order = random.permutation(len(data), seed=0, epoch=0)
        self.steps, self.at, self.best = steps, 0, float("inf")
        cost = ml.cost(text, batch=BATCH, optimizer="adam")
        self.flops = sum(int(x.forward.matmul) + int(x.backward.dW) + int(x.backward.dA) for x in cost.layers)

    def run(self) -> None:
        n = self.steps * BATCH
        rows = np.take(self.order, np.arange(self.at, self.at + n), mode="wrap")
        self.at = (self.at + n) % len(self.order)
        ones = np.ones(self.steps)
        start = time.perf_counter()
        self.engine.run(Order(epoch=0, rows=rows, batch=BATCH), rate=1e-3 * ones, decay=0 * ones, dropout=ones)
        self.best = min(self.best, (time.perf_counter() - start) / self.steps)


def alternated(slices: dict[int, Slice], rounds: int) -> None:
    for _ in range(rounds):
        for part in slices.values():
            part.run()


def first_step(threads: int) -> float:
    """Return the seconds of a call of `fit` with one step, the minimum of five."""
    x = numbers(BATCH, 784)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        ml.fit(
            "784-256-128-10",
            (x, x[:, :10].argmax(1)),
            engine="fused",
            batch_size=BATCH,
            epochs=1,
            validation=None,
            threads=threads,
            quiet=True,
        )
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row-rounds", type=int, default=12, help="rounds over the tables")
    parser.add_argument("--width-rounds", type=int, default=60, help="rounds over the widths, which have shorter steps")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the largest table")
    parser.add_argument("--threads", type=int, default=machine.threads())
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results: dict[str, Any] = {}

    x = numbers(options.rows, 784)
    y = x[:, :10].argmax(1)
    sizes = [n for n in (10_000, 100_000, 1_000_000) if n <= options.rows]
    tables = {n: Slice("784-256-128-10", Data(x=x[:n], y=y[:n]), 10, options.threads) for n in sizes}
    alternated(tables, options.row_rounds)
    results["rows"] = {n: 1e9 * part.best / BATCH for n, part in tables.items()}
    print(
        "784-256-128-10 at batch size 256, ns per row: "
        + ", ".join(f"{n:,} {t:.0f}" for n, t in results["rows"].items())
    )
    first = results["rows"][sizes[0]]
    print(f"a row of the largest table: {results['rows'][sizes[-1]] / first:.2f} times the smallest (required: 1.10)\n")
    del tables, x

    x = numbers(20 * BATCH, max(WIDTHS))
    parts = {}
    for n in WIDTHS:
        data = Data(x=np.ascontiguousarray(x[:, :n]), y=x[:, :10].argmax(1))
        parts[n] = Slice(f"{n}-{n}-{n}-10", data, 4, options.threads)
    alternated(parts, options.width_rounds)
    results["width"] = {n: 1e12 * part.best / part.flops for n, part in parts.items()}
    print("n-n-n-10 at batch size 256, ps per FLOP: " + ", ".join(f"{n} {t:.1f}" for n, t in results["width"].items()))
    least = [min(list(results["width"].values())[: i + 1]) for i in range(len(WIDTHS))]
    rise = max(t / low for t, low in zip(results["width"].values(), least, strict=True))
    print(f"at most {rise:.2f} times the minimum of smaller widths (required: 1.00)\n")

    results["first step"] = first_step(options.threads)
    print(f"fit of one step: {1e3 * results['first step']:.0f} ms from call to return (required: at most 50)")
    report("scaling", results, options, about=about())


if __name__ == "__main__":
    main()
