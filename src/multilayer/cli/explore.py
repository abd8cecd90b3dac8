"""`mlp explore`: the page where a network can be held in the hands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ..errors import printable
from .output import console
from .output import show as print_parts

EPILOG = """Examples:

mlp explore

mlp explore model.safetensors --data people.csv

mlp explore runs/latest --data digits --out digits.html"""


def explore(
    model: Annotated[
        str | None,
        typer.Argument(metavar="[MODEL]", help="A model file or a run's folder; none: the toys.", show_default=False),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Rows to look at: a table, or a data set by name.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the page instead of opening it.", show_default=False)
    ] = None,
) -> None:
    """Opens the explorer: drag weights, step through a pass, train in the page, and look inside your own network."""
    from ..pages.explorer import explore as made

    if model is None:
        page = made()
    else:
        from ..models.trained_model import load

        page = made(load(model), data)
    if out is None:
        from ..pages.server import serve

        serve(page.html, say=lambda text: print_parts(console(), Text(text)))
        return
    written = printable(str(page.save(out)))
    made_of = f", predictions: {page.state['model']['made_of']}" if model else ""
    print_parts(console(), Text(f"written: {written}{made_of}", style="dim"))
