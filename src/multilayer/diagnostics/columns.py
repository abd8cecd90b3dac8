"""Measurements of the rows: the scale of the columns, columns that predict alone, and the target.

scale        largest and smallest root mean square of the encoded numeric columns
alone        skill of each column alone: the mean target (or most frequent class) of bins with equal numbers of rows, of
             each value of at least as many rows, or of each category, fitted on one half of the rows and judged on
             the other half. Bins of few rows distinguish a column that tells the class, which is wrong at most in the
             bins with two classes, from classes that overlap
target       number of different values, whether they are whole numbers, skewness, and the excess kurtosis of the
             residuals of the model
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ..core.sparse import Sparse
from ..models import metrics
from ..models.evaluation_rows import EvaluationRows
from .references import distances, inputs_of

Floats = NDArray[np.float64]

FEWEST_BINS, ROWS_PER_BIN = 20, 12
"""A column has at least this many bins, and more if each then still has this many rows."""
FEWEST_ROWS = 60
"""Fewer rows are not enough to judge single columns."""
MOST_ROWS = 1000
MOST_COLUMNS = 200
"""Largest number of columns that are judged alone: those with the largest correlation with the target."""


@dataclass(frozen=True, kw_only=True)
class TargetFacts:
    """Facts about the target of a regression in its own units."""

    values: int
    whole: bool
    positive: bool
    skewness: float
    residual_kurtosis: float
    """Excess kurtosis of the residuals: 0 for normal residuals, large with outliers."""
    dispersion: float
    """Variance divided by the mean. About 1 or more for counts."""
    agreement: float
    """How often the nearest row has the same target: 0 as often as a random row, 1 always."""
    disorder: float
    """How much the target of the nearest row with another target differs: 0 as the next value, 1 as a random one."""


@dataclass(frozen=True, kw_only=True)
class ColumnFacts:
    """Facts about the encoded columns."""

    largest_scale: float
    smallest_scale: float
    largest_column: str
    alone: dict[str, float] = field(default_factory=dict[str, float])
    """Skill of the best columns alone, the best first."""
    target: TargetFacts | None = None


def measure_columns(rows: EvaluationRows, *, alone: bool = True) -> ColumnFacts:
    """Measure training rows. `alone` is whether to judge single columns."""
    rows = rows.at_most(MOST_ROWS)
    x = np.asarray(rows.x[np.arange(len(rows))] if isinstance(rows.x, Sparse) else rows.x, np.float64)
    names = list(rows.model.encoding.numeric_names)
    names = names if len(names) == x.shape[1] else [f"column {i + 1}" for i in range(x.shape[1])]
    scales = np.sqrt((x**2).mean(0)) if x.size else np.ones(0)
    spread = scales[x.std(0) > 0] if x.size else scales
    largest = int(scales.argmax()) if len(scales) else 0
    return ColumnFacts(
        largest_scale=float(scales.max(initial=0.0)),
        smallest_scale=float(spread.min(initial=np.inf)) if len(spread) else 0.0,
        largest_column=names[largest] if names else "",
        alone=_alone(rows, x, names) if alone else {},
        target=_target(rows),
    )


def _alone(rows: EvaluationRows, x: Floats, names: list[str]) -> dict[str, float]:
    """Return the three best columns with their skills alone."""
    if len(rows) < FEWEST_ROWS or rows.task.kind in ("multilabel", "multioutput"):
        return {}
    truth = np.asarray(rows.sides[0])
    classes = rows.task.kind in metrics.CLASSES
    goal = np.eye(rows.sides[1].shape[1])[truth.astype(np.int64)] if classes else truth.reshape(len(x), -1)
    order = np.arange(x.shape[1])
    if x.shape[1] > MOST_COLUMNS:
        centered = (x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1.0)
        strength = np.abs(centered.T @ (goal - goal.mean(0))).max(1)
        order = np.argsort(-strength)[:MOST_COLUMNS]
    found: dict[str, float] = {}
    for i in order.tolist():
        bins = _bins(x[:, i])
        found[names[i]] = max(found.get(names[i], -np.inf), _skill(bins, goal, classes=classes))
    columns = rows.model.encoding.categorical
    for place, column in enumerate(columns if rows.codes is not None else ()):
        codes = cast("NDArray[np.int64]", rows.codes)[:, place]
        found[column.name] = _skill(codes, goal, classes=classes)
    return dict(sorted(found.items(), key=lambda item: -item[1])[:3])


def _bins(values: Floats) -> NDArray[np.int64]:
    """Return the bin of each value: bins with equal numbers of rows, and one for each value of as many rows."""
    distinct, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    if len(distinct) <= FEWEST_BINS:
        return which
    most = max(FEWEST_BINS, len(values) // ROWS_PER_BIN)
    repeated = counts * most >= len(values)
    others = np.repeat(distinct[~repeated], counts[~repeated])
    parts = max(1, round(most * len(others) / len(values)))
    edges = np.quantile(others, np.linspace(0, 1, parts + 1)[1:-1]) if parts > 1 else np.zeros(0)
    bins = np.searchsorted(edges, distinct, side="right")
    bins[repeated] = most + np.arange(int(repeated.sum()))
    return bins[which]


def _skill(bins: NDArray[np.int64], goal: Floats, *, classes: bool) -> float:
    """Return the skill of predicting each bin's mean of one half of the rows for the other half, on average."""
    halves = np.arange(len(bins)) % 2 == 0
    skills: list[float] = []
    for fitted in (halves, ~halves):
        judged = ~fitted
        counts = np.bincount(bins[fitted], minlength=int(bins.max()) + 1)
        mean = goal[fitted].mean(0)
        sums = np.stack([np.bincount(bins[fitted], column, minlength=len(counts)) for column in goal[fitted].T], axis=1)
        table = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], mean)
        given, truth = table[bins[judged]], goal[judged]
        if classes:
            wrong = (given.argmax(1) != truth.argmax(1)).mean()
            base = (truth.argmax(1) != mean.argmax()).mean()
        else:
            wrong, base = ((given - truth) ** 2).mean(), ((truth - mean) ** 2).mean()
        skills.append(1 - float(wrong) / float(base) if base > 0 else 0.0)
    return float(np.mean(skills))


