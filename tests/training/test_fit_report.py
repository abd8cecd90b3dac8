"""The report of `fit` and `resume`: it is written while the run is locked, with a message if it takes long."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import multilayer as ml
from multilayer.cli.main import app
from multilayer.errors import RunError
from multilayer.pages.report import report as module
from multilayer.runs import RunFolder
from multilayer.training import run as reporting

FAST: dict[str, Any] = {"epochs": 1, "quiet": True, "threads": 1}


def test_a_run_is_locked_while_its_report_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, messages = tmp_path / "run", list[str]()

    def of_run(*args: Any, **how: Any) -> Any:
        with pytest.raises(RunError, match="is open in this process") as refused:
            RunFolder.open(path, write=True)
        messages.append(str(refused.value))
        return written(*args, **how)

    written = module.of_run
    monkeypatch.setattr(module, "of_run", of_run)
    ml.fit("4-8-3", "iris", run=path, **FAST)
    ml.resume(path, quiet=True)
    assert len(messages) == 2
    RunFolder.open(path, write=True).close()


def test_a_report_can_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "run"
    ml.fit("4-8-3", "iris", run=path, report=False, **FAST)
    ml.resume(path, quiet=True, report=False)
    assert not list(path.glob("report.*"))
    ml.resume(path, quiet=True)
    assert sorted(file.name for file in path.glob("report.*")) == ["report.html", "report.json"]


@pytest.mark.parametrize("quiet", [False, True])
def test_the_command_line_says_that_a_report_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: bool
) -> None:
    def of_run(*args: Any, **how: Any) -> Any:
        time.sleep(0.1)
        return written(*args, **how)

    written = module.of_run
    monkeypatch.setattr(module, "of_run", of_run)
    monkeypatch.setattr(reporting, "REPORT_MESSAGE_SECONDS", 0.01)
    how = ["--quiet"] if quiet else []
    done = CliRunner().invoke(
        app, ["train", "iris", "--epochs", "1", "--arch", "4-8-3", "--run", str(tmp_path / "run"), *how]
    )
    assert done.exit_code == 0
    assert ("writing the report …" in done.stderr) is not quiet
