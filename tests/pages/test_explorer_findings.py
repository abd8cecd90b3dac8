"""Findings on the explorer page: of a run, of a run folder, and of a damaged log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import multilayer as ml
from multilayer.cli.main import app
from multilayer.pages.explorer import explore
from support.findings import DEAD, LEAKAGE, Adds

FAST: dict[str, Any] = {"epochs": 2, "quiet": True, "observers": [Adds(DEAD, LEAKAGE)]}


def kinds(page: Any) -> list[str]:
    return [finding["kind"] for finding in page.state["model"]["findings"]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return ml.fit("4-8:relu-3", "iris", run=tmp_path_factory.mktemp("runs") / "run", **FAST)


def test_the_page_of_a_run_has_its_findings(run: Any) -> None:
    for given in (run, run.path, str(run.path)):
        page = explore(given, "iris")
        assert kinds(page)[:2] == ["dead_units", "leakage"]
        assert page.state["model"]["findings"][0]["title"] == "Dead units"
        assert page.state["model"]["findings"][0]["unit"] == "dead"
        assert page.state["model"]["text"] == "4-8-3"


def test_models_have_no_findings(run: Any) -> None:
    for given in (run.model, run.path / "model.safetensors", ml.build("4-3")):
        assert kinds(explore(given)) == []


def test_a_damaged_log_does_not_prevent_the_page(run: Any, tmp_path: Path) -> None:
    for path in run.path.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    log = tmp_path / "events.jsonl"
    log.write_text('{"event": "unheard", "step": 0}\n' + log.read_text())
    with pytest.warns(UserWarning, match="the page does not show the findings of the run: .*unknown event 'unheard'"):
        page = explore(tmp_path)
    assert kinds(page) == []


def test_the_command_shows_the_findings_of_a_folder(run: Any, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["explore", str(run.path), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "40 units of 64 in relu1 are dead" in out.read_text()
    done = CliRunner().invoke(app, ["explore", str(tmp_path / "nothing")])
    assert done.exit_code == 2
    assert "nothing" in done.output
