"""A residual block: y = x + g(x), g any layers that return the width they were given.   He et al. 2016

    dx = dy + (∂g/∂x)ᵀ dy

`layers` may hold any layer, residual blocks too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...core.counts import named as sizes
from ...errors import SpecError
from .activation import Activation
from .base import (
    Array,
    Backward,
    Flops,
    Forward,
    Layer,
    Parameter,
    Pass,
    Tensors,
    Timed,
    backward_through,
    forward_through,
    named,
)


@dataclass(frozen=True)
class Residual(Layer):
    """y = x + g(x)."""

    kind: ClassVar[str] = "residual"
    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        if isinstance(self.layers, Layer) or not isinstance(self.layers, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SpecError(f"a residual block must hold a sequence of layers, got {self.layers!r}: write [Linear(10)]")
        object.__setattr__(self, "layers", tuple(self.layers))
        if not self.layers:
            raise SpecError("a residual block must hold at least one layer, got none")

    def width(self, d: int) -> int:
        inside = d
        for layer in self.layers:
            inside = layer.width(inside)
        if inside != d:
            raise SpecError(
                f"a residual block must return the width it is given: {d} in, {inside} out; "
                f"end it with a layer of width {d}"
            )
        return d

    def _inside(self, d: int) -> list[tuple[str, Layer, int]]:
        found: list[tuple[str, Layer, int]] = []
        for name, layer in named(self.layers):
            found.append((name, layer, d))
            d = layer.width(d)
        return found

    def _tensors(self, d: int, which: str) -> tuple[Parameter, ...]:
        return tuple(
            replace(q, name=f"{name}.{q.name}")
            for name, layer, inside in self._inside(d)
            for q in getattr(layer, which)(inside)
        )

    def parameters(self, d: int) -> tuple[Parameter, ...]:
        return self._tensors(d, "parameters")

    def buffers(self, d: int) -> tuple[Parameter, ...]:
        return self._tensors(d, "buffers")

    def cost(self, d: int, batch: int, *, input_gradient: bool = True) -> Flops:
        """The sum that closes the block, and the sum of two gradients; the layers inside are counted one by one."""
        B, I = sizes(B=batch, I=d)  # noqa: E741
        return Flops(forward=Forward(other=B * I), backward=Backward(other=B * I if input_gradient else 0))

    def timed(self, d: int) -> tuple[Timed, ...]:
        return (replace(super().timed(d)[0], layer=Residual((Activation("identity"),))),)

    def looped_widths(self, d: int) -> tuple[int, ...]:
        return d, d

    def forward(self, x: Array, p: Tensors, run: Pass) -> tuple[Array, list[Any]]:
        h, caches = forward_through(self.layers, x, p, run)
        return x + h, caches

    def backward(self, dy: Array, cache: list[Any], p: Tensors) -> tuple[Array, dict[str, Array]]:
        dh, grads = backward_through(self.layers, dy, cache, p)
        return dy + dh, grads
