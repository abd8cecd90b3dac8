"""`mlp tune`: searches over the recipe with Optuna, then trains the best in full and keeps the run."""

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
from .output import console
from .train import Categorical

if TYPE_CHECKING:
    from ..estimators.tuning import Search, Trial

EPILOG = """Examples:

mlp tune people.csv --target income

mlp tune table.parquet --target y --trials 100 --time-limit 3600 --run runs/tuned

mlp tune visits.csv --target visits --task regression --loss poisson

mlp tune --run runs/tuned --trials 200 table.parquet --target y   (goes on where the search was)

The recipe's defaults are the first trial. Ctrl-C stops; the same command with the same --run goes on, and more --trials
or another --time-limit may find a better one: its run takes the place of FOLDER/best, which becomes FOLDER/best-001."""

PLOT, BEST = "trials.svg", "best"
_HELP = {field.name: field.metadata["help"] for field in fields(Config)}
LEAST = 0.05
"""Of the time limit that the training in full gets, even where trials took more than their share."""


def tune(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A table, or the name of a bundled set.")],
    target: Annotated[str | None, typer.Option(metavar="COL", help="The column to predict; several by commas.")] = None,
    trials: Annotated[int, typer.Option(metavar="N", min=1, help="Networks to try, in all.")] = 50,
    time_limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="For all: half for trials, what is left for the best.")
    ] = None,
    run: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where to keep the search; runs/NAME-tune-001, …")
    ] = None,
    group: Annotated[str | None, typer.Option(metavar="COL", help="Rows of a group stay on one side.")] = None,
    time_column: Annotated[str | None, typer.Option("--time", metavar="COL", help="Hold out the latest rows.")] = None,
    weight: Annotated[str | None, typer.Option(metavar="COL", help="What each row counts; no input.")] = None,
    categorical: Categorical = None,
    task: Annotated[str | None, typer.Option(metavar="TEXT", help=_HELP["task"])] = None,
    loss: Annotated[str | None, typer.Option(metavar="TEXT", help="What is minimised; from the task.")] = None,
    metric: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What trials are judged by, and which epoch is kept; loss.")
    ] = None,
    class_weight: Annotated[str | None, typer.Option(metavar="TEXT", help=_HELP["class_weight"])] = None,
    epochs: Annotated[int | None, typer.Option(metavar="N", help="In full; a trial takes a quarter.")] = None,
    ensemble: Annotated[int | None, typer.Option(metavar="N", help="Members in full; a trial has one.")] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Fixes everything that is random.")] = 0,
    threads: Annotated[int | None, typer.Option(metavar="N", help="Threads to use.")] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to draw the trials: .svg, .png or .pdf; FOLDER/trials.svg."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress: only how it ended.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="A line of JSON for each trial, and one for the end.")
    ] = False,
) -> None:
    """Searches over width, depth, dropout, learning rate, weight decay and embedding, then trains the best in full.

    Each trial is one network on four fifths of the rows, judged by its loss or --metric on the rest; those that fall
    behind are cut short. FOLDER has the search, a plot of it, and the run of the best in FOLDER/best. Within a time
    limit the best gets as many epochs and members as fit.
    """
    from ..data import read
    from ..drawing.plots import check_path
    from ..estimators import tuning
    from ..runs import numbered

    began = time.monotonic()
    if plot is not None:
        check_path(plot)
    limit = Config(time_limit=time_limit).time_limit
    asked = {"task": task, "loss": loss, "metric": metric, "class_weight": class_weight}
    asked |= {"epochs": epochs, "ensemble": ensemble, "threads": threads}
    options: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    targets: Any = target if target is None or "," not in target else [part.strip() for part in target.split(",")]
    source = {"target": targets, "group": group, "time_column": time_column, "sample_weight": weight}
    source["categorical"] = categorical or []
    table = read(data)
    name = f"{Path(data).name.split('.')[0] or 'run'}-tune"
    with (
        numbered(name) if run is None else nullcontext(run) as folder,
        _Shown(trials, quiet=quiet or as_json, as_json=as_json) as shown,
    ):
        found = tuning.search(
            table,
            folder,
            source=source,
            options=options,
            trials=trials,
            time_limit=None if limit is None else tuning.TRIALS_SHARE * limit,
            seed=seed,
            begins=shown.begin,
            told=shown.told,
        )
    drawn = _draw(found, plot or folder / PLOT, name=Path(data).name)
    if found.signal is not None:
        typer.echo(f"go on with the same command and --run {folder}", err=True)
        raise typer.Exit(128 + found.signal)
    left = None if limit is None else max(limit - (time.monotonic() - began), LEAST * limit)
    done = _in_full(found, data, folder, source, {**options, "seed": seed}, left=left, quiet=quiet or as_json)
    best = None if found.best is None else found.best.to_dict()
    end = {"run": str(folder / BEST), "best": best, "metrics": done.metrics, "plot": drawn}
    if as_json:
        _print_line({"end": end})
    else:
        _tell(found, drawn)
    from .train import tell

    tell(done, quiet=quiet, as_json=as_json)


def _in_full(
    found: Search,
    data: str,
    folder: Path,
    source: dict[str, Any],
    options: dict[str, Any],
    *,
    left: float | None,
    quiet: bool,
) -> Any:
    """The best point, with all epochs and members, or those that fit into the time that is left.

    Goes on where it was stopped. The run of an earlier best is kept beside it.
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
    return fit(recipe_of(found.values), data, run=path, time_limit=left, **source, **options, quiet=quiet)


def _read(note: Path) -> Any:
    """The point that FOLDER/best is the run of; None where that is not known."""
    try:
        return json.loads(read(note, limit=1 << 24, root=note.parent))
    except ValueError:
        return None


def _draw(found: Search, path: Path, *, name: str) -> str | None:
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


def _tell(found: Search, drawn: str | None) -> None:
    best, out = found.best, console()
    if best is None:
        said = "the time was up before any trial came to its end: the recipe as it is was trained"
        out.print(said, soft_wrap=True)
        return
    first = found.trials[0]
    words = ", ".join(f"{name} {_short(value)}" for name, value in best.values.items())
    out.print(printable(f"best of {len(found.trials)} trials: {words}"), soft_wrap=True)
    if first.value is not None and best.value is not None:
        out.print(f"its validation {best.metric} is {best.value:.4g}; that of the recipe as it is, {first.value:.4g}")
    if drawn is not None:
        out.print(printable(f"plot: {drawn}"), soft_wrap=True)


def _print_line(value: dict[str, Any]) -> None:
    from ..runs.events import plain

    print(json.dumps(plain(value), ensure_ascii=False, allow_nan=False), flush=True)


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


class _Shown:
    """A bar of the trials with the best so far, lines of JSON, or nothing."""

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

    def told(self, trial: Trial, best: Trial | None) -> None:
        if self.as_json:
            _print_line(trial.to_dict())
        self._show(trial.number, best)

    def begin(self, trials: Sequence[Trial]) -> None:
        """Not before all is checked: an error is told without an empty bar. `trials` were made before."""
        from ..estimators.tuning import best_of

        self.total = max(self.total, len(trials))
        self._show(len(trials), best_of(trials))
        self.bar.start()
        self.begun = True

    def _show(self, completed: int, best: Trial | None) -> None:
        said = "" if best is None else f"best {best.metric} {best.value:.4g} (trial {best.number})"
        self.bar.update(self.task, completed=completed, total=self.total, best=said)

    def __enter__(self) -> _Shown:
        return self

    def __exit__(self, *_: object) -> None:
        if self.begun:
            self.bar.stop()
