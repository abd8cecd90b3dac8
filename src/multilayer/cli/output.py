"""Printing for every command: the console, tables, JSON and notes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..errors import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table


def console() -> Console:
    """Return a console for standard output: as wide as the terminal, or 80 columns without colors in a pipe."""
    from rich.console import Console

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # `main` exits with the code of a broken pipe

    return Quiet(markup=False, highlight=False, emoji=False)


def show(console: Console, *parts: RenderableType) -> None:
    """Print the parts. A part that is wider than the console is printed in full width, so that no number is cut."""
    from rich.measure import Measurement

    width = console.width
    for part in parts:
        needed = Measurement.get(console, console.options.update(width=10_000), part).minimum
        console.width = max(width, needed)
        with console.capture() as lines:
            console.print(part)
        console.file.write("".join(f"{line.rstrip()}\n" for line in lines.get().splitlines()))
    console.width = width


def strict_json(value: Any) -> str:
    """Return indented JSON. Numbers that are not finite become "nan", "inf" or "-inf", as in the events of a run."""
    from ..core.canonical_json import plain

    return json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False)


def print_notes(notes: Iterable[str]) -> None:
    """Print how new rows differ from the training rows, one line per note, to standard error."""
    for note in notes:
        print(f"note: {printable(note)}", file=sys.stderr)


def uncut(table: Table) -> Table:
    """Make columns that do not wrap as wide as their widest cell, so that no cell is cut."""
    from rich.cells import cell_len

    for column in table.columns:
        if column.no_wrap:
            cells = [str(cell) for cell in (column.header, *column.cells)]
            column.min_width = max((cell_len(line) for cell in cells for line in cell.splitlines()), default=0)
    return table
