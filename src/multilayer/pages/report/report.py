"""The report of a run as plain data, and as a page.

    config.json, events.jsonl, model.safetensors   training, network and cost
    report.json, written when training ends        evaluation of the model, computed from the data

All these files are in the run folder, so the report can be made again without the data. If other rows with a target are
passed, the model is evaluated on them.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from ...core import atomic_files, canonical_json, machine
from ...costs import cost, options_of_run
from ...costs.summary import summarize
from ...data import Table, TrainingData
from ...errors import FileError, MultilayerError, RunError
from ...models import metrics
from ...models.trained_model import TrainedModel
from ...nn import schedules
from ...runs import RunFolder, events, no_model
from ...runs.config import Config
from ...runs.events import (
    Checkpoint,
    End,
    EpochEnd,
    Event,
    NonFinite,
    Notice,
    Progress,
    Resume,
    RolledBack,
    Spike,
    Start,
)
from ...spec import Spec
from .. import html as page
from . import column_importance, data_summary, faults, quality, reachable
from .column_importance import SECONDS
from .quality import number
from .sample import Sample, of_prepared, of_source
from .verdict import verdict

FORMAT, VERSION = "multilayer-report", 1
STORED = "report.json"
MOST_POINTS = 300
"""Points of a curve. Longer logs are thinned evenly."""
_LARGEST = 1 << 26
"""Largest size of report.json, in bytes."""
_DAMAGED = "expected the evaluation of a run, got something else: delete the file, and evaluate the model with --data"


def report(path: str | Path, *, data: Any = None) -> dict[str, Any]:
    """Return the report of a run folder as plain data.

    Parameters
    ----------
    path : str or Path
        Run folder.
    data : optional
        Rows with a target to evaluate the model on, in any form that `model.evaluate` takes. By default, the report has
        the evaluation that was stored when training ended.

    Returns
    -------
    dict
        The report, with values that JSON can store. `html` makes a page of one or several reports.

    Raises
    ------
    RunError
        If there is no run at `path`, or if `data` is passed and the run has no model.
    FileError
        If a file of the run is damaged or comes from another version.
    DataError
        If `data` does not fit the model.

    Examples
    --------
    >>> import tempfile
    >>> import multilayer as ml
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = ml.fit("4-3", "iris", epochs=1, run=f"{folder}/iris", quiet=True)
    ...     report(f"{folder}/iris")["evaluation"]["metric"]
    'accuracy'
    """
    folder = RunFolder.open(path)
    model = TrainedModel.load(folder.model, root=folder.path) if os.path.lexists(folder.model) else None
    saved = folder.config if model is not None else folder.config_with("spec")
    evaluated = stored(folder.path)
    if data is not None:
        if model is None:
            raise RunError(no_model(folder.path))
        sample, table = of_source(model, data)
        evaluated = evaluation(sample, None, table, metric=None if evaluated is None else evaluated["metric"])
    log = folder.events()
    try:
        return assemble(folder.path.name, saved, log, model, evaluated)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        if evaluated is None or data is not None or isinstance(error, MultilayerError):
            raise
        raise FileError(f"{folder.path / STORED}: {_DAMAGED}") from None


def assemble(
    name: str, saved: dict[str, Any], log: Sequence[Event], model: TrainedModel | None, evaluated: dict[str, Any] | None
) -> dict[str, Any]:
    """Return the report from the contents of a run folder. `evaluated` is the evaluation."""
    spec = model.spec if model is not None else Spec.from_dict(saved["spec"])
    config, effective = saved.get("config", {}), saved.get("effective", {})
    run = ending(log)
    members = len(model.members) if model is not None else config.get("ensemble", 1)
    made: dict[str, Any] = {
        "name": name,
        "run": run,
        "findings": faults.described_findings(log),
        "curves": history(log),
        "evaluation": evaluated,
        "network": {**summarize(spec).to_dict(), "outputs": spec.d_out},
        "members": members,
        "cost": account(spec, config, effective, run["engine"], members),
        "predicted": evaluated.get("predicted") if evaluated is not None else None,
        "config": config,
        "effective": effective,
        "again": again(saved, spec),
    }
    return {**made, "verdict": verdict(made)}


def html(reports: Sequence[dict[str, Any]], *, live: bool = False) -> str:
    """Return a page that shows one report, or compares several. If `live`, the page follows the run."""
    return page.fill("report", {"kind": "report", "version": VERSION, "live": live, "runs": list(reports)}, live=live)


# The evaluation, which needs the data


def evaluation(
    sample: Sample,
    train: Sample | None,
    table: Table | None,
    *,
    metric: str | None = None,
    notes: Sequence[str] = (),
    seconds: float = SECONDS,
) -> dict[str, Any]:
    """Return the evaluation of a model on the rows of `sample`, and a summary of the data.

    `references`, the comparison with simple methods, needs the training rows: `of_run` adds it.
    """
    encoding = sample.model.encoding
    task = encoding.task
    metric = metric if metric in metrics.names_for(task) else task.metric
    important = column_importance.importance(sample, metric, seconds=seconds)
    first = [column["name"] for column in important["columns"]] if important is not None else []
    return {
        "format": FORMAT,
        "version": VERSION,
        "rows": len(sample),
        "origin": sample.origin,
        "in_turn": sample.judges is not None,
        "task": task.kind,
        "classifies": task.classifies,
        "targets": [str(name) for name in task.names],
        "metric": metric,
        "metrics": quality.figures(sample, train),
        "confusion": quality.confusion(sample),
        "labels": quality.label_table(sample),
        "curves": quality.curves(sample),
        "calibration": quality.calibration(sample),
        "residuals": quality.residuals(sample),
        "coverage": quality.coverage(sample),
        "importance": important,
        "references": None,
        "worst": data_summary.worst(sample, first),
        "data": None if table is None else data_summary.summary(table, encoding, first),
        "notes": [str(note) for note in notes],
    }


def of_run(
    model: TrainedModel, prepared: TrainingData, source: Any, validation: Any, *, metric: str | None, seconds: float
) -> dict[str, Any]:
    """Return the evaluation of a model that has just been trained."""
    sample, train, table = of_prepared(model, prepared, source, validation)
    found = evaluation(sample, train, table, metric=metric, notes=prepared.notes, seconds=seconds)
    return {**found, "references": reachable.compare(model, prepared)}


def write(folder: RunFolder, log: Sequence[Event], model: TrainedModel, evaluated: dict[str, Any]) -> None:
    """Write report.json and report.html into a run folder. `report` gives the same page from the folder."""
    text = canonical_json.dumps(evaluated)
    atomic_files.write(folder.path / STORED, text.encode())
    same = canonical_json.loads(text, STORED)  # keys in the order of the file
    made = assemble(folder.path.name, folder.config, log, model, cast("dict[str, Any]", same))
    atomic_files.write(folder.report, html([made]).encode())


def stored(path: Path) -> dict[str, Any] | None:
    """Return the evaluation in a run folder. None if the folder has no evaluation."""
    file = path / STORED
    if not os.path.lexists(file):
        return None
    found = canonical_json.loads(atomic_files.read(file, limit=_LARGEST, root=path), str(file))
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise FileError(f"{file}: {_DAMAGED}")
    if found.get("version") != VERSION:
        raise FileError(f"{file}: its version must be {VERSION}, got {found.get('version')!r}: update multilayer")
    return found


# Training


def history(log: Sequence[Event]) -> dict[str, Any]:
    """Return losses, learning rates and gradient norms by step, and special events, from all lines of a log."""
    current = events.effective(log)
    epochs = [event for event in current if isinstance(event, EpochEnd)]
    steps = [event for event in current if isinstance(event, Progress)]
    length = epochs[0].step if epochs else 0
    of_steps = [(event.step, event.gradient_norm) for event in steps]
    of_epochs = [(event.step, event.gradient_norm) for event in epochs if event.gradient_norm is not None]
    return {
        "steps_per_epoch": length or None,
        "epochs": [
            {
                "epoch": event.step // length,
                "step": event.step,
                "loss": number(event.loss),
                "validation": number(event.validation_loss),
                "metrics": {name: number(value) for name, value in event.metrics.items()},
            }
            for event in _thinned(epochs)
        ],
        "steps": [{"step": event.step, "loss": number(event.loss)} for event in _thinned(steps)],
        # The log of a short run has more epochs than steps.
        "norms": [[step, number(norm)] for step, norm in _thinned(max(of_steps, of_epochs, key=len))],
        "rates": _rates(current, length),
        "marks": _marks(log, current),
    }


def _rates(current: Sequence[Event], length: int) -> list[list[float]]:
    """Return steps and learning rates, computed from the schedule. The log has too few steps for a periodic one."""
    start = next((event for event in current if isinstance(event, Start)), None)
    if start is None or not length:
        return []
    schedule, total = schedules.get(start.config["schedule"]), length * start.config["epochs"]
    factors = [(event.to_step, event.rate_factor) for event in current if isinstance(event, RolledBack)]
    found: list[list[float]] = []
    for step in _thinned(range(1, min(current[-1].step, total) + 1)):
        factor = next((value for place, value in reversed(factors) if place < step), 1.0)
        found.append([step, start.config["learning_rate"] * schedule(step - 1, total) * factor])
    return found


def _thinned(points: Sequence[Any]) -> Sequence[Any]:
    if len(points) <= MOST_POINTS:
        return points
    return [points[i * (len(points) - 1) // (MOST_POINTS - 1)] for i in range(MOST_POINTS)]


def _marks(log: Sequence[Event], current: Sequence[Event]) -> list[dict[str, Any]]:
    best = [event.step for event in current if isinstance(event, Checkpoint) and event.kind == "best"]
    best += [event.step for event in current if isinstance(event, End) and event.reason == events.NO_MISTAKES]
    found = [("best", step, "the epoch of the model") for step in best[-1:]]
    # The effective log has no resumes.
    marked = [*(event for event in log if isinstance(event, Resume)), *current]
    found += [mark for event in marked if (mark := _mark(event)) is not None]
    found.sort(key=lambda mark: mark[1])
    return [{"kind": kind, "step": step, "text": text} for kind, step, text in found]


def _mark(event: Event) -> tuple[str, int, str] | None:
    """Return kind, step and text of the mark of an event. None if the curves do not show the event."""
    match event:
        case Resume():
            return "resume", event.step, "resumed from a checkpoint" if event.checkpoint else "restarted at step 0"
        case Spike():
            limit = f"exceeds its limit {event.limit:.4g}"
            return "spike", event.step, f"the loss {event.loss:.4g} {limit}; the gradient is largest in {event.layer}"
        case RolledBack():
            factor = f"learning rate × {event.rate_factor:g}"
            return "rollback", event.to_step, f"back to step {event.to_step:,}, {factor}: {event.reason}"
        case NonFinite():
            return "not finite", event.step, f"a {event.where} that is not finite in {event.layer}"
        case Notice():  # the verdict gives a remedy, because it knows the whole run
            return "notice", event.step, event.message
        case End(status="stopped"):
            return "stopped", event.step, event.reason
        case End(status="interrupted"):
            return "interrupted", event.step, "stopped by a signal"
        case _:
            return None


def ending(log: Sequence[Event]) -> dict[str, Any]:
    """Return status, epochs, steps and time of a run."""
    current = events.effective(log)
    start = next((event for event in current if isinstance(event, Start)), None)
    end = next((event for event in reversed(current) if isinstance(event, End)), None)
    epochs = [event for event in current if isinstance(event, EpochEnd)]
    trained = sum(event.seconds for event in epochs)
    return {
        "status": "running" if end is None else end.status,
        "reason": "" if end is None else end.reason,
        "epochs": len(epochs),
        "steps": current[-1].step if current else 0,
        "seconds": None if end is None else end.seconds,
        "step_seconds": trained / epochs[-1].step if epochs and epochs[-1].step else None,
        "rows_per_second": epochs[-1].rows_per_second if epochs else None,
        "engine": "" if start is None else start.engine,
        "seed": None if start is None else start.seed,
        "rows": None if start is None else start.rows,
        "versions": {} if start is None else start.versions,
    }


# Cost


def account(
    spec: Spec, config: dict[str, Any], effective: dict[str, Any], engine: str, members: int = 1
) -> dict[str, Any]:
    """Return the exact cost of a step and of a prediction, by layer for one member and in total for all members."""
    batch = effective.get("batch_size") or config.get("batch_size") or 32
    loss = effective.get("loss", "auto")
    step = cost(
        spec,
        batch=batch,
        loss=loss,
        rows=effective.get("rows"),
        **options_of_run({**config, "engine": engine}),
        mixup="mixup" in str(config.get("augment")),
    )
    return {
        "batch": batch,
        "parameters": members * step.parameters,
        "layers": [
            {
                "name": row.name,
                "what": row.what,
                "parameters": row.parameters,
                "forward": int(row.forward.total),
                "backward": int(row.backward.total),
            }
            for row in step.layers
        ],
        "step": members * step.step,
        "epoch": None if step.epoch is None else members * step.epoch.flops,
        "row": members * cost(spec, batch=1, loss=loss).forward,
        "memory": members * step.memory.total,
        "file": members * step.memory.parameters,
    }


def predicted_seconds(
    spec: Spec, config: dict[str, Any], effective: dict[str, Any], engine: str, members: int = 1
) -> dict[str, Any] | None:
    """Return the lower bound of the time of a step on this machine. None if its speed has not been measured."""
    here = machine.load_measured()
    if here is None or engine != "fused":
        return None
    from ...costs.roofline import predict

    step = cost(
        spec,
        batch=effective.get("batch_size") or 32,
        optimizer=config.get("optimizer", "adam"),
        loss=effective.get("loss", "auto"),
        engine="fused",
        dtype=config.get("dtype", "float32"),
    )
    threads = min(effective.get("threads") or here.threads, here.threads)
    found = predict(step, here, threads=max(1, threads // members))
    return {
        "step": found.seconds * -(-members // threads) if members > 1 else found.seconds,
        "rows": {row.name: row.seconds for row in found.rows},
        "processor": here.processor,
        "threads": effective.get("threads"),
    }


# Repeating the run


def again(saved: dict[str, Any], spec: Spec) -> dict[str, Any]:
    """Return the command and the Python code that repeat this run, and notes on data that was in memory."""
    data = saved.get("data", {})
    usual = Config().to_dict()
    config = {key: value for key, value in saved.get("config", {}).items() if key in usual and value != usual[key]}
    source = data.get("path")
    notes: list[str] = []
    if source is None:
        notes.append("The data was in memory: replace `data` by your data.")
    if "sample_weight" in data.get("in_memory", ()):
        notes.append("The sample weights were in memory: pass them as `sample_weight`.")
    if "validation" in data.get("in_memory", ()):
        notes.append("The validation data was in memory: pass it as `validation`.")
    return {
        "command": None if source is None or notes else _command(source, data, config, spec),
        "python": _python(source, data, config, spec),
        "notes": notes,
    }


def _command(source: str, data: dict[str, Any], config: dict[str, Any], spec: Spec) -> str | None:
    if data.get("keep_constant") or any(isinstance(value, dict) for value in config.values()):
        return None  # the command has no option for constant columns or for weights of classes
    target = data.get("target")
    named = {"--target": ",".join(target) if isinstance(target, list) else target, "--arch": str(spec)}
    named |= {
        "--group": data.get("group"),
        "--time-column": data.get("time_column"),
        "--sample-weight": data.get("sample_weight"),
    }
    words = ["mlp", "train", source]
    for option, value in named.items():
        words += [] if value is None else [option, str(value)]
    for name in data.get("categorical") or ():
        words += ["--categorical", name]
    for key, value in config.items():
        option = key.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        else:
            words += [f"--{option}", "none" if value is None else str(value)]
    return shlex.join(words)


def _python(source: str | None, data: dict[str, Any], config: dict[str, Any], spec: Spec) -> str:
    arguments = {
        "target": data.get("target"),
        "group": data.get("group"),
        "time_column": data.get("time_column"),
        "sample_weight": data.get("sample_weight"),
        "categorical": data.get("categorical"),
        "keep_constant": data.get("keep_constant") or None,
    }
    chosen = {key: value for key, value in arguments.items() if value is not None} | config
    lines = [repr(str(spec)), "data" if source is None else repr(source)]
    lines += [f"{key}={value!r}" for key, value in chosen.items()]
    inside = "".join(f"    {line},\n" for line in lines)
    return f"import multilayer as ml\n\nrun = ml.fit(\n{inside})\n"
