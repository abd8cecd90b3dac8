"""Gated linear units: one projection opens or closes another.   Dauphin et al. 2017, Shazeer 2020

    y = f(W₁x + b₁) ⊙ (W₂x + b₂),   f = sigmoid (glu), ReLU (reglu), GELU (geglu), SiLU (swiglu)

The two projections are one matrix of 2·O rows, the gate's first. Half of its first values' spread in y comes from each.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ...core.counts import named
from ...errors import SpecError, unknown_name
from .. import activations
from ..activations.facts import gain as gain_of
from ..activations.function import Function, Kept
from .base import Array, Backward, Flops, Forward, Layer, Parameter, Pass, Tensors, Timed, lines, store_whole
from .linear import affine_parameters, timed_by_outputs
from .moments import Moments, Passed, through

GATES = {"glu": "sigmoid", "reglu": "relu", "geglu": "gelu", "swiglu": "silu"}


@dataclass(frozen=True)
class GLU(Layer):
    """y = f(W₁x + b₁) ⊙ (W₂x + b₂).   x (B, I), weight (2·O, I) = [W₁; W₂], bias (2·O,) → y (B, O)."""

    kind: ClassVar[str] = "glu"
    mixes: ClassVar[bool] = True
    d_out: int
    variant: str = "glu"
    _: KW_ONLY
    bias: bool = True

    def __post_init__(self) -> None:
        store_whole(self, d_out="width")
        if self.variant not in GATES:
            raise SpecError(unknown_name("gated unit", self.variant, GATES))

    @property
    def label(self) -> str:
        return self.variant

    @property
    def gate(self) -> Function:
        return activations.get(GATES[self.variant])

    def width(self, d: int) -> int:
        return self.d_out

    def widest(self, d: int) -> int:
        return 2 * self.d_out

    def parameters(self, d: int) -> tuple[Parameter, ...]:
        both = affine_parameters(d, 2 * self.d_out, bias=self.bias)
        return tuple(
            replace(p, fan_out=self.d_out) for p in both
        )  # each output has two projections, not one twice as wide

    def cost(self, d: int, batch: int, *, input_gradient: bool = True) -> Flops:
        gate = self.gate
        B, I, O, c, c2 = named(B=batch, I=d, O=self.d_out, c=gate.flops, **{"c′": gate.flops_backward})  # noqa: E741
        product = 2 * B * I * (2 * O)
        bias = B * (2 * O) if self.bias else 0
        return Flops(
            forward=Forward(matmul=product, bias=bias, activation=c * B * O, other=B * O),
            backward=Backward(
                dW=product, db=bias, dA=product if input_gradient else 0, activation=B * O * (1 + c2), other=2 * B * O
            ),
        )

    def kept(self, d: int, *, input_gradient: bool = True) -> Kept:
        return Kept(input=True, per_row=3 * self.d_out)  # both projections, and the open gate

    def moments(self, d: int, x: Moments | None, V: float | None) -> Passed:
        if x is None or V is None:
            return Passed()
        z = Moments(d * V * x.q, d * V * x.c, 0.0)
        opened, slope = through(self.gate, z)
        if opened is None or slope is None:
            return Passed()
        return Passed(Moments(opened.q * z.q, opened.c * z.c, 0.0), self.d_out * V * (slope * z.q + opened.q))

    def reaching(self, gain: float, square: float) -> tuple[float, float]:
        return gain_of(self.gate) or 1.0, 1.0

    def timed(self, d: int) -> tuple[Timed, ...]:
        return timed_by_outputs(self, self.d_out)

    def fused_widths(self, d: int, *, learning: bool) -> tuple[int, ...]:
        return self.d_out, 2 * self.d_out, lines(d)

    def looped_widths(self, d: int) -> tuple[int, ...]:
        return self.d_out, 2 * self.d_out

    def forward(self, x: Array, p: Tensors, run: Pass) -> tuple[Array, Any]:
        z = x @ p["weight"].T  # (B, 2·O)
        if self.bias:
            z = z + p["bias"]
        gate, value = z[:, : self.d_out], z[:, self.d_out :]  # (B, O)
        opened = self.gate.f(gate)
        return opened * value, (x, gate, value, opened)

    def backward(self, dy: Array, cache: Any, p: Tensors) -> tuple[Array, dict[str, Array]]:
        x, gate, value, opened = cache
        dz = np.concatenate([dy * value * self.gate.df(gate), dy * opened], axis=1)  # (B, 2·O)
        grads = {"weight": dz.T @ x}
        if self.bias:
            grads["bias"] = dz.sum(0)
        return dz @ p["weight"], grads
