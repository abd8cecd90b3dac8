"""A network, its loss, its optimizer and its rows in the form that the compiled core reads (csrc/program.h).

    network          a flat list of operations. A residual block is enter, its layers, leave; layers without effect are
                     left out.
    tensors          their positions in `spec.parameters` and `spec.buffers`
    x, y, weight     read in place if they have the core's type
    codes            copied, and the copy is checked: the core looks weights up by code, and would read or write
                     outside its arrays if the caller changed a code later
    class numbers    checked once and read in place: the core only compares them

A closed set: `why_not` names what is outside it. KAN, maxout, softmax and the activations that are sums of others or
learn several numbers a unit have no kernel; the torch engine runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ..core import _core
from ..data.batches import Batch
from ..errors import DataError
from ..nn import losses, optimizers
from ..nn.activations.function import Function
from ..nn.layers import (
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
    named,
)
from ..nn.layers.columns import code_refused
from ..spec import Spec
from .protocol import Settings


def why_not(spec: Spec, loss: str | None = None, optimizer: str | None = None) -> str | None:
    """What the fused engine does not run of a network, its loss and its optimizer, or None where it runs all.

    >>> why_not(Spec.parse("4-8:gelu-1")), why_not(Spec.parse("4-kan(8)-1"))
    (None, 'kan1 has no kernel in the fused engine')
    """
    for entry in spec.entries:
        layer = entry.layer
        known = isinstance(layer, Residual) or type(layer) in _WRITERS
        if isinstance(layer, Activation):
            known = layer.name in _core.Function.__members__
        if not known:
            return f"{entry.name} has no kernel in the fused engine"
    if loss is not None and losses.get(loss).name not in _core.LossKind.__members__:
        return f"the loss {losses.get(loss).name} has no kernel in the fused engine"
    if optimizer is not None and _rule(optimizers.get(optimizer)) not in _core.OptimizerKind.__members__:
        return f"the optimizer {optimizers.get(optimizer).name} has no kernel in the fused engine"
    return None


def operations_of(spec: Spec) -> _core.Program:
    """The network alone: what prediction needs."""
    program = _core.Program()
    program.numeric, program.d_out = spec.inputs.numeric, spec.d_out
    program.parameters = [_sized(parameter.size) for parameter in spec.parameters.values()]
    program.buffers = [buffer.size for buffer in spec.buffers.values()]
    writer = _Writer(spec)
    writer.write(spec.layers, spec.inputs if spec.inputs.categories else spec.inputs.numeric, "")
    program.ops = writer.ops
    return program


def program_of(spec: Spec, settings: Settings) -> _core.Program:
    """For a network of which `why_not` says None."""
    program = operations_of(spec)
    program.seed = settings.seed
    program.parameters = [_parameter(spec, settings, name) for name in spec.parameters]
    program.loss, program.optimizer = _loss(settings.loss), _optimizer(settings.optimizer)
    program.l2 = settings.l2
    if settings.clip_norm is not None:
        program.clip_norm = settings.clip_norm
    if settings.clip_value is not None:
        program.clip_value = settings.clip_value
    if settings.average is not None:
        program.average = settings.average
    program.statistics_every = settings.statistics_every or 0
    return program


def _sized(size: int) -> _core.Parameter:
    found = _core.Parameter()
    found.size = size
    return found


def _parameter(spec: Spec, settings: Settings, name: str) -> _core.Parameter:
    found = _sized(spec.parameters[name].size)
    found.rate_factor = settings.rate_factors.get(name, 1.0)
    found.decay_factor = settings.decay_factors.get(name, float(spec.parameters[name].decays))
    return found


def _loss(text: str) -> _core.Loss:
    loss, found = losses.get(text), _core.Loss()
    found.kind = _core.LossKind[loss.name]
    constants = dict(loss.constants)
    found.quantiles = [float(q) for q in constants.pop("q", ())]
    found.constant = float(next(iter(constants.values()), 0.0))  # label smoothing, or huber's delta
    return found


def _optimizer(text: str) -> _core.Optimizer:
    optimizer, found = optimizers.get(text), _core.Optimizer()
    found.kind = _core.OptimizerKind[_rule(optimizer)]
    for name, value in optimizer.constants:
        setattr(found, name, value)
    return found


def _rule(optimizer: optimizers.Optimizer) -> str:
    return optimizer.rule or optimizer.name


class _Writer:
    """Walks the layers in the order they run and writes an operation for each that does something."""

    def __init__(self, spec: Spec) -> None:
        self.ops: list[_core.Op] = []
        self.tensor_names = spec.tensor_names
        self.parameters = {name: i for i, name in enumerate(spec.parameters)}
        self.buffers = {name: i for i, name in enumerate(spec.buffers)}
        self.masks = 0
        self.path = ""

    def write(self, layers: Iterable[Layer], d: int | Inputs, prefix: str) -> None:
        for name, layer in named(layers):
            width = layer.width(d)  # pyright: ignore[reportArgumentType]  # typed inputs reach Columns alone
            if isinstance(layer, Residual):
                self.ops.append(_op("enter", width, width))
                self.write(layer.layers, d, f"{prefix}{name}.")
                self.ops.append(_op("leave", width, width))
            elif not layer.passes_through:
                self.path = prefix + name
                op = _op("linear", d.numeric if isinstance(d, Inputs) else d, width)
                _WRITERS[type(layer)](self, op, layer, d)
                self.ops.append(op)
            d = width

    def parameter(self, name: str) -> int:
        """The place of a parameter of the layer being written, or NONE where it has none of that name."""
        return self.parameters.get(self.tensor_names.get(f"{self.path}.{name}", ""), _core.NONE)

    def buffer(self, name: str) -> int:
        return self.buffers.get(f"{self.path}.{name}", _core.NONE)


def _op(kind: str, d_in: int, d_out: int) -> _core.Op:
    op = _core.Op()
    op.kind, op.d_in, op.d_out = _core.Kind[kind], d_in, d_out
    return op


# What each kind of layer adds to an operation that has its widths.


def _linear(writer: _Writer, op: _core.Op, layer: Linear, d: int) -> None:
    op.kind = _core.Kind["linear"]
    op.weight, op.bias, op.factor = writer.parameter("weight"), writer.parameter("bias"), layer.factor(d)


def _glu(writer: _Writer, op: _core.Op, layer: GLU, d: int) -> None:
    op.kind = _core.Kind["glu"]
    op.weight, op.bias = writer.parameter("weight"), writer.parameter("bias")
    _function(op, layer.gate)


def _activation(writer: _Writer, op: _core.Op, layer: Activation, d: int) -> None:
    op.kind = _core.Kind["activation"]
    _function(op, layer.function)
    for name in layer.function.learned:  # those with a kernel have one at most
        op.learned = writer.parameter(name)
    op.blend = writer.parameter("blend")


def _function(op: _core.Op, function: Function) -> None:
    op.function = _core.Function[function.name]
    for _, value in function.constants:  # one at most
        op.constant = float(cast(float, value))


def _scale(writer: _Writer, op: _core.Op, layer: Scale, d: int) -> None:
    op.kind, op.weight = _core.Kind["scale"], writer.parameter("scale")


def _dropout(writer: _Writer, op: _core.Op, layer: Dropout, d: int) -> None:
    op.kind, op.p, op.part = _core.Kind["dropout"], layer.p, writer.masks
    writer.masks += 1


def _norm(writer: _Writer, op: _core.Op, layer: BatchNorm | LayerNorm | RMSNorm | GroupNorm, d: int) -> None:
    op.kind = _core.Kind[_NORMS[type(layer)]]
    op.weight, op.bias, op.eps = writer.parameter("weight"), writer.parameter("bias"), layer.eps
    if isinstance(layer, GroupNorm):
        op.groups = layer.groups
    if isinstance(layer, BatchNorm):
        op.momentum, op.mean, op.var = layer.momentum, writer.buffer("running_mean"), writer.buffer("running_var")


def _columns(writer: _Writer, op: _core.Op, layer: Columns, d: int | Inputs) -> None:
    op.kind = _core.Kind["columns"]
    columns, inputs = _core.Columns(), Inputs.of(d)
    columns.numeric, columns.n, (columns.K, columns.D) = _core.Numeric[layer.numeric], layer.n or 0, layer.inner
    for name in ("frequency", "phase", "weight", "bias"):
        setattr(columns, name, writer.parameter(name))
    columns.edges = writer.buffer("edges")
    columns.categories = [
        _category(values, writer.parameter(f"table{i + 1}"), width)
        for i, (values, width) in enumerate(zip(inputs.categories, layer.category_widths(inputs), strict=True))
    ]
    op.columns = columns


def _category(values: int, table: int, width: int) -> _core.Category:
    found = _core.Category()
    found.values, found.table, found.width = values, table, width
    return found


_NORMS = {BatchNorm: "batch_norm", LayerNorm: "layer_norm", RMSNorm: "rms_norm", GroupNorm: "group_norm"}
_WRITERS: dict[type[Layer], Callable[[_Writer, _core.Op, Any, Any], None]] = {
    Linear: _linear,
    GLU: _glu,
    Activation: _activation,
    Scale: _scale,
    Dropout: _dropout,
    **dict.fromkeys(_NORMS, _norm),
    Columns: _columns,
}


# Rows

Codes = NDArray[np.int64]

_COPIES: WeakKeyDictionary[Batch, Codes] = WeakKeyDictionary()
"""Of tables that engines hold: those of an ensemble hold the same one."""


def beside(x: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Rows whose numbers stand side by side, in the core's type; rows may be further apart than they are long."""
    if not x.size:  # numpy gives what is empty no strides
        return np.empty((1 + len(x), x.shape[1]), dtype)[: len(x)]
    apart, within = x.strides
    fits = x.dtype == dtype and x.flags.aligned and apart >= 0 and apart % dtype.itemsize == 0
    return x if fits and within == dtype.itemsize else np.require(x, dtype, ["C", "A"])


