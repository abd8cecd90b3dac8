"""Optimizers: the update of a step as a pure function, the state between steps, and the cost.

    sgd        p ← p − η g
    momentum   v ← μ v + g,                  p ← p − η v
    nesterov   v ← μ v + g,                  p ← p − η (g + μ v)
    adam       m ← β₁ m + (1 − β₁) g,  v ← β₂ v + (1 − β₂) g²,  p ← p − η m̂ / (√v̂ + ε)      Kingma & Ba 2015
    adamw      p ← (1 − η λ) p, then adam                                                     Loshchilov & Hutter 2019

with m̂ = m/(1 − β₁ᵗ), v̂ = v/(1 − β₂ᵗ) and t from 1. Formulas and order of operations are those of PyTorch. Weight decay
λ is decoupled for every optimizer and applies to weight matrices only. L2 adds λ p to the gradient instead, at the same
cost of 2 FLOPs per parameter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ..core.named_options import choose, require
from .activations.function import Array

Slots = Mapping[str, Array]
Update = Callable[[Array, Slots, float, int], tuple[Array, dict[str, Array]]]


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """An optimizer with bound constants.

    `update(g, slots, rate, t)` returns what to subtract from the parameter, and the new slots. A slot is a tensor that
    the optimizer keeps for each parameter, such as a running mean.
    """

    name: str
    formula: str
    constants: tuple[tuple[str, float], ...] = ()
    slots: tuple[str, ...] = ()
    flops: int
    """FLOPs per parameter and step, without weight decay."""
    decays: bool = False
    """Whether weight decay is on by default."""
    update: Update
    rule: str = ""
    """Name of the optimizer whose update it uses, if that is another one: adamw uses adam's."""

    def constant(self, name: str) -> float:
        """Return the value of a constant."""
        return dict(self.constants)[name]


def sgd() -> Optimizer:
    return Optimizer(name="sgd", formula="p − η·g", flops=2, update=lambda g, slots, rate, t: (rate * g, {}))


def momentum(momentum: float = 0.9) -> Optimizer:
    mu = _share("momentum", momentum)

    def update(g: Array, slots: Slots, rate: float, t: int) -> tuple[Array, dict[str, Array]]:
        v = mu * slots["velocity"] + g
        return rate * v, {"velocity": v}

    return Optimizer(
        name="momentum",
        formula="p − η·v",
        constants=(("momentum", mu),),
        slots=("velocity",),
        flops=4,
        update=update,
    )


def nesterov(momentum: float = 0.9) -> Optimizer:
    mu = _share("momentum", momentum)

    def update(g: Array, slots: Slots, rate: float, t: int) -> tuple[Array, dict[str, Array]]:
        v = mu * slots["velocity"] + g
        return rate * (g + mu * v), {"velocity": v}

    return Optimizer(
        name="nesterov",
        formula="p − η·(g + μ·v)",
        constants=(("momentum", mu),),
        slots=("velocity",),
        flops=6,
        update=update,
    )


def adam(beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8) -> Optimizer:
    return _adam("adam", "p − η·m̂/(√v̂ + ε)", beta1, beta2, eps, decays=False)


def adamw(beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8) -> Optimizer:
    return _adam("adamw", "(1 − η·λ)·p − η·m̂/(√v̂ + ε)", beta1, beta2, eps, decays=True)


def _adam(name: str, formula: str, beta1: float, beta2: float, eps: float, *, decays: bool) -> Optimizer:
    _share("beta1", beta1)
    _share("beta2", beta2)
    require("eps", eps, eps > 0, "positive")

    def update(g: Array, slots: Slots, rate: float, t: int) -> tuple[Array, dict[str, Array]]:
        m = beta1 * slots["mean"] + (1 - beta1) * g
        v = beta2 * slots["square"] + (1 - beta2) * g * g
        step = rate / (1 - beta1**t)
        return step * m / (np.sqrt(v) / math.sqrt(1 - beta2**t) + eps), {"mean": m, "square": v}

    return Optimizer(
        name=name,
        formula=formula,
        constants=(("beta1", beta1), ("beta2", beta2), ("eps", eps)),
        slots=("mean", "square"),
        flops=14,  # m 3, v 4, the two corrections 2, √ 1, + ε 1, ÷ 1, × η 1, − 1
        decays=decays,
        update=update,
        rule="adam",
    )


def _share(name: str, value: float) -> float:
    return require(name, value, 0 <= value < 1, "at least 0 and below 1")


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    optimizer.__name__: optimizer for optimizer in (sgd, momentum, nesterov, adam, adamw)
}
DECAY_FLOPS = 2
"""FLOPs per parameter and step of weight decay or L2."""
CLIP_FLOPS = 3
"""FLOPs per parameter and step of clipping: square and sum for the norm, and the scaling."""
AVERAGE_FLOPS = 3
"""FLOPs per parameter and step of the running average, ā ← β ā + (1 − β) p."""


def get(text: str) -> Optimizer:
    """Return the optimizer for a string.

    >>> get("adam(beta2=0.95)").constants
    (('beta1', 0.9), ('beta2', 0.95), ('eps', 1e-08))
    """
    return choose("optimizer", text, OPTIMIZERS)
