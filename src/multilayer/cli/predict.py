"""`mlp predict`: a model's answers for a table, as CSV or Parquet."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import OptionError, printable
from .output import console, say, show

EPILOG = """Examples:

mlp predict runs/digits-001 digits

mlp predict model.safetensors new.csv --proba --out answers.parquet

mlp predict model.safetensors new.csv --escape-formulas --out for-excel.csv"""

SUFFIXES = (".csv", ".parquet")
_FORMULA = re.compile(r"[ ]*[=+\-@\t\r\n＝＋－＠]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file, or the folder of a run.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="Rows to answer for.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write to a .csv or .parquet file.")] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Probabilities of the classes as well.")] = False,
    escape_formulas: Annotated[
        bool,
        typer.Option(
            "--escape-formulas",
            help="For CSV files to open in a spreadsheet: put ' before names and labels that would run as formulas.",
        ),
    ] = False,
) -> None:
    """Predictions for each row of a table, in its order; without --out, CSV on standard output."""
    from ..models.trained_model import load

    if out is not None and out.suffix.lower() not in SUFFIXES:
        raise OptionError(f"--out must end in {' or '.join(SUFFIXES)}, got {out}")
    if escape_formulas and out is not None and out.suffix.lower() != ".csv":
        raise OptionError(f"--escape-formulas is for CSV, got --out {out}: omit it, or write a .csv file")
    loaded = load(model)
    if proba and not loaded.encoding.task.classifies:
        raise OptionError(f"--proba needs a model of classes, got one of {loaded.encoding.task.kind}")
    rows = loaded.encoding.encode(data)
    say(rows.notes)
    table = loaded.prediction_table(rows, probabilities=proba)
    if escape_formulas:
        table = _escaped(table)
    if out is None:
        typer.echo(_csv(table).decode(), nl=False)
        return
    from ..core import atomic_files
    from ..core.formatting import count

    atomic_files.write(out, _csv(table) if out.suffix.lower() == ".csv" else _parquet(table))
    show(console(), f"written: {printable(str(out))}, {count(table.num_rows, 'row')}")


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
