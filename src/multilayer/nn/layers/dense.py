"""Layers of linear maps: Linear, GLU and Maxout.

    Linear   z = s · x Wᵀ + b,  dW = s · dzᵀ x,  db = Σ_rows dz,  dx = s · dz W
             `scale` s is fixed and 1 by default; "tangent" is s = 1/√I, the parametrization with W ~ N(0, 1)
    GLU      y = f(W₁x + b₁) ⊙ (W₂x + b₂)                                      Dauphin et al. 2017, Shazeer 2020
             f = sigmoid (glu), ReLU (reglu), GELU (geglu), SiLU (swiglu)
    Maxout   y_o = max_j (x · W_oj + b_oj)                                     Goodfellow et al. 2013
             only the largest map gets the gradient; if several are equal, the first one

Not included: layers in which each output is a sum of learned functions of single inputs (`kan`).
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
from ..activations.function import ActivationFunction, Kept
from ..activations.properties import gain as gain_of
from .base import (
    TIMED_WIDTH,
    Array,
    Backward,
    Flops,
    Forward,
    Layer,
    Moments,
    Parameter,
    Pass,
    Passed,
    Tensors,
    Timed,
    lines,
    require_number,
    store_whole,
    timed_width,
)
from .elementwise import through


@dataclass(frozen=True)
class Linear(Layer):
    """Linear map: z = s · x Wᵀ + b. x (B, I), W (O, I), b (O,) → z (B, O).

    Parameters
    ----------
    d_out : int
        Number of outputs.
    bias : bool
        Whether there is a bias b.
    scale : float, "tangent" or None
        Fixed factor s. ``"tangent"`` is 1/√I. None is 1.

    Raises
    ------
    SpecError
        If an option is invalid.

    Examples
    --------
    >>> sum(p.size for p in Linear(10).parameters(784))
    7850
    """

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
        """Return the fixed factor s for d inputs."""
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
    width = timed_width(TIMED_WIDTH, replace(layer, d_out=1).widest(1))
    return (Timed(layer=replace(layer, d_out=width), d=1, standard=width, numbers=d_out),)


def affine_parameters(d: int, d_out: int, *, bias: bool) -> tuple[Parameter, ...]:
    """Return weight and bias of a linear map."""
    weight = Parameter(name="weight", shape=(d_out, d), role="weight", fan_in=d, fan_out=d_out)
    return (weight, Parameter(name="bias", shape=(d_out,), role="bias", fan_in=d, fan_out=d_out))[: 1 + bias]


def affine_cost(d: int, d_out: int, batch: int, *, bias: bool, scaled: bool = False, dA: bool = True) -> Flops:
    """Return the FLOPs of z = s · x Wᵀ + b. A fixed scale costs one product per output in each pass."""
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


GATES = {"glu": "sigmoid", "reglu": "relu", "geglu": "gelu", "swiglu": "silu"}
"""Activation f of each gated linear unit."""


def kurtosis(x: Moments) -> float:
    """Return E a⁴/(E a²)² − 1 of a unit: 2 for a Gaussian, 5 after a ReLU, interpolated in between."""
    share_of_relu = min(1.0, x.m**2 / x.q * math.pi)  # 1 after a ReLU, whose mean is √(q/π); 0 if the mean is 0
    return 2 + 3 * share_of_relu


@dataclass(frozen=True)
class GLU(Layer):
    """Gated linear unit: y = f(W₁x + b₁) ⊙ (W₂x + b₂). x (B, I), weight (2·O, I) = [W₁; W₂], bias (2·O,) → y (B, O).

    Parameters
    ----------
    d_out : int
        Number of outputs.
    variant : {"glu", "reglu", "geglu", "swiglu"}
        The function f: sigmoid, ReLU, GELU or SiLU.
    bias : bool
        Whether there are biases.

    Raises
    ------
    SpecError
        If an option is invalid.

    Examples
    --------
    >>> sum(p.size for p in GLU(64, "swiglu").parameters(32))
    4224
    """

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
    def gate(self) -> ActivationFunction:
        """The function f."""
        return activations.get(GATES[self.variant])

    def width(self, d: int) -> int:
        return self.d_out

    def widest(self, d: int) -> int:
        return 2 * self.d_out

    def parameters(self, d: int) -> tuple[Parameter, ...]:
        both = affine_parameters(d, 2 * self.d_out, bias=self.bias)
        return tuple(replace(p, fan_out=self.d_out) for p in both)  # each output has two projections

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
        return Kept(input=True, per_row=3 * self.d_out)  # both projections, and f of the first

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


@dataclass(frozen=True)
class Maxout(Layer):
    """Maxout: each output is the largest of k linear maps. x (B, I), weight (O·k, I), bias (O·k,) → y (B, O).

    Parameters
    ----------
    d_out : int
        Number of outputs.
    k : int
        Number of linear maps per output.
    bias : bool
        Whether the linear maps have biases.

    Raises
    ------
    SpecError
        If an option is invalid.

    Examples
    --------
    >>> sum(p.size for p in Maxout(16, k=3).parameters(8))
    432
    """

    kind: ClassVar[str] = "maxout"
    mixes: ClassVar[bool] = True
    letters: ClassVar[Mapping[str, str]] = {"k": "pieces of a maxout unit"}
    d_out: int
    k: int = 2
    _: KW_ONLY
    bias: bool = True

    def __post_init__(self) -> None:
        store_whole(self, d_out="width", k="k")

    def width(self, d: int) -> int:
        return self.d_out

    def widest(self, d: int) -> int:
        return self.d_out * self.k

    def parameters(self, d: int) -> tuple[Parameter, ...]:
        return affine_parameters(d, self.d_out * self.k, bias=self.bias)

    def cost(self, d: int, batch: int, *, input_gradient: bool = True) -> Flops:
        B, I, O, k = named(B=batch, I=d, O=self.d_out, k=self.k)  # noqa: E741
        product = 2 * B * I * (O * k)
        bias = B * (O * k) if self.bias else 0
        return Flops(
            forward=Forward(matmul=product, bias=bias, activation=B * O * (k - 1)),
            backward=Backward(dW=product, db=bias, dA=product if input_gradient else 0, activation=B * O),
        )

    def kept(self, d: int, *, input_gradient: bool = True) -> Kept:
        return Kept(input=True)  # the indices of the maxima are integers, which are not counted

    def timed(self, d: int) -> tuple[Timed, ...]:
        return timed_by_outputs(self, self.d_out)

    def forward(self, x: Array, p: Tensors, run: Pass) -> tuple[Array, Any]:
        z = x @ p["weight"].T  # (B, O·k)
        if self.bias:
            z = z + p["bias"]
        z = z.reshape(len(x), self.d_out, self.k)
        best = z.argmax(-1)[..., None]  # (B, O, 1)
        return np.take_along_axis(z, best, -1)[..., 0], (x, best)

    def backward(self, dy: Array, cache: Any, p: Tensors) -> tuple[Array, dict[str, Array]]:
        x, best = cache
        dz = np.zeros((*dy.shape, self.k), dy.dtype)
        np.put_along_axis(dz, best, dy[..., None], -1)
        dz = dz.reshape(len(dy), self.d_out * self.k)  # (B, O·k)
        grads = {"weight": dz.T @ x}
        if self.bias:
            grads["bias"] = dz.sum(0)
        return dz @ p["weight"], grads
