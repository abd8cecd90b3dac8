"""The size of activations and gradients in each layer at initialization: predicted and measured.

Sizes are mean squares: E[a²] of activations and E[δ²] of gradients. The prediction for wide networks follows three
numbers through the layers (Glorot & Bengio 2010, He et al. 2015, Poole et al. 2016, Yang et al. 2019): the mean square
q of a unit, its mean m, and the mean product c of a unit on two different rows. V is the variance of s·W, and V_b that
of the biases, which is 0 except for the scheme `torch`:

    linear      q ← n V q + V_b,  c ← n V c + V_b,  m ← 0              E[δ_in²] = n_out V E[δ²]
    activation  q, m ← E f², E f;  c ← E f(z) f(z′) on two rows         E[δ_z²] = E[δ_a²] E f′²
    norms       q ← 1; layer: (c − m²)/(q − m²), batch: c ← 0           E[δ²] divided by what the norm divides by
    dropout p   q ← q/(1 − p)                                           E[δ²]/(1 − p)
    residual    q ← q + q_g + 2 m m_g, and c in the same way; m ← m + m_g     E[δ²] + E[δ²] through g

Inputs and the gradients of the outputs are N(0, 1). Maxout, KAN, columns and constant weights have no rule: after
them there is no prediction (None) until the next norm. A single network of finite width differs from the prediction by
a factor of about `scatter` (Hanin 2018): exp √Σ κ/n, κ = E f⁴/(E f²)² − 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from ..core import random
from ..core.machine import require_memory
from ..core.random import Purpose, derive
from ..errors import OptionError, SpecError
from ..nn.layers import Columns, Layer, Linear, Pass, Residual, named
from ..nn.layers.base import Array, Moments, Tensors, summed
from .initialization import Scheme, initialise, scheme, weight_deviations, weight_variances
from .spec import Spec

STEADY = 10.0
"""Activations or gradients are steady if they change by at most this factor over the whole network."""
EXTREME = 1e3
"""Activations or gradients vanish or explode if they change by more than this factor."""
ALTERNATIVES = ("auto", "depth", "he", "xavier", "lecun")
"""Schemes to recommend: the first one that is measured as steady, or else the best of those that are steady on
average."""


@dataclass(frozen=True, kw_only=True)
class LayerVariance:
    """Mean squares of the outputs of a layer (forward) and of their gradient (backward)."""

    name: str
    what: str
    predicted_forward: float | None
    measured_forward: float
    predicted_backward: float | None
    measured_backward: float
    weight_std: float | None = None
    """Standard deviation of the initial weights under the scheme; None for a layer without weights."""


@dataclass(frozen=True, kw_only=True)
class Variance:
    """Mean squares in each layer at initialization, and a verdict."""

    scheme: str
    layers: tuple[LayerVariance, ...]
    verdict: str
    note: str = ""
    """Limits of the scheme or of the prediction."""
    scatter: float = 1.0
    """Typical factor between one network and the prediction at the last layer."""


def variance(spec: Spec | str, init: str = "auto", *, seed: int = 0, rows: int = 512) -> Variance:
    """Predict and measure mean squares through a network at initialization, layer by layer.

    Parameters
    ----------
    spec : Spec or str
        The network. Its inputs must be numeric.
    init : str
        Initialization scheme, such as ``"he"`` or ``"normal(0.01)"``.
    seed : int
        Seed of the weights and the random rows.
    rows : int
        Number of random rows to measure with.

    Returns
    -------
    Variance
        Mean squares of activations and gradients for each layer, with a verdict and a remedy.

    Raises
    ------
    SpecError
        If the network is invalid or has categorical inputs.
    OptionError
        If the scheme does not exist, or there are fewer than two rows.

    Examples
    --------
    >>> variance("64-64*10-64", "normal(0.01)").verdict.split(":")[0]
    'activations vanish, gradients vanish'
    """
    spec = Spec.of(spec)
    if spec.inputs.categories:
        raise SpecError(
            "variance needs plain numeric inputs, got categories: describe the network after its columns layer"
        )
    if rows < 2:
        raise OptionError(f"rows must be at least 2, got {rows}")
    widths = (entry.layer.widest(cast(int, entry.d_in)) for entry in spec.entries)
    require_memory(
        8 * (rows * (spec.inputs.numeric + sum(widths)) + spec.n_stored),
        f"a pass of {rows:,} rows through this network in float64",
    )
    chosen = scheme(init)
    found = _predict(spec, chosen)

    def measure(other: Scheme) -> _Measured:
        return _measure(spec, initialise(spec, other, seed=seed), rows=rows, seed=seed)

    measured = measure(chosen)
    deviations = weight_deviations(spec, chosen)
    layers = tuple(
        LayerVariance(
            name=entry.name,
            what=_word(entry.layer, entry.width_in, entry.d_out),
            predicted_forward=found.forward[entry.name],
            measured_forward=measured.forward[entry.name],
            predicted_backward=found.backward[entry.name],
            measured_backward=measured.backward[entry.name],
            weight_std=deviations.get(entry.name),
        )
        for entry in spec.entries
    )
    scatter = math.exp(math.sqrt(min(found.scatter, 1e4)))
    return Variance(
        scheme=chosen.text,
        layers=layers,
        verdict=_verdict(spec, chosen, measured, found, measure),
        note=_note(chosen, scatter),
        scatter=scatter,
    )


def _word(layer: Layer, d_in: int, d_out: int) -> str:
    mixes = isinstance(layer, Linear) or d_in != d_out
    return f"{d_in}→{d_out}" if mixes else "sum" if isinstance(layer, Residual) else layer.label


def _note(chosen: Scheme, scatter: float) -> str:
    notes: list[str] = []
    if chosen.fixed:
        notes.append("the effect of a fixed variance depends on the width: outputs grow with the number of inputs")
    if scatter > 2:
        notes.append(
            f"at this width and depth, one network differs from the prediction by a factor of about {scatter:.1g}"
        )
    return "; ".join(notes)


def _verdict(
    spec: Spec, chosen: Scheme, measured: _Measured, found: _Prediction, measure: Callable[[Scheme], _Measured]
) -> str:
    """Describe what happens over the depth of the network, and the remedy.

    The remedy depends on the cause. If the scheme is predicted to be steady, the cause is chance. If another scheme is
    steady and its measured changes are smaller, the cause is the scheme. Otherwise, it is the network.
    """
    changes = _changes(spec, measured.forward, measured.backward)
    words = [f"{what} {_word_of(size)}" for what, size in zip(("activations", "gradients"), changes, strict=True)]
    if all(map(_steady, changes)):
        remedy = "this scheme suits the network"
    elif _within(changes, _limit(spec)):
        remedy = "each residual block adds to the sum, and the norms rescale it; this does not harm training"
    elif all(map(_steady, _changes(spec, found.forward, found.backward))):
        remedy = "the scheme is steady on average, but narrow networks vary around the average; use wider layers"
    else:
        remedy = _better_scheme(spec, chosen, _largest(changes), measure) or _structural(spec, changes)
    return f"{', '.join(words)}: {remedy}"


def _better_scheme(spec: Spec, chosen: Scheme, now: float, measure: Callable[[Scheme], _Measured]) -> str | None:
    """Return the advice to use another scheme. None if none is steady and measured to change less than `now`."""
    best: tuple[float, str] | None = None
    for text in ALTERNATIVES:
        if text == chosen.text:
            continue
        other = scheme(text)
        found = _predict(spec, other)
        predicted = _changes(spec, found.forward, found.backward)
        if None not in predicted and not _within(predicted, _limit(spec)):
            continue
        measured = measure(other)
        changes = _changes(spec, measured.forward, measured.backward)
        if None in predicted and not _within(changes, _limit(spec)):
            continue
        largest = _largest(changes)
        if largest < now and (best is None or largest < best[0]):
            best = (largest, text)
        if _within(changes, _limit(spec)):
            break
    if best is None:
        return None
    before = f" instead of {now:.2g}-fold" if now <= EXTREME else ""
    return f"use the scheme {best[1]!r}: the largest change measured with it is {best[0]:.2g}-fold{before}"


def _within(changes: Sequence[float | None], limit: float) -> bool:
    return all(_steady(size, limit) for size in changes)


def _largest(changes: Sequence[float]) -> float:
    """Return the larger of two changes as a factor of at least 1."""
    return max(max(size, 1 / size) if 0 < size < math.inf else math.inf for size in changes)


def _limit(spec: Spec) -> float:
    """Return the largest acceptable change. It is larger for residual blocks with norms, which rescale the sum."""
    return EXTREME if _has_blocks(spec) and _has_norms(spec) else STEADY


def _has_blocks(spec: Spec) -> bool:
    return any(isinstance(entry.layer, Residual) for entry in spec.entries)


def _has_norms(spec: Spec) -> bool:
    return any(entry.layer.normalises for entry in spec.entries)


def _changes(spec: Spec, forward: Mapping[str, Any], backward: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the mean square of the outputs and the squared gradient norm at the first layer. Both start at 1.

    The gradient has a norm because its mean square also changes with the number of units. None if there is no
    prediction.
    """
    first, last = spec.layers[0], [entry for entry in spec.entries if not entry.depth][-1]
    start = next(entry for entry in spec.entries if not entry.depth and entry.layer is first)
    back = backward[start.name]
    return forward[last.name], None if back is None else back * start.d_out / last.d_out