def codes_of(batch: Batch, categories: tuple[int, ...]) -> Codes:
    """A copy of its codes, checked. Engines over one table share it while it is what the table holds."""
    assert batch.codes is not None, "check_data refuses a table without the network's codes"
    codes = _COPIES.get(batch)
    if codes is None or not np.array_equal(codes, batch.codes):
        codes = _COPIES[batch] = copied(batch.codes)
    check_codes(codes, batch.codes, categories)
    return codes


@np.errstate(invalid="ignore")  # NaN has no whole number: it is given one, and found to differ from it
def copied(codes: NDArray[Any]) -> Codes:
    """One copy, whatever their type; fractions are cut off, for `check_codes` to find."""
    return np.array(codes, dtype=np.int64, order="C")


def are_whole(numbers: NDArray[Any]) -> bool:
    """Whether their type has nothing else."""
    return numbers.dtype.kind in "iub"


def check_codes(codes: Codes, given: NDArray[Any], categories: tuple[int, ...]) -> None:
    """Refuses the first code that is not from 0 to its column's number of values, or not what was given."""
    for i, n in enumerate(categories):
        wrong = (codes[:, i] < 0) | (codes[:, i] > n)
        if not are_whole(given):
            wrong |= codes[:, i] != given[:, i]
        _refuse_first(wrong, given[:, i], lambda code, row, i=i, n=n: code_refused(i, n, code, row))


def classes_of(y: NDArray[Any], classes: int) -> NDArray[np.int64]:
    """Class numbers from 0 to one less than there are classes."""
    wrong = ~((y >= 0) & (y < classes) & (y == np.trunc(y)))
    _refuse_first(
        wrong,
        y,
        lambda code, row: (
            f"y must hold class numbers from 0 to {classes - 1}, got {code} in row {row}: give the network more outputs"
        ),
    )
    return np.require(y, np.int64, ["C", "A"])


def _refuse_first(wrong: NDArray[np.bool_], given: NDArray[Any], refused: Callable[[float, int], str]) -> None:
    for row in np.flatnonzero(wrong)[:1].tolist():
        raise DataError(refused(given[row].item(), row)) from None
