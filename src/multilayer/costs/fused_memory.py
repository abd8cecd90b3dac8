"""What the fused engine holds: numbers that stay, and numbers that a step writes.

In float32 it is an arena, as csrc/fused/memory_plan.cpp lays it out. Rows go in panels of 16, and a matrix has its rows
filled up to whole lines of 16 numbers: ⌈n⌉ is n rounded up.

    stored     O·⌈I⌉ of each matrix, ⌈n⌉ of each other parameter; as much again for a slot, and for averages
    learned    ⌈n⌉ of each parameter that is no matrix, its gradient; 16·O of a matrix, Σ g² of each row, a line apart;
               as much as is stored where gradients are kept (`kept`), and twice as much where they are sums of two
               (`halved`); 3·n of a batch norm, this batch's statistics
    written    ⌈B⌉ rows of these, 128 at the least since outputs are made of so many at once, each array apart
        what is known of a row, of this step and the last: its number, share and loss; its class or targets, or both
            where classes are mixed; its codes
        the input, and what every layer makes that does not work in place; its δ takes the same place on the way back
        linear, gated unit     ⌈I⌉, the input row by row; both projections of a gated unit, 2·O
        activation, dropout    n, the slope of both where they follow each other; n for a learned number, n for a blend
        norm                   n + G: x̂ and 1/σ
        scale                  n, its input's δ, where something below learns: ds still reads the input
        columns                F·K inside, and the slopes of waves: F·(K + D) with plr, F·K with pbld

In float64 plain loops run (csrc/reference/core.cpp), with no panels and nothing in place. Parameters, gradients, slots
and averages are as many as there are parameters; buffers are held twice, as they are and as a step leaves them.

    looped     B rows of these
        the input and its codes, and what every layer makes; a residual block makes two, at its beginning and its end
        gated unit     2·O, both projections
        dropout        n, its mask
        norm           n + G: x̂ and 1/σ, which a batch norm has n of for all rows
        columns        F·(K + n): inside, and the phases of waves

A layer without a kernel counts as what PyTorch keeps of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..nn.layers import Activation, Columns, Dropout, Layer, Residual
from ..nn.layers.base import LINE, Parameter, lines
from ..nn.losses import Loss
from ..spec import Spec

LEAST_ROWS = 128
KEPT = 500_000_000
MANY_ROWS, SOME_ROWS = 1024, 256
LONGER = 5  # times KEPT, of fewer than MANY_ROWS
HALVED_ROWS = 128
LIGHT = 16_000
STREAMED = 32
WAVE = 8  # multiply-adds that a wave or a bin of columns is worth
_LONG = 2  # numbers that a class or a code takes the room of


def stored(spec: Spec) -> int:
    """Numbers that the parameters take."""
    total = 0
    for parameter in spec.parameters.values():
        height, columns = parameter.shape if _is_matrix(parameter) else (1, parameter.size)
        total += height * lines(columns)
    return total


def _is_matrix(parameter: Parameter) -> bool:
    return parameter.role == "weight" and len(parameter.shape) == 2


def learned(spec: Spec) -> int:
    """Numbers of gradients and statistics that are always there."""
    matrices = [parameter.shape[0] for parameter in spec.parameters.values() if _is_matrix(parameter)]
    vectors = [lines(parameter.size) for parameter in spec.parameters.values() if not _is_matrix(parameter)]
    norms = [entry.width_in for entry in spec.entries if entry.layer.over_batch]
    return LINE * sum(matrices) + sum(vectors) + 3 * sum(norms)


def kept(spec: Spec, batch: int, *, clip: bool) -> bool:
    """Whether gradients are kept until all are there: to be clipped, or since a step takes so long that it may be
    given up; of fewer rows, where keeping costs more, one that takes `LONGER` times as long."""
    weights = 0
    for parameter in spec.parameters.values():
        if _is_matrix(parameter):
            weights += parameter.size
        elif len(parameter.shape) == 1 and parameter.size > 1:  # a sum over rows, for each of which memory is read
            weights += STREAMED * parameter.size
    for layer in spec.layers:
        if isinstance(layer, Columns):
            K, D = layer.inner
            weights += spec.inputs.numeric * K * (D + WAVE)
    least = KEPT if batch >= MANY_ROWS else LONGER * KEPT
    return clip or (batch >= SOME_ROWS and batch * weights >= least)


def halved(spec: Spec, batch: int) -> bool:
    """Whether there is room for gradients that are sums over two halves of the rows: weights are few, and nothing else
    learns. Steps of 1,024 rows have none, but the last of an epoch is smaller."""
    plain = all(layer.weights_alone for layer in spec.layers if not layer.passes_through)
    weights = sum(parameter.size for parameter in spec.parameters.values() if _is_matrix(parameter))
    return plain and weights <= LIGHT and batch >= HALVED_ROWS


def rows(batch: int) -> int:
    return lines(max(batch, LEAST_ROWS))


def written(spec: Spec, loss: Loss, *, mixup: bool) -> list[int]:
    """Numbers a row of each array that a step writes; with `mixup` a row has probabilities of classes too."""
    walk = _Walk(spec.inputs.numeric)
    walk.through(spec.layers, spec.inputs if spec.inputs.categories else spec.inputs.numeric)
    answer = _LONG + mixup * spec.d_out if loss.classes else spec.d_out // loss.per_target
    about = 2 * (3 + answer + _LONG * len(spec.inputs.categories))
    return [about, *(width for width in walk.widths if width)]


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
                    self.widths += layer.fused_widths(d, learning=self.learning)
                self.learning = self.learning or bool(layer.parameters(d))
                bent = isinstance(layer, Activation)
            d = width


# Plain loops


def looped(spec: Spec) -> list[int]:
    """Numbers a row of each array that a step in float64 writes; a code takes the room of one."""
    widths = [spec.inputs.numeric, len(spec.inputs.categories)]
    for entry in spec.entries:
        if not entry.layer.passes_through:
            widths += entry.layer.looped_widths(entry.d_in)
    return [width for width in widths if width]


def looped_once(spec: Spec) -> int:
    """Numbers that it writes for all rows together."""
    return sum(entry.width_in for entry in spec.entries if entry.layer.over_batch)
