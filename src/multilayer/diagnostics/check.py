"""`check`: measure a trained model, and return what went wrong.

findings = every detector of `DETECTORS`, without those that a found cause explains
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from ..data import make_training_data
from ..errors import DataError, RunError, SpecError, option_name
from ..export.protocol import model_of
from ..models.trained_model import TrainedModel, load
from ..runs import RunFolder
from ..runs.config import Config
from ..runs.events import End
from ..runs.stored_data import ANY_TABLE, CommandSource, command_source, from_stored, read_once
from ..spec import Spec
from . import data_detectors, fit_detectors, training_detectors, unit_detectors
from .case import Case
from .display import html_table
from .findings import Finding, in_order
from .history import History
from .measurements import Measurements
from .rows import Samples

Detector = Callable[[Case], Iterator[Finding]]

DETECTORS: Mapping[str, Detector] = {
    "symmetric_units": unit_detectors.symmetric_units,
    "unscaled_inputs": data_detectors.unscaled_inputs,
    "exploding_gradients": training_detectors.exploding_gradients,
    "rate_too_high": training_detectors.rate_too_high,
    "vanishing_gradients": training_detectors.vanishing_gradients,
    "dead_units": unit_detectors.dead_units,
    "saturated_units": unit_detectors.saturated_units,
    "rate_too_low": training_detectors.rate_too_low,
    "leakage": data_detectors.leakage,
    "label_noise": data_detectors.label_noise,
    "wrong_loss": data_detectors.wrong_loss,
    "batch_norm_small_batch": data_detectors.batch_norm_small_batch,
    "underfitting": fit_detectors.underfitting,
    "overfitting": fit_detectors.overfitting,
}
"""The detector of each kind of finding."""

_BROKEN = frozenset(
    {
        *("symmetric_units", "exploding_gradients", "rate_too_high", "vanishing_gradients", "saturated_units"),
        *("unscaled_inputs", "rate_too_low", "batch_norm_small_batch", "dead_units"),
    }
)
"""Faults that keep a network from learning, so that its errors say nothing about the data."""
EXPLAINS: Mapping[str, frozenset[str]] = {
    "underfitting": _BROKEN | {"label_noise", "wrong_loss"},
    "label_noise": _BROKEN | {"underfitting"},
    "rate_too_low": frozenset({"symmetric_units", "vanishing_gradients", "exploding_gradients"}),
    "rate_too_high": frozenset({"symmetric_units", "exploding_gradients", "unscaled_inputs"}),
    "exploding_gradients": frozenset({"unscaled_inputs"}),
    "vanishing_gradients": frozenset({"symmetric_units"}),
    "dead_units": frozenset({"symmetric_units"}),
}
"""Findings that are omitted if one of their causes was found."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Diagnosis:
    """The findings of a check, and the measurements behind them.

    Attributes
    ----------
    findings : tuple of Finding
        The faults, causes before effects. Empty for a healthy run.
    measurements : Measurements
        Everything that was measured.
    """

    findings: tuple[Finding, ...]
    measurements: Measurements

    def __str__(self) -> str:
        return "\n".join(f"{one.severity}: {one.message}" for one in self.findings) or "no findings"

    def __repr__(self) -> str:
        return f"Diagnosis({', '.join(one.kind for one in self.findings) or 'no findings'})"

    def to_dict(self) -> dict[str, Any]:
        """Return findings and measurements as JSON values."""
        return {"findings": [one.to_dict() for one in self.findings], "measurements": self.measurements.to_dict()}

    def _repr_html_(self) -> str:
        """Return the findings as a table for a notebook."""
        return html_table([one.to_dict() for one in self.findings]) or "<p>no findings</p>"


