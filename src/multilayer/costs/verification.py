"""Compare the counts of `cost` with what PyTorch counts while it runs the network.

| count | in PyTorch |
|---|---|
| parameters | `numel` of every parameter, shared ones once |
| matmul FLOPs | `torch.utils.flop_counter`, forward and backward |
| kept bytes | saved-tensor hooks: float tensors except parameters, buffers and targets, each storage once |

The network is built with new random values and runs on random inputs. The user's model is not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from ..core.machine import require_memory
from ..errors import OptionError
from ..nn import losses
from ..nn.losses import Loss
from ..pytorch.losses import forward as loss_forward
from ..pytorch.model import Model, build
from ..spec import Spec
from .count import DTYPES, Cost, cost, kept_floats


@dataclass(frozen=True, kw_only=True)
class Check:
    """A number of the cost, and what PyTorch counted."""

    what: str
    closed_form: int
    counted: int

    @property
    def ok(self) -> bool:
        return self.closed_form == self.counted


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The result of `verify`."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)


def verify(spec: Spec | str, *, batch: int = 32, loss: str = "auto", dtype: str = "float32") -> Verification:
    """Build a network, run one step in PyTorch, and compare the counts.

    >>> verify("4-8-3", batch=5).ok
    True
    """
    spec = Spec.of(spec)
    chosen = losses.of(loss, spec.d_out)
    if dtype not in DTYPES:
        raise OptionError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    account = cost(spec, batch=batch, loss=loss, optimizer="sgd")
    require_step(account)
    model = build(spec, dtype=getattr(torch, dtype)).train()
    inputs, target = example(spec, chosen, batch, dtype=getattr(torch, dtype))
    forward, backward = _flops(model, inputs, target, chosen)
    rows = account.layers
    return Verification(
        checks=(
            Check(
                what="parameters",
                closed_form=account.parameters,
                counted=sum(p.numel() for p in model.parameters()),
            ),
            Check(what="forward matmul FLOPs", closed_form=sum(int(r.forward.matmul) for r in rows), counted=forward),
            Check(
                what="backward matmul FLOPs",
                closed_form=sum(int(r.backward.dW) + int(r.backward.dA) for r in rows),
                counted=backward,
            ),
            Check(
                what="bytes kept for backward",
                closed_form=kept_floats(spec, batch, chosen) * DTYPES[dtype],
                counted=kept_bytes(model, inputs, target, chosen),
            ),
        )
    )


def require_step(account: Cost) -> None:
    """Raise an error if the memory of this machine is too small for a step."""
    rows = 8 * account.batch * account.spec.inputs.count  # random inputs are created in float64
    needed = account.memory.total + int(account.memory.temporary) + rows
    require_memory(needed, f"a step of {account.batch:,} rows with {account.parameters:,} parameters")


def example(spec: Spec, loss: Loss, batch: int, *, dtype: torch.dtype) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return random inputs and targets for a network."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(batch, spec.inputs.numeric, generator=generator, dtype=torch.float64).to(dtype)
    categories = [torch.randint(0, n + 1, (batch,), generator=generator) for n in spec.inputs.categories]
    inputs = (x, torch.stack(categories, 1)) if categories else (x,)
    if loss.classes:
        return inputs, torch.randint(0, spec.d_out, (batch,), generator=generator)
    targets = max(1, spec.d_out // loss.per_target)
    return inputs, torch.randint(0, 2, (batch, targets), generator=generator).to(dtype)


def _flops(model: Model, inputs: tuple[Tensor, ...], target: Tensor, loss: Loss) -> tuple[int, int]:
    with FlopCounterMode(display=False) as counter:
        value = loss_forward(loss, model(*inputs), target)
        forward = counter.get_total_flops()
        if value.requires_grad:
            value.backward()
        backward = counter.get_total_flops() - forward
    model.zero_grad()
    return forward, backward


def kept_bytes(model: torch.nn.Module, inputs: tuple[Tensor, ...], target: Tensor, loss: Loss | None) -> int:
    """Return the bytes of float storages that autograd keeps for the backward pass, each storage once."""
    excluded = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers(), target)}
    storages: dict[int, Any] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if tensor.is_floating_point() and storage.data_ptr() not in excluded:
            storages[storage.data_ptr()] = storage  # kept alive, so that its address is not reused
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        out = model(*inputs)
        value = out if loss is None else loss_forward(loss, out, target)
    del value
    return sum(storage.nbytes() for storage in storages.values())
