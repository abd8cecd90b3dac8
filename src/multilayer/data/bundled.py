"""Bundled data sets: five from scikit-learn, and six that are generated.

    digits, iris, wine, breast_cancer, diabetes     from scikit-learn
    xor                4 rows: whether two bits differ
    songs              4 rows: add or skip a song by tempo and mood, which are -1 or 1; the same function as xor
    parity(bits=4)     all 2^bits rows: whether the number of ones is odd
    moons(n, noise)    two interleaved half circles
    circles(n, noise)  a circle inside another circle
    spirals(n, noise, turns, arms)   interleaved spirals

The generated sets depend on their arguments and on `seed` (default 0) only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from ..core import random
from ..core.named_options import choose, require
from ..core.random import Purpose
from .table import Table, from_numpy, from_texts

Array = Any


def names() -> tuple[str, ...]:
    return tuple(MAKERS)


def known(text: str) -> bool:
    return text.partition("(")[0].strip() in MAKERS


def load(text: str) -> Table:
    """Return the data set with this name.

    >>> len(load("xor")), load("parity(bits=3)").names
    (4, ('odd', 'bit0', 'bit1', 'bit2'))
    """
    return choose("bundled set", text, MAKERS)


def _table(name: str, columns: dict[str, Array], target: str, y: Array, **known: Any) -> Table:
    made = {target: y} | columns
    arrow = {key: pa.chunked_array([_arrow(np.asarray(values))]) for key, values in made.items()}
    return Table(name=name, columns=arrow, targets=(target,), **known)


def _arrow(values: Array) -> Any:
    return from_texts(values.tolist()) if values.dtype.kind == "U" else from_numpy(values)


def digits() -> Table:
    from sklearn.datasets import load_digits

    bunch: Any = load_digits()
    return Table(
        name="digits",
        columns={"digit": pa.chunked_array([from_numpy(bunch.target)])},
        matrix=bunch.data.astype(np.uint8),
        matrix_names=tuple(bunch.feature_names),
        targets=("digit",),
        image=(8, 8, 1),
    )


def iris() -> Table:
    from sklearn.datasets import load_iris

    return _of_bunch("iris", load_iris(), "species")


def wine() -> Table:
    from sklearn.datasets import load_wine

    return _of_bunch("wine", load_wine(), "cultivar")


def breast_cancer() -> Table:
    from sklearn.datasets import load_breast_cancer

    return _of_bunch("breast_cancer", load_breast_cancer(), "diagnosis")


def diabetes() -> Table:
    from sklearn.datasets import load_diabetes

    return _of_bunch("diabetes", load_diabetes(), "progression")


def _of_bunch(name: str, bunch: Any, target: str) -> Table:
    labels = getattr(bunch, "target_names", None)
    y = bunch.target if labels is None else np.asarray(labels)[bunch.target].astype(str)
    features = [str(feature) for feature in bunch.feature_names]
    return _table(name, dict(zip(features, bunch.data.T.astype(np.float64), strict=True)), target, y)


def xor() -> Table:
    return _table("xor", {"a": [0.0, 0.0, 1.0, 1.0], "b": [0.0, 1.0, 0.0, 1.0]}, "differ", [0, 1, 1, 0])


def songs() -> Table:
    columns = {"tempo": [-1.0, -1.0, 1.0, 1.0], "mood": [-1.0, 1.0, -1.0, 1.0]}
    return _table("songs", columns, "choice", ["skip", "add", "add", "skip"])


def parity(bits: float = 4) -> Table:
    n = _whole("bits", bits, 1, 20)
    values = np.arange(2**n)[:, None] >> np.arange(n) & 1  # (2ⁿ, n)
    columns = {f"bit{i}": values[:, i].astype(np.float64) for i in range(n)}
    return _table(f"parity(bits={n})", columns, "odd", values.sum(1) % 2)


def moons(n: float = 1000, noise: float = 0.1, seed: float = 0) -> Table:
    def shape(t: Array, k: Array) -> Array:
        angle = np.pi * t
        return np.stack([k + (1 - 2 * k) * np.cos(angle), k / 2 + (1 - 2 * k) * np.sin(angle)], 1)

    return _plane("moons", shape, n, noise, seed)


def circles(n: float = 1000, noise: float = 0.05, seed: float = 0) -> Table:
    def shape(t: Array, k: Array) -> Array:
        radius, angle = 1 - k / 2, 2 * np.pi * t
        return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)

    return _plane("circles", shape, n, noise, seed)


def spirals(n: float = 1000, noise: float = 0.02, turns: float = 1.75, arms: float = 2, seed: float = 0) -> Table:
    require("turns", turns, 0 < turns <= 100, "above 0 and at most 100")
    several = _whole("arms", arms, 2, 20)

    def shape(t: Array, k: Array) -> Array:
        radius = 0.05 + 0.95 * np.sqrt(t)
        angle = 2 * np.pi * (turns * np.sqrt(t) + k / several)
        return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)

    return _plane("spirals", shape, n, noise, seed, several)


def _plane(
    name: str, shape: Callable[[Array, Array], Array], n: float, noise: float, seed: float, classes: int = 2
) -> Table:
    """Return points of the curves t ↦ shape(t, k), k = 0 … classes − 1, with normal noise. Row i has class i modulo
    `classes`."""
    rows = _whole("n", n, classes, 10_000_000)
    require("noise", noise, 0 <= noise <= 10, "at least 0 and at most 10")
    key = _whole("seed", seed, 0, 2**32 - 1)
    k = np.arange(rows) % classes
    t = random.uniform(key, Purpose.DATA, rows=rows, units=1)[:, 0]
    points = shape(t, k) + noise * random.normal(key, Purpose.DATA, rows=rows, units=2, part=1)  # (n, 2)
    return _table(name, {"x": points[:, 0], "y": points[:, 1]}, "curve", k)


def _whole(name: str, value: float, low: int, high: int) -> int:
    require(name, value, value == int(value) and low <= value <= high, f"a whole number from {low} to {high}")
    return int(value)


MAKERS: dict[str, Callable[..., Table]] = {
    "digits": digits,
    "iris": iris,
    "wine": wine,
    "breast_cancer": breast_cancer,
    "diabetes": diabetes,
    "xor": xor,
    "songs": songs,
    "parity": parity,
    "moons": moons,
    "circles": circles,
    "spirals": spirals,
}
