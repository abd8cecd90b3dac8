"""LayerNorm: each row normalised by its own mean and standard deviation, then γ x̂ + β.   Ba et al. 2016"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from ...core.counts import named
from ..activations.function import Kept
from .base import Array, Flops, Layer, Parameter, Pass, Tensors
from .moments import Moments, Passed, normalised
from .norm import affine, norm_cost, normalise, normalise_backward, store_epsilon


@dataclass(frozen=True)
class LayerNorm(Layer):
    """y = γ (x − μ)/√(v + ε) + β, μ and v over the row.   x (B, I) → y (B, I)."""

    kind: ClassVar[str] = "layernorm"
    normalises: ClassVar[bool] = True
    _: KW_ONLY
    eps: float = 1e-5

    def __post_init__(self) -> None:
        store_epsilon(self, self.eps)

    def width(self, d: int) -> int:
        return d

    def parameters(self, d: int) -> tuple[Parameter, ...]:
        return affine(d)

    def cost(self, d: int, batch: int, *, input_gradient: bool = True) -> Flops:
        B, I = named(B=batch, I=d)  # noqa: E741
        return norm_cost(B * I, B, input_gradient=input_gradient)

    def kept(self, d: int, *, input_gradient: bool = True) -> Kept:
        return Kept(input=True, per_row=2)  # the mean and the inverse of the deviation

    @property
    def torch_module(self) -> bool:
        return True

    def fused_widths(self, d: int, *, learning: bool) -> tuple[int, ...]:
        return d, d, 1

    def looped_widths(self, d: int) -> tuple[int, ...]:
        return d, d, 1

    def moments(self, d: int, x: Moments | None, V: float | None) -> Passed:
        return normalised(x, taken=0.0 if x is None else x.m**2)  # the mean over units is subtracted

    def forward(self, x: Array, p: Tensors, run: Pass) -> tuple[Array, tuple[Array, Array]]:
        xhat, inverse = normalise(x, axis=-1, eps=self.eps)
        return xhat * p["weight"] + p["bias"], (xhat, inverse)

    def backward(self, dy: Array, cache: tuple[Array, Array], p: Tensors) -> tuple[Array, dict[str, Array]]:
        xhat, inverse = cache
        grads = {"weight": (dy * xhat).sum(0), "bias": dy.sum(0)}
        return normalise_backward(dy * p["weight"], xhat, inverse, axis=-1), grads
