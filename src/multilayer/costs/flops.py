"""FLOPs of the layers of a network, forward and backward, row by row.

A row is a linear map, or another layer that mixes its inputs, with the activation after it. Any other layer has its own
row.

| side | part | FLOPs |
|---|---|---|
| forward | `matmul`, `bias`, `activation` | of the row; the softmax or sigmoid of the loss counts with the last row |
| forward | `other` | norms, dropout, gates, sums |
| backward | `dW`, `db`, `dA` | the products and sums of the row |
| backward | `activation` | σ′ of the activation below the linear map, because its dA is multiplied by it |
| backward | `other` | norms, gates, gradients of learned activations |

An activation counts its own σ′ if it is the output of the network or has its own row.

In the `textbook` convention, the first layer has dA, and σ′ costs one FLOP. In the `actual` convention, a layer has dA
only if a layer below it has parameters, and σ′ costs what its formula needs.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeVar, cast

from ..core.counts import Count, named
from ..nn.layers import Activation, Backward, Forward, Layer, Parameter, Residual
from ..nn.losses import Loss
from ..spec import Entry, Spec

Parts = TypeVar("Parts", Forward, Backward)
Convention = Literal["actual", "textbook"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """Counts of one row of a cost: a layer, with the activation after it if the layer mixes its inputs."""

    name: str
    what: str
    d_in: int
    d_out: int
    parameters: int
    forward: Forward
    backward: Backward


@dataclass(frozen=True, kw_only=True)
class LossCost:
    """FLOPs of the loss."""

    name: str
    forward: int
    backward: int


@dataclass(frozen=True, kw_only=True)
class Account:
    """The rows of a network and its loss, with their sums."""

    rows: tuple[Row, ...]
    loss: LossCost

    @cached_property
    def forward(self) -> int:
        return sum(row.forward.total for row in self.rows) + int(self.loss.forward)

    @cached_property
    def backward(self) -> int:
        return sum(row.backward.total for row in self.rows)

    @property
    def step(self) -> int:
        return self.forward + self.backward


@dataclass(frozen=True, kw_only=True)
class _LayerCost:
    """Counts of a layer. `slope` has the FLOPs of σ′ if the layer is an activation."""

    tensors: tuple[Parameter, ...]
    parameters: int
    forward: Forward
    backward: Backward
    slope: int


class _LayerCosts:
    """Counts of layers. Deep networks repeat their layers, so each count and each sum is computed once."""

    def __init__(self, batch: int, *, textbook: bool) -> None:
        self.batch, self.textbook = batch, textbook
        self.learning = False  # whether a layer so far has parameters: otherwise no gradient is needed below
        self.known: dict[tuple[Layer, object, bool], _LayerCost] = {}
        self.sums: dict[tuple[int, str, int], Any] = {}
        self.held: list[object] = []  # objects with ids in `sums` must not be freed

    def of(self, entry: Entry) -> _LayerCost:
        """Return the counts of the next layer."""
        key = (entry.layer, entry.d_in, self.learning or self.textbook)
        cost = self.known.get(key)
        if cost is None:
            cost = self.known[key] = self._cost(*key)
        self.learning = self.learning or bool(cost.tensors)
        return cost

    def _cost(self, layer: Layer, d: Any, needed: bool) -> _LayerCost:
        own = () if isinstance(layer, Residual) else layer.parameters(d)
        flops = layer.cost(d, self.batch, input_gradient=needed)
        back, slope = flops.backward if needed or own else Backward(), 0
        if isinstance(layer, Activation):
            if needed:
                slope = Count(self.batch, "B") * Count(d, "n") if self.textbook else back.activation
            back = replace(back, activation=0)
        elements = sum(_elements(p) for p in own)
        return _LayerCost(tensors=own, parameters=elements, forward=flops.forward, backward=back, slope=slope)

    def add(self, parts: Parts, name: str, more: int, *, first: bool = False) -> Parts:
        """Return `parts` with `more` added to the part `name`. With `first`, its formula comes first."""
        if not more and not isinstance(more, Count):
            return parts
        key = (id(parts), name, id(more))
        if key not in self.sums:
            value = getattr(parts, name)
            self.sums[key] = replace(parts, **{name: more + value if first else value + more})
            self.held += [parts, more]
        return self.sums[key]


def account(spec: Spec, batch: int, loss: Loss, convention: Convention) -> Account:
    """Return the FLOPs of a network and its loss."""
    rows: list[Row] = []
    B, C = named(B=batch, C=spec.d_out)
    costs = _LayerCosts(batch, textbook=convention == "textbook")
    waiting: int = 0  # σ′ after the last linear map. It counts with the next linear map, whose dA it multiplies
    owner = 0  # index of the row that has this σ′ if no linear map follows
    counted: set[str] = set()
    entries = iter(itertools.pairwise((*spec.entries, None)))
    for entry, following in entries:
        entry = cast(Entry, entry)
        layer, cost = entry.layer, costs.of(entry)
        what, parameters, forward = _what(entry), _fresh(spec, entry, cost, counted), cost.forward
        # A layer that mixes its inputs takes the waiting σ′. An activation with its own row keeps its σ′.
        taken, waiting = (waiting, 0) if layer.mixes else (cost.slope, waiting)
        back = costs.add(cost.backward, "activation", taken, first=True)
        if layer.mixes and following and isinstance(following.layer, Activation) and _same_block(entry, following):
            next(entries)
            activation = costs.of(following)
            what = f"{what} {_word(following.layer)}"
            parameters += _fresh(spec, following, activation, counted)
            forward = costs.add(forward, "activation", activation.forward.activation)
            back = costs.add(back, "other", activation.backward.other)
            waiting, owner = activation.slope, len(rows)
        rows.append(
            Row(
                name=entry.name,
                what=what,
                d_in=entry.width_in,
                d_out=entry.d_out,
                parameters=parameters,
                forward=forward,
                backward=back,
            )
        )
    if waiting:
        row = rows[owner]
        rows[owner] = replace(row, backward=replace(row.backward, activation=row.backward.activation + waiting))
    last = rows[-1]
    linked = isinstance(spec.layers[-1], Activation) and spec.layers[-1].name == loss.link
    link = 0 if linked else loss.link_flops * B * C
    rows[-1] = replace(
        last,
        what=f"{last.what} {loss.link}" if link else last.what,
        forward=replace(last.forward, activation=last.forward.activation + link),
    )
    loss_cost = LossCost(name=loss.name, forward=loss.flops * B * C, backward=loss.flops_backward * B * C)
    return Account(rows=tuple(rows), loss=loss_cost)


def _fresh(spec: Spec, entry: Entry, cost: _LayerCost, counted: set[str]) -> int:
    """Return the number of parameters without shared ones that are already `counted`."""
    if not any(p.shared for p in cost.tensors):
        return cost.parameters
    names = [spec.tensor_names[f"{entry.name}.{p.name}"] for p in cost.tensors]
    fresh = sum(_elements(p) for p, name in zip(cost.tensors, names, strict=True) if name not in counted)
    counted.update(names)
    return fresh


def _same_block(a: Entry, b: Entry) -> bool:
    return a.name.rpartition(".")[0] == b.name.rpartition(".")[0]


def _elements(parameter: Parameter) -> Count:
    return Count(parameter.size, parameter.name, "·".join(map(str, parameter.shape)) or "1")


def _what(entry: Entry) -> str:
    layer = entry.layer
    if layer.mixes:
        kind = "" if layer.kind == "linear" else f" {layer.label}"
        return f"{entry.width_in}→{entry.d_out}{kind}"
    return f"{entry.d_out} {_word(layer)}"


def _word(layer: Layer) -> str:
    if isinstance(layer, Activation) and layer.blend:
        return f"blend({layer.name})"
    return "sum" if isinstance(layer, Residual) else layer.label
