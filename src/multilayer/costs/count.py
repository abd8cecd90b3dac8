"""Exact cost of a training step: FLOPs and bytes, per layer and in total.

There are two conventions:

- `actual` (default) counts the operations of a training step. `left_out` lists the differences from the textbook.
- `textbook` also counts dA of the first layer, which no step computes, and one FLOP for each σ′.

`step` is the sum of `forward` and `backward`. The gradient of the loss and the optimizer are not part of it: they are
in `loss.backward` and `optimizer_flops`. Numbers that are computed from sizes are `Count`s, which have their formula.
`flops` counts the layers, and `memory` the bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

from ..core.counts import Count, count, named
from ..core.dtypes import DTYPES
from ..core.named_options import whole
from ..errors import OptionError, unknown_name
from ..nn import losses, optimizers
from ..nn.losses import Loss
from ..nn.optimizers import AVERAGE_FLOPS, CLIP_FLOPS, DECAY_FLOPS, Optimizer
from ..spec import HasSpec, Spec
from .flops import Account, Convention, LossCost, Row, account
from .memory import ENGINES, Memory, kept_floats, memory

__all__ = ["DTYPES", "Cost", "Epoch", "LeftOut", "LossCost", "Memory", "Row", "cost", "kept_floats", "options_of_run"]


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """Steps and FLOPs of an epoch, including its last partial batch."""

    rows: int
    steps: int
    flops: int


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A difference from the textbook convention: FLOPs to add to the actual count, and the reason."""

    what: str
    flops: int
    why: str


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Exact cost of one training step. `ml.cost` creates it.

    All numbers are ints. Most of them also have their formula, as ``formula`` and ``numbers``.

    Attributes
    ----------
    spec : Spec
        The network.
    batch : int
        Rows per step.
    optimizer, engine, dtype, convention : str
        The options of ``ml.cost``.
    parameters : int
        Number of learned parameters. Shared ones are counted once.
    layers : tuple of Row
        ``name``, ``what``, ``d_in``, ``d_out``, ``parameters``, ``forward`` and ``backward`` of each row. A row is a
        layer, with the activation after it. ``forward`` has the FLOPs of ``matmul``, ``bias``, ``activation``,
        ``other`` and their ``total``. ``backward`` has those of ``dW``, ``db``, ``dA``, ``activation``, ``other`` and
        their ``total``.
    loss : LossCost
        ``name``, and the FLOPs of the loss: ``forward`` and ``backward``.
    forward : int
        FLOPs of the forward pass, including the loss.
    backward : int
        FLOPs of the backward pass through the layers, without the gradient of the loss.
    step : int
        ``forward + backward``.
    optimizer_flops : int
        FLOPs of the optimizer after each step, including L2 regularization, clipping and averaging if chosen.
    memory : Memory
        Bytes of a step.
    epoch : Epoch or None
        ``rows``, ``steps`` and ``flops`` of an epoch, if the number of rows was given.
    left_out : tuple of LeftOut
        ``what``, ``flops`` and ``why`` of each difference from the textbook convention.

    Examples
    --------
    >>> c = cost("784-256-128-10", batch=32)
    >>> c.parameters, c.step, c.memory.total
    (235146, 32291648, 3913124)
    >>> matmul = c.layers[0].forward.matmul
    >>> matmul, matmul.formula, matmul.numbers
    (12845056, '2·B·I·O', '2·32·784·256')
    """

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
        """Return the cost as plain data.

        Returns
        -------
        dict
            The attributes as dicts, lists, strings and ints.

        Examples
        --------
        >>> cost("2-1", batch=1).to_dict()["layers"][0]["forward"]
        {'matmul': 4, 'bias': 1, 'activation': 0, 'other': 0, 'total': 5}
        """
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
        """Return the cost as JSON.

        Returns
        -------
        str
            `to_dict` as indented JSON.

        Examples
        --------
        >>> print(cost("2-1", batch=1).to_json()[:24])
        {
          "network": "2-1",
        """
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
        The network, such as ``"784-256-128-10"``, or a model.
    batch : int
        Rows per step.
    optimizer : str
        Name of the optimizer.
    loss : str
        Name of the loss. ``"auto"`` is cross-entropy, or the squared error for a network with one output.
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
        Whether L2 regularization, gradient clipping by norm, or weight averaging is included.
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
    >>> cost("784-256-128-10", batch=32, rows=60_000).epoch
    Epoch(rows=60000, steps=1875, flops=60546840000)
    """
    spec, batch = Spec.of(spec), whole("batch", batch)
    rows = None if rows is None else whole("rows", rows)
    for what, value, valid in (
        ("convention", convention, ("actual", "textbook")),
        ("engine", engine, ENGINES),
        ("dtype", dtype, tuple(DTYPES)),
    ):
        if value not in valid:
            raise OptionError(unknown_name(what, value, valid))
    chosen_loss = losses.of(loss, spec.d_out)
    chosen_optimizer = optimizers.get(optimizer)

    counted = account(spec, batch, chosen_loss, cast(Convention, convention))
    extras = (l2, clip, average)
    epoch = None
    if rows is not None:
        rest = account(spec, rows % batch, chosen_loss, cast(Convention, convention)).step if rows % batch else 0
        epoch = _epoch(rows, batch, counted.step, rest)
    return Cost(
        spec=spec,
        batch=batch,
        optimizer=optimizer,
        engine=engine,
        dtype=dtype,
        convention=convention,
        parameters=spec.n_parameters,
        layers=counted.rows,
        loss=counted.loss,
        forward=counted.forward,
        backward=counted.backward,
        step=counted.step,
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
        left_out=_left_out(spec, batch, chosen_loss, counted) if convention == "actual" else (),
    )


def options_of_run(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `cost` for a step of a run, except batch size and loss. `config` is a `Config` as a dict.

    >>> options_of_run({"engine": "numpy", "optimizer": "sgd", "clip_norm": 1.0})["engine"]
    'torch'
    """
    return {
        "optimizer": config.get("optimizer", "adam"),
        "engine": "fused" if config.get("engine") == "fused" else "torch",
        "dtype": config.get("dtype", "float32"),
        "l2": bool(config.get("l2")),
        "clip": config.get("clip_norm") is not None,
        "average": config.get("average") is not None,
    }


def _left_out(spec: Spec, batch: int, loss: Loss, actual: Account) -> tuple[LeftOut, ...]:
    """Return the differences from the textbook convention. They add up to the difference of the steps."""
    textbook = account(spec, batch, loss, "textbook")
    pairs = list(zip(textbook.rows, actual.rows, strict=True))
    # Plain ints: the formula of a sum over all layers would be as long as the network is deep.
    slopes = sum(int(b.backward.activation) - int(a.backward.activation) for b, a in pairs)
    inputs = sum(int(b.backward.dA) - int(a.backward.dA) for b, a in pairs)
    other = sum(int(b.backward.other) - int(a.backward.other) for b, a in pairs)
    found = [
        LeftOut(
            what="dA of the first layer",
            flops=inputs,
            why="the textbook counts the gradient of the inputs; no step needs it: nothing below has parameters",
        ),
        LeftOut(
            what="σ′ at its actual cost",
            flops=slopes,
            why="the textbook counts one FLOP per element for δ·σ′; a step also has to evaluate σ′",
        ),
        LeftOut(
            what="gradients below the first parameters",
            flops=other,
            why="norms, gates and dropout below the first parameters need no gradient",
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
