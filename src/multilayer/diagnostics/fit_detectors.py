"""Underfitting and overfitting."""

from __future__ import annotations

from collections.abc import Iterator

from ..core.formatting import number
from .case import Case
from .findings import Finding, Remedy

GAP = 0.15
"""Difference in skill between training and held-out rows that means overfitting, if it is certain."""
CERTAIN = 2.0
"""Standard errors of a difference that is certain."""
REBOUND = 0.3
"""Rise of the validation loss after its minimum, relative to its fall before, that means overfitting."""


def underfitting(case: Case) -> Iterator[Finding]:
    """Yield a finding if a simple method is clearly better on the held-out rows, and the network does not overfit."""
    skills = case.measured.skills
    if skills is None or not case.behind or skills.train - skills.held_out > GAP:
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
    yield case.train_with(
        "Train a wider network with the default options.",
        spec=case.wider(),
        **case.usual_rate(),
        **case.usual_init(),
        **case.less_regularization(),
    )


def overfitting(case: Case) -> Iterator[Finding]:
    """Yield a finding if the model is clearly worse on held-out rows, and the validation loss rose again."""
    skills = case.measured.skills
    if skills is None:
        return
    gap, rebound = skills.train - skills.held_out, case.fact("rebound")
    if gap < GAP or gap < CERTAIN * skills.gap_error or rebound < REBOUND:
        return
    epoch = int(case.fact("best_epoch"))
    yield Finding(
        kind="overfitting",
        severity="warning",
        message=f"The network overfits: its skill is {skills.train:.2f} on training rows and {skills.held_out:.2f} on "
        f"held-out rows, and the validation loss rose from {number(case.fact('lowest_validation'))} (epoch {epoch}) to "
        f"{number(case.fact('last_validation'))}.",
        evidence={
            "train": skills.train,
            "held_out": skills.held_out,
            "gap": gap,
            "rebound": rebound,
            "best_epoch": epoch,
        },
        remedies=tuple(_against_overfitting(case)),
    )


def _against_overfitting(case: Case) -> Iterator[Remedy]:
    yield case.train_with(
        "Train a smaller network with dropout, and stop early.", spec=case.narrower(), patience=10, weight_decay=0.3
    )