def _steady(size: float | None, limit: float = STEADY) -> bool:
    return size is not None and 1 / limit <= size <= limit


def _word_of(size: float) -> str:
    if _steady(size):
        return "stay steady"
    if not math.isfinite(size) or size > EXTREME:
        return "explode"
    return "vanish" if size < 1 / EXTREME else f"grow {size:.0f}-fold" if size > 1 else f"shrink to 1/{1 / size:.0f}"


def _structural(spec: Spec, changes: tuple[float, float]) -> str:
    """Return the remedy if no scheme helps: a norm, residual blocks or fewer layers. It skips what the network has."""
    normed, residual = _has_norms(spec), _has_blocks(spec)
    if not _steady(changes[0]) and not normed:
        place = "at the start of each residual block" if residual else "after each linear layer"
        return f"no scheme keeps both steady; add a norm such as layernorm {place}"
    return f"no scheme keeps both steady; use {'' if residual else 'residual blocks or '}fewer layers"


# Prediction

Sizes = dict[str, float | None]


@dataclass(kw_only=True)
class _Prediction:
    """Mean squares of each layer, and `rules`: its factor on the mean square of the gradient."""

    variances: Mapping[str, float]
    known: bool
    biases: bool
    forward: Sizes = field(default_factory=dict[str, "float | None"])
    rules: Sizes = field(default_factory=dict[str, "float | None"])
    backward: Sizes = field(default_factory=dict[str, "float | None"])
    scatter: float = 0.0

    def predict_forward(self, layers: Sequence[Layer], d: int, x: Moments | None, prefix: str) -> Moments | None:
        for name, layer in named(layers):
            path = prefix + name
            if isinstance(layer, Residual):
                y, self.rules[path] = summed(x, self.predict_forward(layer.layers, d, x, f"{path}.")), None
            else:
                passed = layer.moments(d, x, self.variances.get(f"{path}.weight") if self.known else None)
                y, self.rules[path] = self._shifted(passed.moments, layer, path), passed.backward
                self.scatter += passed.scatter
            self.forward[path] = None if y is None else y.q
            x, d = y, layer.width(d)
        return x

    def _shifted(self, z: Moments | None, layer: Layer, path: str) -> Moments | None:
        """Return the moments with random biases, which are the same on every row."""
        if z is None or not self.biases or not (isinstance(layer, Linear) and layer.bias):
            return z
        shift = self.variances.get(f"{path}.bias", 0.0)
        return Moments(z.q + shift, z.c + shift, z.m)

    def predict_backward(self, layers: Sequence[Layer], g: float | None, prefix: str) -> float | None:
        for name, layer in reversed(list(named(layers))):
            path = prefix + name
            self.backward[path] = g
            if isinstance(layer, Residual):
                inner = self.predict_backward(layer.layers, g, f"{path}.")
                g = None if g is None or inner is None else g + inner
            else:
                factor = self.rules[path]
                g = None if g is None or factor is None else g * factor
        return g


