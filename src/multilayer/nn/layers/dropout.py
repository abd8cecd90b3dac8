"""Dropout: in training each number is kept with probability 1 − p and divided by 1 − p; otherwise nothing happens.

    y = x ⊙ m / (1 − p),   dx = dy ⊙ m / (1 − p)        Srivastava et al. 2014

The masks are an argument of the walk (`Pass.keep`), not drawn here, so that every engine can use the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ...core.counts import named
from ...errors import SpecError
from ..activations.function import Kept
from .base import Array, Backward, Flops, Forward, Layer, Pass, Tensors, Timed, require_number
from .moments import Moments, Passed


@dataclass(frozen=True)
class Dropout(Layer):
    """y = x ⊙ m / (1 − p) in training, y = x otherwise."""

    kind: ClassVar[str] = "dropout"
    p: float

    def __post_init__(self) -> None:
        p = require_number("dropout", self.p, requirement="at least 0 and below 1")
        if not 0 <= p < 1:
            raise SpecError(f"dropout must be at least 0 and below 1, got {self.p!r}")
        object.__setattr__(self, "p", p)

    def width(self, d: int) -> int:
        return d

    def cost(self, d: int, batch: int, *, input_gradient: bool = True) -> Flops:
        if self.p == 0:
            return Flops()
        B, I = named(B=batch, I=d)  # noqa: E741
        # Forward: one random number, one comparison, one product. Backward: one product.
        return Flops(forward=Forward(other=3 * B * I), backward=Backward(other=B * I))

    def kept(self, d: int, *, input_gradient: bool = True) -> Kept:
        return Kept(per_row=d if self.p else 0)  # the mask, as floats

    @property
    def passes_through(self) -> bool:
        return self.p == 0

    @property
    def torch_module(self) -> bool:
        return True

    def moments(self, d: int, x: Moments | None, V: float | None) -> Passed:
        return Passed() if x is None else Passed(Moments(x.q / (1 - self.p), x.c, x.m), 1 / (1 - self.p))

    def reaching(self, gain: float, square: float) -> tuple[float, float]:
        return gain, square / (1 - self.p)

    def timed(self, d: int) -> tuple[Timed, ...]:
        return (replace(super().timed(d)[0], layer=Dropout(0.5)),) if self.p else ()

    @property
    def weights_alone(self) -> bool:
        return True

    def fused_widths(self, d: int, *, learning: bool) -> tuple[int, ...]:
        return (d,)

    def looped_widths(self, d: int) -> tuple[int, ...]:
        return d, d

    def forward(self, x: Array, p: Tensors, run: Pass) -> tuple[Array, Array | None]:
        if not run.training or self.p == 0:
            return x, None
        if run.keep is None:
            raise AssertionError("a training pass over dropout was given no masks")
        mask = run.keep(x.shape[-1], self.p)  # (B, I), already divided by 1 − p
        return x * mask, mask

    def backward(self, dy: Array, cache: Array | None, p: Tensors) -> tuple[Array, dict[str, Array]]:
        return (dy if cache is None else dy * cache), {}
