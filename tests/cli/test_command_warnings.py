"""Warnings about rows that differ from the training rows, and about metrics that are not finite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv
from typer.testing import CliRunner, Result

from multilayer.cli.main import app
from multilayer.runs import RunFolder
from multilayer.runs.events import End

FAST = ["--engine", "numpy", "--epochs", "1", "--quiet"]


def mlp(*args: str) -> Result:
    done = CliRunner().invoke(app, list(args))
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"
    return done


def strict(text: str) -> Any:
    def refuse(name: str) -> NoReturn:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the table `t.csv` and a run `r` on it."""
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=80).round(3)
    csv.write_csv(pa.table({"x": x, "kind": ["ab"[i % 2] for i in range(80)], "y": x > 0}), "t.csv")
    mlp("train", "t.csv", "--target", "y", "--run", "r", *FAST)
    return tmp_path


def test_drift_goes_to_standard_error(here: Path) -> None:
    csv.write_csv(pa.table({"x": [0.5, None, -1.0], "kind": ["a", "q", "b"], "y": [True, True, False]}), "new.csv")
    notes = [
        "note: 'x': 1 missing value, none in training: read as the median",
        "note: 'kind': 1 row with 1 value that training did not see: read as unknown",
    ]
    done = mlp("predict", "r", "new.csv")
    assert done.stderr.splitlines() == notes
    assert len(done.stdout.splitlines()) == 4
    done = mlp("evaluate", "r", "new.csv", "--json")
    assert done.stderr.splitlines() == notes
    assert "accuracy" in strict(done.stdout)
    assert mlp("predict", "r", "t.csv").stderr == ""


def test_an_undefined_auc_is_not_printed(here: Path) -> None:
    csv.write_csv(pa.table({"x": [0.5, 1.0], "kind": ["a", "b"], "y": [True, True]}), "one.csv")
    assert strict(mlp("evaluate", "r", "one.csv", "--json").stdout)["auc"] == "nan"
    shown = mlp("evaluate", "r", "one.csv").stdout
    assert "accuracy" in shown
    assert "auc" not in shown


def test_runs_prints_strict_json(here: Path) -> None:
    mlp("train", "t.csv", "--target", "y", "--run", "s", *FAST)
    with RunFolder.open("s", write=True) as folder:
        metrics = {"accuracy": float("nan"), "auc": float("nan"), "log_loss": float("inf")}
        folder.append(End(step=9, status="finished", reason="", epoch=1, seconds=1.0, metrics=metrics))
    found = strict(mlp("runs", "s", "r", "--json").stdout)
    assert [run["run"] for run in found] == ["r", "s"]
    assert found[1]["metrics"] == {"accuracy": "nan", "auc": "nan", "log_loss": "inf"}
    shown = mlp("runs", "s").stdout
    assert "auc" not in shown
    assert "nan" in shown
