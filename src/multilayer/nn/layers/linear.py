"""The fully connected layer.

    z = s · x Wᵀ + b        x (B, I), W (O, I), b (O,) → z (B, O)
    dW = s · dzᵀ x,  db = Σ_rows dz,  dx = s · dz W

`scale` s is a fixed number, 1 unless given; "tangent" means s = 1/√I, the parametrisation in which W ~ N(0, 1).
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal

from ...core.counts import named
from ...errors import SpecError
from ..activations.function import Kept
from .base import (
    WIDTH,
    Array,
    Backward,
    Flops,
    Forward,
    Layer,
    Parameter,
    Pass,
    Tensors,
    Timed,
    fitting,
    lines,
    require_number,
    store_whole,
)
from .moments import Moments, Passed, kurtosis


@dataclass(frozen=True)
class Linear(Layer):
    """z = s · x Wᵀ + b.   x (B, I), W (O, I), b (O,) → z (B, O)."""

    kind: ClassVar[str] = "linear"
    mixes: ClassVar[bool] = True
    d_out: int
    _: KW_ONLY
    bias: bool = True
    scale: float | Literal["tangent"] | None = None

    def __post_init__(self) -> None:
        store_whole(self, d_out="width")
        requirement = "a finite number or 'tangent'"
        if isinstance(self.scale, str):
            if self.scale != "tangent":
                raise SpecError(f"scale must be {requirement}, got {self.scale!r}")
        elif self.scale is not None:
            object.__setattr__(self, "scale", require_number("scale", self.scale, requirement=requirement))

    def factor(self, d: int) -> float:
        if self.scale is None:
            return 1.0
        return 1 / math.sqrt(d) if self.scale == "tangent" else self.scale

    def width(self, d: int) -> int:
        return self.d_out

    def parameters(self, d: int) -> tuple[Parameter, ...]:
        return affine_parameters(d, self.d_out, bias=self.bias)

    def cost(self, d: int, batch: int, *, input_gradient: bool = True) -> Flops:
        return affine_cost(d, self.d_out, batch, bias=self.bias, scaled=self.scale is not None, dA=input_gradient)

    def kept(self, d: int, *, input_gradient: bool = True) -> Kept:
        return Kept(input=True)

    @property
    def torch_module(self) -> bool:
        return True

    def moments(self, d: int, x: Moments | None, V: float | None) -> Passed:
        if V is None:
            return Passed()
        y = None if x is None else Moments(d * V * x.q, d * V * x.c, 0.0)
        return Passed(y, self.d_out * V, kurtosis(x) / d if x is not None and x.q else 0.0)

    def timed(self, d: int) -> tuple[Timed, ...]:
        return timed_by_outputs(self, self.d_out)

    @property
    def weights_alone(self) -> bool:
        return True

    def fused_widths(self, d: int, *, learning: bool) -> tuple[int, ...]:
        return self.d_out, lines(d)

    def looped_widths(self, d: int) -> tuple[int, ...]:
        return (self.d_out,)

    def forward(self, x: Array, p: Tensors, run: Pass) -> tuple[Array, Array]:
        z = self.factor(x.shape[-1]) * (x @ p["weight"].T)  # (B, O)
        return (z + p["bias"] if self.bias else z), x

    def backward(self, dy: Array, cache: Array, p: Tensors) -> tuple[Array, dict[str, Array]]:
        s = self.factor(cache.shape[-1])
        grads: dict[str, Array] = {"weight": s * (dy.T @ cache)}  # (O, I)
        if self.bias:
            grads["bias"] = dy.sum(0)
        return s * (dy @ p["weight"]), grads  # (B, I)


def timed_by_outputs(layer: Any, d_out: int) -> tuple[Timed, ...]:
    """Return a layer with one input, timed per output. The time of the matrix product is added by its FLOPs."""
    width = fitting(WIDTH, replace(layer, d_out=1).widest(1))
    return (Timed(layer=replace(layer, d_out=width), d=1, standard=width, numbers=d_out),)


def affine_parameters(d: int, d_out: int, *, bias: bool) -> tuple[Parameter, ...]:
    weight = Parameter(name="weight", shape=(d_out, d), role="weight", fan_in=d, fan_out=d_out)
    return (weight, Parameter(name="bias", shape=(d_out,), role="bias", fan_in=d, fan_out=d_out))[: 1 + bias]


def affine_cost(d: int, d_out: int, batch: int, *, bias: bool, scaled: bool = False, dA: bool = True) -> Flops:
    """FLOPs of z = s · x Wᵀ + b; a fixed scale costs one product per output, forward and backward."""
    B, I, O = named(B=batch, I=d, O=d_out)  # noqa: E741
    return Flops(
        forward=Forward(matmul=2 * B * I * O, bias=B * O if bias else 0, other=B * O if scaled else 0),
        backward=Backward(
            dW=2 * B * O * I,
            db=B * O if bias else 0,
            dA=2 * B * O * I if dA else 0,
            other=B * O if scaled else 0,
        ),
    )
