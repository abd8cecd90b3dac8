"""The fused engine's arena, as csrc/fused_plan.cpp lays it out: numbers that stay, and numbers that a step writes.

Rows go in panels of 16, and a matrix has its rows filled up to whole lines of 16 numbers: ⌈n⌉ is n rounded up.

    stored     O·⌈I⌉ of each matrix, ⌈n⌉ of each other parameter; as much again for a slot, and for averages
    written    ⌈B⌉ rows of these, each array apart
        the input, and what every layer makes that does not work in place; its δ takes the same place on the way back
        linear, gated unit     ⌈I⌉, the input row by row; both projections of a gated unit, 2·O
        activation, dropout    n, the slope of both where they follow each other; n for a learned number, n for a blend
        norm                   n + G: x̂ and 1/σ
        scale                  n, its input's δ, where something below learns: ds still reads the input
        columns                F·K inside, and the slopes of waves: F·(K + D) with plr, F·K with pbld

A layer without a kernel counts as what PyTorch keeps of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..layers import (
    GLU,
    Activation,
    BatchNorm,
    Columns,
    Dropout,
    GroupNorm,
    Inputs,
    Layer,
    LayerNorm,
    Linear,
    Residual,
    RMSNorm,
    Scale,
)
from ..spec import Spec

LINE = 16


def lines(n: int) -> int:
    """n rounded up to whole lines."""
    return -(-n // LINE) * LINE


def stored(spec: Spec) -> int:
    """Numbers that the parameters take."""
    total = 0
    for parameter in spec.parameters.values():
        shape = parameter.shape
        rows, columns = shape if parameter.role == "weight" and len(shape) == 2 else (1, parameter.size)
        total += rows * lines(columns)
    return total


def written(spec: Spec) -> list[int]:
    """Numbers a row of each array that a step writes."""
    walk = _Walk(spec.inputs.numeric)
    walk.through(spec.layers, spec.inputs if spec.inputs.categories else spec.inputs.numeric)
    return [width for width in walk.widths if width]


class _Walk:
    def __init__(self, d: int) -> None:
        self.widths = [d]
        self.learning = False  # whether anything so far has parameters

    def through(self, layers: Iterable[Layer], d: Any) -> None:
        bent = False  # whether an activation stands right before, which a dropout shares the slope of
        for layer in layers:
            width = layer.width(d)
            if isinstance(layer, Residual):
                self.widths.append(width)
                self.through(layer.layers, d)
                bent = False
            elif not layer.passes_through:
                if not (bent and isinstance(layer, Dropout)):
                    self.widths += _widths(layer, d, self.learning)
                self.learning = self.learning or bool(layer.parameters(d))
                bent = isinstance(layer, Activation)
            d = width


def _widths(layer: Layer, d: Any, learning: bool) -> Iterable[int]:
    match layer:
        case Linear(d_out=O):
            return O, lines(d)
        case GLU(d_out=O):
            return O, 2 * O, lines(d)
        case Activation():
            return (d,) * (1 + len(layer.function.learned) + layer.blend)
        case Dropout():
            return (d,)
        case BatchNorm() | LayerNorm() | RMSNorm():
            return d, d, 1
        case GroupNorm(groups=G):
            return d, d, G
        case Scale():
            return (d,) * (1 + learning)
        case Columns():
            F, (K, D) = Inputs.of(d).numeric, layer.inner
            slopes = {"plr": K + D, "pbld": K}.get(layer.numeric, 0)
            return layer.width(d), F * K, F * slopes
        case _:
            return layer.width(d), layer.kept(d).per_row
