"""The tables of bench/detectors.py: generated and bundled tables, with the faults that a table can have.

Each set of cases has its own families of tables (detector_families), so that thresholds are never judged on tables they
were chosen on:

    choose   classes: blobs, clusters, moons, network, iris, breast_cancer
             numbers: friedman1, network_numbers, products, diabetes
    earlier  classes: shells, ball, spirals, boxes, wine, digits
             numbers: friedman2, friedman3, waves, box_numbers
    report   classes: rings, checkers, covariances, tree, islands, bands
             numbers: bumps, ratios, forest, kinks, roll, plane

A generated table has `rows` training rows and TEST more rows, from which the true quality of a model is measured. Of a
bundled table, 30 % of the rows are the test rows. Test rows never have a fault of the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from detector_families import FAMILIES
from sklearn import datasets

TEST, TEST_SHARE = 1000, 0.3
LEAK = "status"
"""Name of a column that tells the target."""
BUNDLED = {
    "iris": datasets.load_iris,
    "breast_cancer": datasets.load_breast_cancer,
    "wine": datasets.load_wine,
    "digits": datasets.load_digits,
    "diabetes": datasets.load_diabetes,
}
CLASSES = {
    "choose": ("blobs", "clusters", "moons", "network", "iris", "breast_cancer"),
    "earlier": ("shells", "ball", "spirals", "boxes", "wine", "digits"),
    "report": ("rings", "checkers", "covariances", "tree", "islands", "bands"),
}
NUMBERS = {
    "choose": ("friedman1", "network_numbers", "products", "diabetes"),
    "earlier": ("friedman2", "friedman3", "waves", "box_numbers"),
    "report": ("bumps", "ratios", "forest", "kinks", "roll", "plane"),
}
NONLINEAR = {
    "choose": ("moons", "network", "friedman1", "products"),
    "earlier": ("shells", "ball", "spirals", "boxes", "waves", "box_numbers"),
    "report": ("rings", "checkers", "covariances", "tree", "bumps", "forest", "kinks", "roll"),
}
"""Families that a linear model cannot learn."""

Random = np.random.Generator


@dataclass(frozen=True, kw_only=True)
class TableSpec:
    """The description of a table. `load` makes it.

    `noise` is the standard deviation of the noise of a number, relative to the signal, or the overlap of classes.
    """

    family: str
    seed: int
    rows: int = 400
    columns: int = 8
    noise: float = 0.1
    mixed: bool = False
    """Whether the columns are correlated."""
    tails: bool = False
    """Whether half of the columns have heavy tails."""
    categories: int = 0
    """Number of text columns: the first is a coarse copy of a number, the others are noise."""
    decades: float = 0.0
    """The sizes of the columns differ by up to this power of ten."""
    offset: bool = False
    """Whether the columns have a large mean."""
    flipped: float = 0.0
    """Share of the training labels that are replaced by another class."""
    leak: str = ""
    """A column that tells the target: number, code, text or bins."""
    target: str = "usual"
    """counts: Poisson counts. outliers: noise with heavy tails. many: more than 20 classes as numbers."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Loaded:
    """A table for `ml.fit` and its test rows, with the target in the column y."""

    train: pd.DataFrame
    test: pd.DataFrame
    classes: int
    """Number of classes; 0 for numbers."""
    numbers: int
    """Number of numeric columns."""
    categories: tuple[int, ...]
    """Number of values of each text column in all training rows."""
    flipped: Any
    """Numbers of the training rows with a replaced label."""

    def without(self, columns: Sequence[str], rows: Sequence[int]) -> Loaded:
        """Return the table without some columns and training rows."""
        if not columns and not rows:
            return self
        train = self.train.drop(columns=list(columns)).drop(index=list(rows)).reset_index(drop=True)
        texts = text_sizes(train)
        return replace(self, train=train, numbers=train.shape[1] - 1 - len(texts), categories=texts)


