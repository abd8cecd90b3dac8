"""The losses: what each measures, its gradient and its cost.

A network gives raw outputs z (B, C); the link that turns them into a prediction belongs to the loss. `rows(z, y)` is the
loss of each row (B,), `slope(z, y)` its derivative by z (B, C). The loss of a batch is the mean over rows, so that
δ = slope/B already holds the only division by B.

    name                   loss of a row                                  link       slope
    cross_entropy          −Σ_c y_c log softmax(z)_c                      softmax    softmax(z) − y
    binary_cross_entropy   mean_c softplus(z) − y z                       sigmoid    (σ(z) − y)/C
    mse                    mean_c (z − y)²                                           2(z − y)/C
    mae                    mean_c |z − y|                                            sign(z − y)/C
    huber                  mean_c ½e² if |e| ≤ 1 else |e| − ½                        clip(e, ±1)/C
    quantile               mean_c max(q e, (q − 1) e),  e = y − z                    (1[e < 0] − q)/C
    poisson                mean_c exp(z) − y z                            exp        (exp(z) − y)/C
    perceptron             mean_c max(0, −t z),  t = ±1                   step       −t 1[t z ≤ 0]/C

Gradient descent on `perceptron` with a batch of one row and rate 1 is the perceptron rule (Rosenblatt 1958). The right
answer for a target of 0 or 1 is t = 2y − 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import activations
from .activations.function import Array, Kept
from .activations.special import logistic
from .errors import OptionError, unknown_name

Targets = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Loss:
    """One loss. FLOPs are per row and output; `kept` is what PyTorch keeps of it per row of C outputs."""

    name: str
    formula: str
    link: str | None
    link_flops: int
    rows: Callable[[Array, Targets], Array]
    slope: Callable[[Array, Targets], Array]
    flops: int
    flops_backward: int
    kept: Callable[[int], Kept]
    classes: bool = False
    """Whether the target is one class number per row."""


def _log_softmax(z: Array) -> Array:
    shifted = z - z.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def _one_hot(z: Array, y: Targets) -> Array:
    return np.asarray(np.eye(z.shape[-1], dtype=z.dtype)[y])


def _cross_entropy(z: Array, y: Targets) -> Array:
    return -(_log_softmax(z) * _one_hot(z, y)).sum(-1)


def _mean(values: Array) -> Array:
    return np.asarray(values.mean(-1))


def _sign(y: Targets) -> Array:
    return 2 * y.astype(np.float64) - 1


def _pinball(e: Array, q: float) -> Array:
    return np.maximum(q * e, (q - 1) * e)


def _one(name: str, **facts: Any) -> Loss:
    return Loss(name=name, **facts)


QUANTILE = 0.5

LOSSES: dict[str, Loss] = {
    loss.name: loss
    for loss in (
        _one(
            "cross_entropy",
            formula="−log softmax(z)[y]",
            link="softmax",
            link_flops=activations.get("softmax").flops,
            rows=_cross_entropy,
            slope=lambda z, y: np.exp(_log_softmax(z)) - _one_hot(z, y),
            flops=2,
            flops_backward=2,
            kept=lambda C: Kept(per_row=C, per_batch=1),  # log-probabilities, and the number of rows
            classes=True,
        ),
        _one(
            "binary_cross_entropy",
            formula="softplus(z) − y·z",
            link="sigmoid",
            link_flops=activations.get("sigmoid").flops,
            rows=lambda z, y: _mean(np.logaddexp(0, z) - y * z),
            slope=lambda z, y: (logistic(z) - y) / z.shape[-1],
            flops=4,
            flops_backward=2,
            kept=lambda C: Kept(input=True),
        ),
        _one(
            "mse",
            formula="(z − y)²",
            link=None,
            link_flops=0,
            rows=lambda z, y: _mean((z - y) ** 2),
            slope=lambda z, y: 2 * (z - y) / z.shape[-1],
            flops=3,
            flops_backward=2,
            kept=lambda C: Kept(input=True),
        ),
        _one(
            "mae",
            formula="|z − y|",
            link=None,
            link_flops=0,
            rows=lambda z, y: _mean(np.abs(z - y)),
            slope=lambda z, y: np.sign(z - y) / z.shape[-1],
            flops=3,
            flops_backward=2,
            kept=lambda C: Kept(per_row=C),  # z − y, whose sign is the slope
        ),
        _one(
            "huber",
            formula="½e² if |e| ≤ 1 else |e| − ½,  e = z − y",
            link=None,
            link_flops=0,
            rows=lambda z, y: _mean(np.where(np.abs(z - y) <= 1, 0.5 * (z - y) ** 2, np.abs(z - y) - 0.5)),
            slope=lambda z, y: np.clip(z - y, -1, 1) / z.shape[-1],
            flops=6,
            flops_backward=4,
            kept=lambda C: Kept(input=True),
        ),
        _one(
            "quantile",
            formula="max(q·e, (q − 1)·e),  e = y − z",
            link=None,
            link_flops=0,
            rows=lambda z, y: _mean(_pinball(y - z, QUANTILE)),
            slope=lambda z, y: ((y - z < 0) - QUANTILE * (y - z != 0)) / z.shape[-1],
            flops=5,
            flops_backward=3,
            kept=lambda C: Kept(per_row=2 * C),  # q·e and (q − 1)·e
        ),
        _one(
            "poisson",
            formula="exp(z) − y·z",
            link="exp",
            link_flops=1,
            rows=lambda z, y: _mean(np.exp(z) - y * z),
            slope=lambda z, y: (np.exp(z) - y) / z.shape[-1],
            flops=3,
            flops_backward=2,
            kept=lambda C: Kept(per_row=C),  # exp(z)
        ),
        _one(
            "perceptron",
            formula="max(0, −t·z),  t = 2y − 1",
            link="step",
            link_flops=1,
            rows=lambda z, y: _mean(np.maximum(0, -_sign(y) * z)),
            slope=lambda z, y: -_sign(y) * (_sign(y) * z <= 0) / z.shape[-1],
            flops=3,
            flops_backward=2,
            kept=lambda C: Kept(per_row=C),  # the signs t
        ),
    )
}


def get(name: str) -> Loss:
    if name not in LOSSES:
        raise OptionError(unknown_name("loss", name, (*LOSSES, "auto")))
    return LOSSES[name]


def auto(d_out: int) -> Loss:
    """Softmax cross-entropy for more than one output, mean squared error for one."""
    return LOSSES["cross_entropy" if d_out > 1 else "mse"]
