"""The losses in torch: `rows(loss, z, y)` computes `loss.rows` with autograd operations, `forward` the mean.

Targets are class indices (B,) for cross-entropy, otherwise numbers (B, targets).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from ..nn.losses import Loss

Reduction = Literal["mean", "none"]


def forward(loss: Loss, z: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
    """Compute the mean loss, or Σ w loss / Σ w with weights: z (B, C), y (B,) or (B, targets), weight (B,)."""
    if weight is None:
        return TWINS[loss.name](loss, z, y, "mean")
    return (rows(loss, z, y) * weight).sum() / weight.sum()


def rows(loss: Loss, z: Tensor, y: Tensor) -> Tensor:
    """Compute the loss of each row, (B,)."""
    values = TWINS[loss.name](loss, z, y, "none")
    return values if values.ndim == 1 else values.mean(-1)


def _cross_entropy(loss: Loss, z: Tensor, y: Tensor, reduction: Reduction) -> Tensor:
    return functional.cross_entropy(z, y, label_smoothing=loss.constant("label_smoothing"), reduction=reduction)


def _focal(loss: Loss, z: Tensor, y: Tensor, reduction: Reduction) -> Tensor:
    gamma = loss.constant("gamma")
    mixed = y.ndim == 2  # probabilities instead of class numbers
    log_p = z.log_softmax(-1) if mixed else -functional.cross_entropy(z, y, reduction="none")
    q = -log_p.expm1()
    if 0 < gamma < 1:  # the derivative of q^γ is infinite at 0
        q = q.clamp_min(torch.finfo(q.dtype).tiny)
    values = -(q**gamma) * log_p
    return _reduce((y * values).sum(-1) if mixed else values, reduction)


def _binary_cross_entropy(loss: Loss, z: Tensor, y: Tensor, reduction: Reduction) -> Tensor:
    eps = loss.constant("label_smoothing")
    return functional.binary_cross_entropy_with_logits(z, (1 - eps) * y + eps / 2 if eps else y, reduction=reduction)


def _quantile(loss: Loss, z: Tensor, y: Tensor, reduction: Reduction) -> Tensor:
    levels: tuple[float, ...] = loss.constant("q")
    e = y.repeat_interleave(len(levels), dim=-1) - z
    q = torch.tensor(levels, dtype=z.dtype, device=z.device).repeat(z.shape[-1] // len(levels))
    return _reduce(torch.maximum(q * e, (q - 1) * e), reduction)


def _perceptron(loss: Loss, z: Tensor, y: Tensor, reduction: Reduction) -> Tensor:
    # The perceptron rule updates the weights at t·z = 0 too, so the slope there is that of −t·z.
    wrong = -(2 * y - 1) * z
    return _reduce(torch.where(wrong >= 0, wrong, torch.zeros_like(wrong)), reduction)


def _reduce(values: Tensor, reduction: Reduction) -> Tensor:
    return values.mean() if reduction == "mean" else values


TWINS: dict[str, Callable[[Loss, Tensor, Tensor, Any], Tensor]] = {
    "cross_entropy": _cross_entropy,
    "focal": _focal,
    "binary_cross_entropy": _binary_cross_entropy,
    "mse": lambda loss, z, y, reduction: functional.mse_loss(z, y, reduction=reduction),
    "mae": lambda loss, z, y, reduction: functional.l1_loss(z, y, reduction=reduction),
    "huber": lambda loss, z, y, reduction: functional.huber_loss(
        z, y, delta=loss.constant("delta"), reduction=reduction
    ),
    "quantile": _quantile,
    "poisson": lambda loss, z, y, reduction: _reduce(z.exp() - y * z, reduction),
    "perceptron": _perceptron,
}
