"""The PyTorch engine: torch modules, autograd and optimizers, on any device.

    float32, float64   model, gradients and optimizer in this type
    bfloat16           forward and backward with autocast; parameters, optimizer and predictions in float32

A step does the same as a usual training loop, and also computes the gradient norm: take rows, forward, loss, backward,
clip, decay, update. Weight decay is decoupled for every optimizer, p ← (1 − η λ) p before its step, as in AdamW. L2 is
added to the gradient after clipping.

Repeated runs with the same number of threads give the same bits, for any size of the chunks. On the CPU, dropout masks
equal those of the numpy engine. Other devices use their own generator, seeded by seed, epoch and first row of the
batch. `notes` lists the guarantees that do not hold.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..core import named_options, random
from ..core.dtypes import TRAINED
from ..core.random import Purpose
from ..core.sparse import Sparse, pieces
from ..data.batches import Batch, Data, Rows
from ..errors import OptionError, option_name, unknown_name
from ..nn import losses
from ..nn.layers.base import Array
from ..nn.losses import Loss
from ..pytorch import Dropout
from ..pytorch.losses import forward as loss_forward
from ..pytorch.model import Model, fill
from ..spec import Spec
from ..spec.initialization import initialise
from .protocol import (
    Chunk,
    Gradients,
    Order,
    Settings,
    SingleEngine,
    State,
    StepStatistics,
    UnitCounts,
    check_data,
    dropout_layers,
)
from .torch_update import Updater, foreach
from .unit_counts import CountedRange, counted_layers

Inputs = tuple[Tensor, ...]

MAX_ROWS_PER_PASS = 16_384
"""Largest number of rows in one forward pass at prediction. It limits memory."""


class TorchEngine(SingleEngine):
    """Implements `Engine` with torch.

    `values` replaces initial values of `init` by name. `threads` applies to the whole process, until `close` restores
    the previous number.
    """

    name = "torch"

    def __init__(
        self,
        spec: Spec,
        data: Data,
        settings: Settings,
        *,
        init: str = "auto",
        values: Mapping[str, Array] | None = None,
        dtype: str = "float32",
        device: str = "auto",
        compile: bool = False,
        threads: int | None = None,
    ) -> None:
        if dtype not in TRAINED:
            raise OptionError(unknown_name("dtype", dtype, TRAINED))
        self._threads_before = torch.get_num_threads()
        if threads is not None:
            torch.set_num_threads(named_options.threads(threads))
        self.threads = torch.get_num_threads()
        settings.check(spec.parameters)
        self.spec, self.data, self.settings = spec, data, settings
        self.loss = losses.get(settings.loss)
        self.device = choose_device(device)
        self._autocast = dtype == "bfloat16"
        self._dtype = torch.float64 if dtype == "float64" else torch.float32
        self._table = TensorTable(spec, data, self.loss, dtype=self._dtype, device=self.device)

        self.model = Model(spec)
        fill(self.model, _first_values(spec, init, settings.seed, values))
        self.model.to(device=self.device, dtype=self._dtype)
        self._call = cast(nn.Module, torch.compile(self.model, dynamic=True)) if compile else self.model
        self._hook_dropout(compile)

        named = dict(self.model.named_parameters())
        self._named = {name: named[name] for name in spec.parameters}
        self._parameters = list(self._named.values())
        self._buffers = {name: self.model.get_buffer(name) for name in spec.buffers}
        # Every training pass changes these, also `gradients`, which must restore them.
        self._statistics = {name: b for name, b in self._buffers.items() if spec.buffers[name].role == "statistic"}
        self._moving = list(self._statistics.values())
        self._before = [b.clone() for b in self._moving]
        self._updater = kept = Updater(spec, settings, self._named)
        # Created once: on the CPU they share memory with the tensors, which updates and `load` change in place.
        self._views = {
            "parameters": self._by_name(self._parameters),
            "buffers": {name: _view(b) for name, b in self._buffers.items()},
            "averages": self._by_name(kept.averages) if kept.averages else {},
            **{slot: self._by_name(values) for slot, values in kept.slots.items()},
        }

    @property
    def notes(self) -> tuple[str, ...]:
        found: list[str] = []
        if self.device.type != "cpu":
            found.append(f"results on {self.device.type} agree with the CPU's to rounding, and may differ on rerun")
            if dropout_layers(self.spec):
                found.append(f"dropout masks come from {self.device.type}'s own generator")
        if self._autocast:
            found.append("forward and backward in bfloat16; parameters and predictions in float32")
        if self._call is not self.model:
            found.append("compiled: numbers agree with the uncompiled engine to rounding, and units are not counted")
        return (*found, *self.data.notes)

    # The protocol

    def run(self, order: Order, *, rate: Array, decay: Array, dropout: Array, count_units: bool = False) -> Chunk:
        order.check(rate=rate, decay=decay, dropout=dropout)
        if count_units:
            with self._counting() as counts:
                chunk = self.run(order, rate=rate, decay=decay, dropout=dropout)
            rows = len(order.rows)
            return replace(chunk, units={name: UnitCounts(rows, *n.cpu().numpy()) for name, n in counts.items()})
        self.model.train()
        taken: list[float] = []
        norms: list[float] = []
        statistics: list[StepStatistics] = []
        bad: int | None = None
        for i, rows in enumerate(order.batches()):
            loss, norm = self._backward(rows, order.epoch, float(dropout[i]))
            taken.append(loss)
            norms.append(norm)
            if not (math.isfinite(loss) and math.isfinite(norm)):
                self._forget_statistics()
                bad = i
                break
            due = (
                self.settings.statistics_every is not None
                and (self._updater.step + 1) % self.settings.statistics_every == 0
            )
            gradients = self._norms(self._updater.gradients()) if due else {}
            self._updater.update(norm, float(rate[i]), float(decay[i]))
            if due:
                statistics.append(
                    StepStatistics(place=i, gradients=gradients, parameters=self._norms(self._parameters))
                )
        self._clear()
        finite = all(_finite(one) for one in self._views["parameters"].values())
        return Chunk(loss=np.array(taken), gradient_norm=np.array(norms), bad=bad, finite=finite, statistics=statistics)

    def _norms(self, tensors: Iterable[Tensor]) -> dict[str, float]:
        found = [float(torch.linalg.vector_norm(value.detach(), dtype=torch.float64)) for value in tensors]
        return dict(zip(self._named, found, strict=True))

    def gradients(self, rows: Rows, *, epoch: int, dropout: float = 1.0) -> Gradients:
        self.model.train()
        loss, _ = self._backward(rows, epoch, dropout)
        found = {name: _numpy(cast(Tensor, p.grad)) for name, p in self._named.items()}
        moved = {name: _numpy(b) for name, b in self._statistics.items()}
        self._forget_statistics()
        self._clear()
        return Gradients(loss=loss, gradients=found, buffers=moved)

    def apply(self, gradients: Gradients, *, rate: float, decay: float) -> float:
        for name, p in self._named.items():
            p.grad = torch.tensor(gradients.gradients[name], dtype=p.dtype, device=p.device)
        for name, value in gradients.buffers.items():
            _copy(self._buffers[name], value)
        norm = self._updater.norm()
        self._updater.update(norm, rate, decay)
        self._clear()
        return norm

    def outputs(self, rows: Rows, *, averaged: bool = False) -> Array:
        """Return raw outputs in the type of the parameters, as the saved model does, even if training uses bfloat16."""
        self.model.eval()
        values = dict(zip(self._named, self._updater.averages, strict=False)) if averaged else {}
        found: list[Tensor] = []
        with torch.no_grad():
            for part in pieces(len(rows), self.spec.inputs.numeric, MAX_ROWS_PER_PASS):
                inputs, _, _ = self._table.take(rows[part])
                found.append(torch.func.functional_call(self.model, values, inputs))
        return torch.cat(found).cpu().numpy()

    def state(self) -> State:
        kept = self._updater
        copied = {group: {name: _copied(one) for name, one in views.items()} for group, views in self._views.items()}
        return State(
            parameters=copied["parameters"],
            buffers=copied["buffers"],
            optimizer={slot: copied[slot] for slot in kept.slots},
            averages=copied["averages"],
            step=kept.step,
            rate_factor=kept.rate_factor,
        )

    def load(self, state: State) -> None:
        kept = self._updater
        state.check(self.spec, kept.optimizer, averaged=self.settings.average is not None)
        for i, (name, p) in enumerate(self._named.items()):
            _copy(p, state.parameters[name])
            for slot, values in kept.slots.items():
                _copy(values[i], state.optimizer[slot][name])
            if kept.averages:
                _copy(kept.averages[i], state.averages[name])
        for name, b in self._buffers.items():
            _copy(b, state.buffers[name])
        kept.step, kept.rate_factor = state.step, state.rate_factor

    def _by_name(self, values: Sequence[Tensor]) -> dict[str, Array | Tensor]:
        return {name: _view(value) for name, value in zip(self._named, values, strict=True)}

    def close(self) -> None:
        torch.set_num_threads(self._threads_before)

    # A step

    def _backward(self, rows: Rows, epoch: int, dropout: float) -> tuple[float, float]:
        """Compute the gradients and store them in the parameters. Return the loss and the gradient norm."""
        self._clear()
        if self._moving:
            foreach._foreach_copy_(self._before, self._moving)
        self._rows, self._epoch, self._dropout = rows, epoch, dropout
        inputs, y, weight = self._table.take(rows, epoch=epoch)
        with self._precision():
            z = self._call(*inputs)
        z = z.float() if self._autocast else z
        given = self.settings.loss_function
        loss = loss_forward(self.loss, z, y, weight) if given is None else _mean(given(z, y), len(rows), weight)
        loss.backward()
        for p in self._parameters:
            if p.grad is None:
                p.grad = torch.zeros_like(p)  # the outputs do not depend on it
        return loss.item(), self._updater.norm()

    def _clear(self) -> None:
        for p in self._parameters:
            p.grad = None

    def _forget_statistics(self) -> None:
        if self._moving:
            foreach._foreach_copy_(self._moving, self._before)

    def _precision(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, torch.bfloat16) if self._autocast else nullcontext()

    # Counts of units

    @contextmanager
    def _counting(self) -> Generator[dict[str, Tensor]]:
        """Count the units of each forward pass in tensors (2, units) by layer. A compiled model is not counted."""
        counts: dict[str, Tensor] = {}
        hooks: list[RemovableHandle] = []
        for name, (counted, units) in counted_layers(self.spec).items() if self._call is self.model else ():
            counts[name] = torch.zeros(2, units, dtype=torch.int64, device=self.device)
            module = self.model.get_submodule(name)
            hooks.append(module.register_forward_pre_hook(partial(_count, counted, counts[name])))
        try:
            yield counts
        finally:
            for hook in hooks:
                hook.remove()

    # Dropout

    def _hook_dropout(self, compiled: bool) -> None:
        mask: Any = self._mask if self.device.type == "cpu" else self._device_mask
        if compiled:
            mask = cast(Any, torch.compiler).disable(mask)
        for part, name in enumerate(dropout_layers(self.spec)):
            module = cast(Dropout, self.model.get_submodule(name))
            module.keep = lambda d, p, part=part: mask(d, p * self._dropout, part)

    def _mask(self, d: int, p: float, part: int) -> Tensor:
        """Return the mask (B, d) of 0 and 1/(1 − p), keyed by the row numbers."""
        kept = random.keep(
            self.settings.seed, Purpose.DROPOUT, rows=self._rows, units=d, p=p, epoch=self._epoch, part=part
        )
        return torch.from_numpy(kept).to(self._dtype).mul_(1 / (1 - p))

    def _device_mask(self, d: int, p: float, part: int) -> Tensor:
        generator = torch.Generator(self.device)
        batch = random.derive(random.derive(self.settings.seed, self._epoch), int(self._rows[0]))
        generator.manual_seed(random.derive(batch, part))
        mask = torch.empty(len(self._rows), d, dtype=self._dtype, device=self.device)
        return mask.bernoulli_(1 - p, generator=generator).mul_(1 / (1 - p))


@torch.no_grad()
def _count(counted: CountedRange, counts: Tensor, module: nn.Module, inputs: tuple[Tensor]) -> None:
    z = inputs[0].detach()
    z = z.float() if z.dtype == torch.bfloat16 else z  # the bounds are exact in float32
    counts += torch.stack([counted.inactive(z).sum(0), counted.flat(z).sum(0)])


def choose_device(text: str) -> torch.device:
    """Return the torch device. "auto" is cuda if available, otherwise the CPU."""
    if text == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(text)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        expected = f"{option_name('device')} must be auto, cpu or one that torch has"
        raise OptionError(f"{expected}, got {text!r}: {reason}") from None
    return device


def _first_values(spec: Spec, init: str, seed: int, values: Mapping[str, Array] | None) -> dict[str, Array]:
    found = initialise(spec, init, seed=seed)
    for name, value in (values or {}).items():
        if name not in found:
            raise OptionError(unknown_name("tensor of the network", name, found))
        if value.shape != found[name].shape:
            raise OptionError(f"{name} must have the shape {found[name].shape}, got {value.shape}")
        found[name] = np.asarray(value, dtype=np.float64)
    return found


def _view(tensor: Tensor) -> Array | Tensor:
    """Return a numpy array that shares the memory of the tensor. On other devices, return the tensor."""
    return tensor.detach().numpy() if tensor.device.type == "cpu" else tensor


def _finite(one: Array | Tensor) -> bool:
    return bool(np.isfinite(one).all() if isinstance(one, np.ndarray) else torch.isfinite(one).all())


def _copied(one: Array | Tensor) -> Array:
    return one.copy() if isinstance(one, np.ndarray) else _numpy(one)


def _numpy(tensor: Tensor) -> Array:
    return np.array(tensor.detach().cpu().numpy())


@torch.no_grad()
def _copy(target: Tensor, value: Array) -> None:
    target.copy_(torch.tensor(value, dtype=target.dtype))


def _mean(losses: Any, rows: int, weight: Tensor | None) -> Tensor:
    """Return the mean of the result of a user's loss function, or raise an error if it is not a loss."""
    shape = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
    if shape != (rows,) and (shape != () or weight is not None):
        needed = f"a tensor with the loss of each of {rows} rows"
        raise OptionError(
            f"the loss function must return {needed}{'' if weight is not None else ', or their mean'}, got {shape}"
        )
    return losses.mean() if weight is None else (losses * weight).sum() / weight.sum()


