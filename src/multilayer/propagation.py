"""How the size of activations and gradients changes with depth at initialisation: predicted and measured.

Sizes are mean squares, E[a²] going forward and E[δ²] going back. The prediction takes units as independent with mean
zero (Glorot & Bengio 2010, He et al. 2015, Poole et al. 2016), V the variance of s·W:

    linear      E[z²] = n_in V E[a²]                        E[δ_in²] = n_out V E[δ²]
    activation  E[a²] = E_{z~N(0, E[z²])} f(z)²             E[δ_z²] = E[δ_a²] E f′(z)²
    norm        E[y²] = 1                                   E[δ_in²] = E[δ²]/E[x²]
    dropout p   E[y²] = E[x²]/(1 − p)                       the same
    residual    E[y²] = E[x²] + E[g(x)²]                    E[δ_in²] = E[δ²] + what comes back through g

Inputs are N(0, 1), and so are the gradients that enter at the outputs. Where no such rule is known (maxout, KAN,
columns, constant weights) the prediction is None from there on, until a norm starts it anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import random
from .activations import facts
from .errors import OptionError, SpecError
from .init import initialise, scheme, weight_variances
from .layers import GLU, Activation, Columns, Dropout, Layer, Linear, Pass, Residual, Scale, named
from .layers.base import Array
from .random import Purpose, derive
from .spec import Spec

STEADY = 1e3
"""A mean square that changes by less than this factor from first to last layer counts as steady."""


@dataclass(frozen=True, kw_only=True)
class LayerVariance:
    """Mean squares of a layer's outputs and of the gradient that reaches them."""

    name: str
    what: str
    predicted_forward: float | None
    measured_forward: float
    predicted_backward: float | None
    measured_backward: float


@dataclass(frozen=True, kw_only=True)
class Variance:
    scheme: str
    layers: tuple[LayerVariance, ...]
    verdict: str
    note: str = ""
    """What to know of the scheme itself."""


def variance(spec: Spec | str, init: str = "auto", *, seed: int = 0, rows: int = 512) -> Variance:
    """Mean squares through a network at initialisation, layer by layer.

    >>> variance("64-64*10-64", "normal(0.01)").verdict.split(":")[0]
    'activations vanish, gradients vanish'
    """
    spec = Spec.parse(spec) if isinstance(spec, str) else spec
    if spec.inputs.categories:
        raise SpecError("variance needs plain numeric inputs, got categories: describe the network behind its columns")
    if rows < 2:
        raise OptionError(f"rows must be at least 2, got {rows}")
    chosen = scheme(init)
    forward, backward = _predict(spec, weight_variances(spec, chosen), known=chosen.law != "constant")
    seen = _measure(spec, initialise(spec, chosen, seed=seed), rows=rows, seed=seed)
    layers = tuple(
        LayerVariance(
            name=entry.name,
            what=_word(entry.layer, entry.width_in, entry.d_out),
            predicted_forward=forward[entry.name],
            measured_forward=seen.forward[entry.name],
            predicted_backward=backward[entry.name],
            measured_backward=seen.backward[entry.name],
        )
        for entry in spec.entries
    )
    return Variance(scheme=chosen.text, layers=layers, verdict=_verdict(layers), note=_NOTE if chosen.fixed else "")


def _word(layer: Layer, d_in: int, d_out: int) -> str:
    mixes = isinstance(layer, Linear) or d_in != d_out
    return f"{d_in}→{d_out}" if mixes else "sum" if isinstance(layer, Residual) else layer.label


_NOTE = "a fixed variance scales a layer's outputs by its number of inputs: what it does depends on the width"


def _verdict(layers: Sequence[LayerVariance]) -> str:
    """The change over the depth of the network, forward from the inputs' 1, backward from the outputs' 1."""
    ahead, back = layers[-1].measured_forward, layers[0].measured_backward
    words = [f"{what} {_change(size)}" for what, size in (("activations", ahead), ("gradients", back))]
    if all(word.endswith("steady") for word in words):
        advice = "this scheme suits the network"
    else:
        remedy = "smaller" if any("explode" in word for word in words) else "larger"
        advice = f"use a {remedy} variance ('auto' fits the activation), a norm, or residual blocks"
    return f"{', '.join(words)}: {advice}"


def _change(size: float) -> str:
    if not math.isfinite(size) or size > STEADY:
        return "explode"
    return "vanish" if size < 1 / STEADY else "stay steady"


# Prediction

Sizes = dict[str, float | None]


def _predict(spec: Spec, variances: Mapping[str, float], *, known: bool) -> tuple[Sizes, Sizes]:
    """Mean square of each layer's output, and of the gradient that reaches it."""
    forward: Sizes = {}
    backward: Sizes = {}
    rules: dict[str, float | None] = {}  # what the gradient is multiplied by on its way through a layer
    with np.errstate(over="ignore"):
        _ahead(spec.layers, spec.inputs.numeric, 1.0, "", variances, known, forward, rules)
        _back(spec.layers, 1.0, "", rules, backward)
    return forward, backward


