"""Faults of units: dead, saturated and identical ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..core.formatting import count, percent
from .case import Case, with_activation
from .findings import MOST_LISTED, Finding, Place, Remedy

DEAD_SHARE = 0.25
"""Share of the units of a layer that must be dead. A few dead units are common and harmless."""
SATURATED_SHARE = 0.25
"""Share of the units of a layer that must be saturated."""
IDENTICAL_SHARE = 0.5
"""Share of the units of a layer that must be identical to another unit."""
MOST_TIMES_DEFAULT = 10.0
"""Against dead units, the learning rate becomes at most this many times the default."""
FEWEST_ROWS = 30
"""Fewer rows do not show that a unit is dead or saturated, unless they are all rows that the network was trained on."""
SEVERE_SHARE = 0.6
"""Share of the units from which a finding is an error."""


def dead_units(case: Case) -> Iterator[Finding]:
    """Yield a finding for each layer in which many units are inactive on every training row.

    Weights that weight decay has reduced to nothing are underfitting, not dead units.
    """
    if case.collapsed or _few_rows(case):
        return
    for member, network in enumerate(case.measured.members, 1):
        for layer in network.activations:
            share = len(layer.dead) / layer.width
            if share < DEAD_SHARE:
                continue
            flops = case.flops_share(layer.name)
            waste = f", and the layer takes {percent(flops)} of the FLOPs" if flops >= 0.05 else ""
            yield Finding(
                kind="dead_units",
                severity="error" if share >= SEVERE_SHARE else "warning",
                message=f"{count(len(layer.dead), 'unit')} of {layer.width} in {layer.name} are dead: they output "
                f"0 on every training row and no longer learn{waste}.",
                where=_place(case, layer.name, layer.dead, member, what="dead"),
                evidence={
                    **{"units": len(layer.dead), "of": layer.width, "share": share, "flops_share": flops},
                    **_recovered(case, layer.name, layer.dead, member, what="dead"),
                },
                remedies=tuple(_against_dead(case)),
            )


def _against_dead(case: Case) -> Iterator[Remedy]:
    changes: dict[str, Any] = {**case.usual_scaling(), **case.usual_init()}
    rate = case.option("learning_rate")
    if rate:
        changes["learning_rate"] = float(f"{min(rate / 3, MOST_TIMES_DEFAULT * case.default_rate):.2g}")
    elu = case.spec_with(with_activation("elu"))
    yield case.train_with(
        "Train with elu, whose units keep a gradient below 0, and with a lower learning rate.",
        spec=elu,
        **changes,
    )
    yield case.train_with("Train with gelu.", spec=case.spec_with(with_activation("gelu")), **case.usual_scaling())


def saturated_units(case: Case) -> Iterator[Finding]:
    """Yield a finding for each layer in which many units have a flat slope on nearly all training rows."""
    if _few_rows(case):
        return
    for member, network in enumerate(case.measured.members, 1):
        for layer in network.activations:
            share = len(layer.saturated) / layer.width
            if share < SATURATED_SHARE:
                continue
            yield Finding(
                kind="saturated_units",
                severity="error" if share >= SEVERE_SHARE else "warning",
                message=f"{count(len(layer.saturated), 'unit')} of {layer.width} in {layer.name} are saturated: "
                f"their slope is nearly 0 on at least 95 % of the training rows, so they hardly learn.",
                where=_place(case, layer.name, layer.saturated, member, what="saturated"),
                evidence={
                    **{"units": len(layer.saturated), "of": layer.width, "share": share, "z_std": layer.z_std},
                    **_recovered(case, layer.name, layer.saturated, member, what="saturated"),
                },
                remedies=tuple(_against_saturation(case)),
            )


def _against_saturation(case: Case) -> Iterator[Remedy]:
    changes: dict[str, Any] = {**case.usual_init(), **case.usual_scaling(), **case.usual_rate()}
    if changes:
        names = " and ".join(f"the default {name.replace('_', ' ')}" for name in changes)
        yield case.train_with(f"Train with {names}.", **changes)
    yield case.train_with(
        "Train with gelu, which saturates on one side only.", spec=case.spec_with(with_activation("gelu")), **changes
    )


def symmetric_units(case: Case) -> Iterator[Finding]:
    """Yield a finding if units of a hidden layer have identical weights, and thus identical outputs."""
    for member, network in enumerate(case.measured.members, 1):
        for layer in network.weights[:-1]:
            if layer.identical < IDENTICAL_SHARE:
                continue
            yield Finding(
                kind="symmetric_units",
                severity="error",
                message=f"{percent(layer.identical)} of the units of {layer.name} have the same weights as another "
                "unit: they started equal, get equal gradients, and stay equal.",
                where=_place(case, layer.name, np.zeros(0, np.int64), member),
                evidence={"share": layer.identical, "of": layer.width},
                remedies=(case.train_with("Train with random initial weights.", init="auto"),),
            )
            break


def _few_rows(case: Case) -> bool:
    trained = FEWEST_ROWS if case.history is None else case.history.rows
    return case.measured.network_rows < min(FEWEST_ROWS, trained)


def _place(case: Case, layer: str, units: np.ndarray, member: int, *, what: str = "") -> Place:
    return Place(
        layer=layer,
        units=tuple(units[:MOST_LISTED].tolist()),
        epoch=_life(case, layer, units, member, what)[0] if what else None,
        member=member if len(case.measured.members) > 1 else None,
    )


def _recovered(case: Case, layer: str, units: np.ndarray, member: int, *, what: str) -> dict[str, float]:
    """Return the number of other units that were dead or saturated earlier, if it is known."""
    since, recovered = _life(case, layer, units, member, what)
    return {} if since is None else {"recovered": recovered}


def _life(case: Case, layer: str, units: np.ndarray, member: int, what: str) -> tuple[int | None, int]:
    name = layer if len(case.measured.members) == 1 else f"member{member}/{layer}"
    return (None, 0) if case.history is None else case.history.life_of(name, what, units.tolist())
