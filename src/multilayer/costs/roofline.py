"""Predicted time of a training step on this machine, from its roofline or from a calibration of PyTorch.

The roofline is a lower bound. Each operation takes at least the time of its arithmetic, and of its memory traffic:

    seconds ≥ max(FLOPs / rate, bytes / bandwidth)        Williams, Waterman & Patterson 2009

A row of the cost has up to six operations: forward the product and the activation, backward dW, dA, db and σ′. Each
operation reads its operands and writes its result once. In the fused engine, an activation runs in the registers of its
product, so it moves no bytes.

With a calibration, the time of a step is the sum of these parts:

- products: at the measured rate for their size and batch, and the time to read their weights from the level of memory
  that holds the step; the two times add up, because a product packs its operands before it multiplies
- other operations, the loss and the update: at the measured time per element of their kind (`kinds`)
- a constant per step

A calibration is stored with the machine.

A step in PyTorch consists of many small operations. Their time per number differs by a factor of fifty: 0.1 ns for
ReLU, several ns for `where`, `max` over an axis or Mish. FLOPs and bytes do not predict this. Each kind of layer is
therefore timed once, at a fixed width, as time per number. Its linear map has only one input or one output; the time of
larger matrix products is added, by their FLOPs. `Layer.timed` returns the benchmark layers of a layer:

    kind                         numbers per row      benchmark layer
    linear, gated unit, maxout   outputs              128 outputs of 1 input
    KAN                          inputs               1 output of 16 inputs, with its bases
    columns                      features; 1 a code   16 features, with their products; one column of codes
    every other                  inputs               the layer itself, 128 wide

Not modeled: how well a width fits the registers, and that norms and softmax are slower for wider rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from ..core import machine as machines
from ..core.machine import Machine
from ..nn.layers import Activation, Columns, Inputs, Linear
from ..nn.layers.base import Timed
from ..nn.optimizers import get as get_optimizer
from ..spec import Spec
from .count import DTYPES, Cost, Row

Bound = Literal["compute", "memory", "overhead"]
Curve = tuple[tuple[int, float], ...]
"""Points (elements, seconds), both increasing. The first point has the time to start."""

MANY_OUTPUTS = 32
ELEMENTWISE_SHARE = 0.125
"""Share of the matrix peak that elementwise work reaches: it has divisions and no fused multiply-adds."""


def seconds_of(curve: Curve, numbers: int) -> float:
    """Interpolate a curve linearly. Beyond its end, the last segment is continued.

    >>> [seconds_of(((10, 1.0), (20, 2.0)), n) for n in (1, 10, 15, 40)]
    [1.0, 1.0, 1.5, 4.0]
    """
    for (n0, s0), (n1, s1) in pairwise(curve):
        if numbers <= n1 or n1 == curve[-1][0]:
            return s0 + (s1 - s0) * max(0, numbers - n0) / (n1 - n0)
    return curve[0][1]


@dataclass(frozen=True, kw_only=True)
class SpeedCalibration:
    """Measured speed of an engine. `products` has rows, width and GFLOP/s of square products, for all pairs."""

    products: tuple[tuple[int, int, float], ...] = ()
    kinds: Mapping[str, Curve] = field(default_factory=dict[str, Curve])
    """Curves of layers by `Unit.key`, and of losses and updates by name."""
    per_tensor: float = 0.0
    """Seconds that each parameter tensor adds to an update."""
    per_step: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> SpeedCalibration:
        curves = {
            str(key): tuple((int(n), float(seconds)) for n, seconds in curve) for key, curve in data["kinds"].items()
        }
        return SpeedCalibration(
            products=tuple((int(rows), int(width), float(rate)) for rows, width, rate in data["products"]),
            kinds=curves,
            per_tensor=float(data["per_tensor"]),
            per_step=float(data["per_step"]),
        )

    def rate(self, rows: int, width: float) -> float:
        """Return the GFLOP/s of products of a width, interpolated linearly on log scales."""
        rates = {(b, w): math.log(r) for b, w, r in self.products}
        batches, widths = (sorted({pair[i] for pair in rates}) for i in (0, 1))
        by_width = [np.interp(math.log(rows), np.log(batches), [rates[b, w] for b in batches]) for w in widths]
        return math.exp(float(np.interp(math.log(width), np.log(widths), by_width)))


@dataclass(frozen=True, kw_only=True)
class RowTime:
    """Predicted seconds of one row of a cost, forward and backward.

    The time is split by what limits it: arithmetic, memory traffic, or the overhead to start operations.
    """

    name: str
    what: str
    compute: float
    memory: float
    overhead: float

    @property
    def seconds(self) -> float:
        return self.compute + self.memory + self.overhead

    @property
    def bound(self) -> Bound:
        """The largest of the three parts."""
        parts: dict[Bound, float] = {"compute": self.compute, "memory": self.memory, "overhead": self.overhead}
        return max(parts, key=lambda part: parts[part])


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Predicted seconds of a training step.

    `fused_saving` is the time of the layers divided by their time with fused activations. If `calibrated` is false, the
    roofline was used for some part, and the time is a lower bound.
    """

    rows: tuple[RowTime, ...]
    optimizer: float
    per_step: float
    fused_saving: float
    loss: float = 0.0
    calibrated: bool = False

    @property
    def seconds(self) -> float:
        return sum(row.seconds for row in self.rows) + self.optimizer + self.loss + self.per_step


