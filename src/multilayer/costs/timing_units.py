"""Kinds of layer as an engine is calibrated on them: what stands for a layer, and how much of it a row has.

A step in PyTorch is many small operations, and what one takes for a number differs by a factor of fifty: a tenth of a
nanosecond for ReLU, several for `where`, `max` over an axis or Mish. Neither FLOPs nor bytes tell that. Each kind of
layer is therefore timed once, at a width of ours and by how many numbers it handles, its linear map reduced to one
number in or out; what its products take comes on top, by their FLOPs. `Layer.timed` says what stands for a kind:

    kind                         numbers a row        stands for it
    linear, gated unit, maxout   outputs              128 outputs of 1 input
    KAN                          inputs               1 output of 16 inputs, with its bases
    columns                      features; 1 a code   16 features, products and all; one column of codes
    every other                  inputs               itself, 128 wide

Left out on purpose: whether widths suit the registers, and what a wider row does to a norm or a softmax.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from ..nn.layers import Inputs, Residual
from ..nn.layers.base import Timed
from ..spec import Spec


@dataclass(frozen=True, kw_only=True)
class Unit(Timed):
    """What stands for a layer, as its description says, and where it stands."""

    learning: bool
    """Whether a gradient goes on below it."""

    @property
    def widest(self) -> int:
        """Numbers a row of the widest tensor that what stands for it makes."""
        return max(self.layer.widest(self.d), self.standard)

    @property
    def key(self) -> str:
        """The same for all layers of a kind."""
        place = "" if self.learning else " on data"
        codes = f" of {self.d.categories}" if isinstance(self.d, Inputs) else ""
        return f"{self.layer!r}{codes}{place}"


def units(spec: Spec) -> dict[str, tuple[Unit, ...]]:
    """What each operation of a network is made of, by its name; nothing for those that do nothing."""
    found: dict[str, tuple[Unit, ...]] = {}
    learning = False
    for entry in spec.entries:
        parts = entry.layer.timed(cast(int, entry.d_in))
        found[entry.name] = tuple(Unit(**vars(part), learning=learning) for part in parts)
        own = () if isinstance(entry.layer, Residual) else entry.layer.parameters(cast(int, entry.d_in))
        learning = learning or bool(own)
    return found
