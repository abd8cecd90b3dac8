"""GroupNorm: each row cut into equal groups, each normalised by its own mean and deviation.   Wu & He 2018"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from ...core.counts import named
from ...errors import SpecError
from ..activations.function import Kept
from .base import WIDTH, Array, Flops, Layer, Parameter, Pass, Tensors, Timed, store_whole
from .moments import Moments, Passed, normalised
from .norm import affine, norm_cost, normalise, normalise_backward, store_epsilon


@dataclass(frozen=True)
class GroupNorm(Layer):
    """LayerNorm within each of `groups` equal slices of the row.   x (B, I) → y (B, I)."""

    kind: ClassVar[str] = "groupnorm"
    normalises: ClassVar[bool] = True
    groups: int
    _: KW_ONLY
    eps: float = 1e-5

    def __post_init__(self) -> None:
        store_whole(self, groups="groups")
        store_epsilon(self, self.eps)

    def width(self, d: int) -> int:
        if d % self.groups:
            raise SpecError(f"groupnorm needs a width that its groups divide, got width {d} and groups={self.groups}")
        return d

    def parameters(self, d: int) -> tuple[Parameter, ...]:
        return affine(d)

    def cost(self, d: int, batch: int, *, input_gradient: bool = True) -> Flops:
        B, I, G = named(B=batch, I=d, G=self.groups)  # noqa: E741
        return norm_cost(B * I, B * G, input_gradient=input_gradient)

    def kept(self, d: int, *, input_gradient: bool = True) -> Kept:
        return Kept(input=True, per_row=2 * self.groups)

    @property
    def divisor(self) -> int:
        return self.groups

    @property
    def torch_module(self) -> bool:
        return True

    def timed(self, d: int) -> tuple[Timed, ...]:
        width = self.groups * -(-WIDTH // self.groups)
        return (Timed(layer=self, d=width, standard=width, numbers=d),)

    def fused_widths(self, d: int, *, learning: bool) -> tuple[int, ...]:
        return d, d, self.groups

    def looped_widths(self, d: int) -> tuple[int, ...]:
        return d, d, self.groups

    def moments(self, d: int, x: Moments | None, V: float | None) -> Passed:
        return normalised(x, taken=0.0 if x is None else x.m**2)  # the mean over units is subtracted

    def forward(self, x: Array, p: Tensors, run: Pass) -> tuple[Array, tuple[Array, Array]]:
        grouped = x.reshape(len(x), self.groups, x.shape[1] // self.groups)  # (B, G, I/G)
        xhat, inverse = normalise(grouped, axis=-1, eps=self.eps)
        return xhat.reshape(x.shape) * p["weight"] + p["bias"], (xhat, inverse)

    def backward(self, dy: Array, cache: tuple[Array, Array], p: Tensors) -> tuple[Array, dict[str, Array]]:
        xhat, inverse = cache
        grads = {"weight": (dy * xhat.reshape(dy.shape)).sum(0), "bias": dy.sum(0)}
        dxhat = (dy * p["weight"]).reshape(xhat.shape)
        return normalise_backward(dxhat, xhat, inverse, axis=-1).reshape(dy.shape), grads
