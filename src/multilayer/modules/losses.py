"""The torch twin of the losses: `forward(loss, z, y)` is the mean over rows of `loss.rows`, as autograd operations.

Targets: class numbers (B,) for cross-entropy, otherwise numbers of the outputs' shape.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from ..losses import QUANTILE, Loss


def forward(loss: Loss, z: Tensor, y: Tensor) -> Tensor:
    """z (B, C), y (B,) or (B, C) → one number."""
    return _TWINS[loss.name](z, y)


def _quantile(z: Tensor, y: Tensor) -> Tensor:
    e = y - z
    return torch.maximum(QUANTILE * e, (QUANTILE - 1) * e).mean()


def _perceptron(z: Tensor, y: Tensor) -> Tensor:
    # At t·z = 0 the perceptron rule learns, so the hinge is open there: −t·z where it is ≥ 0.
    wrong = -(2 * y - 1) * z
    return torch.where(wrong >= 0, wrong, torch.zeros_like(wrong)).mean()


_TWINS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": functional.cross_entropy,
    "binary_cross_entropy": functional.binary_cross_entropy_with_logits,
    "mse": functional.mse_loss,
    "mae": functional.l1_loss,
    "huber": functional.huber_loss,
    "quantile": _quantile,
    "poisson": lambda z, y: (z.exp() - y * z).mean(),
    "perceptron": _perceptron,
}
