"""The report of a run as plain data, and as a page.

    run folder   config.json, events.jsonl, model.safetensors    how training went, the network, its cost
    report.json  beside them, written when training ends         how good the model is, while its data is at hand

So a report can be made again at any time, anywhere, without the data. With other rows that have their target the same
judgement is made of those.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...core import atomic_files, canonical_json
from ...data import Table, TrainingData
from ...errors import FileError, MultilayerError, RunError
from ...models import metrics
from ...models.trained_model import TrainedModel
from ...runs import RunFolder, no_model
from ...runs.events import Event
from .. import html as page
from . import column_importance, curves, data_summary, quality, run_summary, verdict
from .column_importance import SECONDS
from .sample import Sample, of_prepared, of_source

FORMAT, VERSION = "multilayer-report", 1
STORED = "report.json"
_LARGEST = 1 << 26
_DAMAGED = "not what a run leaves behind: delete it, and judge the model by rows of your own with --data"


# What needs the data


def evaluation(
    model: TrainedModel,
    judged: Sample,
    train: Sample | None,
    table: Table | None,
    *,
    metric: str | None = None,
    notes: Sequence[str] = (),
    seconds: float = SECONDS,
) -> dict[str, Any]:
    """How good a model is on some rows, and what those rows are."""
    task = model.encoding.task
    names = metrics.names_for(task)
    metric = metric if metric in names else task.metric
    guess = quality.guess_of(judged if train is None else train)
    important = column_importance.importance(judged, metric, seconds=seconds)
    ranked = [] if important is None else sorted(important["columns"], key=lambda one: -(one["mean"] or 0.0))
    first = [one["name"] for one in ranked]
    return {
        "format": FORMAT,
        "version": VERSION,
        "rows": len(judged),
        "origin": judged.origin,
        "in_turn": judged.judges is not None,
        "task": task.kind,
        "classifies": task.classifies,
        "targets": [str(name) for name in task.names],
        "metric": metric,
        "metrics": quality.figures(judged, train, guess),
        "confusion": quality.confusion(judged),
        "labels": quality.label_table(judged),
        "curves": curves.curves(judged),
        "calibration": curves.calibration(judged),
        "residuals": curves.residuals(judged),
        "coverage": curves.coverage(judged),
        "importance": important,
        "worst": data_summary.worst(judged, first),
        "data": None if table is None else data_summary.summary(table, model.encoding, first),
        "notes": [str(note) for note in notes],
    }


def of_run(
    model: TrainedModel,
    prepared: TrainingData,
    source: Any,
    validation: Any,
    *,
    metric: str | None,
    seconds: float = SECONDS,
) -> dict[str, Any]:
    """The evaluation of a model that has just been trained."""
    judged, train, table = of_prepared(model, prepared, source, validation)
    return evaluation(model, judged, train, table, metric=metric, notes=prepared.notes, seconds=seconds)


def of_rows(model: TrainedModel, source: Any, metric: str | None) -> dict[str, Any]:
    """The evaluation of a model on rows that it may never have seen."""
    judged, table = of_source(model, source)
    return evaluation(model, judged, None, table, metric=metric)


def store(path: Path, found: dict[str, Any]) -> None:
    atomic_files.write(path / STORED, canonical_json.dumps(found).encode())


def stored(path: Path) -> dict[str, Any] | None:
    """What was found when training ended; None where nothing was kept."""
    file = path / STORED
    if not os.path.lexists(file):
        return None
    found = canonical_json.loads(atomic_files.read(file, limit=_LARGEST, root=path), str(file))
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise FileError(f"{file}: {_DAMAGED}")
    if found.get("version") != VERSION:
        raise FileError(f"{file}: its version must be {VERSION}, got {found.get('version')!r}: update multilayer")
    return found


# The whole report


def report(path: str | Path, *, data: Any = None) -> dict[str, Any]:
    """The report of a run's folder as plain data; with `data`, the model is judged by those rows."""
    folder = RunFolder.open(path)
    model = TrainedModel.load(folder.model, root=folder.path) if os.path.lexists(folder.model) else None
    saved = folder.config if model is not None else folder.config_with("spec")
    found = stored(folder.path)
    if data is not None:
        if model is None:
            raise RunError(no_model(folder.path))
        found = of_rows(model, data, None if found is None else found["metric"])
    log = folder.events()
    try:
        return assemble(folder.path.name, saved, log, model, found)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        if found is None or data is not None or isinstance(error, MultilayerError):
            raise
        raise FileError(f"{folder.path / STORED}: {_DAMAGED}") from None


def assemble(
    name: str, saved: dict[str, Any], log: Sequence[Event], model: TrainedModel | None, found: dict[str, Any] | None
) -> dict[str, Any]:
    """The report of its parts."""
    from ...spec import Spec

    spec = model.spec if model is not None else Spec.from_dict(saved["spec"])
    config, effective = saved.get("config", {}), saved.get("effective", {})
    run = run_summary.ending(log)
    members = len(model.members) if model is not None else config.get("ensemble", 1)
    made: dict[str, Any] = {
        "name": name,
        "run": run,
        "curves": run_summary.curves(log),
        "evaluation": found,
        "network": run_summary.network(spec),
        "members": members,
        "cost": run_summary.account(spec, config, effective, run["engine"], members),
        "predicted": None if found is None else found.get("predicted"),
        "config": config,
        "effective": effective,
        "again": run_summary.again(saved, spec),
    }
    return {**made, "verdict": verdict.verdict(made)}


def html(reports: Sequence[dict[str, Any]], *, live: bool = False) -> str:
    """One page of one or several reports, side by side."""
    return page.fill("report", {"kind": "report", "version": VERSION, "live": live, "runs": list(reports)}, live=live)
