"""`mlp explore`: open the interactive page of a network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ..errors import printable
from .options import OUTPUT, option
from .output import console
from .output import show as print_parts

EXAMPLES = (
    "mlp explore",
    "mlp explore model.safetensors --data people.csv",
    "mlp explore runs/digits-001 --data digits --out digits.html",
)


def explore(
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="A model file, or the folder of a run.", show_default="none")
    ] = None,
    data: Annotated[
        str | None,
        option("--data", text="Rows to show: a table, or the name of a bundled data set.", metavar="DATA"),
    ] = None,
    out: Annotated[
        Path | None,
        option(
            "--out",
            text="Save the page as an HTML file instead of opening it.",
            metavar="FILE",
            panel=OUTPUT,
            default="open the page in the browser",
        ),
    ] = None,
) -> None:
    """Open an interactive page to inspect networks.

    On the page, you can change weights, step through a pass, and train small networks. With MODEL, it also shows the
    layers, weights and predictions of your own network. For a run folder, layers and units are marked with the findings
    of the run.
    """
    from ..pages.explorer import explore as made

    page = made(model, data)
    if out is None:
        from ..pages.server import serve

        serve(page.html, say=lambda text: print_parts(console(), Text(text)))
        return
    written = printable(str(page.save(out)))
    made_of = f", predictions: {page.state['model']['made_of']}" if model else ""
    print_parts(console(), Text(f"saved: {written}{made_of}", style="dim"))
