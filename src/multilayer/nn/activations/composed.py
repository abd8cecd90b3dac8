"""Activations made of others: a gate on z, and a learned sum.

    generalised ReLU   f = z β(z)            f′ = β + z β′
    combination        f = Σᵢ αᵢ φᵢ(z)       f′ = Σᵢ αᵢ φᵢ′      ∂f/∂αᵢ = φᵢ

β and every φᵢ are functions of `building_blocks`, with their usual constants. Left out on purpose: parts with other
constants or with learned numbers of their own; write such a function as an entry of the catalogue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from ...errors import SpecError
from .checks import one_of
from .fixed import hard_tanh, identity, polynomial, sigmoid, sin, step, tanh
from .function import Array, Function, Kept, initial
from .rectifiers import elu, gelu, gelu_tanh, leaky_relu, mish, relu, selu, silu, softplus
from .special import gated

building_blocks: dict[str, Callable[[], Function]] = {
    "identity": identity,
    "step": step,
    "polynomial": polynomial,
    "sigmoid": sigmoid,
    "tanh": tanh,
    "hard_tanh": hard_tanh,
    "sin": sin,
    "relu": relu,
    "leaky_relu": leaky_relu,
    "elu": elu,
    "selu": selu,
    "softplus": softplus,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "silu": silu,
    "mish": mish,
}
"""What can be composed: elementwise, nothing learned, and finite for every finite z (which √z is not)."""


def generalised_relu(*, gate: str = "sigmoid") -> Function:
    """z β(z) for a gate β: SiLU from the sigmoid, ReLU from the step (but its slope at 0 is step(0) = 1)."""
    gate = one_of("generalised_relu", "gate", gate, building_blocks)
    beta = building_blocks[gate]()

    def f(z: Array) -> Array:
        return gated(z, beta.f(z))

    def df(z: Array) -> Array:
        return beta.f(z) + gated(z, beta.df(z))

    return Function(
        name="generalised_relu",
        constants=(("gate", gate),),
        formula=f"z·({beta.formula})",
        latex=rf"z \left({beta.latex}\right)",
        f=f,
        df=df,
        parts=(beta,),
        flops=beta.flops + 1,
        flops_backward=beta.flops + beta.flops_backward + 2,  # β again, β′, then β + zβ′
        cached="z",
        kept=Kept(input=True, extra=beta.kept.extra + (gate != "identity")),  # β(z), which for the identity is z itself
        kinks=beta.kinks,
        dies=beta.silent_below,
        on_page=False,
    )


def combination(*, parts: str | Iterable[str] = "identity+tanh+relu") -> Function:
    """Σ αᵢ φᵢ(z) with α learned, from the mean of the parts: "relu+tanh", or the names one by one."""
    names = _part_names(parts)
    functions = tuple(building_blocks[name]() for name in names)
    n = len(functions)
    alpha0 = initial(np.full(n, 1 / n))

    def f(z: Array, alpha: Array = alpha0) -> Array:
        return sum((alpha[..., i] * phi.f(z) for i, phi in enumerate(functions)), start=np.zeros_like(z))

    def df(z: Array, alpha: Array = alpha0) -> Array:
        return sum((alpha[..., i] * phi.df(z) for i, phi in enumerate(functions)), start=np.zeros_like(z))

    def dp(z: Array, alpha: Array = alpha0) -> Mapping[str, Array]:
        return {"alpha": np.stack([phi.f(z) for phi in functions], axis=-1)}

    return Function(
        name="combination",
        constants=(("parts", "+".join(names)),),
        formula=" + ".join(f"α{_subscript(i)}·({phi.formula})" for i, phi in enumerate(functions, 1)),
        latex=" + ".join(rf"\alpha_{{{i}}} \left({phi.latex}\right)" for i, phi in enumerate(functions, 1)),
        f=f,
        df=df,
        dp=dp,
        learned={"alpha": alpha0},
        parts=functions,
        flops=sum(phi.flops for phi in functions) + 2 * n - 1,
        # Each φ again, which is ∂f/∂α, each φ′ from it, and the sum.
        flops_backward=sum(phi.flops + phi.flops_backward for phi in functions) + 2 * n - 1,
        cached="z",
        kept=Kept(
            # Every φ(z) is kept for ∂f/∂α; the identity's is z itself.
            input="identity" in names or any(phi.kept.input for phi in functions),
            extra=sum(phi.kept.extra + (phi.name != "identity") for phi in functions),
        ),
        kinks=tuple(sorted({kink for phi in functions for kink in phi.kinks})),
        vanishes=all(phi.vanishes for phi in functions),
        dies=all(phi.silent_below for phi in functions),
        on_page=False,
    )


def _part_names(given: object) -> tuple[str, ...]:
    split = given.split("+") if isinstance(given, str) else given
    if not isinstance(split, Iterable):
        raise SpecError(f"combination needs parts to be names such as 'relu+tanh', got parts={given!r}")
    names = tuple(one_of("combination", "part", name, building_blocks) for name in split)
    if not names or len(set(names)) < len(names):
        raise SpecError(f"combination needs parts to be one or more different names, got parts={'+'.join(names)!r}")
    return names


def _subscript(i: int) -> str:
    return str(i).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))
