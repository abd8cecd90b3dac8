"""Times a real PyTorch step of a network and holds it against what is predicted for this machine.

First PyTorch is calibrated on layers of our own (`rates`), never on the user's network, and the prediction made from
that. Then the step is timed: best of many, whole and layer by layer.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.machine import Machine
from ..core.machine import measure as measure_machine
from ..errors import SpecError
from ..nn.layers import Residual
from ..nn.layers.norms import require_rows
from ..pytorch.model import Model, build
from ..spec import Entry, Spec
from . import cost
from .count import Row
from .roofline import Bound, Prediction, predict, remember
from .torch_speed import calibrate, graph_seconds, step_seconds
from .verification import require_step


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
    if not spec.n_parameters:
        raise SpecError(f"a training step needs something that learns, and {str(spec)[:100]} has no parameters")
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
    """Whether other processes have kept more than half of the cores at work over the last minute."""
    return hasattr(os, "getloadavg") and os.getloadavg()[0] > 1 + (os.cpu_count() or 1) / 2


def _row_seconds(model: Model, spec: Spec, row: Row, batch: int, started: float) -> float | None:
    """Forward and backward of the modules of one row of the account, without what it takes to start the latter."""
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
    """The layer a row is named after and the activation that was counted with it."""
    start = next(i for i, entry in enumerate(spec.entries) if entry.name == row.name)
    found = [spec.entries[start]]
    follower = spec.entries[start + 1] if start + 1 < len(spec.entries) else None
    if follower is not None and follower.layer.kind == "activation" and row.forward.matmul:
        found.append(follower)
    return found
