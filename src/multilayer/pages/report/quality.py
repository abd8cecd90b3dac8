"""Quality of a model: metrics with intervals and a baseline, confusion matrices, curves, calibration and residuals.

interval      covers 95 %. The accuracy of rows with equal weight is a proportion and has the exact interval of Clopper
              & Pearson (1934). Other metrics have the percentiles of a bootstrap over rows (Efron 1979), whose draws
              come from the counter-based generator: equal models and rows have equal intervals.
baseline      always predicts the class frequencies or the mean of the training rows. If they are not available, the
              evaluated rows are used.
ROC           false positive rate against recall, at every threshold
PR            recall against precision; its area is the average precision Σ (R_k − R_{k−1}) P_k
calibration   ten bins of probability: mean predicted probability against the observed share; ECE = Σ n_k/n
              |share − mean|. For more than two classes it is the probability of the predicted class.
chance        95th percentile of the ECE of a perfectly calibrated model on this number of rows, found by drawing the
              truth from the probabilities (Bröcker & Smith 2007)
coverage      share of rows below each predicted quantile
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core import random
from ...core.random import Purpose
from ...data import targets
from ...data.targets import Task
from ...models import metrics
from ...models.evaluation_rows import Floats
from ...models.metrics import area_under_curve
from ...nn import losses
from .sample import Sample

TAIL = 0.025
"""Probability on each side. Intervals cover 95 %."""
DRAWS, FEWEST_DRAWS = 400, 100
WORK = 700_000
"""Largest number of values in all bootstrap samples. With many rows, there are fewer samples."""
MOST_DRAWN = 20_000
"""Largest number of rows for the bootstrap. With n rows, the interval is narrower by √(MOST_DRAWN / n)."""
MOST_CLASSES = 25
"""Largest number of classes for which the report has the confusion matrix."""
MOST_PAIRS = 10
"""Largest number of pairs of a class and a wrong prediction that are listed."""
BINS = 10
MOST_CURVES = 10
POINTS = 120
"""Largest number of points of a curve. Areas are computed from all points."""
SCATTER = 500
"""Largest number of rows in a plot of predictions against targets."""
SIMULATIONS = 200
"""Number of random draws of the truth, for the calibration error of a perfectly calibrated model."""
HISTOGRAM = 25
"""Number of bins of a histogram of errors."""


def number(value: float | None) -> float | None:
    """Return a number for JSON: None if it is NaN or infinite."""
    return float(value) if value is not None and math.isfinite(value) else None


# Metrics


def figures(sample: Sample, train: Sample | None) -> list[dict[str, Any]]:
    """Return every metric of the task: value, interval, and the values on training rows and for the baseline."""
    names = metrics.names_for(sample.task)
    predicted = sample.sides[1]
    baseline = np.broadcast_to(baseline_of(sample if train is None else train), predicted.shape)
    values, baseline_values = _measured(sample, predicted, names), _measured(sample, baseline, names)
    train_values = {} if train is None else _measured(train, train.sides[1], names)
    intervals = _intervals(sample, names)
    return [
        {
            "name": name,
            "value": number(values[name]),
            "low": number(intervals[name][0]),
            "high": number(intervals[name][1]),
            "how": intervals[name][2],
            "better": metrics.get(name).better,
            "train": number(train_values.get(name)),
            "baseline": number(baseline_values[name]),
        }
        for name in names
    ]


def _measured(sample: Sample, predicted: Floats, names: tuple[str, ...]) -> dict[str, float]:
    with np.errstate(all="ignore"):
        return {name: metrics.get(name).function(sample.sides[0], predicted, sample.weights) for name in names}


def baseline_of(train: Sample) -> Floats:
    """Return the constant prediction: the class frequencies, or the means of the targets or labels."""
    truth, predicted = train.sides
    if train.task.kind in metrics.CLASSES:
        return np.bincount(truth, minlength=predicted.shape[1]) / len(truth)
    return truth.mean(0)


def _intervals(sample: Sample, names: tuple[str, ...]) -> dict[str, tuple[float, float, str]]:
    """Return the ends of the interval of each metric, and the name of the method."""
    truth, predicted = sample.sides
    n = len(sample)
    found: dict[str, tuple[float, float, str]] = {}
    if "accuracy" in names and truth.ndim == 1 and sample.weight is None:
        found["accuracy"] = *exact_interval(int((predicted.argmax(1) == truth).sum()), n), "exact"
    rest = [name for name in names if name not in found]
    weights, shrink = sample.weights, 1.0
    if n > MOST_DRAWN:  # the interval of m rows is wider by √(n/m)
        some = np.sort(random.permutation(n, seed=0, epoch=0)[:MOST_DRAWN])
        truth, predicted, weights, shrink = truth[some], predicted[some], weights[some], math.sqrt(MOST_DRAWN / n)
    draws = max(FEWEST_DRAWS, min(DRAWS, WORK // max(predicted.size, 1)))
    for name, values in _bootstrap(truth, predicted, weights, rest, draws).items():
        known = values[~np.isnan(values)]
        low, high = np.quantile(known, [TAIL, 1 - TAIL]) if len(known) else (math.nan, math.nan)
        if shrink < 1:
            function = metrics.get(name).function
            selected, full = function(truth, predicted, weights), function(*sample.sides, sample.weights)
            low, high = (full + shrink * (end - selected) for end in (low, high))
        found[name] = float(low), float(high), f"bootstrap of {draws}"
    return found


def exact_interval(right: int, n: int) -> tuple[float, float]:
    """Return the exact confidence interval of a proportion (Clopper & Pearson 1934).

    With k of n right, these are the proportions p for which P(X ≥ k) and P(X ≤ k) are both at least 1/40. P(X ≥ k) is
    the regularized incomplete beta function I_p(k, n − k + 1), which scipy inverts.

    >>> [round(end, 4) for end in exact_interval(9, 10)]
    [0.555, 0.9975]
    >>> exact_interval(0, 0)
    (0.0, 1.0)
    """
    from scipy.special import betaincinv

    low = float(betaincinv(right, n - right + 1, TAIL)) if right else 0.0
    high = float(betaincinv(right + 1, n - right, 1 - TAIL)) if right < n else 1.0
    return low, high


def _bootstrap(truth: Any, predicted: Any, weights: Floats, names: list[str], draws: int) -> dict[str, Floats]:
    n, values = len(weights), np.empty((draws, len(names)))
    with np.errstate(all="ignore"):
        for draw in range(draws):
            places = (random.uniform(0, Purpose.MEASURE, rows=np.array([draw]), units=n)[0] * n).astype(np.int64)
            # A row that is drawn k times has k times its weight, so no row is copied.
            weight = np.bincount(places, minlength=n) * weights
            values[draw] = [metrics.get(name).function(truth, predicted, weight) for name in names]
    return dict(zip(names, values.T, strict=True))


# Confusion matrices


def labels_of(task: Task) -> list[str]:
    """Return the names of the classes."""
    return [str(value) for value in task.classes[0]]


def confusion(sample: Sample) -> dict[str, Any] | None:
    """Return the confusion matrix and the most frequent errors. For many classes, return the errors only."""
    if sample.task.kind not in metrics.CLASSES:
        return None
    truth, predicted = sample.sides
    labels = labels_of(sample.task)
    n = len(labels)
    counts = np.bincount(truth * n + predicted.argmax(1), minlength=n * n).reshape(n, n)
    wrong = counts - np.diag(np.diag(counts))
    order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_PAIRS]
    pairs = [(int(i), int(j)) for i, j in zip(*np.unravel_index(order, wrong.shape), strict=True) if wrong[i, j]]
    return {
        "labels": labels if n <= MOST_CLASSES else None,
        "counts": counts.tolist() if n <= MOST_CLASSES else None,
        "classes": n,
        "pairs": [{"truth": labels[i], "predicted": labels[j], "rows": int(wrong[i, j])} for i, j in pairs],
    }


def label_table(sample: Sample) -> list[dict[str, Any]] | None:
    """Return the confusion matrix of each label of a multilabel task."""
    if sample.task.kind != "multilabel":
        return None
    truth, predicted = sample.sides
    found: list[dict[str, Any]] = []
    for i, name in enumerate(sample.task.names):
        yes, pred = truth[:, i] > 0.5, predicted[:, i] > 0.5
        cells = {"hits": yes & pred, "misses": yes & ~pred, "false_alarms": ~yes & pred, "rejections": ~yes & ~pred}
        found.append({"label": str(name), **{key: int(cell.sum()) for key, cell in cells.items()}})
    return found


# Curves


def curves(sample: Sample) -> dict[str, Any] | None:
    """Return the ROC and PR curves of a binary task, or of the classes or labels with the lowest ROC areas."""
    task = sample.task
    if not task.classifies:
        return None
    truth, p = sample.sides
    if task.kind == "multilabel":
        yes, names = truth > 0.5, [str(name) for name in task.names]
    elif task.kind == "binary":
        yes, p, names = (truth == 1)[:, None], p[:, 1:], labels_of(task)[1:]
    else:
        yes, names = truth[:, None] == np.arange(p.shape[1]), labels_of(task)
    found = [_curve(name, yes[:, i], p[:, i], sample.weights) for i, name in enumerate(names)]
    known = sorted((curve for curve in found if curve is not None), key=lambda curve: curve["auc"])
    return {"of": len(names), "curves": known[:MOST_CURVES]}


def _curve(name: str, yes: NDArray[np.bool_], score: Floats, weight: Floats) -> dict[str, Any] | None:
    """Return the ROC and PR curves. None if all rows or no rows have the class, or if a score is NaN."""
    positive, negative = weight * yes, weight * ~yes
    if not positive.sum() or not negative.sum() or np.isnan(score).any():
        return None
    order = np.argsort(-score, kind="stable")
    last = np.append(np.flatnonzero(np.diff(score[order])), len(order) - 1)  # last positions of equal scores
    hits, alarms = np.cumsum(positive[order])[last], np.cumsum(negative[order])[last]
    recall, fallout, precision = hits / hits[-1], alarms / alarms[-1], hits / (hits + alarms)
    return {
        "label": name,
        "rows": int(yes.sum()),
        "auc": area_under_curve(score, positive, negative),
        "ap": float((np.diff(recall, prepend=0.0) * precision).sum()),
        "roc": _thinned(np.append(0.0, fallout), np.append(0.0, recall)),
        "pr": _thinned(np.append(0.0, recall), np.append(precision[0], precision)),
    }


def _thinned(x: Floats, y: Floats) -> list[list[float]]:
    """Return the corners of a curve. If there are too many, return points at equal distances along the curve."""
    dx, dy = np.diff(x), np.diff(y)
    corner = np.ones(len(x), dtype=np.bool_)
    corner[1:-1] = np.abs(dx[1:] * dy[:-1] - dx[:-1] * dy[1:]) > 1e-15
    x, y = x[corner], y[corner]
    if len(x) > POINTS:
        length = np.cumsum(np.hypot(np.diff(x, prepend=x[0]), np.diff(y, prepend=y[0])))
        places = np.searchsorted(length, np.linspace(0, length[-1], POINTS)).clip(0, len(x) - 1)
        places = np.unique(np.append(places, [0, len(x) - 1]))
        x, y = x[places], y[places]
    return [[round(float(a), 5), round(float(b), 5)] for a, b in zip(x, y, strict=True)]


def calibration(sample: Sample) -> dict[str, Any] | None:
    """Return the calibration of the probabilities. None if the model has no probabilities, or if one is NaN."""
    task = sample.task
    if not task.classifies or not losses.get(sample.loss).gives_probabilities:
        return None
    truth, p = sample.sides
    if np.isnan(p).any():
        return None
    if task.kind == "multiclass":
        p, outcome, of = p.max(1), p.argmax(1) == truth, "the predicted class"
    elif task.kind == "binary":
        p, outcome, of = p[:, 1], truth == 1, labels_of(task)[1]
    else:
        p, outcome, of = p.reshape(-1), truth.reshape(-1) > 0.5, "every label"
    place = np.minimum((p * BINS).astype(np.int64), BINS - 1)
    bins: list[dict[str, Any]] = []
    for k in range(BINS):
        here = place == k
        n = int(here.sum())
        if n:
            low, high = exact_interval(int(outcome[here].sum()), n)
            shares = {"given": float(p[here].mean()), "came": float(outcome[here].mean()), "low": low, "high": high}
            bins.append({"from": k / BINS, "to": (k + 1) / BINS, "rows": n, **shares})
    draws = [
        _ece(p, random.uniform(0, Purpose.MEASURE, rows=np.array([i]), units=len(p), part=1)[0] < p, place)
        for i in range(SIMULATIONS if len(p) < 20_000 else SIMULATIONS // 10)
    ]
    return {
        "of": of,
        "bins": bins,
        "ece": _ece(p, outcome, place),
        "chance": float(np.quantile(draws, 0.95)),
        "lean": float(p.mean() - outcome.mean()),
    }


def _ece(p: Floats, outcome: NDArray[np.bool_], place: NDArray[np.int64]) -> float:
    gap = np.bincount(place, weights=p, minlength=BINS) - np.bincount(place, weights=outcome, minlength=BINS)
    return float(np.abs(gap).sum() / len(p))


# Regression


def residuals(sample: Sample) -> list[dict[str, Any]] | None:
    """Return truth, predictions and a histogram of the errors for each target."""
    if sample.task.classifies:
        return None
    truth, predicted = sample.sides
    places = np.arange(len(truth))
    if len(places) > SCATTER:
        places = np.sort(random.permutation(len(places), seed=0, epoch=0)[:SCATTER])
    return [
        {
            "target": str(name),
            "points": [[number(truth[i, t]), number(predicted[i, t])] for i in places],
            "rows": len(truth),
            "histogram": histogram(predicted[:, t] - truth[:, t], bins=HISTOGRAM),
            "bias": number(float(np.mean(predicted[:, t] - truth[:, t]))),
        }
        for t, name in enumerate(sample.task.names)
    ]


def histogram(values: Floats, *, bins: int | Floats) -> dict[str, Any] | None:
    """Return counts in bins of equal width. `bins` is their number or their edges. None if no value is finite."""
    known = values[np.isfinite(values)]
    if not len(known):
        return None
    counts, edges = np.histogram(known, bins=1 if isinstance(bins, int) and known.min() == known.max() else bins)
    return {"low": float(edges[0]), "high": float(edges[-1]), "counts": counts.tolist()}


def coverage(sample: Sample) -> list[dict[str, Any]] | None:
    """Return the share of rows below each predicted quantile, and the exact interval of the share."""
    loss = losses.get(sample.loss)
    if not loss.quantiles:
        return None
    levels = loss.constant("q")
    truth, _ = sample.sides
    predicted = np.asarray(targets.decode(sample.task, sample.z, sample.loss)).reshape(len(truth), -1, len(levels))
    found: list[dict[str, Any]] = []
    for t, name in enumerate(sample.task.names):
        for k, level in enumerate(levels):
            below = int((truth[:, t] <= predicted[:, t, k]).sum())
            low, high = exact_interval(below, len(truth))
            share = {"share": below / len(truth), "low": low, "high": high}
            found.append({"target": str(name), "level": float(level), **share})
    return found
