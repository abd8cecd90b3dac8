"""The option `categorical` of `ml.fit` and `mlp train`: it is stored with the run, and checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sparse
from typer.testing import CliRunner

from multilayer.cli.main import app
from multilayer.errors import DataError, OptionError
from multilayer.nn.layers import Inputs
from multilayer.training.fit import Run, fit, resume
from support.run_folders import parameters, unfinished
from support.training_rows import prepare

FAST: dict[str, Any] = {"recipe": "plain", "engine": "numpy", "epochs": 2, "quiet": True}
ROWS = 80
X = np.random.default_rng(0).normal(size=ROWS).round(3)
ZIP = np.array([10115, 80331, 50667, 20095, 1067] * 16)
ODD = [*range(100, 100 + ROWS - 1), "K7"]
"""Codes of which a single one is not a number."""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    rows = zip(X, ZIP, ODD, np.where(X > 0, "a", "b"), strict=True)
    path.write_text("x,zip,code,y\n" + "".join(f"{','.join(map(str, row))}\n" for row in rows))
    return path


def kinds(run: Run) -> dict[str, str]:
    assert run.model is not None
    return {column.name: column.kind for column in run.model.encoding.columns}


def test_a_run_keeps_the_names_of_its_categories(table: Path, tmp_path: Path) -> None:
    names = ["code", "zip"]
    first = fit(None, table, target="y", categorical=names, run=tmp_path / "run", **FAST)
    assert kinds(first) == {"x": "numeric", "zip": "categorical", "code": "categorical"}
    unfinished(tmp_path / "run")
    assert parameters(resume(tmp_path / "run", quiet=True)) == parameters(first)


def test_the_message_about_a_word_among_numbers_names_an_option_that_works(table: Path) -> None:
    """Each message recommends something that works for its interface."""
    message = r"row 80, column 'code': 79 of 80 different values are numbers, got 'K7': correct it, leave it empty, or"
    with pytest.raises(DataError, match=rf"{message} treat all its values as categories: categorical='code'$"):
        fit(None, table, target="y", **FAST)
    assert kinds(fit(None, table, target="y", categorical="code", **FAST))["code"] == "categorical"
    with pytest.raises(DataError, match=rf"{message} treat all its values as categories: categorical='code'$"):
        prepare(table, target="y", categorical=None)
    with pytest.raises(DataError, match=r"column 'code': .*, got 'K7': correct it or leave it empty$"):
        prepare(table, target="code", categorical=None)


def test_categories_on_the_command_line_and_in_its_file(table: Path, tmp_path: Path) -> None:
    def train(*options: str, code: int = 0) -> str:
        usual = ["--target", "y", "--recipe", "plain", "--engine", "numpy", "--epochs", "2", "-q"]
        done = CliRunner().invoke(app, ["train", str(table), *usual, *options])
        assert done.exit_code == code, done.output
        return " ".join(done.output.split())

    assert "or treat all its values as categories: --categorical 'code'" in train(code=2)
    train("--categorical", "code", "--categorical", "zip", "--run", str(tmp_path / "line"))
    (tmp_path / "c.toml").write_text('categorical = ["code", "zip"]\n')
    train("--config", str(tmp_path / "c.toml"), "--run", str(tmp_path / "file"))
    saved = [json.loads((tmp_path / run / "config.json").read_text())["config"] for run in ("line", "file")]
    assert saved[0] == saved[1]
    assert saved[0]["data"]["categorical"] == ["code", "zip"]
    wrong = train("--categorical", "cod", "--config", str(tmp_path / "c.toml"), code=2)
    assert "--categorical: " in wrong
    assert "unknown column 'cod': did you mean 'code'? valid: code, x, zip" in wrong


@pytest.mark.parametrize("name", ["1", "x1", 1])
def test_columns_of_arrays_go_by_their_numbers(name: Any) -> None:
    rows, y = np.stack([X, ZIP], 1), X > 0
    for data in (rows, sparse.csr_matrix(rows), rows.tolist()):
        encoding = prepare((data, y), categorical=[name]).encoding
        assert encoding.inputs == Inputs(numeric=1, categories=(5,))
        codes = encoding.apply(rows[:5])[1]
        assert codes is not None
        assert codes[:, 0].tolist() == [2, 5, 4, 3, 1]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["cod"], r"categorical: .*t\.csv: unknown column 'cod': did you mean 'code'\? valid: code, x, zip$"),
        (["code", "1"], "unknown column '1'"),
        (["y"], "categorical must not be the target, got 'y': name another column, or none"),
    ],
)
def test_invalid_names_of_categories(table: Path, names: list[str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        fit(None, table, target="y", categorical=names, **FAST)
    with pytest.raises(OptionError, match=r"the array: unknown column '2': .*valid: x0, x1$"):
        fit(None, (np.stack([X, ZIP], 1), X > 0), categorical=["2"], **FAST)
