"""Weights of rows and classes, from a column, an array or the classes. They are stored with the run, and checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv
from typer.testing import CliRunner

from multilayer.cli.main import app
from multilayer.errors import DataError, MultilayerError, OptionError, RunError
from multilayer.runs.config import Config
from multilayer.training.fit import fit, resume
from support.run_folders import parameters, unfinished

FAST: dict[str, Any] = {"recipe": "plain", "engine": "numpy", "epochs": 2, "quiet": True}
ROWS = 80
W = np.random.default_rng(1).uniform(0.5, 3, ROWS).round(2)


def columns(**more: Any) -> Any:
    x = np.random.default_rng(0).normal(size=ROWS)
    return pa.table({"x": x.round(3), "y": np.where(x > 0.5, "rare", "usual"), **more})


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    csv.write_csv(columns(w=W), path)
    return path


def test_a_column_and_an_array_are_the_same_weights(table: Path) -> None:
    named = fit(None, table, target="y", sample_weight="w", **FAST)
    given = fit(None, columns(), target="y", sample_weight=W, **FAST)
    without = fit(None, columns(), target="y", **FAST)
    assert parameters(named) == parameters(given) != parameters(without)
    assert named.metrics == given.metrics


def test_a_run_keeps_the_name_of_its_weights(table: Path, tmp_path: Path) -> None:
    first = fit(None, table, target="y", sample_weight="w", run=tmp_path / "run", **FAST)
    unfinished(tmp_path / "run")
    with pytest.raises(RunError, match="has its weights in the data: omit sample_weight, got 'x'"):
        resume(tmp_path / "run", sample_weight="x", quiet=True)
    assert parameters(resume(tmp_path / "run", quiet=True)) == parameters(first)


def test_weights_in_memory_must_be_passed_again(table: Path, tmp_path: Path) -> None:
    first = fit(None, table, target="y", sample_weight=W, run=tmp_path / "run", **FAST)
    unfinished(tmp_path / "run")
    with pytest.raises(RunError, match=r"was trained with weights in memory: pass them again, ml\.resume"):
        resume(tmp_path / "run", quiet=True)
    with pytest.raises(RunError, match="the data differs from"):
        resume(tmp_path / "run", sample_weight=W + 1, quiet=True)
    assert parameters(resume(tmp_path / "run", sample_weight=W, quiet=True)) == parameters(first)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"sample_weight": W[1:]},
            DataError,
            r"weights must be one number for each of 80 rows, got an array of shape \(79,\)",
        ),
        ({"sample_weight": -W}, DataError, r"row 1, .*weights must be 0 or more and finite, got -"),
        ({"sample_weight": W * np.nan}, DataError, "weights must be 0 or more and finite, got nan"),
        ({"sample_weight": ["many"] * ROWS}, DataError, r"weights must be one number per row, got \['many'"),
        ({"sample_weight": "y"}, OptionError, "sample_weight must not be the target, got 'y'"),
        ({"sample_weight": "v"}, DataError, "'v'"),
        (
            {"class_weight": {"rar": 2.0}},
            OptionError,
            "class_weight must name classes of the target, got 'rar': classes are rare, usual",
        ),
        ({"class_weight": {"rare": "2"}}, OptionError, "class_weight must be a string or a number for each class"),
    ],
)
def test_invalid_weights(table: Path, options: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        fit(None, table, target="y", **options, **FAST)
    assert isinstance(caught.value, MultilayerError)


def test_weights_of_classes_are_saved_with_the_run(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(ROWS, 2))
    y = (x[:, 0] > 0.8).astype(int)
    first = fit("2-1", (x, y), class_weight={1: 4.0}, run=tmp_path / "run", **FAST)
    assert parameters(first) == parameters(fit("2-1", (x, y), class_weight={"1": 4}, **FAST))
    assert parameters(first) == parameters(fit("2-1", (x, y > 0), class_weight={"true": 4}, **FAST))
    assert parameters(first) != parameters(fit("2-1", (x, y), **FAST))
    unfinished(tmp_path / "run")
    assert parameters(resume(tmp_path / "run", data=(x, y), quiet=True)) == parameters(first)
    config = Config(class_weight={"1": 4.0})
    assert Config.from_dict(config.to_dict()) == config


@pytest.mark.parametrize("four", [np.int64(4), np.float32(4), np.uint8(4)])
def test_weights_of_classes_may_be_numbers_of_numpy(four: Any) -> None:
    config = Config(class_weight={np.int64(1): four})  # type: ignore[dict-item]
    assert config == Config(class_weight={"1": 4})
    assert type(config.to_dict()["class_weight"]["1"]) in (int, float)
    with pytest.raises(OptionError, match=r"class_weight must be .* a number for each class"):
        Config(class_weight={"1": np.bool_(True)})  # type: ignore[dict-item]


def test_weights_on_the_command_line(table: Path, tmp_path: Path) -> None:
    toml = tmp_path / "c.toml"
    toml.write_text('engine = "numpy"\nepochs = 2\n[class_weight]\nrare = 5.0\n')
    run = tmp_path / "run"
    given = ["--target", "y", "--sample-weight", "w", "--config", str(toml), "--run", str(run), "--recipe", "plain"]
    done = CliRunner().invoke(app, ["train", str(table), *given, "-q"])
    assert done.exit_code == 0, done.output
    saved = json.loads((run / "config.json").read_text())["config"]
    assert saved["data"]["sample_weight"] == "w"
    assert saved["config"]["class_weight"] == {"rare": 5.0}
    from multilayer.models.trained_model import load

    same = fit(None, table, target="y", sample_weight="w", class_weight={"rare": 5.0}, **FAST)
    assert parameters(same) == [load(run).tensors[name].tobytes() for name in sorted(load(run).tensors)]
