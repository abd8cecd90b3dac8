"""Measure what counting dead and saturated units adds to the time of a fit.

Each fit runs with three settings, alternately: `Plan.counts_units` as it is, never, and in every epoch. The results of
the three fits are the same bits. A time is the processor time of the whole fit on one thread, and the smallest of all
rounds. Required: at most 2 % more for the default.

    python bench/counters.py [--rounds 7] [--only TEXT] [--json FILE]

`every epoch` shows the cost of a counted epoch. The share of counted epochs is largest for large tables, which are
trained for few epochs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from contest import about, numbers, report

import multilayer as ml
from multilayer.training import Plan

REQUIRED = 1.02
DEFAULT = Plan.counts_units
SETTINGS: dict[str, Callable[[Plan, int], bool]] = {
    "never": lambda plan, epoch: False,
    "default": DEFAULT,
    "every epoch": lambda plan, epoch: True,
}


def classes(rows: int, units: int, kinds: int) -> tuple[np.ndarray, np.ndarray]:
    x = numbers(rows, units)
    return x, (x[:, : 2 * kinds : 2] * x[:, 1 : 2 * kinds + 1 : 2]).argmax(1)


def plain(text: str, rows: int, **options: Any) -> Callable[[], object]:
    data = classes(rows, *(int(part) for part in (text.split("-")[0], text.split("-")[-1])))
    return lambda: ml.fit(text, data, threads=1, quiet=True, **options)


def recipe(rows: int, columns: int) -> Callable[[], object]:
    x, y = classes(rows, columns, 2)
    return lambda: ml.MLPClassifier(n_threads=1, random_state=0).fit(x, y)


CASES: dict[str, Callable[[], Callable[[], object]]] = {
    "iris, 4-16-3": lambda: lambda: ml.fit("4-16-3", "iris", threads=1, quiet=True),
    "20-64-64-2, batch 32": lambda: plain("20-64-64-2", 2000, batch_size=32, patience=1000, epochs=100),
    "20-64-64-2, batch 32, 20 epochs": lambda: plain("20-64-64-2", 12_800, batch_size=32, epochs=20),
    "20-64:gelu-64:gelu-2, batch 32": lambda: plain("20-64:gelu-64:gelu-2", 2000, batch_size=32, epochs=100),
    "784-256-128-10, batch 32": lambda: plain("784-256-128-10", 2000, batch_size=32, epochs=40),
    "784-256-128-10, batch 256": lambda: plain("784-256-128-10", 8000, batch_size=256, epochs=40),
    "784-256-128-10, batch 256, 20 epochs": lambda: plain("784-256-128-10", 8000, batch_size=256, epochs=20),
    "the tabular recipe, 2,000 rows": lambda: recipe(2000, 12),
    "torch, 784-256-128-10, batch 256, 12 epochs": lambda: plain(
        "784-256-128-10", 8000, batch_size=256, epochs=12, engine="torch"
    ),
}


@contextmanager
def counting(when: Callable[[Plan, int], bool]) -> Any:
    Plan.counts_units = when  # type: ignore[method-assign]
    try:
        yield
    finally:
        Plan.counts_units = DEFAULT  # type: ignore[method-assign]


def seconds(fit: Callable[[], object], when: Callable[[Plan, int], bool]) -> float:
    with counting(when):
        start = time.process_time()
        fit()
        return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="only the cases whose name contains this text")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    print(f"{'':38}{'seconds':>9}{'default':>9}{'every epoch':>13}")
    for name, make in CASES.items():
        if options.only not in name:
            continue
        fit = make()
        fit()
        taken = {setting: float("inf") for setting in SETTINGS}
        for i in range(options.rounds):
            for setting in sorted(SETTINGS, reverse=i % 2 == 1):
                taken[setting] = min(taken[setting], seconds(fit, SETTINGS[setting]))
        ratios = {setting: taken[setting] / taken["never"] for setting in ("default", "every epoch")}
        results[name] = {"seconds": taken["never"], **ratios}
        print(f"{name:38}{taken['never']:9.3f}{ratios['default']:9.3f}{ratios['every epoch']:13.3f}", flush=True)
    worst = max(one["default"] for one in results.values())
    print(f"largest ratio {worst:.3f} (required: at most {REQUIRED})")
    report("counters of units", results, options, required=REQUIRED, about=about())


if __name__ == "__main__":
    main()
