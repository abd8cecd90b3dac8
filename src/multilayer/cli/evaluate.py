"""`mlp evaluate`: how good a model is on rows whose target is known."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from .output import console, say, show, strict_json

EPILOG = """Examples:

mlp evaluate runs/digits-001 digits --json"""


def evaluate(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file, or the folder of a run.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="Rows with their target.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Every metric of the task on the rows of a table."""
    from ..models.metrics import shown
    from ..models.trained_model import load

    loaded = load(model)
    rows = loaded.encoding.encode(data, targets=True)
    say(rows.notes)
    found = loaded.measured(rows)
    if as_json:
        print(strict_json(found))
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in shown(found).items():
        table.add_row(name, f"{value:.6g}")
    show(console(), table)
