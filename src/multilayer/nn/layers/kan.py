"""A Kolmogorov–Arnold layer: every edge has a function of its own.   Liu et al. 2024

    h_o = Σ_i φ_oi(x_i),   φ_oi(x) = w_oi · silu(x) + Σ_k c_oik · β_k(x)

Bases β_k on a fixed even grid over ±bound:
    spline   cubic B-splines, `grid` intervals → grid + 3 bases; β(u) = (max(0, 2−|u|)³ − 4·max(0, 1−|u|)³)/6
    rbf      Gaussians, `grid` centres; β(u) = exp(−u²)                                   (FastKAN, Li 2024)
with u the distance to the base's centre in grid steps. The grid does not move during training, and inputs beyond it
are left to the silu branch.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from ...core.counts import named
from ...errors import SpecError, unknown_name
from .. import activations
from ..activations.function import Kept
from .base import (
    Array,
    Backward,
    Draw,
    Flops,
    Forward,
    Layer,
    Parameter,
    Pass,
    Tensors,
    Timed,
    fitting,
    require_number,
    store_whole,
)

FEATURES = 16
"""Inputs of the layer that is timed when an engine is calibrated."""


@dataclass(frozen=True)
class KAN(Layer):
    """h_o = Σ_i φ_oi(x_i).   x (B, I), weight (O, I·K), base (O, I) → h (B, O)."""

    kind: ClassVar[str] = "kan"
    mixes: ClassVar[bool] = True
    d_out: int
    _: KW_ONLY
    basis: Literal["spline", "rbf"] = "spline"
    grid: int = 5
    bound: float = 1.0

    def __post_init__(self) -> None:
        store_whole(self, d_out="width", grid="grid")
        if self.basis not in ("spline", "rbf"):
            raise SpecError(unknown_name("basis", self.basis, ("spline", "rbf")))
        if self.basis == "rbf" and self.grid < 2:
            raise SpecError(f"grid must be at least 2 for the rbf basis, got {self.grid}")
        object.__setattr__(self, "bound", require_number("bound", self.bound, positive=True))

    @property
    def n_bases(self) -> int:
        return self.grid + 3 if self.basis == "spline" else self.grid

    @property
    def step(self) -> float:
        return 2 * self.bound / (self.grid if self.basis == "spline" else self.grid - 1)

    @property
    def centres(self) -> Array:
        """Where each base is centred, (K,)."""
        return self.first + self.step * np.arange(self.n_bases)

    @property
    def first(self) -> float:
        return -self.bound - self.step if self.basis == "spline" else -self.bound

    def width(self, d: int) -> int:
        return self.d_out

    def widest(self, d: int) -> int:
        return max(self.d_out, d * self.n_bases)

    def parameters(self, d: int) -> tuple[Parameter, ...]:
        K = self.n_bases
        small = Draw("normal", 0.1 / math.sqrt(d * K))  # the edges start near their silu branch
        return (
            Parameter(
                name="weight", shape=(self.d_out, d * K), role="weight", fan_in=d * K, fan_out=self.d_out, value=small
            ),
            Parameter(name="base", shape=(self.d_out, d), role="weight", fan_in=d, fan_out=self.d_out),
        )

    def cost(self, d: int, batch: int, *, input_gradient: bool = True) -> Flops:
        B, I, O, K = named(B=batch, I=d, O=self.d_out, K=self.n_bases)  # noqa: E741
        # A spline base: u 2, |u| 1, two cut cubes 4 + 4, their difference 3; its slope 10, times δ and summed 2.
        # A Gaussian: u 2, square, sign, exp 3; its slope 3, times δ and summed 2.
        per_base, per_slope = (14, 12) if self.basis == "spline" else (5, 5)
        silu = activations.get("silu")
        c, c2 = named(c=silu.flops, **{"c′": silu.flops_backward})
        product = 2 * B * (I * K) * O + 2 * B * I * O
        through = per_slope * B * I * K + B * I * (1 + c2) + B * I if input_gradient else 0
        return Flops(
            forward=Forward(matmul=product, activation=per_base * B * I * K + c * B * I, other=B * O),
            backward=Backward(dW=product, dA=product if input_gradient else 0, activation=through),
        )

    def kept(self, d: int, *, input_gradient: bool = True) -> Kept:
        bases = d * self.n_bases
        if not input_gradient:
            return Kept(per_row=bases + d)  # what the two products multiply
        # u and the two cut lines of a spline, or u of a Gaussian, beside the bases themselves; silu keeps x.
        return Kept(input=True, per_row=(4 if self.basis == "spline" else 2) * bases + d)

    def bases(self, x: Array) -> tuple[Array, Array]:
        """β and dβ/dx at x (B, I): two arrays (B, I, K)."""
        u = (x[..., None] - self.centres) / self.step
        if self.basis == "rbf":
            value = np.exp(-(u**2))
            return value, -2 * u * value / self.step
        outer, inner = np.maximum(0, 2 - np.abs(u)), np.maximum(0, 1 - np.abs(u))
        slope = -np.sign(u) * (3 * outer**2 - 12 * inner**2) / (6 * self.step)
        return (outer**3 - 4 * inner**3) / 6, slope

    @property
    def on_page(self) -> bool:
        return False

    def timed(self, d: int) -> tuple[Timed, ...]:
        features = fitting(FEATURES, self.n_bases)
        return (Timed(layer=replace(self, d_out=1), d=features, standard=features, numbers=d),)

    def forward(self, x: Array, p: Tensors, run: Pass) -> tuple[Array, Any]:
        value, slope = self.bases(x)
        flat = value.reshape(len(x), x.shape[1] * self.n_bases)  # (B, I·K)
        silu = activations.get("silu").f(x)
        return flat @ p["weight"].T + silu @ p["base"].T, (x, flat, slope, silu)

    def backward(self, dy: Array, cache: Any, p: Tensors) -> tuple[Array, dict[str, Array]]:
        x, flat, slope, silu = cache
        through_bases = ((dy @ p["weight"]).reshape(slope.shape) * slope).sum(-1)  # (B, I)
        through_silu = (dy @ p["base"]) * activations.get("silu").df(x)
        return through_bases + through_silu, {"weight": dy.T @ flat, "base": dy.T @ silu}
