"""Bytes of a training step: what is stored between steps, and what a step keeps for its backward pass.

| part | bytes | |
|---|---|---|
| parameters, gradients | s·P each | s bytes per number, P parameters |
| optimizer | m·s·P | m numbers per parameter |
| averages | s·P | if averages of the weights are kept |
| activations | s·(B·(Σn + e) + f) | n widths of the tensors kept, each once; e and f more numbers per row and batch |
| temporary | s·B·(I + O) | largest pair of δ that exists at the same time, O the widest tensor inside a layer |

`temporary` is needed only for a moment, so no total includes it. The `textbook` convention keeps the inputs and the
output of each layer. The `actual` convention keeps what PyTorch or the fused engine keeps.

The fused engine stores Q numbers for P parameters, and s·R·Σn bytes of activations. It updates a weight as soon as its
gradient is computed, so it stores only N numbers of gradients, or N + Q if all gradients of a step are stored. A δ
overwrites the activation that it belongs to. In float64 it runs plain loops, with P gradients, the outputs of all
layers, two copies of the buffers, and the temporary.

The fused engine in float32
---------------------------
csrc/fused/memory_plan.cpp lays out the memory. Rows are stored in panels of 16, and rows of matrices are padded to
multiples of 16 numbers: ⌈n⌉ is n rounded up.

Q, the numbers stored for parameters:

- O·⌈I⌉ for each matrix, ⌈n⌉ for each other parameter
- the same again for each slot of the optimizer, and for averages

N, the numbers of gradients:

- ⌈n⌉ for each parameter that is not a matrix
- 16·O for each matrix: Σ g² of each row, each on its own line
- Q more if gradients are stored (`keeps_gradients`), and 2·Q more if they are sums of two halves (`halves_gradients`)
- 3·n for each batch norm: the statistics of this batch

R is ⌈B⌉, but at least 128, because outputs are computed for 128 rows at a time. Each row has these numbers:

| part | numbers per row |
|---|---|
| row | twice, for this step and the last: index, sample weight, loss; class or targets (both with mixup); codes |
| input | its width |
| layer that does not work in place | its output; its δ uses the same memory |
| linear, gated unit | ⌈I⌉ for the input in row-major order; 2·O for both projections of a gated unit |
| activation, dropout | n for the slope, shared if they follow each other; n for a learned parameter, n for a blend |
| norm | n + G for x̂ and 1/σ |
| scale | n for the δ of its input, if a layer below has parameters: ds still reads the input |
| columns | F·K inside, and the slopes of waves: F·(K + D) with plr, F·K with pbld |

The fused engine in float64
---------------------------
Plain loops run (csrc/reference/core.cpp), without panels and not in place. Parameters, gradients, slots and averages
have P numbers each. Buffers are stored twice, before and after a step. Each of B rows has these numbers:

| part | numbers per row |
|---|---|
| input | its width, and its codes |
| layer | its output; two for a residual block, at its beginning and its end |
| gated unit | 2·O for both projections |
| dropout | n for its mask |
| norm | n + G for x̂ and 1/σ; a batch norm has n of 1/σ for all rows together |
| columns | F·(K + n): inside, and the phases of waves |

A layer without a kernel counts as in PyTorch.
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

ENGINES = ("torch", "fused")
"""Engines whose memory can be counted."""

LEAST_ROWS = 128
"""The fused engine has room for at least this many rows."""
LONG_STEP = 500_000_000
"""Multiply-adds of a step with `MANY_ROWS` rows from which gradients are stored."""
MANY_ROWS, SOME_ROWS = 1024, 256
LONGER = 5
"""A step with `SOME_ROWS` rows stores gradients from `LONGER` times `LONG_STEP` on."""
HALVED_ROWS, FEW_WEIGHTS = 128, 16_000
"""Limits for gradients that are summed over two halves of the rows."""
VECTOR_ELEMENT, WAVE = 32, 8
"""Multiply-adds that take as long as an element of a vector, or a wave or bin of columns."""
_LONG = 2  # a class or a code has 8 bytes: two float32 numbers
_DOUBLE = 8  # bytes of float64, for which the fused engine runs plain loops
_TERMS = 12  # longest sum of widths that is written out; of a longer one, only the number of widths is given


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of a training step.

    Attributes
    ----------
    parameters, gradients, averages : int
        Bytes of the parameters, of their gradients, and of averaged weights if chosen.
    buffers : int
        Running statistics and other tensors that are not learned.
    optimizer : int
        Bytes that the optimizer stores between steps.
    activations : int
        Bytes kept for the backward pass.
    temporary : int
        The largest pair of gradients that exists at the same time. It is not part of the total.

    Examples
    --------
    >>> from multilayer.costs import cost
    >>> memory = cost("784-256-128-10", batch=32, optimizer="sgd").memory
    >>> memory.parameters, memory.gradients, memory.activations, memory.total
    (940584, 940584, 150788, 2031956)
    """

    parameters: int
    buffers: int
    gradients: int
    optimizer: int
    averages: int
    activations: int
    temporary: int

    @property
    def total(self) -> int:
        """Sum of all parts except `temporary`."""
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
    """Return the bytes of a training step. The options are those of `cost`."""
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
    widths = [spec.inputs.numeric]  # width of each tensor; each is the input of the next layer
    needed = [False]  # whether the tensor is kept
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
    """Return numbers that do not depend on the batch as the symbol f."""
    return named(f=numbers)[0] if numbers else count(0)


