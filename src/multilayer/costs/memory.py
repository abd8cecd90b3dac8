"""Bytes of a training step: what stays between steps, and what a step keeps for its way back.

    parameters   s·P            s bytes a number, P parameters
    gradients    s·P
    optimizer    m·s·P          m numbers kept a parameter
    averages     s·P            where averages of the weights are kept
    activations  s·(B·(Σn + e) + f)   n the widths of the tensors kept, each once; e and f extras a row and a batch
    temporary    s·B·(I + O)    the largest pair of δ alive at once, O the widest tensor a layer makes on its way; it
                                comes and goes and is in no total

`textbook` keeps the inputs and every layer's output; `actual` keeps what PyTorch, or the fused engine, really keeps.
The fused engine has Q numbers for P parameters and s·R·Σn of activations. It updates a weight as its gradient is made:
gradients are N numbers, and Q more where they are kept. A δ takes the place of what it belongs to. In float64 it runs
plain loops, which have P gradients, every layer's output, buffers twice, and the temporary.

The fused engine in float32
---------------------------
Its memory is an arena, as csrc/fused/memory_plan.cpp lays it out. Rows go in panels of 16, and a matrix has its rows
filled up to whole lines of 16 numbers: ⌈n⌉ is n rounded up.

    stored Q   O·⌈I⌉ of each matrix, ⌈n⌉ of each other parameter; as much again for a slot, and for averages
    learned N  ⌈n⌉ of each parameter that is no matrix, its gradient; 16·O of a matrix, Σ g² of each row, a line apart;
               as much as is stored where gradients are kept (`keeps_gradients`), and twice as much where they are sums
               of two (`halves_gradients`); 3·n of a batch norm, this batch's statistics
    written R  ⌈B⌉ rows of these, 128 at the least since outputs are made of so many at once, each array apart
        what is known of a row, of this step and the last: its number, share and loss; its class or targets, or both
            where classes are mixed; its codes
        the input, and what every layer makes that does not work in place; its δ takes the same place on the way back
        linear, gated unit     ⌈I⌉, the input row by row; both projections of a gated unit, 2·O
        activation, dropout    n, the slope of both where they follow each other; n for a learned number, n for a blend
        norm                   n + G: x̂ and 1/σ
        scale                  n, its input's δ, where something below learns: ds still reads the input
        columns                F·K inside, and the slopes of waves: F·(K + D) with plr, F·K with pbld

The fused engine in float64
---------------------------
Plain loops run (csrc/reference/core.cpp), with no panels and nothing in place. Parameters, gradients, slots and
averages are as many as there are parameters; buffers are held twice, as they are and as a step leaves them.

    looped     B rows of these
        the input and its codes, and what every layer makes; a residual block makes two, at its beginning and its end
        gated unit     2·O, both projections
        dropout        n, its mask
        norm           n + G: x̂ and 1/σ, which a batch norm has n of for all rows
        columns        F·(K + n): inside, and the phases of waves

A layer without a kernel counts as what PyTorch keeps of it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, cast

from ..core.counts import Count, count, named
from ..nn.layers import Activation, Columns, Dropout, Layer, Residual
from ..nn.layers.base import LINE, Parameter, lines, size
from ..nn.losses import Loss
from ..nn.optimizers import Optimizer
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
_DOUBLE = 8  # bytes of a number for which the fused engine has plain loops alone
_TERMS = 12  # widths written out in a formula; beyond, only how many there are


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes. `total` leaves out `temporary`, the largest pair of δ alive at once."""

    parameters: int
    buffers: int
    gradients: int
    optimizer: int
    averages: int
    activations: int
    temporary: int

    @property
    def total(self) -> int:
        parts = (self.parameters, self.buffers, self.gradients, self.optimizer, self.averages, self.activations)
        return sum(int(part) for part in parts)


def memory(
    spec: Spec,
    batch: int,
    *,
    loss: Loss,
    optimizer: Optimizer,
    engine: str,
    itemsize: int,
    convention: str,
    average: bool,
    clip: bool,
    mixup: bool = False,
) -> Memory:
    B, s, P, m = named(B=batch, s=itemsize, P=spec.n_parameters, m=len(optimizer.slots))
    pairs = ((entry.width_in, entry.layer.widest(cast(int, entry.d_in))) for entry in spec.entries)
    I, O = max(pairs, key=sum)  # noqa: E741
    temporary = s * B * Count(I + O, "(I + O)", f"({I} + {O})")
    gradients, buffers = s * P, s * Count(size(spec.buffers.values()), "buffers")
    if convention == "textbook":
        mixing = [entry.d_out for entry in spec.entries if not isinstance(entry.layer, Activation)]
        kept = B * _widths([spec.inputs.numeric, *mixing])
    elif engine == "fused" and itemsize == _DOUBLE:
        kept = B * _widths(_looped(spec)) + _once(sum(e.width_in for e in spec.entries if e.layer.over_batch))
        buffers = 2 * buffers
    elif engine == "fused":
        P, R, N = named(Q=stored(spec), R=lines(max(batch, LEAST_ROWS)), N=_learned(spec))
        kept, temporary = R * _widths(_written(spec, loss, mixup=mixup)), 0
        copies = keeps_gradients(spec, batch, clip=clip) + 2 * halves_gradients(spec, batch)
        gradients = s * (N + copies * P) if copies else s * N
    else:
        kept = kept_floats(spec, batch, loss)
    return Memory(
        parameters=s * P,
        buffers=buffers,
        gradients=gradients,
        optimizer=m * s * P if optimizer.slots else 0,
        averages=s * P if average else 0,
        activations=s * kept,
        temporary=temporary,
    )


