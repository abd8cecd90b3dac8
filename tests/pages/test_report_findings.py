"""Findings in the report: its data, and what they replace in the verdict."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import multilayer as ml
from multilayer.diagnostics import KINDS, Finding
from multilayer.pages.report import faults
from multilayer.pages.report.live import Log
from multilayer.pages.report.report import assemble, html, report
from multilayer.pages.report.verdict import verdict
from multilayer.runs import RunFolder
from multilayer.runs.events import Resume
from support.findings import (
    DEAD,
    LEAKAGE,
    NOISE,
    OVERFITTING,
    RATE_TOO_HIGH,
    RATE_TOO_LOW,
    SATURATED,
    UNDERFITTING,
    Adds,
    ended,
    event_of,
)

FAST: dict[str, Any] = {"quiet": True, "threads": 1}
FLAT = (1.0, 0.9, *(0.85,) * 8)
FALLING = tuple(0.9**i for i in range(10))
CREEPING = tuple(1 - 0.001 * i for i in range(10))


def judged(
    *findings: Finding,
    value: float = 0.6,
    train: float = 0.6,
    losses: tuple[float, ...] = FLAT,
    parameters: int = 9000,
    marks: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Return the verdict on a classifier with these metrics, losses and findings."""
    metric = dict(name="accuracy", value=value, low=value - 0.05, high=value + 0.05, train=train, baseline=0.5)
    evaluation = {
        "metrics": [metric | {"better": "higher", "how": "exact"}],
        "metric": "accuracy",
        "rows": 1000,
        "origin": "held out",
        "in_turn": False,
        "classifies": True,
        "calibration": None,
        "coverage": None,
    }
    epochs = [{"epoch": i, "validation": loss, "loss": loss} for i, loss in enumerate(losses, 1)]
    return verdict(
        {
            "evaluation": evaluation,
            "run": {"status": "finished", "epochs": len(epochs), "rows": 1000},
            "curves": {"epochs": epochs, "marks": [{"kind": kind, "step": 1} for kind in marks]},
            "cost": {"parameters": parameters},
            "config": {"learning_rate": 0.01},
            "findings": faults.described_findings([event_of(one) for one in findings]),
        }
    )


def texts(found: dict[str, Any]) -> tuple[str, list[str]]:
    return " ".join(one["text"] for one in found["sentences"]), [one["text"] for one in found["tries"]]


def test_a_fault_replaces_the_advice_about_missing_columns() -> None:
    assert "columns explain little" in texts(judged())[1][0]
    for finding in (DEAD, SATURATED, NOISE, RATE_TOO_LOW, UNDERFITTING):
        _, tries = texts(judged(finding))
        assert tries == [finding.remedies[0].text], finding.kind
    assert "wider or deeper" in texts(judged(parameters=9))[1][0]
    assert texts(judged(DEAD, parameters=9))[1] == [DEAD.remedies[0].text]


def test_a_remedy_of_a_finding_has_its_command() -> None:
    assert judged(DEAD)["tries"] == [
        {"text": "Use gelu instead of relu.", "command": "mlp train digits --arch 64-64:gelu-10"}
    ]


def test_findings_about_the_fit_replace_its_sentence() -> None:
    overfits: dict[str, Any] = {"value": 0.6, "train": 0.99}
    own, tries = texts(judged(**overfits))
    assert "It overfits" in own
    assert "Against overfitting" in tries[0]
    sentence, tries = texts(judged(OVERFITTING, **overfits))
    assert "overfit" not in sentence.lower()
    assert tries == [OVERFITTING.remedies[0].text]
    assert "does not overfit" in texts(judged(train=0.65))[0]
    for finding in (OVERFITTING, UNDERFITTING):
        assert "overfit" not in texts(judged(finding, train=0.65))[0]


def test_findings_about_the_learning_rate_replace_slow_short_and_unstable_training() -> None:
    assert "It learned very slowly" in texts(judged(losses=CREEPING))[0]
    sentence, tries = texts(judged(RATE_TOO_LOW, losses=CREEPING))
    assert "slowly" not in sentence
    assert tries == [RATE_TOO_LOW.remedies[0].text]
    assert "still improving" in texts(judged(losses=FALLING))[0]
    assert texts(judged(RATE_TOO_LOW, losses=FALLING))[1] == [RATE_TOO_LOW.remedies[0].text]
    for marks, text in ((("not finite",), "Training diverged"), (("spike",), "The loss spiked 1 time")):
        own, tries = texts(judged(marks=marks))
        assert text in own
        assert "--clip-norm" in tries[0]
        sentence, tries = texts(judged(RATE_TOO_HIGH, marks=marks))
        assert text not in sentence
        assert tries == [RATE_TOO_HIGH.remedies[0].text]


