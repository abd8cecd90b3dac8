"""What an activation is: one function of one number, its exact derivative and every fact that can be told of it.

    a = f(z),   δ_z = δ_a · f′(z),   ∂L/∂p = Σ δ_a · ∂f/∂p  for each learned number p

An `ActivationFunction` is made by one of the plain functions of the catalogue (`leaky_relu(alpha=0.01)`), so its
constants are already bound. Learned numbers are passed by name: `fn.f(z, alpha=...)`; one left out has its initial value. A
learned number is either a scalar per unit, arriving with a shape that broadcasts against z, or a vector of n per unit, arriving
with shape (..., n) whose leading part broadcasts against z. z is an array, float64 or float32.

FLOPs are nominal: each of + − × ÷, comparison, exp, log, erf, sqrt, sin and cos counts as one; tanh counts as the six
operations of its definition. They are a stated convention, not a measurement.

The module also has what the catalogue's functions share: the special functions they are written in, accurate in both
tails and silent for |z| ≤ 1e4, and the checks of their constants. Exponentials are taken of −|z|, and both tails of Φ
come from erfc, so no result is a difference of near-equal numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Concatenate

import numpy as np
from numpy.typing import NDArray

from ...errors import SpecError, unknown_name

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
class ActivationFunction:
    """An activation with its constants bound. Equality and hash follow `name` and `constants` alone."""

    name: str
    constants: tuple[tuple[str, object], ...] = ()
    formula: str = field(compare=False)
    latex: str = field(compare=False)
    f: Callable[Concatenate[Array, ...], Array] = field(compare=False, repr=False)
    df: Callable[Concatenate[Array, ...], Array] = field(compare=False, repr=False)
    """Elementwise: f′(z). For softmax, which is not: the diagonal of the Jacobian; see `vjp`."""
    dp: Callable[..., Mapping[str, Array]] | None = field(default=None, compare=False, repr=False)
    """∂f/∂p for each learned p: the shape of z for a scalar, that of z with n appended for a vector."""
    learned: Mapping[str, Array] = field(default_factory=dict[str, Array], compare=False)
    """Initial value of each learned number, for one unit: shape () or (n,)."""
    vjp: Callable[[Array, Array], Array] | None = field(default=None, compare=False, repr=False)
    """Only where f is not elementwise: (z, δ_a) → δ_z along the last axis."""
    parts: tuple[ActivationFunction, ...] = field(default=(), compare=False, repr=False)
    """The functions it is made of, for those that are."""
    flops: int = field(compare=False)
    """Forward FLOPs per element."""
    flops_backward: int = field(compare=False)
    """FLOPs per element to evaluate f′ (and ∂f/∂p) from what is cached; the product with δ is not in it."""
    cached: str = field(default="z", compare=False)
    """What a backward pass has to remember: "nothing", "sign", "a", "z" or "z, σ(z)"."""
    kept: Kept = field(default=Kept(input=True), compare=False)
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


def number(where: str, name: str, value: object, *, positive: bool = False) -> float:
    """A finite number; every kind of number becomes a float, so that 1 and 1.0 make equal functions."""
    result = _real(value)
    if not math.isfinite(result) or (positive and result <= 0):
        kind = "positive" if positive else "finite"
        raise SpecError(f"{where} needs {name} to be a {kind} number, got {name}={value!r}")
    return result


def whole(where: str, name: str, value: object, *, low: int, high: int) -> int:
    """A whole number between two bounds, both allowed. 3.0 is 3, as JSON from other languages writes it."""
    result = _real(value)
    if not low <= result <= high or not result.is_integer():
        raise SpecError(f"{where} needs {name} to be a whole number from {low} to {high}, got {name}={value!r}")
    return int(result)


def one_of(where: str, name: str, value: object, valid: Iterable[str]) -> str:
    """A name from a closed set."""
    valid = tuple(valid)
    if not isinstance(value, str) or value not in valid:
        raise SpecError(unknown_name(f"{name} of {where}", str(value), valid))
    return value


def _real(value: object) -> float:
    """The value as a float, NaN where it is not a number; a truth value is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # a whole number too large for a float
        return math.inf


def logistic(z: Array) -> Array:
    """σ(z) = 1 / (1 + e⁻ᶻ), with a small relative error in both tails."""
    e = np.exp(-np.abs(z))
    return np.where(z >= 0, 1 / (1 + e), e / (1 + e))


def logistic_slope(z: Array) -> Array:
    """σ′(z) = σ(z) σ(−z)."""
    e = np.exp(-np.abs(z))
    return e / (1 + e) ** 2


def log_one_plus_exp(z: Array) -> Array:
    """log(1 + eᶻ). np.logaddexp is the same, but warns of NaN."""
    return np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))


def gated(z: Array, gate: Array) -> Array:
    """z · gate, and 0 where the gate is 0 even for an infinite z: all our gates fall faster than z grows."""
    return np.where(gate == 0, 0, z) * gate


def normal_cdf(z: Array) -> Array:
    """Φ(z) = erfc(−z/√2) / 2."""
    # One libm call per element takes 0.1 µs; a 28-term Chebyshev series in numpy is slower and less accurate.
    x = np.asarray(-z / math.sqrt(2), dtype=np.float64)
    values = np.fromiter(map(math.erfc, x.ravel().tolist()), dtype=np.float64, count=x.size)
    return (values.reshape(x.shape) / 2).astype(np.result_type(z), copy=False)


def normal_pdf(z: Array) -> Array:
    """Φ′(z)."""
    return np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