def _target(rows: EvaluationRows) -> TargetFacts | None:
    if rows.task.kind != "regression":
        return None
    truth, given = (np.asarray(side, np.float64).reshape(len(rows), -1)[:, 0] for side in rows.sides)
    residual = truth - given
    agreement, disorder = _neighbors(rows, truth)
    return TargetFacts(
        values=len(np.unique(truth)),
        whole=bool((np.abs(truth - np.round(truth)) < 1e-6 * np.maximum(1, np.abs(truth))).all()),
        positive=bool((truth > -1e-6 * max(1.0, np.abs(truth).max(initial=0.0))).all()),
        skewness=_moment(truth, 3),
        residual_kurtosis=_moment(residual, 4) - 3,
        dispersion=float(truth.var() / truth.mean()) if truth.mean() > 0 else 0.0,
        agreement=agreement,
        disorder=disorder,
    )


def _neighbors(rows: EvaluationRows, truth: Floats) -> tuple[float, float]:
    """Return agreement and disorder: values of classes agree without an order, and those of amounts are ordered."""
    distance = distances(inputs_of(rows))  # (B, B)
    difference = np.abs(truth[:, None] - truth)  # (B, B)
    differs = difference > 0
    if not differs.any():
        return 0.0, 0.0
    same, at_random = float((truth[distance.argmin(1)] == truth).mean()), float(1 - differs.mean())
    nearest = np.where(differs, distance, np.inf).argmin(1)
    found = difference[np.arange(len(truth)), nearest].mean()
    least = np.where(differs, difference, np.inf).min(1).mean()
    typical = (difference.sum(1) / differs.sum(1)).mean()
    disorder = float((found - least) / (typical - least)) if typical > least else 0.0
    return (same - at_random) / (1 - at_random), disorder


def _moment(values: Floats, power: int) -> float:
    """Return the standardized central moment."""
    deviation = values.std()
    return float((((values - values.mean()) / deviation) ** power).mean()) if deviation > 0 else 0.0
