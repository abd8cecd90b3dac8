"""Progress: a block on a terminal, plain lines elsewhere, lines of JSON for programs."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import pytest
from rich.console import Console

from multilayer.runs.events import Checkpoint, Event, NonFinite, Notice, RolledBack, Spike, from_dict
from multilayer.training import progress as progress_module
from multilayer.training.progress import JsonLines, block
from multilayer.training.progress import ProgressDisplay as Bar
from multilayer.training.run_state import RunState
from support.findings import DEAD, LEAKAGE, RATE_TOO_HIGH, event_of
from support.terminals import START, Clock, end, epoch, plain, screen, shown, step, terminal

# Plain lines

FINDINGS = """\
error: Learning rate too high (since epoch 2)
  The learning rate 1 is too high: the training loss rose in 7 of 10 epochs.
  remedy: Lower the learning rate to 0.01.
    mlp train digits --learning-rate 0.01
warning: Dead units (relu1, 40 of 64 units, since epoch 3)
  40 units of 64 in relu1 are dead: they output 0 on every training row and no longer learn, and the layer takes 40 % \
of the FLOPs.
  remedy: Use gelu instead of relu.
    mlp train digits --arch 64-64:gelu-10
"""


def test_findings_are_printed_at_the_end(clock: Clock) -> None:
    console, stream = plain(width=40)
    bar = Bar(50, 5, 10, console=console)
    bar.notice(START)
    bar.notice(event_of(RATE_TOO_HIGH, 20))
    bar.notice(epoch(4))
    bar.notice(event_of(DEAD))
    before = stream.getvalue()
    assert "Dead" not in before
    bar.notice(end("stopped", "accuracy has not improved for 2 epochs"))
    bar.close()
    stopped = "step 50 stopped: accuracy has not improved for 2 epochs\n"
    assert stream.getvalue() == before + stopped + FINDINGS


def test_a_terminal_wraps_the_sentences_of_findings_but_not_the_commands(clock: Clock) -> None:
    console, stream = terminal(60)
    bar = Bar(50, 5, 10, console=console)
    bar.notice(START)
    bar.notice(epoch(4))
    for finding in (DEAD, LEAKAGE):
        bar.notice(event_of(finding))
    bar.notice(end())
    lines = [line.rstrip() for line in shown(stream.getvalue()).split("\n")]
    start = lines.index("warning: Dead units (relu1, 40 of 64 units, since epoch 3)")
    assert lines[start:-1] == [
        "warning: Dead units (relu1, 40 of 64 units, since epoch 3)",
        "  40 units of 64 in relu1 are dead: they output 0 on every",
        "  training row and no longer learn, and the layer takes 40 %",
        "  of the FLOPs.",
        "  remedy: Use gelu instead of relu.",
        "    mlp train digits --arch 64-64:gelu-10",
        "error: Target leakage (column 'discharge date')",
        "  Column 'discharge date' alone predicts the target with an",
        "  accuracy of 99.8 %.",
        "  remedy: Drop the column 'discharge date' if it is not",
        "  known when the model predicts.",
    ]


@pytest.mark.parametrize("quiet", [True, "auto"])
def test_a_quiet_display_prints_no_findings(quiet: Any, clock: Clock) -> None:
    console, stream = terminal()
    with Bar(50, 5, 10, console=console, quiet=quiet) as bar:
        bar.notice(event_of(DEAD))
        bar.notice(end())
    assert "Dead" not in stream.getvalue()


def test_a_line_per_epoch_but_not_too_often(clock: Clock) -> None:
    console, stream = plain()
    bar = Bar(50, 5, 10, metric="accuracy", larger=True, console=console)
    bar.notice(START)
    for i, seconds in enumerate([0.5, 0.5, 2.0, 0.1, 0.1]):
        clock.now += seconds
        bar.notice(step(10 * i + 5))
        bar.notice(epoch(i, accuracy=0.9 - 0.1 * (i == 2)))
        bar.notice(Checkpoint(step=10 * i + 10, kind="last", path="c", sha256="0"))
    bar.notice(end())
    bar.close()
    assert stream.getvalue() == (
        "4-8-3 · 67 parameters · 100 rows · numpy engine\n"
        "epoch 1/5  train loss 0.5  validation loss 0.6  accuracy 0.9  best so far  12,346 rows/s  rate 0.001  "
        "0:02 left\n"
        "epoch 3/5  train loss 0.5  validation loss 0.6  accuracy 0.8  best 0.9 (epoch 1)  12,346 rows/s  rate 0.001  "
        "0:02 left\n"
        "epoch 5/5  train loss 0.5  validation loss 0.6  accuracy 0.9  best 0.9 (epoch 1)  12,346 rows/s  rate 0.001\n"
    )


@pytest.mark.parametrize("closed", [False, True])
def test_the_last_epoch_is_always_printed(closed: bool, clock: Clock) -> None:
    console, stream = plain()
    bar = Bar(50, 5, 10, console=console)
    bar.notice(epoch(0))
    bar.notice(epoch(1))
    bar.notice(epoch(2))
    if closed:
        bar.close()
    else:
        bar.notice(end("stopped", "accuracy has not improved for 2 epochs"))
    lines = stream.getvalue().splitlines()
    assert [line[:9] for line in lines[:2]] == ["epoch 1/5", "epoch 3/5"]
    assert lines[2:] == ([] if closed else ["step 50 stopped: accuracy has not improved for 2 epochs"])
    bar.close()
    assert len(stream.getvalue().splitlines()) == len(lines)


def test_messages_are_printed_at_once_and_in_one_line() -> None:
    console, stream = plain(width=40)
    bar = Bar(50, 5, 10, console=console)
    for event in (
        Spike(step=1234, loss=9.0, limit=2.0, gradient_norm=50.0, layer="linear1", rows=[3, 4]),
        RolledBack(step=10, to_step=10, rate_factor=0.1, reason="the loss exceeded its limit"),
        NonFinite(step=11, where="loss", layer="linear2", unit=None, rows=[1]),
        Notice(step=12, message="the loss is flat", remedy="raise the rate"),
        end("failed", "no space left"),
    ):
        bar.notice(event)
    assert stream.getvalue().splitlines() == [
        "step 1,234 spike: the loss 9 exceeds its limit 2; gradient norm 50, largest in linear1; rows 3, 4",
        "step 10 rollback: back to step 10, rate × 0.1: the loss exceeded its limit",
        "step 11 not finite: first in the loss of linear2; rows 1",
        "step 12 notice: the loss is flat: raise the rate",
        "step 50 failed: no space left",
    ]


def test_names_from_data_cannot_control_a_terminal() -> None:
    console, stream = plain()
    bar = Bar(50, 5, 10, console=console)
    bar.notice(Notice(step=1, message="column \x1b[31mred\n", remedy=""))
    bar.notice(epoch(0, **{"f1\x1b]0;title\x07": 0.5}))
    assert "\x1b" not in stream.getvalue()
    assert r"column \x1b[31mred\n" in stream.getvalue()


def test_quiet_shows_nothing() -> None:
    console, stream = terminal()
    with Bar(50, 5, 10, console=console, quiet=True) as bar:
        for event in (START, epoch(0), Notice(step=1, message="so", remedy=""), end("failed")):
            bar.notice(event)
    assert stream.getvalue() == ""
    assert bar.state.best == (0.6, 1)


def test_ascii_streams_get_ascii() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    bar = Bar(50, 5, 10, console=Console(file=stream, width=80))
    bar.notice(START)
    bar.notice(epoch(0))
    stream.flush()
    assert raw.getvalue().startswith(b"4-8-3 ? 67 parameters")
    assert block(bar.state, bar.console).plain.isascii()


@pytest.mark.parametrize("make", [plain, terminal])
@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(5, "gone"), UnicodeEncodeError("a", "×", 0, 1, "no")])
def test_a_display_that_cannot_write_becomes_silent(make: Any, error: Exception) -> None:
    console, stream = make()

    def broken(_: str) -> int:
        raise error

    console.on_broken_pipe = lambda: broken("")
    bar = Bar(50, 5, 10, console=console)
    bar.notice(START)
    stream.write = broken
    for event in (Notice(step=1, message="so", remedy=""), epoch(0), end()):
        bar.notice(event)
    bar.close()
    assert bar.state.last == epoch(0)


# The block


@pytest.mark.parametrize("width", [1, 20, 40, 60, 80, 120, 300])
@pytest.mark.parametrize("kind", ["nothing", "train", "validation", "metric", "long"])
def test_the_block_fits(width: int, kind: str) -> None:
    console, _ = terminal(width)
    state = RunState(steps=50, epochs=5, steps_per_epoch=10, metric="accuracy", larger=True)
    if kind != "nothing":
        metrics = {"metric": {"accuracy": 0.9}, "long": {"a_rather_long_name_of_a_metric": -1.2345e-12}}.get(kind, {})
        for i in range(3):
            state.take(step(10 * i + 5, loss=3.0 - i))
            state.take(epoch(i, validation=None if kind == "train" else 1e12, **metrics))
    rendered = console.render_lines(block(state, console), pad=False)
    lines = ["".join(part.text for part in line) for line in rendered]
    assert len(lines) == {"nothing": 2, "train": 3, "validation": 3}.get(kind, 4)
    assert all(len(line) <= width for line in lines)
    if width >= 80:
        assert all(len(line) <= width - 3 for line in lines)
        assert "epoch" in lines[0]
        assert kind == "nothing" or "12,346 rows/s" in "".join(lines)


def test_the_block(clock: Clock) -> None:
    console, _ = terminal(80)
    state = RunState(steps=50, epochs=5, steps_per_epoch=10, metric="accuracy", larger=True)
    state.take(START)
    for i, accuracy in enumerate([0.5, 0.9, 0.8]):
        clock.now += 1
        state.take(step(10 * i + 5, loss=2.0**-i))
        state.take(epoch(i, validation=2.0**-i, accuracy=accuracy))
    assert block(state, console).plain.splitlines() == [
        "epoch 4/5           60%  ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━  0:02 left",
        "train loss         0.25  ████▅▅▅▅▅▅▁▁▁▁▁▁                  12,346 rows/s",
        "validation loss    0.25  ███████▅▅▅▅▅▅▁▁▁▁▁▁▁              rate 0.001",
        "accuracy            0.8  ▁▁▁▁▁▁▁██████▆▆▆▆▆▆▆              best 0.9 (epoch 2)",
    ]


@pytest.mark.parametrize(
    ("metric", "line"),
    [("accuracy", "accuracy"), ("loss", "validation loss")],
)
def test_the_best_value_is_next_to_its_curve(metric: str, line: str) -> None:
    console, _ = terminal(100)
    state = RunState(steps=50, epochs=5, steps_per_epoch=10, metric=metric, larger=metric == "accuracy")
    state.take(step(5))
    state.take(epoch(0, accuracy=0.9))
    (found,) = [row for row in block(state, console).plain.splitlines() if "best" in row]
    assert found.startswith(line)


def test_the_block_is_not_redrawn_too_often_and_its_last_state_remains(clock: Clock) -> None:
    console, stream = terminal()
    bar = Bar(1000, 5, 200, console=console)
    bar.notice(START)
    for i in range(1, 101):
        bar.notice(step(i))
    assert shown(stream.getvalue()).count("train loss") == 1
    clock.now += 1
    bar.notice(step(101))
    assert shown(stream.getvalue()).count("train loss") == 2
    bar.notice(epoch(0, loss=0.125))
    bar.close()
    assert [line.split()[0] for line in screen(stream.getvalue())[:-1]] == [
        "4-8-3",
        "epoch",
        "train",
        "validation",
        "rate",
    ]
    assert stream.getvalue().count("\x1b[?25l") == stream.getvalue().count("\x1b[?25h") == 1
    written = stream.getvalue()
    bar.close()
    assert stream.getvalue() == written


def test_a_terminal_with_another_display_gets_lines() -> None:
    from rich.live import Live

    console, stream = terminal()
    with Live(console=console, auto_refresh=False) as other:
        console.set_live = lambda live: (_ for _ in ()).throw(progress_module.LiveError("taken"))  # type: ignore[method-assign]
        bar = Bar(50, 5, 10, console=console)
        bar.notice(START)
        bar.notice(epoch(0))
        del console.set_live
        assert other.is_started
    assert "epoch 1/5  train loss 0.5" in shown(stream.getvalue())


def test_a_notebook_shows_the_block() -> None:
    console = Console(file=io.StringIO(), force_jupyter=True)
    assert Bar(50, 5, 10, console=console)._how == "live"


def test_a_file_with_forced_colours_gets_lines() -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    assert Bar(50, 5, 10, console=console)._how == "plain"
    console, _ = terminal()
    console._environ = {"TERM": "dumb"}
    assert Bar(50, 5, 10, console=console)._how == "plain"


def test_the_default_is_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with Bar(50, 5, 10) as bar:
        bar.notice(epoch(0))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("epoch 1/5")


# For programs


def test_every_event_is_a_line_of_json() -> None:
    stream = io.StringIO()
    events: list[Event] = [START, step(5, loss=math.nan), epoch(0, accuracy=math.inf), end()]
    observer = JsonLines(stream)
    for event in events:
        observer.notice(event)
    lines = [json.loads(line, parse_constant=pytest.fail) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["start", "progress", "epoch", "end"]
    assert from_dict(lines[2]) == events[2]
    assert lines[1]["loss"] == "nan"


def test_json_lines_raise_an_error_if_the_reader_is_gone() -> None:
    class Closed(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        JsonLines(Closed()).notice(START)
