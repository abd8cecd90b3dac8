"""The four norms: x̂ = (x − μ)/√(v + ε) over a group of values, then γ x̂ + β.

    BatchNorm   each column over the rows of a training batch                  Ioffe & Szegedy 2015
    LayerNorm   each row                                                       Ba et al. 2016
    GroupNorm   each of G equal slices of a row                                Wu & He 2018
    RMSNorm     each row, divided by its root mean square: no μ and no β       Zhang & Sennrich 2019

    dx̂ = dy γ,   dx = (dx̂ − mean(dx̂) − x̂ · mean(dx̂ x̂)) / √(v + ε)   (means over the same group; no mean(dx̂) without μ)

BatchNorm uses running statistics outside training. A training batch of one row has no variance and raises BatchError.

    running ← (1 − momentum) · running + momentum · batch statistic   (the variance with n − 1, as in PyTorch)

FLOPs per value and pass:
    forward    centered     sum, − μ, square, sum, × 1/σ, × γ, + β = 7; and 5 per group: two ÷, + ε, √, inverse
               uncentered   square, sum, × 1/σ, × γ = 4; and 4 per group (RMSNorm)
    backward   centered     dβ 1, dγ 2, dx̂ 1, two means 3, dx 4 = 11
               uncentered   dγ 2, dx̂ 1, one mean 2, dx 3 = 8
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from ...core.counts import Count, named
from ...errors import BatchError, SpecError
from ..activations.function import Kept
from .base import (
    TIMED_WIDTH,
    Array,
    Backward,
    Flops,
    Forward,
    Layer,
    Moments,
    Parameter,
    Pass,
    Passed,
    Tensors,
    Timed,
    require_number,
    store_whole,
)


def norm_cost(numbers: Count, groups: Count, *, centred: bool = True, input_gradient: bool = True) -> Flops:
    """Return the FLOPs to normalize `numbers` values in `groups` groups. The module's docstring derives the factors."""
    if centred:
        forward, backward, own = 7 * numbers + 5 * groups, 11 * numbers, 3 * numbers
    else:
        forward, backward, own = 4 * numbers + 4 * groups, 8 * numbers, 2 * numbers
    return Flops(forward=Forward(other=forward), backward=Backward(other=backward if input_gradient else own))


def normalise(x: Array, *, axis: int, eps: float, centred: bool = True) -> tuple[Array, Array]:
    """Return x̂ and 1/σ, with statistics along `axis`."""
    centre = x - x.mean(axis, keepdims=True) if centred else x
    inverse = 1 / np.sqrt((centre**2).mean(axis, keepdims=True) + eps)
    return centre * inverse, inverse


def normalise_backward(dxhat: Array, xhat: Array, inverse: Array, *, axis: int, centred: bool = True) -> Array:
    """Return ∂L/∂x for ∂L/∂x̂."""
    mean = dxhat.mean(axis, keepdims=True) if centred else 0.0
    return inverse * (dxhat - mean - xhat * (dxhat * xhat).mean(axis, keepdims=True))


class Norm(Layer):
    """Base class of the norms. By default each row is one group, or `divisor` groups."""

    normalises: ClassVar[bool] = True
    centred: ClassVar[bool] = True
    """Whether the norm subtracts the mean and adds a bias."""
    eps: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "eps", require_number("eps", self.eps, positive=True))

    def parameters(self, d: int) -> tuple[Parameter, ...]:
        weight = Parameter(name="weight", shape=(d,), role="norm", value=1.0)
        return (weight, Parameter(name="bias", shape=(d,), role="norm", value=0.0)) if self.centred else (weight,)

    @property
    def torch_module(self) -> bool:
        return True

    def fused_widths(self, d: int, *, learning: bool) -> tuple[int, ...]:
        return d, d, self.divisor

    def looped_widths(self, d: int) -> tuple[int, ...]:
        return d, d, self.divisor

    def moments(self, d: int, x: Moments | None, V: float | None) -> Passed:
        # The norm subtracts the mean over units.
        return normalised(x, taken=0.0 if x is None else x.m**2)

    def slices(self, x: Array) -> Array:
        """Return x with the values of a group along the last axis."""
        return x

    def forward(self, x: Array, p: Tensors, run: Pass) -> tuple[Array, Any]:
        xhat, inverse = normalise(self.slices(x), axis=-1, eps=self.eps, centred=self.centred)
        y = xhat.reshape(x.shape) * p["weight"]
        return (y + p["bias"] if self.centred else y), (xhat, inverse)

    def backward(self, dy: Array, cache: Any, p: Tensors) -> tuple[Array, dict[str, Array]]:
        xhat, inverse = cache
        dx = normalise_backward(self.slices(dy * p["weight"]), xhat, inverse, axis=-1, centred=self.centred)
        grads = {"weight": (dy * xhat.reshape(dy.shape)).sum(0)}
        return dx.reshape(dy.shape), grads | {"bias": dy.sum(0)} if self.centred else grads


