"""The activations in torch: `forward(fn, z, learned)` computes fn.f with autograd operations.

The formulas and the values at kinks are those of `multilayer.nn.activations`. z may have any rank (softmax is along the
last axis), dtype and device. The functions are twice differentiable and work with torch.compile. Learned parameters
have the shapes that `nn.activations.function` describes. `ActivationFunction.kept` lists the tensors that autograd
saves for the backward pass, and the tests compare the two. Change `kept` if you change operations here.

Not included: fused or in-place operations, which would change the saved tensors. For speed, use the fused engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional

from ..nn.activations import ActivationFunction
from ..nn.activations.learned import kaf_gamma

Learned = Mapping[str, Tensor]


def forward(fn: ActivationFunction, z: Tensor, learned: Learned) -> Tensor:
    """Compute a = f(z). z (..., d) → a (..., d)."""
    if fn.name in TWINS:
        return TWINS[fn.name](fn, z, learned)
    return getattr(functional, fn.name)(z, *(value for _, value in fn.constants))


def _step(z: Tensor) -> Tensor:
    # sign and ceil have zero gradients, a comparison has none. With zeros, autograd still reaches the earlier layers.
    return torch.where(z.isnan(), z, ((z.sign() + 1) / 2).ceil())


def _softplus(z: Tensor) -> Tensor:
    return functional.softplus(z, threshold=40.0)  # with torch's default of 20, the linear branch has an error of 2e-9


def _prelu(z: Tensor, learned: Learned) -> Tensor:
    # functional.prelu expects the slopes along axis 1. Here, they are along the last axis.
    return torch.where(z > 0, z, learned["alpha"] * z)


def _trainable_swish(z: Tensor, learned: Learned) -> Tensor:
    return torch.sigmoid(learned["a"] * z + learned["b"]) * (learned["c"] * z + learned["d"])


def _apl(z: Tensor, learned: Learned) -> Tensor:
    hinges = functional.relu(learned["b"] - z.unsqueeze(-1))  # (..., d, n)
    return functional.relu(z) + (learned["a"] * hinges).sum(-1)


def _kaf(fn: ActivationFunction, z: Tensor, learned: Learned) -> Tensor:
    n, bound = fn.constant("n"), fn.constant("bound")
    places = torch.linspace(-bound, bound, n, dtype=z.dtype, device=z.device)
    bumps = torch.exp(-kaf_gamma(n, bound) * (z.unsqueeze(-1) - places) ** 2)  # (..., d, n)
    return (learned["alpha"] * bumps).sum(-1)


def _combination(fn: ActivationFunction, z: Tensor, learned: Learned) -> Tensor:
    # One product per part: autograd would save a stacked tensor in addition to the values it copies.
    terms = [learned["alpha"][..., i] * forward(part, z, {}) for i, part in enumerate(fn.parts)]
    return sum(terms[1:], start=terms[0])


TWINS: dict[str, Callable[[ActivationFunction, Tensor, Learned], Tensor]] = {
    "identity": lambda fn, z, p: z,
    "step": lambda fn, z, p: _step(z),
    "polynomial": lambda fn, z, p: z ** fn.constant("p"),
    "sqrt": lambda fn, z, p: torch.sqrt(z),
    "sigmoid": lambda fn, z, p: torch.sigmoid(z if fn.constant("a") == 1 else fn.constant("a") * z),
    "hard_tanh": lambda fn, z, p: functional.hardtanh(z),
    "sin": lambda fn, z, p: torch.sin(z),
    "prelu": lambda fn, z, p: _prelu(z, p),
    "softplus": lambda fn, z, p: _softplus(z),
    "gelu_tanh": lambda fn, z, p: functional.gelu(z, approximate="tanh"),
    "swish": lambda fn, z, p: z * torch.sigmoid(fn.constant("beta") * z),
    "learned_swish": lambda fn, z, p: z * torch.sigmoid(p["beta"] * z),
    "trainable_swish": lambda fn, z, p: _trainable_swish(z, p),
    "apl": lambda fn, z, p: _apl(z, p),
    "kaf": _kaf,
    "combination": _combination,
    "generalised_relu": lambda fn, z, p: z * forward(fn.parts[0], z, {}),
    "softmax": lambda fn, z, p: functional.softmax(z, dim=-1),
}
"""For an activation that is not listed, `torch.nn.functional` has a function with the same name and constants."""
