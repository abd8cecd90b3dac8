"""Exact cost of a training step: FLOPs and bytes, by layer and in total.

A row of the account is a linear map with the activation right behind it; whatever stands alone has a row of its own.

    forward   matmul, bias, activation, other (norms, dropout, gates, sums); the loss's link counts with the last row
    backward  dW, db, dA: the products and sums of the row itself
              activation: through σ′ of the linear map below, because it is this row's dA that it multiplies
              (an output activation has no row above it and keeps its own, as does one that stands alone)
              other: norms, gates, gradients of learned activations

Two conventions. `textbook` charges dA for the first layer, which no real step computes, and one FLOP for σ′.
`actual` counts what a step does, σ′ at its own price, and lists what the textbook charges beside it. `backward` holds
no loss gradient and `step` no optimiser; both stand beside them.

Numbers that come from a formula are `Count`s and carry it.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeVar, cast

from ..core.counts import Count, count, named
from ..core.named_options import whole
from ..errors import OptionError, unknown_name
from ..nn import losses, optimizers
from ..nn.layers import Activation, Backward, Forward, Layer, Parameter, Residual
from ..nn.losses import Loss
from ..nn.optimizers import AVERAGE_FLOPS, CLIP_FLOPS, DECAY_FLOPS, Optimizer
from ..spec import Entry, HasSpec, Spec
from .memory import Memory, kept_floats, memory

__all__ = ["DTYPES", "Cost", "Epoch", "LeftOut", "LossCost", "Memory", "Row", "cost", "kept_floats"]

Parts = TypeVar("Parts", Forward, Backward)
Convention = Literal["actual", "textbook"]
DTYPES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the account."""

    name: str
    what: str
    d_in: int
    d_out: int
    parameters: int
    forward: Forward
    backward: Backward


@dataclass(frozen=True, kw_only=True)
class LossCost:
    name: str
    forward: int
    backward: int


