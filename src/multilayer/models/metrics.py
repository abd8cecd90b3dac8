"""Metrics of predictions, from raw outputs z and targets y as an engine has them.

    metric              tasks              definition
    accuracy            classes, labels    fraction of correct rows; for labels, of correct yes-or-no answers
    balanced_accuracy   classes            recall, averaged over the classes
    log_loss            classes, labels    −log of the probability of the true class; lower is better
    auc                 classes, labels    area under the ROC curve; with more than two classes, the mean of one-vs-rest
    average_precision   classes, labels    precision at each positive row as the threshold, averaged over these rows;
                                           with more than two classes, the mean of one-vs-rest
    f1                  classes, labels    F1 of the positive class; with more than two classes, the mean over classes
    rmse, mae           numbers            error in the units of the target, averaged over targets; lower is better
    r2                  numbers            1 − squared error / variance, averaged over targets

All metrics accept sample weights. They use only numpy, because importing scikit-learn takes longer than training a
small network. A metric without a value, such as the AUC of a single class, is NaN. If the model predicts several
quantiles, the median is evaluated (`targets.middle`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..data import Task, targets
from ..errors import OptionError, unknown_name

Array = NDArray[Any]
Floats = NDArray[np.float64]

CLASSES = ("binary", "multiclass")
LABELS = (*CLASSES, "multilabel")
NUMBERS = ("regression", "multioutput")


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric with its name, the tasks that it fits, and its function `function(truth, predicted, weight)`.

    The function receives class indices (N) and probabilities (N, C) for classes, labels and probabilities (N, T) for
    labels, and numbers (N, T) twice for regression.
    """

    name: str
    function: Callable[[Array, Array, Floats], float]
    tasks: tuple[str, ...]
    better: Literal["higher", "lower"] = "higher"


def accuracy(truth: Array, p: Floats, weight: Floats) -> float:
    right = (p.argmax(1) == truth) if truth.ndim == 1 else ((p > 0.5) == (truth > 0.5)).mean(1)
    return _mean(right, weight)


def log_loss(truth: Array, p: Floats, weight: Floats) -> float:
    tiny = np.finfo(np.float64).eps  # as in scikit-learn
    p = np.clip(p, tiny, 1 - tiny)
    if truth.ndim == 1:
        return _mean(-np.log(p[np.arange(len(truth)), truth] / p.sum(1)), weight)
    return _mean(-(truth * np.log(p) + (1 - truth) * np.log(1 - p)).mean(1), weight)


def balanced_accuracy(truth: Array, p: Floats, weight: Floats) -> float:
    right = weight * (p.argmax(1) == truth)
    found = [_share(right[truth == c].sum(), weight[truth == c].sum()) for c in np.unique(truth)]
    return float(np.mean(found))


def auc(truth: Array, p: Floats, weight: Floats) -> float:
    sides = one_against_rest(truth, p, weight)
    areas = [area_under_curve(score, yes, no) for score, yes, no in sides if yes.sum() > 0 and no.sum() > 0]
    return float(np.mean(areas)) if areas else float("nan")


def average_precision(truth: Array, p: Floats, weight: Floats) -> float:
    found = [mean_precision(score, yes, no) for score, yes, no in one_against_rest(truth, p, weight) if yes.sum() > 0]
    return float(np.mean(found)) if found else float("nan")


def one_against_rest(truth: Array, p: Floats, weight: Floats) -> list[tuple[Floats, Floats, Floats]]:
    """Return the score, the weights of the rows in the class, and the weights of the others: per class (N), (N), (N).

    Two classes have one such triple, that of the second class.
    """
    several = truth if truth.ndim == 2 else truth[:, None] == np.arange(p.shape[1])  # (N, C)
    if truth.ndim == 1 and p.shape[1] == 2:
        several, p = several[:, 1:], p[:, 1:]
    yes, no = weight[:, None] * several, weight[:, None] * (1 - several)  # (N, C)
    return [(p[:, i], yes[:, i], no[:, i]) for i in range(p.shape[1])]


def area_under_curve(score: Floats, yes: Floats, no: Floats) -> float:
    """Return the probability that a positive row has a higher score than a negative one; ties count half.

    This is the Mann–Whitney statistic. `yes` and `no` are the weights of each row in the two groups.
    """
    if np.isnan(score).any():
        return float("nan")
    above, level = _by_score(score, yes, no)
    below = np.cumsum(level) - level / 2
    return float((above * below).sum() / (above.sum() * level.sum()))


def mean_precision(score: Floats, yes: Floats, no: Floats) -> float:
    """Return the precision at each score as the threshold, averaged over the positive rows.

    `yes` and `no` are the weights of each row in the two groups.
    """
    if np.isnan(score).any():
        return float("nan")
    hits, alarms = (side[::-1] for side in _by_score(score, yes, no))  # from the highest score
    precision = np.divide(np.cumsum(hits), np.cumsum(hits + alarms), out=np.zeros_like(hits), where=hits > 0)
    return float((hits * precision).sum() / hits.sum())


def _by_score(score: Floats, yes: Floats, no: Floats) -> tuple[Floats, Floats]:
    """Return the total weight of both groups at each distinct score, in ascending order."""
    ranked, rank = np.unique(score, return_inverse=True)
    above, level = (np.bincount(rank, weights=side, minlength=len(ranked)) for side in (yes, no))
    return above.astype(np.float64), level.astype(np.float64)


