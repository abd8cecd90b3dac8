"""Progress: a block on a terminal, plain lines elsewhere, and a terminal that is left as it was found."""

from __future__ import annotations

import fcntl
import io
import json
import math
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from multilayer.events import (
    Checkpoint,
    End,
    EpochEnd,
    Event,
    NonFinite,
    Notice,
    Progress,
    Resume,
    RolledBack,
    Spike,
    Start,
    from_dict,
)
from multilayer.training import course as course_module
from multilayer.training import progress as progress_module
from multilayer.training.course import BLOCKS, MOST_POINTS, Course, columns, duration, limits, sparkline, thinned
from multilayer.training.progress import JsonLines, block
from multilayer.training.progress import Progress as Bar

START = Start(
    step=0, network="4-8-3", parameters=67, rows=100, engine="numpy", seed=0, config={"epochs": 5}, versions={}
)


class Clock:
    """Time that passes when told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        for module in (course_module, progress_module):
            monkeypatch.setattr(module.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def epoch(number: int, *, loss: float = 0.5, validation: float | None = 0.6, **metrics: float) -> EpochEnd:
    return EpochEnd(
        step=10 * (number + 1),
        epoch=number,
        loss=loss,
        seconds=1.0,
        rows_per_second=12345.6,
        validation_loss=validation,
        metrics=metrics,
    )


def step(number: int, loss: float = 0.5) -> Progress:
    return Progress(step=number, epoch=0, loss=loss, gradient_norm=1.0, rate=1e-3)


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
    """Everything that was ever shown, without what steers the terminal."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")


def screen(text: str) -> list[str]:
    """What a terminal without an end shows at last: it knows newline, return, up, and clearing a line."""
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


# What a display knows


def test_columns_are_means_and_take_what_follows() -> None:
    assert columns([], steps=10, width=5) == []
    assert columns([(1, 1.0), (2, 3.0)], steps=4, width=2) == [2.0]
    assert columns([(4, 7.0)], steps=4, width=4) == [7.0, 7.0, 7.0, 7.0]
    assert columns([(4, 7.0)], steps=4, width=4, origin=2) == [None, None, 7.0, 7.0]
    assert columns([(1, 1.0)], steps=1, width=1) == [1.0]
    assert columns([(1, 1.0), (9, 2.0)], steps=3, width=2) == [1.0, 2.0]
    assert columns([(1, 1.0)], steps=10, width=0) == []


def test_columns_never_exceed_the_bar() -> None:
    for width in (1, 7, 28):
        for at in range(1, 101):
            bar = math.ceil(at * width / 100)
            assert len(columns([(at, 1.0)], steps=100, width=width)) == bar


def test_sparklines() -> None:
    assert sparkline(range(8), within=(0, 7)) == BLOCKS
    assert sparkline([1.0, 1.0], within=(1.0, 1.0)) == "▁▁"
    assert sparkline([math.nan, 1.0, math.inf], within=limits([math.nan, 1.0, math.inf])) == "×▁×"
    assert sparkline([math.nan], within=limits([math.nan])) == "×"
    assert sparkline([], within=None) == ""
    assert sparkline([-1.0, 1.0], within=(-1.0, 1.0), log=True) == "▁█"
    assert sparkline([1e-8, 1e-4, 1.0], within=(1e-8, 1.0), log=True) == "▁▅█"
    assert sparkline([0.0, 5.0, math.nan], within=(1.0, 2.0), blocks="_#") == "_#x"


def test_points_are_thinned_so_that_a_long_run_draws_as_fast_as_a_short_one() -> None:
    course = Course(steps=100_000, epochs=1, steps_per_epoch=100_000)
    for i in range(1, 3 * MOST_POINTS):
        course.take(step(i, loss=float(i)))
    assert len(course.train) <= MOST_POINTS + 1
    assert course.train[-1] == (3 * MOST_POINTS - 1, 3 * MOST_POINTS - 1)
    assert course.train == sorted(course.train)
    assert thinned([(1, 1.0)]) == [(1, 1.0)]


