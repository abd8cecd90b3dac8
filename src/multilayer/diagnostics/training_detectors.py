"""Faults of the signal through depth, and of the learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ..core.formatting import count, number, percent
from .case import Case, with_activation, with_layer_norm
from .findings import Finding, Place, Remedy
from .history import WINDOW
from .measurements import FEWEST_STEPS

EXPLODING_LOSS = 20.0
"""The initial loss is too large if it is this many times the loss of outputs that are 0."""
EXPLODING_RATIO = 30.0
"""Gradients explode if δ at the first layer is this many times that at the last."""
VANISHING_RATIO = 0.01
"""Gradients vanish if δ at the first layer is below this fraction of that at the last."""
UNSTEADY, NEARLY_UNSTEADY, RISING = 0.45, 0.4, 0.3
"""The training loss is unsteady if it rises in this share of the epochs near the peak of the learning rate. The second
limit holds together with large updates, and the third together with a loss that is larger at the end."""
JUMP, JUMP_FROM_ZERO = 5.0, 20.0
"""The mean loss of the first epoch is too large if it is this many times the initial loss or, if that is unknown, the
loss of outputs that are 0."""
FAR = 6.0
"""The weights have moved too far if they changed by this many times their initial norm."""
LARGE_UPDATES = 0.2
"""A step is too large if it changes the weights by this fraction of their norm."""
LARGEST_UPDATES = 1.0
"""A step that replaces the weights: it changes them by this fraction of their norm."""
STEADY, NO_RISE = 0.1, 0.02
"""Training is steady if its loss rises in at most this share of the epochs, and the validation loss has risen since its
lowest value by at most this fraction of the loss of outputs that are 0."""
SMALL_UPDATES, TINY_UPDATES = 3e-4, 1e-4
"""The learning rate may be too low if steps, at the start and at the end, change the weights by less than the first
fraction of their norm. It is too low if a reference is better, for Adam, or below the second fraction."""
BESIDE = 100.0
"""A learning rate that differs from the default by more than this factor is no remedy."""
LEAST_LEAD, LEAST_MOVEMENT = 0.05, 0.1
"""A network is worse than it could be if a reference leads by this skill, and was trained at all if its weights moved
by this fraction."""
NEARLY_ZERO = 0.1
"""A training loss below this fraction of that of outputs that are 0 needs no higher learning rate."""


def exploding_gradients(case: Case) -> Iterator[Finding]:
    """Yield a finding if signals or gradients grow through the depth of the initial network."""
    initial = case.measured.initial
    if initial is None:
        return
    expected, ratio = case.measured.expected_loss, initial.delta_ratio
    times = initial.loss / expected if expected > 0 else 1.0
    if math.isfinite(initial.loss) and times < EXPLODING_LOSS and not ratio > EXPLODING_RATIO:
        return
    evidence = {"initial_loss": initial.loss, "expected_loss": expected, "gradient_ratio": ratio}
    size = f"the initial loss is {number(initial.loss)}, {number(times)} times that of outputs that are 0"
    growth = f"gradients grow {ratio:,.0f} times from the last to the first layer"
    signs = [size] * (expected > 0) + [growth] * (ratio > EXPLODING_RATIO)
    what = ", and ".join(signs or ["the initial loss is not finite"])
    yield Finding(
        kind="exploding_gradients",
        severity="error",
        message=f"{what[0].upper()}{what[1:]}: the initial weights are too large for this depth.",
        evidence={name: value for name, value in evidence.items() if math.isfinite(value)},
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
    """Yield a finding if gradients shrink through the depth of the initial network.

    If the initial weights are unknown, the trained network decides, and must have learned less than it could.
    """
    initial, now = case.measured.initial, case.network
    ratio = now.delta_ratio if initial is None else initial.delta_ratio
    if not ratio < VANISHING_RATIO or (initial is None and not (ratio > 0 and case.behind)):
        return
    yield Finding(
        kind="vanishing_gradients",
        severity="error" if case.behind else "warning",
        message=f"Gradients shrink to {ratio:.1g} of their size from the last to the first of "
        f"{len(now.weights)} layers{' at the start' if initial is not None else ''}, so the first layers learn slowly.",
        where=Place(layer=now.weights[0].name),
        evidence={"gradient_ratio": ratio, "layers": len(now.weights), **case.skill_evidence},
        remedies=tuple(_against_vanishing(case)),
    )


def _against_vanishing(case: Case) -> Iterator[Remedy]:
    changes: dict[str, Any] = case.usual_init()
    elu = case.with_changes(case.spec, with_activation("elu"))
    weights = " and with initial weights that keep the size of the signal" if changes else ""
    yield case.train_with(f"Train with elu{weights}.", spec=str(elu), **changes)
    yield case.train_with(
        "Train with relu and a layer norm before each activation.",
        spec=str(case.with_changes(case.with_changes(case.spec, with_activation("relu")), with_layer_norm)),
        **changes,
    )


def rate_too_high(case: Case) -> Iterator[Finding]:
    """Yield a finding if training diverged, jumped, or was unsteady with steps that are too large."""
    history = case.history
    if history is None:
        return
    facts, what = history.facts, _sign_of_large_steps(case)
    if what is None:
        return
    rate = history.config.get("learning_rate")
    at = "" if rate is None else f" of {rate:g}"
    yield Finding(
        kind="rate_too_high",
        severity="error" if history.diverged else "warning",
        message=f"{what}: the learning rate{at} is too high.",
        evidence={name: facts[name] for name in ("rises", "spikes", "rollbacks", "non_finite") if name in facts}
        | {name: value for name, value in (("movement", case.network.movement),) if math.isfinite(value)},
        remedies=tuple(_other_rate(case, 0.1)),
    )


def _sign_of_large_steps(case: Case) -> str | None:
    """Return the first sign of a learning rate that is too high, or None."""
    history, network = case.history, case.network
    assert history is not None
    if history.diverged:
        return "Training diverged"
    if (history.rollbacks > 1 or (history.rollbacks and case.behind)) and not case.limits:
        return f"The loss spiked {count(history.spikes, 'time')}"
    if not history.losses or (case.of_recipe and not case.usual_rate() and history.steps < FEWEST_STEPS):
        return None  # the default rate of the recipe is right for its default length
    facts = history.facts
    initial, expected = case.measured.initial, case.measured.expected_loss
    usual = JUMP_FROM_ZERO * expected if initial is None else JUMP * max(initial.loss, expected)
    if expected > 0 and facts["first_loss"] > usual:
        return f"The mean loss of the first epoch is {number(facts['first_loss'])}, far above the initial loss"
    least = min(history.losses[-WINDOW:])
    usual = max(facts["first_loss"], expected if expected > 0 else 0.0)
    if len(history.losses) > WINDOW and least > JUMP * usual > 0:
        return f"The training loss rose from {number(facts['first_loss'])} to {number(facts['last_loss'])}"
    if case.limits:  # they explain an unsteady loss and low skill
        return None
    if network.movement > FAR:
        return f"The weights moved by {number(network.movement)} times their initial size"
    rises = facts["rises"]
    unsteady = f"The training loss rose in {percent(rises)} of the epochs near the peak of the learning rate"
    if rises >= NEARLY_UNSTEADY and network.update_ratio > LARGE_UPDATES and not math.isnan(network.movement):
        return f"{unsteady}, and a step changes the weights by {percent(network.update_ratio)}"
    if network.update_ratio > LARGEST_UPDATES and case.behind:
        times = f"A step changes the weights by {number(network.update_ratio)} times their size"
        sign = times if math.isfinite(network.update_ratio) else "The weights shrank to 0"
        return f"{sign}, and the network is worse than it could be"
    if rises >= UNSTEADY and case.behind and network.movement > 1:
        return f"{unsteady}, and the network is worse than it could be"
    if rises >= RISING and facts["fall"] < 0 and case.lead > LEAST_LEAD and network.movement > LEAST_MOVEMENT:
        return "The training loss is higher at the end than in the first epoch"
    return None


def rate_too_low(case: Case) -> Iterator[Finding]:
    """Yield a finding if tiny, steady steps left a loss that is not near 0, and the network could be better.

    The step is that of the peak learning rate with the gradient of the initial or the final network, the larger one:
    the gradient of a network that has learned all it can is small at any learning rate.
    """
    history, step = case.history, case.largest_update
    expected = case.measured.expected_loss
    if history is None or not history.losses or not step < SMALL_UPDATES or math.isnan(expected):
        return
    facts = history.facts
    rise = facts.get("last_validation", 0.0) - facts.get("lowest_validation", 0.0)
    if facts["rises"] > STEADY or rise > NO_RISE * expected or facts["last_loss"] <= NEARLY_ZERO * expected:
        return
    tiny = case.measured.initial is not None and (history.adaptive or step < TINY_UPDATES)
    if not tiny and not case.lead > LEAST_LEAD:
        return
    rate = history.config.get("learning_rate")
    at = "" if rate is None else f" of {rate:g}"
    yield Finding(
        kind="rate_too_low",
        severity="error",
        message=f"A step changes the weights by only {step:.1g} of their size, and the training loss is still "
        f"{number(facts['last_loss'])}: the learning rate{at} is too low.",
        evidence={
            "update_ratio": step,
            "movement": case.network.movement,
            "fall": facts["fall"],
            **case.skill_evidence,
        },
        remedies=tuple(_other_rate(case, 10.0)),
    )


def _other_rate(case: Case, factor: float) -> Iterator[Remedy]:
    rate = case.option("learning_rate")
    if case.usual_rate():
        yield case.train_with("Train with the default learning rate.", **case.usual_rate())
    other = None if rate is None else float(f"{rate * factor:.12g}")
    if other is not None and 1 / BESIDE < other / case.default_rate < BESIDE:
        yield case.train_with(f"Train with a learning rate of {other:g}.", learning_rate=other)
