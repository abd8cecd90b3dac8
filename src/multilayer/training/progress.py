"""The progress of training, for people and for programs.

A terminal or a notebook shows one block, which is redrawn in place. Messages appear above it and remain:

    epoch 7/20         34%  ━━━━━━━━━━━━━━╸━━━━━━━━━━━━━━━━━━━━━━━━━━  0:14 left
    train loss      0.2341  █▇▆▅▄▃▃▂▂▁▁▁▁▁▁                            52,100 rows/s
    validation loss 0.2811  █▇▆▅▄▃▃▃▃▂▂▂▂▂▂                            rate 9.5e-04
    accuracy        0.9653  ▁▂▄▅▆▇▇████████                            best 0.9712 (epoch 6)

Findings about the run are printed below the block at the end. Other outputs get a line per epoch, but at most one every
two seconds, and always the first and the last.

The estimators show the block only if training takes longer than five seconds, and remove it at the end: `quiet="auto"`.
In this mode, worker processes and outputs other than a terminal or a notebook show nothing.

The display has no thread: it is drawn when an event arrives, so nothing is left running if an exception ends the run.
If writing fails, for example because the terminal was closed, the display stops and training continues.
"""

from __future__ import annotations

import io
import itertools
import json
import multiprocessing
import sys
import time
import warnings
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, TextIO

from rich.console import Console
from rich.errors import LiveError
from rich.live import Live
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from ..core.formatting import clock, number
from ..diagnostics.display import print_findings
from ..errors import printable
from ..models.metrics import shown
from ..runs.events import End, EpochEnd, Event, FindingEvent, Message, Start, effective, message_for
from .run_state import ASCII_BLOCKS, BLOCKS, Point, RunState, columns, limits, sparkline

REDRAW_SECONDS = 0.2
LINE_SECONDS = 2.0
LONG_SECONDS = 5.0
"""Time after which a training run is shown if `quiet` is "auto"."""
WIDEST_CURVE = 100
NARROWEST_CURVE = 8
ECHO = 3
"""Columns left free, because the ^C that a terminal prints in the last column would begin a new line."""

_STYLES = {"info": "cyan", "warn": "yellow", "error": "bold red"}


