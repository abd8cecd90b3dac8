"""Findings in the terminal and in a notebook, after training."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import multilayer as ml
from multilayer.cli import train
from multilayer.cli.main import app
from multilayer.diagnostics import KINDS, TITLES, Finding, Place, Remedy
from multilayer.diagnostics.display import described, finding_lines, html_table
from multilayer.runs import RunFolder
from support.findings import DEAD, LEAKAGE, NOISE, RATE_TOO_HIGH, SATURATED, Adds, event_of

TRAIN = ["train", "iris", "--arch", "4-3", "--epochs", "100"]


@pytest.mark.parametrize("how", ["", "--quiet", "--json"])
def test_findings_are_printed_after_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    observers = train.events_as_json
    monkeypatch.setattr(train, "events_as_json", lambda enabled: [*observers(enabled), Adds(RATE_TOO_HIGH, DEAD)])
    done = CliRunner().invoke(app, [*TRAIN, "--run", str(tmp_path / "run"), *([how] if how else [])])
    assert done.exit_code == 0, done.output
    if how == "--json":
        events = [json.loads(line) for line in done.stdout.splitlines()]
        assert [event["finding"]["kind"] for event in events if event["event"] == "finding"] == [
            "rate_too_high",
            "dead_units",
        ]
        return
    shown, other = (done.stdout, done.stderr) if how == "--quiet" else (done.stderr, done.stdout)
    assert shown.count("error: Learning rate too high (since epoch 2)\n") == 1
    assert "  remedy: Use gelu instead of relu.\n    mlp train digits --arch 64-64:gelu-10\n" in shown
    assert "Dead units" not in other
    assert "model: " in done.stdout


def test_a_run_without_findings_prints_none(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [*TRAIN, "--run", str(tmp_path / "run"), "--quiet"])
    assert "remedy" not in done.output


def test_a_log_with_findings_can_be_read_again(tmp_path: Path) -> None:
    run = ml.fit("4-3", "iris", epochs=2, run=tmp_path / "run", observers=[Adds(NOISE, SATURATED)], quiet=True)
    found = [event for event in RunFolder.open(tmp_path / "run").events() if event.event == "finding"]
    assert [event.to_dict() for event in found] == [event for event in run.events if event["event"] == "finding"]


def test_the_model_of_a_diverged_run_with_findings_is_rebuilt(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "optimizer": "sgd",
        "learning_rate": 1e30,
        "schedule": "constant",
        "validation": None,
        "epochs": 3,
    }
    ml.fit("10-4-1", "diabetes", run=tmp_path, on_spike="stop", quiet=True, **options)
    log, model = tmp_path / "events.jsonl", tmp_path / "model.safetensors"
    *lines, last = log.read_text().splitlines(keepends=True)
    assert any('"non_finite"' in line or '"spike"' in line for line in lines[-1:])
    log.write_text("".join([*lines, json.dumps(event_of(RATE_TOO_HIGH).to_dict()) + "\n", last]))
    before = model.read_bytes()
    model.unlink()
    with pytest.warns(UserWarning, match="has ended"):
        ml.resume(tmp_path, quiet=True)
    assert model.read_bytes() == before


def test_a_notebook_shows_the_findings_of_a_run_in_memory() -> None:
    bad = Finding(kind="leakage", severity="error", message="<script>", where=Place(column="<b>"), remedies=())
    run = ml.fit("4-3", "iris", epochs=2, observers=[Adds(DEAD, bad)], quiet=True)
    page = run._repr_html_()
    assert "<b>Dead units</b> (warning)" in page
    assert "Use gelu instead of relu.<br><code>mlp train digits --arch 64-64:gelu-10</code>" in page
    assert "the layer takes 40 % of the FLOPs" in page
    assert "&lt;script&gt;" in page
    assert "column &#x27;&lt;b&gt;&#x27;" in page
    assert html_table([]) == ""


def test_every_kind_has_a_title() -> None:
    assert list(TITLES) == list(KINDS)
    assert len(set(TITLES.values())) == len(KINDS)
    unknown = {**DEAD.to_dict(), "kind": "noisy_gradients"}
    assert described(unknown)["title"] == "Noisy gradients"


def test_the_place_and_the_numbers_of_a_finding() -> None:
    assert described(SATURATED.to_dict())["place"] == ["sigmoid2", "member 2", "12 of 16 units"]
    assert described(LEAKAGE.to_dict())["place"] == ["column 'discharge date'"]
    assert described(LEAKAGE.to_dict())["numbers"] == [["skill", "0.998"], ["skill of the next column", "0.21"]]
    noise = described(NOISE.to_dict())
    assert noise["place"] == ["100 rows or more"]
    assert noise["numbers"] == [["share", "14 %"], ["ratio", "infinite"]]
    assert ["share of the FLOPs", "40 %"] in described(DEAD.to_dict())["numbers"]
    one = Finding(kind="saturated_units", severity="warning", message="", where=Place(layer="tanh1", units=(3,)))
    assert described(one.to_dict())["place"] == ["tanh1", "1 unit"]


def test_findings_of_one_kind_are_printed_together() -> None:
    members = [replace(SATURATED, where=replace(SATURATED.where, member=i)).to_dict() for i in range(1, 6)]
    members[3]["severity"] = "error"
    lines = [line.plain for line in finding_lines([members[0], LEAKAGE.to_dict(), *members[1:]])]
    assert lines == [
        "error: Saturated units (5 findings)",
        "  member 1: 12 of 16 units of sigmoid2 are saturated.",
        "  member 2: 12 of 16 units of sigmoid2 are saturated.",
        "  member 3: 12 of 16 units of sigmoid2 are saturated.",
        "  and 2 similar findings",
        "  remedy: Use tanh instead of sigmoid.",
        "error: Target leakage (column 'discharge date')",
        "  Column 'discharge date' alone predicts the target with an accuracy of 99.8 %.",
        "  remedy: Drop the column 'discharge date' if it is not known when the model predicts.",
    ]


def test_control_characters_of_columns_are_escaped_in_a_terminal(tmp_path: Path) -> None:
    attack = Finding(
        kind="leakage",
        severity="error",
        message="Column '\x1b[31mred\n' leaks.",
        where=Place(column="\x1b[31mred\n"),
        remedies=(Remedy(text="Drop \x1b[0m", command="mlp train '\x1b[31m.csv'"),),
    )
    run = ml.fit("4-3", "iris", epochs=1, observers=[Adds(attack)], quiet=True)
    text = "".join(
        line.plain for line in finding_lines([event["finding"] for event in run.events if "finding" in event])
    )
    assert "\x1b" not in text
    assert "\n" not in text
