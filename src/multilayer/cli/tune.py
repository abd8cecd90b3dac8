"""`mlp tune`: searches over the recipe with Optuna, then trains the best in full and keeps the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ..errors import MissingExtra, OptionError, printable
from .output import console

if TYPE_CHECKING:
    from ..tabular.tune import Search, Trial

EPILOG = """Examples:

mlp tune people.csv --target income

mlp tune table.parquet --target y --trials 100 --time-limit 3600 --run runs/tuned

mlp tune --run runs/tuned --trials 200 table.parquet --target y   (goes on where the search was)

The recipe's defaults are the first trial. Ctrl-C stops; the same command with the same --run goes on."""

PLOT = "trials.svg"


def tune(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A table, or the name of a bundled set.")],
    target: Annotated[str | None, typer.Option(metavar="COL", help="The column to predict; several by commas.")] = None,
    trials: Annotated[int, typer.Option(metavar="N", min=1, help="Networks to try, in all.")] = 50,
    time_limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="For the search; the best is then trained in full.")
    ] = None,
    run: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where to keep the search; runs/NAME-tune-001, …")
    ] = None,
    group: Annotated[str | None, typer.Option(metavar="COL", help="Rows of a group stay on one side.")] = None,
    time_column: Annotated[str | None, typer.Option("--time", metavar="COL", help="Hold out the latest rows.")] = None,
    weight: Annotated[str | None, typer.Option(metavar="COL", help="What each row counts; no input.")] = None,
    loss: Annotated[str | None, typer.Option(metavar="TEXT", help="What is minimised; from the task.")] = None,
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

    Each trial is one network on four fifths of the rows, judged by its loss on the rest; those that fall behind are cut
    short. FOLDER has the search, a plot of it, and the run of the best in FOLDER/best.
    """
    from ..data import read
    from ..plots import check_path
    from ..tabular import tune as tuning
    from ..training.fit import free_folder

    if plot is not None:
        check_path(plot)
    folder = run or free_folder(f"{Path(data).name.split('.')[0] or 'run'}-tune")
    asked = {"loss": loss, "epochs": epochs, "ensemble": ensemble, "threads": threads}
    options: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    targets: Any = target if target is None or "," not in target else [part.strip() for part in target.split(",")]
    source = {"target": targets, "group": group, "time_column": time_column, "sample_weight": weight}
    with _Shown(trials, quiet=quiet or as_json, as_json=as_json) as shown:
        found = tuning.search(
            read(data),
            folder,
            source=source,
            options=options,
            trials=trials,
            time_limit=time_limit,
            seed=seed,
            told=shown.told,
        )
    drawn = _draw(found, plot or folder / PLOT, name=Path(data).name)
    if found.signal is not None:
        typer.echo(f"go on with the same command and --run {folder}", err=True)
        raise typer.Exit(128 + found.signal)
    done = _in_full(found, data, folder, source, {**options, "seed": seed}, quiet=quiet or as_json)
    end = {"run": str(folder / "best"), "best": found.best.to_dict(), "metrics": done.metrics, "plot": drawn}
    if as_json:
        _print_line({"end": end})
    else:
        _tell(found, drawn)
    from .train import tell

    tell(done, quiet=quiet, as_json=as_json)


def _in_full(
    found: Search, data: str, folder: Path, source: dict[str, Any], options: dict[str, Any], *, quiet: bool
) -> Any:
    """The best point, with all epochs and members; goes on where it was stopped."""
    from ..jobs import fit, resume
    from ..runs import RunFolder
    from ..tabular.tune import Candidate
    from .train import reporting

    path, how = folder / "best", cast(Any, {"quiet": quiet, "ended": reporting(quiet=quiet)})
    chosen = found.best.values
    note = folder / "best.json"
    if (path / "config.json").exists():
        if json.loads(note.read_text()) == chosen:
            RunFolder.open(path)
            return resume(path, **how)
        raise OptionError(f"{path} is the run of an earlier best: move it away to train the new one, {chosen}")
    note.write_text(json.dumps(chosen))
    return fit(Candidate(chosen), data, run=path, **source, **options, **how)


def _draw(found: Search, path: Path, *, name: str) -> str | None:
    from ..plots import Point, save, search_figure
    from ..tabular.tune import SPACE

    points = [
        Point(number=trial.number, values=trial.values, loss=trial.value, pruned=trial.pruned)
        for trial in found.trials
        if trial.value is not None
    ]
    if not points:
        return None
    try:
        figure = search_figure(points, {key: one.log for key, one in SPACE.items()}, title=f"Search on {name}")
    except MissingExtra as error:
        typer.echo(f"warning: {error}", err=True)
        return None
    save(figure, path, title=f"Search on {name}")
    return str(path)


def _tell(found: Search, drawn: str | None) -> None:
    best, first = found.best, found.trials[0]
    out = console()
    words = ", ".join(f"{name} {_short(value)}" for name, value in best.values.items())
    out.print(printable(f"best of {len(found.trials)} trials: {words}"), soft_wrap=True)
    if first.value is not None and best.value is not None:
        out.print(f"its validation loss is {best.value:.4g}; that of the recipe as it is, {first.value:.4g}")
    if drawn is not None:
        out.print(printable(f"plot: {drawn}"), soft_wrap=True)


def _print_line(value: dict[str, Any]) -> None:
    from ..events import plain

    print(json.dumps(plain(value), ensure_ascii=False, allow_nan=False), flush=True)


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


class _Shown:
    """A bar of the trials with the best loss so far, lines of JSON, or nothing."""

    def __init__(self, trials: int, *, quiet: bool, as_json: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self.as_json = as_json
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
        said = "" if best is None else f"best loss {best.value:.4g} (trial {best.number})"
        self.bar.update(self.task, completed=trial.number, best=said)

    def __enter__(self) -> _Shown:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()
