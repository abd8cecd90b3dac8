"""A finding: what is wrong with a training run, where, the numbers that show it, and what to do.

Findings are plain data. `to_dict` gives their JSON form, which `mlp check --json` prints and the event `finding` of a
run stores:

    kind       name of the fault, one of KINDS
    severity   "error" if the model should not be used, else "warning"
    message    one sentence with the numbers
    where      layer, units, epoch, member, column or rows; only what applies
    evidence   the measured numbers by name
    remedy     text and command of the best remedy
    remedies   all remedies, the best first
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

KINDS = (
    "symmetric_units",
    "unscaled_inputs",
    "exploding_gradients",
    "rate_too_high",
    "vanishing_gradients",
    "dead_units",
    "saturated_units",
    "rate_too_low",
    "leakage",
    "label_noise",
    "wrong_loss",
    "batch_norm_small_batch",
    "underfitting",
    "overfitting",
)
"""All faults, causes before their effects. Findings are sorted in this order."""

TITLES = {
    "symmetric_units": "Identical units",
    "unscaled_inputs": "Unscaled inputs",
    "exploding_gradients": "Exploding gradients",
    "rate_too_high": "Learning rate too high",
    "vanishing_gradients": "Vanishing gradients",
    "dead_units": "Dead units",
    "saturated_units": "Saturated units",
    "rate_too_low": "Learning rate too low",
    "leakage": "Target leakage",
    "label_noise": "Likely label errors",
    "wrong_loss": "Unsuitable loss",
    "batch_norm_small_batch": "Batch norm with small batches",
    "underfitting": "Underfitting",
    "overfitting": "Overfitting",
}
"""The faults in plain words, for pages and commands."""

MOST_LISTED = 100
"""Largest number of units or rows that a finding lists. `evidence` has the exact number."""

Severity = Literal["warning", "error"]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a fault is. A field that does not apply is empty, or None."""

    layer: str | None = None
    """Name of the layer as in `Spec.entries`, such as "relu1" or "residual1.linear2"."""
    units: tuple[int, ...] = ()
    """Numbers of the units, from 0. At most `MOST_LISTED`."""
    epoch: int | None = None
    """The epoch at which the fault was first seen."""
    member: int | None = None
    """Number of the ensemble member, from 1."""
    column: str | None = None
    """Column of the table."""
    rows: tuple[int, ...] = ()
    """Rows of the table, from 0. At most `MOST_LISTED`."""

    def to_dict(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in ("layer", "units", "epoch", "member", "column", "rows")}
        return {
            name: list(cast("tuple[int, ...]", value)) if isinstance(value, tuple) else value
            for name, value in values.items()
            if value is not None and value != ()
        }


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """A change that cures a fault.

    `changes` are keyword arguments of `ml.fit` that differ from those of the run, such as `{"learning_rate": 0.001}` or
    `{"spec": "4-8:gelu-3"}`. Two keys change the table instead: `drop_columns` and `drop_rows`. `changes` is empty if
    training again does not help.
    """

    text: str
    """One sentence in the imperative."""
    command: str = ""
    """The command line that applies it, or an empty string."""
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def to_dict(self) -> dict[str, Any]:
        return {"text": self.text, "command": self.command, "changes": dict(self.changes)}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A fault of a training run or a model.

    Attributes
    ----------
    kind : str
        Name of the fault, such as ``"dead_units"``.
    severity : {"warning", "error"}
        Whether the model should not be used.
    message : str
        One sentence with the numbers.
    where : Place
        Layer, units, epoch, member, column or rows.
    evidence : mapping of str to float
        The measured numbers.
    remedies : tuple of Remedy
        What to do, the best first.

    Examples
    --------
    >>> found = Finding(kind="dead_units", severity="warning", message="3 of 8 units of relu1 are dead.",
    ...     where=Place(layer="relu1", units=(1, 4, 6)), evidence={"units": 3, "of": 8},
    ...     remedies=(Remedy(text="Use gelu instead of relu.", changes={"spec": "4-8:gelu-3"}),))
    >>> found.to_dict()["where"]
    {'layer': 'relu1', 'units': [1, 4, 6]}
    """

    kind: str
    severity: Severity
    message: str
    where: Place = field(default_factory=Place)
    evidence: Mapping[str, float] = field(default_factory=dict[str, float])
    remedies: tuple[Remedy, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as JSON values."""
        remedies = [remedy.to_dict() for remedy in self.remedies]
        first = {key: remedies[0][key] for key in ("text", "command")} if remedies else None
        return {
            "kind": self.kind,
            "severity": self.severity,
            "message": self.message,
            "where": self.where.to_dict(),
            "evidence": dict(sorted(self.evidence.items())),
            "remedy": first,
            "remedies": remedies,
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Finding:
        """Return the finding of a JSON object. The inverse of `to_dict`."""
        where: dict[str, Any] = {
            name: tuple(cast("list[int]", value)) if isinstance(value, list) else value
            for name, value in data["where"].items()
        }
        return Finding(
            kind=data["kind"],
            severity=data["severity"],
            message=data["message"],
            where=Place(**where),
            evidence=dict(data["evidence"]),
            remedies=tuple(Remedy(**remedy) for remedy in data["remedies"]),
        )


def in_order(findings: list[Finding]) -> tuple[Finding, ...]:
    """Return the findings with causes before effects, and errors before warnings of the same kind."""
    return tuple(sorted(findings, key=lambda one: (KINDS.index(one.kind), one.severity != "error")))