_FILE = "torch.json"


def remember(calibration: SpeedCalibration, machine: Machine, *, threads: int, version: str) -> None:
    """Store a calibration for later predictions. Kinds of layers that were measured before are kept."""
    keys = {"processor": machine.processor, "threads": threads, "torch": version}
    before = machines.remembered(_FILE)
    known = recall(machine) if before is not None and keys.items() <= before.items() else None
    kinds = {**(known.kinds if known is not None else {}), **calibration.kinds}
    machines.remember(_FILE, {**keys, "calibration": replace(calibration, kinds=kinds).to_dict()})


def recall(machine: Machine) -> SpeedCalibration | None:
    """Return the calibration that `mlp cost --measure` stored, if it is from this machine."""
    found = machines.remembered(_FILE)
    if found is None or found.get("processor") != machine.processor:
        return None
    try:
        return SpeedCalibration.from_dict(found["calibration"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def predict(
    account: Cost, machine: Machine, *, threads: int | None = None, calibration: SpeedCalibration | None = None
) -> Prediction:
    """Predict the time of a training step from its cost and the measurements of the machine."""
    threads = machine.threads if threads is None else threads
    model = _Roof(account, machine, threads, calibration)
    fused = account.engine == "fused"
    apart, together = ([model.time(row, fused=how) for row in account.layers] for how in (False, True))
    taken = [sum(row.seconds for row in rows) for rows in (apart, together)]
    return Prediction(
        rows=tuple(together if fused else apart),
        optimizer=model.update(),
        loss=model.loss(),
        per_step=calibration.per_step if calibration is not None else 0.0,
        fused_saving=taken[0] / taken[1] if taken[1] else 1.0,
        calibrated=model.complete,
    )


class _Roof:
    """The limits of a machine for a cost."""

    def __init__(self, account: Cost, machine: Machine, threads: int, calibration: SpeedCalibration | None) -> None:
        peak = machine.peak(threads)
        self.account, self.calibration = account, calibration
        self.size = DTYPES[account.dtype]
        self.matrix = peak * 1e9
        self.elementwise = ELEMENTWISE_SHARE * peak * 1e9
        self.bandwidth = machine.bandwidth(account.memory.total, threads=threads) * 1e9
        self.parts = {} if calibration is None else _parts(account)
        self.complete = calibration is not None

    def _curve(self, key: str) -> Curve | None:
        curve = None if self.calibration is None else self.calibration.kinds.get(key)
        self.complete = self.complete and curve is not None
        return curve

    def update(self) -> float:
        curve = self._curve(update_key(self.account.optimizer))
        if self.calibration is not None and curve is not None:
            more = max(0, len(self.account.spec.parameters) - 1) * self.calibration.per_tensor
            return seconds_of(curve, self.account.parameters) + more
        # An update reads p, g and each slot, and writes p and each slot. The fused engine has g in registers.
        touched = 3 - (self.account.engine == "fused") + 2 * len(get_optimizer(self.account.optimizer).slots)
        return touched * self.account.memory.parameters / self.bandwidth

    def loss(self) -> float:
        curve = self._curve(loss_key(self.account.loss.name, self.account.spec.d_out))
        return 0.0 if curve is None else seconds_of(curve, self.account.batch * self.account.spec.d_out)

    def time(self, row: Row, *, fused: bool) -> RowTime:
        parts = self.parts.get(row.name, ())
        curves = [self._curve(unit.key) for unit in parts]
        if self.calibration is None or None in curves:
            return self._bounded(row, fused=fused)
        return self._calibrated(row, self.calibration, [(u, c) for u, c in zip(parts, curves, strict=True) if c], fused)

    def _bounded(self, row: Row, *, fused: bool) -> RowTime:
        compute = memory = 0.0
        for flops, moved, rate in self._operations(row, fused=fused):
            arithmetic, traffic = flops / rate, moved / self.bandwidth
            if arithmetic >= traffic:
                compute += arithmetic
            else:
                memory += traffic
        return RowTime(name=row.name, what=row.what, compute=compute, memory=memory, overhead=0.0)

    def _operations(self, row: Row, *, fused: bool) -> Iterator[tuple[int, int, float]]:
        """Yield the FLOPs, bytes and FLOP rate of each operation of a row."""
        B = self.account.batch
        x, y, W = (self.size * n for n in (B * row.d_in, B * row.d_out, row.parameters))
        ahead, back = row.forward, row.backward
        if ahead.matmul:
            yield ahead.matmul + ahead.bias, x + W + y, self.matrix
            yield back.dW, x + y + W, self.matrix
            yield back.dA, y + W + x, self.matrix
            yield back.db, 0 if fused else y, self.elementwise
        yield ahead.activation, 0 if fused else 2 * y if ahead.activation else 0, self.elementwise
        yield back.activation, 0 if fused else 3 * x if back.activation else 0, self.elementwise
        yield ahead.other, 2 * y if ahead.other else 0, self.elementwise
        yield back.other, 3 * y if back.other else 0, self.elementwise

    def _calibrated(
        self, row: Row, calibration: SpeedCalibration, parts: list[tuple[Unit, Curve]], fused: bool
    ) -> RowTime:
        B, compute, memory, overhead = self.account.batch, 0.0, 0.0, 0.0
        for i, (unit, curve) in enumerate(parts):
            if fused and i and isinstance(unit.layer, Activation):
                continue  # it runs in the registers of the product
            start = curve[0][1]
            rest = seconds_of(curve, B * unit.numbers) - start
            # Memory traffic is two passes over the outputs forward and three backward. The rest is arithmetic.
            traffic = min(rest, 5 * self.size * B * row.d_out / self.bandwidth)
            overhead, memory, compute = overhead + start, memory + traffic, compute + rest - traffic
        if fused and parts and isinstance(parts[0][0].layer, Linear):
            compute += (row.forward.activation + row.backward.activation) / self.elementwise
        products = (row.forward.matmul, row.backward.dW, row.backward.dA)
        if products[0] and not any(isinstance(unit.layer, Columns) for unit, _ in parts):
            width = math.sqrt(products[0] / (2 * B))
            compute += sum(map(int, products)) / (calibration.rate(B, width) * 1e9)
            memory += sum(map(bool, products)) * self.size * row.parameters / self.bandwidth
        return RowTime(name=row.name, what=row.what, compute=compute, memory=memory, overhead=overhead)


def update_key(optimizer: str) -> str:
    return f"update by {get_optimizer(optimizer).name}"


def loss_key(name: str, d_out: int) -> str:
    """Return the key of a loss. Few outputs are timed separately, because they take more time per element."""
    return f"loss {name} of {'few' if d_out < MANY_OUTPUTS else 'many'} outputs"


def _parts(account: Cost) -> dict[str, tuple[Unit, ...]]:
    """Return the timing units of each row: those of its layer and of the activation after it."""
    rows, found, current = {row.name for row in account.layers}, dict[str, tuple[Unit, ...]](), ""
    for name, parts in units(account.spec).items():
        current = name if name in rows else current
        found[current] = (*found.get(current, ()), *parts)
    return found


# Timing units


@dataclass(frozen=True, kw_only=True)
class Unit(Timed):
    """The benchmark layer of a layer, and its position in the network."""

    learning: bool
    """Whether the layers before it need a gradient."""

    @property
    def widest(self) -> int:
        """Numbers per row of the widest tensor that the benchmark layer makes."""
        return max(self.layer.widest(self.d), self.standard)

    @property
    def key(self) -> str:
        """The key of the measured time, equal for all layers of a kind."""
        place = "" if self.learning else " on data"
        codes = f" of {self.d.categories}" if isinstance(self.d, Inputs) else ""
        return f"{self.layer!r}{codes}{place}"


def units(spec: Spec) -> dict[str, tuple[Unit, ...]]:
    """Return the timing units of each operation of a network, by name. Operations that compute nothing have none."""
    return {
        entry.name: tuple(Unit(**vars(part), learning=entry.learning) for part in entry.layer.timed(entry.d_in))
        for entry in spec.entries
    }
