"""A network, its loss, its optimizer and its rows in the form that the compiled core reads (csrc/program.h).

    network          a flat list of operations. A residual block is an `enter` operation, its layers and a `leave`
                     operation. Layers without effect are omitted.
    tensors          their positions in `spec.parameters` and `spec.buffers`
    x, y, weight     read in place if they have the core's type
    codes            copied, and the copy is checked. The core uses codes as indices, so a later change by the caller
                     could cause an access outside its arrays.
    class numbers    checked once and read in place: the core only compares them

Not supported: KAN, maxout, softmax, and activations that are sums of others or have several learned parameters per
unit. `why_not` names the first unsupported part of a network. The torch engine supports all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ..core import _core
from ..data.batches import Batch
from ..errors import DataError
from ..nn import layers as L
from ..nn import losses, optimizers
from ..nn.activations.function import ActivationFunction
from ..nn.layers import Inputs, Layer, named
from ..nn.layers.columns import code_refused
from ..spec import Spec
from .protocol import Settings
from .unit_counts import counted_range

T = TypeVar("T")
Codes = NDArray[np.int64]


def why_not(spec: Spec, loss: str | None = None, optimizer: str | None = None) -> str | None:
    """Return what the fused engine does not support of a network, its loss and its optimizer, or None.

    >>> why_not(Spec.parse("4-8:gelu-1")), why_not(Spec.parse("4-kan(8)-1"))
    (None, 'kan1 has no kernel in the fused engine')
    """
    for entry in spec.entries:
        if not _has_kernel(entry.layer):
            return f"{entry.name} has no kernel in the fused engine"
    if loss is not None and losses.get(loss).name not in _core.LossKind.__members__:
        return f"the loss {losses.get(loss).name} has no kernel in the fused engine"
    if optimizer is not None and _rule(optimizers.get(optimizer)) not in _core.OptimizerKind.__members__:
        return f"the optimizer {optimizers.get(optimizer).name} has no kernel in the fused engine"
    return None


def operations_of(spec: Spec) -> _core.Program:
    """Return the network without loss and optimizer, for prediction."""
    return _program(spec, counts_units=False)


def _program(spec: Spec, *, counts_units: bool) -> _core.Program:
    writer = _Writer(spec, counts_units=counts_units)
    writer.write(spec.layers, spec.inputs if spec.inputs.categories else spec.inputs.numeric, "")
    return _made(
        _core.Program,
        numeric=spec.inputs.numeric,
        d_out=spec.d_out,
        ops=writer.ops,
        parameters=[_made(_core.Parameter, size=parameter.size) for parameter in spec.parameters.values()],
        buffers=[buffer.size for buffer in spec.buffers.values()],
    )


def program_of(spec: Spec, settings: Settings) -> _core.Program:
    """Return the network with its loss, optimizer and settings. `why_not` must be None for it."""
    program = _program(spec, counts_units=True)
    program.parameters = [
        _made(
            _core.Parameter,
            size=parameter.size,
            rate_factor=settings.rate_factors.get(name, 1.0),
            decay_factor=settings.decay_factors.get(name, float(parameter.decays)),
        )
        for name, parameter in spec.parameters.items()
    ]
    program.seed, program.l2 = settings.seed, settings.l2
    program.loss, program.optimizer = _loss(losses.get(settings.loss)), _optimizer(optimizers.get(settings.optimizer))
    for name in ("clip_norm", "clip_value", "average", "statistics_every"):
        if (value := getattr(settings, name)) is not None:
            setattr(program, name, value)
    return program


def _made(structure: type[T], **fields: Any) -> T:
    """Return a structure of the core with some of its fields set."""
    made = structure()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def _loss(loss: losses.Loss) -> _core.Loss:
    constants = dict(loss.constants)
    quantiles = [float(q) for q in constants.pop("q", ())]
    return _made(_core.Loss, kind=_core.LossKind[loss.name], quantiles=quantiles, constant=_constant(constants))


def _constant(constants: Mapping[str, Any]) -> float:
    """Return the constant of a function or loss, such as delta of huber. Those with a kernel have at most one."""
    return float(next(iter(constants.values()), 0.0))


def _optimizer(optimizer: optimizers.Optimizer) -> _core.Optimizer:
    return _made(_core.Optimizer, kind=_core.OptimizerKind[_rule(optimizer)], **dict(optimizer.constants))


def _rule(optimizer: optimizers.Optimizer) -> str:
    return optimizer.rule or optimizer.name


_KINDS = {"batchnorm": "batch_norm", "layernorm": "layer_norm", "rmsnorm": "rms_norm", "groupnorm": "group_norm"}
"""Kinds of layers whose operation has another name in the core."""


def _has_kernel(layer: Layer) -> bool:
    if isinstance(layer, L.Activation):
        return layer.name in _core.Function.__members__
    return isinstance(layer, L.Residual) or _KINDS.get(layer.kind, layer.kind) in _core.Kind.__members__


class _Writer:
    """Writes an operation for each layer that has an effect, in the order in which they run."""

    def __init__(self, spec: Spec, *, counts_units: bool) -> None:
        self.ops: list[_core.Op] = []
        self.counts_units = counts_units
        self.tensor_names = spec.tensor_names
        self.parameters = {name: i for i, name in enumerate(spec.parameters)}
        self.buffers = {name: i for i, name in enumerate(spec.buffers)}
        self.masks = count()
        self.path = ""

    def write(self, layers: Iterable[Layer], d: int | Inputs, prefix: str) -> None:
        for name, layer in named(layers):
            width = layer.width(d)  # pyright: ignore[reportArgumentType]  # typed inputs reach Columns alone
            if isinstance(layer, L.Residual):
                self.add("enter", width, width)
                self.write(layer.layers, d, f"{prefix}{name}.")
                self.add("leave", width, width)
            elif not layer.passes_through:
                self.path = prefix + name
                fields = {"weight": self.parameter("weight"), "bias": self.parameter("bias")}
                if type(layer) in _FIELDS:
                    fields |= _FIELDS[type(layer)](self, layer, d)
                kind = _KINDS.get(layer.kind, layer.kind)
                self.add(kind, d.numeric if isinstance(d, Inputs) else d, width, fields)
            d = width

    def add(self, kind: str, d_in: int, d_out: int, fields: Mapping[str, Any] = {}) -> None:
        self.ops.append(_made(_core.Op, kind=_core.Kind[kind], d_in=d_in, d_out=d_out, **fields))

    def parameter(self, name: str) -> int:
        """Return the position of a parameter of the current layer, or NONE if it has none with this name."""
        return self.parameters.get(self.tensor_names.get(f"{self.path}.{name}", ""), _core.NONE)

    def buffer(self, name: str) -> int:
        return self.buffers.get(f"{self.path}.{name}", _core.NONE)


def _function(function: ActivationFunction) -> dict[str, Any]:
    """Return the fields for the function of an activation or gate."""
    return {"function": _core.Function[function.name], "constant": _constant(dict(function.constants))}


def _activation(writer: _Writer, layer: L.Activation, d: int) -> dict[str, Any]:
    learned = "".join(layer.function.learned)  # functions with a kernel have at most one learned parameter
    found = {**_function(layer.function), "learned": writer.parameter(learned), "blend": writer.parameter("blend")}
    counted = counted_range(layer.function) if writer.counts_units else None
    return found if counted is None else {**found, "counted": _made(_core.CountedRange, **vars(counted))}


def _batch_norm(writer: _Writer, layer: L.BatchNorm, d: int) -> dict[str, Any]:
    mean, var = writer.buffer("running_mean"), writer.buffer("running_var")
    return {"eps": layer.eps, "momentum": layer.momentum, "mean": mean, "var": var}


def _columns(writer: _Writer, layer: L.Columns, d: int | Inputs) -> dict[str, Any]:
    inputs, (K, D) = Inputs.of(d), layer.inner
    categories = [
        _made(_core.Category, values=values, table=writer.parameter(f"table{i + 1}"), width=width)
        for i, (values, width) in enumerate(zip(inputs.categories, layer.category_widths(inputs), strict=True))
    ]
    tensors = {name: writer.parameter(name) for name in ("frequency", "phase", "weight", "bias")}
    columns = _made(
        _core.Columns,
        numeric=_core.Numeric[layer.numeric],
        n=layer.n or 0,
        K=K,
        D=D,
        edges=writer.buffer("edges"),
        categories=categories,
        **tensors,
    )
    return {"columns": columns, "weight": _core.NONE, "bias": _core.NONE}  # its tensors are in `columns`


_FIELDS: dict[type[Layer], Callable[[_Writer, Any, Any], dict[str, Any]]] = {
    L.Linear: lambda writer, layer, d: {"factor": layer.factor(d)},
    L.GLU: lambda writer, layer, d: _function(layer.gate),
    L.Activation: _activation,
    L.Scale: lambda writer, layer, d: {"weight": writer.parameter("scale")},
    L.Dropout: lambda writer, layer, d: {"p": layer.p, "part": next(writer.masks)},
    L.BatchNorm: _batch_norm,
    L.LayerNorm: lambda writer, layer, d: {"eps": layer.eps},
    L.RMSNorm: lambda writer, layer, d: {"eps": layer.eps},
    L.GroupNorm: lambda writer, layer, d: {"eps": layer.eps, "groups": layer.groups},
    L.Columns: _columns,
}
"""Fields of an operation other than its widths, and `weight` and `bias` by their names in the layer."""


# Rows

_COPIES: WeakKeyDictionary[Batch, Codes] = WeakKeyDictionary()
"""Copies of the codes by table, shared by the members of an ensemble."""


def contiguous_rows(x: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return x in the core's type with contiguous rows. There may be gaps between rows."""
    if not x.size:  # numpy gives empty arrays no strides
        return np.empty((1 + len(x), x.shape[1]), dtype)[: len(x)]
    apart, within = x.strides
    fits = x.dtype == dtype and x.flags.aligned and apart >= 0 and apart % dtype.itemsize == 0
    return x if fits and within == dtype.itemsize else np.require(x, dtype, ["C", "A"])


