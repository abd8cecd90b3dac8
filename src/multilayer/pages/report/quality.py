"""How good a model is: every metric of its task with an interval, beside a guess that knows nothing, and confusions.

Intervals cover 95 %. Accuracy of rows that count alike is a share, and has the exact interval of Clopper & Pearson
(1934); everything else has the percentiles of a bootstrap over rows (Efron 1979), whose draws are those of the one
random stream, so that the same model and rows have the same interval.

The guess always answers what was most frequent in training, with the shares of training as its probabilities; for
numbers it is the mean of training. Where training rows are not at hand, it knows the rows that are judged.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core import random
from ...core.random import Purpose
from ...data.targets import Task
from ...models import metrics
from .intervals import TAIL, exact_interval
from .sample import Floats, Sample

DRAWS, FEWEST_DRAWS = 400, 100
WORK = 700_000
"""Rows times outputs that may be drawn in all, so that many rows are drawn fewer times."""
MOST_DRAWN = 20_000
"""Rows that are drawn from; the intervals of more follow from theirs."""
MOST_CLASSES = 25
"""Classes of which a whole confusion matrix is shown."""
MOST_PAIRS = 10

Guess = tuple[Floats, Floats]
"""Shares of classes or of yes (C,), and means of numbers (T,); one of them is empty."""


def number(value: float) -> float | None:
    """For JSON, which has no NaN and no infinity."""
    return float(value) if math.isfinite(value) else None


def figures(judged: Sample, train: Sample | None, guess: Guess) -> list[dict[str, Any]]:
    """Every metric of the task: value, interval, the same on training rows and of a guess."""
    names = metrics.names_for(judged.task)
    here = _measured(judged, names)
    there = None if train is None else _measured(train, names)
    blind = _guessed(judged, guess, names)
    found: list[dict[str, Any]] = []
    drawn = _drawn(judged, names)
    for name in names:
        low, high, how = drawn[name]
        found.append(
            {
                "name": name,
                "value": number(here[name]),
                "low": number(low),
                "high": number(high),
                "how": how,
                "better": metrics.get(name).better,
                "train": None if there is None else number(there[name]),
                "baseline": number(blind[name]),
            }
        )
    return found


def _measured(sample: Sample, names: tuple[str, ...]) -> dict[str, float]:
    truth, given = sample.sides
    with np.errstate(all="ignore"):
        return {name: metrics.get(name).function(truth, given, sample.weights) for name in names}


def guess_of(train: Sample) -> Guess:
    """What training rows alone say, whatever the inputs."""
    truth, given = train.sides
    if not train.task.classifies:
        return np.zeros(0), truth.mean(0)
    if train.task.kind == "multilabel":
        return truth.mean(0), np.zeros(0)
    return np.bincount(truth, minlength=given.shape[1]) / len(truth), np.zeros(0)


def _guessed(judged: Sample, guess: Guess, names: tuple[str, ...]) -> dict[str, float]:
    truth, given = judged.sides
    constant = guess[0] if judged.task.classifies else guess[1]
    blind = np.broadcast_to(constant, given.shape)
    with np.errstate(all="ignore"):
        return {name: metrics.get(name).function(truth, blind, judged.weights) for name in names}


# Intervals


def _drawn(sample: Sample, names: tuple[str, ...]) -> dict[str, tuple[float, float, str]]:
    truth, given = sample.sides
    n = len(sample)
    exact = "accuracy" in names and truth.ndim == 1 and sample.weight is None
    found: dict[str, tuple[float, float, str]] = {}
    if exact:
        low, high = exact_interval(int((given.argmax(1) == truth).sum()), n)
        found["accuracy"] = low, high, "exact"
    rest = [name for name in names if name not in found]
    weights, shrink = sample.weights, 1.0
    if n > MOST_DRAWN:  # intervals of fewer rows are wider by √(n/m) around the same value
        some = np.sort(random.permutation(n, seed=0, epoch=0)[:MOST_DRAWN])
        truth, given, weights, shrink = truth[some], given[some], weights[some], math.sqrt(MOST_DRAWN / n)
    draws = max(FEWEST_DRAWS, min(DRAWS, WORK // max(given.size, 1)))
    for name, values in _bootstrap(truth, given, weights, rest, draws).items():
        known = values[~np.isnan(values)]
        low, high = np.quantile(known, [TAIL, 1 - TAIL]) if len(known) else (math.nan, math.nan)
        if shrink < 1:
            function = metrics.get(name).function
            here, all_of_them = function(truth, given, weights), function(*sample.sides, sample.weights)
            low, high = (all_of_them + shrink * (end - here) for end in (low, high))
        found[name] = float(low), float(high), f"bootstrap of {draws}"
    return found


def _bootstrap(truth: Any, given: Any, weights: Floats, names: list[str], draws: int) -> dict[str, Floats]:
    n, values = len(weights), np.empty((draws, len(names)))
    with np.errstate(all="ignore"):
        for draw in range(draws):
            places = (random.uniform(0, Purpose.MEASURE, rows=np.array([draw]), units=n)[0] * n).astype(np.int64)
            # A row drawn k times counts k times: no row is copied.
            weight = np.bincount(places, minlength=n) * weights
            values[draw] = [metrics.get(name).function(truth, given, weight) for name in names]
    return dict(zip(names, values.T, strict=True))


# Confusions


def labels_of(task: Task) -> list[str]:
    """What classes are called."""
    return [str(value) for value in task.classes[0]]


def confusion(sample: Sample) -> dict[str, Any] | None:
    """Rows by their class and the one predicted; where classes are many, only which are taken for which."""
    task = sample.task
    if task.kind not in metrics.CLASSES:
        return None
    truth, given = sample.sides
    labels = labels_of(task)
    counts = _counts(truth, given.argmax(1), len(labels))
    wrong = counts - np.diag(np.diag(counts))
    order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_PAIRS]
    pairs = [(int(i), int(j)) for i, j in zip(*np.unravel_index(order, wrong.shape), strict=True) if wrong[i, j]]
    return {
        "labels": labels if len(labels) <= MOST_CLASSES else None,
        "counts": counts.tolist() if len(labels) <= MOST_CLASSES else None,
        "classes": len(labels),
        "pairs": [{"truth": labels[i], "predicted": labels[j], "rows": int(wrong[i, j])} for i, j in pairs],
    }


def _counts(truth: NDArray[Any], given: NDArray[Any], classes: int) -> NDArray[np.int64]:
    return np.bincount(truth * classes + given, minlength=classes * classes).reshape(classes, classes)


def label_table(sample: Sample) -> list[dict[str, Any]] | None:
    """For yes-or-no labels: right and wrong answers of each."""
    if sample.task.kind != "multilabel":
        return None
    truth, given = sample.sides
    found: list[dict[str, Any]] = []
    for i, name in enumerate(sample.task.names):
        yes, said = truth[:, i] > 0.5, given[:, i] > 0.5
        cells = {"hits": yes & said, "misses": yes & ~said, "false_alarms": ~yes & said, "rejections": ~yes & ~said}
        found.append({"label": str(name), **{key: int(cell.sum()) for key, cell in cells.items()}})
    return found
