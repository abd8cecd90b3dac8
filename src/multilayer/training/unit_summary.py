"""The counts of the units of an epoch, as the event `epoch` reports them, and as a checkpoint stores them.

    dead         inactive on every training row of the epoch
    saturated    flat on at least 95 % of the rows, unless the function only dies, as ReLU does: such a unit is sparse

These are the definitions of nn/activations/properties.py, over the values z at each step instead of those at its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..engines import UnitCounts
from ..nn.activations.properties import SATURATED_ROWS, only_dies
from ..nn.layers import Activation
from ..spec import Spec

MOST_UNITS = 1000
"""Largest number of units that an event lists. Their number is exact."""


def added(units: Mapping[str, UnitCounts], more: Mapping[str, UnitCounts]) -> dict[str, UnitCounts]:
    """Return the sums of the counts by layer. The arrays of the arguments are not changed."""
    return {**units, **{name: units[name] + counts if name in units else counts for name, counts in more.items()}}


def summary(units: Mapping[str, UnitCounts], spec: Spec) -> dict[str, Any]:
    """Return the dead and the saturated units of each layer, and the mean share of inactive rows.

    >>> counts = UnitCounts(10, np.array([10, 4]), np.array([10, 4]))
    >>> summary({"relu1": counts}, Spec.parse("3-2:relu-1"))["relu1"]
    {'rows': 10, 'dead': [0], 'dead_count': 1, 'saturated': [], 'saturated_count': 0, 'inactive': 0.7}
    """
    layers = {entry.name: entry.layer for entry in spec.entries}
    return {name: _layer_summary(counts, layers[name.rpartition("/")[2]]) for name, counts in units.items()}


def _layer_summary(counts: UnitCounts, layer: object) -> dict[str, Any]:
    assert isinstance(layer, Activation)
    rows, function = max(counts.rows, 1), layer.function
    dead = (counts.inactive == rows).nonzero()[0].tolist() if function.dies else []
    saturated = [] if only_dies(function) else (counts.flat / rows >= SATURATED_ROWS).nonzero()[0].tolist()
    return {
        "rows": counts.rows,
        "dead": dead[:MOST_UNITS],
        "dead_count": len(dead),
        "saturated": saturated[:MOST_UNITS],
        "saturated_count": len(saturated),
        "inactive": int(counts.inactive.sum()) / (rows * len(counts.inactive)),
    }


def to_json(units: Mapping[str, UnitCounts]) -> dict[str, Any]:
    """Return the counts for a checkpoint."""
    return {
        name: {"rows": counts.rows, "inactive": counts.inactive.tolist(), "flat": counts.flat.tolist()}
        for name, counts in units.items()
    }


def from_json(stored: Mapping[str, Any]) -> dict[str, UnitCounts]:
    """Return the counts of a checkpoint. The inverse of `to_json`."""
    return {
        name: UnitCounts(one["rows"], *(np.array(one[kind], dtype=np.int64) for kind in ("inactive", "flat")))
        for name, one in stored.items()
    }
