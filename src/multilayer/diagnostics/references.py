"""What simple methods reach on the same rows, as a measure of what a network should reach.

    constant     the most frequent class, or the mean
    linear       ridge regression on the encoded columns
    features     ridge regression on random ReLU features of the columns (Rahimi & Recht 2007)
    neighbors    the mean of the 10 nearest training rows

Each is fitted on training rows in closed form and judged on the held-out rows. Classes are regressed as 0 and 1, and
the largest output is the prediction. The ridge penalty has the smallest leave-one-out error of a few values. Sample
and class weights count as in training: the references are fitted on rows drawn in proportion to them.

`Skills.scores` has the accuracy or R² of the same predictions, for displays.

The skill of a prediction is 1 − Σ error / Σ error of the constant: 0 is no better than the constant, 1 is perfect. The
error of a row is 0 or 1 for a class (the mean over labels for several), and the squared difference for numbers, divided
by the variance of each target. Constant targets do not count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from ..core import random
from ..core.random import Purpose
from ..core.sparse import Sparse
from ..models import metrics
from ..models.evaluation_rows import EvaluationRows
from ..nn import losses

Floats = NDArray[np.float64]

MOST_TRAIN, MOST_HELD_OUT = 800, 500
"""Largest number of rows for the references."""
FEATURES = 128
MOST_INPUTS = 200
"""The references use at most this many numeric columns, those with the largest correlation with the target."""
NEIGHBORS = 10
REFERENCES = {
    "linear": "ridge regression",
    "features": "ridge regression on random features",
    "neighbors": "the mean of the nearest rows",
}
"""The references in words."""
GOOD = 0.95
"""From this skill on, a model is nearly perfect."""
MOST_ONE_HOT = 30
"""A category column with more values is left out."""
FAR = 4.0
"""Encoded numbers are limited to ± this value, so that single outliers do not dominate."""
CONSTANT = 1e-9
"""A target is constant if its standard deviation is below this fraction of its largest size."""
PENALTIES = (1e-3, 1e-1, 10.0)


@dataclass(frozen=True, kw_only=True)
class Skills:
    """The skill of the model on training and held-out rows, and of the references on held-out rows.

    `error` is the standard error of the difference between the best reference and the model.
    """

    train: float
    held_out: float
    linear: float
    features: float
    neighbors: float
    error: float
    gap_error: float
    """Standard error of train − held_out."""
    rows: int
    train_rows: int
    """Rows that the references were fitted on."""
    metric: Literal["accuracy", "r2"]
    scores: Mapping[str, float]
    """Accuracy or R² of the model ("network") and the references on the held-out rows."""

    @property
    def best_reference(self) -> float:
        """The largest skill of a reference. NaN if none was computed."""
        return max(self.linear, self.features, self.neighbors)


def has_middle(loss: str) -> bool:
    """Return whether predictions are near the middle of the target, unlike a high or a low quantile.

    Only these can be compared with the references.

    >>> has_middle("mse"), has_middle("quantile(0.1, 0.9)"), has_middle("quantile(0.9)")
    (True, True, False)
    """
    levels = losses.get(loss).quantiles
    return not levels or levels[0] <= 0.5 <= levels[-1]


def measure_skills(
    train: EvaluationRows,
    held_out: EvaluationRows,
    *,
    full: bool = True,
    most_train: int = MOST_TRAIN,
    most_held_out: int = MOST_HELD_OUT,
) -> Skills:
    """Return the skills of the model of these rows and of the references.

    Without `full`, the references of a model that is nearly perfect are not computed, and are NaN. At most `most_train`
    and `most_held_out` rows are used. No row may be in both.
    """
    train, held_out = train.at_most(most_train), held_out.at_most(most_held_out)
    fitted = _drawn(train)
    goal = _goals(fitted)
    constant, variance = goal.mean(0, keepdims=True), goal.var(0)
    variance[variance <= (CONSTANT * np.abs(goal).max(0, initial=0.0)) ** 2] = (
        np.inf
    )  # a constant target does not count
    own, own_train = (_errors(rows, rows.sides[1], variance) for rows in (held_out, train))
    base, base_train = (float(_errors(rows, constant, variance).mean()) or 1.0 for rows in (held_out, train))
    if not full and 1 - float(own.mean()) / base >= GOOD:
        predictions: dict[str, Floats] = {}
    else:
        predictions = _predictions(fitted, held_out, goal)
    errors = {name: _errors(held_out, prediction, variance) for name, prediction in predictions.items()}
    skills = dict.fromkeys(REFERENCES, math.nan) | {name: 1 - float(e.mean()) / base for name, e in errors.items()}
    best = errors[max(errors, key=lambda name: skills[name])] if errors else own
    n = len(own)
    gap_error = np.hypot(own.std() / base / np.sqrt(max(n, 1)), own_train.std() / base_train / np.sqrt(len(own_train)))
    return Skills(
        train=1 - float(own_train.mean()) / base_train,
        held_out=1 - float(own.mean()) / base,
        **skills,
        error=float((own - best).std() / base / np.sqrt(max(n, 1))),
        gap_error=float(gap_error),
        rows=n,
        train_rows=len(train),
        metric="accuracy" if train.task.classifies else "r2",
        scores=_scores(held_out, predictions),
    )


def _relative_weights(rows: EvaluationRows) -> Floats:
    """Return the weights with a mean of 1."""
    total = float(rows.weights.sum())
    return rows.weights * (len(rows) / total) if total > 0 else np.ones(len(rows))


def _drawn(rows: EvaluationRows) -> EvaluationRows:
    """Return as many rows, each about as often as its weight says."""
    if rows.weight is None or not rows.weights.sum() > 0:
        return rows
    ends = np.cumsum(_relative_weights(rows))
    return rows.take(np.minimum(np.searchsorted(ends, np.arange(len(rows)) + 0.5), len(rows) - 1))


def _scores(held_out: EvaluationRows, predictions: Mapping[str, Floats]) -> dict[str, float]:
    """Return the accuracy or R² of the model and of each reference."""
    truth, given = held_out.sides
    score = metrics.accuracy if held_out.task.classifies else metrics.r2
    return {name: score(truth, values, held_out.weights) for name, values in {"network": given, **predictions}.items()}


def _predictions(train: EvaluationRows, held_out: EvaluationRows, goal: Floats) -> dict[str, Floats]:
    """Return the predictions of each reference for the held-out rows."""
    inputs, other = inputs_of(train), inputs_of(held_out)
    chosen = strongest(inputs, goal)
    inputs, other = inputs[:, chosen], other[:, chosen]
    center, scale = inputs.mean(0), inputs.std(0)
    return {
        "linear": fit_ridge(inputs, goal).predict(other),
        "features": fit_ridge(random_features(inputs, center, scale), goal).predict(
            random_features(other, center, scale)
        ),
        "neighbors": _nearest(inputs, goal, other),
    }


def strongest(inputs: Floats, goal: Floats, *, most: int = MOST_INPUTS) -> NDArray[np.int64]:
    """Return the columns with the largest correlation with the goal, at most `most`."""
    if inputs.shape[1] <= most:
        return np.arange(inputs.shape[1])
    strength = np.abs((inputs - inputs.mean(0)).T @ (goal - goal.mean(0))).max(1)
    return np.argsort(-strength)[:most]


def _errors(rows: EvaluationRows, given: NDArray[Any], variance: Floats) -> Floats:
    """Return the weighted error of each row for a prediction (N, T), or for one prediction of all rows (1, T)."""
    truth, given = np.asarray(rows.sides[0]), np.asarray(given, np.float64)
    if rows.task.kind in metrics.CLASSES:
        errors = (given.argmax(1) != truth).astype(np.float64)
    elif rows.task.classifies:
        errors = ((given > 0.5) != (truth > 0.5)).mean(1)
    else:
        errors = ((given - truth) ** 2 / variance).mean(1)
    return _relative_weights(rows) * errors


def _goals(rows: EvaluationRows) -> Floats:
    """Return what the references predict: class indicators (N, C), or targets in their own units (N, T)."""
    truth, given = rows.sides
    if rows.task.kind in metrics.CLASSES:
        return np.eye(given.shape[1])[np.asarray(truth, np.int64)]
    return np.asarray(truth, np.float64)


def inputs_of(rows: EvaluationRows) -> Floats:
    """Return the encoded numbers, limited to ± FAR, and the categories as 0 and 1."""
    x = rows.x[np.arange(len(rows))] if isinstance(rows.x, Sparse) else rows.x
    parts = [np.clip(np.asarray(x, np.float64), -FAR, FAR)]
    counts = rows.model.spec.inputs.categories
    for column, count in enumerate(counts if rows.codes is not None else ()):
        if count <= MOST_ONE_HOT:
            parts.append(np.eye(count + 1)[cast("NDArray[np.int64]", rows.codes)[:, column]])
    return np.concatenate(parts, axis=1)


def random_features(inputs: Floats, center: Floats, scale: Floats) -> Floats:
    """Return random ReLU features, with the scaled inputs themselves. Columns of scale 0 are left out."""
    used = scale > 0
    if not used.any():
        return inputs
    a = (inputs[:, used] - center[used]) / scale[used]
    d = a.shape[1]
    weights = random.normal(0, Purpose.MEASURE, rows=np.arange(FEATURES), units=d + 1)  # (features, d + 1)
    direction, offset = weights[:, :d] / np.sqrt(d), weights[:, d]
    return np.hstack([a, np.maximum(a @ direction.T + offset, 0)])


@dataclass(frozen=True, kw_only=True, eq=False)
class Ridge:
    """A ridge regression. `left_out` are the predictions for its own rows, each fitted without this row."""

    center: Floats
    mean: Floats
    coefficients: Floats
    left_out: Floats

    def predict(self, inputs: Floats) -> Floats:
        return self.mean + (inputs - self.center) @ self.coefficients


def fit_ridge(inputs: Floats, goal: Floats) -> Ridge:
    """Fit a ridge regression. The penalty has the smallest leave-one-out error."""
    center, mean = inputs.mean(0), goal.mean(0)
    a, t = inputs - center, goal - mean
    values, vectors = np.linalg.eigh(a.T @ a)
    values, rotated = np.maximum(values, 0.0), a @ vectors
    projected, squares = rotated.T @ t, rotated**2
    best, left_out, lowest = np.zeros((a.shape[1], t.shape[1])), np.broadcast_to(mean, t.shape), np.inf
    for penalty in PENALTIES:
        inverse = 1 / (values + penalty * len(a))
        leverage = np.clip(squares @ inverse + 1 / len(a), 0, 1 - 1e-6)
        residuals = (t - (rotated * inverse) @ projected) / (1 - leverage)[:, None]
        error = float((residuals**2).mean())
        if error < lowest:
            lowest, best, left_out = error, vectors @ (inverse[:, None] * projected), goal - residuals
    return Ridge(center=center, mean=mean, coefficients=best, left_out=left_out)


def _nearest(inputs: Floats, goal: Floats, other: Floats) -> Floats:
    """Return the mean goal of the nearest training rows."""
    k = min(NEIGHBORS, len(inputs))
    nearest = np.argpartition(distances(inputs, other), k - 1, axis=1)[:, :k]
    return goal[nearest].mean(1)


def distances(inputs: Floats, other: Floats | None = None) -> Floats:
    """Return squared distances (other rows, rows) between standardized inputs, up to a constant per row.

    Without `other`, these are the distances between all rows. A row is then infinitely far from itself.
    """
    scale = np.where(inputs.std(0) > 0, inputs.std(0), 1.0)
    a = inputs / scale
    b = a if other is None else other / scale
    found = (a**2).sum(1) - 2 * b @ a.T
    if other is None:
        np.fill_diagonal(found, np.inf)
    return found