def codes_of(batch: Batch, categories: tuple[int, ...]) -> Codes:
    """Return a checked copy of the codes. Engines over one table share it as long as the codes are unchanged."""
    assert batch.codes is not None, "check_data refuses a table without the network's codes"
    codes = _COPIES.get(batch)
    if codes is None or not np.array_equal(codes, batch.codes):
        codes = _COPIES[batch] = copied(batch.codes)
    check_codes(codes, batch.codes, categories)
    return codes


@np.errstate(invalid="ignore")  # NaN becomes an arbitrary integer, which differs from NaN
def copied(codes: NDArray[Any]) -> Codes:
    """Return a copy in int64. Fractions are cut off; `check_codes` reports them."""
    return np.array(codes, dtype=np.int64, order="C")


def are_integers(values: NDArray[Any]) -> bool:
    return values.dtype.kind in "iub"


def check_codes(codes: Codes, given: NDArray[Any], categories: tuple[int, ...]) -> None:
    """Raise an error for the first code outside 0 … n, or changed by the conversion to integers."""
    for i, n in enumerate(categories):
        wrong = (codes[:, i] < 0) | (codes[:, i] > n)
        if not are_integers(given):
            wrong |= codes[:, i] != given[:, i]
        if wrong.any():
            row = int(wrong.argmax())
            raise DataError(code_refused(i, n, given[row, i].item(), row)) from None


def classes_of(y: NDArray[Any], classes: int) -> NDArray[np.int64]:
    """Return class numbers in int64. Each must be from 0 to `classes` − 1."""
    wrong = ~((y >= 0) & (y < classes) & (y == np.trunc(y)))
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(
            f"y must hold class numbers from 0 to {classes - 1}, got {y[row].item()} in row {row}: "
            "give the network more outputs"
        )
    return np.require(y, np.int64, ["C", "A"])