@lru_cache(maxsize=16)
def load(spec: TableSpec) -> Loaded:
    """Return the table of a description. The same description gives the same table."""
    random = np.random.default_rng(spec.seed)
    X, y, n = _rows(random, spec)
    if spec.mixed and spec.family not in BUNDLED:
        X = X @ (np.eye(X.shape[1]) + 0.25 * random.normal(size=(X.shape[1],) * 2))
    classes = 0 if y.dtype.kind == "f" else len(np.unique(y))
    if spec.tails:
        half = random.permutation(X.shape[1])[: (X.shape[1] + 1) // 2]
        scaled = (X[:, half] - X[:, half].mean(0)) / np.maximum(X[:, half].std(0), 1e-9)
        X[:, half] = np.sinh(1.3 * scaled)
    texts = _texts(random, X, spec.categories)
    if spec.offset:
        X = X + X.std(0) * random.uniform(5, 50, X.shape[1])
    if spec.decades:
        X = X * 10 ** (spec.decades * random.permutation(np.linspace(-0.5, 0.5, X.shape[1])))
    columns: dict[str, Any] = {f"x{i + 1}": X[:, i] for i in range(X.shape[1])}
    columns |= {f"c{i + 1}": one for i, one in enumerate(texts)}
    columns |= _leaked(random, spec, y, classes)
    frame = pd.DataFrame(columns | {"y": y})
    train, test = frame.iloc[:n].reset_index(drop=True), frame.iloc[n:].reset_index(drop=True)
    flipped = random.permutation(n)[: round(spec.flipped * n)]
    if len(flipped):
        labels = train["y"].to_numpy().copy()
        labels[flipped] = (labels[flipped] + random.integers(1, classes, len(flipped))) % classes
        train["y"] = labels
    sizes = text_sizes(train)
    return Loaded(
        train=train,
        test=test,
        classes=classes,
        numbers=len(columns) - len(sizes),
        categories=sizes,
        flipped=flipped,
    )


def text_sizes(frame: Any) -> tuple[int, ...]:
    """Return the number of values of each text column."""
    return tuple(frame[name].nunique() for name in frame.columns if frame[name].dtype.kind not in "fiu")


def _rows(random: Random, spec: TableSpec) -> tuple[Any, Any, int]:
    """Return inputs, target (integers for classes) and the number of training rows."""
    if spec.family in BUNDLED:
        X, y = BUNDLED[spec.family](return_X_y=True)
        order = random.permutation(len(X))
        n = min(spec.rows, round((1 - TEST_SHARE) * len(X)))
        X, y = np.asarray(X, dtype=float)[order], np.asarray(y)[order]
        return X, y if spec.family == "diabetes" else y.astype(int), n
    X, y = FAMILIES[spec.family](random, spec.rows + TEST, spec.columns, spec.noise)
    order = random.permutation(len(X))
    X, y = np.asarray(X, dtype=float)[order], np.asarray(y)[order]
    if spec.target == "counts":
        y = random.poisson(np.exp(0.3 + 1.1 * (y - y.mean()) / y.std())).astype(float)
    if spec.target == "outliers":  # the test rows have none
        far = random.permutation(spec.rows)[: round(0.08 * spec.rows)]
        y[far] += y.std() * random.choice([-1, 1], len(far)) * np.exp(random.normal(3.0, 0.7, len(far)))
    return X, y, spec.rows


def _texts(random: Random, X: Any, count: int) -> list[Any]:
    """Return text columns: a coarse copy of a number, then columns without information."""
    found: list[Any] = []
    for i in range(count):
        values = int(random.integers(2, 7))
        if i == 0:
            source = X[:, random.integers(X.shape[1])]
            codes = np.searchsorted(np.quantile(source, np.linspace(0, 1, values + 1)[1:-1]), source)
        else:
            codes = random.integers(0, values, len(X))
        found.append(np.array([f"v{code}" for code in codes]))
    return found


def _leaked(random: Random, spec: TableSpec, y: Any, classes: int) -> dict[str, Any]:
    """Return the column that tells the target, if there is one. Few of its values are wrong."""
    if not spec.leak:
        return {}
    wrong = random.uniform(0, 0.01)
    if classes:
        told = np.where(random.random(len(y)) < wrong, random.integers(0, classes, len(y)), y)
        codes = random.permutation(classes)[told]
        if spec.leak == "text":
            return {LEAK: np.array([f"s{code}" for code in codes])}
        return {LEAK: codes + (random.normal(0, 0.05, len(y)) if spec.leak == "number" else 0.0)}
    if spec.leak in ("text", "bins"):
        edges = np.quantile(y, np.linspace(0, 1, 13)[1:-1])
        return {LEAK: np.array([f"s{place:02}" for place in np.searchsorted(edges, y)])}
    told = y + y.std() * (random.uniform(0.005, 0.05) * random.normal(size=len(y)))
    return {LEAK: np.exp((told - y.mean()) / y.std()) if spec.leak == "code" else 2.5 * told + 7}
