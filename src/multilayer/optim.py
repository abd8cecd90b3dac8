"""The optimisers: one pure function a step, what it keeps between steps, and its cost.

    sgd        p ← p − η g
    momentum   v ← μ v + g,                  p ← p − η v
    nesterov   v ← μ v + g,                  p ← p − η (g + μ v)
    adam       m ← β₁ m + (1 − β₁) g,  v ← β₂ v + (1 − β₂) g²,  p ← p − η m̂ / (√v̂ + ε)      Kingma & Ba 2015
    adamw      p ← (1 − η λ) p, then adam                                                     Loshchilov & Hutter 2019

with m̂ = m/(1 − β₁ᵗ), v̂ = v/(1 − β₂ᵗ) and t counting from 1. The formulas and their order of operations are PyTorch's.
Weight decay λ is decoupled for every optimiser here and acts on weight matrices alone; adding λ p to the gradient
instead is L2, which costs the same 2 FLOPs a parameter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from .activations.function import Array
from .errors import OptionError, unknown_name

MOMENTUM = 0.9
BETAS = (0.9, 0.999)
EPSILON = 1e-8

Slots = Mapping[str, Array]
Update = Callable[[Array, Slots, float, int], tuple[Array, dict[str, Array]]]


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """`update(g, slots, rate, t)` gives what to subtract from the parameter and the new slots."""

    name: str
    formula: str
    slots: tuple[str, ...]
    flops: int
    """FLOPs a parameter and step, decay not in it."""
    decays: bool
    """Whether weight decay is on unless told otherwise."""
    update: Update


def _sgd(g: Array, slots: Slots, rate: float, t: int) -> tuple[Array, dict[str, Array]]:
    return rate * g, {}


def _momentum(g: Array, slots: Slots, rate: float, t: int) -> tuple[Array, dict[str, Array]]:
    v = MOMENTUM * slots["velocity"] + g
    return rate * v, {"velocity": v}


def _nesterov(g: Array, slots: Slots, rate: float, t: int) -> tuple[Array, dict[str, Array]]:
    v = MOMENTUM * slots["velocity"] + g
    return rate * (g + MOMENTUM * v), {"velocity": v}


def _adam(g: Array, slots: Slots, rate: float, t: int) -> tuple[Array, dict[str, Array]]:
    m = BETAS[0] * slots["mean"] + (1 - BETAS[0]) * g
    v = BETAS[1] * slots["square"] + (1 - BETAS[1]) * g * g
    step = rate / (1 - BETAS[0] ** t)
    return step * m / (np.sqrt(v) / math.sqrt(1 - BETAS[1] ** t) + EPSILON), {"mean": m, "square": v}


_ADAM_FORMULA = "p − η·m̂/(√v̂ + ε)"

OPTIMIZERS: dict[str, Optimizer] = {
    o.name: o
    for o in (
        Optimizer(name="sgd", formula="p − η·g", slots=(), flops=2, decays=False, update=_sgd),
        Optimizer(
            name="momentum", formula="p − η·v", slots=("velocity",), flops=4, decays=False, update=_momentum
        ),
        Optimizer(
            name="nesterov", formula="p − η·(g + μ·v)", slots=("velocity",), flops=6, decays=False, update=_nesterov
        ),
        # m 3, v 4, the two corrections 2, √ 1, + ε 1, ÷ 1, × η 1, − 1
        Optimizer(
            name="adam", formula=_ADAM_FORMULA, slots=("mean", "square"), flops=14, decays=False, update=_adam
        ),
        Optimizer(
            name="adamw",
            formula=f"(1 − η·λ)·{_ADAM_FORMULA}",
            slots=("mean", "square"),
            flops=14,
            decays=True,
            update=_adam,
        ),
    )
}
DECAY_FLOPS = 2
"""A parameter and step: decoupled decay, or L2."""
CLIP_FLOPS = 3
"""A parameter and step: the norm's product and sum, and the scaling."""
AVERAGE_FLOPS = 3
"""A parameter and step: ā ← β ā + (1 − β) p."""


def get(name: str) -> Optimizer:
    if name not in OPTIMIZERS:
        raise OptionError(unknown_name("optimizer", name, OPTIMIZERS))
    return OPTIMIZERS[name]
