"""Gradient noise and curvature of the training loss, from gradients of the numpy layers in float64.

    noise scale    tr Σ / |G|², where G is the gradient of the mean loss and Σ the covariance of the gradients of rows
                   (McCandlish et al. 2018). Up to about this batch size, a larger batch saves steps; beyond it, it
                   does not.
    sharpness      the largest eigenvalue of the Hessian of the training loss. Plain gradient descent is stable while
                   the learning rate is below 2 / sharpness.

The noise scale is estimated from the mean squared norms of gradients over small batches and over all rows. The Hessian
is multiplied by a vector as (g(w + εv) − g(w − εv)) / 2ε, and power iteration finds the eigenvalue of largest size. If
it is negative, a second power iteration of the shifted matrix finds the largest eigenvalue.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core import random
from ..core.random import Purpose
from ..nn.layers import Pass
from ..nn.layers.base import Array, backward_through, forward_through
from ..nn.losses import Loss
from ..spec import Spec

BATCHES = 8
"""Number of small batches for the noise scale."""
STEPS = 30
"""Largest number of steps of the power iteration."""
CONVERGED = 1e-3
"""Relative change of the eigenvalue at which the power iteration stops."""
DIFFERENCE = 1e-4
"""Length of the step for the difference of two gradients, relative to the norm of the weights."""

Gradient = Callable[[NDArray[np.float64]], NDArray[np.float64]]


@dataclass(frozen=True, kw_only=True)
class Sharpness:
    """The largest eigenvalue of the Hessian, and the largest stable learning rate of plain gradient descent."""

    eigenvalue: float
    converged: bool

    @property
    def stable_rate(self) -> float:
        return 2 / self.eigenvalue if self.eigenvalue > 0 else math.inf


def noise_scale(
    spec: Spec, tensors: Mapping[str, Array], x: Array, codes: NDArray[np.int64] | None, y: NDArray[Any], loss: Loss
) -> float:
    """Return the gradient noise scale of a network over rows. NaN with too few rows, or at a minimum."""
    n, small = len(x), len(x) // BATCHES
    if small < 2:
        return math.nan
    weights = _flat(spec, tensors)
    norms = [
        float(
            np.square(
                gradient_of(spec, tensors, *_rows(x, codes, y, slice(i * small, (i + 1) * small)), loss)(weights)
            ).sum()
        )
        for i in range(BATCHES)
    ]
    whole = float(np.square(gradient_of(spec, tensors, x, codes, y, loss)(weights)).sum())
    squared = (n * whole - small * float(np.mean(norms))) / (n - small)
    noise = (float(np.mean(norms)) - whole) / (1 / small - 1 / n)
    return noise / squared if squared > 0 else math.nan


def sharpness(
    spec: Spec, tensors: Mapping[str, Array], x: Array, codes: NDArray[np.int64] | None, y: NDArray[Any], loss: Loss
) -> Sharpness:
    """Return the largest eigenvalue of the Hessian of the mean loss over rows."""
    gradient, weights = gradient_of(spec, tensors, x, codes, y, loss), _flat(spec, tensors)
    if not len(weights):
        return Sharpness(eigenvalue=0.0, converged=True)
    v = random.normal(0, Purpose.MEASURE, rows=np.array([0]), units=len(weights))[0]
    v /= np.linalg.norm(v)
    step = DIFFERENCE * max(float(np.linalg.norm(weights)), 1.0)

    def hessian(v: NDArray[np.float64]) -> NDArray[np.float64]:
        return (gradient(weights + step * v) - gradient(weights - step * v)) / (2 * step)

    found = _power_iteration(hessian, v)
    if found.eigenvalue >= 0:
        return found
    shift = -found.eigenvalue  # the eigenvalue of largest size is negative: H + shift has none below 0
    shifted = _power_iteration(lambda v: hessian(v) + shift * v, v)
    return Sharpness(eigenvalue=shifted.eigenvalue - shift, converged=shifted.converged)


def _power_iteration(multiply: Gradient, v: NDArray[np.float64]) -> Sharpness:
    """Return the eigenvalue of largest size."""
    value = 0.0
    for _ in range(STEPS):
        product = multiply(v)
        last, value = value, float(v @ product)
        norm = float(np.linalg.norm(product))
        if norm == 0 or abs(value - last) <= CONVERGED * abs(value):
            return Sharpness(eigenvalue=value, converged=True)
        v = product / norm
    return Sharpness(eigenvalue=value, converged=False)


def gradient_of(
    spec: Spec, tensors: Mapping[str, Array], x: Array, codes: NDArray[np.int64] | None, y: NDArray[Any], loss: Loss
) -> Gradient:
    """Return a function from all parameters, one after another, to the gradient of the mean loss over rows."""
    inputs: Any = x.astype(np.float64) if codes is None else (x.astype(np.float64), codes)
    buffers = {name: np.asarray(tensors[name], np.float64) for name in spec.buffers}
    shapes = {name: parameter.shape for name, parameter in spec.parameters.items()}
    ends = np.cumsum([parameter.size for parameter in spec.parameters.values()])

    def gradient(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        parts = np.split(weights, ends[:-1])
        values = {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
        places = {place: values[stored] for place, stored in spec.tensor_names.items()} | buffers
        z, caches = forward_through(spec.layers, inputs, places, Pass(categories=spec.inputs.categories))
        _, found = backward_through(spec.layers, loss.slope(z, y) / len(z), caches, places)
        total = {name: np.zeros(shape) for name, shape in shapes.items()}
        for place, own in found.items():
            total[spec.tensor_names[place]] += own
        return np.concatenate([one.ravel() for one in total.values()])

    return gradient


def _flat(spec: Spec, tensors: Mapping[str, Array]) -> NDArray[np.float64]:
    parts = [np.asarray(tensors[name], np.float64).ravel() for name in spec.parameters]
    return np.concatenate(parts) if parts else np.zeros(0)


def _rows(
    x: Array, codes: NDArray[np.int64] | None, y: NDArray[Any], part: slice
) -> tuple[Array, NDArray[np.int64] | None, NDArray[Any]]:
    return x[part], None if codes is None else codes[part], y[part]
