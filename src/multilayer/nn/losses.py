"""Loss functions: values, gradients and costs.

The outputs z (B, C) of a network are raw. The loss has the link that turns them into predictions. `rows(z, y)` is the
loss of each row, (B,). `slope(z, y)` is its derivative with respect to z, (B, C). The loss of a batch is the mean over
rows, so δ = slope/B.

    name                   loss of a row                                  link       slope
    cross_entropy          −Σ_c t_c log softmax(z)_c                      softmax    softmax(z) − t
    focal                  −Σ_c t_c (1 − p_c)^γ log p_c, p = softmax(z)   softmax
    binary_cross_entropy   mean_c softplus(z) − t z                       sigmoid    (σ(z) − t)/C
    mse                    mean_c (z − y)²                                           2(z − y)/C
    mae                    mean_c |z − y|                                            sign(z − y)/C
    huber                  mean_c ½e² if |e| ≤ δ else δ(|e| − ½δ)                    clip(e, ±δ)/C
    quantile               mean_c max(q e, (q − 1) e),  e = y − z                    (1[e < 0] − q)/C
    poisson                mean_c exp(z) − y z                            exp        (exp(z) − y)/C
    perceptron             mean_c max(0, −t z),  t = 2y − 1               step       −t 1[t z ≤ 0]/C

With label smoothing ε, targets are t = (1 − ε) y + ε/C for C classes, and (1 − ε) y + ε/2 for binary outputs. A loss
with several quantiles of one target, such as `quantile(0.1, 0.5, 0.9)`, needs one output for each. Gradient descent on
`perceptron` with batches of one row and learning rate 1 is the perceptron rule (Rosenblatt 1958).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..core.named_options import choose, require
from ..errors import OptionError
from . import activations
from .activations.function import Array, Kept, logistic

Targets = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A loss with bound constants. FLOPs are per row and output. `kept(C)` is what PyTorch keeps for C outputs."""

    name: str
    formula: str
    constants: tuple[tuple[str, Any], ...] = ()
    link: str | None = None
    link_flops: int = 0
    rows: Callable[[Array, Targets], Array]
    slope: Callable[[Array, Targets], Array]
    flops: int
    flops_backward: int
    kept: Callable[[int], Kept]
    classes: bool = False
    """Whether the target is one class number per row."""
    per_target: int = 1
    """Number of outputs per target."""
    targets: Literal["classes", "numbers", "both"]
    """The targets that the loss accepts: classes (yes or no counts as two classes), numbers, or both."""
    zero_when_separated: bool = False
    """Whether the loss is 0 once every row is on its correct side. Training then stops."""

    @property
    def gives_probabilities(self) -> bool:
        """Whether the link turns outputs into class probabilities, which a temperature can calibrate."""
        return self.link in ("softmax", "sigmoid")

    @property
    def quantiles(self) -> tuple[float, ...]:
        """The quantile levels of the target that the outputs predict; empty for other losses."""
        return dict(self.constants).get("q", ())

    def constant(self, name: str) -> Any:
        """Return the value of a constant."""
        return dict(self.constants)[name]


def cross_entropy(label_smoothing: float = 0.0) -> Loss:
    eps = _smoothing(label_smoothing)

    def targets(z: Array, y: Targets) -> Array:
        C = z.shape[-1]
        share = y if y.ndim == 2 else np.eye(C, dtype=z.dtype)[y]  # mixup gives probabilities
        return (1 - eps) * share + eps / C

    return Loss(
        name="cross_entropy",
        formula="−log softmax(z)[y]",
        constants=(("label_smoothing", eps),),
        link="softmax",
        link_flops=activations.get("softmax").flops,
        rows=lambda z, y: -(_log_softmax(z) * targets(z, y)).sum(-1),
        slope=lambda z, y: np.exp(_log_softmax(z)) - targets(z, y),
        flops=2,
        flops_backward=2,
        # Log-probabilities, and the row count of nll_loss.
        kept=lambda C: Kept(per_row=C, per_batch=1),
        classes=True,
        targets="classes",
    )


