"""What the four normalisations share: x̂ = (x − μ)/√(v + ε) over some group of numbers, then γ x̂ + β.

    dx̂ = dy γ,   dx = (dx̂ − mean(dx̂) − x̂ · mean(dx̂ x̂)) / √(v + ε)   (means over the same group; no mean(dx̂) without μ)

FLOPs, per number and pass. Forward, centred: sum, − μ, square, sum, × 1/σ, × γ, + β = 7, and 5 per group for the two
divisions, + ε, square root and inverse. Uncentred (RMSNorm): square, sum, × 1/σ, × γ = 4, and 4 per group. Backward,
centred: dβ 1, dγ 2, dx̂ 1, two means 3, dx 4 = 11; uncentred: dγ 2, dx̂ 1, one mean 2, dx 3 = 8.
"""

from __future__ import annotations

import numpy as np

from ...core.counts import Count
from .base import Array, Backward, Flops, Forward, Layer, Parameter, require_number


def store_epsilon(layer: Layer, eps: float) -> None:
    object.__setattr__(layer, "eps", require_number("eps", eps, positive=True))


def affine(d: int, *, shift: bool = True) -> tuple[Parameter, ...]:
    weight = Parameter(name="weight", shape=(d,), role="norm", value=1.0)
    return (weight, Parameter(name="bias", shape=(d,), role="norm", value=0.0)) if shift else (weight,)


def norm_cost(numbers: Count, groups: Count, *, centred: bool = True, input_gradient: bool = True) -> Flops:
    """`numbers` normalised in `groups` groups; the module's text says where the factors come from."""
    if centred:
        forward, backward, own = 7 * numbers + 5 * groups, 11 * numbers, 3 * numbers
    else:
        forward, backward, own = 4 * numbers + 4 * groups, 8 * numbers, 2 * numbers
    return Flops(forward=Forward(other=forward), backward=Backward(other=backward if input_gradient else own))


def normalise(x: Array, *, axis: int, eps: float, centred: bool = True) -> tuple[Array, Array]:
    """x̂ and 1/σ, the statistics taken along `axis`."""
    centre = x - x.mean(axis, keepdims=True) if centred else x
    inverse = 1 / np.sqrt((centre**2).mean(axis, keepdims=True) + eps)
    return centre * inverse, inverse


def normalise_backward(dxhat: Array, xhat: Array, inverse: Array, *, axis: int, centred: bool = True) -> Array:
    mean = dxhat.mean(axis, keepdims=True) if centred else 0.0
    return inverse * (dxhat - mean - xhat * (dxhat * xhat).mean(axis, keepdims=True))
