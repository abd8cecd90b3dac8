"""Maxout: each unit is the largest of k projections.   Goodfellow et al. 2013

y_o = max_j (x · W_oj + b_oj),  the gradient flows to the largest (the first of equals)
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from ...core.counts import named
from ..activations.function import Kept
from .base import Array, Backward, Flops, Forward, Layer, Parameter, Pass, Tensors, Timed, store_whole
from .linear import affine_parameters, timed_by_outputs


@dataclass(frozen=True)
class Maxout(Layer):
    """y = max over k of x Wᵀ + b.   x (B, I), weight (O·k, I), bias (O·k,) → y (B, O)."""

    kind: ClassVar[str] = "maxout"
    mixes: ClassVar[bool] = True
    d_out: int
    k: int = 2
    _: KW_ONLY
    bias: bool = True

    def __post_init__(self) -> None:
        store_whole(self, d_out="width", k="k")

    def width(self, d: int) -> int:
        return self.d_out

    def widest(self, d: int) -> int:
        return self.d_out * self.k

    def parameters(self, d: int) -> tuple[Parameter, ...]:
        return affine_parameters(d, self.d_out * self.k, bias=self.bias)

    def cost(self, d: int, batch: int, *, input_gradient: bool = True) -> Flops:
        B, I, O, k = named(B=batch, I=d, O=self.d_out, k=self.k)  # noqa: E741
        product = 2 * B * I * (O * k)
        bias = B * (O * k) if self.bias else 0
        return Flops(
            forward=Forward(matmul=product, bias=bias, activation=B * O * (k - 1)),
            backward=Backward(dW=product, db=bias, dA=product if input_gradient else 0, activation=B * O),
        )

    def kept(self, d: int, *, input_gradient: bool = True) -> Kept:
        return Kept(input=True)  # and which was largest, as whole numbers

    def timed(self, d: int) -> tuple[Timed, ...]:
        return timed_by_outputs(self, self.d_out)

    def forward(self, x: Array, p: Tensors, run: Pass) -> tuple[Array, Any]:
        z = x @ p["weight"].T  # (B, O·k)
        if self.bias:
            z = z + p["bias"]
        z = z.reshape(len(x), self.d_out, self.k)
        best = z.argmax(-1)[..., None]  # (B, O, 1)
        return np.take_along_axis(z, best, -1)[..., 0], (x, best)

    def backward(self, dy: Array, cache: Any, p: Tensors) -> tuple[Array, dict[str, Array]]:
        x, best = cache
        dz = np.zeros((*dy.shape, self.k), dy.dtype)
        np.put_along_axis(dz, best, dy[..., None], -1)
        dz = dz.reshape(len(dy), self.d_out * self.k)  # (B, O·k)
        grads = {"weight": dz.T @ x}
        if self.bias:
            grads["bias"] = dz.sum(0)
        return dz @ p["weight"], grads
