"""Timing units: the small benchmark layer that is timed for each kind of layer when an engine is calibrated.

A step in PyTorch consists of many small operations. Their time per number differs by a factor of fifty: 0.1 ns for
ReLU, several ns for `where`, `max` over an axis or Mish. FLOPs and bytes do not predict this. Each kind of layer is
therefore timed once, at a fixed width, as time per number. Its linear map has only one input or one output; the time of
larger matrix products is added, by their FLOPs. `Layer.timed` returns the benchmark layers of a layer:

    kind                         numbers per row      benchmark layer
    linear, gated unit, maxout   outputs              128 outputs of 1 input
    KAN                          inputs               1 output of 16 inputs, with its bases
    columns                      features; 1 a code   16 features, with their products; one column of codes
    every other                  inputs               the layer itself, 128 wide

Not modelled on purpose: how well a width fits the registers, and how norms and softmax slow down for wider rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from ..nn.layers import Inputs, Residual
from ..nn.layers.base import Timed
from ..spec import Spec


@dataclass(frozen=True, kw_only=True)
class Unit(Timed):
    """The benchmark layer of a layer, and its position in the network."""

    learning: bool
    """Whether the layers before it need a gradient."""

    @property
    def widest(self) -> int:
        """Numbers per row of the widest tensor that the benchmark layer makes."""
        return max(self.layer.widest(self.d), self.standard)

    @property
    def key(self) -> str:
        """The key of the measured time, equal for all layers of a kind."""
        place = "" if self.learning else " on data"
        codes = f" of {self.d.categories}" if isinstance(self.d, Inputs) else ""
        return f"{self.layer!r}{codes}{place}"


def units(spec: Spec) -> dict[str, tuple[Unit, ...]]:
    """Return the timing units of each operation of a network, by name. Operations that compute nothing have none."""
    found: dict[str, tuple[Unit, ...]] = {}
    learning = False
    for entry in spec.entries:
        parts = entry.layer.timed(cast(int, entry.d_in))
        found[entry.name] = tuple(Unit(**vars(part), learning=learning) for part in parts)
        own = () if isinstance(entry.layer, Residual) else entry.layer.parameters(cast(int, entry.d_in))
        learning = learning or bool(own)
    return found
