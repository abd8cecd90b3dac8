"""What the figures of a report are drawn from: ROC and precision–recall curves, calibration, residuals, coverage.

ROC           share of the others taken for the class, against share of the class found, at every threshold
PR            share of the class found, against share of those taken for it that are right; its area is the average
              precision Σ (R_k − R_{k−1}) P_k
calibration   ten bins of probability: mean probability given, against the share that came true; ECE = Σ n_k/n
              |share − mean|. For more than two classes it is the probability of the class predicted.
chance        the ECE that 95 % of perfectly calibrated models would stay under on as many rows, found by drawing the
              truth from the probabilities (Bröcker & Smith 2007)
coverage      share of rows below each predicted quantile
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core import random
from ...core.random import Purpose
from ...data import targets
from ...models.metrics import area_under_curve
from ...nn import losses
from .intervals import exact_interval
from .quality import labels_of, number
from .sample import Floats, Sample

BINS = 10
MOST_CURVES = 10
POINTS = 120
"""Of a curve; areas are of all of them."""
SCATTER = 500
SIMULATIONS = 200
HISTOGRAM = 25


def curves(sample: Sample) -> dict[str, Any] | None:
    """One for a binary task, one against the rest for each class or label; the lowest areas where those are many."""
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
    found = [_curve(names[i], yes[:, i], p[:, i], sample.weights) for i in range(len(names))]
    known = [curve for curve in found if curve is not None]
    known.sort(key=lambda curve: curve["auc"])
    return {"of": len(names), "curves": known[:MOST_CURVES]}


def _curve(name: str, yes: NDArray[np.bool_], score: Floats, weight: Floats) -> dict[str, Any] | None:
    """None where all or none of the rows are of the class, or scores are not numbers: then there is no curve."""
    positive, negative = weight * yes, weight * ~yes
    if not positive.sum() or not negative.sum() or np.isnan(score).any():
        return None
    order = np.argsort(-score, kind="stable")
    last = np.append(np.flatnonzero(np.diff(score[order])), len(order) - 1)  # where equal scores end
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
    """The corners of a curve; where they are many, so many points evenly along it, its ends among them."""
    dx, dy = np.diff(x), np.diff(y)
    corner = np.ones(len(x), dtype=np.bool_)
    corner[1:-1] = np.abs(dx[1:] * dy[:-1] - dx[:-1] * dy[1:]) > 1e-15
    x, y = x[corner], y[corner]
    if len(x) > POINTS:
        way = np.cumsum(np.hypot(np.diff(x, prepend=x[0]), np.diff(y, prepend=y[0])))
        places = np.unique(np.searchsorted(way, np.linspace(0, way[-1], POINTS)).clip(0, len(x) - 1))
        places = np.unique(np.append(places, [0, len(x) - 1]))
        x, y = x[places], y[places]
    return [[round(float(a), 5), round(float(b), 5)] for a, b in zip(x, y, strict=True)]


# Calibration


def calibration(sample: Sample) -> dict[str, Any] | None:
    """None where there are no probabilities, or not of numbers."""
    task = sample.task
    if not task.classifies or losses.get(sample.loss).link not in ("softmax", "sigmoid"):
        return None
    truth, p = sample.sides
    if np.isnan(p).any():
        return None
    if task.kind == "multiclass":
        given, came, of = p.max(1), p.argmax(1) == truth, "the class predicted"
    elif task.kind == "binary":
        given, came, of = p[:, 1], truth == 1, labels_of(task)[1]
    else:
        given, came, of = p.reshape(-1), truth.reshape(-1) > 0.5, "every label"
    place = np.minimum((given * BINS).astype(np.int64), BINS - 1)
    bins: list[dict[str, Any]] = []
    for k in range(BINS):
        here = place == k
        n = int(here.sum())
        if n:
            low, high = exact_interval(int(came[here].sum()), n)
            shares = {"given": float(given[here].mean()), "came": float(came[here].mean()), "low": low, "high": high}
            bins.append({"from": k / BINS, "to": (k + 1) / BINS, "rows": n, **shares})
    draws = [
        _ece(given, random.uniform(0, Purpose.MEASURE, rows=np.array([i]), units=len(given), part=1)[0] < given, place)
        for i in range(SIMULATIONS if len(given) < 20_000 else SIMULATIONS // 10)
    ]
    lean = float(given.mean() - came.mean())
    return {
        "of": of,
        "bins": bins,
        "ece": _ece(given, came, place),
        "chance": float(np.quantile(draws, 0.95)),
        "lean": lean,
    }


def _ece(given: Floats, came: NDArray[np.bool_], place: NDArray[np.int64]) -> float:
    gap = np.bincount(place, weights=given, minlength=BINS) - np.bincount(place, weights=came, minlength=BINS)
    return float(np.abs(gap).sum() / len(given))


# Numbers


def residuals(sample: Sample) -> list[dict[str, Any]] | None:
    """Predicted against true, and how far off, for each target."""
    if sample.task.classifies:
        return None
    truth, given = sample.sides
    places = np.arange(len(truth))
    if len(places) > SCATTER:
        places = np.sort(random.permutation(len(places), seed=0, epoch=0)[:SCATTER])
    return [
        {
            "target": str(name),
            "points": [[number(truth[i, t]), number(given[i, t])] for i in places],
            "rows": len(truth),
            "histogram": histogram(given[:, t] - truth[:, t], bins=HISTOGRAM),
            "bias": number(float(np.mean(given[:, t] - truth[:, t]))),
        }
        for t, name in enumerate(sample.task.names)
    ]


def histogram(values: Floats, *, bins: int | Floats) -> dict[str, Any] | None:
    """Counts in bins of equal width, so many or between these edges; None where no value is finite."""
    known = values[np.isfinite(values)]
    if not len(known):
        return None
    counts, edges = np.histogram(known, bins=1 if isinstance(bins, int) and known.min() == known.max() else bins)
    return {"low": float(edges[0]), "high": float(edges[-1]), "counts": counts.tolist()}


def coverage(sample: Sample) -> list[dict[str, Any]] | None:
    """For each predicted quantile the share of rows below it, and the exact interval of that share."""
    loss = losses.get(sample.loss)
    if loss.name != "quantile":
        return None
    levels = loss.constant("q")
    truth, _ = sample.sides
    given = np.asarray(targets.decode(sample.task, sample.z, sample.loss)).reshape(len(truth), -1, len(levels))
    found: list[dict[str, Any]] = []
    for t, name in enumerate(sample.task.names):
        for k, level in enumerate(levels):
            below = int((truth[:, t] <= given[:, t, k]).sum())
            low, high = exact_interval(below, len(truth))
            share = {"share": below / len(truth), "low": low, "high": high}
            found.append({"target": str(name), "level": float(level), **share})
    return found
