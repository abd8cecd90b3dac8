"""`mlp runs`: list runs, grouped by data, task and metric, with the best run of a group first."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from ..errors import MultilayerError, OptionError, printable
from .options import OUTPUT, AsJson, option
from .output import console, show, strict_json

EXAMPLES = (
    "mlp runs",
    "mlp runs runs/digits-001 runs/digits-002 --json",
    "mlp runs log runs/digits-001 --to tensorboard",
)


def runs(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUN", help="Runs, or folders that contain runs.", show_default="all runs in the folder runs"
        ),
    ] = None,
    to: Annotated[
        str | None,
        option(
            "--to",
            text="Tracker for mlp runs log: tensorboard, wandb, trackio or mlflow.",
            metavar="TRACKER",
            panel=OUTPUT,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List runs and compare their networks, status and metrics.

    Runs with the same data, task and metric form a group, with the best run first. Errors of damaged runs go to
    standard error. If you name a damaged run, the exit code is 2.

    `mlp runs log RUN --to tensorboard` sends the events of a finished run to a tracker.
    """
    from ..runs import RunFolder, find, runs_in

    if paths and str(paths[0]) == "log" and not paths[0].exists():
        _log(paths[1:], to)
        return
    if to is not None:
        raise OptionError("--to can only be used with log: mlp runs log RUN --to tensorboard")
    found: list[dict[str, Any]] = []
    damaged: list[dict[str, Any]] = []
    for path in (one for named in paths for one in runs_in(named)) if paths else find():
        try:
            found.append(summary(RunFolder.open(path)))
        except MultilayerError as error:
            damaged.append({"run": str(path), "status": "damaged", "reason": str(error)})
    found.sort(key=lambda run: (_group(run), -_merit(run)))
    if as_json:
        print(strict_json([*found, *damaged]))
    else:
        for shared, group in itertools.groupby(found, key=_group):
            show(console(), printable(" · ".join(filter(None, shared))), _table(list(group)), "")
        if not found and not damaged:
            show(console(), "no runs in ./runs yet: mlp train creates one")
    for run in damaged:
        typer.echo(f"{'error' if paths else 'warning'}: {printable(run['reason'])}", err=True)
    if paths and damaged:
        raise typer.Exit(MultilayerError.exit_code)


def _group(run: dict[str, Any]) -> tuple[str, ...]:
    """Return what runs must have in common to be compared: data and target, task, metric."""
    return run["data"], run["task"], f"best by {run['metric']}" if run["metric"] else ""


def _table(found: list[dict[str, Any]]) -> Table:
    from ..models.metrics import shown

    names = list(dict.fromkeys(name for run in found for name in shown(run["metrics"])))
    table = Table(box=None, pad_edge=False)
    for heading in ("run", "network", "status", "epochs", *names, "seconds"):
        table.add_column(
            heading, justify="left" if heading in ("run", "network", "status") else "right", overflow="fold"
        )
    for run in found:
        figures = [f"{run['metrics'][name]:.4g}" if name in shown(run["metrics"]) else "" for name in names]
        row = (run["run"], run["network"], run["status"], str(run["epochs"]), *figures, f"{run['seconds']:.1f}")
        table.add_row(*map(printable, row))
    return table


def _log(paths: list[Path], to: str | None) -> None:
    from ..core import atomic_files
    from ..runs import RunFolder
    from ..training import trackers

    if to is None or not paths:
        raise OptionError("mlp runs log needs a run and a tracker: mlp runs log RUN --to tensorboard")
    for path in paths:
        folder = RunFolder.open(path)
        atomic_files.refuse_links([folder.model])  # otherwise, a tracker would upload the target of a link
        trackers.replay(folder.events(), trackers.get(to), model=folder.model if folder.model.exists() else None)
        show(console(), f"logged {printable(str(path))} to {to}")


def summary(folder: Any) -> dict[str, Any]:
    """Return a line of the list as a dictionary, from the configuration and the events of a run."""
    from ..runs.events import End, EpochEnd, Start

    events = folder.events(effective=True)
    start = next((event for event in events if isinstance(event, Start)), None)
    end = next((event for event in reversed(events) if isinstance(event, End)), None)
    last = next((event for event in reversed(events) if isinstance(event, EpochEnd)), None)
    source = folder.config.get("data", {})
    data = _relative(source["path"]) if source.get("path") is not None else "data in memory"
    target = source.get("target")
    metrics = end.metrics if end is not None else last.metrics if last is not None else {}
    return {
        "run": str(folder.path),
        "data": f"{data}, {target if isinstance(target, str) else ', '.join(target)}" if target else data,
        "task": "" if start is None else start.task,
        "metric": "" if start is None else start.metric,
        "network": "" if start is None else start.network,
        "status": "unfinished" if end is None else end.status,
        "epochs": 0 if last is None else last.epoch,
        "metrics": metrics,
        "seconds": sum(event.seconds for event in events if isinstance(event, EpochEnd))
        if end is None
        else end.seconds,
    }


def _relative(path: str) -> str:
    """Return the path relative to the current folder if it is inside of it."""
    return str(Path(path).relative_to(Path.cwd())) if Path(path).is_relative_to(Path.cwd()) else path


def _merit(run: dict[str, Any]) -> float:
    """Return the value to sort runs by: the metric that selected the best epoch, or else the first metric.

    The loss is not among the metrics of a model: log loss or the root mean squared error is used instead.
    """
    from ..models.metrics import METRICS

    found = run["metrics"]
    for name in (run["metric"], *(("log_loss", "rmse") if run["metric"] == "loss" else ()), *found):
        if name in METRICS and not math.isnan(found.get(name, math.nan)):
            return found[name] if METRICS[name].better == "higher" else -found[name]
    return float("-inf")
