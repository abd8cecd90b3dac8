"""What every command needs to print."""

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
    """Standard output: as wide as the terminal, or 80 plain columns in a pipe. It guesses no markup and no colours."""
    from rich.console import Console

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # for `main`, which knows the exit code

    return Quiet(markup=False, highlight=False, emoji=False)


def show(console: Console, *parts: RenderableType) -> None:
    """Prints at least as wide as the parts need: a line that is too long is better than a number that is cut."""
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
    """Strict JSON for a person and a program: what is not finite is "nan", "inf" or "-inf", as in a run's log."""
    from ..runs.events import plain

    return json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False)


def say(notes: Iterable[str]) -> None:
    """How new rows differ from training, a line each on standard error."""
    for note in notes:
        print(f"note: {printable(note)}", file=sys.stderr)


def held(table: Table) -> Table:
    """The table with its columns that do not wrap kept as wide as their cells, so that none is ever cut."""
    from rich.cells import cell_len

    for column in table.columns:
        if column.no_wrap:
            cells = [str(cell) for cell in (column.header, *column.cells)]
            column.min_width = max((cell_len(line) for cell in cells for line in cell.splitlines()), default=0)
    return table