def f1(truth: Array, p: Floats, weight: Floats) -> float:
    if truth.ndim == 2:
        sides = [(truth[:, i] > 0.5, p[:, i] > 0.5) for i in range(truth.shape[1])]
    else:
        given = p.argmax(1)
        classes = [1] if p.shape[1] == 2 else np.union1d(truth, given)
        sides = [(truth == c, given == c) for c in classes]
    # 2 hits / (2 hits + misses + false alarms)
    return float(np.mean([_share(2 * weight[t & g].sum(), weight[t].sum() + weight[g].sum()) for t, g in sides]))


def rmse(truth: Floats, given: Floats, weight: Floats) -> float:
    squares = [_mean((truth[:, i] - given[:, i]) ** 2, weight) for i in range(truth.shape[1])]
    return float(np.mean(np.sqrt(squares)))


def mae(truth: Floats, given: Floats, weight: Floats) -> float:
    return _mean(np.abs(truth - given).mean(1), weight)


def r2(truth: Floats, given: Floats, weight: Floats) -> float:
    scores: list[float] = []
    for i in range(truth.shape[1]):
        y = truth[:, i]
        spread = _mean((y - _mean(y, weight)) ** 2, weight)
        scores.append(1 - _mean((y - given[:, i]) ** 2, weight) / spread if spread > 0 else float("nan"))
    return float(np.mean(scores))


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _mean(values: Array, weight: Floats) -> float:
    return float(np.average(values, weights=weight))


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(name="accuracy", function=accuracy, tasks=LABELS),
        Metric(name="balanced_accuracy", function=balanced_accuracy, tasks=CLASSES),
        Metric(name="log_loss", function=log_loss, tasks=LABELS, better="lower"),
        Metric(name="auc", function=auc, tasks=LABELS),
        Metric(name="average_precision", function=average_precision, tasks=LABELS),
        Metric(name="f1", function=f1, tasks=LABELS),
        Metric(name="rmse", function=rmse, tasks=NUMBERS, better="lower"),
        Metric(name="mae", function=mae, tasks=NUMBERS, better="lower"),
        Metric(name="r2", function=r2, tasks=NUMBERS),
    )
}

USUAL: dict[str, tuple[str, ...]] = {
    "binary": ("accuracy", "log_loss", "auc"),
    "multiclass": ("accuracy", "log_loss"),
    "multilabel": ("accuracy", "log_loss"),
    "regression": ("rmse", "mae", "r2"),
    "multioutput": ("rmse", "mae", "r2"),
}
"""Metrics of each task that are measured by default."""
MAY_LACK = ("auc", "average_precision", "r2")
"""Metrics that are NaN for rows of a single class or value. Other metrics are NaN only if the network diverged."""


def get(name: str) -> Metric:
    if name not in METRICS:
        raise OptionError(unknown_name("metric", name, (*METRICS, "loss")))
    return METRICS[name]


def larger(name: str) -> bool:
    """Return whether larger values of a metric are better. "loss" is the validation loss."""
    return name != "loss" and get(name).better == "higher"


def fitting(name: str, task: Task) -> Metric:
    """Return the metric with this name. Raise an error if it does not fit the task."""
    metric = get(name)
    if task.kind not in metric.tasks:
        raise OptionError(f"{name} does not fit a {task.kind} task: it has {', '.join(names_for(task))}, loss")
    return metric


def shown(found: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics in the order of `METRICS`, without those that are NaN because the rows have a single class.

    >>> shown({"log_loss": 0.5, "auc": float("nan"), "accuracy": 1.0})
    {'accuracy': 1.0, 'log_loss': 0.5}
    """
    ordered = [name for name in METRICS if name in found] + [name for name in found if name not in METRICS]
    return {name: found[name] for name in ordered if not (name in MAY_LACK and math.isnan(found[name]))}


def names_for(task: Task) -> tuple[str, ...]:
    """Return the names of all metrics that fit the task."""
    return tuple(name for name, metric in METRICS.items() if task.kind in metric.tasks)


def measure(
    task: Task, y: Array, z: Array, *, loss: str, weight: Array | None = None, names: Iterable[str] | None = None
) -> dict[str, float]:
    """Return the metrics of raw outputs z for targets y, both as an engine has them.

    >>> from multilayer.data import Task
    >>> task = Task(kind="binary", names=("y",), classes=((0, 1),))
    >>> measure(task, np.array([[0.0], [1.0]]), np.array([[-2.0], [3.0]]), loss="binary_cross_entropy", names=["auc"])
    {'auc': 1.0}
    """
    chosen = [fitting(name, task) for name in (USUAL[task.kind] if names is None else names)]
    if not len(z):
        return {metric.name: float("nan") for metric in chosen}
    weights = np.ones(len(z)) if weight is None else np.asarray(weight, dtype=np.float64)
    truth, given = truth_and_given(task, np.asarray(y), np.asarray(z), loss)
    return {metric.name: metric.function(truth, given, weights) for metric in chosen}


def truth_and_given(task: Task, y: Array, z: Array, loss: str) -> tuple[Array, Array]:
    """Return the true targets and the predictions, in the form that the functions of the metrics need."""
    if not task.classifies:
        truth = task.units.invert(np.asarray(y, dtype=np.float64))  # (N, T)
        given = targets.middle(targets.decode(task, z, loss), loss)
        return truth, given.reshape(truth.shape)
    p = targets.probabilities(task, z, loss)
    if task.kind == "multilabel":
        return y, p
    if y.ndim == 2:
        y = y[:, 0] > 0.5 if y.shape[1] == 1 else y.argmax(1)
    return y.astype(np.int64), p