class TensorTable:
    """The data as tensors on one device. `take(rows)` returns inputs, targets and weights of rows.

    Dense tables are copied to the device once. Augmented and sparse rows are copied batch by batch.
    """

    def __init__(self, spec: Spec, data: Data, loss: Loss, *, dtype: torch.dtype, device: torch.device) -> None:
        self.data, self.loss, self.dtype, self.device = data, loss, dtype, device
        check_data(spec, data, loss)
        self._whole = None if isinstance(data.x, Sparse) else self._tensors(data)

    def take(self, rows: Rows, *, epoch: int | None = None) -> tuple[Inputs, Tensor, Tensor | None]:
        if self._whole is None or (self.data.augment is not None and epoch is not None):
            return self._tensors(self.data.take(rows, epoch=epoch))
        index = torch.from_numpy(rows)
        if self.device.type != "cpu":
            index = index.to(self.device)
        inputs, y, weight = self._whole
        taken = tuple(part.index_select(0, index) for part in inputs)
        return taken, y.index_select(0, index), None if weight is None else weight.index_select(0, index)

    def _tensors(self, batch: Batch) -> tuple[Inputs, Tensor, Tensor | None]:
        inputs = [self._tensor(batch.x, self.dtype)]
        if batch.codes is not None:
            inputs.append(self._tensor(batch.codes, torch.int64))
        y = self._tensor(batch.y, torch.int64 if self.loss.classes and batch.y.ndim == 1 else self.dtype)
        return tuple(inputs), y, None if batch.weight is None else self._tensor(batch.weight, self.dtype)

    def _tensor(self, array: NDArray[Any], dtype: torch.dtype) -> Tensor:
        with warnings.catch_warnings():
            # Read-only arrays, such as memory-mapped files, are safe here: they are only read.
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            return torch.from_numpy(np.ascontiguousarray(array)).to(device=self.device, dtype=dtype)