def _ahead(
    layers: Sequence[Layer],
    d: int,
    q: float | None,
    prefix: str,
    variances: Mapping[str, float],
    known: bool,
    forward: Sizes,
    rules: Sizes,
) -> float | None:
    for name, layer in named(layers):
        path = prefix + name
        before, factor = q, None
        V = variances.get(f"{path}.weight")
        if isinstance(layer, Residual):
            inner = _ahead(layer.layers, d, q, f"{path}.", variances, known, forward, rules)
            q = None if q is None or inner is None else q + inner
        elif isinstance(layer, Linear) and V is not None and known:
            q, factor = (None if q is None else d * V * q), layer.d_out * V
        elif isinstance(layer, GLU) and V is not None and known and q is not None:
            z = d * V * q
            opened, slope = facts.second_moment(layer.gate, z), facts.slope_moment(layer.gate, z)
            q, factor = opened * z, layer.d_out * V * (slope * z + opened)
        elif isinstance(layer, Activation) and layer.function.elementwise and q is not None:
            q, factor = _moments(layer, q)
        elif layer.kind in ("layernorm", "rmsnorm", "batchnorm", "groupnorm"):
            q, factor = 1.0, (1 / before if before else None)
        elif isinstance(layer, Dropout) and q is not None:
            q, factor = q / (1 - layer.p), 1 / (1 - layer.p)
        elif isinstance(layer, Scale):
            factor = 1.0
        else:
            q = None
        forward[path], rules[path] = q, factor
        d = layer.width(d)
    return q


def _moments(layer: Activation, q: float) -> tuple[float | None, float | None]:
    if q == 0 or not math.isfinite(q):
        return None, None
    moments = facts.second_moment(layer.function, q), facts.slope_moment(layer.function, q)
    a, slope = (m if math.isfinite(m) else None for m in moments)
    return a, slope


def _back(layers: Sequence[Layer], g: float | None, prefix: str, rules: Sizes, backward: Sizes) -> float | None:
    for name, layer in reversed(list(named(layers))):
        path = prefix + name
        backward[path] = g
        if isinstance(layer, Residual):
            inner = _back(layer.layers, g, f"{path}.", rules, backward)
            g = None if g is None or inner is None else g + inner
        else:
            factor = rules[path]
            g = None if g is None or factor is None else g * factor
    return g


# Measurement


@dataclass(frozen=True)
class _Seen:
    forward: dict[str, float]
    backward: dict[str, float]


def _measure(spec: Spec, values: Mapping[str, Array], *, rows: int, seed: int) -> _Seen:
    """One pass forward and one back through the numpy layers, with N(0, 1) at both ends."""
    tensors = {place: values[stored] for place, stored in spec.tensor_names.items()} | {
        name: values[name] for name in spec.buffers
    }
    keeps = iter(range(1, 1 << 20))

    def keep(d: int, p: float) -> Array:
        mask = random.keep(seed, Purpose.MEASURE, rows=rows, units=d, p=p, part=next(keeps))
        return mask / (1 - p)

    run = Pass(training=True, keep=keep)
    noise = derive(seed, 1)
    x = random.normal(noise, Purpose.MEASURE, rows=rows, units=spec.inputs.numeric)
    dy = random.normal(noise, Purpose.MEASURE, rows=rows, units=spec.d_out, epoch=1)
    seen = _Seen({}, {})
    with np.errstate(over="ignore", invalid="ignore"):
        _, caches = _walk(spec.layers, x, tensors, "", run, seen)
        _walk_back(spec.layers, dy, caches, tensors, "", seen)
    return seen


def _walk(
    layers: Sequence[Layer], x: Array, tensors: Mapping[str, Array], prefix: str, run: Pass, seen: _Seen
) -> tuple[Array, list[Any]]:
    caches: list[Any] = []
    for name, layer in named(layers):
        path = prefix + name
        if isinstance(layer, Residual):
            h, cache = _walk(layer.layers, x, tensors, f"{path}.", run, seen)
            x = x + h
        else:
            x, cache = layer.forward(x, _own(tensors, path), run)
        seen.forward[path] = _mean_square(x)
        caches.append(cache)
    return x, caches


def _walk_back(
    layers: Sequence[Layer], dy: Array, caches: list[Any], tensors: Mapping[str, Array], prefix: str, seen: _Seen
) -> Array:
    for (name, layer), cache in zip(reversed(list(named(layers))), reversed(caches), strict=True):
        path = prefix + name
        seen.backward[path] = _mean_square(dy)
        if isinstance(layer, Residual):
            dy = dy + _walk_back(layer.layers, dy, cache, tensors, f"{path}.", seen)
        elif not isinstance(layer, Columns):
            dy, _ = layer.backward(dy, cache, _own(tensors, path))
    return dy


def _own(tensors: Mapping[str, Array], path: str) -> dict[str, Array]:
    return {name.rpartition(".")[2]: value for name, value in tensors.items() if name.rpartition(".")[0] == path}


def _mean_square(x: Array) -> float:
    return float(np.mean(x * x))