def kept_floats(spec: Spec, batch: int, loss: Loss | None) -> int:
    """Return the number of floats that PyTorch keeps for the backward pass, each tensor once.

    Without a loss, the network is a part of a larger one.
    """
    widths = [spec.inputs.numeric]  # of every tensor, each the input of the next layer
    needed = [False]  # whether it is kept
    known: dict[tuple[Layer, object, bool], Any] = {}  # deep networks repeat their layers
    extra = once = 0
    for entry in spec.entries:
        layer, key = entry.layer, (entry.layer, entry.d_in, entry.learning)
        if layer.passes_through:
            continue
        widths.append(entry.d_out)
        needed.append(False)
        if not isinstance(layer, Residual) and (entry.learning or entry.parameters):
            if key not in known:
                known[key] = layer.kept(cast(int, entry.d_in), input_gradient=entry.learning)
            kept = known[key]
            needed[-2:] = needed[-2] or kept.input, kept.output
            extra, once = extra + kept.per_row, once + kept.per_batch
    if loss is not None and spec.parameters:
        kept = loss.kept(spec.d_out)
        needed[-1] = needed[-1] or kept.input or kept.output
        extra, once = extra + kept.per_row, once + kept.per_batch
    B, e = named(B=batch, e=extra)
    rows = _widths([width for width, kept in zip(widths, needed, strict=True) if kept])
    return B * (rows + e if extra else rows) + _once(once)


def _once(numbers: int) -> Count:
    """f, if there are such numbers."""
    return named(f=numbers)[0] if numbers else count(0)


def _widths(widths: list[int]) -> Count:
    """Σn, its figures with equal widths joined: 784 + 6·384."""
    if not widths:
        return count(0)
    times = Counter(widths)
    terms = [f"{n}·{width}" if n > 1 else str(width) for width, n in times.items()]
    numbers = " + ".join(terms) if len(terms) <= _TERMS else f"Σ of {len(widths)} widths"
    return Count(sum(widths), "Σn", numbers, is_sum=True)


# The fused engine


def stored(spec: Spec) -> int:
    """Numbers that the parameters take."""
    shapes = (p.shape if _is_matrix(p) else (1, p.size) for p in spec.parameters.values())
    return sum(height * lines(columns) for height, columns in shapes)


def _learned(spec: Spec) -> int:
    """Numbers of gradients and statistics that are always there."""
    gradients = (LINE * p.shape[0] if _is_matrix(p) else lines(p.size) for p in spec.parameters.values())
    return sum(gradients) + 3 * sum(entry.width_in for entry in spec.entries if entry.layer.over_batch)


def _is_matrix(parameter: Parameter) -> bool:
    return parameter.role == "weight" and len(parameter.shape) == 2


def keeps_gradients(spec: Spec, batch: int, *, clip: bool) -> bool:
    """Return whether gradients are kept until all are there.

    They are if they are clipped, or if a step takes so long that it may be given up. With fewer rows, where keeping
    costs more, a step must take `LONGER` times as long.
    """
    weights = sum(p.size for p in spec.parameters.values() if _is_matrix(p))
    # A vector is a sum over rows, for each of which memory is read.
    weights += STREAMED * sum(p.size for p in spec.parameters.values() if len(p.shape) == 1 and p.size > 1)
    if isinstance(spec.layers[0], Columns):
        K, D = spec.layers[0].inner
        weights += spec.inputs.numeric * K * (D + WAVE)
    least = KEPT if batch >= MANY_ROWS else LONGER * KEPT
    return clip or (batch >= SOME_ROWS and batch * weights >= least)


def halves_gradients(spec: Spec, batch: int) -> bool:
    """Return whether there is room for gradients that are sums over two halves of the rows.

    There is if weights are few, and nothing else learns. Steps of 1,024 rows do not use it, but the last one of an
    epoch is smaller.
    """
    plain = all(layer.weights_alone for layer in spec.layers if not layer.passes_through)
    weights = sum(p.size for p in spec.parameters.values() if _is_matrix(p))
    return plain and weights <= LIGHT and batch >= HALVED_ROWS


def _written(spec: Spec, loss: Loss, *, mixup: bool) -> list[int]:
    """Numbers a row of each array that a step writes; with `mixup` a row has probabilities of classes too."""
    answer = _LONG + mixup * spec.d_out if loss.classes else spec.d_out // loss.per_target
    widths = [2 * (3 + answer + _LONG * len(spec.inputs.categories)), spec.inputs.numeric]
    slope = -1  # depth of an activation right before, whose slope a dropout shares
    for entry in spec.entries:
        if isinstance(entry.layer, Residual):
            widths.append(entry.d_out)
        elif entry.layer.passes_through:
            continue
        elif not (isinstance(entry.layer, Dropout) and slope == entry.depth):
            widths += entry.layer.fused_widths(cast(int, entry.d_in), learning=entry.learning)
        slope = entry.depth if isinstance(entry.layer, Activation) else -1
    return [width for width in widths if width]


def _looped(spec: Spec) -> list[int]:
    """Numbers a row of each array that a step in float64 writes; a code takes the room of one."""
    widths = [spec.inputs.numeric, len(spec.inputs.categories)]
    for entry in spec.entries:
        if not entry.layer.passes_through:
            widths += entry.layer.looped_widths(entry.d_in)
    return [width for width in widths if width]
