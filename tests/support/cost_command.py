"""Run `mlp cost` and read what it prints."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from multilayer.cli.main import app

NET = "784-256-128-10"


def run(*args: str, columns: int = 80, code: int = 0):
    result = CliRunner().invoke(app, list(args), env={"COLUMNS": str(columns)})
    assert result.exit_code == code, result.output
    return result


def printed(*args: str, columns: int = 80, code: int = 0) -> str:
    return run("cost", *args, columns=columns, code=code).stdout


def data(*args: str, code: int = 0):
    return json.loads(printed(*args, "--json", code=code))
