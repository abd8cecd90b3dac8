"""Kinds of layer as an engine is calibrated on them: what stands for a layer, and how much of it a row has.

A step in PyTorch is many small operations, and what one takes for a number differs by a factor of fifty: a tenth of a
nanosecond for ReLU, several for `where`, `max` over an axis or Mish. Neither FLOPs nor bytes tell that. Each kind of
layer is therefore timed once, at a width of ours and by how many numbers it handles, its linear map reduced to one
number in or out; what its products take comes on top, by their FLOPs.

    kind                         numbers a row        stands for it
    linear, gated unit, maxout   outputs              128 outputs of 1 input
    KAN                          inputs               1 output of 16 inputs, with its bases
    columns                      features; 1 a code   16 features, products and all; one column of codes
    every other                  inputs               itself, 128 wide

Left out on purpose: whether widths suit the registers, and what a wider row does to a norm or a softmax.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

from ..nn.layers import GLU, KAN, Activation, Columns, Dropout, GroupNorm, Inputs, Layer, Linear, Maxout, Residual
from ..spec import Entry, Spec

WIDTH = 128
FEATURES = 16
WIDEST = 2**16
MOST_CODES = 64


@dataclass(frozen=True, kw_only=True)
class Unit:
    """What stands for a layer, the numbers a row of that has, and those a row of the layer itself has."""

    layer: Layer
    d: int | Inputs
    standard: int
    numbers: int
    learning: bool
    """Whether a gradient goes on below it."""

    @property
    def widest(self) -> int:
        """Numbers a row of the widest tensor that what stands for it makes."""
        return max(self.layer.widest(cast(int, self.d)), self.standard)

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
        found[entry.name] = tuple(_units(entry, learning))
        own = () if isinstance(entry.layer, Residual) else entry.layer.parameters(cast(int, entry.d_in))
        learning = learning or bool(own)
    return found


def _units(entry: Entry, learning: bool) -> Iterator[Unit]:
    layer, width, numbers = entry.layer, WIDTH, entry.width_in
    stands: Layer = layer
    d: int = WIDTH
    match layer:
        case Columns():
            yield from _columns(layer, Inputs.of(entry.d_in))
            return
        case Activation() if layer.passes_through:
            return
        case Dropout() if layer.p == 0:
            return
        case Linear() | GLU() | Maxout():
            width = _fitting(WIDTH, replace(cast(Any, layer), d_out=1).widest(1))
            stands, d, numbers = replace(cast(Any, layer), d_out=width), 1, entry.d_out
        case KAN():
            d = width = _fitting(FEATURES, layer.n_bases)
            stands = replace(layer, d_out=1)
        case Residual():
            stands = Residual((Activation("identity"),))
        case Dropout():
            stands = Dropout(0.5)
        case Activation() if layer.per == "network":
            stands = replace(layer, per="layer")
        case GroupNorm():
            d = width = layer.groups * -(-WIDTH // layer.groups)
        case _:
            pass
    yield Unit(layer=stands, d=d, standard=width, numbers=numbers, learning=learning)


def _fitting(width: int, each: int) -> int:
    """The width, or less where each number of it makes many inside."""
    return max(1, min(width, WIDEST // each))


def _columns(layer: Columns, inputs: Inputs) -> Iterator[Unit]:
    """Nothing stands below columns, so none of them is asked for a gradient of its inputs."""
    if inputs.numeric and layer.numeric != "none":
        plain = replace(layer, categories="auto")
        features = _fitting(FEATURES, max(layer.inner))
        yield Unit(layer=plain, d=features, standard=features, numbers=inputs.numeric, learning=False)
    for n in inputs.categories:
        codes = Columns(categories="one-hot" if layer.one_hot(n) else "embedding", d_category=layer.d_category)
        known = Inputs(categories=(min(n, MOST_CODES),))
        yield Unit(layer=codes, d=known, standard=1, numbers=1, learning=False)
