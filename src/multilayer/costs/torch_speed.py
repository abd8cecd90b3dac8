"""Speed of PyTorch on this machine: products, kinds of layers, losses, updates and whole steps.

A calibration times each kind of layer in the user's network, but not the network itself.

- Time per element: the time of several equal layers in one graph, minus the time of one. This removes the time to start
  the backward pass. The layers are large enough that their data is as far from the processor as in a network.
- Time to start: the time that a layer adds to the step of a small network. It is 1.5 times the time that the layer
  takes alone in a loop, because other operations remove its code from the caches.

Each time is the minimum of many runs, because other processes can only increase it.

`measure` predicts a step of the user's network from a calibration, and then times the step and each layer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from ..core.machine import Machine
from ..core.machine import measure as measure_machine
from ..errors import SpecError
from ..nn import losses
from ..nn.layers import Linear, Residual
from ..nn.layers.base import TIMED_WIDTH
from ..nn.layers.norms import require_rows
from ..pytorch.losses import forward as loss_forward
from ..pytorch.model import Model, build
from ..pytorch.optimizers import torch_optimizer
from ..spec import Entry, Spec
from .count import Row, cost
from .roofline import (
    MANY_OUTPUTS,
    Bound,
    Curve,
    Prediction,
    SpeedCalibration,
    Unit,
    loss_key,
    predict,
    remember,
    units,
    update_key,
)
from .verification import example, require_step

BATCHES = (1, 8, 64, 512)
WIDTHS = (32, 128, 512)
SIZES = (2**8, 2**13, 2**15, 2**17, 2**19)
"""Elements of the widest tensor for which a kind is timed. Up to 2^15, PyTorch uses one thread."""
UPDATES = (2**8, 2**12, 2**16, 2**18, 2**20, 2**22)
MOST = 2**21
"""Kinds with wider rows are not timed. Their predicted time is a lower bound."""
FEW = 8
"""Outputs with which a loss of few outputs is timed."""
SEVERAL = 5
BUDGET = 0.3
"""Seconds for timing a step."""
SHORT = 0.02
"""Seconds for each of the many timings of a calibration."""

Part = tuple[Callable[[], Tensor], Sequence[Tensor]]
"""A forward function, and the tensors whose gradients are computed."""


def best(work: Callable[[], Any], *, budget: float = BUDGET) -> float:
    """Return the shortest time of repeated runs: at least three, after one to warm up, and until the budget ends."""
    work()
    end, shortest, runs = time.perf_counter() + budget, float("inf"), 0
    while runs < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        work()
        shortest = min(shortest, time.perf_counter() - start)
        runs += 1
    return shortest


def step_seconds(spec: Spec, *, batch: int, optimizer: str, loss: str) -> float:
    """Return the best time of a step: forward, loss, backward and update. Gradients are set to None before it."""
    return best(_Step(spec, batch=batch, optimizer=optimizer, loss=loss).run)


class _Step:
    """A training step, alone or with a part in the same graph."""

    def __init__(self, spec: Spec, *, batch: int, optimizer: str, loss: str) -> None:
        self.loss = losses.of(loss, spec.d_out)
        self.model = build(spec).train()
        self.inputs, self.target = example(spec, self.loss, batch, dtype=torch.float32)
        self.update = torch_optimizer(optimizer, self.model.parameters())

    def run(self) -> None:
        self.update.zero_grad(set_to_none=True)
        loss_forward(self.loss, self.model(*self.inputs), self.target).backward()
        self.update.step()

    def run_with(self, part: Part, gradient: Tensor | None) -> None:
        """Run a step together with a part. `gradient` is that of the part's output, or None if it has none."""
        self.update.zero_grad(set_to_none=True)
        z, output = self.model(*self.inputs), part[0]()
        loss = loss_forward(self.loss, z, self.target)
        if gradient is None:
            loss.backward()
        else:
            torch.autograd.backward((loss, output), (None, gradient))
        for tensor in part[1]:
            tensor.grad = None
        self.update.step()

    def seconds_added(self, part: Part) -> float:
        output = part[0]()
        gradient = torch.ones_like(output) if output.requires_grad else None
        with_it, alone = _in_turns(lambda: self.run_with(part, gradient), self.run, rounds=4)
        return max(0.0, with_it - alone)


def graph_seconds(parts: Sequence[Part], *, budget: float) -> float:
    """Return the best time of all parts in one graph: all forward, then all backward."""
    return best(_graph(parts), budget=budget)


def _graph(parts: Sequence[Part]) -> Callable[[], Any]:
    outputs = [run() for run, _ in parts]
    if not outputs[0].requires_grad:
        return lambda: [run() for run, _ in parts]
    wanted = [tensor for _, tensors in parts for tensor in tensors]
    gradients = [torch.ones_like(output) for output in outputs]
    return lambda: torch.autograd.grad([run() for run, _ in parts], wanted, gradients, allow_unused=True)


