"""`mlp evaluate`: compute the metrics of a model on a table with its target."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from .options import AsJson, Model
from .output import console, print_notes, show, strict_json

EXAMPLES = (
    "mlp evaluate runs/digits-001 digits",
    "mlp evaluate runs/people test.csv --json",
    "mlp evaluate model.safetensors test.csv",
)


def evaluate(
    model: Model,
    data: Annotated[str, typer.Argument(metavar="DATA", help="A table with the target column.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Compute the metrics of a model on a table with its target."""
    from ..models.members import notes_of
    from ..models.metrics import shown
    from ..models.trained_model import load

    loaded = load(model)
    rows = loaded.encode(data, targets=True)
    print_notes(notes_of(rows))
    found = loaded.measured(rows)
    if as_json:
        print(strict_json(found))
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in shown(found).items():
        table.add_row(name, f"{value:.6g}")
    show(console(), table)
