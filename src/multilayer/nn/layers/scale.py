"""A learned number per input: y = x ⊙ s,   ds = Σ_rows dy ⊙ x,   dx = dy ⊙ s."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...core.counts import named
from ..activations.function import Kept
from .base import Array, Backward, Flops, Forward, Layer, Parameter, Pass, Tensors
from .moments import Moments, Passed


@dataclass(frozen=True)
class Scale(Layer):
    """y = x ⊙ s.   x (B, I), s (I,) → y (B, I); s starts at 1."""

    kind: ClassVar[str] = "scale"

    def width(self, d: int) -> int:
        return d

    def parameters(self, d: int) -> tuple[Parameter, ...]:
        return (Parameter(name="scale", shape=(d,), role="scale", value=1.0),)

    def cost(self, d: int, batch: int, *, input_gradient: bool = True) -> Flops:
        B, I = named(B=batch, I=d)  # noqa: E741
        return Flops(forward=Forward(other=B * I), backward=Backward(other=3 * B * I if input_gradient else 2 * B * I))

    def kept(self, d: int, *, input_gradient: bool = True) -> Kept:
        return Kept(input=True)

    def moments(self, d: int, x: Moments | None, V: float | None) -> Passed:
        return Passed(x, 1.0)

    def reaching(self, gain: float, square: float) -> tuple[float, float]:
        return gain, square

    def fused_widths(self, d: int, *, learning: bool) -> tuple[int, ...]:
        return (d,) * (1 + learning)  # in the backward pass ds still reads the input, so dx needs separate memory

    def looped_widths(self, d: int) -> tuple[int, ...]:
        return (d,)

    def forward(self, x: Array, p: Tensors, run: Pass) -> tuple[Array, Array]:
        return x * p["scale"], x

    def backward(self, dy: Array, cache: Array, p: Tensors) -> tuple[Array, dict[str, Array]]:
        return dy * p["scale"], {"scale": (dy * cache).sum(0)}
