"""`mlp tune`: search over options of the tabular recipe with Optuna, then train the best configuration with all epochs
and members."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.atomic_files import read, refuse_links, write
from ..errors import MissingExtra, printable
from ..runs.config import Config
from ..training.recipe import MEMBERS
from .options import (
    DATA,
    MACHINE,
    OUTPUT,
    Categorical,
    Data,
    Group,
    SampleWeight,
    Target,
    TimeColumn,
    class_weights,
    columns_in,
    flag,
    option,
)
from .output import console

if TYPE_CHECKING:
    from ..estimators.tuning import Search, Trial

EXAMPLES = (
    "mlp tune people.csv --target income",
    "mlp tune table.parquet --target y --trials 100 --time-limit 3600",
    "mlp tune visits.csv --target visits --task regression --loss poisson",
    "mlp tune people.csv --target income --run runs/tuned --trials 200",
)
NOTE = """The first trial uses the defaults of the recipe. Ctrl-C stops the search. To continue it, repeat the command
with the same --run. You can then increase --trials and change --time-limit.

FOLDER/best is the run of the best trial. If a continued search finds a better trial, the old run is renamed to
FOLDER/best-001."""

PLOT, BEST = "trials.svg", "best"
_SEARCH, _FULL = "Search", "Final training"
_HELP = {field.name: field.metadata["help"] for field in fields(Config)}
LEAST = 0.05
"""Minimum share of the time limit for the final training, even if the trials took longer than planned."""


def tune(
    data: Data,
    target: Target = None,
    group: Group = None,
    time_column: TimeColumn = None,
    sample_weight: SampleWeight = None,
    categorical: Categorical = None,
    task: Annotated[
        str | None, option("--task", text=_HELP["task"], metavar="TEXT", panel=DATA, default="auto")
    ] = None,
    class_weight: Annotated[
        str | None, option("--class-weight", text=_HELP["class_weight"], metavar="TEXT", panel=DATA)
    ] = None,
    trials: Annotated[
        int, option("--trials", text="Total number of trials.", metavar="N", panel=_SEARCH, default=True, least=1)
    ] = 50,
    time_limit: Annotated[
        float | None,
        option(
            "--time-limit",
            text="Total time. Half of it is for trials, the rest for the final training.",
            metavar="SECONDS",
            panel=_SEARCH,
        ),
    ] = None,
    metric: Annotated[
        str | None,
        option(
            "--metric",
            text="Validation metric that selects the best trial and the best epoch.",
            metavar="TEXT",
            panel=_SEARCH,
            default="loss",
        ),
    ] = None,
    loss: Annotated[
        str | None, option("--loss", text="Loss to minimize.", metavar="TEXT", panel=_SEARCH, default="by the task")
    ] = None,
    epochs: Annotated[
        int | None,
        option(
            "--epochs",
            text="Number of epochs. Each trial uses a quarter of them.",
            metavar="N",
            panel=_FULL,
            default="auto",
        ),
    ] = None,
    ensemble: Annotated[
        int | None,
        option(
            "--ensemble",
            text="Number of ensemble members. Each trial trains one.",
            metavar="N",
            panel=_FULL,
            default=str(MEMBERS),
        ),
    ] = None,
    seed: Annotated[int, option("--seed", text=_HELP["seed"], metavar="N", panel=MACHINE, default=True)] = 0,
    threads: Annotated[
        int | None, option("--threads", text="Number of threads.", metavar="N", panel=MACHINE, default="auto")
    ] = None,
    run: Annotated[
        Path | None,
        option("--run", text="Folder of the search.", metavar="FOLDER", panel=OUTPUT, default="runs/NAME-tune-001, …"),
    ] = None,
    plot: Annotated[
        Path | None,
        option(
            "--plot",
            text="Where to save the plot of the trials: .svg, .png or .pdf.",
            metavar="FILE",
            panel=OUTPUT,
            default=f"FOLDER/{PLOT}",
        ),
    ] = None,
    quiet: Annotated[bool, flag("--quiet", "-q", text="Print only the result.")] = False,
    as_json: Annotated[bool, flag("--json", text="Print one line of JSON per trial, and one for the result.")] = False,
) -> None:
    """Search for good options, then train the best configuration.

    The search varies these options of the tabular recipe: width, depth, dropout, learning rate, weight decay and the
    embedding of numbers. Each trial trains one network on four fifths of the rows and measures the loss or --metric on
    the other rows. Trials that are worse than the median stop early.

    FOLDER contains the search and a plot of the trials. FOLDER/best is the run with the best options. With
    --time-limit, the numbers of epochs and members are reduced so that the command ends in time.
    """
    from ..data import read
    from ..drawing.plots import check_path
    from ..estimators import tuning
    from ..runs import numbered

    began = time.monotonic()
    if plot is not None:
        check_path(plot)
    limit = Config(time_limit=time_limit).time_limit
    given = {
        "task": task,
        "loss": loss,
        "metric": metric,
        "class_weight": None if class_weight is None else class_weights(class_weight),
    }
    given |= {"epochs": epochs, "ensemble": ensemble, "threads": threads}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    source: dict[str, Any] = {
        "target": columns_in(target),
        "group": group,
        "time_column": time_column,
        "sample_weight": sample_weight,
    }
    source["categorical"] = categorical or []
    table = read(data)
    name = f"{Path(data).name.split('.')[0] or 'run'}-tune"
    with (
        numbered(name) if run is None else nullcontext(run) as folder,
        _Progress(trials, quiet=quiet or as_json, as_json=as_json) as progress,
    ):
        found = tuning.search(
            table,
            folder,
            source=source,
            options=options,
            trials=trials,
            time_limit=None if limit is None else tuning.TRIALS_SHARE * limit,
            seed=seed,
            on_begin=progress.begin,
            on_trial=progress.finish_trial,
        )
    plotted = _save_plot(found, plot or folder / PLOT, name=Path(data).name)
    if found.signal is not None:
        typer.echo(f"to continue: the same command with --run {folder}", err=True)
        raise typer.Exit(128 + found.signal)
    remaining = None if limit is None else max(limit - (time.monotonic() - began), LEAST * limit)
    done = _in_full(found, data, folder, source, {**options, "seed": seed}, remaining=remaining, quiet=quiet or as_json)
    best = None if found.best is None else found.best.to_dict()
    end = {"run": str(folder / BEST), "best": best, "metrics": done.metrics, "plot": plotted}
    if as_json:
        _print_line({"end": end})
    else:
        _print_best(found, plotted)
    from .train import print_result

    print_result(done, quiet=quiet, as_json=as_json)


def _in_full(
    found: Search,
    data: str,
    folder: Path,
    source: dict[str, Any],
    options: dict[str, Any],
    *,
    remaining: float | None,
    quiet: bool,
) -> Any:
    """Train the best configuration with all epochs and members, or with those that fit into the remaining time.

    A run that was stopped is resumed. The run of a trial that is no longer the best is renamed.
    """
    from ..estimators.tuning import recipe_of
    from ..runs import RunFolder, next_number
    from ..training.fit import fit, resume

    path = folder / BEST
    note = folder / f"{BEST}.json"
    refuse_links([path, note])
    if (path / "config.json").exists():
        if _read(note) == found.values:
            RunFolder.open(path)
            return resume(path, quiet=quiet)
        path.rename(folder / f"{BEST}-{next_number(folder, BEST):03d}")
    write(note, json.dumps(found.values).encode())
    return fit(recipe_of(found.values), data, run=path, time_limit=remaining, **source, **options, quiet=quiet)


def _read(note: Path) -> Any:
    """Return the options that FOLDER/best was trained with, or None if they are unknown."""
    try:
        return json.loads(read(note, limit=1 << 24, root=note.parent))
    except ValueError:
        return None


def _save_plot(found: Search, path: Path, *, name: str) -> str | None:
    from ..drawing.plots import Point, save, search_figure
    from ..estimators.tuning import SPACE
    from ..models.metrics import larger

    points = [
        Point(number=trial.number, values=trial.values, value=trial.value, pruned=trial.pruned)
        for trial in found.trials
        if trial.value is not None
    ]
    if not points:
        return None
    metric, logarithmic = found.trials[0].metric, {key: one.log for key, one in SPACE.items()}
    try:
        figure = search_figure(points, logarithmic, title=f"Search on {name}", metric=metric, larger=larger(metric))
    except MissingExtra as error:
        typer.echo(f"warning: {error}", err=True)
        return None
    save(figure, path, title=f"Search on {name}")
    return str(path)


def _print_best(found: Search, plotted: str | None) -> None:
    best, out = found.best, console()
    if best is None:
        message = "the time limit was reached before the first trial ended: trained the defaults of the recipe"
        out.print(message, soft_wrap=True)
        return
    first = found.trials[0]
    words = ", ".join(f"{name} {_short(value)}" for name, value in best.values.items())
    out.print(printable(f"best of {len(found.trials)} trials: {words}"), soft_wrap=True)
    if first.value is not None and best.value is not None:
        out.print(f"validation {best.metric}: {best.value:.4g}; with the defaults of the recipe: {first.value:.4g}")
    if plotted is not None:
        out.print(printable(f"plot: {plotted}"), soft_wrap=True)


def _print_line(value: dict[str, Any]) -> None:
    from ..core.canonical_json import plain

    print(json.dumps(plain(value), ensure_ascii=False, allow_nan=False), flush=True)


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


class _Progress:
    """A progress bar of the trials with the best result, lines of JSON, or nothing."""

    def __init__(self, trials: int, *, quiet: bool, as_json: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self.as_json, self.begun, self.total = as_json, False, trials
        self.bar = Progress(
            TextColumn("trials"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[best]}"),
            console=Console(stderr=True),
            disable=quiet,
        )
        self.task = self.bar.add_task("trials", total=trials, best="")

    def finish_trial(self, trial: Trial, best: Trial | None) -> None:
        if self.as_json:
            _print_line(trial.to_dict())
        self._show(trial.number, best)

    def begin(self, trials: Sequence[Trial]) -> None:
        """Start the progress bar. It is not started earlier, so that errors in options do not leave an empty bar."""
        from ..estimators.tuning import best_of

        self.total = max(self.total, len(trials))
        self._show(len(trials), best_of(trials))
        self.bar.start()
        self.begun = True

    def _show(self, completed: int, best: Trial | None) -> None:
        text = f"best {best.metric} {best.value:.4g} (trial {best.number})" if best is not None else ""
        self.bar.update(self.task, completed=completed, total=self.total, best=text)

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.begun:
            self.bar.stop()
