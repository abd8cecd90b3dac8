"""ReLU and the activations that improve on it: each bounded on the left, or nearly so, and linear on the right.

Each is a plain function that binds its constants and returns a `Function`; the maths stands in its `formula`. All are
exact to rounding in float64 and raise no floating-point warning for |z| ≤ 1e4; z = ±∞ gives the limit; float32 input
gives float32 output. At the kink the derivative is PyTorch's: ReLU′(0) = 0, LeakyReLU′(0) = ELU′(0) = α.

    LeakyReLU  Maas et al. 2013           GELU  Hendrycks & Gimpel 2016
    ELU        Clevert et al. 2016        SiLU  Elfwing et al. 2018; as Swish, Ramachandran et al. 2017
    SELU       Klambauer et al. 2017      Mish  Misra 2019

Left out on purpose: ReLU6 and hard swish, which approximate these for number formats we do not use.
"""

from __future__ import annotations

import math

import numpy as np

from .checks import number
from .function import Array, Function, Kept
from .special import gated, log_one_plus_exp, logistic, logistic_slope, normal_cdf, normal_pdf

_KEEPS_INPUT = Kept(input=True)
_KEEPS_OUTPUT = Kept(output=True)


def relu() -> Function:
    """max(0, z)."""

    def f(z: Array) -> Array:
        return np.maximum(z, 0)

    def df(z: Array) -> Array:
        return np.where(z > 0, np.ones_like(z), 0)

    return Function(
        name="relu",
        formula="max(0, z)",
        latex=r"\max(0, z)",
        f=f,
        df=df,
        flops=1,
        flops_backward=1,
        cached="sign",
        kept=_KEEPS_OUTPUT,
        kinks=(0.0,),
        dies=True,
        torch_module="ReLU",
        silent_below=True,
    )


def leaky_relu(*, alpha: float = 0.01) -> Function:
    """ReLU with a small slope α below 0, so that no unit dies."""
    alpha = number("leaky_relu", "alpha", alpha)

    def f(z: Array) -> Array:
        return np.where(z > 0, z, alpha * z)

    def df(z: Array) -> Array:
        return np.where(z > 0, np.ones_like(z), alpha)

    return Function(
        name="leaky_relu",
        constants=(("alpha", alpha),),
        formula=f"z if z > 0 else {alpha:g}·z",
        latex=rf"\begin{{cases}} z & z > 0 \\ {alpha:g}\,z & z \le 0 \end{{cases}}",
        f=f,
        df=df,
        flops=2,
        flops_backward=2,
        cached="sign",
        kept=_KEEPS_INPUT,
        kinks=(0.0,),
        dies=alpha == 0,
        torch_module="LeakyReLU",
    )


def _exponential_linear(z: Array, alpha: float, scale: float) -> Array:
    return scale * np.where(z > 0, z, alpha * np.expm1(np.minimum(z, 0)))


def _exponential_linear_slope(z: Array, alpha: float, scale: float) -> Array:
    return scale * np.where(z > 0, np.ones_like(z), alpha * np.exp(np.minimum(z, 0)))


def elu(*, alpha: float = 1.0) -> Function:
    """z above 0, an exponential down to −α below."""
    alpha = number("elu", "alpha", alpha)
    factor = "" if alpha == 1 else f"{alpha:g}·"

    def f(z: Array) -> Array:
        return _exponential_linear(z, alpha, 1.0)

    def df(z: Array) -> Array:
        return _exponential_linear_slope(z, alpha, 1.0)

    return Function(
        name="elu",
        constants=(("alpha", alpha),),
        formula=f"z if z > 0 else {factor}(exp(z) − 1)",
        latex=rf"\begin{{cases}} z & z > 0 \\ {factor.replace('·', '')}(e^z - 1) & z \le 0 \end{{cases}}",
        f=f,
        df=df,
        flops=4,
        flops_backward=3,
        cached="z",
        kept=_KEEPS_INPUT,
        kinks=() if alpha == 1 else (0.0,),
        dies=alpha == 0,
        torch_module="ELU",
    )


# The two numbers for which mean 0 and variance 1 are kept by a layer of independent units (Klambauer et al. 2017).
SELU_SCALE = 1.0507009873554804934193349852946
SELU_ALPHA = 1.6732632423543772848170429916717


def selu() -> Function:
    """ELU scaled so that mean 0 and variance 1 reproduce themselves from layer to layer."""

    def f(z: Array) -> Array:
        return _exponential_linear(z, SELU_ALPHA, SELU_SCALE)

    def df(z: Array) -> Array:
        return _exponential_linear_slope(z, SELU_ALPHA, SELU_SCALE)

    scale, alpha = f"{SELU_SCALE:.4f}", f"{SELU_ALPHA:.4f}"
    return Function(
        name="selu",
        formula=f"{scale}·(z if z > 0 else {alpha}·(exp(z) − 1))",
        latex=rf"{scale} \begin{{cases}} z & z > 0 \\ {alpha} (e^z - 1) & z \le 0 \end{{cases}}",
        f=f,
        df=df,
        flops=5,  # ELU and the scale
        flops_backward=4,
        cached="z",
        kept=_KEEPS_INPUT,
        kinks=(0.0,),
        torch_module="SELU",
    )


