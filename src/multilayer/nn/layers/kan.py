"""Kolmogorov–Arnold layer: each output is a sum of learned functions of single inputs.

    h_o = Σ_i φ_oi(x_i),  φ_oi(x) = w_oi · silu(x) + Σ_k c_oik · β_k(x)                      Liu et al. 2024

The bases β_k have centers on a fixed grid with equal steps over ±bound. u is the distance in steps:

    spline   cubic B-splines, `grid` intervals → grid + 3 bases; β(u) = (max(0, 2−|u|)³ − 4·max(0, 1−|u|)³)/6
    rbf      Gaussians, `grid` centers; β(u) = exp(−u²)                                      FastKAN, Li 2024

Not included: grids that move during training. Inputs outside the grid use the silu branch only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
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
    require_number,
    store_whole,
    timed_width,
)

TIMED_FEATURES = 16
"""Number of inputs of the layer that is timed when an engine is calibrated."""


@dataclass(frozen=True)
class KAN(Layer):
    """Kolmogorov–Arnold layer: h_o = Σ_i φ_oi(x_i). x (B, I), weight (O, I·K), base (O, I) → h (B, O).

    Parameters
    ----------
    d_out : int
        Number of outputs.
    basis : {"spline", "rbf"}
        Cubic B-splines or Gaussians.
    grid : int
        Number of grid intervals for splines, of centers for Gaussians.
    bound : float
        The grid covers −bound to bound.

    Raises
    ------
    SpecError
        If an option is invalid.

    Examples
    --------
    >>> KAN(8, grid=5).n_bases
    8
    """

    kind: ClassVar[str] = "kan"
    mixes: ClassVar[bool] = True
    letters: ClassVar[Mapping[str, str]] = {"K": "bases (in columns: inputs of the inner linear map)"}
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
        """Number of bases K per input."""
        return self.grid + 3 if self.basis == "spline" else self.grid

    @property
    def step(self) -> float:
        """Distance between two centers."""
        return 2 * self.bound / (self.grid if self.basis == "spline" else self.grid - 1)

    @property
    def centres(self) -> Array:
        """Centers of the bases, (K,)."""
        return self.first + self.step * np.arange(self.n_bases)

    @property
    def first(self) -> float:
        """Smallest center."""
        return -self.bound - self.step if self.basis == "spline" else -self.bound

    def width(self, d: int) -> int:
        return self.d_out

    def widest(self, d: int) -> int:
        return max(self.d_out, d * self.n_bases)

    def parameters(self, d: int) -> tuple[Parameter, ...]:
        K = self.n_bases
        small = Draw("normal", 0.1 / math.sqrt(d * K))  # small values, so that φ is initially close to its silu branch
        return (
            Parameter(
                name="weight", shape=(self.d_out, d * K), role="weight", fan_in=d * K, fan_out=self.d_out, value=small
            ),
            Parameter(name="base", shape=(self.d_out, d), role="weight", fan_in=d, fan_out=self.d_out),
        )

    def cost(self, d: int, batch: int, *, input_gradient: bool = True) -> Flops:
        B, I, O, K = named(B=batch, I=d, O=self.d_out, K=self.n_bases)  # noqa: E741
        # FLOPs per base      forward                                             backward
        # spline              u: 2, |u|: 1, two clipped cubes: 8, difference: 3   derivative: 10, times δ and sum: 2
        # Gaussian            u: 2, square, sign and exp: 3                       derivative: 3, times δ and sum: 2
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
            return Kept(per_row=bases + d)  # the inputs of both matrix products
        # Kept for the backward pass: the bases, u, for splines also the two clipped lines, and x for silu.
        return Kept(input=True, per_row=(4 if self.basis == "spline" else 2) * bases + d)

    def bases(self, x: Array) -> tuple[Array, Array]:
        """Return β and dβ/dx at x (B, I), each (B, I, K)."""
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
        features = timed_width(TIMED_FEATURES, self.n_bases)
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
