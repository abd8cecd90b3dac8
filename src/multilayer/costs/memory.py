"""Bytes of a training step: what stays between steps, and what a step keeps for its way back.

    parameters   s·P            s bytes a number, P parameters
    gradients    s·P
    optimizer    m·s·P          m numbers kept a parameter
    averages     s·P            where averages of the weights are kept
    activations  s·(B·(Σn + e) + f)   n the widths of the tensors kept, each once; e and f extras a row and a batch
    temporary    s·B·(I + O)    the largest pair of δ alive at once, O the widest tensor a layer makes on its way; it
                                comes and goes and is in no total

`textbook` keeps the inputs and every layer's output; `actual` keeps what PyTorch, or the fused engine, really keeps.
Its arena (`fused_memory`) has Q numbers for P parameters and s·R·Σn of activations. It updates a weight as its
gradient is made: gradients are N numbers, and Q more where they are kept. A δ takes the place of what it belongs to.
In float64 it runs plain loops, which have P gradients, every layer's output, buffers twice, and the temporary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from ..core.counts import Count, count, named
from ..nn.activations.function import Kept
from ..nn.layers import Activation, Layer, Residual
from ..nn.layers.base import size
from ..nn.losses import Loss
from ..nn.optimizers import Optimizer
from ..spec import Spec
from . import fused_memory

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
        kept = B * _widths(fused_memory.looped(spec)) + _once(fused_memory.looped_once(spec))
        buffers = 2 * buffers
    elif engine == "fused":
        P, R, N = named(Q=fused_memory.stored(spec), R=fused_memory.rows(batch), N=fused_memory.learned(spec))
        kept, temporary = R * _widths(fused_memory.written(spec, loss, mixup=mixup)), 0
        copies = fused_memory.kept(spec, batch, clip=clip) + 2 * fused_memory.halved(spec, batch)
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


def kept_floats(spec: Spec, batch: int, loss: Loss) -> int:
    """Floats that PyTorch keeps for the backward pass: each tensor once, however many operations need it."""
    ledger = _Ledger(batch)
    first = ledger.tensor(spec.inputs.numeric)
    last, learning = ledger.walk(spec.layers, first, spec.inputs if spec.inputs.categories else None, False)
    if learning:
        ledger.keep(loss.kept(spec.d_out), last, last)
    return ledger.total


class _Ledger:
    """Which tensors are kept; a tensor is known by its place in `widths`."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.widths: list[int] = []
        self.kept: set[int] = set()
        self.per_row = 0
        self.per_batch = 0
        self.known: dict[tuple[Layer, object, bool], tuple[bool, Kept]] = {}

    def tensor(self, width: int) -> int:
        self.widths.append(width)
        return len(self.widths) - 1

    def keep(self, kept: Kept, source: int, result: int) -> None:
        if kept.input:
            self.kept.add(source)
        if kept.output:
            self.kept.add(result)
        self.per_row += kept.per_row
        self.per_batch += kept.per_batch

    def walk(self, layers: Iterable[Layer], x: int, inputs: Any, learning: bool) -> tuple[int, bool]:
        """The last tensor's place, and whether anything so far learns (otherwise nothing is kept)."""
        for layer in layers:
            d: Any = inputs if inputs is not None else self.widths[x]
            inputs = None
            if isinstance(layer, Residual):
                _, learning = self.walk(layer.layers, x, None, learning)
                x = self.tensor(self.widths[x])
                continue
            key = (layer, d, learning)  # deep networks repeat their layers
            if key not in self.known:
                self.known[key] = bool(layer.parameters(d)), layer.kept(d, input_gradient=learning)
            has_own, kept = self.known[key]
            if layer.passes_through:
                continue
            result = self.tensor(layer.width(d))
            if learning or has_own:
                self.keep(kept, x, result)
            learning = learning or has_own
            x = result
        return x, learning

    @property
    def total(self) -> int:
        B, e = named(B=self.batch, e=self.per_row)
        rows = _widths([self.widths[i] for i in sorted(self.kept)])
        return B * (rows + e if self.per_row else rows) + _once(self.per_batch)


def _once(numbers: int) -> Count:
    """f, where there are such numbers."""
    return named(f=numbers)[0] if numbers else count(0)


def _widths(widths: list[int]) -> Count:
    """Σn, its figures with equal widths joined: 784 + 6·384."""
    if not widths:
        return count(0)
    times = Counter(widths)
    terms = [f"{n}·{width}" if n > 1 else str(width) for width, n in times.items()]
    numbers = " + ".join(terms) if len(terms) <= _TERMS else f"Σ of {len(widths)} widths"
    return Count(sum(widths), "Σn", numbers, is_sum=True)