def softplus() -> Function:
    """log(1 + eᶻ), a smooth ReLU whose derivative is the sigmoid."""
    return Function(
        name="softplus",
        formula="log(1 + exp(z))",
        latex=r"\log(1 + e^z)",
        f=log_one_plus_exp,
        df=logistic,
        flops=3,
        flops_backward=4,
        cached="z",
        kept=_KEEPS_INPUT,
        torch_module="Softplus",
    )


def gelu() -> Function:
    """z Φ(z), Φ the normal distribution function."""

    def f(z: Array) -> Array:
        return gated(z, normal_cdf(z))

    def df(z: Array) -> Array:
        return normal_cdf(z) + gated(z, normal_pdf(z))

    return Function(
        name="gelu",
        formula="z·(1 + erf(z/√2))/2",
        latex=r"z\,\Phi(z) = \tfrac{z}{2}\left(1 + \operatorname{erf}\tfrac{z}{\sqrt{2}}\right)",
        f=f,
        df=df,
        flops=5,
        flops_backward=10,  # Φ 4, density 4, product and sum
        cached="z",
        kept=_KEEPS_INPUT,
        torch_module="GELU",
    )


def gelu_tanh() -> Function:
    """GELU's tanh form. ½(1 + tanh u) is computed as σ(2u), which loses nothing in the left tail."""
    c, k = math.sqrt(2 / math.pi), 0.044715

    def f(z: Array) -> Array:
        return gated(z, logistic(2 * c * (z + k * z**3)))

    def df(z: Array) -> Array:
        u2 = 2 * c * (z + k * z**3)
        return logistic(u2) + gated(2 * c * (z + 3 * k * z**3), logistic_slope(u2))

    return Function(
        name="gelu_tanh",
        formula="z·(1 + tanh(√(2/π)·(z + 0.044715·z³)))/2",
        latex=r"\tfrac{z}{2}\left(1 + \tanh\left(\sqrt{2/\pi}\,(z + 0.044715\,z^3)\right)\right)",
        f=f,
        df=df,
        flops=14,
        flops_backward=14,
        cached="z",
        kept=_KEEPS_INPUT,
        torch_module="GELU",
    )


def _swish_slope(z: Array, beta: float) -> Array:
    return logistic(beta * z) + gated(beta * z, logistic_slope(beta * z))


def silu() -> Function:
    """z σ(z)."""

    def f(z: Array) -> Array:
        return gated(z, logistic(z))

    def df(z: Array) -> Array:
        return _swish_slope(z, 1.0)

    return Function(
        name="silu",
        formula="z·σ(z)",
        latex=r"z\,\sigma(z)",
        f=f,
        df=df,
        flops=5,
        flops_backward=5,
        cached="z, σ(z)",
        kept=_KEEPS_INPUT,
        torch_module="SiLU",
    )


def swish(*, beta: float = 1.0) -> Function:
    """z σ(βz) with β fixed: z/2 at β = 0, SiLU at 1, ReLU as β grows."""
    beta = number("swish", "beta", beta)
    factor = "" if beta == 1 else f"{beta:g}"

    def f(z: Array) -> Array:
        return gated(z, logistic(beta * z))

    def df(z: Array) -> Array:
        return _swish_slope(z, beta)

    return Function(
        name="swish",
        constants=(("beta", beta),),
        formula=f"z·σ({factor}z)",
        latex=rf"z\,\sigma({factor}z)",
        f=f,
        df=df,
        flops=6,  # SiLU and the product by β
        flops_backward=6,
        cached="z, σ(z)",
        kept=Kept(input=True, extra=1),
    )


def mish() -> Function:
    """z tanh(softplus(z))."""

    def f(z: Array) -> Array:
        return gated(z, np.tanh(log_one_plus_exp(z)))

    def df(z: Array) -> Array:
        s = log_one_plus_exp(z)
        return np.tanh(s) + gated(z, 4 * logistic_slope(2 * s) * logistic(z))

    return Function(
        name="mish",
        formula="z·tanh(log(1 + exp(z)))",
        latex=r"z \tanh(\log(1 + e^z))",
        f=f,
        df=df,
        flops=10,  # softplus 3, tanh 6, product
        flops_backward=18,  # softplus 3, tanh 6, σ 4, then t + z(1 − t²)σ
        cached="z",
        kept=_KEEPS_INPUT,
        torch_module="Mish",
    )