def test_other_causes_are_kept() -> None:
    sentence, tries = texts(judged(DEAD, losses=FALLING))
    assert "still improving" in sentence
    assert tries == [DEAD.remedies[0].text, "Train longer: --epochs 20."]
    sentence, tries = texts(judged(LEAKAGE, value=0.99, train=0.99))
    assert sentence.startswith("Good")
    assert tries == [LEAKAGE.remedies[0].text]
    assert "It overfits" in texts(judged(DEAD, train=0.99))[0]


def test_a_remedy_of_the_verdict_about_a_changed_setting_is_left_out() -> None:
    """A wider network against dead units contradicts a narrower one; the same width does not."""
    wider = replace(DEAD, remedies=(replace(DEAD.remedies[0], changes={"spec": "64-512:gelu-10"}),))
    same = replace(DEAD, remedies=(replace(DEAD.remedies[0], changes={"spec": "64-64:gelu-10"}),))
    parameters = 64 * 64 + 64 + 64 * 10 + 10
    own = texts(judged(train=0.99))[1]
    assert texts(judged(wider, train=0.99, parameters=parameters))[1] == [DEAD.remedies[0].text]
    assert texts(judged(same, train=0.99, parameters=parameters))[1] == [DEAD.remedies[0].text, *own]
    slower = replace(DEAD, remedies=(replace(DEAD.remedies[0], changes={"learning_rate": None}),))
    assert texts(judged(slower, marks=("spike",), value=0.9, train=0.9))[1] == [DEAD.remedies[0].text]


def test_a_remedy_of_several_findings_is_listed_once() -> None:
    second = replace(DEAD, where=replace(DEAD.where, layer="relu2"))
    found = judged(DEAD, second, OVERFITTING)
    assert texts(found)[1] == [DEAD.remedies[0].text, OVERFITTING.remedies[0].text]


def test_every_kind_that_explains_a_fit_is_in_the_table() -> None:
    assert set(faults.REPLACES) | {"leakage"} == set(KINDS)


def test_the_report_of_a_run_has_its_findings(tmp_path: Path) -> None:
    ml.fit("4-3", "iris", epochs=2, run=tmp_path, observers=[Adds(DEAD, NOISE)], **FAST)
    found = report(tmp_path)
    assert [one["title"] for one in found["findings"][:2]] == ["Dead units", "Likely label errors"]
    assert found["findings"][0]["place"] == ["relu1", "40 of 64 units", "since epoch 3"]
    assert ["ratio", "infinite"] in found["findings"][1]["numbers"]
    assert found["verdict"]["tries"][0]["command"] == "mlp train digits --arch 64-64:gelu-10"
    assert "40 units of 64 in relu1 are dead" in (tmp_path / "report.html").read_text()
    json.dumps(found["verdict"], allow_nan=False)
    assert html([found])


def test_superseded_findings_are_left_out() -> None:
    log = [event_of(DEAD), Resume(step=0, checkpoint="", kept=0, notes=[]), event_of(LEAKAGE), ended()]
    assert [one["kind"] for one in faults.described_findings(log)] == ["leakage"]


@pytest.mark.parametrize("end", [True, False])
def test_a_live_report_has_the_findings_so_far(tmp_path: Path, end: bool) -> None:
    ml.fit("4-3", "iris", epochs=2, run=tmp_path, observers=[Adds(RATE_TOO_HIGH)], **FAST)
    log = Log(tmp_path / "events.jsonl")
    log.look()
    events = log.events if end else log.events[:-1]
    found = assemble("run", RunFolder.open(tmp_path).config, events, None, None)
    assert found["findings"][0]["kind"] == "rate_too_high"
    assert found["verdict"]["tries"][0] == {
        "text": RATE_TOO_HIGH.remedies[0].text,
        "command": RATE_TOO_HIGH.remedies[0].command,
    }
    assert ("This run has not ended." in texts(found["verdict"])[0]) is not end