def check(model: Any, data: Any = None, *, sharpness: bool = False) -> Diagnosis:
    """Find what went wrong in training a model.

    Parameters
    ----------
    model : Run, str, Path, TrainedModel or fitted estimator
        A run of `ml.fit`, the folder of a run, a model file, a trained model, or a fitted estimator.
    data : optional
        A table with the target. A run in memory and the folder of a run that was trained on a file or a bundled data
        set know their rows, and need no data. If data is given, it counts as the training rows.
    sharpness : bool
        Whether to measure the largest eigenvalue of the Hessian of the loss, which takes longer.

    Returns
    -------
    Diagnosis
        The findings, each with its place, its numbers and remedies. A healthy run has none.

    Raises
    ------
    DataError
        If the rows are needed and not given.
    RunError
        If the run has not ended.

    Examples
    --------
    >>> import multilayer as ml
    >>> run = ml.fit("4-8-3", "iris", init="zeros", epochs=5, quiet=True)
    >>> ml.check(run)
    Diagnosis(symmetric_units)
    """
    if isinstance(model, str | Path) and (Path(model) / "config.json").exists():
        return _check_folder(Path(model), data, sharpness=sharpness)
    samples, history = getattr(model, "samples", None), History.of(getattr(model, "log", ()))
    if history is not None and samples is None and data is None and getattr(model, "path", None) is not None:
        return _check_folder(cast(Any, model).path, None, sharpness=sharpness)  # a run that `resume` has loaded
    if isinstance(samples, Samples) and data is None:
        run = cast(Any, model)
        return diagnose(run.model, samples, history, source=run.source, fresh=run.fresh, sharpness=sharpness)
    found = load(model) if isinstance(model, str | Path) else model_of(model)
    if not isinstance(found, TrainedModel):
        raise SpecError(f"check needs a trained model or a run, got {type(found).__name__}: train it with ml.fit first")
    if data is None:
        raise DataError(
            f"check needs rows with their target: set {option_name('data')}, or pass the folder of a run, which "
            "knows its table"
        )
    rows = Samples.of_source(found, data)
    if history is None:
        return diagnose(found, rows, None, sharpness=sharpness)
    run = cast(Any, model)
    return diagnose(found, rows, history, source=run.source.with_table(data), fresh=run.fresh, sharpness=sharpness)


def _check_folder(path: Path, data: Any, *, sharpness: bool) -> Diagnosis:
    with RunFolder.open(path) as folder:
        events = folder.events(effective=True)
        if not events or not isinstance(events[-1], End) or not folder.model.exists():
            raise RunError(f"{path} has no model yet: resume it with mlp resume {path}")
        model, history = TrainedModel.load(folder.model, root=folder.path), History.of(events)
        saved = folder.config_with("config", "data", "spec")
        stored, config = saved["data"], Config.from_dict(saved["config"], where=str(path))
        if data is not None:
            rows, table = Samples.of_source(model, data), command_source(stored).with_table(data)
            return diagnose(model, rows, history, source=table, sharpness=sharpness)
        if stored["path"] is None:
            raise RunError(f"{path} was trained on data in memory: set {option_name('data')} to rows with their target")
        if "validation" in stored["in_memory"]:
            config = replace(config, validation=None)
        not_needed: dict[str, Any] = {"in_memory": []}  # weights and validation rows
        source, options = from_stored(stored | not_needed, path, data=None, validation=None, sample_weight=None)
        spec = Spec.from_dict(saved["spec"])
        options = replace(options, inputs=spec.inputs, outputs=spec.d_out)
        prepared = make_training_data(read_once(source), options, config)
        if prepared.encoding != model.encoding:
            raise RunError(
                f"{stored['path']} differs from the training data of {path}: set {option_name('data')} to rows with "
                "their target"
            )
        samples = Samples.of_training(model, prepared)
        return diagnose(model, samples, history, source=command_source(stored), sharpness=sharpness)


def diagnose(
    model: TrainedModel,
    samples: Samples,
    history: History | None,
    *,
    source: CommandSource = ANY_TABLE,
    fresh: bool = True,
    full: bool = True,
    sharpness: bool = False,
) -> Diagnosis:
    """Measure a model on samples of its rows, and run all detectors. Without `full`, measure only what they need."""
    measured = Measurements.of(
        model, samples, history, fresh=fresh, full=full, curvature=sharpness, own_loss=source.own_loss
    )
    return Diagnosis(findings=findings_of(Case(model=model, measured=measured, source=source)), measurements=measured)


def findings_of(case: Case) -> tuple[Finding, ...]:
    """Return the findings of all detectors, without those that another finding explains.

    If simple methods are not better than the network, no fault of the network explains wrong predictions.
    """
    found = [finding for detect in DETECTORS.values() for finding in detect(case)]
    own_cause = {"underfitting"} if case.limits else set[str]()
    return unexplained(found, own_cause=own_cause if case.behind else own_cause | {"label_noise"})


def unexplained(findings: Sequence[Finding], *, own_cause: AbstractSet[str] = frozenset()) -> tuple[Finding, ...]:
    """Return the findings whose cause was not found, causes first. Kinds with an `own_cause` are always returned."""
    kinds = {one.kind for one in findings}
    explained = {kind for kind, causes in EXPLAINS.items() if kind not in own_cause and causes & kinds}
    if "underfitting" in explained:  # it cannot explain another finding then
        explained -= {kind for kind in explained if not EXPLAINS[kind] & (kinds - {"underfitting"})}
    return in_order([one for one in findings if one.kind not in explained])
