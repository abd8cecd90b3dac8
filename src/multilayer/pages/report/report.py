"""The report of a run as plain data, and as a page.

    run folder   config.json, events.jsonl, model.safetensors    how training went, the network, its cost
    report.json  in the same folder, written when training ends  how good the model is, computed from the data

So a report can be made again at any time, anywhere, without the data. If other rows with a target are passed, the model
is evaluated on those.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from ...core import atomic_files, canonical_json, machine
from ...costs import cost
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
from . import column_importance, data_summary, quality
from .column_importance import SECONDS
from .quality import number
from .sample import Sample, of_prepared, of_source
from .verdict import verdict

FORMAT, VERSION = "multilayer-report", 1
STORED = "report.json"
MOST_POINTS = 300
"""Points of a curve. Longer logs are thinned evenly."""
_LARGEST = 1 << 26
_DAMAGED = "not what a run leaves behind: delete it, and judge the model by rows of your own with --data"


def report(path: str | Path, *, data: Any = None) -> dict[str, Any]:
    """Return the report of a run folder as plain data. If `data` is passed, the model is evaluated on those rows."""
    folder = RunFolder.open(path)
    model = TrainedModel.load(folder.model, root=folder.path) if os.path.lexists(folder.model) else None
    saved = folder.config if model is not None else folder.config_with("spec")
    found = stored(folder.path)
    if data is not None:
        if model is None:
            raise RunError(no_model(folder.path))
        judged, table = of_source(model, data)
        found = evaluation(judged, None, table, metric=None if found is None else found["metric"])
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
    """Return the report made from the content of a run folder; `found` is the evaluation."""
    spec = model.spec if model is not None else Spec.from_dict(saved["spec"])
    config, effective = saved.get("config", {}), saved.get("effective", {})
    run = ending(log)
    members = len(model.members) if model is not None else config.get("ensemble", 1)
    made: dict[str, Any] = {
        "name": name,
        "run": run,
        "curves": history(log),
        "evaluation": found,
        "network": {**summarize(spec).to_dict(), "outputs": spec.d_out},
        "members": members,
        "cost": account(spec, config, effective, run["engine"], members),
        "predicted": None if found is None else found.get("predicted"),
        "config": config,
        "effective": effective,
        "again": again(saved, spec),
    }
    return {**made, "verdict": verdict(made)}


def html(reports: Sequence[dict[str, Any]], *, live: bool = False) -> str:
    """Return one page with one or several reports, side by side."""
    return page.fill("report", {"kind": "report", "version": VERSION, "live": live, "runs": list(reports)}, live=live)


# The evaluation, which needs the data


def evaluation(
    judged: Sample,
    train: Sample | None,
    table: Table | None,
    *,
    metric: str | None = None,
    notes: Sequence[str] = (),
    seconds: float = SECONDS,
) -> dict[str, Any]:
    """Return how good a model is on the rows `judged`, and a summary of the data."""
    encoding = judged.model.encoding
    task = encoding.task
    metric = metric if metric in metrics.names_for(task) else task.metric
    important = column_importance.importance(judged, metric, seconds=seconds)
    first = [] if important is None else [column["name"] for column in important["columns"]]
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
        "metrics": quality.figures(judged, train),
        "confusion": quality.confusion(judged),
        "labels": quality.label_table(judged),
        "curves": quality.curves(judged),
        "calibration": quality.calibration(judged),
        "residuals": quality.residuals(judged),
        "coverage": quality.coverage(judged),
        "importance": important,
        "worst": data_summary.worst(judged, first),
        "data": None if table is None else data_summary.summary(table, encoding, first),
        "notes": [str(note) for note in notes],
    }


def of_run(
    model: TrainedModel, prepared: TrainingData, source: Any, validation: Any, *, metric: str | None, seconds: float
) -> dict[str, Any]:
    """Return the evaluation of a model that has just been trained."""
    judged, train, table = of_prepared(model, prepared, source, validation)
    return evaluation(judged, train, table, metric=metric, notes=prepared.notes, seconds=seconds)


def write(folder: RunFolder, model: TrainedModel, found: dict[str, Any]) -> None:
    """Write the evaluation of a model into the folder of its run, then the page that `report` makes of the folder."""
    text = canonical_json.dumps(found)
    atomic_files.write(folder.path / STORED, text.encode())
    same = canonical_json.loads(text, STORED)  # in the order of the file
    made = assemble(folder.path.name, folder.config, folder.events(), model, cast("dict[str, Any]", same))
    atomic_files.write(folder.report, html([made]).encode())


def stored(path: Path) -> dict[str, Any] | None:
    """Return the evaluation in the folder of a run. None if there is none."""
    file = path / STORED
    if not os.path.lexists(file):
        return None
    found = canonical_json.loads(atomic_files.read(file, limit=_LARGEST, root=path), str(file))
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise FileError(f"{file}: {_DAMAGED}")
    if found.get("version") != VERSION:
        raise FileError(f"{file}: its version must be {VERSION}, got {found.get('version')!r}: update multilayer")
    return found


# How training went


def history(log: Sequence[Event]) -> dict[str, Any]:
    """Return losses, rates and gradient norms by step, and special events; `log` has every line, with its resumes."""
    told = events.effective(log)
    epochs = [event for event in told if isinstance(event, EpochEnd)]
    steps = [event for event in told if isinstance(event, Progress)]
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
        # A short run has more epochs than points in the log.
        "norms": [[step, number(norm)] for step, norm in _thinned(max(of_steps, of_epochs, key=len))],
        "rates": _rates(told, length),
        "marks": _marks(log, told),
    }


def _rates(told: Sequence[Event], length: int) -> list[list[float]]:
    """Return steps and learning rates, computed from the schedule: the log has too few points for its waves."""
    start = next((event for event in told if isinstance(event, Start)), None)
    if start is None or not length:
        return []
    schedule, total = schedules.get(start.config["schedule"]), length * start.config["epochs"]
    factors = [(event.to_step, event.rate_factor) for event in told if isinstance(event, RolledBack)]
    found: list[list[float]] = []
    for step in _thinned(range(1, min(told[-1].step, total) + 1)):
        factor = next((value for place, value in reversed(factors) if place < step), 1.0)
        found.append([step, start.config["learning_rate"] * schedule(step - 1, total) * factor])
    return found


def _thinned(points: Sequence[Any]) -> Sequence[Any]:
    if len(points) <= MOST_POINTS:
        return points
    return [points[i * (len(points) - 1) // (MOST_POINTS - 1)] for i in range(MOST_POINTS)]


def _marks(log: Sequence[Event], told: Sequence[Event]) -> list[dict[str, Any]]:
    best = [event.step for event in told if isinstance(event, Checkpoint) and event.kind == "best"]
    best += [event.step for event in told if isinstance(event, End) and event.reason == events.NO_MISTAKES]
    found = [("best", step, "the epoch of the model") for step in best[-1:]]
    # `told` has no resumes.
    happened = [*(event for event in log if isinstance(event, Resume)), *told]
    found += [mark for event in happened if (mark := _mark(event)) is not None]
    found.sort(key=lambda mark: mark[1])
    return [{"kind": kind, "step": step, "text": text} for kind, step, text in found]


def _mark(event: Event) -> tuple[str, int, str] | None:
    """Return kind, step and text of the mark of an event. None if the curves do not show the event."""
    match event:
        case Resume():
            return "resume", event.step, "went on from a checkpoint" if event.checkpoint else "started anew"
        case Spike():
            limit = f"above its band, which ends at {event.limit:.4g}"
            return "spike", event.step, f"loss {event.loss:.4g}, {limit}; the gradient was largest in {event.layer}"
        case RolledBack():
            factor = f"the learning rate times {event.rate_factor:g}"
            return "rollback", event.to_step, f"back to step {event.to_step:,}, {factor}: {event.reason}"
        case NonFinite():
            return "not finite", event.step, f"a {event.where} that is not finite in {event.layer}"
        case Notice():  # the verdict has the remedy, from the evidence of the whole run
            return "notice", event.step, event.message
        case End(status="stopped"):
            return "stopped", event.step, event.reason
        case End(status="interrupted"):
            return "interrupted", event.step, "a signal asked for it"
        case _:
            return None


def ending(log: Sequence[Event]) -> dict[str, Any]:
    """Return status, epochs, steps and time of a run."""
    told = events.effective(log)
    start = next((event for event in told if isinstance(event, Start)), None)
    end = next((event for event in reversed(told) if isinstance(event, End)), None)
    epochs = [event for event in told if isinstance(event, EpochEnd)]
    trained = sum(event.seconds for event in epochs)
    return {
        "status": "running" if end is None else end.status,
        "reason": "" if end is None else end.reason,
        "epochs": len(epochs),
        "steps": told[-1].step if told else 0,
        "seconds": None if end is None else end.seconds,
        "step_seconds": trained / epochs[-1].step if epochs and epochs[-1].step else None,
        "rows_per_second": epochs[-1].rows_per_second if epochs else None,
        "engine": "" if start is None else start.engine,
        "seed": None if start is None else start.seed,
        "rows": None if start is None else start.rows,
        "versions": {} if start is None else start.versions,
    }


# What the network costs


def account(
    spec: Spec, config: dict[str, Any], effective: dict[str, Any], engine: str, members: int = 1
) -> dict[str, Any]:
    """Return the exact cost of a step and of a prediction. Layers are those of one member, totals of all members."""
    batch = effective.get("batch_size") or config.get("batch_size") or 32
    loss = effective.get("loss", "auto")
    step = cost(
        spec,
        batch=batch,
        optimizer=config.get("optimizer", "adam"),
        loss=loss,
        engine="fused" if engine == "fused" else "torch",
        dtype=config.get("dtype", "float32"),
        rows=effective.get("rows"),
        l2=bool(config.get("l2")),
        clip=config.get("clip_norm") is not None,
        average=config.get("average") is not None,
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
    """Return the least time of a step, from the measured speed of this machine. None if it was not measured."""
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


# How to do it again


def again(saved: dict[str, Any], spec: Spec) -> dict[str, Any]:
    """Return the command and the Python code that repeat this run, and notes on data that was in memory."""
    data = saved.get("data", {})
    usual = Config().to_dict()
    config = {key: value for key, value in saved.get("config", {}).items() if key in usual and value != usual[key]}
    source = data.get("path")
    notes: list[str] = []
    if source is None:
        notes.append("The data was in memory: put your own where `data` stands.")
    if "sample_weight" in data.get("in_memory", ()):
        notes.append("Weights were in memory: hand them over as `sample_weight`.")
    if "validation" in data.get("in_memory", ()):
        notes.append("Validation data was in memory: hand it over as `validation`.")
    return {
        "command": None if source is None or notes else _command(source, data, config, spec),
        "python": _python(source, data, config, spec),
        "notes": notes,
    }


def _command(source: str, data: dict[str, Any], config: dict[str, Any], spec: Spec) -> str | None:
    if data.get("keep_constant") or any(isinstance(value, dict) for value in config.values()):
        return None  # there is no option for a table in which nothing varies, nor for weights of classes
    target = data.get("target")
    named = {"--target": ",".join(target) if isinstance(target, list) else target, "--arch": str(spec)}
    named |= {"--group": data.get("group"), "--time": data.get("time_column"), "--weight": data.get("sample_weight")}
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