@dataclass(frozen=True)
class BatchNorm(Norm):
    """Batch normalization: γ (x − μ)/√(v + ε) + β, with μ and v over the rows of the batch. (B, I) → (B, I).

    Prediction uses running averages of μ and v.

    Parameters
    ----------
    eps : float
        ε, added to the variance.
    momentum : float
        Weight of the current batch in the running averages.

    Raises
    ------
    SpecError
        If `eps` is not positive or `momentum` is not above 0 and at most 1.

    Examples
    --------
    >>> BatchNorm().eps
    1e-05
    """

    kind: ClassVar[str] = "batchnorm"
    over_batch: ClassVar[bool] = True
    _: KW_ONLY
    eps: float = 1e-5
    momentum: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        momentum = require_number("momentum", self.momentum, requirement="above 0 and at most 1")
        if not 0 < momentum <= 1:
            raise SpecError(f"momentum must be above 0 and at most 1, got {self.momentum!r}")
        object.__setattr__(self, "momentum", momentum)

    def buffers(self, d: int) -> tuple[Parameter, ...]:
        return (
            Parameter(name="running_mean", shape=(d,), role="statistic", value=0.0),
            Parameter(name="running_var", shape=(d,), role="statistic", value=1.0),
        )

    def cost(self, d: int, batch: int, *, input_gradient: bool = True) -> Flops:
        B, I = named(B=batch, I=d)  # noqa: E741
        flops = norm_cost(B * I, I, input_gradient=input_gradient)
        # Two running statistics, each with two products and a sum.
        return Flops(forward=type(flops.forward)(other=flops.forward.other + 6 * I), backward=flops.backward)

    def kept(self, d: int, *, input_gradient: bool = True) -> Kept:
        return Kept(input=True, per_batch=2 * d)

    def looped_widths(self, d: int) -> tuple[int, ...]:
        return d, d

    def moments(self, d: int, x: Moments | None, V: float | None) -> Passed:
        # The norm subtracts what all rows share.
        return normalised(x, taken=0.0 if x is None else x.c, c=0.0)

    def forward(self, x: Array, p: Tensors, run: Pass) -> tuple[Array, Any]:
        if not run.training:
            inverse = 1 / np.sqrt(p["running_var"] + self.eps)
            xhat = (x - p["running_mean"]) * inverse
            return xhat * p["weight"] + p["bias"], (xhat, inverse, False)
        require_rows(len(x))
        xhat, inverse = normalise(x, axis=0, eps=self.eps)
        fresh = {"running_mean": x.mean(0), "running_var": x.var(0, ddof=1)}
        for name, value in fresh.items():
            run.updates[name] = (1 - self.momentum) * p[name] + self.momentum * value
        return xhat * p["weight"] + p["bias"], (xhat, inverse, True)

    def backward(self, dy: Array, cache: Any, p: Tensors) -> tuple[Array, dict[str, Array]]:
        xhat, inverse, over_batch = cache
        grads = {"weight": (dy * xhat).sum(0), "bias": dy.sum(0)}
        dxhat = dy * p["weight"]
        return normalise_backward(dxhat, xhat, inverse, axis=0) if over_batch else dxhat * inverse, grads


def require_rows(rows: int) -> None:
    """Raise BatchError if a training batch is too small for its variance."""
    if rows < 2:
        raise BatchError(
            f"batchnorm needs at least 2 rows in a training batch, got {rows}: choose a batch size that leaves no "
            "single row at the end of an epoch, drop the last batch, or use layernorm"
        )


