"""The torch twin of the catalogue: `forward(fn, z, learned)` is fn.f as ordinary autograd operations.

Same formulas and same values at kinks as `multilayer.nn.activations`, for z of any rank (softmax along the last axis),
any dtype and device; differentiable twice, and traceable by torch.compile. Learned numbers arrive with the shapes that
`activations.function` states. What autograd keeps for each is `Function.kept`, so a change of operations here is a
change there; the tests compare the two.

Left out on purpose: fused or in-place forms, which would change what is kept; the fused engine is the fast path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional

from ..nn.activations import Function
from ..nn.activations.learned import kaf_gamma

Learned = Mapping[str, Tensor]


def forward(fn: Function, z: Tensor, learned: Learned) -> Tensor:
    """a = f(z). z (..., d) → a (..., d)."""
    if fn.name in TWINS:
        return TWINS[fn.name](fn, z, learned)
    return getattr(functional, fn.name)(z, *(value for _, value in fn.constants))


def _step(z: Tensor) -> Tensor:
    # Sign and ceil have zero gradients, comparisons none: with them the graph stays whole and earlier layers get zeros.
    return torch.where(z.isnan(), z, ((z.sign() + 1) / 2).ceil())


def _softplus(z: Tensor) -> Tensor:
    return functional.softplus(z, threshold=40.0)  # at torch's own 20 the linear branch is wrong by 2e-9


def _prelu(z: Tensor, learned: Learned) -> Tensor:
    # Not functional.prelu, which wants its slopes along axis 1; ours are along the last.
    return torch.where(z > 0, z, learned["alpha"] * z)


def _trainable_swish(z: Tensor, learned: Learned) -> Tensor:
    return torch.sigmoid(learned["a"] * z + learned["b"]) * (learned["c"] * z + learned["d"])


def _apl(z: Tensor, learned: Learned) -> Tensor:
    hinges = functional.relu(learned["b"] - z.unsqueeze(-1))  # (..., d, n)
    return functional.relu(z) + (learned["a"] * hinges).sum(-1)


def _kaf(fn: Function, z: Tensor, learned: Learned) -> Tensor:
    n, bound = fn.constant("n"), fn.constant("bound")
    places = torch.linspace(-bound, bound, n, dtype=z.dtype, device=z.device)
    bumps = torch.exp(-kaf_gamma(n, bound) * (z.unsqueeze(-1) - places) ** 2)  # (..., d, n)
    return (learned["alpha"] * bumps).sum(-1)


def _combination(fn: Function, z: Tensor, learned: Learned) -> Tensor:
    # One product per part, not one with a stacked tensor, which would be kept beside the values it copies.
    terms = [learned["alpha"][..., i] * forward(part, z, {}) for i, part in enumerate(fn.parts)]
    return sum(terms[1:], start=terms[0])


TWINS: dict[str, Callable[[Function, Tensor, Learned], Tensor]] = {
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
"""Activations that are not listed are the function of `torch.nn.functional` with the same name and constants."""
