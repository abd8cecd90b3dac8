"""Moments of a layer's outputs and gradients at initialization: the results of `Layer.moments`.

    q   mean square of a unit        m   its mean        c   mean product of a unit on two different rows

for wide networks (Glorot & Bengio 2010, He et al. 2015, Poole et al. 2016, Yang et al. 2019). `spec.propagation`
follows them through a whole network.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..activations import facts
from ..activations.function import Function


@dataclass(frozen=True)
class Moments:
    """Moments of one unit: mean square, mean product on two rows, mean."""

    q: float
    c: float
    m: float


@dataclass(frozen=True)
class Passed:
    """The moments of a layer's outputs, and its factor on the mean square of the gradient. None means unknown."""

    moments: Moments | None = None
    backward: float | None = None
    scatter: float = 0.0
    """The variance of log q that the finite width adds."""


def summed(x: Moments | None, g: Moments | None) -> Moments | None:
    """Return the moments of x + g for independent x and g."""
    if x is None or g is None:
        return None
    cross = 2 * x.m * g.m
    return Moments(x.q + g.q + cross, x.c + g.c + cross, x.m + g.m)


@functools.cache
def _nodes() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return nodes and weights for the mean over N(0, 1), made at first use: importing numpy.polynomial takes long.

    The nodes are closer than any kink matters for a prediction that is asymptotic anyway.
    """
    t, w = np.polynomial.legendre.leggauss(120)
    return 8 * t, 8 * w * np.exp(-0.5 * (8 * t) ** 2) / math.sqrt(2 * math.pi)


def through(fn: Function, x: Moments) -> tuple[Moments | None, float | None]:
    """Moments behind an activation of z ~ N(m, q − m²), whose values on two rows have covariance c − m²; and E f′²."""
    variance = x.q - x.m**2
    if not (math.isfinite(x.q) and variance > 0):
        return None, None
    t, w = _nodes()
    if x.m == 0:
        q, slope = facts.second_moment(fn, x.q), facts.slope_moment(fn, x.q)
    else:
        z = x.m + math.sqrt(variance) * t
        q, slope = float((w * fn.f(z) ** 2).sum()), float((w * fn.df(z) ** 2).sum())
    r = min(1.0, max(0.0, (x.c - x.m**2) / variance))
    # z on two rows: √r · shared + √(1 − r) · own, so E f f is the mean over what is shared of (E f given it)².
    shared = x.m + math.sqrt(variance * r) * t
    given = (fn.f(shared[:, None] + math.sqrt(variance * (1 - r)) * t) * w).sum(1)
    m, c = float((w * given).sum()), float((w * given**2).sum())
    if not all(map(math.isfinite, (q, m, c))):
        return None, None
    return Moments(q, c, m), slope if math.isfinite(slope) else None


def normalised(x: Moments | None, *, taken: float, keeps_mean: bool = False, c: float | None = None) -> Passed:
    """Return the moments after a norm that subtracts `taken` from q and divides by the square root of the rest."""
    left = 0.0 if x is None else x.q - taken
    if x is None or not left > 0:
        return Passed(Moments(1.0, 0.0, 0.0))
    if c is None:
        c = (x.c - taken) / left
    return Passed(Moments(1.0, c, x.m / math.sqrt(left) if keeps_mean else 0.0), 1 / left)


def kurtosis(x: Moments) -> float:
    """E a⁴/(E a²)² − 1 of a unit, by its share of zero-mean Gaussian: 2 for one, 5 behind a ReLU."""
    lopsided = min(1.0, x.m**2 / x.q * math.pi)  # 1 behind a ReLU, whose mean is √(q/π); 0 where the mean is 0
    return 2 + 3 * lopsided
