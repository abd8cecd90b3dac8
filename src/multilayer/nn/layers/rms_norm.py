"""RMSNorm: each row divided by its root mean square, then γ x̂; nothing is subtracted.   Zhang & Sennrich 2019"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from ...core.counts import named
from ..activations.function import Kept
from .base import Array, Flops, Layer, Parameter, Pass, Tensors
from .moments import Moments, Passed, normalised
from .norm import affine, norm_cost, normalise, normalise_backward, store_epsilon


@dataclass(frozen=True)
class RMSNorm(Layer):
    """y = γ x / √(mean(x²) + ε), the mean over the row.   x (B, I) → y (B, I)."""

    kind: ClassVar[str] = "rmsnorm"
    normalises: ClassVar[bool] = True
    _: KW_ONLY
    eps: float = 1e-6

    def __post_init__(self) -> None:
        store_epsilon(self, self.eps)

    def width(self, d: int) -> int:
        return d

    def parameters(self, d: int) -> tuple[Parameter, ...]:
        return affine(d, shift=False)

    def cost(self, d: int, batch: int, *, input_gradient: bool = True) -> Flops:
        B, I = named(B=batch, I=d)  # noqa: E741
        return norm_cost(B * I, B, centred=False, input_gradient=input_gradient)

    def kept(self, d: int, *, input_gradient: bool = True) -> Kept:
        if not input_gradient:
            return Kept(per_row=d)  # x̂ alone, for dγ
        return Kept(input=True, per_row=1 + d)  # 1/σ and x̂

    @property
    def torch_module(self) -> bool:
        return True

    def fused_widths(self, d: int, *, learning: bool) -> tuple[int, ...]:
        return d, d, 1

    def looped_widths(self, d: int) -> tuple[int, ...]:
        return d, d, 1

    def moments(self, d: int, x: Moments | None, V: float | None) -> Passed:
        return normalised(x, taken=0.0, keeps_mean=True)

    def forward(self, x: Array, p: Tensors, run: Pass) -> tuple[Array, tuple[Array, Array]]:
        xhat, inverse = normalise(x, axis=-1, eps=self.eps, centred=False)
        return xhat * p["weight"], (xhat, inverse)

    def backward(self, dy: Array, cache: tuple[Array, Array], p: Tensors) -> tuple[Array, dict[str, Array]]:
        xhat, inverse = cache
        dx = normalise_backward(dy * p["weight"], xhat, inverse, axis=-1, centred=False)
        return dx, {"weight": (dy * xhat).sum(0)}