def normalised(x: Moments | None, *, taken: float, keeps_mean: bool = False, c: float | None = None) -> Passed:
    """Return the moments after a norm that subtracts `taken` from q and divides by the square root of the rest."""
    left = 0.0 if x is None else x.q - taken
    if x is None or not left > 0:
        return Passed(Moments(1.0, 0.0, 0.0))
    if c is None:
        c = (x.c - taken) / left
    return Passed(Moments(1.0, c, x.m / math.sqrt(left) if keeps_mean else 0.0), 1 / left)


@dataclass(frozen=True)
class LayerNorm(Norm):
    """Layer normalization: γ (x − μ)/√(v + ε) + β, with μ and v over the row. (B, I) → (B, I).

    Parameters
    ----------
    eps : float
        ε, added to the variance.

    Raises
    ------
    SpecError
        If `eps` is not positive.

    Examples
    --------
    >>> LayerNorm().eps
    1e-05
    """

    kind: ClassVar[str] = "layernorm"
    _: KW_ONLY
    eps: float = 1e-5

    def cost(self, d: int, batch: int, *, input_gradient: bool = True) -> Flops:
        B, I = named(B=batch, I=d)  # noqa: E741
        return norm_cost(B * I, B, input_gradient=input_gradient)

    def kept(self, d: int, *, input_gradient: bool = True) -> Kept:
        return Kept(input=True, per_row=2)  # μ and 1/σ


@dataclass(frozen=True)
class RMSNorm(Norm):
    """Root mean square normalization: γ x / √(mean(x²) + ε), with the mean over the row. (B, I) → (B, I).

    Parameters
    ----------
    eps : float
        ε, added to the mean square.

    Raises
    ------
    SpecError
        If `eps` is not positive.

    Examples
    --------
    >>> RMSNorm().eps
    1e-06
    """

    kind: ClassVar[str] = "rmsnorm"
    centred: ClassVar[bool] = False
    _: KW_ONLY
    eps: float = 1e-6

    def cost(self, d: int, batch: int, *, input_gradient: bool = True) -> Flops:
        B, I = named(B=batch, I=d)  # noqa: E741
        return norm_cost(B * I, B, centred=False, input_gradient=input_gradient)

    def kept(self, d: int, *, input_gradient: bool = True) -> Kept:
        if not input_gradient:
            return Kept(per_row=d)  # only x̂, for dγ
        return Kept(input=True, per_row=1 + d)  # 1/σ and x̂

    def moments(self, d: int, x: Moments | None, V: float | None) -> Passed:
        return normalised(x, taken=0.0, keeps_mean=True)


@dataclass(frozen=True)
class GroupNorm(Norm):
    """Group normalization: `LayerNorm` within each of `groups` equal slices of the row. (B, I) → (B, I).

    Parameters
    ----------
    groups : int
        Number of slices. It must divide the width.
    eps : float
        ε, added to the variance.

    Raises
    ------
    SpecError
        If `groups` does not divide the width, or `eps` is not positive.

    Examples
    --------
    >>> GroupNorm(4).groups
    4
    """

    kind: ClassVar[str] = "groupnorm"
    letters: ClassVar[Mapping[str, str]] = {"G": "groups of a norm"}
    groups: int
    _: KW_ONLY
    eps: float = 1e-5

    def __post_init__(self) -> None:
        store_whole(self, groups="groups")
        super().__post_init__()

    def width(self, d: int) -> int:
        if d % self.groups:
            raise SpecError(f"groupnorm needs a width that its groups divide, got width {d} and groups={self.groups}")
        return d

    def cost(self, d: int, batch: int, *, input_gradient: bool = True) -> Flops:
        B, I, G = named(B=batch, I=d, G=self.groups)  # noqa: E741
        return norm_cost(B * I, B * G, input_gradient=input_gradient)

    def kept(self, d: int, *, input_gradient: bool = True) -> Kept:
        return Kept(input=True, per_row=2 * self.groups)

    @property
    def divisor(self) -> int:
        return self.groups

    def timed(self, d: int) -> tuple[Timed, ...]:
        width = self.groups * -(-TIMED_WIDTH // self.groups)
        return (Timed(layer=self, d=width, standard=width, numbers=d),)

    def slices(self, x: Array) -> Array:
        return x.reshape(len(x), self.groups, x.shape[1] // self.groups)  # (B, G, I/G)
