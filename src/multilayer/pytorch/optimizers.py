"""torch's own optimiser for each of ours, with the same constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..nn import optimizers
from ..nn.optimizers import Optimizer


def torch_optimizer(text: str, parameters: Any, *, rate: float = 1e-4) -> torch.optim.Optimizer:
    """`parameters` as torch takes them: tensors or groups. Adam is the fused kind."""
    chosen = optimizers.get(text)
    return _MAKERS[chosen.name](chosen, parameters, rate)


def _adam(cls: type[torch.optim.Adam]) -> Callable[[Optimizer, Any, float], torch.optim.Optimizer]:
    def make(chosen: Optimizer, parameters: Any, rate: float) -> torch.optim.Optimizer:
        betas = (chosen.constant("beta1"), chosen.constant("beta2"))
        return cls(parameters, lr=rate, betas=betas, eps=chosen.constant("eps"), weight_decay=0.0, fused=True)

    return make


def _sgd(chosen: Optimizer, parameters: Any, rate: float) -> torch.optim.Optimizer:
    mu = dict(chosen.constants).get("momentum", 0.0)
    return torch.optim.SGD(parameters, lr=rate, momentum=mu, nesterov=chosen.name == "nesterov")


_MAKERS: dict[str, Callable[[Optimizer, Any, float], torch.optim.Optimizer]] = {
    "sgd": _sgd,
    "momentum": _sgd,
    "nesterov": _sgd,
    "adam": _adam(torch.optim.Adam),
    "adamw": _adam(torch.optim.AdamW),
}
