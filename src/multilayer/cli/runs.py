"""`mlp runs`: the runs that are there, best first, side by side."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from ..errors import OptionError, printable
from .output import console, show, strict_json

EPILOG = """Examples:

mlp runs

mlp runs runs/digits-001 runs/digits-002

mlp runs log runs/digits-001 --to tensorboard"""


def runs(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="[RUN]...", help="Folders of runs; all below ./runs.")
    ] = None,
    to: Annotated[
        str | None, typer.Option(metavar="TRACKER", help="With log: tensorboard, wandb, trackio or mlflow.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Lists runs and compares them: network, status, metrics; the best by its first metric comes first.

    `mlp runs log RUN --to tensorboard` replays the log of a run into a tracker.
    """
    from ..metrics import shown
    from ..runs import RunFolder, find

    if paths and str(paths[0]) == "log" and not paths[0].exists():
        _log(paths[1:], to)
        return
    if to is not None:
        raise OptionError("--to goes with log: mlp runs log RUN --to tensorboard")
    found = [summary(RunFolder.open(path)) for path in (paths or find())]
    found.sort(key=_merit, reverse=True)
    if as_json:
        print(strict_json(found))
        return
    if not found:
        show(console(), "no runs below ./runs yet: mlp train makes one")
        return
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
    show(console(), table)


def _log(paths: list[Path], to: str | None) -> None:
    from ..runs import RunFolder
    from ..training import sinks

    if to is None or not paths:
        raise OptionError("mlp runs log needs a run and where to: mlp runs log RUN --to tensorboard")
    for path in paths:
        folder = RunFolder.open(path)
        sinks.replay(folder.events(), sinks.get(to), model=folder.model if folder.model.exists() else None)
        show(console(), f"logged {printable(str(path))} to {to}")


def summary(folder: Any) -> dict[str, Any]:
    """What a run's log says of it."""
    from ..events import End, EpochEnd, Start

    told = folder.events(effective=True)
    start = next((event for event in told if isinstance(event, Start)), None)
    end = next((event for event in reversed(told) if isinstance(event, End)), None)
    last = next((event for event in reversed(told) if isinstance(event, EpochEnd)), None)
    metrics = end.metrics if end is not None else last.metrics if last is not None else {}
    return {
        "run": str(folder.path),
        "network": "" if start is None else start.network,
        "status": "unfinished" if end is None else end.status,
        "epochs": 0 if last is None else last.epoch,
        "metrics": metrics,
        "seconds": 0.0 if end is None else end.seconds,
    }


def _merit(run: dict[str, Any]) -> float:
    from ..metrics import METRICS

    for name, value in run["metrics"].items():
        if name in METRICS and not math.isnan(value):
            return value if METRICS[name].better == "higher" else -value
    return float("-inf")
