"""Helpers for tests of terminal output: events, consoles, a fake clock, and the final content of a terminal."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from multilayer.runs.events import End, EpochEnd, Progress, Start
from multilayer.training import progress as progress_module
from multilayer.training import run_state as course_module

START = Start(
    step=0, network="4-8-3", parameters=67, rows=100, engine="numpy", seed=0, config={"epochs": 5}, versions={}
)


class Clock:
    """A clock that tests set. It replaces the monotonic clock of the training modules."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        for module in (course_module, progress_module):
            monkeypatch.setattr(module.time, "monotonic", lambda: self.now)


def epoch(number: int, *, loss: float = 0.5, validation: float | None = 0.6, **metrics: float) -> EpochEnd:
    return EpochEnd(
        step=10 * (number + 1),
        epoch=number + 1,
        loss=loss,
        seconds=1.0,
        rows_per_second=12345.6,
        validation_loss=validation,
        metrics=metrics,
    )


def step(number: int, loss: float = 0.5) -> Progress:
    return Progress(step=number, epoch=1, loss=loss, gradient_norm=1.0, learning_rate=1e-3)


def end(status: Any = "finished", reason: str = "all epochs are done") -> End:
    return End(step=50, status=status, reason=reason, epoch=5, seconds=5.0, metrics={})


def plain(width: int = 80) -> tuple[Console, io.StringIO]:
    stream = io.StringIO()
    return Console(file=stream, width=width, markup=False, highlight=False), stream


def terminal(width: int = 80) -> tuple[Console, io.StringIO]:
    class Tty(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Tty()
    return Console(file=stream, width=width, height=24, force_terminal=True, color_system="truecolor"), stream


def shown(text: str) -> str:
    """Return all output without the control sequences of the terminal."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")


def screen(text: str) -> list[str]:
    """Return the final lines of a terminal that supports newline, carriage return, cursor up and clear line."""
    lines, row, column = [""], 0, 0
    for steer, plain_text in re.findall(r"(\x1b\[[0-9;?]*[A-Za-z]|\r|\n)|([^\x1b\r\n]+)", text):
        if plain_text:
            line = lines[row].ljust(column)
            lines[row] = line[:column] + plain_text + line[column + len(plain_text) :]
            column += len(plain_text)
        elif steer == "\r":
            column = 0
        elif steer == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif steer.endswith("A"):
            row -= int(steer[2:-1] or 1)
        elif steer == "\x1b[2K":
            lines[row] = ""
    return [line.rstrip() for line in lines]
