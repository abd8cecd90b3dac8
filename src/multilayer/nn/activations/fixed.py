"""Activations without learned parameters: identity, step, powers, sigmoids, sine, softmax, and the family of ReLU.

Each function binds its constants and returns an `ActivationFunction`, whose `formula` is the definition. In float64,
values are exact to rounding and raise no floating-point warning for |z| ≤ 1e4. z = ±∞ gives the limit. float32 input
gives float32 output. At jumps of f or f′, values are those of PyTorch: step(0) = 1, hard tanh′(±1) = 0, ReLU′(0) = 0,
LeakyReLU′(0) = ELU′(0) = α.

    LeakyReLU  Maas et al. 2013           GELU  Hendrycks & Gimpel 2016
    ELU        Clevert et al. 2016        SiLU  Elfwing et al. 2018; as Swish, Ramachandran et al. 2017
    SELU       Klambauer et al. 2017      Mish  Misra 2019

Not included: variants that only differ by a clipped tail, such as the hard sigmoid and ReLU6.
"""

from __future__ import annotations

import math

import numpy as np

from .function import (
    ActivationFunction,
    Array,
    Kept,
    gated,
    log_one_plus_exp,
    logistic,
    logistic_slope,
    normal_cdf,
    normal_pdf,
    number,
    whole,
)


def identity() -> ActivationFunction:
    """No activation. Linear layers with nothing else between them are equivalent to one."""
    return ActivationFunction(
        name="identity",
        formula="z",
        latex="z",
        f=np.positive,
        df=lambda z: np.ones_like(z),
        flops=0,
        flops_backward=0,
        cached="nothing",
        kept=Kept(),
        torch_module="Identity",
    )


