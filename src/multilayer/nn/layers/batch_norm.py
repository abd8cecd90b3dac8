"""BatchNorm: each column normalised over the batch in training, by running statistics otherwise.   Ioffe & Szegedy 2015

    running ← (1 − momentum) · running + momentum · batch's   (the variance with n − 1, as PyTorch does)

A training batch of one row has no variance and is refused.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from ...core.counts import named
from ...errors import BatchError, SpecError
from ..activations.function import Kept
from .base import Array, Flops, Layer, Parameter, Pass, Tensors, require_number
from .moments import Moments, Passed, normalised
from .norm import affine, norm_cost, normalise, normalise_backward, store_epsilon


@dataclass(frozen=True)
class BatchNorm(Layer):
    """y = γ (x − μ)/√(v + ε) + β, μ and v over the rows of the batch.   x (B, I) → y (B, I)."""

    kind: ClassVar[str] = "batchnorm"
    normalises: ClassVar[bool] = True
    over_batch: ClassVar[bool] = True
    _: KW_ONLY
    eps: float = 1e-5
    momentum: float = 0.1

    def __post_init__(self) -> None:
        store_epsilon(self, self.eps)
        momentum = require_number("momentum", self.momentum, requirement="above 0 and at most 1")
        if not 0 < momentum <= 1:
            raise SpecError(f"momentum must be above 0 and at most 1, got {self.momentum!r}")
        object.__setattr__(self, "momentum", momentum)

    def width(self, d: int) -> int:
        return d

    def parameters(self, d: int) -> tuple[Parameter, ...]:
        return affine(d)

    def buffers(self, d: int) -> tuple[Parameter, ...]:
        return (
            Parameter(name="running_mean", shape=(d,), role="statistic", value=0.0),
            Parameter(name="running_var", shape=(d,), role="statistic", value=1.0),
        )

    def cost(self, d: int, batch: int, *, input_gradient: bool = True) -> Flops:
        B, I = named(B=batch, I=d)  # noqa: E741
        flops = norm_cost(B * I, I, input_gradient=input_gradient)
        # Two running statistics: a product, a product and a sum each.
        return Flops(forward=type(flops.forward)(other=flops.forward.other + 6 * I), backward=flops.backward)

    def kept(self, d: int, *, input_gradient: bool = True) -> Kept:
        return Kept(input=True, per_batch=2 * d)

    @property
    def torch_module(self) -> bool:
        return True

    def fused_widths(self, d: int, *, learning: bool) -> tuple[int, ...]:
        return d, d, 1

    def looped_widths(self, d: int) -> tuple[int, ...]:
        return d, d

    def moments(self, d: int, x: Moments | None, V: float | None) -> Passed:
        return normalised(x, taken=0.0 if x is None else x.c, c=0.0)  # what all rows share is subtracted

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
    if rows < 2:
        raise BatchError(
            f"batchnorm needs at least 2 rows in a training batch, got {rows}: choose a batch size that leaves no "
            "single row at the end of an epoch, drop the last batch, or use layernorm"
        )
