"""What a run's own folder tells: how training went, what network came of it, what it costs, how to do it again.

Everything here is read from the log, the configuration and the model file; nothing needs the data.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from ...core import machine
from ...costs import cost
from ...costs.summary import outline
from ...nn import schedules
from ...runs import events
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
from .quality import number

MOST_POINTS = 300
"""Of a curve; longer logs are thinned evenly."""


# How training went


def curves(log: Sequence[Event]) -> dict[str, Any]:
    """Loss, rate and gradient norm by step, and what happened on the way; `log` is every line, with its resumes."""
    told = events.effective(log)
    epochs = [event for event in told if isinstance(event, EpochEnd)]
    steps = [event for event in told if isinstance(event, Progress)]
    length = epochs[0].step if epochs else 0
    return {
        "steps_per_epoch": length or None,
        "epochs": [
            {
                "epoch": event.step // length,
                "step": event.step,
                "loss": number(event.loss),
                "validation": None if event.validation_loss is None else number(event.validation_loss),
                "metrics": {name: number(value) for name, value in event.metrics.items()},
            }
            for event in _thinned(epochs)
        ],
        "steps": [
            {
                "step": event.step,
                "loss": number(event.loss),
                "rate": number(event.rate),
            }
            for event in _thinned(steps)
        ],
        "norms": _norms(epochs, steps),
        "rates": _rates(told, length),
        "marks": _marks(log, told),
    }


def _norms(epochs: Sequence[EpochEnd], steps: Sequence[Progress]) -> list[list[float | None]]:
    """Step and gradient norm: of the running means, or of whole epochs where a short run has more of those."""
    of_epochs = [(event.step, event.gradient_norm) for event in epochs if event.gradient_norm is not None]
    of_steps = [(event.step, event.gradient_norm) for event in steps]
    return [[step, number(norm)] for step, norm in _thinned(max(of_steps, of_epochs, key=len))]


def _rates(told: Sequence[Event], length: int) -> list[list[float]]:
    """Step and learning rate, of the schedule itself: what is logged now and then would miss its waves."""
    start = next((event for event in told if isinstance(event, Start)), None)
    last = told[-1].step if told else 0
    if start is None or not length or not last:
        return []
    schedule, total = schedules.get(start.config["schedule"]), length * start.config["epochs"]
    factors = [(event.to_step, event.rate_factor) for event in told if isinstance(event, RolledBack)]
    found: list[list[float]] = []
    for step in _thinned(range(1, min(last, total) + 1)):
        factor = next((value for place, value in reversed(factors) if place < step), 1.0)
        found.append([step, start.config["learning_rate"] * schedule(step - 1, total) * factor])
    return found


def _thinned(points: Sequence[Any]) -> Sequence[Any]:
    if len(points) <= MOST_POINTS:
        return points
    return [points[i * (len(points) - 1) // (MOST_POINTS - 1)] for i in range(MOST_POINTS)]


def _marks(log: Sequence[Event], told: Sequence[Event]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def mark(kind: str, step: int, text: str) -> None:
        found.append({"kind": kind, "step": step, "text": text})

    best = [event.step for event in told if isinstance(event, Checkpoint) and event.kind == "best"]
    best += [event.step for event in told if isinstance(event, End) and event.reason == events.NO_MISTAKES]
    if best:
        mark("best", best[-1], "the epoch of the model")
    for event in log:
        if isinstance(event, Resume):
            mark("resume", event.step, "went on from a checkpoint" if event.checkpoint else "started anew")
    for event in told:
        if isinstance(event, Spike):
            limit = f"above its band, which ends at {event.limit:.4g}"
            mark("spike", event.step, f"loss {event.loss:.4g}, {limit}; the gradient was largest in {event.layer}")
        elif isinstance(event, RolledBack):
            factor = f"the learning rate times {event.rate_factor:g}"
            mark("rollback", event.to_step, f"back to step {event.to_step:,}, {factor}: {event.reason}")
        elif isinstance(event, NonFinite):
            mark("not finite", event.step, f"a {event.where} that is not finite in {event.layer}")
        elif isinstance(event, Notice):
            mark(
                "notice", event.step, event.message
            )  # the verdict gives the remedy, from the evidence of the whole run
        elif isinstance(event, End) and event.status == "stopped":
            mark("stopped", event.step, event.reason)
        elif isinstance(event, End) and event.status == "interrupted":
            mark("interrupted", event.step, "a signal asked for it")
    return sorted(found, key=lambda one: one["step"])


def ending(log: Sequence[Event]) -> dict[str, Any]:
    """Status, epochs, steps and time of a run."""
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


# The network


def network(spec: Spec) -> dict[str, Any]:
    """Its parts from first to last, equal ones folded, as `mlp show` draws them."""
    whole = outline(spec)
    return {**whole.to_dict(), "outputs": spec.d_out}


def account(
    spec: Spec, config: dict[str, Any], effective: dict[str, Any], engine: str, members: int = 1
) -> dict[str, Any]:
    """What a step of this run and a prediction cost, exactly; layers are those of one member, totals of all."""
    batch = effective.get("batch_size") or config.get("batch_size") or 32
    dtype = config.get("dtype", "float32")
    step = cost(
        spec,
        batch=batch,
        optimizer=config.get("optimizer", "adam"),
        loss=effective.get("loss", "auto"),
        engine="fused" if engine == "fused" else "torch",
        dtype=dtype,
        rows=effective.get("rows"),
        l2=bool(config.get("l2")),
        clip=config.get("clip_norm") is not None,
        average=config.get("average") is not None,
        mixup="mixup" in str(config.get("augment")),
    )
    parts = [
        {
            "name": row.name,
            "what": row.what,
            "parameters": row.parameters,
            "forward": int(row.forward.total),
            "backward": int(row.backward.total),
        }
        for row in step.layers
    ]
    return {
        "batch": batch,
        "parameters": members * step.parameters,
        "layers": parts,
        "step": members * step.step,
        "epoch": None if step.epoch is None else members * step.epoch.flops,
        "row": members * cost(spec, batch=1, loss=effective.get("loss", "auto")).forward,
        "memory": members * step.memory.total,
        "file": members * step.memory.parameters,
    }


def predicted_seconds(
    spec: Spec, config: dict[str, Any], effective: dict[str, Any], engine: str, members: int = 1
) -> dict[str, Any] | None:
    """The least time that a step can take here, from what this machine was measured to reach; None where it was not."""
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
    """The command and the Python that make this run once more; what cannot be written down is said."""
    data = saved.get("data", {})
    usual = Config().to_dict()
    config = {key: value for key, value in saved.get("config", {}).items() if key in usual and value != usual[key]}
    source = data.get("path")
    notes: list[str] = []
    if source is None:
        notes.append("The data was in memory: put your own where `data` stands.")
    if data.get("weights") == "memory":
        notes.append("Weights were in memory: hand them over as `sample_weight`.")
    if data.get("validation") == "memory":
        notes.append("Validation data was in memory: hand it over as `validation`.")
    return {
        "command": None if source is None or notes else _command(source, data, config, spec),
        "python": _python(source, data, config, spec),
        "notes": notes,
    }


def _command(source: str, data: dict[str, Any], config: dict[str, Any], spec: Spec) -> str | None:
    if data.get("keep_constant"):
        return None  # a table in which nothing varies has no option
    parts = ["mlp", "train", source]
    target = data.get("target")
    named = {"--target": ",".join(target) if isinstance(target, list) else target, "--arch": str(spec)}
    named |= {"--group": data.get("group"), "--time": data.get("time"), "--weight": data.get("weight")}
    for option, value in named.items():
        parts += [] if value is None else [option, str(value)]
    for name in data.get("categorical") or ():
        parts += ["--categorical", name]
    for key, value in config.items():
        option = "--" + key.replace("_", "-")
        if isinstance(value, dict):
            return None  # weights of classes have no option
        if isinstance(value, bool):
            parts += [option if value else option.replace("--", "--no-", 1)]
        else:
            parts += [option, "none" if value is None else str(value)]
    return shlex.join(parts)


def _python(source: str | None, data: dict[str, Any], config: dict[str, Any], spec: Spec) -> str:
    arguments = {"target": data.get("target"), "group": data.get("group"), "time_column": data.get("time")}
    arguments |= {"sample_weight": data.get("weight"), "categorical": data.get("categorical")}
    arguments |= {"keep_constant": data.get("keep_constant") or None}
    chosen = {key: value for key, value in arguments.items() if value is not None} | config
    lines = [repr(str(spec)), "data" if source is None else repr(source)]
    lines += [f"{key}={value!r}" for key, value in chosen.items()]
    inside = "".join(f"    {line},\n" for line in lines)
    return f"import multilayer as ml\n\nrun = ml.fit(\n{inside})\n"