def focal(gamma: float = 2.0) -> Loss:
    """Cross-entropy with lower weights for rows that are already classified correctly (Lin et al. 2017)."""
    require("gamma", gamma, gamma >= 0, "at least 0")

    def targets(z: Array, y: Targets) -> Array:
        return y if y.ndim == 2 else np.eye(z.shape[-1], dtype=z.dtype)[y]

    def slope(z: Array, y: Targets) -> Array:
        log_p, t = _log_softmax(z), targets(z, y)
        p, q = np.exp(log_p), -np.expm1(log_p)  # q = 1 − p
        with np.errstate(divide="ignore", invalid="ignore"):
            # At q = 0, the product of q^(γ − 1) and log p is 0.
            falling = np.where(q > 0, gamma * p * q ** (gamma - 1) * log_p, 0.0)
        g = t * (falling - q**gamma)
        return np.asarray(g - p * g.sum(-1, keepdims=True), dtype=z.dtype)

    return Loss(
        name="focal",
        formula="−(1 − p)^γ·log p,  p = softmax(z)[y]",
        constants=(("gamma", gamma),),
        link="softmax",
        link_flops=activations.get("softmax").flops,
        rows=lambda z, y: -(targets(z, y) * (-np.expm1(_log_softmax(z))) ** gamma * _log_softmax(z)).sum(-1),
        slope=slope,
        flops=5,
        flops_backward=8,
        # All log p; p − 1, 1 − p, (1 − p)^γ and log p of the class; and 1 − p before it is limited.
        kept=lambda C: Kept(per_row=C + 4 + (0 < gamma < 1), per_batch=1),
        classes=True,
        targets="classes",
    )


def binary_cross_entropy(label_smoothing: float = 0.0) -> Loss:
    eps = _smoothing(label_smoothing)

    def smooth(y: Targets) -> Array:
        return (1 - eps) * y + eps / 2

    return Loss(
        name="binary_cross_entropy",
        formula="softplus(z) − y·z",
        constants=(("label_smoothing", eps),),
        link="sigmoid",
        link_flops=activations.get("sigmoid").flops,
        rows=lambda z, y: _mean(np.logaddexp(0, z) - smooth(y) * z),
        slope=lambda z, y: (logistic(z) - smooth(y)) / z.shape[-1],
        flops=4,
        flops_backward=2,
        kept=lambda C: Kept(input=True, per_row=C if eps else 0),  # smoothed targets
        targets="classes",
    )


def mse() -> Loss:
    return Loss(
        name="mse",
        formula="(z − y)²",
        rows=lambda z, y: _mean((z - y) ** 2),
        slope=lambda z, y: 2 * (z - y) / z.shape[-1],
        flops=3,
        flops_backward=2,
        kept=lambda C: Kept(input=True),
        targets="both",
    )


def mae() -> Loss:
    return Loss(
        name="mae",
        formula="|z − y|",
        rows=lambda z, y: _mean(np.abs(z - y)),
        slope=lambda z, y: np.sign(z - y) / z.shape[-1],
        flops=3,
        flops_backward=2,
        kept=lambda C: Kept(per_row=C),  # z − y, whose sign is the slope
        targets="both",
    )


def huber(delta: float = 1.0) -> Loss:
    require("delta", delta, delta > 0, "positive")

    def rows(z: Array, y: Targets) -> Array:
        e = np.abs(z - y)
        return _mean(np.where(e <= delta, 0.5 * e**2, delta * (e - 0.5 * delta)))

    return Loss(
        name="huber",
        formula="½e² if |e| ≤ δ else δ·(|e| − ½δ),  e = z − y",
        constants=(("delta", delta),),
        rows=rows,
        slope=lambda z, y: np.clip(z - y, -delta, delta) / z.shape[-1],
        flops=6,
        flops_backward=4,
        kept=lambda C: Kept(input=True),
        targets="both",
    )


