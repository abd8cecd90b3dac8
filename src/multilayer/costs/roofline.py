"""How long a step should take on this machine: for each operation the larger of its arithmetic and its traffic.

    seconds = max(FLOPs / rate, bytes / bandwidth)        Williams, Waterman & Patterson 2009

A row of the account is up to six operations: product and activation forward; dW, dA, db and σ′ back. Each reads its
operands and writes its result once. Fused, an activation happens in the registers of its product: no bytes of its own.
Products run at the machine's matrix peak and elementwise work at a fixed share of it, unless a calibration of an engine
says what it really reaches, and what every operation costs to start. A calibration is remembered with the machine.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from .. import machine as machines
from ..machine import Machine
from ..optim import get as get_optimizer
from .count import DTYPES, Cost, Row

Bound = Literal["compute", "memory", "overhead"]

ELEMENTWISE_SHARE = 0.125
"""Elementwise work has divisions and no fused multiply-adds: this share of the matrix peak."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What an engine really reaches here: GFLOP/s of products by batch size, and seconds."""

    rates: tuple[tuple[int, float], ...] = ()
    traffic: float | None = None
    """GB/s that its elementwise operations move."""
    per_random: float = 0.0
    """Seconds for one random number of a dropout mask."""
    per_layer: float = 0.0
    per_step: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Calibration:
        rates = tuple((int(batch), float(rate)) for batch, rate in data["rates"])
        numbers = {key: float(data[key]) for key in ("traffic", "per_random", "per_layer", "per_step")}
        return Calibration(rates=rates, **numbers)

    def rate(self, batch: int, peak: float) -> float:
        """GFLOP/s at a batch size, straight between the calibrated ones on a log scale."""
        if not self.rates:
            return peak
        points = [(math.log(b), r) for b, r in self.rates]
        x = math.log(batch)
        for (x0, y0), (x1, y1) in itertools.pairwise(points):
            if x <= x1:
                return y0 + (y1 - y0) * max(0.0, x - x0) / (x1 - x0)
        return points[-1][1]


@dataclass(frozen=True, kw_only=True)
class RowTime:
    """Predicted seconds of one row of the account, forward and backward: what its arithmetic bounds, what its traffic
    bounds, and what it costs to start."""

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
        """What takes most of it."""
        parts: dict[Bound, float] = {"compute": self.compute, "memory": self.memory, "overhead": self.overhead}
        return max(parts, key=lambda part: parts[part])


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """`fused_saving` is how many times longer the layers take than with their activations fused."""

    rows: tuple[RowTime, ...]
    optimizer: float
    per_step: float
    fused_saving: float

    @property
    def seconds(self) -> float:
        return sum(row.seconds for row in self.rows) + self.optimizer + self.per_step


_FILE = "torch.json"


def remember(calibration: Calibration, machine: Machine, *, threads: int, version: str) -> None:
    """Keeps what PyTorch reaches on this machine, for predictions that do not run it."""
    keys = {"processor": machine.processor, "threads": threads, "torch": version}
    machines.remember(_FILE, {**keys, "calibration": calibration.to_dict()})


def recall(machine: Machine) -> Calibration | None:
    """The calibration that `mlp cost --measure` left, if it is of this machine."""
    found = machines.remembered(_FILE)
    if found is None or found.get("processor") != machine.processor:
        return None
    try:
        return Calibration.from_dict(found["calibration"])
    except (KeyError, TypeError, ValueError):
        return None


def predict(
    account: Cost, machine: Machine, *, threads: int | None = None, calibration: Calibration | None = None
) -> Prediction:
    """The time of one training step from its account and the machine's measured figures."""
    threads = machine.threads if threads is None else threads
    model = _Roof(account, machine, threads, calibration or Calibration())
    fused = account.engine == "fused"
    rows = [model.time(row, fused=fused) for row in account.layers]
    apart, together = (sum(model.time(row, fused=how).seconds for row in account.layers) for how in (False, True))
    # Reads p, g and every slot, writes p and every slot; the fused engine has g in registers.
    touched = (2 if fused else 3) + 2 * len(get_optimizer(account.optimizer).slots)
    return Prediction(
        rows=tuple(rows),
        optimizer=touched * account.memory.parameters / model.bandwidth,
        per_step=model.calibration.per_step,
        fused_saving=apart / together if together else 1.0,
    )


class _Roof:
    """One machine's limits for one account."""

    def __init__(self, account: Cost, machine: Machine, threads: int, calibration: Calibration) -> None:
        peak = machine.peak(threads)
        self.account, self.calibration = account, calibration
        self.matrix = calibration.rate(account.batch, peak) * 1e9
        self.elementwise = ELEMENTWISE_SHARE * peak * 1e9
        self.bandwidth = machine.bandwidth(account.memory.total, threads=threads) * 1e9
        self.traffic = min(self.bandwidth, (calibration.traffic or math.inf) * 1e9)

    def time(self, row: Row, *, fused: bool) -> RowTime:
        compute = memory = 0.0
        for flops, moved, rate in self._operations(row, fused=fused):
            arithmetic, traffic = flops / rate, moved / (self.bandwidth if rate == self.matrix else self.traffic)
            if arithmetic >= traffic:
                compute += arithmetic
            else:
                memory += traffic
        dropped = self.account.batch * row.d_out if row.what.endswith("dropout") else 0
        return RowTime(
            name=row.name,
            what=row.what,
            compute=compute + dropped * self.calibration.per_random,
            memory=memory,
            overhead=self.calibration.per_layer * (1 if fused or not row.forward.activation else 2),
        )

    def _operations(self, row: Row, *, fused: bool) -> Iterator[tuple[int, int, float]]:
        """FLOPs, bytes and FLOP rate of each operation of a row."""
        size, B = DTYPES[self.account.dtype], self.account.batch
        x, y, W = size * B * row.d_in, size * B * row.d_out, size * row.parameters
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
