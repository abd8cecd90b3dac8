"""First values that look at the data: each unit of a linear layer starts with z of deviation 1 over training rows.

    W ~ N(0, 1), each row divided by the deviation of its unit's s·x Wᵀ                      Holzmüller et al. 2024
    b = −s·x̃ Wᵀ, x̃ a random point between five training rows (the last layer: b = 0)         Steinwart 2019

So every unit's kink goes through the data, whatever the columns look like. A unit whose inputs do not vary gets the
deviation 1 for independent inputs of variance 1. Layers inside residual blocks keep the scheme of `init`; so do all
other tensors but one: of a number that has few values, each in many rows (a code, a month, a grade), every other first
frequency of a periodic embedding is wide enough to tell neighbouring values apart, as a table of the values would. The
rest stay smooth.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core import random
from ..core.random import Purpose
from ..core.sparse import Sparse
from ..nn.layers import Columns, Linear, Pass, named
from ..nn.layers.base import Array
from .initialization import initialise
from .spec import Spec

ROWS, NUMBERS = 1024, 1 << 22
"""Training rows that are looked at, at most, and of wide tables so few that they hold no more numbers; 64 at least."""
CORNERS = 5
MOST_VALUES, ROWS_A_VALUE = 32, 32
"""Few values are so many at the most, and many rows of each so many in the mean at the least."""
APART = 0.25
"""Turns between neighbouring values, at one deviation of the wide frequencies: a quarter makes them unlike."""


def from_rows(spec: Spec, x: NDArray[Any] | Sparse, codes: NDArray[np.int64] | None, *, seed: int) -> dict[str, Array]:
    """Every parameter and buffer by name, float64, for training rows x (N, F) and codes (N, C)."""
    values = initialise(spec, "normal(1)", seed=seed)
    rows = min(ROWS, max(64, NUMBERS // max(x.shape[1], 1)))
    chosen = random.permutation(len(x), seed=seed, epoch=0)[:rows]
    a: Any = np.asarray(x[chosen], dtype=np.float64)
    if codes is not None and spec.inputs.categories:
        a = (a, codes[chosen])
    layers = list(named(spec.layers))
    last = max((i for i, (_, layer) in enumerate(layers) if isinstance(layer, Linear)), default=-1)
    run = Pass(categories=spec.inputs.categories)
    for i, (name, layer) in enumerate(layers):
        own = {stored.removeprefix(f"{name}."): stored for stored in values if stored.startswith(f"{name}.")}
        tensors = {short: values[stored] for short, stored in own.items()}
        if isinstance(layer, Linear):
            _linear(layer, a, tensors, seed=seed, part=i, bias=i != last)
        if isinstance(layer, Columns) and layer.sigma is not None:
            tensors["frequency"] = _told_apart(tensors["frequency"], layer.sigma, a, rows=len(x))
        values |= {stored: tensors[short] for short, stored in own.items()}
        a, _ = layer.forward(a, tensors, run)
    return values


def _told_apart(frequency: Array, sigma: float, a: Any, *, rows: int) -> Array:
    x: Array = a[0] if isinstance(a, tuple) else a  # (N, F)
    found = frequency.copy()  # (F, n)
    for i in range(x.shape[1]):
        values = np.unique(x[:, i])
        if 2 < len(values) <= min(MOST_VALUES, rows // ROWS_A_VALUE):
            found[i, ::2] *= max(1.0, APART / (sigma * float(np.median(np.diff(values)))))
    return found


def _linear(layer: Linear, x: Array, tensors: dict[str, Array], *, seed: int, part: int, bias: bool) -> None:
    s, W = layer.factor(x.shape[1]), tensors["weight"]
    deviation = (s * (x @ W.T)).std(0)  # (O,)
    alone = s * np.linalg.norm(W, axis=1)
    tensors["weight"] = W / np.where(deviation > 1e-6, deviation, np.where(alone > 0, alone, 1.0))[:, None]
    if layer.bias and bias:
        units = layer.d_out
        draw = random.uniform(seed, Purpose.INIT, rows=units, units=2 * CORNERS, epoch=1, part=part)
        corners = (draw[:, :CORNERS] * len(x)).astype(np.int64)  # (O, 5)
        shares = -np.log(draw[:, CORNERS:])
        shares /= shares.sum(1, keepdims=True)
        points = np.einsum("ok,oki->oi", shares, x[corners])  # (O, I)
        tensors["bias"] = -s * (points * tensors["weight"]).sum(1)
