"""`mlp predict`: a model's answers for a table, as CSV or Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import OptionError, printable
from .output import console, say, show

EPILOG = """Examples:

mlp predict runs/digits-001 digits

mlp predict model.safetensors new.csv --proba --out answers.parquet"""

SUFFIXES = (".csv", ".parquet")


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file, or the folder of a run.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="Rows to answer for.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write to a .csv or .parquet file.")] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Probabilities of the classes as well.")] = False,
) -> None:
    """Predictions for each row of a table, in its order; without --out, CSV on standard output."""
    from ..predictor import load

    if out is not None and out.suffix.lower() not in SUFFIXES:
        raise OptionError(f"--out must end in {' or '.join(SUFFIXES)}, got {out}")
    table = answers(load(model), data, proba=proba)
    if out is None:
        typer.echo(_csv(table).decode(), nl=False)
        return
    from .. import storage
    from ..data.tables import count

    storage.write(out, _csv(table) if out.suffix.lower() == ".csv" else _parquet(table))
    show(console(), f"written: {printable(str(out))}, {count(table.num_rows, 'row')}")


def answers(model: Any, data: Any, *, proba: bool) -> Any:
    """An arrow table: a column per target, then a column per class where asked for."""
    import pyarrow as pa

    task = model.encoding.task
    if proba and not task.classifies:
        raise OptionError(f"--proba needs a model of classes, got one of {task.kind}")
    rows = model.encoding.encode(data)
    say(rows.notes)
    z = model.forward(rows)
    predicted = model.encoding.decode(z)
    columns: dict[str, Any] = {}
    flat = predicted.reshape(len(predicted), -1)
    names = list(task.names)
    if flat.shape[1] != len(names):
        names = [f"{name} {i + 1}" for name in task.names for i in range(flat.shape[1] // len(task.names))]
    for i, name in enumerate(names):
        columns[name] = flat[:, i].tolist()
    if proba:
        p = model.encoding.probabilities(z)
        classes = (
            [f"{task.names[0]}={c}" for c in task.classes[0]]
            if task.kind != "multilabel"
            else [f"p({n})" for n in task.names]
        )
        columns |= {name: p[:, i] for i, name in enumerate(classes)}
    return pa.table(columns)


def _csv(table: Any) -> bytes:
    import io

    from pyarrow import csv

    buffer = io.BytesIO()
    csv.write_csv(table, buffer)
    return buffer.getvalue()


def _parquet(table: Any) -> bytes:
    import io

    from pyarrow import parquet

    buffer = io.BytesIO()
    parquet.write_table(table, buffer)
    return buffer.getvalue()