def _predict(spec: Spec, chosen: Scheme) -> _Prediction:
    found = _Prediction(variances=weight_variances(spec, chosen), known=chosen.law != "constant", biases=chosen.biases)
    with np.errstate(over="ignore", invalid="ignore"):
        found.predict_forward(spec.layers, spec.inputs.numeric, Moments(1.0, 0.0, 0.0), "")
        found.predict_backward(spec.layers, 1.0, "")
    return found


# Measurement


@dataclass(frozen=True)
class _Measured:
    forward: dict[str, float]
    backward: dict[str, float]


def _measure(spec: Spec, values: Mapping[str, Array], *, rows: int, seed: int) -> _Measured:
    """Run one forward and one backward pass in numpy. Inputs and output gradients are N(0, 1)."""
    tensors: dict[str, dict[str, Array]] = {entry.name: {} for entry in spec.entries}
    for place, stored in (*spec.tensor_names.items(), *((name, name) for name in spec.buffers)):
        layer, _, tensor = place.rpartition(".")
        tensors[layer][tensor] = values[stored]
    keeps = iter(range(1, 1 << 20))

    def keep(d: int, p: float) -> Array:
        mask = random.keep(seed, Purpose.MEASURE, rows=rows, units=d, p=p, part=next(keeps))
        return mask / (1 - p)

    run = Pass(training=True, keep=keep)
    noise = derive(seed, 1)
    x = random.normal(noise, Purpose.MEASURE, rows=rows, units=spec.inputs.numeric)
    dy = random.normal(noise, Purpose.MEASURE, rows=rows, units=spec.d_out, epoch=1)
    measured = _Measured({}, {})
    with np.errstate(over="ignore", invalid="ignore"):
        _, caches = _forward(spec.layers, x, tensors, "", run, measured)
        _backward(spec.layers, dy, caches, tensors, "", measured)
    return measured


