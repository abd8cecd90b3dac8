"""What every command needs to print or to write a file."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import OptionError, printable

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


def write_file(path: Path, text: str) -> None:
    """All of the file or nothing: written beside the target, then put in its place."""
    folder = path.parent
    if path.is_dir() or not folder.is_dir():
        what = "it is a folder" if path.is_dir() else f"there is no folder {folder}"
        raise OptionError(f"cannot write {path}: {what}")
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{path.name[:50]}.")
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, _mode(path))
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise OptionError(f"cannot write {path}: {error.strerror or error}") from None


def _mode(path: Path) -> int:
    """The rights the file has, or those a new one would get: mkstemp gives it to its owner alone."""
    try:
        return path.stat().st_mode & 0o777
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
