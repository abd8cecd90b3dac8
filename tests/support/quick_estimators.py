"""Shared by the tests of estimators: options that make the recipe fast, and small tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

QUICK: dict[str, Any] = {"ensemble": 2, "epochs": 8, "hidden": (16,), "batch_size": 32, "random_state": 0}


def numbers(rows: int = 120, columns: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return normal inputs and a target that is a smooth function of them."""
    x = np.random.default_rng(seed).normal(size=(rows, columns))
    return x, np.sin(2 * x[:, 0]) + x[:, 1 % columns]


def classes(rows: int = 120, count: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    x, y = numbers(rows, seed=seed)
    return x, np.digitize(y, np.quantile(y, np.linspace(0, 1, count + 1)[1:-1]))


def people(rows: int = 120, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    """Return a raw table: missing values, text, categories, a flag, a date, and a constant column."""
    generator = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": generator.integers(18, 90, rows).astype(float),
            "income": generator.lognormal(10, 1, rows),
            "city": generator.choice(["Bern", "Genève", "Zürich"], rows),
            "plan": pd.Categorical(generator.choice(["basic", "gold"], rows), categories=["basic", "gold", "none"]),
            "active": generator.random(rows) < 0.5,
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(generator.integers(0, 1000, rows), unit="D"),
            "constant": 1.0,
        }
    )
    left = (frame["age"] > 50) ^ (frame["city"] == "Bern")
    frame.loc[generator.random(rows) < 0.1, "age"] = np.nan
    frame.loc[generator.random(rows) < 0.1, "city"] = None
    return frame, pd.Series(np.where(left, "left", "stayed"), name="outcome")
