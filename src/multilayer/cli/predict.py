"""`mlp predict`: the predictions of a model for a table, as CSV or Parquet."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import OptionError, printable
from .options import OUTPUT, Data, Model, flag, option
from .output import console, print_notes, show

EXAMPLES = (
    "mlp predict runs/digits-001 digits",
    "mlp predict model.safetensors new.csv --proba --out predictions.parquet",
    "mlp predict model.safetensors new.csv --escape-formulas --out for-excel.csv",
)

SUFFIXES = (".csv", ".parquet")
_FORMULA = re.compile(r"[ ]*[=+\-@\t\r\n＝＋－＠]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def predict(
    model: Model,
    data: Data,
    out: Annotated[
        Path | None,
        option(
            "--out",
            text="File to write, .csv or .parquet.",
            metavar="FILE",
            panel=OUTPUT,
            default="CSV on standard output",
        ),
    ] = None,
    proba: Annotated[bool, flag("--proba", text="Add a column with the probability of each class.")] = False,
    escape_formulas: Annotated[
        bool,
        flag(
            "--escape-formulas",
            text="For CSV files that you open in a spreadsheet: put ' before cells that would run as formulas.",
        ),
    ] = False,
) -> None:
    """Predict the target of each row of a table.

    The output has one row per row of the table, in the same order.
    """
    from ..models.members import notes_of
    from ..models.trained_model import load

    if out is not None and out.suffix.lower() not in SUFFIXES:
        raise OptionError(f"--out must end in {' or '.join(SUFFIXES)}, got {out}")
    if escape_formulas and out is not None and out.suffix.lower() != ".csv":
        raise OptionError(f"--escape-formulas is for CSV, got --out {out}: omit it, or write a .csv file")
    loaded = load(model)
    if proba and not loaded.encoding.task.classifies:
        raise OptionError(f"--proba needs a classifier, got a model for {loaded.encoding.task.kind}: omit it")
    rows = loaded.encode(data)
    print_notes(notes_of(rows))
    table = loaded.prediction_table(rows, probabilities=proba)
    if escape_formulas:
        table = _escaped(table)
    if out is None:
        typer.echo(_csv(table).decode(), nl=False)
        return
    from ..core import atomic_files
    from ..core.formatting import count

    atomic_files.write(out, _csv(table) if out.suffix.lower() == ".csv" else _parquet(table))
    show(console(), f"saved: {printable(str(out))}, {count(table.num_rows, 'row')}")


def _escaped(table: Any) -> Any:
    """Put ' before every name and label that a spreadsheet would run as a formula. Numbers are not changed."""
    import pyarrow as pa

    columns = [
        pa.array([None if text is None else escaped(text) for text in column.to_pylist()], column.type)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        else column
        for column in table.columns
    ]
    return pa.table(columns, names=[escaped(name) for name in table.column_names])


def escaped(text: str) -> str:
    """Put ' before the text of a cell if a spreadsheet would read it as a formula.

    >>> escaped("=1+1"), escaped("-1.5"), escaped("-x"), escaped("a=b")
    ("'=1+1", '-1.5', "'-x", 'a=b')
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


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
