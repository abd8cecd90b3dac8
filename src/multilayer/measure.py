"""Times a real PyTorch step of a network and holds it against what the roofline predicts for this machine.

First the engine is calibrated on networks of its own (never the user's): what a matrix product reaches by batch size,
and what each layer and each step cost to start. Then the step is timed: best of many, whole and layer by layer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from . import losses
from .costs import cost
from .costs.count import Row
from .costs.roofline import Bound, Calibration, Prediction, predict, remember
from .layers import Residual
from .machine import Machine
from .machine import measure as measure_machine
from .model import Model, build
from .modules.losses import forward as loss_forward
from .modules.optim import torch_optimizer
from .spec import Entry, Spec
from .verify import example, require_step

BATCHES = (1, 4, 16, 64, 256, 1024)
BUDGET = 0.3
"""Seconds that one timing may take."""


@dataclass(frozen=True, kw_only=True)
class MeasuredRow:
    name: str
    what: str
    predicted: float
    measured: float | None
    bound: Bound


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Seconds. `error` is (predicted − measured)/measured."""

    rows: tuple[MeasuredRow, ...]
    predicted: float
    measured: float
    fused_saving: float
    threads: int
    machine: str
    prediction: Prediction
    busy: bool = False
    """Whether other work was running, so that no figure here is to be trusted."""

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
    """One training step in float32 on the CPU, predicted and timed."""
    spec = Spec.of(spec)
    account = cost(spec, batch=batch, optimizer=optimizer, loss=loss)
    require_step(account)
    machine = measure_machine() if machine is None else machine
    threads = torch.get_num_threads()
    calibration = calibrate(optimizer)
    prediction = predict(account, machine, threads=threads, calibration=calibration)
    busy = is_busy()
    if not busy:
        remember(calibration, machine, threads=threads, version=torch.__version__)
    model = build(spec).train()
    seen = {row.name: _row_seconds(model, spec, row, batch) for row in account.layers}
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


def calibrate(optimizer: str = "adam") -> Calibration:
    """What PyTorch reaches here: the three products of a 512×512 layer, a ReLU, a mask, and networks too small to take
    time themselves."""
    W = torch.randn(512, 512)
    rates: list[tuple[int, float]] = []
    for batch in BATCHES:
        x, dz = torch.randn(batch, 512), torch.randn(batch, 512)
        seconds = best(lambda x=x, dz=dz: (x @ W.T, dz.T @ x, dz @ W), budget=0.1)
        rates.append((batch, 6 * batch * 512 * 512 / seconds / 1e9))
    z = torch.randn(64, 1024)
    moved = best(lambda: torch.nn.functional.relu(z), budget=0.05)
    mask = best(lambda: torch.nn.functional.dropout(z, 0.5), budget=0.05)
    shallow, deep = (
        step_seconds(Spec.parse(f"2-{'2-' * hidden}2"), batch=2, optimizer=optimizer, loss="mse") for hidden in (2, 12)
    )
    per_layer = max(0.0, (deep - shallow) / 20)  # ten linear maps and ten activations more
    return Calibration(
        rates=tuple(rates),
        traffic=2 * z.nbytes / moved / 1e9,
        per_random=mask / z.numel(),
        per_layer=per_layer,
        per_step=max(0.0, shallow - 5 * per_layer),
    )


def step_seconds(spec: Spec, *, batch: int, optimizer: str, loss: str) -> float:
    """Best time of forward, loss, backward and update, gradients set to None in between."""
    chosen = losses.of(loss, spec.d_out)
    model = build(spec).train()
    inputs, target = example(spec, chosen, batch, dtype=torch.float32)
    update = torch_optimizer(optimizer, model.parameters())

    def step() -> None:
        update.zero_grad(set_to_none=True)
        loss_forward(chosen, model(*inputs), target).backward()
        update.step()

    return best(step)


def is_busy() -> bool:
    """Whether other processes have kept more than half of the cores at work over the last minute."""
    return hasattr(os, "getloadavg") and os.getloadavg()[0] > 1 + (os.cpu_count() or 1) / 2


def best(work: Callable[[], Any], *, budget: float = BUDGET) -> float:
    """The shortest of as many runs as the budget holds, at least five after one to warm up."""
    work()
    end, shortest, runs = time.perf_counter() + budget, float("inf"), 0
    while runs < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        work()
        shortest = min(shortest, time.perf_counter() - start)
        runs += 1
    return shortest


def _row_seconds(model: Model, spec: Spec, row: Row, batch: int) -> float | None:
    """Forward and backward of the modules of one row of the account, apart from the rest."""
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

    out = run()
    wanted = [t for t in (x, *(p for m in modules for p in m.parameters())) if t.requires_grad]
    if not out.requires_grad:
        return best(run, budget=0.05)
    gradient = torch.ones_like(out)
    return best(lambda: torch.autograd.grad(run(), wanted, gradient, allow_unused=True), budget=0.05)


def _entries_of(spec: Spec, row: Row) -> list[Entry]:
    """The layer a row is named after and the activation that was counted with it."""
    start = next(i for i, entry in enumerate(spec.entries) if entry.name == row.name)
    found = [spec.entries[start]]
    follower = spec.entries[start + 1] if start + 1 < len(spec.entries) else None
    if follower is not None and follower.layer.kind == "activation" and row.forward.matmul:
        found.append(follower)
    return found
