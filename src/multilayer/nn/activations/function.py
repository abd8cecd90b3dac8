"""What an activation is: one function of one number, its exact derivative and every fact that can be told of it.

    a = f(z),   δ_z = δ_a · f′(z),   ∂L/∂p = Σ δ_a · ∂f/∂p  for each learned number p

A `Function` is made by one of the plain functions of the catalogue (`leaky_relu(alpha=0.01)`), so its constants are
already bound. Learned numbers are passed by name: `fn.f(z, alpha=...)`; one left out has its initial value. A learned
number is either a scalar per unit, arriving with a shape that broadcasts against z, or a vector of n per unit, arriving
with shape (..., n) whose leading part broadcasts against z. z is an array, float64 or float32.

FLOPs are nominal: each of + − × ÷, comparison, exp, log, erf, sqrt, sin and cos counts as one; tanh counts as the six
operations of its definition. They are a stated convention, not a measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Kept:
    """What PyTorch's autograd keeps for the backward pass of one operation on B rows of d numbers.

    `input` and `output` are the tensors at either end, which a neighbour may keep as well (a storage counts once);
    `extra` counts further floats per element, `per_row` per row and `per_batch` per call.
    """

    input: bool = False
    output: bool = False
    extra: int = 0
    per_row: int = 0
    per_batch: int = 0


@dataclass(frozen=True, kw_only=True)
class Function:
    """An activation with its constants bound. Equality and hash follow `name` and `constants` alone."""

    name: str
    constants: tuple[tuple[str, object], ...] = ()
    formula: str = field(compare=False)
    latex: str = field(compare=False)
    f: Callable[..., Array] = field(compare=False, repr=False)
    df: Callable[..., Array] = field(compare=False, repr=False)
    """Elementwise: f′(z). For softmax, which is not: the diagonal of the Jacobian; see `vjp`."""
    dp: Callable[..., Mapping[str, Array]] | None = field(default=None, compare=False, repr=False)
    """∂f/∂p for each learned p: the shape of z for a scalar, that of z with n appended for a vector."""
    learned: Mapping[str, Array] = field(default_factory=dict[str, Array], compare=False)
    """Initial value of each learned number, for one unit: shape () or (n,)."""
    vjp: Callable[[Array, Array], Array] | None = field(default=None, compare=False, repr=False)
    """Only where f is not elementwise: (z, δ_a) → δ_z along the last axis."""
    parts: tuple[Function, ...] = field(default=(), compare=False, repr=False)
    """The functions it is made of, for those that are."""
    flops: int = field(compare=False)
    """Forward FLOPs per element."""
    flops_backward: int = field(compare=False)
    """FLOPs per element to evaluate f′ (and ∂f/∂p) from what is cached; the product with δ is not in it."""
    cached: str = field(compare=False)
    """What a backward pass has to remember: "nothing", "sign", "a", "z" or "z, σ(z)"."""
    kept: Kept = field(compare=False)
    """What PyTorch keeps for it."""
    kept_on_data: Kept | None = field(default=None, compare=False)
    """What PyTorch keeps where z itself needs no gradient, so only the learned numbers do; None: the same."""
    kinks: tuple[float, ...] = field(default=(), compare=False)
    """Where f′ jumps or f does; finite differences are not valid there."""
    vanishes: bool = field(default=False, compare=False)
    """f′ tends to 0 on both sides, so that gradients shrink with depth."""
    dies: bool = field(default=False, compare=False)
    """f′ is exactly 0 over a half-line, so that a unit can stop learning for good."""

    silent_below: bool = field(default=False, compare=False)
    """f and f′ are both 0 below 0. A sum or a gate can only die if all its parts are such functions."""
    torch_module: str | None = field(default=None, compare=False)
    """The class in `torch.nn` that computes it with these constants."""
    on_page: bool = field(default=True, compare=False)
    """Whether the explorer can compute it (frontend/engine/activations.ts). If not, it shows values from Python."""

    def constant(self, name: str) -> Any:
        """The value bound to a constant."""
        return dict(self.constants)[name]

    @property
    def elementwise(self) -> bool:
        return self.vjp is None

    @property
    def cached_bits(self) -> int:
        """Bits per element of what a backward pass has to remember, in float32."""
        return {"nothing": 0, "sign": 1, "a": 32, "z": 32, "z, σ(z)": 64}[self.cached]


def initial(value: float | Array) -> Array:
    """An initial value of a learned number: read-only, since one function is shared by everyone who asks for it."""
    array = np.array(value, dtype=np.float64)
    array.flags.writeable = False
    return array