def quantile(*q: float) -> Loss:
    """Quantiles q of the target, by default the median. The outputs of a target are its quantiles in order."""
    levels = q or (0.5,)
    for level in levels:
        require("q", level, 0 < level < 1, "above 0 and below 1")
    if list(levels) != sorted(set(levels)):
        raise OptionError(f"quantiles must increase, got {', '.join(f'{level:g}' for level in levels)}")
    Q = len(levels)

    def parts(z: Array, y: Targets) -> tuple[Array, Array]:
        """Return e = y − z (B, C), and q of each output (C,)."""
        return np.repeat(y, Q, axis=-1) - z, np.tile(np.asarray(levels, dtype=z.dtype), z.shape[-1] // Q)

    def rows(z: Array, y: Targets) -> Array:
        e, level = parts(z, y)
        return _mean(np.maximum(level * e, (level - 1) * e))

    def slope(z: Array, y: Targets) -> Array:
        e, level = parts(z, y)
        return ((e < 0) + 0.5 * (e == 0) - level) / z.shape[-1]  # at e = 0 the mean of both sides, as in torch

    return Loss(
        name="quantile",
        formula="max(q·e, (q − 1)·e),  e = y − z",
        constants=(("q", levels),),
        rows=rows,
        slope=slope,
        flops=5,
        flops_backward=3,
        kept=lambda C: Kept(per_row=2 * C, per_batch=2 * C),  # q·e and (q − 1)·e; q and q − 1
        per_target=Q,
        targets="numbers",
    )


def poisson() -> Loss:
    return Loss(
        name="poisson",
        formula="exp(z) − y·z",
        link="exp",
        link_flops=1,
        rows=lambda z, y: _mean(np.exp(z) - y * z),
        slope=lambda z, y: (np.exp(z) - y) / z.shape[-1],
        flops=3,
        flops_backward=2,
        kept=lambda C: Kept(per_row=C),  # exp(z)
        targets="numbers",
    )


def perceptron() -> Loss:
    return Loss(
        name="perceptron",
        formula="max(0, −t·z),  t = 2y − 1",
        link="step",
        link_flops=1,
        rows=lambda z, y: _mean(np.maximum(0, -(2 * y - 1) * z)),
        slope=lambda z, y: -(2 * y - 1) * ((2 * y - 1) * z <= 0) / z.shape[-1],
        flops=3,
        flops_backward=2,
        kept=lambda C: Kept(per_row=C),  # the signs t
        targets="classes",
        zero_when_separated=True,
    )


LOSSES: dict[str, Callable[..., Loss]] = {
    loss.__name__: loss
    for loss in (cross_entropy, focal, binary_cross_entropy, mse, mae, huber, quantile, poisson, perceptron)
}


FAMILIAR = {"squared_error": "mse", "absolute_error": "mae"}
"""Names of scikit-learn for losses of this package."""


@lru_cache(maxsize=256)
def get(text: str) -> Loss:
    """Return the loss for a string.

    >>> get("quantile(0.1, 0.9)").per_target
    2
    """
    return choose("loss", FAMILIAR.get(text, text), LOSSES, also=("auto",))


def auto(d_out: int) -> Loss:
    """Return softmax cross-entropy for more than one output, and mean squared error for one."""
    return get("cross_entropy" if d_out > 1 else "mse")


def of(text: str, d_out: int) -> Loss:
    """Return the loss for a string and a number of outputs, which "auto" depends on.

    >>> of("auto", 10).name
    'cross_entropy'
    """
    loss = auto(d_out) if text == "auto" else get(text)
    if d_out % loss.per_target:
        raise OptionError(
            f"{text} needs {loss.per_target} outputs for each target, got a network of {d_out}: "
            f"end it with a multiple of {loss.per_target}"
        )
    return loss


def unsmoothed(loss: Loss) -> Loss:
    """Return the same loss without label smoothing, and cross-entropy for the focal loss.

    Calibration uses it, because the minimum of the other losses is not at the true probabilities.

    >>> unsmoothed(get("cross_entropy(0.1)")).constants
    (('label_smoothing', 0.0),)
    """
    if loss.name == "focal":
        return get("cross_entropy")
    return get(loss.name) if "label_smoothing" in dict(loss.constants) else loss


def _log_softmax(z: Array) -> Array:
    shifted = z - z.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def _mean(values: Array) -> Array:
    return np.asarray(values.mean(-1))


def _smoothing(value: float) -> float:
    return require("label_smoothing", value, 0 <= value < 1, "at least 0 and below 1")
