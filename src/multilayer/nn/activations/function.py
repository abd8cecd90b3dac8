"""The class `ActivationFunction`: an activation with its exact derivative and all facts that other packages need.

    a = f(z),   δ_z = δ_a · f′(z),   ∂L/∂p = Σ δ_a · ∂f/∂p  for each learned parameter p

The functions of the catalogue, such as `leaky_relu(alpha=0.01)`, create an `ActivationFunction` with bound constants. z
is an array in float64 or float32. Learned parameters are passed by name: `fn.f(z, alpha=...)`. A missing one has its
initial value. A learned parameter has one of two forms:

    a scalar per unit          its shape broadcasts against z
    a vector of n per unit     its shape is (..., n), and (...) broadcasts against z

FLOPs are nominal. Each of + − × ÷, comparison, exp, log, erf, sqrt, sin and cos counts as one; tanh counts as six, from
its definition. This is a convention, not a measurement.

The module also has what the functions share: checks of constants, and special functions that are accurate in both tails
and raise no warnings for |z| ≤ 1e4. They compute exponentials of −|z| and both tails of Φ with erfc, so that no result
is a difference of nearly equal numbers.
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
    """Memory that PyTorch's autograd keeps for the backward pass of an operation on B rows of d values.

    `input` and `output` are true if autograd keeps these tensors. If another operation keeps the same tensor, it counts
    once. `extra` counts further floats per element, `per_row` per row and `per_batch` per call.
    """

    input: bool = False
    output: bool = False
    extra: int = 0
    per_row: int = 0
    per_batch: int = 0


@dataclass(frozen=True, kw_only=True)
class ActivationFunction:
    """An activation with bound constants. Equality and hash use `name` and `constants` only."""

    name: str
    constants: tuple[tuple[str, object], ...] = ()
    formula: str = field(compare=False)
    latex: str = field(compare=False)
    f: Callable[Concatenate[Array, ...], Array] = field(compare=False, repr=False)
    df: Callable[Concatenate[Array, ...], Array] = field(compare=False, repr=False)
    """f′(z). For softmax, which is not elementwise, the diagonal of the Jacobian; see `vjp`."""
    dp: Callable[..., Mapping[str, Array]] | None = field(default=None, compare=False, repr=False)
    """∂f/∂p for each learned parameter: with the shape of z for a scalar, with n appended for a vector."""
    learned: Mapping[str, Array] = field(default_factory=dict[str, Array], compare=False)
    """Initial value of each learned parameter for one unit: shape () or (n,)."""
    vjp: Callable[[Array, Array], Array] | None = field(default=None, compare=False, repr=False)
    """(z, δ_a) → δ_z along the last axis, if f is not elementwise."""
    parts: tuple[ActivationFunction, ...] = field(default=(), compare=False, repr=False)
    """The functions that a composed activation consists of."""
    flops: int = field(compare=False)
    """Forward FLOPs per element."""
    flops_backward: int = field(compare=False)
    """FLOPs per element to compute f′ and ∂f/∂p from the cache, without the product with δ."""
    cached: str = field(default="z", compare=False)
    """What the backward pass needs: "nothing", "sign", "a", "z" or "z, σ(z)"."""
    kept: Kept = field(default=Kept(input=True), compare=False)
    """Memory that PyTorch keeps."""
    kept_on_data: Kept | None = field(default=None, compare=False)
    """Memory that PyTorch keeps if only the learned parameters need a gradient, not z. None means the same memory."""
    kinks: tuple[float, ...] = field(default=(), compare=False)
    """Points at which f or f′ jumps. Finite differences are not valid there."""
    vanishes: bool = field(default=False, compare=False)
    """Whether f′ tends to 0 on both sides, so that gradients shrink with depth."""
    dies: bool = field(default=False, compare=False)
    """Whether f′ is exactly 0 over a half-line, so that a unit can stop learning permanently."""
    silent_below: bool = field(default=False, compare=False)
    """Whether f and f′ are 0 below 0. A sum or a gate can only die if this holds for all its parts."""
    torch_module: str | None = field(default=None, compare=False)
    """Class in `torch.nn` for the function with these constants."""
    on_page: bool = field(default=True, compare=False)
    """Whether the explorer can compute it (frontend/engine/activations.ts). If not, it shows values from Python."""

    def constant(self, name: str) -> Any:
        """Return the value of a constant."""
        return dict(self.constants)[name]

    @property
    def elementwise(self) -> bool:
        """Whether each output depends on one input."""
        return self.vjp is None

    @property
    def cached_bits(self) -> int:
        """Bits per element that the backward pass needs, in float32."""
        return {"nothing": 0, "sign": 1, "a": 32, "z": 32, "z, σ(z)": 64}[self.cached]


def initial(value: float | Array) -> Array:
    """Return a read-only initial value of a learned parameter. All users of a function share it."""
    array = np.array(value, dtype=np.float64)
    array.flags.writeable = False
    return array


def number(where: str, name: str, value: object, *, positive: bool = False) -> float:
    """Check a finite number and return it as a float, so that 1 and 1.0 give equal functions."""
    result = _real(value)
    if not math.isfinite(result) or (positive and result <= 0):
        kind = "positive" if positive else "finite"
        raise SpecError(f"{where} needs {name} to be a {kind} number, got {name}={value!r}")
    return result


def whole(where: str, name: str, value: object, *, low: int, high: int) -> int:
    """Check an integer between two inclusive bounds. 3.0 is valid, since JSON from other languages may contain it."""
    result = _real(value)
    if not low <= result <= high or not result.is_integer():
        raise SpecError(f"{where} needs {name} to be a whole number from {low} to {high}, got {name}={value!r}")
    return int(result)


def one_of(where: str, name: str, value: object, valid: Iterable[str]) -> str:
    """Check a name."""
    valid = tuple(valid)
    if not isinstance(value, str) or value not in valid:
        raise SpecError(unknown_name(f"{name} of {where}", str(value), valid))
    return value


def _real(value: object) -> float:
    """Return the value as a float, or NaN if it is not a number. A bool is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # an integer too large for a float
        return math.inf


def logistic(z: Array) -> Array:
    """Return σ(z) = 1 / (1 + e⁻ᶻ), with a small relative error in both tails."""
    e = np.exp(-np.abs(z))
    return np.where(z >= 0, 1 / (1 + e), e / (1 + e))


def logistic_slope(z: Array) -> Array:
    """Return σ′(z) = σ(z) σ(−z)."""
    e = np.exp(-np.abs(z))
    return e / (1 + e) ** 2


def log_one_plus_exp(z: Array) -> Array:
    """Return log(1 + eᶻ). np.logaddexp is the same, but warns about NaN."""
    return np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))


def gated(z: Array, gate: Array) -> Array:
    """Return z · gate, and 0 if the gate is 0, even for an infinite z: the gates decrease faster than z grows."""
    return np.where(gate == 0, 0, z) * gate


def normal_cdf(z: Array) -> Array:
    """Return Φ(z) = erfc(−z/√2) / 2."""
    # One libm call per element takes 0.1 µs. A 28-term Chebyshev series in numpy is slower and less accurate.
    x = np.asarray(-z / math.sqrt(2), dtype=np.float64)
    values = np.fromiter(map(math.erfc, x.ravel().tolist()), dtype=np.float64, count=x.size)
    return (values.reshape(x.shape) / 2).astype(np.result_type(z), copy=False)


def normal_pdf(z: Array) -> Array:
    """Return Φ′(z)."""
    return np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
