"""Properties of activations, computed numerically from f and f′.

    max_slope         sup |f′|
    extent            inf f, sup f
    second_moment     E f(z)², z ~ N(0, v)
    slope_moment      E f′(z)²
    gain              1/√E f(z)², z ~ N(0, 1)
    gain_backward     1/√E f′(z)²
    saturates         the points beyond which |f′| stays below 1 % of its maximum and goes to 0
    dead_range        the points from which on f′ is exactly 0, if f can die

A weight variance of gain²/n_in keeps E a² constant from layer to layer (He et al. 2015, for any f).

Suprema are searched on a grid that is fine near 0 and geometric up to 1e9, then refined. Moments use Gauss–Legendre
rules on geometric panels that end at the kinks, so that one rule works for variances from 1e-12 to 1e12.

Two functions detect units that no longer learn. All diagnostics use them.

    dead         f can die (f′ = 0 over a half-line) and f′ is exactly 0 on all rows
    saturated    f saturates and |f′| ≤ 1 % of its maximum on at least 95 % of the rows

For ReLU and similar functions only `dead` applies: a unit that is 0 on 96 % of the rows is sparse, not broken.

Learned parameters have their initial values, unless `learned` contains values of one unit (or of each unit, for `dead`
and `saturated`). Softmax is treated as a function of one of two inputs, which has the same bounds as with more inputs.
It has no gain. Moments have an error of 1e-12, with two exceptions:

    sin    the error is 1e-8 up to v = 1e3, and about 0.02 for larger v, because sin oscillates faster than the rule
    APL    the error is 1e-3 for given learned positions, because no panel ends at these positions
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np

from .function import ActivationFunction, Array

SATURATED_SLOPE = 0.01
"""A slope is flat if it is at most this fraction of the largest slope."""
SATURATED_ROWS = 0.95
"""A unit is saturated if its slope is flat in at least this fraction of the rows."""

_FAR = 1e9
_NO_SLOPE = 1e-6
Learned = Mapping[str, Array]
_Line = Callable[[Array], Array]


def max_slope(fn: ActivationFunction, learned: Learned | None = None) -> float:
    """Return sup |f′|, or infinity."""
    return _initial_max_slope(fn) if learned is None else _max_slope(fn, learned)


def extent(fn: ActivationFunction, learned: Learned | None = None) -> tuple[float, float]:
    """Return inf f and sup f, finite or not."""
    f = _line(fn, fn.f, learned)
    grid = _grid(fn)
    return 0.0 - _supremum(lambda z: -f(z), grid), _supremum(f, grid)  # 0 − x instead of −x avoids −0.0


def second_moment(fn: ActivationFunction, variance: float, learned: Learned | None = None) -> float:
    """Return E f(z)² for z ~ N(0, variance). NaN if f is not defined everywhere."""
    return _moment(fn, fn.f, variance, learned)


def slope_moment(fn: ActivationFunction, variance: float, learned: Learned | None = None) -> float:
    """Return E f′(z)² for z ~ N(0, variance). NaN if f is not defined everywhere."""
    return _moment(fn, fn.df, variance, learned)


def gain(fn: ActivationFunction, learned: Learned | None = None) -> float | None:
    """Return 1/√E f(z)² for z ~ N(0, 1), or None if it is not finite."""
    return _initial_gain(fn) if learned is None else _gain(second_moment(fn, 1.0, learned))


def gain_backward(fn: ActivationFunction, learned: Learned | None = None) -> float | None:
    """Return 1/√E f′(z)² for z ~ N(0, 1), or None if it is not finite."""
    return _gain(slope_moment(fn, 1.0, learned))


def saturates(fn: ActivationFunction, learned: Learned | None = None) -> tuple[float | None, float | None]:
    """Return the points below and above which |f′| stays below 1 % of its maximum and goes to 0, or None."""
    slope = max_slope(fn, learned)
    if not 0 < slope < math.inf:
        return None, None
    df = _line(fn, fn.df, learned)
    grid = _grid(fn)

    def end(sign: float) -> float | None:
        outward = np.sort(sign * grid)
        steep = np.abs(df(sign * outward)) > SATURATED_SLOPE * slope
        last = int(np.flatnonzero(steep)[-1])  # the maximum itself is steep
        # A small constant slope, as that of LeakyReLU, does not count as flat.
        if outward[last] > _FAR / 10 or abs(df(np.array(sign * _FAR))) > _NO_SLOPE * slope:
            return None
        inner, outer = float(outward[last]), float(outward[last + 1])
        for _ in range(200):
            middle = (inner + outer) / 2
            if abs(df(np.array(sign * middle))) > SATURATED_SLOPE * slope:
                inner = middle
            else:
                outer = middle
        return sign * outer + 0.0  # without a negative zero

    return end(-1.0), end(1.0)


def dead_range(fn: ActivationFunction) -> tuple[float | None, float | None]:
    """Return (low, high) such that f′ is exactly 0 for z ≤ low and for z ≥ high. None if a side has no such point.

    Only a function that can die has a range. For the step function, which is flat everywhere, it is (∞, −∞).

    >>> from multilayer.nn import activations
    >>> [dead_range(activations.get(name)) for name in ("relu", "hard_tanh", "tanh")]
    [(0.0, None), (-1.0, 1.0), (None, None)]
    """
    if not fn.dies:
        return None, None
    df, grid = _line(fn, fn.df, None), _grid(fn)

    def end(sign: float) -> float | None:
        inward = np.sort(-sign * grid) * -sign  # from the far end on
        alive = np.flatnonzero(df(inward) != 0)
        if not len(alive):
            return -sign * math.inf
        first = int(alive[0])
        if first == 0:
            return None
        outer, inner = float(inward[first - 1]), float(inward[first])
        for _ in range(1100):  # until they are neighbours, also near 0
            middle = (outer + inner) / 2
            if middle in (outer, inner):
                break
            if df(np.array(middle)) == 0:
                outer = middle
            else:
                inner = middle
        return outer + 0.0  # without a negative zero

    return end(-1.0), end(1.0)


def only_dies(fn: ActivationFunction) -> bool:
    """Return whether f dies but does not saturate: a unit with a flat slope on many rows is then sparse, not broken.

    >>> from multilayer.nn import activations
    >>> [only_dies(activations.get(name)) for name in ("relu", "hard_tanh", "tanh")]
    [True, False, False]
    """
    return fn.dies and not fn.vanishes


def dead(fn: ActivationFunction, z: Array, learned: Learned | None = None) -> np.ndarray:
    """Return which units are dead, for z (..., units). No unit is dead if there are no rows, or if f cannot die."""
    slopes = _slopes(fn, z, learned)  # (rows, units)
    if not fn.dies or not len(slopes):
        return np.zeros(slopes.shape[1], dtype=bool)
    return (slopes == 0).all(axis=0)


def saturated(fn: ActivationFunction, z: Array, learned: Learned | None = None) -> np.ndarray:
    """Return which units are saturated, for z (..., units): none if there are no rows or f does not saturate."""
    slopes = _slopes(fn, z, learned)  # (rows, units)
    units = slopes.shape[1]
    if not fn.elementwise or only_dies(fn) or not len(slopes):
        return np.zeros(units, dtype=bool)
    return (slopes <= _flat_slopes(fn, units, learned)).mean(axis=0) >= SATURATED_ROWS


def _flat_slopes(fn: ActivationFunction, units: int, learned: Learned | None) -> Array:
    """Return the largest slope that counts as flat for each unit, or −1 if f does not saturate."""
    if not learned:
        saturating = saturates(fn) != (None, None)
        return np.full(units, SATURATED_SLOPE * max_slope(fn) if saturating else -1.0)
    # Each unit has a different function. One coarse grid for all finds the maximum to 0.1 %.
    far = np.geomspace(1e-6, 1e6, 121)
    grid = np.unique(np.concatenate([-far, np.linspace(-8, 8, 161), far]))
    slopes = np.abs(fn.df(np.repeat(grid[:, None], units, axis=1), **learned))  # (points, units)
    top, tail = slopes.max(axis=0), np.minimum(slopes[0], slopes[-1])
    return np.where((top > 0) & (tail <= _NO_SLOPE * top), SATURATED_SLOPE * top, -1.0)


def _slopes(fn: ActivationFunction, z: Array, learned: Learned | None) -> Array:
    return np.abs(fn.df(z, **(learned or {}))).reshape(-1, z.shape[-1])


def _line(fn: ActivationFunction, function: Callable[..., Array], learned: Learned | None) -> _Line:
    """Return f or f′ as a function of one value."""
    if fn.elementwise:
        return lambda z: function(z, **(learned or {}))
    return lambda z: function(np.stack([z, np.zeros_like(z)], axis=-1))[..., 0]


def _grid(fn: ActivationFunction) -> Array:
    """Return sorted points at all scales from 1e-9 to 1e9, the kinks, and the nearest floats on both sides of them."""
    far = np.geomspace(1e-9, _FAR, 3601)
    kinks = np.array(fn.kinks)
    edges = np.concatenate([kinks, np.nextafter(kinks, np.inf), np.nextafter(kinks, -np.inf)])
    return np.unique(np.concatenate([-far, np.linspace(-20, 20, 8001), far, edges]))


def _supremum(g: _Line, grid: Array) -> float:
    """Return sup g, refined around the best point of the grid, or infinity if g still grows at the ends of the grid."""
    values = g(grid)
    best = int(np.nanargmax(values))
    top = float(values[best])
    near = float(np.nanmax(values[np.abs(grid) <= _FAR / 10]))
    if top > near + abs(near) / 2:
        return math.inf
    low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, len(grid) - 1)])
    for _ in range(12):  # each iteration divides the width by 32, which is enough for a cell of 1e7
        fine = np.linspace(low, high, 65)
        values = g(fine)
        i = int(np.nanargmax(values))
        top = max(top, float(values[i]))
        low, high = float(fine[max(i - 1, 0)]), float(fine[min(i + 1, 64)])
    return float(f"{top:.14g}") + 0.0  # further digits are rounding errors; + 0.0 turns −0.0 into 0


def _max_slope(fn: ActivationFunction, learned: Learned | None) -> float:
    df = _line(fn, fn.df, learned)
    return _supremum(lambda z: np.abs(df(z)), _grid(fn))


@lru_cache(maxsize=1024)
def _initial_max_slope(fn: ActivationFunction) -> float:
    return _max_slope(fn, None)


@lru_cache(maxsize=1024)
def _initial_gain(fn: ActivationFunction) -> float | None:
    return _gain(second_moment(fn, 1.0))


def _gain(moment: float) -> float | None:
    return 1 / math.sqrt(moment) if 0 < moment < math.inf else None


def _moment(fn: ActivationFunction, function: Callable[..., Array], variance: float, learned: Learned | None) -> float:
    """Return ∫ g(√v t)² φ(t) dt as a sum over panels."""
    if not fn.elementwise:
        return math.nan
    scale = math.sqrt(variance)
    kinks = np.array([kink / scale for kink in fn.kinks if kink]) if scale else np.zeros(0)
    breaks = np.unique(np.concatenate([_breaks(), kinks[np.abs(kinks) < _TAIL]]))
    nodes, weights = _legendre()
    half = np.diff(breaks)[:, None] / 2  # (panels, 1)
    t = (breaks[:-1, None] + half) + half * nodes  # (panels, nodes)
    values = _line(fn, function, learned)(scale * t)
    density = np.exp(-t * t / 2) / math.sqrt(2 * math.pi)
    return float(np.sum(half * weights * density * values**2))


_TAIL = 38.0  # beyond it the normal density is 0 in float64


@lru_cache(maxsize=1)
def _breaks() -> Array:
    # The panels start at 1e-16. Below it, the integral is less than a rounding error. Each panel starts √2 times as far
    # from 0 as the previous one, so that a smooth function of any scale is smooth on each panel.
    positive = np.geomspace(1e-16, _TAIL, 117)
    return np.concatenate([-positive[::-1], [0.0], positive])


@lru_cache(maxsize=1)
def _legendre() -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(32)
