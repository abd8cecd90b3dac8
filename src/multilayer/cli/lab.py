"""`mlp lab`: run experiments on what textbooks claim, and write the book."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import OptionError, printable
from .options import AsJson, flag, option
from .output import console, show, strict_json

if TYPE_CHECKING:
    from ..lab import Result

EXAMPLES = (
    "mlp lab",
    "mlp lab vanishing_gradients",
    "mlp lab vanishing_gradients --seeds 20 --out results",
    "mlp lab --all --out book",
)
NOTE = """Each experiment takes at most a minute on two cores, and all together take about 20 minutes. After Ctrl-C, the
complete seeds are kept. The exit code does not depend on the verdict."""


def lab(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the experiment.", show_default="list all")
    ] = None,
    everything: Annotated[bool, flag("--all", text="Run every experiment and write the book.", panel=None)] = False,
    seeds: Annotated[
        int | None,
        option(
            "--seeds",
            text="Number of seeds. More seeds give shorter intervals.",
            metavar="N",
            default="that of the experiment",
        ),
    ] = None,
    first_seed: Annotated[int, option("--first-seed", text="The first seed.", metavar="K", default=True)] = 0,
    full: Annotated[
        bool, flag("--full", text="Use the larger sizes for a publication, which take longer.", panel=None)
    ] = False,
    data: Annotated[
        str | None,
        option(
            "--data", text="Table to use instead of the bundled one, if the experiment needs a table.", metavar="FILE"
        ),
    ] = None,
    workers: Annotated[
        int | None, option("--workers", text="Number of processes; auto is one per core.", metavar="N", default="auto")
    ] = None,
    out: Annotated[
        Path | None, option("--out", text="Write results, plots and pages into this folder.", metavar="DIR")
    ] = None,
    quiet: Annotated[bool, flag("--quiet", "-q", text="Print only the verdicts.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run an experiment on what textbooks claim about these networks.

    An experiment tests a claim with several seeds. It compares the interval of each criterion with a bound that was
    written before the measurement. The verdict is: holds, holds partly, or does not hold here. Without a name, the
    experiments are listed with their claims.
    """
    if everything:
        _refuse_with_all(name, data, out)
        _all(out or Path("book"), seeds, first_seed, workers, full=full, quiet=quiet, as_json=as_json)
    elif name is None:
        given = {"--seeds": seeds, "--first-seed": first_seed, "--full": full, "--data": data, "--workers": workers,
                 "--out": out}  # fmt: skip
        _refuse_without_name([option for option, value in given.items() if value])
        _list(as_json=as_json)
    else:
        settings: dict[str, Any] = {} if data is None else {"data": data}
        _one(name, settings, seeds, first_seed, workers, out, full=full, quiet=quiet, as_json=as_json)


def _refuse_with_all(name: str | None, data: str | None, out: Path | None) -> None:
    if name is not None:
        raise OptionError(f"--all runs every experiment: leave out {name!r}, or leave out --all")
    if data is not None:
        raise OptionError("--data is for one experiment: give its name instead of --all")
    if out is not None:
        _refuse_file(out)


def _refuse_without_name(given: list[str]) -> None:
    if given:
        raise OptionError(f"{given[0]} needs an experiment: give its name, or give --all")


def _refuse_file(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise OptionError(f"--out must be a folder, got the file {str(out)!r}")


def _list(*, as_json: bool) -> None:
    from rich.table import Table

    from ..lab import NAMES, get

    experiments = [get(name) for name in NAMES]
    if as_json:
        print(strict_json([{"name": e.name, "title": e.title, "claim": e.claim, "data": e.takes_data}
                           for e in experiments]))  # fmt: skip
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 1, 0))
    table.add_column("experiment", no_wrap=True)
    table.add_column("what the books say")
    for experiment in experiments:
        table.add_row(experiment.name, experiment.claim)
    show(console(), table)
    print("run one with: mlp lab NAME; all with: mlp lab --all --out book")


def _one(
    name: str, settings: dict[str, Any], seeds: int | None, first_seed: int, workers: int | None, out: Path | None,
    *, full: bool, quiet: bool, as_json: bool,
) -> None:  # fmt: skip
    from ..lab import get, run

    get(name)  # a wrong name must not create a folder
    if out is not None:
        from ..lab.result import check_folder

        _refuse_file(out)
        check_folder(out)  # before the measurement, which may take long
    result = run(
        name, seeds=seeds, first_seed=first_seed, full=full, workers=workers, quiet=quiet or as_json, **settings
    )
    paths = [] if out is None else _saved(result, out)
    if as_json:
        print(result.to_json())
    elif quiet:
        print(result.verdict)
    else:
        _print(result)
        if paths:
            print(printable(f"written to {out}: {', '.join(path.name for path in paths)}"))
    if result.interrupted:
        raise KeyboardInterrupt


def _saved(result: Result, out: Path) -> list[Path]:
    from ..core import atomic_files
    from ..lab.book import page

    paths = result.save(out)
    path = out / f"{result.name}.html"
    atomic_files.write(path, page(result).encode())
    return [*paths, path]


def _print(result: Result) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from ..core.formatting import duration

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("criterion", ratio=1)
    for title in ("measured (95 % interval)", "bound", ""):
        table.add_column(title, no_wrap=True)
    for one in result.criteria:
        table.add_row(one.statement, one.measured, one.bound, one.outcome)
    out = console()
    out.print(printable(f"{result.experiment.title}: {result.verdict}"), style="bold")
    out.print(printable(f"claim: {result.experiment.claim}"))
    out.print(printable(f"measured: {result.summary}"))
    show(out, table)
    out.print(printable(f"{result.basis}; {duration(result.seconds)}"))


def _all(
    out: Path, seeds: int | None, first_seed: int, workers: int | None, *, full: bool, quiet: bool, as_json: bool
) -> None:
    from ..lab.book import make

    results: list[Result] = []

    def finished(result: Result, reused: bool) -> None:
        results.append(result)
        if not as_json:
            how = " (from an earlier run)" if reused else ""
            print(f"{result.name}: {result.verdict}{how}", flush=True)

    try:
        make(
            out, size="full" if full else "default", seeds=seeds, first_seed=first_seed, workers=workers,
            quiet=quiet or as_json, finished=finished,
        )  # fmt: skip
    except KeyboardInterrupt:
        if as_json:
            print(strict_json([one.to_dict() for one in results]))
        raise
    if as_json:
        print(strict_json([one.to_dict() for one in results]))
    elif not quiet:
        print(printable(f"book: {out / 'index.html'}"))
