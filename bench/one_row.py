"""Measure the time to predict one row: an array, pandas and polars frames, and frames with mixed columns.

The result is the best of several rounds, which is least affected by other processes.

    python bench/one_row.py [--rounds 7] [--calls 50]
"""

from __future__ import annotations

import argparse
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl

from multilayer import MLPClassifier

REQUIRED = 1.0
"""Milliseconds for one row of a data frame."""


def mixed(rows: int, generator: np.random.Generator) -> pd.DataFrame:
    """Return a table with six numbers, text, a category, a flag and a date."""
    columns: dict[str, Any] = {f"n{i}": generator.normal(size=rows) for i in range(6)}
    columns["text"] = generator.choice(["x", "y", "z"], rows)
    columns["category"] = pd.Categorical(generator.choice(["u", "v", "w"], rows))
    columns["flag"] = generator.random(rows) > 0.5
    columns["day"] = pd.date_range("2024-01-01", periods=rows)
    return pd.DataFrame(columns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=50)
    options = parser.parse_args()
    generator = np.random.default_rng(0)
    x = generator.normal(size=(150, 4))
    y = (x[:, 0] > 0).astype(int)
    frame, table = pd.DataFrame(x, columns=list("abcd")), mixed(150, generator)
    dates = table.assign(day=table["day"].dt.strftime("%Y-%m-%d"))
    quick: dict[str, Any] = {"ensemble": 1, "epochs": 3, "random_state": 0}
    of_arrays, of_frames, of_mixed = (MLPClassifier(**quick).fit(given, y) for given in (x, frame, table))
    of_dates = MLPClassifier(**quick).fit(dates, y)
    cases: dict[str, tuple[MLPClassifier, Any]] = {
        "array, 4 numbers": (of_arrays, x[:1]),
        "pandas, 4 numbers": (of_frames, frame[:1]),
        "polars, 4 numbers": (of_frames, pl.from_pandas(frame[:1])),
        "pandas, 10 mixed columns": (of_mixed, table[:1]),
        "pandas, 10 mixed columns, the date as text": (of_dates, dates[:1]),
    }
    print(f"{'one row (ms)':<44} {'estimator':>10} {'model':>10}   required: at most {REQUIRED:g}")
    for name, (estimator, row) in cases.items():

        def best(predict: Callable[[Any], Any], row: Any = row) -> float:
            predict(row)
            times = timeit.repeat(lambda: predict(row), number=options.calls, repeat=options.rounds)
            return 1e3 * min(times) / options.calls

        print(f"{name:<44} {best(estimator.predict):>10.3f} {best(estimator.model_.predict):>10.3f}")


if __name__ == "__main__":
    main()
