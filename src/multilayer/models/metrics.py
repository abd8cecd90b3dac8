"""How good predictions are, from raw outputs z and targets y as an engine has them.

    accuracy            classes, labels    share of rows (labels: of yes-or-no answers) that are right
    balanced_accuracy   classes            mean over classes of the share found
    log_loss            classes, labels    −log of the probability given to the truth; lower is better
    auc                 classes, labels    area under the ROC curve; more than two: mean of one against the rest
    f1                  classes, labels    of the positive class; more than two: mean over them
    rmse, mae           numbers            in the target's own units; several: mean over them; lower is better
    r2                  numbers            1 − squared error/variance; several: mean over them

All take sample weights, and are plain numpy: importing scikit-learn would take longer than many an epoch. What has no
value (one class alone, no rows) is NaN. Of several quantiles the median is judged (`targets.middle`).
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
    """`function(truth, given, weight)`: class numbers and probabilities (N, C), labels and probabilities (N, T), or
    numbers (N, T) both."""

    name: str
    function: Callable[[Array, Array, Floats], float]
    tasks: tuple[str, ...]
    better: Literal["higher", "lower"] = "higher"


def accuracy(truth: Array, p: Floats, weight: Floats) -> float:
    right = (p.argmax(1) == truth) if truth.ndim == 1 else ((p > 0.5) == (truth > 0.5)).mean(1)
    return _mean(right, weight)


def log_loss(truth: Array, p: Floats, weight: Floats) -> float:
    tiny = np.finfo(np.float64).eps  # as scikit-learn has it
    p = np.clip(p, tiny, 1 - tiny)
    if truth.ndim == 1:
        return _mean(-np.log(p[np.arange(len(truth)), truth] / p.sum(1)), weight)
    return _mean(-(truth * np.log(p) + (1 - truth) * np.log(1 - p)).mean(1), weight)


def balanced_accuracy(truth: Array, p: Floats, weight: Floats) -> float:
    right = weight * (p.argmax(1) == truth)
    found = [_share(right[truth == c].sum(), weight[truth == c].sum()) for c in np.unique(truth)]
    return float(np.mean(found))


def auc(truth: Array, p: Floats, weight: Floats) -> float:
    several = truth if truth.ndim == 2 else truth[:, None] == np.arange(p.shape[1])  # (N, C)
    if truth.ndim == 1 and p.shape[1] == 2:
        several, p = several[:, 1:], p[:, 1:]
    yes, no = weight[:, None] * several, weight[:, None] * (1 - several)  # (N, C)
    both = (yes.sum(0) > 0) & (no.sum(0) > 0)
    areas = [area_under_curve(p[:, i], yes[:, i], no[:, i]) for i in np.flatnonzero(both)]
    return float(np.mean(areas)) if areas else float("nan")


def area_under_curve(score: Floats, yes: Floats, no: Floats) -> float:
    """The chance that a row that is so scores above one that is not; half of it where they are equal (Mann–Whitney)."""
    if np.isnan(score).any():
        return float("nan")
    ranked, rank = np.unique(score, return_inverse=True)
    above, level = (np.bincount(rank, weights=side, minlength=len(ranked)) for side in (yes, no))
    below = np.cumsum(level) - level / 2
    return float((above * below).sum() / (above.sum() * level.sum()))


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
"""What is measured unless told."""
MAY_LACK = ("auc", "r2")
"""Those that rows of one class or one value do not have. Any other that is NaN tells of a network that diverged."""


def get(name: str) -> Metric:
    if name not in METRICS:
        raise OptionError(unknown_name("metric", name, (*METRICS, "loss")))
    return METRICS[name]


def larger(name: str) -> bool:
    """Whether more of a metric is better; "loss" is the validation loss."""
    return name != "loss" and get(name).better == "higher"


def fitting(name: str, task: Task) -> Metric:
    """The metric of that name, refused where the task has none such."""
    metric = get(name)
    if task.kind not in metric.tasks:
        raise OptionError(f"{name} does not fit a {task.kind} task: it has {', '.join(names_for(task))}, loss")
    return metric


def shown(found: Mapping[str, float]) -> dict[str, float]:
    """The metrics without those that have no value on such rows: a class without rows has no area under a curve.

    >>> shown({"accuracy": 1.0, "auc": float("nan")})
    {'accuracy': 1.0}
    """
    return {name: value for name, value in found.items() if not (name in MAY_LACK and math.isnan(value))}


def names_for(task: Task) -> tuple[str, ...]:
    """Every metric that a task has."""
    return tuple(name for name, metric in METRICS.items() if task.kind in metric.tasks)


def measure(
    task: Task, y: Array, z: Array, *, loss: str, weight: Array | None = None, names: Iterable[str] | None = None
) -> dict[str, float]:
    """The metrics of raw outputs z against targets y, both as an engine has them.

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
