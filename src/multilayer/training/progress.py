"""Progress as people and programs see it.

On a terminal, one block that is drawn again and again, and above it, for good, what a person should hear of:

    epoch 7/20         34%  ━━━━━━━━━━━━━━╸━━━━━━━━━━━━━━━━━━━━━━━━━━  0:14 left
    train loss      0.2341  █▇▆▅▄▃▃▂▂▁▁▁▁▁▁                            52,100 rows/s
    validation loss 0.2811  █▇▆▅▄▃▃▃▃▂▂▂▂▂▂                            rate 9.5e-04
    accuracy        0.9653  ▁▂▄▅▆▇▇████████                            best 0.9712 (epoch 6)

Anywhere else, a plain line an epoch, but no more than one every two seconds, the first and the last always.

It is drawn when something happened, from the thread that trains: no thread of its own, so nothing is left running when
an exception ends the run. A display that breaks (its terminal is gone) goes quiet; training goes on.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import sys
import time
import warnings
from collections.abc import Iterable
from typing import Literal, NamedTuple, TextIO

from rich.console import Console
from rich.errors import LiveError
from rich.live import Live
from rich.text import Text

from ..core.formatting import clock, number
from ..errors import printable
from ..models.metrics import shown
from ..runs.events import End, EpochEnd, Event, Message, Start, effective, message_for
from .run_state import ASCII_BLOCKS, BLOCKS, Point, RunState, columns, limits, sparkline

REDRAW_SECONDS = 0.2
LINE_SECONDS = 2.0
WIDEST_CURVE = 100
NARROWEST_CURVE = 8
ECHO = 3
"""Columns left free: a terminal's ^C on the last of them would begin a new line, and the block be drawn one off."""

_STYLES = {"info": "cyan", "warn": "yellow", "error": "bold red"}


class ProgressDisplay:
    """An observer that shows how training goes; close it, or use it as a context, whatever happens.

    `metric` and `larger` say what "best" means; `past` are the events of a run that goes on, for its curves;
    `notes` are said at its start, and beside the engine `why`, what another one lacks.
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
        quiet: bool = False,
        past: Iterable[Event] = (),
        notes: Iterable[str] = (),
        why: str | None = None,
    ) -> None:
        self.state = RunState(steps=steps, epochs=epochs, steps_per_epoch=steps_per_epoch, metric=metric, larger=larger)
        for event in effective(past):
            self.state.take(event)
        self.notes, self.why = tuple(notes), why
        self.console = _console() if console is None else console
        self._how: Literal["quiet", "plain", "live"] = "quiet" if quiet else _how(self.console)
        self._live: Live | None = None
        self._shown: float | None = None
        """When something was last shown."""
        self._withheld: EpochEnd | None = None

    def notice(self, event: Event) -> None:
        self.state.take(event)
        if self._how == "quiet":
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
        """Says something that is not an event; as Python's own warning where nothing is shown."""
        if self._how == "quiet":
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        else:
            self._say(Message("warn", "tracker", message), self.state.step)

    def close(self) -> None:
        """The last state stays on the screen, and the terminal is as it was."""
        try:
            if self._live is not None:
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

    # On a terminal

    def _draw_event(self, event: Event) -> None:
        if self._live is None and not isinstance(event, End):
            self._begin()
        self._say_event(event)
        if isinstance(event, End):
            self.close()
            self._how = "quiet"
        elif self._live is not None and (self._shown is None or time.monotonic() - self._shown >= REDRAW_SECONDS):
            self._redraw()

    def _begin(self) -> None:
        # Standard output that goes to a file or a program must keep going there.
        live = Live(
            console=self.console,
            auto_refresh=False,
            transient=False,
            redirect_stdout=sys.stdout.isatty() or self.console.is_jupyter,
            redirect_stderr=sys.stderr.isatty() or self.console.is_jupyter,
        )
        try:
            live.start()
            self._live = live
        except LiveError:
            self._how = "plain"  # another display has this terminal

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

    # Anywhere else

    def _print_event(self, event: Event) -> None:
        if isinstance(event, EpochEnd):
            due = self._shown is None or time.monotonic() - self._shown >= LINE_SECONDS
            self._withheld = event
            if due or event.epoch >= self.state.epochs:
                self._print_withheld()
        if isinstance(event, End):
            self._print_withheld()
        self._say_event(event)

    def _print_withheld(self) -> None:
        if self._withheld is not None:
            self._shown = time.monotonic()
            self._print(Text(line(self.state, self._withheld)))
            self._withheld = None

    # Both

    def _say_event(self, event: Event) -> None:
        words = message_for(event)
        if words is not None:
            self._say(words, event.step)
        elif isinstance(event, Start):
            for note in self.notes:
                self._print(Text.assemble(("data", "dim"), ": ", printable(note)))
            rows = f"{event.rows:,} rows" if event.rows != 1 else "1 row"
            why = "" if self.why is None else f" ({self.why})"
            self._print(Text(printable(f"{_networks(event)} · {rows} · {event.engine} engine{why}")))
        elif isinstance(event, End) and event.status != "finished":
            self._say(Message("error" if event.status == "failed" else "warn", event.status, event.reason), event.step)

    def _say(self, words: Message, step: int) -> None:
        place = (f"step {step:,} ", "dim") if step else ""
        text = Text.assemble(place, (words.title, _STYLES[words.level]), ": ", printable(words.text))
        self._print(text)

    def _print(self, text: Text) -> None:
        if self.console.options.ascii_only:
            text = Text(text.plain.encode("ascii", "replace").decode())
        self.console.print(text, soft_wrap=self._how != "live")