@dataclass(frozen=True, kw_only=True)
class Epoch:
    rows: int
    steps: int
    flops: int


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """What the textbook charges and a real step does not, or charges otherwise."""

    what: str
    flops: int
    why: str


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The account of one training step of `spec`; every number an int."""

    spec: Spec
    batch: int
    optimizer: str
    engine: str
    dtype: str
    convention: str
    parameters: int
    layers: tuple[Row, ...]
    loss: LossCost
    forward: int
    backward: int
    step: int
    optimizer_flops: int
    memory: Memory
    epoch: Epoch | None
    left_out: tuple[LeftOut, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data with the keys that others read."""
        rows = [
            {
                "name": row.name,
                "what": row.what,
                "parameters": row.parameters,
                "forward": {**_ints(asdict(row.forward)), "total": row.forward.total},
                "backward": {**_ints(asdict(row.backward)), "total": row.backward.total},
            }
            for row in self.layers
        ]
        return {
            "network": str(self.spec),
            "batch": self.batch,
            "optimizer": self.optimizer,
            "engine": self.engine,
            "dtype": self.dtype,
            "convention": self.convention,
            "parameters": self.parameters,
            "layers": rows,
            "loss": asdict(self.loss),
            "forward": self.forward,
            "backward": self.backward,
            "step": self.step,
            "optimizer_flops": self.optimizer_flops,
            "memory": {**asdict(self.memory), "total": self.memory.total},
            "epoch": None if self.epoch is None else asdict(self.epoch),
            "left_out": [asdict(item) for item in self.left_out],
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"

    def _repr_html_(self) -> str:
        from .html import cost_table

        return cost_table(self)


def cost(
    spec: Spec | str | HasSpec,
    *,
    batch: int = 32,
    optimizer: str = "adam",
    loss: str = "auto",
    engine: str = "torch",
    dtype: str = "float32",
    rows: int | None = None,
    convention: str = "actual",
    l2: bool = False,
    clip: bool = False,
    average: bool = False,
    mixup: bool = False,
) -> Cost:
    """Count the operations and the memory of one training step of a network.

    Parameters
    ----------
    spec : Spec, str or object with a `spec`
        The network, such as ``"784-256-128-10"``.
    batch : int
        Rows per step.
    optimizer, loss : str
        Names of the optimizer and the loss. ``"auto"`` chooses the loss by the number of outputs.
    engine : {"torch", "fused"}
        Engine that runs the step.
    dtype : str
        Data type of the parameters.
    rows : int, optional
        Rows of the training set. If given, an epoch is counted too, with its last partial batch.
    convention : {"actual", "textbook"}
        ``"actual"`` counts what a step computes. ``"textbook"`` also counts the gradient with respect to the inputs,
        which no step computes, and counts one FLOP for each derivative of an activation.
    l2, clip, average : bool
        Whether to include L2 regularisation, gradient clipping by norm, and weight averaging.
    mixup : bool
        Whether an augmentation mixes rows, as ``augment="mixup"`` does. The fused engine then stores one number per
        class for each row instead of a class index.

    Returns
    -------
    Cost
        Exact counts of operations and bytes.

    Raises
    ------
    SpecError
        If the network is invalid.
    OptionError
        If an option is invalid.

    Examples
    --------
    >>> c = cost("784-256-128-10", batch=32, convention="textbook")
    >>> c.forward, c.backward, c.memory.total
    (15051264, 30073152, 3913120)
    """
    spec, batch = Spec.of(spec), whole("batch", batch)
    rows = None if rows is None else whole("rows", rows)
    for what, value, valid in (
        ("convention", convention, ("actual", "textbook")),
        ("engine", engine, ("torch", "fused")),
        ("dtype", dtype, tuple(DTYPES)),
    ):
        if value not in valid:
            raise OptionError(unknown_name(what, value, valid))
    chosen_loss = losses.of(loss, spec.d_out)
    chosen_optimizer = optimizers.get(optimizer)

    account = _account(spec, batch, chosen_loss, cast(Convention, convention))
    extras = (l2, clip, average)
    epoch = None
    if rows is not None:
        rest = _account(spec, rows % batch, chosen_loss, cast(Convention, convention)).step if rows % batch else 0
        epoch = _epoch(rows, batch, account.step, rest)
    return Cost(
        spec=spec,
        batch=batch,
        optimizer=optimizer,
        engine=engine,
        dtype=dtype,
        convention=convention,
        parameters=spec.n_parameters,
        layers=account.rows,
        loss=account.loss,
        forward=account.forward,
        backward=account.backward,
        step=account.step,
        optimizer_flops=_optimizer_flops(spec, chosen_optimizer, *extras),
        memory=memory(
            spec,
            batch,
            loss=chosen_loss,
            optimizer=chosen_optimizer,
            engine=engine,
            itemsize=DTYPES[dtype],
            convention=convention,
            average=average,
            clip=clip,
            mixup=mixup,
        ),
        epoch=epoch,
        left_out=_left_out(spec, batch, chosen_loss, account) if convention == "actual" else (),
    )


# FLOPs


@dataclass(frozen=True, kw_only=True)
class _Account:
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
class _Price:
    """What one layer adds to the account, wherever it stands: `slope` is its σ′ if it is an activation."""

    own: tuple[Parameter, ...]
    parameters: int
    forward: Forward
    backward: Backward
    slope: int


class _Prices:
    """Prices of layers, each computed once: a deep network repeats its layers, and a formula takes its time."""

    def __init__(self, batch: int, *, textbook: bool) -> None:
        self.batch, self.textbook = batch, textbook
        self.learning = False  # whether anything so far has parameters: otherwise no gradient is needed below
        self.known: dict[tuple[Layer, object, bool], _Price] = {}
        self.sums: dict[tuple[int, str, int], Any] = {}
        self.held: list[object] = []  # what `sums` knows by its id must stay

    def of(self, entry: Entry) -> _Price:
        """The price of the next layer."""
        key = (entry.layer, entry.d_in, self.learning or self.textbook)
        price = self.known.get(key)
        if price is None:
            price = self.known[key] = self._price(*key)
        self.learning = self.learning or bool(price.own)
        return price

    def _price(self, layer: Layer, d: Any, needed: bool) -> _Price:
        own = () if isinstance(layer, Residual) else layer.parameters(d)
        flops = layer.cost(d, self.batch, input_gradient=needed)
        back, slope = flops.backward if needed or own else Backward(), 0
        if isinstance(layer, Activation):
            if needed:
                slope = Count(self.batch, "B") * Count(d, "n") if self.textbook else back.activation
            back = replace(back, activation=0)
        elements = sum(_elements(p) for p in own)
        return _Price(own=own, parameters=elements, forward=flops.forward, backward=back, slope=slope)

    def add(self, parts: Parts, name: str, more: int, *, first: bool = False) -> Parts:
        """`parts` with `more` added to one of them, in front of it if `first`."""
        if not more and not isinstance(more, Count):
            return parts
        key = (id(parts), name, id(more))
        if key not in self.sums:
            there = getattr(parts, name)
            self.sums[key] = replace(parts, **{name: more + there if first else there + more})
            self.held += [parts, more]
        return self.sums[key]


def _account(spec: Spec, batch: int, loss: Loss, convention: Convention) -> _Account:
    rows: list[Row] = []
    B, C = named(B=batch, C=spec.d_out)
    prices = _Prices(batch, textbook=convention == "textbook")
    waiting: int = 0  # σ′ of the mixing row below, for the next one, whose dA it multiplies
    owner = 0  # the row that σ′ belongs to, where no other follows
    counted: set[str] = set()
    entries = iter(itertools.pairwise((*spec.entries, None)))
    for entry, following in entries:
        entry = cast(Entry, entry)
        layer, price = entry.layer, prices.of(entry)
        what, parameters, forward = _what(entry), _fresh(spec, entry, price, counted), price.forward
        # What mixes its inputs takes the σ′ that waits; an activation that stands alone keeps its own.
        taken, waiting = (waiting, 0) if layer.mixes else (price.slope, waiting)
        back = prices.add(price.backward, "activation", taken, first=True)
        if layer.mixes and following and isinstance(following.layer, Activation) and _same_block(entry, following):
            next(entries)
            bent = prices.of(following)
            what = f"{what} {_word(following.layer)}"
            parameters += _fresh(spec, following, bent, counted)
            forward = prices.add(forward, "activation", bent.forward.activation)
            back = prices.add(back, "other", bent.backward.other)
            waiting, owner = bent.slope, len(rows)
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
        held = rows[owner]
        rows[owner] = replace(held, backward=replace(held.backward, activation=held.backward.activation + waiting))
    last = rows[-1]
    linked = isinstance(spec.layers[-1], Activation) and spec.layers[-1].name == loss.link
    link = 0 if linked else loss.link_flops * B * C
    rows[-1] = replace(
        last,
        what=f"{last.what} {loss.link}" if link else last.what,
        forward=replace(last.forward, activation=last.forward.activation + link),
    )
    costs = LossCost(name=loss.name, forward=loss.flops * B * C, backward=loss.flops_backward * B * C)
    return _Account(rows=tuple(rows), loss=costs)


def _fresh(spec: Spec, entry: Entry, price: _Price, counted: set[str]) -> int:
    """Its parameters without those that are shared and `counted` already."""
    if not any(p.shared for p in price.own):
        return price.parameters
    names = [spec.tensor_names[f"{entry.name}.{p.name}"] for p in price.own]
    fresh = sum(_elements(p) for p, name in zip(price.own, names, strict=True) if name not in counted)
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


def _left_out(spec: Spec, batch: int, loss: Loss, actual: _Account) -> tuple[LeftOut, ...]:
    """The difference to the textbook, item by item; the items add up to it."""
    textbook = _account(spec, batch, loss, "textbook")
    pairs = list(zip(textbook.rows, actual.rows, strict=True))
    # Plain ints: a formula for a sum over every layer would grow with each of them.
    slopes = sum(int(b.backward.activation) - int(a.backward.activation) for b, a in pairs)
    inputs = sum(int(b.backward.dA) - int(a.backward.dA) for b, a in pairs)
    other = sum(int(b.backward.other) - int(a.backward.other) for b, a in pairs)
    found = [
        LeftOut(
            what="dA of the first layer",
            flops=inputs,
            why="the textbook charges the gradient of the inputs; nothing below them learns, so no step computes it",
        ),
        LeftOut(
            what="σ′ at its own price",
            flops=slopes,
            why="the textbook charges one FLOP an element for δ·σ′; a real step also has to evaluate σ′",
        ),
        LeftOut(
            what="gradients below the first parameters",
            flops=other,
            why="norms, gates and dropout before anything that learns pass no gradient down",
        ),
    ]
    return tuple(item for item in found if item.flops)


def _optimizer_flops(spec: Spec, optimizer: Optimizer, l2: bool, clip: bool, average: bool) -> int:
    P, W = named(P=spec.n_parameters, W=sum(p.size for p in spec.parameters.values() if p.decays))
    per = count(optimizer.flops) + (CLIP_FLOPS if clip else 0) + (AVERAGE_FLOPS if average else 0)
    decays = int(optimizer.decays) + int(l2)
    return per * P + (DECAY_FLOPS * decays * W if decays else 0)


def _epoch(rows: int, batch: int, step: int, rest: int) -> Epoch:
    full = rows // batch
    flops, letters = Count(full * step, "full steps·step", f"{full}·{step}"), "last partial step"
    return Epoch(rows=rows, steps=-(-rows // batch), flops=flops + Count(rest, letters, str(rest)) if rest else flops)


def _ints(values: dict[str, Any]) -> dict[str, int]:
    return {key: int(value) for key, value in values.items()}
