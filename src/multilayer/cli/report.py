"""`mlp report`: the report of one run, or of several runs next to each other, written again from their folders."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from ..errors import OptionError, printable
from .options import OUTPUT, flag, option

EXAMPLES = (
    "mlp report runs/digits-001",
    "mlp report runs/digits-001 runs/digits-002 --out compare.html --open",
    "mlp report runs/people --data test.csv --out test.html",
)
NOTE = """Every run of mlp train has this report as RUN/report.html. Use mlp report to compare runs, or to evaluate on
other rows."""

MOST = 12
"""Largest number of runs in one report."""


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs.", show_default=False)],
    data: Annotated[
        str | None,
        option("--data", text="A table with the target, to evaluate on.", metavar="DATA", default="held-out rows"),
    ] = None,
    out: Annotated[
        Path | None,
        option(
            "--out",
            text="File to write. It is required for several runs, and with --data.",
            metavar="FILE.html",
            panel=OUTPUT,
            default="RUN/report.html",
        ),
    ] = None,
    open_it: Annotated[bool, flag("--open", text="Open the report in the browser.")] = False,
) -> None:
    """Write the report of runs as one HTML file.

    It contains a summary, learning curves, metrics, the importance of columns, the rows with the largest errors, the
    cost, and how to reproduce the run. The file needs no internet connection, so you can share it.
    """
    from ..core import atomic_files
    from ..pages.report import report as made
    from ..runs import no_model

    if len(runs) > MOST:
        raise OptionError(f"a report takes at most {MOST} runs, got {len(runs)}: omit some")
    if out is None:
        if len(runs) > 1 or data is not None:
            raise OptionError("a report of several runs, or with --data, needs a file name: add --out FILE.html")
        out = runs[0] / "report.html"
    elif out.suffix.lower() not in (".html", ".htm"):
        raise OptionError(f"--out must end in .html, got {out}")
    found = [made.report(run, data=data) for run in runs]
    atomic_files.write(out, made.html(found).encode())
    typer.echo(f"saved: {printable(str(out))}")
    for run in runs:
        if not (run / "model.safetensors").exists():
            typer.echo(f"note: {printable(no_model(run))}", err=True)
    if open_it and not webbrowser.open(out.resolve().as_uri()):
        typer.echo("note: cannot open a browser on this machine", err=True)
