"""`mlp lr`: output, files and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from multilayer.cli.main import app

COMMAND = ["lr", "moons", "--arch", "2-8:tanh-1", "--epochs", "120", "--threads", "1"]


def run(*args: str) -> Any:
    return CliRunner().invoke(app, [*COMMAND, *args], env={"COLUMNS": "100", "NO_COLOR": "1"})


def test_the_table_marks_the_suggestion_and_the_command_uses_it(tmp_path: Path) -> None:
    result = run("--plot", str(tmp_path / "lr.svg"))
    assert result.exit_code == 0, result.output
    first, *lines = result.stdout.splitlines()
    rate = first.removeprefix("learning rate ").partition(":")[0]
    assert [line.split()[0] for line in lines if "suggested" in line] == [rate]
    assert [line.split()[0] for line in lines if "default" in line] == ["0.01"]
    assert f"--learning-rate {rate}" in lines[-1]
    assert "<svg" in (tmp_path / "lr.svg").read_text()
    assert result.stderr == ""


def test_json_and_quiet_agree() -> None:
    found = json.loads(run("--json").stdout)
    assert run("--quiet").stdout == f"{found['learning_rate']:g}\n"
    assert found["default"] == 0.01
    assert found["rates"][0] < found["default"] < found["rates"][-1]


def test_without_a_suggestion_the_exit_code_is_1(tmp_path: Path) -> None:
    result = run("--epochs", "3", "--plot", str(tmp_path / "lr.svg"))
    assert result.exit_code == 1
    assert result.stdout.startswith("no suggestion: the training is too short")
    assert not list(tmp_path.iterdir())
    result = run("--epochs", "3", "--json")
    assert (result.exit_code, json.loads(result.stdout)["learning_rate"]) == (1, None)
    assert run("--epochs", "3", "-q").stdout == "none\n"


def test_a_file_of_options_may_contain_a_learning_rate(tmp_path: Path) -> None:
    (tmp_path / "options.toml").write_text('learning_rate = 0.5\noptimizer = "sgd"\npatience = 3\n')
    from_file = json.loads(run("--config", str(tmp_path / "options.toml"), "--json").stdout)
    assert from_file["learning_rate"] == json.loads(run("--optimizer", "sgd", "--json").stdout)["learning_rate"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for a process")
def test_ctrl_c_exits_with_130_and_prints_nothing() -> None:
    code = f"""
import os, signal, sys, time
from multilayer.cli.main import main
from multilayer.training.rate_trials import ShortRuns
ShortRuns.range_test = lambda *_: (os.kill(os.getpid(), signal.SIGINT), time.sleep(30))
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores SIGINT
sys.argv = ["mlp", *{COMMAND!r}]
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
