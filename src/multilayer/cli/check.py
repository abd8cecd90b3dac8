"""`mlp check`: find what went wrong in training, and train again with the remedies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import OptionError
from .options import AsJson, flag, option
from .output import console, strict_json

if TYPE_CHECKING:
    from ..diagnostics import Diagnosis
    from ..training.retraining import Retrained

EXAMPLES = (
    "mlp check runs/digits-001",
    "mlp check runs/people --fix",
    "mlp check model.safetensors --data people.csv --json",
)


def check(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="The folder of a run, or a model file.", show_default=False)
    ],
    data: Annotated[
        str | None,
        option("--data", text="A table with the target.", metavar="FILE", default="the table of the run"),
    ] = None,
    fix: Annotated[bool, flag("--fix", text="Train again with the first remedy of each finding, and compare.")] = False,
    sharpness: Annotated[
        bool,
        flag(
            "--sharpness", text="Measure the largest eigenvalue of the Hessian, for the largest stable learning rate."
        ),
    ] = False,
    strict: Annotated[bool, flag("--strict", text="Exit with code 1 if there is a finding.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find what went wrong in training a model.

    A healthy run has no findings. A finding says what was measured, where, and what to do.
    """
    from ..diagnostics import check as check_model

    if fix and not (model / "config.json").exists():
        raise OptionError(f"--fix needs the folder of a run, which knows its options and its table, got {model}")
    diagnosis = check_model(model, data, sharpness=sharpness)
    if not as_json:
        _print(diagnosis)
    retrained = _retrained(model, diagnosis, data, as_json=as_json) if fix else []
    if as_json:
        print(strict_json(_as_json(diagnosis, retrained, fix=fix)))
    else:
        _print_outcomes(diagnosis, retrained)
    if strict and diagnosis.findings:
        raise typer.Exit(1)


def _as_json(diagnosis: Diagnosis, retrained: list[Retrained | None], *, fix: bool) -> dict[str, Any]:
    found = diagnosis.to_dict()
    if fix:
        found["fixes"] = [None if one is None else one.to_dict() for one in retrained]
    return found


def _retrained(path: Path, diagnosis: Diagnosis, data: str | None, *, as_json: bool) -> list[Retrained | None]:
    """Apply the first remedy of each finding. None where training again cannot apply one.

    Findings with the same remedy share one run.
    """
    from ..training.retraining import applicable, retrain
    from ..training.signals import reraise_signal

    found: list[Retrained | None] = []
    for finding in diagnosis.findings:
        if not any(remedy.changes for remedy in finding.remedies):
            found.append(None)
            continue
        remedy = applicable(finding)
        known = next((one for one in found if one is not None and one.remedy == remedy), None)
        if known is None and not as_json:
            typer.echo(f"training again: {remedy.text}", err=True)
        new = retrain(path, finding, data=data) if known is None else replace(known, finding=finding)
        reraise_signal(new.run.signal)
        found.append(new)
    return found


def _print(diagnosis: Diagnosis) -> None:
    from ..diagnostics.display import print_findings

    found = diagnosis.measurements.sharpness
    if found is not None:
        print(
            f"sharpness {found.eigenvalue:.4g}: gradient descent is stable up to a learning rate of "
            f"{found.stable_rate:.3g}"
        )
    if not diagnosis.findings:
        print("no findings")
        return
    print_findings(console(), [one.to_dict() for one in diagnosis.findings])


def _print_outcomes(diagnosis: Diagnosis, retrained: list[Retrained | None]) -> None:
    from ..diagnostics.display import title

    for finding, new in zip(diagnosis.findings, retrained, strict=False):
        print(f"{title(finding.kind)}: {_outcome(new)}")


def _outcome(new: Retrained | None) -> str:
    if new is None:
        return "training again does not help"
    result = "cured" if new.cured else "gone, but the model is worse" if new.gone else "not cured"
    if new.before is None or new.after is None:
        return result
    return f"{result}, validation loss {new.before:.4g} → {new.after:.4g}"
