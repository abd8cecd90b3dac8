"""Functions to approximate, and networks that approximate them by construction.

    target = Target.random(1, 4, seed=0)             # a sum of 4 waves of one variable
    units = polygon(target, 64)                      # 64 ReLU units, as in a proof
    error(target, shallow(units, "relu").outputs)    # one hidden layer
    error(target, narrow(units).outputs)             # 64 hidden layers of width 3
    best_polynomial(target, 3)                       # smallest error of a polynomial of degree 3

The units are those in the proofs of universal approximation. The experiments compare them with trained networks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..spec import Spec
from .training import Network

Floats = NDArray[Any]
POINTS = {1: 2001, 2: 101}
"""Points per dimension of the grid on which errors are measured."""
STEEPNESS = 20.0
"""Slope of a sigmoid, times the distance between two steps of the staircase."""


# Targets


class Target(NamedTuple):
    """The function Σ cos(w·x + φ), with a wave per row of w (M, d), divided by `scale`."""

    w: Floats
    phase: Floats
    scale: float

    @staticmethod
    def random(d: int, waves: int, seed: int) -> Target:
        draw = np.random.default_rng([seed, d])
        w = draw.normal(size=(waves, d))
        w *= draw.uniform(3, 9, (waves, 1)) / np.linalg.norm(w, axis=1, keepdims=True) / d
        raw = Target(w, draw.uniform(0, 2 * np.pi, waves), 1.0)
        return raw._replace(scale=float(np.ptp(raw(grid(d)))))

    @property
    def d(self) -> int:
        return self.w.shape[1]

    def __call__(self, x: Floats) -> Floats:
        """Return the values (B,) at x (B, d). Their range on the grid is 1."""
        return np.cos(x @ self.w.T + self.phase).sum(axis=1) / self.scale

    def ridges(self) -> list[tuple[Floats, float, Callable[[Floats], Floats]]]:
        """Return functions of one variable t = u·x whose sum is the target: u, the largest |t|, and the function."""
        if self.d == 1:
            return [(np.ones(1), 1.0, lambda t: self(t[:, None]))]
        return [
            (w, float(np.abs(w).sum()), lambda t, phase=phase: np.cos(t + phase) / self.scale)
            for w, phase in zip(self.w, self.phase, strict=True)
        ]


def grid(d: int, points: int | None = None) -> Floats:
    """Return the points of a regular grid on [−1, 1]ᵈ, (points^d, d)."""
    axis = np.linspace(-1, 1, points or POINTS[d])
    return np.stack(np.meshgrid(*[axis] * d, indexing="ij"), axis=-1).reshape(-1, d)


def error(target: Target, function: Callable[[Floats], Any]) -> float:
    """Return the largest error on the grid, relative to the range of the target."""
    x = grid(target.d)
    return float(np.abs(np.asarray(function(x)).ravel() - target(x)).max())


# Constructed networks


class Units(NamedTuple):
    """Hidden units activation(u·x + b) with an output weight each, and the output bias."""

    u: Floats
    b: Floats
    out: Floats
    bias: float


def _of_ridges(target: Target, n: int, one: Callable[[Floats, float, Any, int], Units]) -> Units:
    """Divide the units among the functions of one variable, and add these functions."""
    ridges = target.ridges()
    found = [one(u, reach, g, n // len(ridges)) for u, reach, g in ridges]
    u, b, out = (np.concatenate(parts) for parts in list(zip(*found, strict=True))[:3])
    return Units(u, b, out, sum(units.bias for units in found))


def staircase(target: Target, n: int) -> Units:
    """Return sigmoids whose sum is a staircase with the value of the target in the middle of each stair."""

    def one(u: Floats, reach: float, g: Any, n: int) -> Units:
        h = 2 * reach / (n + 1)  # n steps are between n + 1 stairs
        heights = g(-reach + h * (np.arange(n + 1) + 0.5))
        edges = -reach + h * np.arange(1, n + 1)
        slope = STEEPNESS / h
        return Units(np.outer(np.full(n, slope), u), -slope * edges, np.diff(heights), float(heights[0]))

    return _of_ridges(target, n, one)


def polygon(target: Target, n: int) -> Units:
    """Return ReLU units whose sum is the piecewise linear function through n + 1 points of the target."""

    def one(u: Floats, reach: float, g: Any, n: int) -> Units:
        corners = np.linspace(-reach, reach, n + 1)
        values = g(corners)
        slopes = np.diff(values) / np.diff(corners)
        return Units(np.tile(u, (n, 1)), -corners[:-1], np.diff(slopes, prepend=0.0), float(values[0]))

    return _of_ridges(target, n, one)


def shallow(units: Units, activation: str) -> Network:
    """Return the units as a network with one hidden layer."""
    n, d = units.u.shape
    tensors = {"linear1.weight": units.u, "linear1.bias": units.b, "linear2.weight": units.out[None]}
    return Network(Spec.parse(f"{d}-{n}:{activation}-1"), tensors | {"linear2.bias": np.array([units.bias])})


def narrow(units: Units) -> Network:
    """Return the sum of ReLU units as a network with one of them per layer, and width d + 2.

    A layer holds x + 1, which is not negative, the next unit, and the sum so far plus an offset that keeps it positive.
    """
    n, d = units.u.shape
    offset = float(np.abs(units.out) @ (np.abs(units.u).sum(axis=1) + np.abs(units.b)))
    tensors: dict[str, Floats] = {}
    for i in range(n):
        W, b = np.zeros((d + 2, d + 2 if i else d)), np.zeros(d + 2)
        W[:d, :d] = np.eye(d)
        W[d, :d] = units.u[i]
        b[:d], b[d] = (0.0 if i else 1.0), units.b[i] - (units.u[i].sum() if i else 0.0)
        if i:
            W[d + 1, d:] = units.out[i - 1], 1.0
        else:
            b[d + 1] = offset
        tensors[f"linear{i + 1}.weight"], tensors[f"linear{i + 1}.bias"] = W, b
    last = np.zeros((1, d + 2))
    last[0, d:] = units.out[-1], 1.0
    tensors[f"linear{n + 1}.weight"], tensors[f"linear{n + 1}.bias"] = last, np.array([units.bias - offset])
    return Network(Spec.parse(f"{d}-({d + 2}:relu)*{n}-1"), tensors)


# Smallest possible errors


def best_polynomial(target: Target, p: int) -> float:
    """Return the smallest possible largest error of a polynomial of degree p: min e with |f − Σ c_k x^k| ≤ e."""
    from scipy.optimize import linprog

    x = grid(target.d, {1: 257, 2: 21}[target.d])
    powers = [k for k in np.ndindex(*[p + 1] * target.d) if sum(k) <= p]
    terms = np.stack([np.prod(x ** np.array(k), axis=1) for k in powers], axis=1)
    one, y = np.ones((len(x), 1)), target(x)
    upper = np.block([[terms, -one], [-terms, -one]])
    cost = np.append(np.zeros(len(powers)), 1.0)
    found: Any = linprog(cost, A_ub=upper, b_ub=np.concatenate([y, -y]), bounds=(None, None))
    return float(found.fun)


def best_monotone(target: Target) -> float:
    """Return the smallest possible largest error of a monotone function, in one dimension."""
    y = target(grid(1))
    rising = np.max(np.maximum.accumulate(y) - y) / 2
    falling = np.max(y - np.minimum.accumulate(y)) / 2
    return float(min(rising, falling))