class ProgressDisplay:
    """An observer that shows the progress of training. Close it, or use it as a context manager.

    Parameters
    ----------
    steps, epochs, steps_per_epoch : int
        Length of the run.
    metric, larger
        Metric that selects the best epoch, and whether larger values are better.
    console : Console, optional
        Where to print. By default, standard error.
    quiet : bool or "auto"
        Whether to show nothing. "auto" shows the block of a long run in a terminal or a notebook.
    past : iterable of Event
        Events of a resumed run from before the interruption, for the curves.
    notes : iterable of str
        Decisions about the data, printed at the start.
    why : str, optional
        Why the run does not use the fused engine.
    """

    def __init__(
        self,
        steps: int,
        epochs: int,
        steps_per_epoch: int,
        *,
        metric: str = "loss",
        larger: bool = False,
        console: Console | None = None,
        quiet: bool | Literal["auto"] = False,
        past: Iterable[Event] = (),
        notes: Iterable[str] = (),
        why: str | None = None,
    ) -> None:
        self.state = RunState(steps=steps, epochs=epochs, steps_per_epoch=steps_per_epoch, metric=metric, larger=larger)
        for event in effective(past):
            self.state.take(event)
        self.notes, self.why = tuple(notes), why
        self.console = _console() if console is None else console
        self._how: Literal["quiet", "plain", "live"] = "quiet" if quiet is True else _how(self.console)
        self._brief = quiet == "auto"
        """Whether only the block of a long run is shown, and removed at the end."""
        if self._brief and (self._how != "live" or multiprocessing.parent_process() is not None):
            self._how = "quiet"
        self._started = time.monotonic()
        self._live: Live | _NotebookBlock | None = None
        self._shown: float | None = None
        """Time of the last output."""
        self._withheld: EpochEnd | None = None
        self._findings: list[dict[str, Any]] = []
        """Findings to print at the end."""

    def notice(self, event: Event) -> None:
        self.state.take(event)
        if self._how == "quiet" or (self._brief and time.monotonic() - self._started < LONG_SECONDS):
            return
        try:
            if self._how == "live":
                self._draw_event(event)
            else:
                self._print_event(event)
        except (OSError, UnicodeError):
            self._how = "quiet"
            self._stop()

    def warn(self, message: str) -> None:
        """Print a message that is not an event. If nothing is shown, raise a warning of Python."""
        if self._how == "quiet" or self._brief:
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        else:
            self._say(Message("warn", "tracker", message), self.state.step)

    def close(self) -> None:
        """Draw the last state, or remove the block of a brief display. Restore the terminal."""
        try:
            if self._live is not None and not self._brief:
                self._redraw()
            elif self._how == "plain":
                self._print_withheld()
        except (OSError, UnicodeError):
            self._how = "quiet"
        finally:
            self._stop()

    def __enter__(self) -> ProgressDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # In a terminal or a notebook

    def _draw_event(self, event: Event) -> None:
        if self._live is None and not isinstance(event, End):
            self._begin()
        self._say_event(event)
        if isinstance(event, End):
            self.close()
            self._print_findings()
            self._how = "quiet"
        elif self._live is not None and (self._shown is None or time.monotonic() - self._shown >= REDRAW_SECONDS):
            self._redraw()

    def _begin(self) -> None:
        if self.console.is_jupyter:
            self._live = _NotebookBlock(keep=not self._brief)
            return
        # Output to a file or a pipe must not be redirected to the terminal.
        live = Live(
            console=self.console,
            auto_refresh=False,
            transient=self._brief,
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=sys.stderr.isatty(),
        )
        try:
            live.start()
            self._live = live
        except LiveError:
            self._how = "quiet" if self._brief else "plain"  # another display uses this terminal

    def _redraw(self) -> None:
        self._shown = time.monotonic()
        if self._live is not None:
            self._live.update(block(self.state, self.console), refresh=True)

    def _stop(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            try:
                live.stop()
            except (OSError, UnicodeError):
                self._how = "quiet"

    # Other outputs

    def _print_event(self, event: Event) -> None:
        if isinstance(event, EpochEnd):
            due = self._shown is None or time.monotonic() - self._shown >= LINE_SECONDS
            self._withheld = event
            if due or event.epoch >= self.state.epochs:
                self._print_withheld()
        if isinstance(event, End):
            self._print_withheld()
        self._say_event(event)
        if isinstance(event, End):
            self._print_findings()

    def _print_withheld(self) -> None:
        if self._withheld is not None:
            self._shown = time.monotonic()
            self._print(Text(line(self.state, self._withheld)))
            self._withheld = None

    # Both

    def _say_event(self, event: Event) -> None:
        words = message_for(event)
        if self._brief:
            return
        if isinstance(event, FindingEvent):
            self._findings.append(event.finding)
        elif words is not None:
            self._say(words, event.step)
        elif isinstance(event, Start):
            for note in self.notes:
                self._print(Text.assemble(("data", "dim"), ": ", printable(note)))
            rows = f"{event.rows:,} rows" if event.rows != 1 else "1 row"
            why = f" ({self.why})" if self.why is not None else ""
            self._print(Text(printable(f"{_networks(event)} · {rows} · {event.engine} engine{why}")))
        elif isinstance(event, End) and event.status != "finished":
            self._say(Message("error" if event.status == "failed" else "warn", event.status, event.reason), event.step)

    def _say(self, words: Message, step: int) -> None:
        place = (f"step {step:,} ", "dim") if step else ""
        text = Text.assemble(place, (words.title, _STYLES[words.level]), ": ", printable(words.text))
        self._print(text)

    def _print_findings(self) -> None:
        if self._findings:
            print_findings(self.console, self._findings)
            self._findings = []

    def _print(self, text: Text) -> None:
        if self.console.options.ascii_only:
            text = Text(text.plain.encode("ascii", "replace").decode())
        self.console.print(text, soft_wrap=self._how != "live")


def _networks(event: Start) -> str:
    """Describe the network and its size, with the number of ensemble members."""
    members = event.config.get("ensemble", 1)
    if members == 1:
        return f"{event.network} · {event.parameters:,} parameters"
    return f"{members} × {event.network} · {members} × {event.parameters:,} parameters"


class _NotebookBlock:
    """The block in a notebook: the output of a cell that is replaced with each update."""

    def __init__(self, *, keep: bool) -> None:
        from IPython.display import display

        self.keep = keep
        self.handle: Any = display({"text/plain": ""}, raw=True, display_id=True)

    def update(self, text: Text, *, refresh: bool) -> None:
        console = Console(file=io.StringIO(), record=True, force_jupyter=False)
        console.print(text, soft_wrap=True)
        # The colors of this theme are visible on light and dark pages.
        page = console.export_html(
            theme=DIMMED_MONOKAI, inline_styles=True, code_format="<pre style='line-height: 1.2'>{code}</pre>"
        )
        self.handle.update({"text/plain": text.plain, "text/html": page}, raw=True)

    def stop(self) -> None:
        if not self.keep:
            self.handle.update({"text/plain": ""}, raw=True)


class JsonLines:
    """An observer that writes every event to a stream as a line of JSON, and flushes the stream."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def notice(self, event: Event) -> None:
        self.stream.write(json.dumps(event.to_dict(), allow_nan=False) + "\n")
        self.stream.flush()


def line(state: RunState, event: EpochEnd) -> str:
    """Return an epoch as one line of text."""
    digits = len(str(state.epochs))
    parts = [f"epoch {event.epoch:>{digits}}/{state.epochs}", f"train loss {number(event.loss)}"]
    if event.validation_loss is not None:
        parts.append(f"validation loss {number(event.validation_loss)}")
    # For some tasks, the loss is also a metric with another name.
    known = None if event.validation_loss is None else number(event.validation_loss)
    parts += [
        f"{printable(name)} {number(value)}" for name, value in shown(event.metrics).items() if number(value) != known
    ]
    if state.best is not None:
        value, epoch = state.best
        parts.append("best so far" if epoch == event.epoch else f"best {number(value)} (epoch {epoch})")
    remaining = [f"{clock(state.left)} left"] if state.left is not None and state.share < 1 else []
    return "  ".join([*parts, *_pace(state), *remaining])


class _Row(NamedTuple):
    """A curve of the block."""

    label: str
    points: list[Point]
    style: str
    is_loss: bool


def block(state: RunState, console: Console) -> Text:
    """Return the block: a progress bar and curves, and to their right the time, the best value and the speed."""
    ascii_only = console.options.ascii_only
    rows = _rows(state)
    tails = _tails(state, rows)
    labels = [f"epoch {state.epoch}/{state.epochs}", *(printable(row.label)[:17] for row in rows)]
    values = [f"{state.share:.0%}", *(number(row.points[-1][1]) if row.points else "" for row in rows)]
    left = max(map(len, labels)) + max(7, *map(len, values)) + 1
    right = max(map(len, tails)) + 2
    room = console.width - left - 2 - ECHO
    if room - right < NARROWEST_CURVE:
        tails, right = [""] * len(tails), 0
    width = max(min(room - right, WIDEST_CURVE), 0)
    curves = [_bar(state.share, width, ascii_only), *_curves(state, rows, width, ascii_only)]
    text = Text(no_wrap=True, overflow="crop")
    for label, value, curve, tail in itertools.zip_longest(labels, values, curves, tails):
        start = f"{label or ''}{value or '':>{left - len(label or '')}}  "
        text.append("\n" if text else "").append(start)
        text.append_text(curve or Text(" " * width))
        text.append(f"  {tail}" if tail else "")
    return text


def _rows(state: RunState) -> list[_Row]:
    rows = [_Row("train loss", state.train, "blue", True)]
    if state.validation:
        rows.append(_Row("validation loss", state.validation, "magenta", True))
    shown = state.metric if state.metric in state.metrics else next(iter(state.metrics), None)
    if shown is not None:
        rows.append(_Row(shown, state.metrics[shown], "green", False))
    return rows


def _curves(state: RunState, rows: list[_Row], width: int, ascii_only: bool) -> list[Text]:
    """Return the curves. Both losses have the same scale, so that overfitting is visible."""
    curves = [columns(row.points, steps=state.steps, width=width, origin=state.origin) for row in rows]
    losses = limits(*(curve for curve, row in zip(curves, rows, strict=True) if row.is_loss))
    blocks = ASCII_BLOCKS if ascii_only else BLOCKS
    return [
        Text(
            sparkline(curve, within=losses if row.is_loss else limits(curve), log=row.is_loss, blocks=blocks).ljust(
                width
            ),
            row.style,
        )
        for curve, row in zip(curves, rows, strict=True)
    ]


def _bar(share: float, width: int, ascii_only: bool) -> Text:
    halves = int(share * width * 2)
    full, half, empty = ("#", "+", "-") if ascii_only else ("━", "╸", "━")
    done = full * (halves // 2) + half * (halves % 2)
    return Text.assemble((done, "cyan"), (empty * (width - len(done)), "bright_black"))


def _tails(state: RunState, rows: list[_Row]) -> list[str]:
    """Return the text to the right of each line: the time, the best value next to its curve, and the speed."""
    remaining = f"{clock(state.left)} left" if state.left is not None else ""
    tails = [f"{clock(state.elapsed)} in all" if state.share >= 1 else remaining]
    best = f"best {number(state.best[0])} (epoch {state.best[1]})" if state.best is not None else ""
    measured = [row.label for row in rows if row.is_loss][-1] if state.metric == "loss" else state.metric
    pace = _pace(state)
    for row in rows:
        tails.append(best if row.label == measured else pace.pop(0) if pace else "")
    return [*tails, *pace]


def _pace(state: RunState) -> list[str]:
    pace: list[str] = []
    if state.speed is not None:
        pace.append(f"{state.speed:,.0f} rows/s")
    if state.learning_rate is not None:
        pace.append(f"rate {state.learning_rate:.2g}")
    return pace


def _how(console: Console) -> Literal["plain", "live"]:
    """Return whether the block can be redrawn in place. A file is not a terminal, even if colors are forced."""
    if console.is_jupyter:
        return "live"
    return "live" if console.is_terminal and console.file.isatty() and not console.is_dumb_terminal else "plain"


def _console() -> Console:
    """Return a console for standard error, because standard output is for the results of a command."""

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Plain(stderr=True, markup=False, highlight=False, emoji=False)