def test_time_left_and_speed(clock: Clock) -> None:
    course = Course(steps=50, epochs=5, steps_per_epoch=10)
    assert (course.left, course.speed, course.epoch) == (None, None, 1)
    course.take(START)
    clock.now += 2
    course.take(step(5))
    assert course.left == pytest.approx(18)
    assert course.speed == pytest.approx(25)  # 5 steps of 10 rows in 2 s
    course.take(epoch(0))
    assert course.speed == 12345.6
    assert (course.epoch, course.share) == (2, 0.2)


def test_steps_that_were_rolled_back_count_as_time_spent(clock: Clock) -> None:
    course = Course(steps=40, epochs=4, steps_per_epoch=10)
    for event in (step(10), step(15), RolledBack(step=10, to_step=10, rate_factor=0.1, reason="so")):
        course.take(event)
    clock.now += 15
    assert course.left == pytest.approx(30)
    assert course.train == [(10, 0.5)]


def test_a_rollback_takes_back_the_best() -> None:
    course = Course(steps=50, epochs=5, steps_per_epoch=10, metric="accuracy", larger=True)
    for event in (epoch(0, accuracy=0.7), epoch(1, accuracy=0.9)):
        course.take(event)
    assert course.best == (0.9, 2)
    course.take(RolledBack(step=10, to_step=10, rate_factor=0.1, reason="so"))
    assert course.best == (0.7, 1)
    course.take(epoch(1, accuracy=math.nan))
    assert course.best == (0.7, 1)


def test_without_validation_the_training_loss_decides() -> None:
    course = Course(steps=20, epochs=2, steps_per_epoch=10)
    for event in (epoch(0, loss=0.5, validation=None), epoch(1, loss=0.7, validation=None)):
        course.take(event)
    assert course.best == (0.5, 1)


def test_a_run_that_goes_on_counts_its_own_time(clock: Clock) -> None:
    console, stream = plain()
    bar = Bar(50, 5, 10, console=console, past=[START, epoch(0), epoch(1)])
    assert bar.course.best == (0.6, 1)
    clock.now += 1000
    bar.notice(Resume(step=20, checkpoint="c/20", kept=3, notes=[]))
    clock.now += 1
    bar.notice(epoch(2))
    assert bar.course.left == pytest.approx(2)
    assert [at for at, _ in bar.course.validation] == [10, 20, 30]
    assert stream.getvalue().startswith("step 20 resume: goes on from c/20\n")


def test_durations() -> None:
    assert [duration(s) for s in (0, 0.6, 59.6, 3600)] == ["0:00", "0:01", "1:00", "1:00:00"]


# Plain lines


def test_a_line_an_epoch_but_not_too_often(clock: Clock) -> None:
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
def test_the_last_epoch_is_told_wherever_the_run_ends(closed: bool, clock: Clock) -> None:
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


def test_what_a_person_should_hear_of_is_told_at_once_and_in_one_line() -> None:
    console, stream = plain(width=40)
    bar = Bar(50, 5, 10, console=console)
    for event in (
        Spike(step=1234, loss=9.0, limit=2.0, gradient_norm=50.0, layer="linear1", rows=[3, 4]),
        RolledBack(step=10, to_step=10, rate_factor=0.1, reason="the loss left its band"),
        NonFinite(step=11, where="loss", layer="linear2", unit=None, rows=[1]),
        Notice(step=12, message="the loss is flat", remedy="raise the rate"),
        end("failed", "no space left"),
    ):
        bar.notice(event)
    assert stream.getvalue().splitlines() == [
        "step 1,234 spike: the loss 9 is over its limit 2; gradient norm 50, largest in linear1; rows 3, 4",
        "step 10 rollback: back to step 10, rate × 0.1: the loss left its band",
        "step 11 not finite: first in the loss of linear2; rows 1",
        "step 12 notice: the loss is flat: raise the rate",
        "step 50 failed: no space left",
    ]


