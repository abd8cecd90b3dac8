"""Underfitting and overfitting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..core.formatting import number
from .case import Case
from .findings import Finding, Remedy

GAP = 0.15
"""Difference in skill between training and held-out rows that means overfitting, if it is certain."""
CERTAIN = 2.0
"""Standard errors of a difference that is certain."""
LEAST_LEAD = 0.05
"""A network that underfits has at least this much less skill on its own training rows than a reference on new rows."""
STILL_FALLING = 0.2
"""The training loss was still falling if at least this share of its fall was in the second half of the epochs."""
FEW_STEPS = 200
MEMORIZED = 0.5
"""A training loss below this fraction of the lowest validation loss shows that a network memorizes its rows."""
REBOUND = 0.3
"""Rise of the validation loss after its minimum, relative to its fall before, that means overfitting."""


def underfitting(case: Case) -> Iterator[Finding]:
    """Yield a finding if the network has less skill, even on training rows, than a simple method on held-out rows."""
    skills = case.measured.skills
    if skills is None or not case.behind or skills.train > skills.best_reference - LEAST_LEAD:
        return
    names = {"linear": skills.linear, "features": skills.features, "neighbors": skills.neighbors}
    best = max(names, key=lambda name: names[name])
    what = {
        "linear": "ridge regression",
        "features": "ridge regression on random features",
        "neighbors": "the mean of the nearest rows",
    }[best]
    yield Finding(
        kind="underfitting",
        severity="warning",
        message=f"The network explains less than it could: its skill is {skills.held_out:.2f} on held-out rows and "
        f"{skills.train:.2f} on training rows, {what} reaches {names[best]:.2f}.",
        evidence=case.skill_evidence,
        remedies=tuple(_against_underfitting(case)),
    )


def _against_underfitting(case: Case) -> Iterator[Remedy]:
    changes: dict[str, Any] = {**case.usual_rate(), **case.usual_init(), **case.less_regularization()}
    if case.fact("late_fall") > STILL_FALLING or case.fact("steps") < FEW_STEPS:
        yield case.train_with("Train longer, with the default number of epochs.", epochs=None, **changes)
        changes["epochs"] = None
    yield case.train_with("Train a wider network with the default options.", spec=case.wider(), **changes)


def overfitting(case: Case) -> Iterator[Finding]:
    """Yield a finding if the validation loss rose again while the network memorized its training rows."""
    skills = case.measured.skills
    if skills is None or case.fact("rebound") < REBOUND:
        return
    gap = skills.train - skills.held_out
    memorized = case.fact("last_loss", 1.0) < MEMORIZED * case.fact("lowest_validation")
    if not (memorized or (gap > GAP and gap > CERTAIN * skills.gap_error)):
        return
    epoch = int(case.fact("best_epoch"))
    yield Finding(
        kind="overfitting",
        severity="warning",
        message=f"The network overfits after epoch {epoch}: the validation loss rose from "
        f"{number(case.fact('lowest_validation'))} to {number(case.fact('last_validation'))}, while the training loss "
        f"fell to {number(case.fact('last_loss'))}.",
        evidence={
            "train": skills.train,
            "held_out": skills.held_out,
            "gap": gap,
            "rebound": case.fact("rebound"),
            "best_epoch": epoch,
        },
        remedies=tuple(_against_overfitting(case)),
    )


def _against_overfitting(case: Case) -> Iterator[Remedy]:
    yield case.train_with(
        "Train a smaller network with dropout, and stop early.", spec=case.narrower(), patience=10, weight_decay=0.3
    )