def calibrate(spec: Spec, machine: Machine, *, optimizer: str, loss: str) -> SpeedCalibration:
    """Measure the speed of PyTorch for everything in a network: products, layers, loss and update."""
    chosen = losses.of(loss, spec.d_out)
    # This network is tiny. The time of its step, minus the time of its parts, is the constant time of every step.
    small = Spec.parse(f"2-2-{2 * chosen.per_target}")
    step = _Step(small, batch=2, optimizer=optimizer, loss=loss)
    parts = [unit for some in (*units(spec).values(), *units(small).values()) for unit in some]
    different = {unit.key: unit for unit in parts if unit.widest <= MOST}
    kinds = {key: _curve_of(unit, step) for key, unit in different.items()}
    for d_out in {spec.d_out, small.d_out}:
        kinds[loss_key(chosen.name, d_out)] = _loss_curve(loss, chosen.per_target, many=d_out >= MANY_OUTPUTS)
    kinds[update_key(optimizer)], per_tensor = _update_curve(optimizer)
    known = SpeedCalibration(products=_products(), kinds=kinds, per_tensor=per_tensor)
    account = cost(small, batch=2, optimizer=optimizer, loss=loss)
    expected = predict(account, machine, threads=torch.get_num_threads(), calibration=known).seconds
    return replace(known, per_step=max(0.0, best(step.run) - expected))


def _products() -> tuple[tuple[int, int, float], ...]:
    """Return the GFLOP/s of z = x Wᵀ, dW and dA by rows and width, without the time to start them."""

    def seconds(rows: int, width: int) -> float:
        sets = [(torch.randn(width, width), torch.randn(rows, width), torch.randn(rows, width)) for _ in range(SEVERAL)]
        return best(lambda: [(x @ W.T, dz.T @ x, dz @ W) for W, x, dz in sets], budget=SHORT) / SEVERAL

    start = seconds(1, 1)
    found: list[tuple[int, int, float]] = []
    for rows in BATCHES:
        for width in WIDTHS:
            flops = 6 * rows * width * width
            # Noise must not make the difference zero or negative.
            found.append((rows, width, flops / max(seconds(rows, width) - start, 1e-7) / 1e9))
    return tuple(found)


def _per_part(make: Callable[[], Part]) -> float:
    parts = [make() for _ in range(SEVERAL)]
    all_of_them, one = _in_turns(_graph(parts), _graph(parts[:1]))
    return max(0.0, all_of_them - one) / (SEVERAL - 1)


def _in_turns(*works: Callable[[], Any], rounds: int = 2) -> list[float]:
    """Return the best time of each function. They run alternately, so a busy moment does not affect only one."""
    taken = [[best(work, budget=SHORT / 2) for work in works] for _ in range(rounds)]
    return [min(times) for times in zip(*taken, strict=True)]


def _curve(points: Iterable[tuple[int, float]]) -> Curve:
    """Return the points as a curve that never falls: noise must not make more work look faster."""
    numbers, seconds = zip(*points, strict=True)
    return tuple(zip(numbers, accumulate(seconds, max), strict=True))


