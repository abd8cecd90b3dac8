"""Faults of the signal through depth, and of the learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ..core.formatting import number
from .case import Case, with_activation, with_layer_norm
from .findings import Finding, Place, Remedy

EXPLODING_LOSS = 20.0
"""The initial loss is too large if it is this many times the loss of outputs that are 0."""
EXPLODING_RATIO = 30.0
"""Gradients explode if δ at the first layer is this many times that at the last."""
VANISHING_RATIO = 0.01
"""Gradients vanish if δ at the first layer is below this fraction of that at the last."""
BEHIND = 0.1
"""A network is behind if its skill is this much below that of a simple reference, beyond the standard error."""
UNSTEADY = 0.45
"""The training loss is unsteady if it rises in this share of the epochs near the peak of the learning rate."""
STILL = 0.02
"""The weights have hardly moved if they changed by this fraction of their initial norm."""


def exploding_gradients(case: Case) -> Iterator[Finding]:
    """Yield a finding if signals or gradients grow through the depth of the initial network."""
    initial = case.measured.initial
    if initial is None:
        return
    times = initial.loss / max(case.measured.expected_loss, 1e-12)
    ratio = initial.delta_ratio
    if math.isfinite(times) and times < EXPLODING_LOSS and not ratio > EXPLODING_RATIO:
        return
    evidence = {"initial_loss": initial.loss, "expected_loss": case.measured.expected_loss}
    if math.isfinite(ratio):
        evidence["gradient_ratio"] = ratio
    growth = (
        f", and gradients grow {ratio:,.0f} times from the last to the first layer" if ratio > EXPLODING_RATIO else ""
    )
    yield Finding(
        kind="exploding_gradients",
        severity="error",
        message=f"The initial loss is {number(initial.loss)}, {number(times)} times that of outputs that are "
        f"0{growth}: the initial weights are too large for this depth.",
        evidence=evidence,
        remedies=tuple(_against_explosion(case)),
    )


def _against_explosion(case: Case) -> Iterator[Remedy]:
    changes = {**case.usual_init(), **case.usual_rate()}
    if changes:
        yield case.train_with("Train with initial weights that fit the activation and the width.", **changes)
    norm = case.spec_with(with_layer_norm)
    yield case.train_with(
        "Train with a layer norm before each activation, and clip gradients.", spec=norm, clip_norm=1.0, **changes
    )


def vanishing_gradients(case: Case) -> Iterator[Finding]:
    """Yield a finding if gradients shrink through the depth and the network has not learned what it could."""
    initial, now = case.measured.initial, case.network
    ratios = [one.delta_ratio for one in (initial, now) if one is not None and not math.isnan(one.delta_ratio)]
    if not ratios or min(ratios) >= VANISHING_RATIO or not case.behind:
        return
    yield Finding(
        kind="vanishing_gradients",
        severity="error",
        message=f"Gradients shrink to {min(ratios):.1g} of their size from the last to the first of "
        f"{len(now.weights)} layers, so the first layers hardly learn.",
        where=Place(layer=now.weights[0].name),
        evidence={"gradient_ratio": min(ratios), "layers": len(now.weights), **case.skill_evidence},
        remedies=tuple(_against_vanishing(case)),
    )


def _against_vanishing(case: Case) -> Iterator[Remedy]:
    changes: dict[str, Any] = case.usual_init()
    smooth = any(layer.function in ("sigmoid", "tanh", "softplus") for layer in case.network.activations)
    if changes and not smooth:
        yield case.train_with("Train with initial weights that keep the size of the signal.", **changes)
    relu = case.with_changes(case.spec, with_activation("relu"))
    yield case.train_with(
        "Train with relu and a layer norm before each activation.",
        spec=str(case.with_changes(relu, with_layer_norm)),
        **changes,
    )


def rate_too_high(case: Case) -> Iterator[Finding]:
    """Yield a finding if training diverged, or was so unsteady that the network learned too little."""
    history = case.history
    if history is None:
        return
    facts = history.measurements()
    unsteady = facts.get("rises", 0.0) >= UNSTEADY and case.behind and case.network.movement > 1
    if not (history.diverged or history.rollbacks or unsteady):
        return
    rate = history.config.get("learning_rate")
    at = f" of {rate:g}" if rate is not None else ""
    what = (
        "Training diverged"
        if history.diverged
        else f"The loss spiked {history.spikes} times"
        if history.rollbacks
        else f"The training loss rose in {facts['rises']:.0%} of the epochs, and the network is worse than it could be"
    )
    yield Finding(
        kind="rate_too_high",
        severity="error" if history.diverged else "warning",
        message=f"{what}: the learning rate{at} is too high.",
        evidence={name: facts[name] for name in ("rises", "spikes", "rollbacks", "non_finite") if name in facts},
        remedies=tuple(_other_rate(case, 0.1)),
    )


def rate_too_low(case: Case) -> Iterator[Finding]:
    """Yield a finding if the weights hardly moved, and the loss was still falling."""
    history = case.history
    if history is None or not history.losses:
        return
    facts = history.measurements()
    movement = case.network.movement
    if not movement < STILL or not case.behind:
        return
    rate = history.config.get("learning_rate")
    at = f" of {rate:g}" if rate is not None else ""
    yield Finding(
        kind="rate_too_low",
        severity="error",
        message=f"The weights have changed by only {movement:.1%} of their initial size: the learning rate{at} is too "
        "low.",
        evidence={"movement": movement, "fall": facts["fall"], "late_fall": facts["late_fall"], **case.skill_evidence},
        remedies=tuple(_other_rate(case, 10.0)),
    )


def _other_rate(case: Case, factor: float) -> Iterator[Remedy]:
    rate = case.option("learning_rate")
    if case.usual_rate():
        yield case.train_with("Train with the default learning rate.", **case.usual_rate())
    if rate is not None:
        yield case.train_with(f"Train with a learning rate of {rate * factor:g}.", learning_rate=rate * factor)
