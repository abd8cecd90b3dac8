"""The torch implementation of each optimizer, as a class and as a function, with the constants of its description.

    torch_optimizer(text, parameters)   a `torch.optim` optimizer, for custom training loops
    update(optimizer, group, rate)      one update in place, with the same kernel as the class, but without the 30 µs
                                        per step that the class spends on bookkeeping

Adam uses torch's fused implementation. The caller applies weight decay, which is decoupled for every optimizer here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from ..nn import optimizers
from ..nn.optimizers import Optimizer


@dataclass(frozen=True, kw_only=True)
class ParameterGroup:
    """Parameters with the same learning rate, their optimizer slots, and the number of steps so far."""

    factor: float
    """Factor on the learning rate."""
    parameters: list[Tensor]
    slots: Mapping[str, list[Tensor]]
    counts: list[Tensor]


@dataclass(frozen=True, kw_only=True)
class Twin:
    make: Callable[[Optimizer, Any, float], torch.optim.Optimizer]
    update: Callable[[Optimizer, ParameterGroup, list[Tensor], float], None]
    """Update the parameters and slots in place, from gradients and learning rate."""


def torch_optimizer(text: str, parameters: Any, *, rate: float = 1e-4) -> torch.optim.Optimizer:
    """Return a `torch.optim` optimizer. `parameters` are tensors or parameter groups, as in torch."""
    chosen = optimizers.get(text)
    return TWINS[chosen.name].make(chosen, parameters, rate)


def update(chosen: Optimizer, group: ParameterGroup, rate: float) -> None:
    """Update the parameters of a group in place, from their `grad`."""
    TWINS[chosen.name].update(chosen, group, [cast(Tensor, p.grad) for p in group.parameters], rate)


def _adam(cls: type[torch.optim.Adam]) -> Twin:
    def make(chosen: Optimizer, parameters: Any, rate: float) -> torch.optim.Optimizer:
        betas = (chosen.constant("beta1"), chosen.constant("beta2"))
        return cls(parameters, lr=rate, betas=betas, eps=chosen.constant("eps"), weight_decay=0.0, fused=True)

    return Twin(make=make, update=_update_adam)


def _update_adam(chosen: Optimizer, group: ParameterGroup, gradients: list[Tensor], rate: float) -> None:
    adam(
        group.parameters,
        gradients,
        group.slots["mean"],
        group.slots["square"],
        [],
        group.counts,
        fused=True,
        amsgrad=False,
        beta1=chosen.constant("beta1"),
        beta2=chosen.constant("beta2"),
        lr=rate,
        weight_decay=0.0,
        eps=chosen.constant("eps"),
        maximize=False,
    )


def _sgd(*, nesterov: bool = False) -> Twin:
    def make(chosen: Optimizer, parameters: Any, rate: float) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=rate, momentum=_momentum(chosen), nesterov=nesterov)

    def update(chosen: Optimizer, group: ParameterGroup, gradients: list[Tensor], rate: float) -> None:
        velocity = group.slots.get("velocity")
        sgd(
            group.parameters,
            gradients,
            cast("list[Tensor | None]", velocity or [None] * len(gradients)),
            foreach=False,
            weight_decay=0.0,
            momentum=_momentum(chosen),
            lr=rate,
            dampening=0.0,
            nesterov=nesterov,
            maximize=False,
        )

    return Twin(make=make, update=update)


def _momentum(chosen: Optimizer) -> float:
    return dict(chosen.constants).get("momentum", 0.0)


TWINS: dict[str, Twin] = {
    "sgd": _sgd(),
    "momentum": _sgd(),
    "nesterov": _sgd(nesterov=True),
    "adam": _adam(torch.optim.Adam),
    "adamw": _adam(torch.optim.AdamW),
}
