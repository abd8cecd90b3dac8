"""`mlp report`: the page of a run, or of several side by side, made again from their folders."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from ..errors import OptionError, printable

EPILOG = """Examples:

mlp report runs/digits-001

mlp report runs/digits-001 runs/digits-002 --out compare.html --open

mlp report runs/people --data test.csv --out test.html

Every run leaves such a page as RUN/report.html; this one makes it again, or judges the model by other rows."""

MOST = 12
"""Runs that can be looked at side by side."""


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Where to write it; one run: RUN/report.html.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="DATA", help="Judge by these rows, which have their target.")
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Writes the report of runs as one HTML file: verdict, curves, quality, columns, worst rows, cost, how to repeat.

    The file needs nothing else, makes no request, and can be passed on.
    """
    from ..core import atomic_files
    from ..pages.report import report as made
    from ..runs import no_model

    if len(runs) > MOST:
        raise OptionError(f"at most {MOST} runs fit side by side, got {len(runs)}")
    if out is None:
        if len(runs) > 1 or data is not None:
            raise OptionError("several runs or other rows need a file to be written to: --out FILE.html")
        out = runs[0] / "report.html"
    elif out.suffix.lower() not in (".html", ".htm"):
        raise OptionError(f"--out must end in .html, got {out}")
    found = [made.report(run, data=data) for run in runs]
    atomic_files.write(out, made.html(found).encode())
    typer.echo(f"wrote {printable(str(out))}")
    for run in runs:
        if not (run / "model.safetensors").exists():
            typer.echo(f"note: {printable(no_model(run))}", err=True)
    if open_it and not webbrowser.open(out.resolve().as_uri()):
        typer.echo("no browser could be opened here", err=True)
