"""Activations with learned parameters, and activations composed of others.

    PReLU              z if z > 0 else αz                             He et al. 2015
    learned Swish      z σ(βz)                                        Ramachandran et al. 2017
    trainable Swish    σ(az + b)(cz + d)
    APL                max(0, z) + Σᵢ aᵢ max(0, bᵢ − z)               Agostinelli et al. 2014
    KAF                Σᵢ αᵢ exp(−γ(z − dᵢ)²), d fixed                Scardapane et al. 2019
    combination        Σᵢ αᵢ φᵢ(z)
    generalized ReLU   z β(z), without learned parameters

β and every φᵢ are functions of `building_blocks` with their default constants. A parameter that a call leaves out has
its initial value. Initial values are deterministic. The layer decides how many units share a parameter.

Not included: parts with other constants or with learned parameters. Add such a function to the catalogue instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from ...errors import SpecError
from . import fixed
from .function import ActivationFunction, Array, Kept, gated, initial, logistic, logistic_slope, number, one_of, whole

building_blocks: dict[str, Callable[[], ActivationFunction]] = {
    make.__name__: make
    for make in (
        fixed.identity,
        fixed.step,
        fixed.polynomial,
        fixed.sigmoid,
        fixed.tanh,
        fixed.hard_tanh,
        fixed.sin,
        fixed.relu,
        fixed.leaky_relu,
        fixed.elu,
        fixed.selu,
        fixed.softplus,
        fixed.gelu,
        fixed.gelu_tanh,
        fixed.silu,
        fixed.mish,
    )
}
"""Functions that can be composed: elementwise, without learned parameters, and finite for all z (unlike √z)."""


def generalised_relu(*, gate: str = "sigmoid") -> ActivationFunction:
    """z β(z) for a gate β: SiLU for the sigmoid, ReLU for the step, but with slope 1 at 0."""
    gate = one_of("generalised_relu", "gate", gate, building_blocks)
    beta = building_blocks[gate]()

    def f(z: Array) -> Array:
        return gated(z, beta.f(z))

    return ActivationFunction(
        name="generalised_relu",
        constants=(("gate", gate),),
        formula=f"z·({beta.formula})",
        latex=rf"z \left({beta.latex}\right)",
        f=f,
        df=lambda z: beta.f(z) + gated(z, beta.df(z)),
        parts=(beta,),
        flops=beta.flops + 1,
        flops_backward=beta.flops + beta.flops_backward + 2,  # β again, β′, then β + zβ′
        kept=Kept(input=True, extra=beta.kept.extra + (gate != "identity")),  # β(z), which is z for the identity
        kinks=beta.kinks,
        dies=beta.silent_below,
        on_page=False,
    )


def combination(*, parts: str | Iterable[str] = "identity+tanh+relu") -> ActivationFunction:
    """Σ αᵢ φᵢ(z) with learned α, initially the mean. `parts` is a string such as "relu+tanh", or a list of names."""
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

    return ActivationFunction(
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
        kept=Kept(
            # Every φ(z) is kept for ∂f/∂α. That of the identity is z.
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


def prelu(*, alpha: float = 0.25) -> ActivationFunction:
    """LeakyReLU with a learned slope α. At 0 the slope is α, as for LeakyReLU."""
    alpha = number("prelu", "alpha", alpha)
    alpha0 = initial(alpha)

    def f(z: Array, alpha: Array = alpha0) -> Array:
        return np.where(z > 0, z, alpha * z)

    def df(z: Array, alpha: Array = alpha0) -> Array:
        return np.where(z > 0, np.ones_like(z), alpha)

    def dp(z: Array, alpha: Array = alpha0) -> Mapping[str, Array]:
        return {"alpha": np.minimum(z, 0)}

    return ActivationFunction(
        name="prelu",
        constants=(("alpha", alpha),),
        formula="z if z > 0 else α·z",
        latex=r"\begin{cases} z & z > 0 \\ \alpha z & z \le 0 \end{cases}",
        f=f,
        df=df,
        dp=dp,
        learned={"alpha": alpha0},
        flops=2,
        flops_backward=2,
        kinks=(0.0,),
        torch_module="PReLU",
    )


def learned_swish(*, beta: float = 1.0) -> ActivationFunction:
    """Swish with a learned β. Initially it is SiLU."""
    beta = number("learned_swish", "beta", beta)
    beta0 = initial(beta)

    def f(z: Array, beta: Array = beta0) -> Array:
        return gated(z, logistic(beta * z))

    def df(z: Array, beta: Array = beta0) -> Array:
        return logistic(beta * z) + gated(beta * z, logistic_slope(beta * z))

    def dp(z: Array, beta: Array = beta0) -> Mapping[str, Array]:
        return {"beta": gated(z * z, logistic_slope(beta * z))}

    return ActivationFunction(
        name="learned_swish",
        constants=(("beta", beta),),
        formula="z·σ(β·z)",
        latex=r"z\,\sigma(\beta z)",
        f=f,
        df=df,
        dp=dp,
        learned={"beta": beta0},
        flops=6,
        flops_backward=7,  # SiLU's 5, the product by β, and z · zσ(1 − σ) for ∂f/∂β
        cached="z, σ(z)",
        kept=Kept(input=True, extra=1),
    )


def trainable_swish() -> ActivationFunction:
    """σ(az + b)(cz + d) with learned a, b, c and d. Initially a = c = 1 and b = d = 0, which is SiLU."""
    one, zero = initial(1.0), initial(0.0)

    def f(z: Array, a: Array = one, b: Array = zero, c: Array = one, d: Array = zero) -> Array:
        return gated(c * z + d, logistic(a * z + b))

    def df(z: Array, a: Array = one, b: Array = zero, c: Array = one, d: Array = zero) -> Array:
        return c * logistic(a * z + b) + gated(a * (c * z + d), logistic_slope(a * z + b))

    def dp(z: Array, a: Array = one, b: Array = zero, c: Array = one, d: Array = zero) -> Mapping[str, Array]:
        gate, slope = logistic(a * z + b), logistic_slope(a * z + b)
        return {"a": gated(z * (c * z + d), slope), "b": gated(c * z + d, slope), "c": gated(z, gate), "d": gate}

    return ActivationFunction(
        name="trainable_swish",
        formula="σ(a·z + b)·(c·z + d)",
        latex=r"\sigma(az + b)\,(cz + d)",
        f=f,
        df=df,
        dp=dp,
        learned={"a": one, "b": zero, "c": one, "d": zero},
        flops=9,  # two linear maps 4, σ 4, product
        flops_backward=10,  # w = cz + d 2, σ(1 − σ) 2, times w, then f′ 3, ∂a and ∂c one each
        cached="z, σ(z)",
        kept=Kept(input=True, extra=2),  # σ and cz + d
        on_page=False,
    )


def apl(*, n: int = 2) -> ActivationFunction:
    """ReLU plus n hinges max(0, bᵢ − z) with learned slopes a and positions b. Initially a = 0, which is ReLU.

    The initial positions have equal steps over [−1, 1], so that the hinges learn different features. A unit with z
    below all positions still learns a, so it does not die like a ReLU.
    """
    n = whole("apl", "n", n, low=1, high=64)
    a0 = initial(np.zeros(n))
    b0 = initial(np.linspace(-1, 1, n) if n > 1 else np.zeros(1))

    def f(z: Array, a: Array = a0, b: Array = b0) -> Array:
        return np.maximum(z, 0) + (a * np.maximum(b - z[..., None], 0)).sum(axis=-1)

    def df(z: Array, a: Array = a0, b: Array = b0) -> Array:
        return np.where(z > 0, np.ones_like(z), 0) - (a * (z[..., None] < b)).sum(axis=-1)

    def dp(z: Array, a: Array = a0, b: Array = b0) -> Mapping[str, Array]:
        return {"a": np.maximum(b - z[..., None], 0), "b": a * (z[..., None] < b)}

    return ActivationFunction(
        name="apl",
        constants=(("n", n),),
        formula="max(0, z) + Σᵢ aᵢ·max(0, bᵢ − z)",
        latex=r"\max(0, z) + \sum_i a_i \max(0, b_i - z)",
        f=f,
        df=df,
        dp=dp,
        learned={"a": a0, "b": b0},
        flops=1 + 4 * n,
        flops_backward=1
        + 5 * n,  # per hinge: comparison, slope and sum for f′; difference and maximum for ∂a; ∂b is the slope
        kept=Kept(extra=1 + n),  # the result of each maximum
        kept_on_data=Kept(extra=n),
        kinks=tuple(sorted({0.0, *b0.tolist()})),
        on_page=False,
    )


def kaf(*, n: int = 20, bound: float = 3.0, target: str = "tanh") -> ActivationFunction:
    """n Gaussians with fixed centers over [−bound, bound] and learned heights α, initially fitted to `target`.

    With Δ the distance between centers, γ = 1/(6Δ²). The initial α solves (K + εI)α = t, where
    Kᵢⱼ = exp(−γ(dᵢ − dⱼ)²) and t is the target at the centers d (section 3 of the paper). Far outside the bound f is 0.
    """
    n = whole("kaf", "n", n, low=2, high=64)
    bound = number("kaf", "bound", bound, positive=True)
    fitted = building_blocks[one_of("kaf", "target", target, building_blocks)]()
    places = np.linspace(-bound, bound, n)
    gamma = kaf_gamma(n, bound)

    def bumps(z: Array) -> Array:
        return np.exp(-gamma * (z[..., None] - places.astype(z.dtype)) ** 2)

    # Rounded, since the last digits of a linear solve depend on the BLAS, and all machines must get the same values.
    ridge = 1e-4
    alpha0 = initial(np.round(np.linalg.solve(bumps(places) + ridge * np.eye(n), fitted.f(places)), 6))

    def f(z: Array, alpha: Array = alpha0) -> Array:
        return (alpha * bumps(z)).sum(axis=-1)

    def df(z: Array, alpha: Array = alpha0) -> Array:
        k = bumps(z)
        return -2 * gamma * (alpha * gated(z[..., None] - places.astype(z.dtype), k)).sum(axis=-1)

    def dp(z: Array, alpha: Array = alpha0) -> Mapping[str, Array]:
        return {"alpha": bumps(z)}

    return ActivationFunction(
        name="kaf",
        constants=(("n", n), ("bound", bound), ("target", target)),
        formula=f"Σᵢ αᵢ·exp(−{gamma:.4g}·(z − dᵢ)²)",
        latex=rf"\sum_i \alpha_i e^{{-{gamma:.4g}(z - d_i)^2}}",
        f=f,
        df=df,
        dp=dp,
        learned={"alpha": alpha0},
        flops=6 * n - 1,  # per Gaussian: difference, square, product, exp, product, sum
        flops_backward=7 * n,  # Gaussians again 4n, which are ∂f/∂α; f′ 3n − 1, and −2γ once
        kept=Kept(extra=2 * n),  # z − d for the square and the exponentials
        kept_on_data=Kept(extra=n),
        vanishes=True,
        on_page=False,
    )


def kaf_gamma(n: int, bound: float) -> float:
    """Return γ of the kernel from the distance between its centers."""
    spacing = 2 * bound / (n - 1)
    return 1 / (6 * spacing**2)