def test_names_from_data_cannot_steer_a_terminal() -> None:
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
    assert bar.course.best == (0.6, 1)


def test_ascii_streams_get_ascii() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    bar = Bar(50, 5, 10, console=Console(file=stream, width=80))
    bar.notice(START)
    bar.notice(epoch(0))
    stream.flush()
    assert raw.getvalue().startswith(b"4-8-3 ? 67 parameters")
    assert block(bar.course, bar.console).plain.isascii()


@pytest.mark.parametrize("make", [plain, terminal])
@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(5, "gone"), UnicodeEncodeError("a", "×", 0, 1, "no")])
def test_a_display_that_breaks_goes_quiet(make: Any, error: Exception) -> None:
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
    assert bar.course.last == epoch(0)


# The block


@pytest.mark.parametrize("width", [1, 20, 40, 60, 80, 120, 300])
@pytest.mark.parametrize("kind", ["nothing", "train", "validation", "metric", "long"])
def test_the_block_fits(width: int, kind: str) -> None:
    console, _ = terminal(width)
    course = Course(steps=50, epochs=5, steps_per_epoch=10, metric="accuracy", larger=True)
    if kind != "nothing":
        metrics = {"metric": {"accuracy": 0.9}, "long": {"a_rather_long_name_of_a_metric": -1.2345e-12}}.get(kind, {})
        for i in range(3):
            course.take(step(10 * i + 5, loss=3.0 - i))
            course.take(epoch(i, validation=None if kind == "train" else 1e12, **metrics))
    rendered = console.render_lines(block(course, console), pad=False)
    lines = ["".join(part.text for part in line) for line in rendered]
    assert len(lines) == {"nothing": 2, "train": 3, "validation": 3}.get(kind, 4)
    assert all(len(line) <= width for line in lines)
    if width >= 80:
        assert all(len(line) <= width - 3 for line in lines)
        assert "epoch" in lines[0]
        assert kind == "nothing" or "12,346 rows/s" in "".join(lines)


def test_the_block(clock: Clock) -> None:
    console, _ = terminal(80)
    course = Course(steps=50, epochs=5, steps_per_epoch=10, metric="accuracy", larger=True)
    course.take(START)
    for i, accuracy in enumerate([0.5, 0.9, 0.8]):
        clock.now += 1
        course.take(step(10 * i + 5, loss=2.0**-i))
        course.take(epoch(i, validation=2.0**-i, accuracy=accuracy))
    assert block(course, console).plain.splitlines() == [
        "epoch 4/5           60%  ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━  0:02 left",
        "train loss         0.25  ████▅▅▅▅▅▅▁▁▁▁▁▁                  12,346 rows/s",
        "validation loss    0.25  ███████▅▅▅▅▅▅▁▁▁▁▁▁▁              rate 0.001",
        "accuracy            0.8  ▁▁▁▁▁▁▁██████▆▆▆▆▆▆▆              best 0.9 (epoch 2)",
    ]


@pytest.mark.parametrize(
    ("metric", "line"),
    [("accuracy", "accuracy"), ("loss", "validation loss")],
)
def test_the_best_stands_beside_its_curve(metric: str, line: str) -> None:
    console, _ = terminal(100)
    course = Course(steps=50, epochs=5, steps_per_epoch=10, metric=metric, larger=metric == "accuracy")
    course.take(step(5))
    course.take(epoch(0, accuracy=0.9))
    (found,) = [row for row in block(course, console).plain.splitlines() if "best" in row]
    assert found.startswith(line)


def test_drawing_is_not_too_often_and_the_last_state_stays(clock: Clock) -> None:
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


def test_a_terminal_that_has_a_display_already_gets_lines() -> None:
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


@pytest.mark.parametrize(("widgets", "how"), [(True, "live"), (False, "plain")])
def test_notebooks(widgets: bool, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module.importlib.util, "find_spec", lambda name: object() if widgets else None)
    console = Console(file=io.StringIO(), force_jupyter=True)
    assert Bar(50, 5, 10, console=console)._how == how