def _networks(event: Start) -> str:
    """The network and its size, times the members of an ensemble."""
    members = event.config.get("ensemble", 1)
    if members == 1:
        return f"{event.network} · {event.parameters:,} parameters"
    return f"{members} × {event.network} · {members} × {event.parameters:,} parameters"


class JsonLines:
    """An observer that writes every event to a stream, one JSON object a line, at once."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def notice(self, event: Event) -> None:
        self.stream.write(json.dumps(event.to_dict(), allow_nan=False) + "\n")
        self.stream.flush()


def line(state: RunState, event: EpochEnd) -> str:
    """An epoch in one plain line."""
    digits = len(str(state.epochs))
    parts = [f"epoch {event.epoch:>{digits}}/{state.epochs}", f"train loss {number(event.loss)}"]
    if event.validation_loss is not None:
        parts.append(f"validation loss {number(event.validation_loss)}")
    # The loss of some tasks is a metric too, under another name.
    said = None if event.validation_loss is None else number(event.validation_loss)
    parts += [
        f"{printable(name)} {number(value)}" for name, value in shown(event.metrics).items() if number(value) != said
    ]
    if state.best is not None:
        value, epoch = state.best
        parts.append("best so far" if epoch == event.epoch else f"best {number(value)} (epoch {epoch})")
    left = [f"{clock(state.left)} left"] if state.left is not None and state.share < 1 else []
    return "  ".join([*parts, *_pace(state), *left])


class _Row(NamedTuple):
    """A curve of the block."""

    label: str
    points: list[Point]
    style: str
    is_loss: bool


def block(state: RunState, console: Console) -> Text:
    """The block on a terminal: bar and curves over the same columns, what is best and how fast beside them."""
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
    """Losses share a scale, so that a validation curve that leaves the training curve is seen to."""
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
    """What stands at the right: the time, then the pace, with the best beside the curve it is of."""
    left = "" if state.left is None else f"{clock(state.left)} left"
    tails = [f"{clock(state.elapsed)} in all" if state.share >= 1 else left]
    best = "" if state.best is None else f"best {number(state.best[0])} (epoch {state.best[1]})"
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
    """Whether the block can be drawn again in place. Colours that are forced into a file make it no terminal."""
    if console.is_jupyter:
        # Without widgets, rich can show a block once and not again.
        return "live" if importlib.util.find_spec("ipywidgets") is not None else "plain"
    return "live" if console.is_terminal and console.file.isatty() and not console.is_dumb_terminal else "plain"


def _console() -> Console:
    """Standard error: what comes out of a command goes to standard output."""

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Plain(stderr=True, markup=False, highlight=False, emoji=False)
