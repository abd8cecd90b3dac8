"""The commands on an ensemble: output, cost, metrics and report; the models equal those of the estimators."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from multilayer import MLPClassifier, MLPRegressor, cost, load
from multilayer.cli.main import app
from multilayer.core.formatting import flops
from support.quick_estimators import people


def mlp(*args: Any) -> Any:
    done = CliRunner().invoke(app, [str(arg) for arg in args])
    assert done.exit_code == 0, done.output
    return done


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    folder = tmp_path_factory.mktemp("ensemble")
    frame, y = people()
    table = frame.drop(columns=["since", "constant"]).assign(outcome=y)
    table.to_parquet(folder / "people.parquet")
    run = folder / "run"
    done = mlp("train", folder / "people.parquet", "--target", "outcome", "--ensemble", 2, "--epochs", 3, "--run", run)
    return folder / "people.parquet", run, done.output


def test_train_prints_members_and_their_cost(trained: tuple[Path, Path, str]) -> None:
    _, run, output = trained
    model = load(run)
    assert len(model.members) == 2
    assert f"2 × {model.spec.n_parameters:,} parameters" in output
    assert "each held out by one of 2 members, stratified by class" in output
    assert f"cost: {flops(2 * cost(model.spec, batch=1).forward)} to predict a row" in output
    assert repr(model).startswith("TrainedModel(2 × ")


def test_quiet_output_of_several_networks_and_of_one(tmp_path: Path) -> None:
    output = mlp("train", "iris", "--ensemble", 2, "--epochs", 1, "--run", tmp_path / "a", "--quiet").stdout
    assert re.search(r"network: 2 × .*, 2 × [\d,]+ parameters", output)
    output = mlp("train", "iris", "--ensemble", 1, "--epochs", 1, "--run", tmp_path / "b", "--quiet").stdout
    assert "×" not in output


def test_show_and_cost_read_runs_and_models(trained: tuple[Path, Path, str]) -> None:
    _, run, _ = trained
    spec = load(run).spec
    assert json.loads(mlp("show", run, "--json").stdout)["parameters"] == spec.n_parameters
    assert json.loads(mlp("cost", run / "model.safetensors", "--json").stdout)["parameters"] == spec.n_parameters


def test_predict_and_evaluate(trained: tuple[Path, Path, str]) -> None:
    table, run, _ = trained
    lines = mlp("predict", run, table).stdout.splitlines()
    assert len(lines) == 121
    assert set(lines[1:]) <= {'"left"', '"stayed"', "left", "stayed"}
    measured = json.loads(mlp("evaluate", run, table, "--json").stdout)
    assert measured["accuracy"] == pytest.approx(load(run).evaluate(table)["accuracy"])


def test_report(trained: tuple[Path, Path, str]) -> None:
    _, run, _ = trained
    report = run / "report.html"
    assert report.stat().st_size > 10_000
    report.unlink()
    mlp("report", run)
    assert report.exists()
    report = json.loads((run / "report.json").read_text())
    assert "members" in json.dumps(report)


def test_the_command_and_the_estimators_give_the_same_model(trained: tuple[Path, Path, str]) -> None:
    import pandas as pd

    table, run, _ = trained
    frame = pd.read_parquet(table)
    y = frame.pop("outcome")
    model = MLPClassifier(ensemble=2, epochs=3, random_state=0).fit(frame, y)
    np.testing.assert_array_equal(model.predict_proba(frame), load(run).predict_proba(frame))
    ours = MLPClassifier.load(run / "model.safetensors")
    np.testing.assert_array_equal(ours.predict(frame), model.predict(frame))


def test_the_command_and_the_regressor_give_the_same_model(tmp_path: Path) -> None:
    frame, _ = people()
    frame = frame[["age", "income", "city"]].assign(age=frame["age"].fillna(40.0))
    frame.to_parquet(tmp_path / "t.parquet")
    mlp("train", tmp_path / "t.parquet", "--target", "age", "--ensemble", 2, "--epochs", 2, "--run", tmp_path / "r")
    y = frame.pop("age")
    model = MLPRegressor(ensemble=2, epochs=2, random_state=0).fit(frame, y)
    np.testing.assert_array_equal(model.predict(frame), load(tmp_path / "r").predict(frame))