def _widths(widths: list[int]) -> Count:
    """Return Σn. In its formula, equal widths are joined: 784 + 6·384."""
    if not widths:
        return count(0)
    times = Counter(widths)
    terms = [f"{n}·{width}" if n > 1 else str(width) for width, n in times.items()]
    numbers = " + ".join(terms) if len(terms) <= _TERMS else f"Σ of {len(widths)} widths"
    return Count(sum(widths), "Σn", numbers, is_sum=True)


# The fused engine


def stored(spec: Spec) -> int:
    """Return the numbers stored for the parameters, including padding."""
    shapes = (p.shape if _is_matrix(p) else (1, p.size) for p in spec.parameters.values())
    return sum(height * lines(columns) for height, columns in shapes)


def _learned(spec: Spec) -> int:
    """Return the numbers of gradients and statistics that the engine always stores."""
    gradients = (LINE * p.shape[0] if _is_matrix(p) else lines(p.size) for p in spec.parameters.values())
    return sum(gradients) + 3 * sum(entry.width_in for entry in spec.entries if entry.layer.over_batch)


def _is_matrix(parameter: Parameter) -> bool:
    return parameter.role == "weight" and len(parameter.shape) == 2


def keeps_gradients(spec: Spec, batch: int, *, clip: bool) -> bool:
    """Return whether all gradients of a step are stored before the update.

    This is true if gradients are clipped, or if a step is so long that it can be canceled. With fewer rows, storing
    gradients costs more, so a step must be `LONGER` times as long.
    """
    weights = sum(p.size for p in spec.parameters.values() if _is_matrix(p))
    # The gradient of a vector is a sum over rows, and each row is read from memory.
    weights += VECTOR_ELEMENT * sum(p.size for p in spec.parameters.values() if len(p.shape) == 1 and p.size > 1)
    if isinstance(spec.layers[0], Columns):
        K, D = spec.layers[0].inner
        weights += spec.inputs.numeric * K * (D + WAVE)
    least = LONG_STEP if batch >= MANY_ROWS else LONGER * LONG_STEP
    return clip or (batch >= SOME_ROWS and batch * weights >= least)


def halves_gradients(spec: Spec, batch: int) -> bool:
    """Return whether the engine allocates memory to sum gradients over two halves of the rows.

    This is true if there are few weights, and no other parameters except biases. Steps of 1,024 rows do not use this
    memory, but the last step of an epoch is smaller.
    """
    plain = all(layer.weights_alone for layer in spec.layers if not layer.passes_through)
    weights = sum(p.size for p in spec.parameters.values() if _is_matrix(p))
    return plain and weights <= FEW_WEIGHTS and batch >= HALVED_ROWS


def _written(spec: Spec, loss: Loss, *, mixup: bool) -> list[int]:
    """Return the numbers per row of each array that a step writes. With `mixup`, a row also has class probabilities."""
    answer = _LONG + mixup * spec.d_out if loss.classes else spec.d_out // loss.per_target
    widths = [2 * (3 + answer + _LONG * len(spec.inputs.categories)), spec.inputs.numeric]
    slope = -1  # depth of the activation directly before, if any: a dropout shares its slope
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
    """Return the numbers per row of each array that a step in float64 writes. A code counts as one number."""
    widths = [spec.inputs.numeric, len(spec.inputs.categories)]
    for entry in spec.entries:
        if not entry.layer.passes_through:
            widths += entry.layer.looped_widths(entry.d_in)
    return [width for width in widths if width]
