"""The classic activations: identity, step, powers, sigmoids, sine, softmax.

Each is a plain function that binds its constants and returns a `Function`; the maths stands in its `formula`. All are
exact to rounding in float64 and raise no floating-point warning for |z| ≤ 1e4; z = ±∞ gives the limit; float32 input
gives float32 output. Where f or f′ jumps, step(0) = 1 and hard tanh′(±1) = 0, as PyTorch has it.

Left out on purpose: variants that differ from one of these by a clipped tail only, such as the hard sigmoid.
"""

from __future__ import annotations

import numpy as np

from .checks import number, whole
from .function import Array, Function, Kept
from .special import logistic, logistic_slope

_KEEPS_INPUT = Kept(input=True)
_KEEPS_OUTPUT = Kept(output=True)


def identity() -> Function:
    """No activation: layers joined by it collapse into one."""

    def df(z: Array) -> Array:
        return np.ones_like(z)

    return Function(
        name="identity",
        formula="z",
        latex="z",
        f=np.positive,
        df=df,
        flops=0,
        flops_backward=0,
        cached="nothing",
        kept=Kept(),
        torch_module="Identity",
    )


def step() -> Function:
    """Heaviside's step, of the perceptron. No gradient passes at all, so it both vanishes and dies."""

    def f(z: Array) -> Array:
        return np.heaviside(z, 1.0, dtype=np.result_type(z))

    return Function(
        name="step",
        formula="1 if z ≥ 0 else 0",
        latex=r"\mathbf{1}[z \ge 0]",
        f=f,
        df=np.zeros_like,
        flops=1,
        flops_backward=0,
        cached="nothing",
        kept=Kept(),
        kinks=(0.0,),
        vanishes=True,
        dies=True,
        silent_below=True,
    )


def polynomial(*, p: int = 2) -> Function:
    """zᵖ: shows how values and slopes blow up. Overflow to ∞ is its lesson, so it is not warned of."""
    p = whole("polynomial", "p", p, low=1, high=16)

    def f(z: Array) -> Array:
        with np.errstate(over="ignore"):
            return z**p

    def df(z: Array) -> Array:
        with np.errstate(over="ignore"):
            return p * z ** (p - 1)

    return Function(
        name="polynomial",
        constants=(("p", p),),
        formula="z" + str(p).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")),
        latex=f"z^{{{p}}}",
        f=f,
        df=df,
        flops=p - 1,
        flops_backward=p - 1,  # p − 2 products to the power p − 1, and one by p
        cached="z" if p > 1 else "nothing",
        kept=_KEEPS_INPUT,
    )


def sqrt() -> Function:
    """√z: shows how a function without values below 0 fails. NaN there, and an infinite slope at 0."""

    def f(z: Array) -> Array:
        with np.errstate(invalid="ignore"):
            return np.sqrt(z)

    def df(z: Array) -> Array:
        with np.errstate(invalid="ignore", divide="ignore"):
            return 0.5 / np.sqrt(z)

    return Function(
        name="sqrt",
        formula="√z",
        latex=r"\sqrt{z}",
        f=f,
        df=df,
        flops=1,
        flops_backward=2,
        cached="a",
        kept=_KEEPS_OUTPUT,
        kinks=(0.0,),
    )


def sigmoid(*, a: float = 1.0) -> Function:
    """σ(az). A large slope a makes it the step function."""
    a = number("sigmoid", "a", a, positive=True)
    slope = "" if a == 1 else f"{a:g}"

    def f(z: Array) -> Array:
        return logistic(a * z)

    def df(z: Array) -> Array:
        return a * logistic_slope(a * z)

    return Function(
        name="sigmoid",
        constants=(("a", a),),
        formula=f"1 / (1 + exp(−{slope}z))",
        latex=rf"\frac{{1}}{{1 + e^{{-{slope}z}}}}",
        f=f,
        df=df,
        flops=4 + (a != 1),
        flops_backward=2 + (a != 1),
        cached="a",
        kept=_KEEPS_OUTPUT,
        vanishes=True,
        torch_module="Sigmoid" if a == 1 else None,
    )


def tanh() -> Function:
    """tanh(z) = 2σ(2z) − 1."""

    def df(z: Array) -> Array:
        return 4 * logistic_slope(2 * z)

    return Function(
        name="tanh",
        formula="tanh(z)",
        latex=r"\tanh(z)",
        f=np.tanh,
        df=df,
        flops=6,
        flops_backward=2,
        cached="a",
        kept=_KEEPS_OUTPUT,
        vanishes=True,
        torch_module="Tanh",
    )


def hard_tanh() -> Function:
    """z between −1 and 1, flat outside: tanh for one comparison at each end."""

    def f(z: Array) -> Array:
        return np.clip(z, -1, 1)

    def df(z: Array) -> Array:
        return np.where(np.abs(z) < 1, np.ones_like(z), 0)

    return Function(
        name="hard_tanh",
        formula="min(1, max(−1, z))",
        latex=r"\min(1, \max(-1, z))",
        f=f,
        df=df,
        flops=2,
        flops_backward=2,
        cached="sign",  # one bit: inside or not
        kept=_KEEPS_INPUT,
        kinks=(-1.0, 1.0),
        vanishes=True,
        dies=True,
        torch_module="Hardtanh",
    )


def sin() -> Function:
    """sin z: periodic features and implicit representations."""
    return Function(
        name="sin",
        formula="sin(z)",
        latex=r"\sin(z)",
        f=np.sin,
        df=np.cos,
        flops=1,
        flops_backward=1,
        cached="z",
        kept=_KEEPS_INPUT,
    )


def softmax() -> Function:
    """eᶻⁱ / Σ eᶻʲ along the last axis, for the output; its gradient is a product with a full Jacobian."""

    def f(z: Array) -> Array:
        e = np.exp(z - z.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)

    def df(z: Array) -> Array:
        a = f(z)
        return a * (1 - a)

    def vjp(z: Array, da: Array) -> Array:
        a = f(z)
        return a * (da - (da * a).sum(axis=-1, keepdims=True))

    return Function(
        name="softmax",
        formula="exp(zᵢ) / Σⱼ exp(zⱼ)",
        latex=r"\frac{e^{z_i}}{\sum_j e^{z_j}}",
        f=f,
        df=df,
        vjp=vjp,
        flops=5,  # maximum, difference, exp, sum, quotient
        flops_backward=3,  # four for a(δ − Σδa), one of them the product with δ
        cached="a",
        kept=_KEEPS_OUTPUT,
        vanishes=True,
        torch_module="Softmax",
    )