def _forward(
    layers: Sequence[Layer], x: Array, tensors: Mapping[str, Tensors], prefix: str, run: Pass, measured: _Measured
) -> tuple[Array, list[Any]]:
    caches: list[Any] = []
    for name, layer in named(layers):
        path = prefix + name
        if isinstance(layer, Residual):
            h, cache = _forward(layer.layers, x, tensors, f"{path}.", run, measured)
            x = x + h
        else:
            x, cache = layer.forward(x, tensors[path], run)
        measured.forward[path] = _mean_square(x)
        caches.append(cache)
    return x, caches


def _backward(
    layers: Sequence[Layer],
    dy: Array,
    caches: list[Any],
    tensors: Mapping[str, Tensors],
    prefix: str,
    measured: _Measured,
) -> Array:
    for (name, layer), cache in zip(reversed(list(named(layers))), reversed(caches), strict=True):
        path = prefix + name
        measured.backward[path] = _mean_square(dy)
        if isinstance(layer, Residual):
            dy = dy + _backward(layer.layers, dy, cache, tensors, f"{path}.", measured)
        elif not isinstance(layer, Columns):
            dy, _ = layer.backward(dy, cache, tensors[path])
    return dy


def _mean_square(x: Array) -> float:
    return float(np.mean(x * x))
