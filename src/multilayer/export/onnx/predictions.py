"""From the raw outputs of the members to predictions, in float64: `label` and `probabilities`, or `prediction`.

    m = mean over members of link(zₘ/T)        softmax, sigmoid or exp; without a link m = mean zₘ, within its bounds

`calibration.combined` returns the inverse of the link of m. Each target is a column. Several quantiles of a target are
an additional axis, as in `TrainedModel.predict`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...data import Encoding
from ...data.targets import values_of
from ...nn import losses
from ...nn.calibration import Calibration
from ...nn.losses import Loss
from .graph import ROWS, Graph, Port

LABEL, PROBABILITIES, PREDICTION = "label", "probabilities", "prediction"
NAMES = (LABEL, PROBABILITIES, PREDICTION)


def ports(encoding: Encoding) -> list[Port]:
    """Return the outputs of the model."""
    task = encoding.task
    T = len(task.names)
    if not task.classifies:
        Q = losses.get(encoding.loss).per_target
        shape = (ROWS, *([T] if T > 1 else []), *([Q] if Q > 1 else []))
        return [
            Port(
                name=PREDICTION,
                dtype=np.float64,
                shape=shape,
                description=f"{', '.join(task.names)}, in the units of the target",
            )
        ]
    several = task.kind == "multilabel"
    classes = _labels(encoding)
    description = f"of {', '.join(task.names)}" if several else f"of {', '.join(map(str, task.classes[0]))}"
    width = T if several else len(task.classes[0])
    return [
        Port(name=LABEL, dtype=classes.dtype, shape=(ROWS, T) if several else (ROWS,), description=task.describe()),
        Port(name=PROBABILITIES, dtype=np.float64, shape=(ROWS, width), description=description),
    ]


def write(
    g: Graph,
    encoding: Encoding,
    members: Sequence[str],
    calibration: Calibration | None,
    weights: Sequence[float] | None = None,
) -> None:
    """Write the outputs of the model, from z (B, O) of each member."""
    g.place = "answer/"
    loss = losses.get(encoding.loss)
    m = _average(g, loss, members, calibration, weights)
    found = _classes(g, encoding, loss, m) if encoding.task.classifies else [_numbers(g, encoding, loss, m)]
    for port, value in zip(ports(encoding), found, strict=True):
        g.write_output(value, port)


def _average(
    g: Graph, loss: Loss, members: Sequence[str], calibration: Calibration | None, weights: Sequence[float] | None
) -> str:
    """Return the weighted mean m (B, O) over the members."""
    z = [g.cast(one, np.float64) for one in members]
    if calibration is not None and loss.gives_probabilities:
        z = [g.op("Div", one, np.float64(calibration.temperature)) for one in z]
    link = {"softmax": "Softmax", "sigmoid": "Sigmoid", "exp": "Exp"}.get(loss.link or "")
    if link is not None:
        z = [g.op(link, one) for one in z]
    if weights is not None:
        z = [g.op("Mul", one, np.float64(weight)) for one, weight in zip(z, weights, strict=True)]
    m = g.op("Div", g.op("Sum", *z), np.float64(sum(weights or [1] * len(z)))) if len(z) > 1 else z[0]
    if calibration is not None and len(calibration.low):
        low, high = calibration.low, calibration.high
        if loss.link == "exp":
            low, high = np.exp(low), np.exp(high)
        m = g.op("Min", g.op("Max", m, low), high)
    return m


def _numbers(g: Graph, encoding: Encoding, loss: Loss, m: str) -> str:
    task = encoding.task
    units = task.units.at(np.repeat(np.arange(len(task.names)), loss.per_target))  # (T·Q,)
    y = g.op("Add", g.op("Mul", m, units.scale), units.center)
    if loss.per_target > 1:  # in increasing order
        apart = g.op("Reshape", y, np.array([0, -1, loss.per_target]))
        y = g.sorted(apart, loss.per_target, axis=2)
    return g.op("Reshape", y, np.array([0, *ports(encoding)[0].shape[1:]]))


def _classes(g: Graph, encoding: Encoding, loss: Loss, m: str) -> list[str]:
    """Return labels and probabilities, as `Encoding.decode` and `Encoding.probabilities` do."""
    task, labels = encoding.task, _labels(encoding)
    if task.kind == "multilabel":
        p = _positive_class(g, loss, m)
        place = g.cast(g.op("Greater", p, np.float64(0.5)), np.int64)
        return [g.op("Gather", labels.reshape(-1), g.op("Add", place, 2 * np.arange(len(task.names)))), p]
    if encoding.outputs == 1:
        p = _positive_class(g, loss, m)
        limit = np.float64(0 if loss.link == "step" else 0.5)
        place = g.cast(g.op("Squeeze", g.op("Greater", m, limit), np.array([1])), np.int64)
        both = g.op("Concat", g.op("Sub", np.float64(1), p), p, axis=1)
        return [g.op("Gather", labels, place), both]
    place = g.op("ArgMax", m, axis=1, keepdims=0)
    p = m
    if loss.link != "softmax":
        p = m if loss.link == "sigmoid" else _positive(g, m, place, encoding.outputs)
        p = g.op("Div", p, g.op("ReduceSum", p, np.array([1])))
    return [g.op("Gather", labels, place), p]


def _positive_class(g: Graph, loss: Loss, m: str) -> str:
    """Return the probability of the positive class for each output."""
    if loss.link == "sigmoid":
        return m
    if loss.link == "step":
        return g.cast(g.op("Greater", m, np.float64(0)), np.float64)
    return g.op("Clip", m, np.float64(0), np.float64(1))


def _positive(g: Graph, m: str, best: str, n: int) -> str:
    """Return the positive parts of the scores. If no score is positive, the best class gets probability 1."""
    p = g.op("Max", m, np.float64(0))
    any_positive = g.op("Greater", g.op("ReduceMax", p, np.array([1])), np.float64(0))  # (B, 1)
    best_only = g.op("Equal", g.op("Unsqueeze", best, np.array([1])), np.arange(n))  # (B, n)
    return g.op("Where", any_positive, p, g.cast(best_only, np.float64))


def _labels(encoding: Encoding) -> NDArray[Any]:
    """Return the classes (C,), or the two classes of each label (T, 2), in their common type."""
    found = encoding.task.classes
    values = values_of(found[0]) if len(found) == 1 else np.stack([values_of(pair) for pair in found])
    return values.astype(np.object_) if values.dtype.kind == "U" else values