def _heights(widest: int) -> list[int]:
    return sorted({max(2, size // widest) for size in SIZES})  # a batch norm needs two rows


def _curve_of(unit: Unit, step: _Step) -> Curve:
    spec = Spec(unit.d, [unit.layer])

    def part(rows: int) -> Part:
        (twin,) = build(spec).train().children()
        x = torch.randn(rows, spec.inputs.numeric, requires_grad=unit.learning)
        codes = [torch.ones(rows, len(spec.inputs.categories), dtype=torch.long)] * bool(spec.inputs.categories)
        return (lambda: twin(x, *codes)), [t for t in (x, *twin.parameters()) if t.requires_grad]

    heights = _heights(unit.widest)
    curve = _curve((rows * unit.standard, _per_part(lambda rows=rows: part(rows))) for rows in heights)
    # This is a small difference of two long times, so it is limited to the time to start.
    more = min(max(0.0, step.seconds_added(part(heights[0])) - curve[0][1]), curve[0][1])
    return tuple((numbers, seconds + more) for numbers, seconds in curve)


def _loss_curve(text: str, per_target: int, *, many: bool) -> Curve:
    width = per_target * max(1, (TIMED_WIDTH if many else FEW) // per_target)
    chosen = losses.of(text, width)
    spec = Spec(1, [Linear(width)])

    def part(rows: int) -> Part:
        z = torch.randn(rows, width, requires_grad=True)
        _, target = example(spec, chosen, rows, dtype=torch.float32)
        return (lambda: loss_forward(chosen, z, target)), [z]

    return _curve((rows * width, _per_part(lambda rows=rows: part(rows))) for rows in _heights(width))


def _update_curve(optimizer: str) -> tuple[Curve, float]:
    """Return the time of an update by the number of parameters, and the time that each further tensor adds."""

    def seconds(tensors: int, numbers: int) -> float:
        parameters = [torch.zeros(numbers, requires_grad=True) for _ in range(tensors)]
        for parameter in parameters:
            parameter.grad = torch.ones(numbers)
        return best(torch_optimizer(optimizer, parameters).step, budget=SHORT)

    curve = _curve((n, seconds(1, n)) for n in UPDATES)
    return curve, max(0.0, seconds(32, 1) - curve[0][1]) / 31


# Prediction and measurement of a step


@dataclass(frozen=True, kw_only=True)
class MeasuredRow:
    """Predicted and measured seconds of one row of a cost. Rows that cannot be timed alone have no `measured`."""

    name: str
    what: str
    predicted: float
    measured: float | None
    bound: Bound


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Predicted and measured seconds of a step. `error` is (predicted − measured)/measured."""

    rows: tuple[MeasuredRow, ...]
    predicted: float
    measured: float
    fused_saving: float
    threads: int
    machine: str
    prediction: Prediction
    busy: bool = False
    """Whether other processes were running, so the times are not reliable."""

    @property
    def error(self) -> float:
        return (self.predicted - self.measured) / self.measured


def measure(
    spec: Spec | str,
    *,
    batch: int = 32,
    optimizer: str = "adam",
    loss: str = "auto",
    machine: Machine | None = None,
) -> Measurement:
    """Predict and time one training step in float32 on the CPU."""
    spec = Spec.of(spec)
    if not spec.n_parameters:
        raise SpecError(f"a training step needs parameters, and {str(spec)[:100]} has none: add a linear layer")
    if any(entry.layer.over_batch for entry in spec.entries):
        require_rows(batch)
    account = cost(spec, batch=batch, optimizer=optimizer, loss=loss)
    require_step(account)
    machine = measure_machine() if machine is None else machine
    threads = torch.get_num_threads()
    calibration = calibrate(spec, machine, optimizer=optimizer, loss=loss)
    prediction = predict(account, machine, threads=threads, calibration=calibration)
    busy = is_busy()
    if not busy:
        remember(calibration, machine, threads=threads, version=torch.__version__)
    model = build(spec).train()
    nothing = torch.zeros(1, requires_grad=True)
    started = graph_seconds([(lambda: nothing.view(1), [nothing])], budget=0.05)
    seen = {row.name: _row_seconds(model, spec, row, batch, started) for row in account.layers}
    return Measurement(
        rows=tuple(
            MeasuredRow(name=row.name, what=row.what, predicted=row.seconds, measured=seen[row.name], bound=row.bound)
            for row in prediction.rows
        ),
        predicted=prediction.seconds,
        measured=step_seconds(spec, batch=batch, optimizer=optimizer, loss=loss),
        fused_saving=prediction.fused_saving,
        threads=threads,
        machine=machine.processor,
        prediction=prediction,
        busy=busy,
    )


def is_busy() -> bool:
    """Return whether other processes used more than half of the cores during the last minute."""
    return hasattr(os, "getloadavg") and os.getloadavg()[0] > 1 + (os.cpu_count() or 1) / 2


def _row_seconds(model: Model, spec: Spec, row: Row, batch: int, started: float) -> float | None:
    """Return the time of the modules of a row, forward and backward, without the time to start the backward pass."""
    entries = _entries_of(spec, row)
    if isinstance(entries[0].layer, Residual):
        return None  # a sum of two tensors, timed with the step
    modules = [model.get_submodule(entry.name) for entry in entries]
    first = entries[0] is spec.entries[0]
    x = torch.randn(batch, entries[0].width_in, requires_grad=not first)
    rest: tuple[Tensor, ...] = ()
    if first and spec.inputs.categories:
        rest = (torch.ones(batch, len(spec.inputs.categories), dtype=torch.long),)

    def run() -> Tensor:
        h = modules[0](x, *rest)
        for module in modules[1:]:
            h = module(h)
        return h

    wanted = [t for t in (x, *(p for m in modules for p in m.parameters())) if t.requires_grad]
    return max(0.0, graph_seconds([(run, wanted)], budget=0.05) - (started if wanted else 0))


def _entries_of(spec: Spec, row: Row) -> list[Entry]:
    """Return the layer of a row, and the activation after it."""
    start = next(i for i, entry in enumerate(spec.entries) if entry.name == row.name)
    found = [spec.entries[start]]
    follower = spec.entries[start + 1] if start + 1 < len(spec.entries) else None
    if follower is not None and follower.layer.kind == "activation" and row.forward.matmul:
        found.append(follower)
    return found
