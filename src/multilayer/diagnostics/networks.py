"""Measurements of one network over given rows, and of its initial state: units, activations, gradients, movement.

For each activation layer, over the rows:

    dead             units for which f′ is exactly 0 on every row (`nn.activations.properties.dead`)
    saturated        units whose slope is flat on at least 95 % of the rows (`properties.saturated`)
    sparsity         mean share of outputs that are exactly 0
    z, a             mean and standard deviation over rows and units, before and after the activation
    duplicates       units whose outputs equal those of an earlier unit up to a factor
    effective rank   exp of the entropy of the eigenvalues of the covariance of a (Roy & Vetterli 2007)

For each layer with a weight matrix, in one backward pass of the mean loss:

    gradient         norm of the gradient of the weights
    delta            root mean square over rows and units of ∂loss_row/∂z, so that layers of any width are comparable
    weights          norm of the weights
    movement         ‖W − W₀‖/‖W₀‖, where W₀ are the initial weights; unknown for the spline coefficients of a KAN
                     layer, which start close to 0
    growth           ‖W‖/‖W₀‖
    update ratio     size of one step at the peak learning rate η, relative to the weights: η ‖g‖/‖W‖, or η √n/‖W‖ for
                     Adam, which changes each of n weights by about η; 0.001 to 0.1 is usual. W is the larger of the
                     initial and the final weights.
    identical        share of units whose incoming weights equal those of another unit

`gradient_slope` is the slope of log₁₀ delta over depth, per layer: negative if gradients vanish toward the input.
Batch norm uses its running statistics and dropout is off, so the numbers of a row do not depend on other rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..nn.activations import properties
from ..nn.activations.function import ActivationFunction
from ..nn.layers import KAN, Activation, Pass
from ..nn.layers.base import Array
from ..nn.layers.passes import Gradients, Values, backward_pass, forward_pass
from ..nn.losses import Loss
from ..spec import Spec

SAME = 1e-4
"""Two units are identical if their weights differ by at most this fraction of their norm."""
MOST_COMPARED = 256
"""Largest number of units of a layer that are compared with each other."""

Units = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class ActivationMeasurement:
    """One activation layer over the rows. `width` is its number of units."""

    name: str
    function: str
    width: int
    dead: Units
    saturated: Units
    sparsity: float
    z_mean: float
    z_std: float
    a_mean: float
    a_std: float
    duplicates: int | None
    effective_rank: float | None

    def to_dict(self) -> dict[str, Any]:
        numbers = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in numbers.items()}


@dataclass(frozen=True, kw_only=True)
class Update:
    """The peak learning rate, and whether the optimizer divides by the size of the gradient, as Adam does."""

    rate: float
    adaptive: bool

    def ratio(self, weights: Array, first: Array | None, gradient: Array) -> float | None:
        """Return the size of a step relative to the weights. None if they were 0 from the start."""
        norm = max(float(np.linalg.norm(weights)), 0.0 if first is None else float(np.linalg.norm(first)))
        size = math.sqrt(weights.size) if self.adaptive else float(np.linalg.norm(gradient))
        if norm > 0:
            return self.rate * size / norm
        return math.inf if first is None else None


@dataclass(frozen=True, kw_only=True, eq=False)
class WeightMeasurement:
    """One layer with a weight matrix. `movement` is NaN if the initial weights are unknown or 0."""

    name: str
    width: int
    gradient: float
    delta: float
    weights: float
    movement: float
    growth: float
    identical: float
    update_ratio: float | None

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, kw_only=True, eq=False)
class NetworkMeasurement:
    """One network over the rows."""

    activations: tuple[ActivationMeasurement, ...]
    weights: tuple[WeightMeasurement, ...]
    loss: float
    output_rms: float
    unused_inputs: tuple[int, ...] = field(default=())
    """Inputs whose weights in the first layer are all 0."""

    @property
    def delta_ratio(self) -> float:
        """Root mean square of δ at the first layer with weights, divided by that at the last. NaN with one layer."""
        deltas = [one.delta for one in self.weights]
        return deltas[0] / deltas[-1] if len(deltas) > 1 and deltas[-1] > 0 else math.nan

    @property
    def gradient_slope(self) -> float:
        """Slope of log₁₀ delta over depth, counted from the output, per layer."""
        deltas = np.array([one.delta for one in reversed(self.weights)])
        if len(deltas) < 2 or not (deltas > 0).all():
            return math.nan
        return float(np.polyfit(np.arange(len(deltas)), np.log10(deltas), 1)[0])

    @property
    def movement(self) -> float:
        """Median of the movement of all layers whose initial weights are not 0."""
        return _median(one.movement for one in self.weights)

    @property
    def growth(self) -> float:
        """Median of the growth of all layers whose initial weights are not 0."""
        return _median(one.growth for one in self.weights)

    @property
    def update_ratio(self) -> float:
        """Median of the update ratio of all layers. NaN if the optimizer is unknown."""
        return _median(math.nan if one.update_ratio is None else one.update_ratio for one in self.weights)

    def to_dict(self) -> dict[str, Any]:
        return {
            "loss": self.loss,
            "output_rms": self.output_rms,
            "delta_ratio": self.delta_ratio,
            "gradient_slope": self.gradient_slope,
            "movement": self.movement,
            "growth": self.growth,
            "update_ratio": self.update_ratio,
            "unused_inputs": list(self.unused_inputs),
            "activations": [one.to_dict() for one in self.activations],
            "weights": [one.to_dict() for one in self.weights],
        }


def _median(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return float(np.median(known)) if known else math.nan


def measure_network(
    spec: Spec,
    tensors: Mapping[str, Array],
    x: Array,
    codes: NDArray[np.int64] | None,
    y: NDArray[Any],
    loss: Loss,
    *,
    initial: Mapping[str, Array] | None = None,
    full: bool = True,
    update: Update | None = None,
) -> NetworkMeasurement:
    """Measure a network over encoded rows x (B, F), codes (B, C) and targets y.

    `tensors` and `initial` are parameters and buffers by stored name, now and before training. Without `full`,
    duplicates and effective ranks are not computed. `update` is the optimizer, for the size of its steps.
    """
    places = {place: np.asarray(tensors[stored], x.dtype) for place, stored in spec.tensor_names.items()}
    places |= {name: np.asarray(tensors[name], x.dtype) for name in spec.buffers}
    values: dict[str, Values] = {}
    caches: dict[str, Any] = {}
    back: dict[str, Gradients] = {}
    inputs: Any = x if codes is None else (x, codes)
    run = Pass(categories=spec.inputs.categories)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        z = forward_pass(spec.layers, inputs, places, run, values, caches)
        losses = loss.rows(z, y)
        slope = np.asarray(loss.slope(z, y), x.dtype) / x.dtype.type(max(len(x), 1))
        backward_pass(spec.layers, slope, places, caches, back)
        return NetworkMeasurement(
            activations=tuple(
                _activation(entry.name, entry.layer, places, values[entry.name], full=full)
                for entry in spec.entries
                if isinstance(entry.layer, Activation) and entry.layer.function.elementwise
            ),
            weights=tuple(_weights(spec, tensors, initial, back, len(x), update)),
            loss=float(np.mean(losses)),
            output_rms=float(np.sqrt(np.mean(np.square(z, dtype=np.float64)))),
            unused_inputs=_unused_inputs(spec, tensors),
        )


def _activation(
    name: str, layer: Activation, places: Mapping[str, Array], values: Values, *, full: bool
) -> ActivationMeasurement:
    function, z, a = layer.function, np.asarray(values.x), np.asarray(values.y)
    learned = {key: places[f"{name}.{key}"] for key in function.learned}
    return ActivationMeasurement(
        name=name,
        function=function.name,
        width=z.shape[1],
        dead=np.flatnonzero(properties.dead(function, z, learned)) if function.dies else np.zeros(0, np.int64),
        saturated=_saturated(layer, z, learned),
        sparsity=float(np.mean(a == 0)),
        z_mean=float(z.mean()),
        z_std=float(z.std()),
        a_mean=float(a.mean()),
        a_std=float(a.std()),
        duplicates=_duplicates(a) if full else None,
        effective_rank=_effective_rank(a) if full else None,
    )


@lru_cache(maxsize=256)
def _saturates(function: ActivationFunction) -> bool:
    return properties.saturates(function) != (None, None)


def _saturated(layer: Activation, z: Array, learned: Mapping[str, Array]) -> Units:
    function = layer.function
    if layer.blend or (not learned and not _saturates(function)):
        return np.zeros(0, np.int64)
    return np.flatnonzero(properties.saturated(function, z, learned))


def _duplicates(a: Array) -> int:
    """Return the number of units whose centered outputs are proportional to those of an earlier unit."""
    centered = a[:, :MOST_COMPARED] - a[:, :MOST_COMPARED].mean(0)
    norms = np.linalg.norm(centered, axis=0)
    alive = norms > 0
    unit = centered[:, alive] / norms[alive]
    similar = np.abs(unit.T @ unit) > 1 - SAME
    return int(np.triu(similar, 1).any(0).sum())


def _effective_rank(a: Array) -> float:
    """Return exp(−Σ p log p), where p are the eigenvalues of the covariance of a, divided by their sum."""
    centered = np.asarray(a - a.mean(0), np.float64)
    if not np.isfinite(centered).all():
        return math.nan
    gram = centered @ centered.T if len(a) < a.shape[1] else centered.T @ centered
    values = np.clip(np.linalg.eigvalsh(gram), 0, None)
    if values.sum() <= 0:
        return 0.0
    p = values[values > 0] / values.sum()
    return float(np.exp(-(p * np.log(p)).sum()))


def _weights(
    spec: Spec,
    tensors: Mapping[str, Array],
    initial: Mapping[str, Array] | None,
    back: Mapping[str, Gradients],
    rows: int,
    update: Update | None,
) -> list[WeightMeasurement]:
    found: list[WeightMeasurement] = []
    for entry in spec.entries:
        if not entry.layer.mixes or f"{entry.name}.weight" not in spec.tensor_names:
            continue
        stored = spec.tensor_names[f"{entry.name}.weight"]
        now, gradient = np.asarray(tensors[stored]), back[entry.name]
        first = None if initial is None or isinstance(entry.layer, KAN) else np.asarray(initial[stored])
        movement, growth = _change(now, first)
        found.append(
            WeightMeasurement(
                name=entry.name,
                width=entry.d_out,
                gradient=float(np.linalg.norm(gradient.parameters["weight"])),
                delta=float(np.sqrt(np.mean(np.square(gradient.dy, dtype=np.float64)))) * rows,
                weights=float(np.linalg.norm(now)),
                movement=movement,
                growth=growth,
                identical=_identical(now),
                update_ratio=None if update is None else update.ratio(now, first, gradient.parameters["weight"]),
            )
        )
    return found


def _change(now: Array, first: Array | None) -> tuple[float, float]:
    """Return the movement and the growth of weights. NaN if the initial weights are unknown or 0."""
    if first is None or not (norm := float(np.linalg.norm(first))) > 0:
        return math.nan, math.nan
    return float(np.linalg.norm(now - first)) / norm, float(np.linalg.norm(now)) / norm


def _identical(weights: Array) -> float:
    """Return the share of units whose incoming weights equal those of another unit of the layer.

    Units whose weights are all 0 count only if all weights of the layer are 0, because weight decay may remove units.
    """
    if weights.ndim != 2 or len(weights) < 2:
        return 0.0
    rows = np.asarray(weights[:MOST_COMPARED], np.float64)
    norms = np.linalg.norm(rows, axis=1)
    if not norms.any():
        return 1.0
    alive = norms > SAME * norms.max()
    rows, norms = rows[alive], norms[alive]
    squares = norms[:, None] ** 2 + norms**2 - 2 * rows @ rows.T
    close = squares <= (SAME * np.minimum.outer(norms, norms)) ** 2 + 1e-9 * norms.max() ** 2
    np.fill_diagonal(close, False)
    return float(close.any(0).sum() / len(weights[:MOST_COMPARED]))


def _unused_inputs(spec: Spec, tensors: Mapping[str, Array]) -> tuple[int, ...]:
    """Return the inputs of the first layer whose weights are all 0, if it is a linear layer."""
    first = spec.entries[0] if spec.entries else None
    stored = None if first is None else spec.tensor_names.get(f"{first.name}.weight")
    weights = None if stored is None else np.asarray(tensors[stored])
    if first is None or weights is None or weights.ndim != 2 or weights.shape[1] != spec.inputs.numeric:
        return ()
    return tuple(np.flatnonzero(~weights.any(0)).tolist())