def step() -> ActivationFunction:
    """The Heaviside step function, as in the perceptron. Its gradient is 0, so it both vanishes and dies."""
    return ActivationFunction(
        name="step",
        formula="1 if z ≥ 0 else 0",
        latex=r"\mathbf{1}[z \ge 0]",
        f=lambda z: np.heaviside(z, 1.0, dtype=np.result_type(z)),
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


def polynomial(*, p: int = 2) -> ActivationFunction:
    """zᵖ. It shows how values and slopes explode, so overflow to ∞ raises no warning."""
    p = whole("polynomial", "p", p, low=1, high=16)

    def f(z: Array) -> Array:
        with np.errstate(over="ignore"):
            return z**p

    def df(z: Array) -> Array:
        with np.errstate(over="ignore"):
            return p * z ** (p - 1)

    return ActivationFunction(
        name="polynomial",
        constants=(("p", p),),
        formula="z" + str(p).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")),
        latex=f"z^{{{p}}}",
        f=f,
        df=df,
        flops=p - 1,
        flops_backward=p - 1,  # p − 2 products to the power p − 1, and one by p
        cached="z" if p > 1 else "nothing",
    )


def sqrt() -> ActivationFunction:
    """√z. It shows how a function fails that is not defined below 0: NaN there, and an infinite slope at 0."""

    def f(z: Array) -> Array:
        with np.errstate(invalid="ignore"):
            return np.sqrt(z)

    def df(z: Array) -> Array:
        with np.errstate(invalid="ignore", divide="ignore"):
            return 0.5 / np.sqrt(z)

    return ActivationFunction(
        name="sqrt",
        formula="√z",
        latex=r"\sqrt{z}",
        f=f,
        df=df,
        flops=1,
        flops_backward=2,
        cached="a",
        kept=Kept(output=True),
        kinks=(0.0,),
    )


def sigmoid(*, a: float = 1.0) -> ActivationFunction:
    """σ(az). For a large slope a it approaches the step function."""
    a = number("sigmoid", "a", a, positive=True)
    slope = "" if a == 1 else f"{a:g}"

    return ActivationFunction(
        name="sigmoid",
        constants=(("a", a),),
        formula=f"1 / (1 + exp(−{slope}z))",
        latex=rf"\frac{{1}}{{1 + e^{{-{slope}z}}}}",
        f=lambda z: logistic(a * z),
        df=lambda z: a * logistic_slope(a * z),
        flops=4 + (a != 1),
        flops_backward=2 + (a != 1),
        cached="a",
        kept=Kept(output=True),
        vanishes=True,
        torch_module="Sigmoid" if a == 1 else None,
    )


def tanh() -> ActivationFunction:
    """tanh(z) = 2σ(2z) − 1."""
    return ActivationFunction(
        name="tanh",
        formula="tanh(z)",
        latex=r"\tanh(z)",
        f=np.tanh,
        df=lambda z: 4 * logistic_slope(2 * z),
        flops=6,
        flops_backward=2,
        cached="a",
        kept=Kept(output=True),
        vanishes=True,
        torch_module="Tanh",
    )


def hard_tanh() -> ActivationFunction:
    """z clipped to [−1, 1]: an approximation of tanh with two comparisons."""
    return ActivationFunction(
        name="hard_tanh",
        formula="min(1, max(−1, z))",
        latex=r"\min(1, \max(-1, z))",
        f=lambda z: np.clip(z, -1, 1),
        df=lambda z: np.where(np.abs(z) < 1, np.ones_like(z), 0),
        flops=2,
        flops_backward=2,
        cached="sign",  # one bit: inside or not
        kinks=(-1.0, 1.0),
        vanishes=True,
        dies=True,
        torch_module="Hardtanh",
    )


def sin() -> ActivationFunction:
    """sin z: periodic features and implicit representations."""
    return ActivationFunction(
        name="sin",
        formula="sin(z)",
        latex=r"\sin(z)",
        f=np.sin,
        df=np.cos,
        flops=1,
        flops_backward=1,
    )


def softmax() -> ActivationFunction:
    """eᶻⁱ / Σ eᶻʲ along the last axis, for outputs. Its gradient is a product with a full Jacobian."""

    def f(z: Array) -> Array:
        e = np.exp(z - z.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)

    def df(z: Array) -> Array:
        a = f(z)
        return a * (1 - a)

    def vjp(z: Array, da: Array) -> Array:
        a = f(z)
        return a * (da - (da * a).sum(axis=-1, keepdims=True))

    return ActivationFunction(
        name="softmax",
        formula="exp(zᵢ) / Σⱼ exp(zⱼ)",
        latex=r"\frac{e^{z_i}}{\sum_j e^{z_j}}",
        f=f,
        df=df,
        vjp=vjp,
        flops=5,  # maximum, difference, exp, sum, quotient
        flops_backward=3,  # four for a(δ − Σδa), of which the product with δ is not counted
        cached="a",
        kept=Kept(output=True),
        vanishes=True,
        torch_module="Softmax",
    )


def relu() -> ActivationFunction:
    """max(0, z)."""
    return ActivationFunction(
        name="relu",
        formula="max(0, z)",
        latex=r"\max(0, z)",
        f=lambda z: np.maximum(z, 0),
        df=lambda z: np.where(z > 0, np.ones_like(z), 0),
        flops=1,
        flops_backward=1,
        cached="sign",
        kept=Kept(output=True),
        kinks=(0.0,),
        dies=True,
        torch_module="ReLU",
        silent_below=True,
    )


def leaky_relu(*, alpha: float = 0.01) -> ActivationFunction:
    """ReLU with a small slope α below 0, so that no unit dies."""
    alpha = number("leaky_relu", "alpha", alpha)

    return ActivationFunction(
        name="leaky_relu",
        constants=(("alpha", alpha),),
        formula=f"z if z > 0 else {alpha:g}·z",
        latex=rf"\begin{{cases}} z & z > 0 \\ {alpha:g}\,z & z \le 0 \end{{cases}}",
        f=lambda z: np.where(z > 0, z, alpha * z),
        df=lambda z: np.where(z > 0, np.ones_like(z), alpha),
        flops=2,
        flops_backward=2,
        cached="sign",
        kinks=(0.0,),
        dies=alpha == 0,
        torch_module="LeakyReLU",
    )


def _exponential_linear(z: Array, alpha: float, scale: float) -> Array:
    return scale * np.where(z > 0, z, alpha * np.expm1(np.minimum(z, 0)))


def _exponential_linear_slope(z: Array, alpha: float, scale: float) -> Array:
    return scale * np.where(z > 0, np.ones_like(z), alpha * np.exp(np.minimum(z, 0)))


def elu(*, alpha: float = 1.0) -> ActivationFunction:
    """z above 0, and α(eᶻ − 1) below."""
    alpha = number("elu", "alpha", alpha)
    factor = "" if alpha == 1 else f"{alpha:g}·"

    return ActivationFunction(
        name="elu",
        constants=(("alpha", alpha),),
        formula=f"z if z > 0 else {factor}(exp(z) − 1)",
        latex=rf"\begin{{cases}} z & z > 0 \\ {factor.replace('·', '')}(e^z - 1) & z \le 0 \end{{cases}}",
        f=lambda z: _exponential_linear(z, alpha, 1.0),
        df=lambda z: _exponential_linear_slope(z, alpha, 1.0),
        flops=4,
        flops_backward=3,
        kinks=() if alpha == 1 else (0.0,),
        dies=alpha == 0,
        torch_module="ELU",
    )


# With these two constants, a layer of independent units keeps mean 0 and variance 1 (Klambauer et al. 2017).
SELU_SCALE = 1.0507009873554804934193349852946
SELU_ALPHA = 1.6732632423543772848170429916717


def selu() -> ActivationFunction:
    """ELU, scaled such that layers keep mean 0 and variance 1."""
    scale, alpha = f"{SELU_SCALE:.4f}", f"{SELU_ALPHA:.4f}"
    return ActivationFunction(
        name="selu",
        formula=f"{scale}·(z if z > 0 else {alpha}·(exp(z) − 1))",
        latex=rf"{scale} \begin{{cases}} z & z > 0 \\ {alpha} (e^z - 1) & z \le 0 \end{{cases}}",
        f=lambda z: _exponential_linear(z, SELU_ALPHA, SELU_SCALE),
        df=lambda z: _exponential_linear_slope(z, SELU_ALPHA, SELU_SCALE),
        flops=5,  # ELU and the scale
        flops_backward=4,
        kinks=(0.0,),
        torch_module="SELU",
    )


def softplus() -> ActivationFunction:
    """log(1 + eᶻ), a smooth ReLU whose derivative is the sigmoid."""
    return ActivationFunction(
        name="softplus",
        formula="log(1 + exp(z))",
        latex=r"\log(1 + e^z)",
        f=log_one_plus_exp,
        df=logistic,
        flops=3,
        flops_backward=4,
        torch_module="Softplus",
    )


def gelu() -> ActivationFunction:
    """z Φ(z), where Φ is the normal distribution function."""
    return ActivationFunction(
        name="gelu",
        formula="z·(1 + erf(z/√2))/2",
        latex=r"z\,\Phi(z) = \tfrac{z}{2}\left(1 + \operatorname{erf}\tfrac{z}{\sqrt{2}}\right)",
        f=lambda z: gated(z, normal_cdf(z)),
        df=lambda z: normal_cdf(z) + gated(z, normal_pdf(z)),
        flops=5,
        flops_backward=10,  # Φ 4, density 4, product and sum
        torch_module="GELU",
    )


def gelu_tanh() -> ActivationFunction:
    """The tanh approximation of GELU. ½(1 + tanh u) is computed as σ(2u), which is accurate in the left tail."""
    c, k = math.sqrt(2 / math.pi), 0.044715

    def df(z: Array) -> Array:
        u2 = 2 * c * (z + k * z**3)
        return logistic(u2) + gated(2 * c * (z + 3 * k * z**3), logistic_slope(u2))

    return ActivationFunction(
        name="gelu_tanh",
        formula="z·(1 + tanh(√(2/π)·(z + 0.044715·z³)))/2",
        latex=r"\tfrac{z}{2}\left(1 + \tanh\left(\sqrt{2/\pi}\,(z + 0.044715\,z^3)\right)\right)",
        f=lambda z: gated(z, logistic(2 * c * (z + k * z**3))),
        df=df,
        flops=14,
        flops_backward=14,
        torch_module="GELU",
    )


def _swish_slope(z: Array, beta: float) -> Array:
    return logistic(beta * z) + gated(beta * z, logistic_slope(beta * z))


def silu() -> ActivationFunction:
    """z σ(z)."""
    return ActivationFunction(
        name="silu",
        formula="z·σ(z)",
        latex=r"z\,\sigma(z)",
        f=lambda z: gated(z, logistic(z)),
        df=lambda z: _swish_slope(z, 1.0),
        flops=5,
        flops_backward=5,
        cached="z, σ(z)",
        torch_module="SiLU",
    )


def swish(*, beta: float = 1.0) -> ActivationFunction:
    """z σ(βz) with a fixed β: z/2 for β = 0, SiLU for 1, and close to ReLU for large β."""
    beta = number("swish", "beta", beta)
    factor = "" if beta == 1 else f"{beta:g}"

    return ActivationFunction(
        name="swish",
        constants=(("beta", beta),),
        formula=f"z·σ({factor}z)",
        latex=rf"z\,\sigma({factor}z)",
        f=lambda z: gated(z, logistic(beta * z)),
        df=lambda z: _swish_slope(z, beta),
        flops=6,  # SiLU and the product by β
        flops_backward=6,
        cached="z, σ(z)",
        kept=Kept(input=True, extra=1),
    )


def mish() -> ActivationFunction:
    """z tanh(softplus(z))."""

    def df(z: Array) -> Array:
        s = log_one_plus_exp(z)
        return np.tanh(s) + gated(z, 4 * logistic_slope(2 * s) * logistic(z))

    return ActivationFunction(
        name="mish",
        formula="z·tanh(log(1 + exp(z)))",
        latex=r"z \tanh(\log(1 + e^z))",
        f=lambda z: gated(z, np.tanh(log_one_plus_exp(z))),
        df=df,
        flops=10,  # softplus 3, tanh 6, product
        flops_backward=18,  # softplus 3, tanh 6, σ 4, then t + z(1 − t²)σ
        torch_module="Mish",
    )
