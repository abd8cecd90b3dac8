"""`mlp lab`: the list, one experiment, the files it writes, and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from multilayer.cli.main import app
from multilayer.lab import NAMES

QUICK = ("lab", "vanishing_gradients", "--seeds", "2", "--workers", "1")


def mlp(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == code, result.output
    return result.output


def test_the_list_has_every_experiment_with_its_claim() -> None:
    listed = json.loads(mlp("lab", "--json"))
    assert [one["name"] for one in listed] == list(NAMES)
    assert all(one["claim"] for one in listed)
    printed = mlp("lab")
    assert all(name in printed for name in NAMES)


def test_an_experiment_prints_verdict_and_criteria() -> None:
    printed = mlp(*QUICK)
    assert "Vanishing gradients: holds" in printed
    assert "≤ 0.3" in printed
    assert "2 seeds, 95 % intervals" in printed
    assert mlp(*QUICK, "--quiet").strip().startswith("holds")


def test_json_has_verdict_and_data() -> None:
    found = json.loads(mlp(*QUICK, "--json"))
    assert found["name"] == "vanishing_gradients"
    assert found["verdict"] in ("holds", "holds partly")
    assert found["seeds"] == [0, 1]
    assert {"activation", "depth", "layer", "relative"} <= set(found["data"][0])


def test_out_has_the_result_its_plot_and_its_page(tmp_path: Path) -> None:
    mlp(*QUICK, "--out", str(tmp_path / "out"))
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".json", ".csv", ".svg", ".png", ".html"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lab", "vanishing_gradient"), "did you mean 'vanishing_gradients'"),
        (("lab", "vanishing_gradients", "--data", "iris"), "cannot use another table"),
        (("lab", "vanishing_gradients", "--seeds", "0"), "seeds must be at least 1"),
        (("lab", "vanishing_gradients", "--all"), "--all runs every experiment"),
        (("lab", "--all", "--data", "iris"), "--data is for one experiment"),
        (("lab", "vanishing_gradients", "--workers", "0"), "workers must be at least 1"),
        (("lab", "--seeds", "3"), "--seeds needs an experiment"),
        (("lab", "--out", "results", "--json"), "--out needs an experiment"),
        ((*QUICK, "--out", "/dev/null/x"), "a part of the path is a file"),
        (("lab", "--all", "--out", "/dev/null/x"), "a part of the path is a file"),
    ],
)
def test_bad_arguments_are_one_line(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in mlp(*arguments, code=2) + capsys.readouterr().err


def test_a_file_as_folder_is_refused_before_the_measurement(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert "must be a folder" in mlp(*QUICK, "--out", str(tmp_path / "file"), code=2)
    assert (tmp_path / "file").read_text() == "x"


def test_a_wrong_name_creates_no_folder(tmp_path: Path) -> None:
    mlp("lab", "vanishing", "--out", str(tmp_path / "out"), code=2)
    assert not (tmp_path / "out").exists()
