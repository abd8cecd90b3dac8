"""Which values of an activation layer are counted during training, for the diagnostics of units.

    inactive    f′(z) is exactly 0: z ≤ low or z ≥ high of `dead_range`
    flat        |f′(z)| stays below 1 % of its maximum: z < low or z > high of `saturates`; not counted for functions
                that only die, as ReLU does, because sparse units are not saturated

Both are properties of the function with its initial parameters (nn/activations/properties.py). A layer is counted if
its function has at least one bound. Functions that are not elementwise have none.

The bounds are rounded to float32, so that engines in float32 and in float64 compare z with the same numbers. Rows are
counted before dropout and include each row once per step. Counts are sums of integers: they depend neither on the
order of the rows nor on threads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..nn.activations.function import ActivationFunction
from ..nn.activations.properties import dead_range, only_dies, saturates
from ..nn.layers import Activation, Layer
from ..spec import Spec
from .protocol import UnitCounts


@dataclass(frozen=True, kw_only=True)
class CountedRange:
    """The counted values z of an activation. A bound that does not exist is NaN, so that comparisons are false."""

    inactive_low: float
    inactive_high: float
    flat_low: float
    flat_high: float

    def inactive(self, z: Any) -> Any:
        """Return which values are inactive, for an array or a tensor."""
        return (z <= self.inactive_low) | (z >= self.inactive_high)

    def flat(self, z: Any) -> Any:
        """Return which values are flat, for an array or a tensor."""
        return (z < self.flat_low) | (z > self.flat_high)


@lru_cache(maxsize=1024)
def counted_range(fn: ActivationFunction) -> CountedRange | None:
    """Return the counted values of a function, or None if no value is counted."""
    if not fn.elementwise:
        return None
    bounds = (*dead_range(fn), *((None, None) if only_dies(fn) else saturates(fn)))
    if all(bound is None for bound in bounds):
        return None
    low, high, flat_low, flat_high = bounds
    return CountedRange(
        inactive_low=_rounded(low, -math.inf),
        inactive_high=_rounded(high, math.inf),
        flat_low=_rounded(flat_low, -math.inf),
        flat_high=_rounded(flat_high, math.inf),
    )


def counted_layers(spec: Spec) -> dict[str, tuple[CountedRange, int]]:
    """Return the counted values and the number of units of each counted layer, by name in the order of the network."""
    found: dict[str, tuple[CountedRange, int]] = {}
    for entry in spec.entries:
        counted = counted_range(entry.layer.function) if isinstance(entry.layer, Activation) else None
        if counted is not None:
            found[entry.name] = counted, entry.d_out
    return found


class UnitCounter:
    """Counts the units of a network in numpy. `watch` is called with the input of every layer (`Pass.watch`)."""

    def __init__(self, spec: Spec) -> None:
        self.layers = counted_layers(spec)
        self.counts = {name: np.zeros((2, units), dtype=np.int64) for name, (_, units) in self.layers.items()}

    def watch(self, name: str, layer: Layer, z: Any) -> None:
        if name in self.layers:
            counted, _ = self.layers[name]
            self.counts[name] += np.stack([counted.inactive(z).sum(0), counted.flat(z).sum(0)])

    def found(self, rows: int) -> dict[str, UnitCounts]:
        return {name: UnitCounts(rows, inactive, flat) for name, (inactive, flat) in self.counts.items()}


def _rounded(bound: float | None, outward: float) -> float:
    """Return the nearest float32 number that is at least as far in the direction `outward`, or NaN for None."""
    if bound is None:
        return math.nan
    near = np.float32(bound)
    inside = float(near) > bound if outward < 0 else float(near) < bound
    return float(np.nextafter(near, np.float32(outward)) if inside else near)
