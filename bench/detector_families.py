"""The generated tables of bench/detectors.py: (random, rows, columns, noise) → inputs and target.

A target of classes has integers, one of numbers has floats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn import datasets

Random = np.random.Generator
Rows = tuple[Any, Any]


def blobs(random: Random, rows: int, columns: int, noise: float) -> Rows:
    classes = int(random.integers(2, 6))
    means = random.normal(size=(classes, columns))
    means *= random.uniform(4, 5.5) / np.sqrt(columns)
    y = random.integers(0, classes, rows)
    return means[y] + (0.8 + noise) * random.normal(size=(rows, columns)), y


def clusters(random: Random, rows: int, columns: int, noise: float) -> Rows:
    informative = max(3, columns // 2)
    return datasets.make_classification(
        n_samples=rows,
        n_features=max(columns, informative + 1),
        n_informative=informative,
        n_redundant=min(2, max(columns, informative + 1) - informative),
        n_classes=int(random.integers(2, 5)),
        n_clusters_per_class=2,
        class_sep=2.0 - noise,
        flip_y=0.0,
        random_state=int(random.integers(1 << 30)),
    )


def many(random: Random, rows: int, columns: int, noise: float) -> Rows:
    """Return more classes than are inferred to be classes, in no order."""
    classes = int(random.integers(21, 31))
    means = 2.5 * random.normal(size=(classes, columns))
    y = np.concatenate([np.arange(classes), random.integers(0, classes, rows - classes)])
    return means[y] + (0.5 + noise) * random.normal(size=(rows, columns)), y.astype(float)


def moons(random: Random, rows: int, columns: int, noise: float) -> Rows:
    X, y = datasets.make_moons(rows, noise=0.08 + noise / 2, random_state=int(random.integers(1 << 30)))
    return np.concatenate([X, random.normal(size=(rows, min(columns, 4) - 2))], 1), y


def _tanh_network(random: Random, X: Any, outputs: int) -> Any:
    weights = random.normal(size=(X.shape[1], 16)) / np.sqrt(X.shape[1]) * random.uniform(1.2, 2.0)
    return np.tanh(X @ weights + 0.5 * random.normal(size=16)) @ random.normal(size=(16, outputs))


def network(random: Random, rows: int, columns: int, noise: float) -> Rows:
    X = random.normal(size=(rows, columns))
    scores = _tanh_network(random, X, int(random.integers(2, 5)))
    scores = (scores - scores.mean(0)) / scores.std(0)
    return X, (scores + 0.6 * noise * random.normal(size=scores.shape)).argmax(1)


def network_numbers(random: Random, rows: int, columns: int, noise: float) -> Rows:
    X = random.normal(size=(rows, columns))
    return X, _noisy(random, _tanh_network(random, X, 1)[:, 0], noise)


def products(random: Random, rows: int, columns: int, noise: float) -> Rows:
    X = random.normal(size=(rows, columns))
    a, b, c, d = (X[:, i] for i in random.permutation(columns)[:4])
    return X, _noisy(random, a * b + 0.5 * c**2 - d, noise)


def shells(random: Random, rows: int, columns: int, noise: float) -> Rows:
    X, y = datasets.make_gaussian_quantiles(
        n_samples=rows,
        n_features=min(columns, 4),
        n_classes=int(random.integers(2, 5)),
        random_state=int(random.integers(1 << 30)),
    )
    return X + 0.4 * noise * random.normal(size=X.shape), y


def ball(random: Random, rows: int, columns: int, noise: float) -> Rows:
    X = random.normal(size=(rows, min(columns, 5)))
    radius = (X**2).sum(1) * np.exp(0.6 * noise * random.normal(size=rows))
    return X, (radius > np.median(radius)).astype(int)


def spirals(random: Random, rows: int, columns: int, noise: float) -> Rows:
    arms = int(random.integers(2, 4))
    y, t = random.integers(0, arms, rows), np.sqrt(random.uniform(0.02, 1, rows))
    angle = 2 * np.pi * (random.uniform(0.4, 0.8) * t + y / arms)
    X = np.stack([t * np.cos(angle), t * np.sin(angle)], 1)
    return X + (0.02 + 0.12 * noise) * random.normal(size=X.shape), y


def _box_values(random: Random, rows: int, columns: int) -> Rows:
    X = random.uniform(-1, 1, size=(rows, columns))
    value = np.zeros(rows)
    for _ in range(4):
        low = random.uniform(-1.0, 0.0, 2)
        chosen = random.permutation(columns)[:2]
        inside = ((X[:, chosen] > low) & (X[:, chosen] < low + 1.1)).all(1)
        value += random.choice([-1.0, 1.0]) * random.uniform(0.7, 1.5) * inside
    return X, value + 0.3 * X[:, 0]


def boxes(random: Random, rows: int, columns: int, noise: float) -> Rows:
    X, value = _box_values(random, rows, min(columns, 6))
    value = _noisy(random, value, 0.7 * noise)
    return X, (value > np.median(value)).astype(int)


def box_numbers(random: Random, rows: int, columns: int, noise: float) -> Rows:
    X, value = _box_values(random, rows, min(columns, 6))
    return X, _noisy(random, value, noise)


def waves(random: Random, rows: int, columns: int, noise: float) -> Rows:
    X = random.uniform(-1, 1, size=(rows, columns))
    turns, sizes = random.uniform(1.5, 4.0, 4), random.uniform(0.5, 1.5, 4)
    value = (sizes * np.sin(turns * X[:, random.permutation(columns)[:4]] + random.uniform(0, 6, 4))).sum(1)
    return X, _noisy(random, value, noise)


def _friedman(make: Callable[..., Any], **options: Any) -> Callable[[Random, int, int, float], Rows]:
    def made(random: Random, rows: int, columns: int, noise: float) -> Rows:
        wide = {"n_features": max(columns, 5)} if make is datasets.make_friedman1 else {}
        X, y = make(n_samples=rows, noise=0.0, random_state=int(random.integers(1 << 30)), **wide)
        return X, _noisy(random, y, noise)

    return made


def _noisy(random: Random, value: Any, noise: float) -> Any:
    return value + noise * value.std() * random.normal(size=len(value))


def rings(random: Random, rows: int, columns: int, noise: float) -> Rows:
    X, y = datasets.make_circles(
        rows, noise=0.05 + 0.25 * noise, factor=random.uniform(0.3, 0.6), random_state=int(random.integers(1 << 30))
    )
    return np.concatenate([X, random.normal(size=(rows, min(columns, 5) - 2))], 1), y


def checkers(random: Random, rows: int, columns: int, noise: float) -> Rows:
    X = random.uniform(-1, 1, size=(rows, min(columns, 3)))
    turns = random.uniform(1.2, 1.9, 2)
    y = (np.sin(np.pi * turns[0] * X[:, 0]) * np.sin(np.pi * turns[1] * X[:, 1]) > 0).astype(int)
    return X + 0.25 * noise * random.normal(size=X.shape), y


def covariances(random: Random, rows: int, columns: int, noise: float) -> Rows:
    """Return classes with nearly the same mean and other covariances."""
    classes, d = int(random.integers(2, 5)), min(columns, 8)
    y, found = random.integers(0, classes, rows), np.empty((rows, d))
    for one in range(classes):
        axes = np.linalg.qr(random.normal(size=(d, d)))[0]
        sizes = np.exp(random.permutation(np.linspace(-1.6, 1.6, d)))
        own = y == one
        found[own] = (random.normal(size=(own.sum(), d)) * sizes) @ axes.T + 0.8 * random.normal(size=d)
    return found + 0.6 * noise * random.normal(size=found.shape), y


def _leaves(random: Random, X: Any, depth: int) -> Any:
    """Return the leaf of each row in a random decision tree that splits near the medians."""
    leaf = np.zeros(len(X), dtype=int)
    for level in range(depth):
        for node in range(1 << level):
            rows = np.flatnonzero(leaf == node + (1 << level) - 1)
            column = int(random.integers(X.shape[1]))
            middle = np.quantile(X[rows, column], random.uniform(0.35, 0.65)) if len(rows) else 0.0
            leaf[rows] = 2 * leaf[rows] + 1 + (X[rows, column] > middle)
    return leaf - ((1 << depth) - 1)


def tree(random: Random, rows: int, columns: int, noise: float) -> Rows:
    X, classes = random.normal(size=(rows, min(columns, 5))), int(random.integers(2, 5))
    of_leaf = random.permutation(np.arange(8) % classes)
    return X + 0.3 * noise * random.normal(size=X.shape), of_leaf[_leaves(random, X, 3)]


def islands(random: Random, rows: int, columns: int, noise: float) -> Rows:
    """Return classes of three separate groups each."""
    classes, d = int(random.integers(3, 6)), min(columns, 7)
    centers = random.normal(size=(3 * classes, d)) * random.uniform(2.2, 3.0)
    group = random.integers(0, 3 * classes, rows)
    return centers[group] + (0.7 + noise) * random.normal(size=(rows, d)), group % classes


def bands(random: Random, rows: int, columns: int, noise: float) -> Rows:
    """Return classes that are ranges of a smooth number."""
    X, classes = random.normal(size=(rows, columns)), int(random.integers(2, 5))
    value = X[:, 0] + 0.7 * np.abs(X[:, 1]) + 0.5 * X[:, 2] * (X[:, 3] > 0)
    value = _noisy(random, value, 0.6 * noise)
    return X, np.searchsorted(np.quantile(value, np.linspace(0, 1, classes + 1)[1:-1]), value)


def bumps(random: Random, rows: int, columns: int, noise: float) -> Rows:
    X = random.uniform(-1, 1, size=(rows, min(columns, 4)))
    centers, heights = random.uniform(-0.8, 0.8, size=(5, X.shape[1])), random.choice([-1.0, 1.0], 5)
    distance = ((X[:, None] - centers) ** 2).sum(2)
    value = (heights * random.uniform(0.7, 1.5, 5) * np.exp(-distance / (2 * 0.5**2))).sum(1)
    return X, _noisy(random, value, noise)


def ratios(random: Random, rows: int, columns: int, noise: float) -> Rows:
    X = random.uniform(0.2, 2.0, size=(rows, columns))
    a, b, c, d = (X[:, i] for i in random.permutation(columns)[:4])
    return X, _noisy(random, a * b / (c + 0.5) + d, noise)


def forest(random: Random, rows: int, columns: int, noise: float) -> Rows:
    X = random.normal(size=(rows, min(columns, 5)))
    value = sum((random.normal(size=4)[_leaves(random, X, 2)] for _ in range(6)), np.zeros(rows))
    return X, _noisy(random, value, noise)


def kinks(random: Random, rows: int, columns: int, noise: float) -> Rows:
    X = random.normal(size=(rows, min(columns, 6)))
    slopes = random.normal(size=(X.shape[1], 4)) / np.sqrt(X.shape[1])
    return X, _noisy(random, np.abs(X @ slopes) @ np.array([1.5, -1.2, 1.0, -0.8]), noise)


def roll(random: Random, rows: int, columns: int, noise: float) -> Rows:
    """Return how far a row is along a rolled plane in three dimensions."""
    X, t = datasets.make_swiss_roll(rows, noise=0.3, random_state=int(random.integers(1 << 30)))
    X = np.concatenate([X, random.normal(size=(rows, min(columns, 6) - 3))], 1)
    return X, _noisy(random, t, noise)


def plane(random: Random, rows: int, columns: int, noise: float) -> Rows:
    X = random.normal(size=(rows, columns))
    return X, _noisy(random, X @ random.normal(size=columns), noise)


FAMILIES: dict[str, Callable[[Random, int, int, float], Rows]] = {
    "blobs": blobs,
    "clusters": clusters,
    "moons": moons,
    "network": network,
    "network_numbers": network_numbers,
    "products": products,
    "shells": shells,
    "ball": ball,
    "spirals": spirals,
    "boxes": boxes,
    "box_numbers": box_numbers,
    "waves": waves,
    "many": many,
    "friedman1": _friedman(datasets.make_friedman1),
    "friedman2": _friedman(datasets.make_friedman2),
    "friedman3": _friedman(datasets.make_friedman3),
    "rings": rings,
    "checkers": checkers,
    "covariances": covariances,
    "tree": tree,
    "islands": islands,
    "bands": bands,
    "bumps": bumps,
    "ratios": ratios,
    "forest": forest,
    "kinks": kinks,
    "roll": roll,
    "plane": plane,
}