def test_forced_colours_make_no_terminal_of_a_file() -> None:
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


# A real terminal

SCRIPT = """
import math, sys, time
from multilayer.events import EpochEnd, Notice, Progress, Start
from multilayer.training.progress import Progress as Bar

with Bar(1000, 10, 100, metric="accuracy", larger=True) as bar:
    bar.notice(Start(step=0, network="4-8-3", parameters=67, rows=100, engine="numpy", seed=0, config={}, versions={}))
    for e in range(10):
        for s in (50, 100):
            time.sleep(0.02 if sys.argv[1] == "whole" else 0.2)
            bar.notice(Progress(step=100 * e + s, epoch=e, loss=math.exp(-e), gradient_norm=1, rate=1e-3))
        bar.notice(EpochEnd(step=100 * (e + 1), epoch=e, loss=math.exp(-e), seconds=1, rows_per_second=52100,
                            validation_loss=math.exp(-e / 2), metrics={"accuracy": 1 - math.exp(-e)}))
        if e == 2:
            bar.notice(Notice(step=300, message="the loss is flat", remedy="raise the rate"))
            print("printed by the user", flush=True)
        if sys.argv[1] == "raise" and e == 3:
            raise RuntimeError("broken")
print("done")
"""


def in_terminal(how: str, width: int, *, interrupt: bool = False, stdout: int | None = None) -> tuple[str, int]:
    """What a terminal of that width is sent, and the exit code."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": os.pathsep.join(sys.path)}
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
        environment.pop(name, None)
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, how],
        stdin=child,
        stdout=child if stdout is None else stdout,
        stderr=child,
        env=environment,
        start_new_session=True,
    )
    os.close(child)
    sent, deadline = b"", time.time() + 60
    while time.time() < deadline:
        try:
            part = os.read(parent, 65536)
        except OSError:
            break
        if not part:
            break
        sent += part
        if interrupt and b"printed by the user" in sent:
            interrupt = False
            process.send_signal(signal.SIGINT)
    os.close(parent)
    return sent.decode(), process.wait(timeout=60)


@pytest.mark.parametrize("width", [80, 120])
def test_in_a_real_terminal(width: int) -> None:
    sent, code = in_terminal("whole", width)
    assert code == 0
    assert sent.count("\x1b[?25l") == sent.count("\x1b[?25h") == 1
    *above, done, empty = screen(sent)
    assert (done, empty) == ("done", "")
    final = above[-4:]
    assert above[:-4] == [
        "4-8-3 · 67 parameters · 100 rows · numpy engine",
        "step 300 notice: the loss is flat: raise the rate",
        "printed by the user",
    ]
    assert [line.split()[0] for line in final] == ["epoch", "train", "validation", "accuracy"]
    assert final[0].split()[1:3] == ["10/10", "100%"]
    assert "52,100 rows/s" in final[1]
    assert final[3].endswith("best 0.9999 (epoch 10)")
    assert all(width - 10 <= len(line) <= width - 3 for line in final[3:])


@pytest.mark.parametrize("how", ["raise", "interrupt"])
def test_a_terminal_is_left_sane(how: str) -> None:
    sent, code = in_terminal(how, 80, interrupt=how == "interrupt")
    assert code != 0
    assert sent.rindex("\x1b[?25h") > sent.rindex("\x1b[?25l")
    text = shown(sent)
    assert ("RuntimeError: broken" if how == "raise" else "KeyboardInterrupt") in text
    assert text.index("Traceback") > text.rindex("rows/s")


def test_standard_output_keeps_going_where_it_goes(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as out:
        sent, code = in_terminal("whole", 80, stdout=out.fileno())
    assert code == 0
    assert (tmp_path / "out").read_text() == "printed by the user\ndone\n"
    assert "printed" not in sent
    assert "epoch 10/10" in shown(sent)


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


def test_json_lines_do_not_hide_that_nobody_reads_them() -> None:
    class Closed(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        JsonLines(Closed()).notice(START)
