"""`mlp predict`: formulas in CSV files that a spreadsheet opens."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import multilayer as ml
from multilayer.cli.main import app
from multilayer.cli.predict import escaped

LABELS = ["=cmd|' /C calc'!A0", "+1+1", "-x", "@SUM(A1)", "\t=1", " =1", "-1.5", "plain"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model that predicts every label correctly. The name of its target is a formula too."""
    import pyarrow as pa

    x = np.repeat(np.arange(len(LABELS)), 20)
    data = pa.table({"a": x.astype(float), "=y": [LABELS[i] for i in x]})
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    run = ml.fit("1-32:tanh-8", data, target="=y", epochs=300, learning_rate=0.02, validation=None, quiet=True)
    assert run.model is not None
    run.model.save(path)
    return path


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "new.csv"
    path.write_text("a\n" + "".join(f"{i}\n" for i in range(len(LABELS))))
    return path


def mlp(*words: Any) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


def cells(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


def test_predicting_for_a_spreadsheet_escapes_labels_that_it_would_run(model: Path, rows: Path, tmp_path: Path) -> None:
    plain = cells(mlp("predict", model, rows, "--proba").stdout)
    assert [row[0] for row in plain] == ["=y", *LABELS]
    done = mlp("predict", model, rows, "--proba", "--escape-formulas", "--out", tmp_path / "out.csv")
    assert done.exit_code == 0, done.output
    safe = cells((tmp_path / "out.csv").read_bytes().decode())
    assert [row[0] for row in safe] == ["'=y", *(f"'{label}" for label in LABELS[:6]), "-1.5", "plain"]
    assert safe[0][1:] == [f"'{name}" for name in plain[0][1:]]
    assert [row[1:] for row in safe[1:]] == [row[1:] for row in plain[1:]]  # probabilities stay numbers


def test_escaping_formulas_in_a_parquet_file_is_refused(model: Path, rows: Path, tmp_path: Path) -> None:
    done = mlp("predict", model, rows, "--escape-formulas", "--out", tmp_path / "out.parquet")
    assert done.exit_code == 2
    assert "--escape-formulas is for CSV" in " ".join(done.output.split())
    assert not (tmp_path / "out.parquet").exists()


@pytest.mark.parametrize("text", ["-1.5", "+2", "-.5", "-1e-3", "1", "", "a", "a=b", "'", "x-y", "5-3"])
def test_text_that_is_not_a_formula_is_unchanged(text: str) -> None:
    assert escaped(text) == text


@pytest.mark.parametrize("text", ["-", "-1.5x", "-1+1", "-inf", "+1;2", "-1_0", "-１", "＝1", "\r=1", "\n=1", "  @x"])
def test_text_that_a_spreadsheet_would_run_is_escaped(text: str) -> None:
    assert escaped(text) == f"'{text}"
