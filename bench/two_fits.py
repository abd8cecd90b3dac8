"""Measure the time of two fits in parallel in one process, relative to one fit. Each fit has two threads.

On two cores, twice the work takes at least twice the time. Threads that spin while they wait for each other would take
much longer. Required: at most 2.5 times.

    python bench/two_fits.py [--rounds 7] [--json FILE]
"""

from __future__ import annotations

import argparse
import threading
import time
from pathlib import Path

import numpy as np
from contest import about, numbers, report

import multilayer as ml
from multilayer.core import machine

REQUIRED = 2.5


def fit(data: tuple[np.ndarray, np.ndarray], threads: int) -> None:
    ml.fit(
        "50-256-256-10",
        data,
        engine="fused",
        batch_size=256,
        epochs=6,
        validation=None,
        threads=threads,
        quiet=True,
    )


def seconds(n: int, data: tuple[np.ndarray, np.ndarray], threads: int) -> float:
    several = [threading.Thread(target=fit, args=(data, threads)) for _ in range(n)]
    start = time.perf_counter()
    for thread in several:
        thread.start()
    for thread in several:
        thread.join()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    threads = min(2, machine.threads())
    x = numbers(50 * 256, 50)
    data = (x, x[:, :10].argmax(1))
    seconds(1, data, threads)
    taken = [(seconds(1, data, threads), seconds(2, data, threads)) for _ in range(options.rounds)]
    one, two = np.min(taken, axis=0)
    print(f"one fit {1e3 * one:.0f} ms, two at once {1e3 * two:.0f} ms: {two / one:.2f} (required: at most {REQUIRED})")
    result = {"one": one, "two": two, "ratio": two / one, "required": REQUIRED, "threads": threads}
    report("two fits", result, options, about=about())


if __name__ == "__main__":
    main()
