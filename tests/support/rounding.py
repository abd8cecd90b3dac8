"""Tolerances for computations in single precision, derived by perturbing every number of a computation in double.

A sum of K products in float is the exact sum of slightly perturbed products. Its error is about √K roundings, because
roundings behave like random numbers (Higham & Mary 2019). The same holds for functions, norms and their gradients. To
first order, a network in float is therefore the exact network with small perturbations:

    x → x (1 ± δ),  δ = C · √K · EPS    inputs, parameters, outputs and caches of a layer, gradients of its inputs
    μ → μ (1 ± δ)                       the mean that a norm subtracts, forward and backward: one sign for the group
    f(z) - z                            the gradient of a blend: an error of δ z, even if the difference is small
    p - y                               likewise the slope of a loss if p is near 1, and the logarithm of its sum

K is the length of the longest sum, over rows or over units. C is 4: between two perturbations, a number goes through
about a dozen roundings besides those of its sum, which add up to about √12. The tolerance is the largest change of the
result over a few draws of random signs. It therefore includes steep norms, cancellation in sums and the depth of the
network, without a separate constant for each. Each draw is also used with opposite signs, because only one of the two
may cross a kink that is close to a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np

from multilayer.data.batches import Data
from multilayer.engines import Gradients, Settings, State
from multilayer.engines.numpy_engine import NumpyEngine
from multilayer.nn.layers import KINDS, Activation, norms
from multilayer.nn.losses import Loss
from multilayer.spec import Spec

EPS = 2.0**-24
C = 4.0
DRAWS = 4
TINY = 1e-36
"""Results below this value count as 0, because a product of two numbers may be denormal."""

Shift = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Results:
    """The compared results: loss, gradients and buffers of a step, and the outputs."""

    step: Gradients
    outputs: np.ndarray

    def named(self) -> dict[str, np.ndarray]:
        found = {f"gradient of {name}": g for name, g in self.step.gradients.items()}
        found |= {f"buffer {name}": value for name, value in self.step.buffers.items()}
        return found | {"loss": np.array(self.step.loss), "outputs": self.outputs}


def largest(values: np.ndarray) -> float:
    return float(np.abs(values).max(initial=0))


def longest_sum(spec: Spec, batch: int) -> int:
    return max(batch, *(max(entry.width_in, entry.d_out) for entry in spec.entries))


def bounds(
    exact: Results, spec: Spec, data: Data, how: Settings, state: State, *, rows: np.ndarray, dropout: float
) -> Mapping[str, float]:
    """Return the tolerance of each result: the largest allowed difference of an entry from the exact result."""
    delta = C * math.sqrt(longest_sum(spec, len(rows))) * EPS
    found = {name: 0.0 for name in exact.named()}
    for draw in range(DRAWS):
        for side in (delta, -delta):
            for name, value in _perturbed(draw, side, spec, data, how, state, rows, dropout).named().items():
                found[name] = max(found[name], largest(value - exact.named()[name]))
    return {name: found[name] + delta * largest(value) + TINY for name, value in exact.named().items()}


def _perturbed(
    draw: int, delta: float, spec: Spec, data: Data, how: Settings, state: State, rows: np.ndarray, dropout: float
) -> Results:
    generator = np.random.default_rng(draw)

    def shift(values: np.ndarray) -> np.ndarray:
        return values * (1 + delta * (2 * generator.integers(0, 2, size=np.shape(values)) - 1))

    engine = NumpyEngine(spec, replace(data, x=shift(data.x.astype(np.float64))), how)
    engine.load(replace(state, parameters={name: shift(p.astype(np.float64)) for name, p in state.parameters.items()}))
    engine.loss = _loss(engine.loss, shift)
    with _everything_perturbed(shift):
        return Results(step=engine.gradients(rows, epoch=2, dropout=dropout), outputs=engine.outputs(rows))


def _loss(loss: Loss, shift: Shift) -> Loss:
    def off(values: np.ndarray) -> np.ndarray:
        return shift(np.ones_like(values)) - 1 if loss.link is not None else np.zeros_like(values)

    def slope(z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return shift(loss.slope(z, y)) + off(z) / (1 if loss.link == "softmax" else z.shape[-1])

    def rows(z: np.ndarray, y: np.ndarray) -> np.ndarray:
        found = loss.rows(z, y)
        return found + off(found)

    return replace(loss, slope=slope, rows=rows)


@contextmanager
def _everything_perturbed(shift: Shift) -> Iterator[None]:
    """Patch the definitions of all layers so that their inputs and outputs are perturbed."""
    with ExitStack() as stack:
        for kind in KINDS.values():
            stack.enter_context(patch.object(kind, "forward", _forward(kind.forward, shift)))
            stack.enter_context(patch.object(kind, "backward", _backward(kind.backward, shift)))
        stack.enter_context(patch.object(norms, "normalise", _normalise(norms.normalise, shift)))
        backward = _normalise_backward(norms.normalise_backward, shift)
        stack.enter_context(patch.object(norms, "normalise_backward", backward))
        yield


def _forward(real: Any, shift: Shift) -> Any:
    def forward(layer: Any, *given: Any) -> Any:
        y, cache = real(layer, *given)
        return shift(y), _kept(cache, shift)

    return forward


def _kept(cache: Any, shift: Shift) -> Any:
    if isinstance(cache, tuple):
        return tuple(_kept(part, shift) for part in cache)
    return shift(cache) if isinstance(cache, np.ndarray) and cache.dtype.kind == "f" else cache


def _backward(real: Any, shift: Shift) -> Any:
    def backward(layer: Any, dy: np.ndarray, cache: Any, p: Any) -> Any:
        dx, grads = real(layer, dy, cache, p)
        if isinstance(layer, Activation) and layer.blend:
            grads["blend"] = grads["blend"] + (shift(dy * cache) - dy * cache).sum(0)
        return shift(dx), grads

    return backward


def _normalise(real: Any, shift: Shift) -> Any:
    def normalise(x: np.ndarray, *, axis: int, centred: bool = True, **how: Any) -> tuple[np.ndarray, np.ndarray]:
        xhat, inverse = real(x, axis=axis, centred=centred, **how)
        mean = x.mean(axis, keepdims=True) * centred
        return xhat + (shift(mean) - mean) * inverse, inverse

    return normalise


def _normalise_backward(real: Any, shift: Shift) -> Any:
    def normalise_backward(
        dxhat: np.ndarray, xhat: np.ndarray, inverse: np.ndarray, *, axis: int, centred: bool = True
    ) -> np.ndarray:
        dx = real(dxhat, xhat, inverse, axis=axis, centred=centred)
        mean, along = dxhat.mean(axis, keepdims=True) * centred, (dxhat * xhat).mean(axis, keepdims=True)
        return dx + inverse * (shift(mean) - mean + xhat * (shift(along) - along))

    return normalise_backward
