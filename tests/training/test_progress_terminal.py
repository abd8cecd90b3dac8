"""Progress in a real terminal, whose state is restored at the end."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from support.terminals import screen, shown

SCRIPT = """
import math, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # background processes ignore SIGINT
from multilayer.runs.events import EpochEnd, Notice, Progress, Start
from multilayer.training.progress import ProgressDisplay as Bar

with Bar(1000, 10, 100, metric="accuracy", larger=True) as bar:
    bar.notice(Start(step=0, network="4-8-3", parameters=67, rows=100, engine="numpy", seed=0, config={}, versions={}))
    for e in range(10):
        for s in (50, 100):
            time.sleep(0.02 if sys.argv[1] == "whole" else 0.2)
            bar.notice(Progress(step=100 * e + s, epoch=e + 1, loss=math.exp(-e), gradient_norm=1, learning_rate=1e-3))
        bar.notice(EpochEnd(step=100 * (e + 1), epoch=e + 1, loss=math.exp(-e), seconds=1, rows_per_second=52100,
                            validation_loss=math.exp(-e / 2), metrics={"accuracy": 1 - math.exp(-e)}))
        if e == 2:
            bar.notice(Notice(step=300, message="the loss is flat", remedy="raise the rate"))
            print("printed by the user", flush=True)
        if sys.argv[1] == "raise" and e == 3:
            raise RuntimeError("broken")
print("done")
"""


def in_terminal(how: str, width: int, *, interrupt: bool = False, stdout: int | None = None) -> tuple[str, int]:
    """Return the output to a terminal of that width, and the exit code."""
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
def test_the_state_of_a_terminal_is_restored(how: str) -> None:
    sent, code = in_terminal(how, 80, interrupt=how == "interrupt")
    assert code != 0
    assert sent.rindex("\x1b[?25h") > sent.rindex("\x1b[?25l")
    text = shown(sent)
    assert ("RuntimeError: broken" if how == "raise" else "KeyboardInterrupt") in text
    assert text.index("Traceback") > text.rindex("rows/s")


def test_standard_output_is_not_redirected(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as out:
        sent, code = in_terminal("whole", 80, stdout=out.fileno())
    assert code == 0
    assert (tmp_path / "out").read_text() == "printed by the user\ndone\n"
    assert "printed" not in sent
    assert "epoch 10/10" in shown(sent)
