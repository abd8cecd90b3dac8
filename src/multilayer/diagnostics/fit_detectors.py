"""Underfitting and overfitting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..core.formatting import number
from .case import Case
from .commands import chosen_length
from .findings import Finding, Remedy
from .references import REFERENCES

LEAST_LEAD = 0.03
"""A network that underfits has at least this much less skill on its own training rows than a reference on new rows."""
LEAST_LEAD_LIMITED = 0.01
"""A network with options that limit it underfits if a reference has this much more skill on held-out rows: otherwise,
nothing shows that more can be learned from this table."""
FITTED = 0.85
"""From this skill on training rows on, a network does not underfit, whatever its options are."""
STILL_FALLING = 0.2
"""The training loss was still falling if at least this share of its fall was in the second half of the epochs."""
FEW_STEPS = 200
LONGER = 4
"""A run of the default length that was too short is made longer by this factor."""
GAPS = ((0.18, 0.15), (0.24, 0.3), (0.3, 0.6), (0.5, 1.0))
"""Difference of the last validation loss and training loss, relative to the loss of outputs that are 0, that means
overfitting if the best epoch was before this share of the epochs: the earlier it was, the smaller the difference."""
MEMORIZED = 0.5
"""A training loss below this fraction of the validation loss shows that a network memorizes its rows."""


def underfitting(case: Case) -> Iterator[Finding]:
    """Yield a finding if a simple method is clearly better on held-out rows than the network, even on training rows.

    A network with low skill and options that are known to cause it underfits too if a simple method is slightly better.
    """
    skills = case.measured.skills
    if skills is None:
        return
    options, beaten = case.limits, case.behind and skills.train < skills.best_reference - LEAST_LEAD
    limited = options and skills.train < FITTED and case.lead > LEAST_LEAD_LIMITED
    if not beaten and not limited:
        return
    best = max(REFERENCES, key=lambda name: getattr(skills, name))
    because = f", with {' and '.join(options)}" if options else ""
    compared = f", {REFERENCES[best]} reaches {skills.best_reference:.2f}" if beaten else ""
    yield Finding(
        kind="underfitting",
        severity="warning",
        message=f"The network learns too little: its skill is {skills.train:.2f} on training rows and "
        f"{skills.held_out:.2f} on held-out rows{because}{compared}.",
        evidence=case.skill_evidence,
        remedies=tuple(_against_underfitting(case)),
    )


def _against_underfitting(case: Case) -> Iterator[Remedy]:
    changes: dict[str, Any] = {**case.usual_rate(), **case.usual_init(), **case.less_regularization()}
    if case.fact("late_fall") > STILL_FALLING or case.fact("steps") < FEW_STEPS:
        text, longer = _longer(case, other_options=bool(changes))
        changes |= longer
        if not case.limits:  # otherwise, more epochs do not help
            yield case.train_with(text, **changes)
    yield case.train_with("Train a wider network with the default options.", spec=case.wider(), **changes)


def _longer(case: Case, *, other_options: bool) -> tuple[str, dict[str, Any]]:
    """Return the options with which the run would have been longer, or none if other options are enough."""
    epochs, history = case.option("epochs", 0), case.history
    if case.option("time_limit") is not None and case.fact("epochs") < epochs:
        return "Train without a time limit.", {"time_limit": None}
    if history is not None and epochs and chosen_length(history):
        if other_options:
            return "Train with the default options.", {}
        return f"Train longer, for {LONGER * epochs} epochs.", {"epochs": LONGER * epochs}
    return "Train longer, with the default number of epochs.", {"epochs": None}


def overfitting(case: Case) -> Iterator[Finding]:
    """Yield a finding if the network memorized its training rows, and their loss is far below that of other rows.

    A run with early stopping has none: its model is that of the best epoch, and no more epochs are wasted. The tabular
    recipe memorizes rows by design: its length belongs to its schedule, and the model of the best epoch is as good as
    with early stopping. Its network overfits only if a simple method is clearly better.
    """
    skills, history = case.measured.skills, case.history
    if case.of_recipe and not case.behind:
        return
    if skills is None or history is None or not history.validation or history.config.get("patience") is not None:
        return
    facts = history.facts
    expected = case.measured.expected_loss
    gap = (facts["last_validation"] - facts["last_loss"]) / expected if expected > 0 else 0.0
    memorized = facts["last_loss"] < MEMORIZED * facts["last_validation"]
    if not memorized or not any(gap > least and facts["best_share"] <= latest for least, latest in GAPS):
        return
    epoch, stops = int(facts["best_epoch"]), _would_stop(case)
    long = len(history.losses) > _patience(case)
    if not stops and not (long and gap > GAPS[-1][0]):  # stopping early would change nothing
        return
    after = f" after epoch {epoch} of {len(history.losses)}" if stops else ""
    yield Finding(
        kind="overfitting",
        severity="warning",
        message=f"The network memorizes its rows{after}: the training loss fell to {number(facts['last_loss'])}, the "
        f"lowest validation loss is {number(facts['lowest_validation'])} and the last is "
        f"{number(facts['last_validation'])}.",
        evidence={
            "train": skills.train,
            "held_out": skills.held_out,
            "gap": gap,
            "rebound": facts["rebound"],
            "best_epoch": epoch,
        },
        remedies=tuple(_against_overfitting(case)),
    )


def _against_overfitting(case: Case) -> Iterator[Remedy]:
    if _would_stop(case):
        yield case.train_with("Stop early.", patience=_patience(case))
    yield case.train_with(
        "Train a smaller network with dropout, and stop early.", spec=case.narrower(), patience=_patience(case)
    )


def _would_stop(case: Case) -> bool:
    """Return whether early stopping would have ended the run."""
    return case.fact("epochs") - case.fact("best_epoch") > _patience(case)


def _patience(case: Case) -> int:
    return max(10, (case.option("epochs") or 100) // 10)
