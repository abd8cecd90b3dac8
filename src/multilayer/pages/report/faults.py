"""The findings of a run in its report: which sentences and remedies of the verdict they replace, and their remedies.

A finding names the fault itself. The verdict infers causes from losses and metrics only, so a finding replaces its
sentences and remedies about the same cause. A remedy of the verdict is also left out if it concerns a setting that a
remedy of a finding changes, so the report neither repeats nor contradicts itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...diagnostics.display import described, findings_in
from ...runs.events import Event
from ...spec import Spec

Findings = Sequence[Mapping[str, Any]]

POOR_FIT = frozenset({"hardly trained", "slow", "too small", "behind", "uninformative"})
"""Causes of a poor fit that a fault of the training explains better."""
TOO_SHORT = frozenset({"cut short", "out of time"})
UNSTABLE = frozenset({"diverged", "spikes"})

REPLACES: Mapping[str, frozenset[str]] = {
    "symmetric_units": POOR_FIT | TOO_SHORT,
    "exploding_gradients": POOR_FIT | TOO_SHORT | UNSTABLE,
    "rate_too_high": POOR_FIT | TOO_SHORT | UNSTABLE,
    "vanishing_gradients": POOR_FIT | TOO_SHORT,
    "dead_units": POOR_FIT,
    "saturated_units": POOR_FIT,
    "unscaled_inputs": POOR_FIT,
    "rate_too_low": POOR_FIT | TOO_SHORT,
    "label_noise": frozenset({"too small", "uninformative"}),
    "wrong_loss": POOR_FIT,
    "batch_norm_small_batch": POOR_FIT,
    "underfitting": POOR_FIT | TOO_SHORT,
    "overfitting": frozenset({"overfits"}),
}
"""Causes of the verdict that a finding replaces, by kind of finding."""

FIT = frozenset({"underfitting", "overfitting"})
"""Findings that replace every sentence about the fit, also that the model does not overfit."""

SETTINGS: Mapping[str, str] = {
    "learning_rate": "learning_rate",
    "epochs": "epochs",
    "patience": "epochs",
    "weight_decay": "regularisation",
    "l2": "regularisation",
    "dropout": "regularisation",
    "loss": "smoothing",
    "validation": "held_out",
    "drop_columns": "columns",
}
"""The setting that a change concerns, as in `Remedy.moves` of the verdict. A change of `spec` concerns the width if it
changes the number of parameters."""


def described_findings(log: Iterable[Event]) -> list[dict[str, Any]]:
    """Return the findings of a log with the words that the page shows."""
    return [described(finding) for finding in findings_in(log)]


def replaced_causes(findings: Findings) -> frozenset[str]:
    """Return the causes of the verdict that the findings replace."""
    return frozenset[str]().union(*(REPLACES.get(one["kind"], frozenset()) for one in findings))


def remedies(findings: Findings) -> list[dict[str, str]]:
    """Return the best remedy of each finding as text and command, without repetitions."""
    found = [{key: one["remedies"][0][key] for key in ("text", "command")} for one in findings if one["remedies"]]
    return [one for i, one in enumerate(found) if one not in found[:i]]


def changed_settings(findings: Findings, parameters: int | None) -> frozenset[str]:
    """Return the settings that the best remedies change. `parameters` is the size of the network of the run."""
    changes = [one["remedies"][0].get("changes", {}) for one in findings if one["remedies"]]
    names = {SETTINGS[key] for each in changes for key in each if key in SETTINGS}
    if any("spec" in each and Spec.parse(each["spec"]).n_parameters != parameters for each in changes):
        names.add("width")
    return frozenset(names)
