"""The report in a browser: its numbers, errors and requests, accessibility, and scripts in data, which must not run."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import multilayer as ml
from multilayer.diagnostics import Finding, Place, Remedy
from multilayer.pages.report import report as web
from multilayer.pages.report.faults import described_findings, remedies
from multilayer.pages.report.live import watching
from multilayer.runs.events import Event
from support.findings import DEAD, LEAKAGE, NOISE, OVERFITTING, RATE_TOO_HIGH, SATURATED, Adds, event_of
from support.payloads import PAYLOADS

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MODULES = ROOT / "frontend" / "node_modules"
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or shutil.which("node") is None or not (MODULES / "playwright-core").is_dir(),
    reason="needs Chromium, Node and frontend/node_modules (make pages)",
)
FAST: dict[str, Any] = {"recipe": "plain", "quiet": True, "threads": 1}


def look(*pages: dict[str, Any]) -> list[dict[str, Any]]:
    """Open pages in Chromium. Return what it finds on each page."""
    job = {"modules": str(ROOT / "frontend"), "chromium": CHROMIUM, "pages": pages}
    script = Path(__file__).with_name("report_page.mjs")
    done = subprocess.run(
        ["node", str(script)], input=json.dumps(job), capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("runs")
    g = np.random.default_rng(0)
    X = g.normal(size=(240, 4))
    table = {"temp (°C)": X[:, 0], "kind": g.choice(["a", "b"], 240).tolist(), "y": 2 * X[:, 0] + X[:, 1]}
    ml.fit(None, "digits", epochs=4, run=root / "digits", **FAST)
    ml.fit(None, table, target="y", loss="quantile(0.1, 0.5, 0.9)", epochs=4, run=root / "numbers", **FAST)
    ml.fit(None, (X, (X[:, :3] > 0).astype(int)), epochs=4, run=root / "labels", **FAST)
    ml.fit(None, "breast_cancer", epochs=4, run=root / "binary", **FAST)
    ml.fit(None, "diabetes", optimizer="sgd", learning_rate=1e30, schedule="constant", run=root / "diverged", **FAST)
    ml.fit(None, "diabetes", epochs=6, run=root / "squares", **FAST)
    ml.fit(None, "diabetes", epochs=6, loss="mae", run=root / "sizes", **FAST)
    members = [replace(SATURATED, where=replace(SATURATED.where, member=i)) for i in range(1, 6)]
    observer = Adds(RATE_TOO_HIGH, DEAD, *members, LEAKAGE, NOISE, OVERFITTING)
    ml.fit(None, "digits", epochs=2, run=root / "findings", observers=[observer], **FAST)
    losses = [web.report(root / name) for name in ("squares", "sizes")]
    (root / "losses.html").write_text(web.html(losses))
    compared = web.html([web.report(root / name) for name in ("digits", "binary", "numbers", "findings")])
    (root / "compare.html").write_text(compared)
    names = ("digits", "numbers", "labels", "binary", "diverged", "findings")
    return {name: root / name / "report.html" for name in names} | {
        name: root / f"{name}.html" for name in ("compare", "losses")
    }


def test_reports_are_accessible_and_have_no_errors_or_requests(runs: dict[str, Path], tried: Any) -> None:
    sizes = [(1280, "light"), (1280, "dark"), (400, "light"), (400, "dark")]
    visits = [
        {"url": path.as_uri(), "width": width, "scheme": scheme, "axe": True, "open": True}
        for path in runs.values()
        for width, scheme in sizes
    ]
    for page, found in zip(visits, look(*visits), strict=True):
        where = f"{page['url']} at {page['width']} {page['scheme']}"
        assert found["errors"] == [], where
        assert found["requests"] == [page["url"]], where
        assert found["violations"] == [], where
        assert found["overflow"] <= 0, where
        assert found["foreign"] == found["handlers"] == 0, where
        assert found["named"], where
        assert found["figures"] > 4, where
    tried("report pages opened in Chromium", len(visits))


def test_the_page_has_the_numbers_of_the_report(runs: dict[str, Path]) -> None:
    names = ("digits", "numbers", "labels", "binary")
    for name, found in zip(names, look(*({"url": runs[n].as_uri()} for n in names)), strict=True):
        report = web.report(runs[name].parent)
        assert found["errors"] == [], name  # the content security policy is active and refused nothing
        text = found["text"].replace("\u2212", "-")
        assert name in found["title"]
        for sentence in report["verdict"]["sentences"]:
            assert sentence["text"] in found["text"].replace("\n", " "), name
        for metric in report["evaluation"]["metrics"]:
            value = metric["value"]
            shown = f"{100 * value:.1f} %" if "accuracy" in metric["name"] else f"{value:.4g}"
            assert shown in text, (name, metric["name"])
        assert f"{report['cost']['parameters']:,}" in text
        assert str(report["network"]["network"]) in text


def test_the_page_shows_the_findings_and_their_remedies(runs: dict[str, Path]) -> None:
    (found,) = look({"url": runs["findings"].as_uri(), "open": True})
    assert found["errors"] == []
    text = " ".join(found["text"].partition("Verdict")[2].partition("Training")[0].split())
    findings, _, tries = text.partition("What to try")
    for finding in (RATE_TOO_HIGH, DEAD, SATURATED, LEAKAGE, NOISE, OVERFITTING):
        assert finding.message in findings, finding.kind
        assert finding.remedies[0].text in tries, finding.kind
        assert finding.remedies[0].command in tries, finding.kind
        assert tries.count(finding.remedies[0].text) == 1, finding.kind
    assert "error: Learning rate too high since epoch 2" in findings
    assert "warning: Dead units relu1 40 of 64 units since epoch 3" in findings
    assert "share of the FLOPs 40 % units, counted from 0 0–39" in findings
    assert findings.count("sigmoid2 member") == 5
    assert "column 'discharge date'" in findings
    assert "Copy the command mlp train" not in tries  # the button follows the command
    assert tries.count("Copy the command") == 3


def test_the_chart_of_the_loss_marks_the_epochs_of_findings(runs: dict[str, Path]) -> None:
    """The run has two epochs, so later epochs have no place in the chart."""
    found, other = look({"url": runs["findings"].as_uri()}, {"url": runs["numbers"].as_uri()})
    marks = [title for title in found["rules"] if title.startswith(("error", "warning"))]
    assert marks == ["error: Learning rate too high (since epoch 2)"]
    assert "start of a finding" in found["text"]
    assert "start of a finding" not in other["text"]


def test_the_copy_button_selects_or_copies_the_command(runs: dict[str, Path]) -> None:
    (found,) = look({"url": runs["findings"].as_uri(), "press": "[aria-labelledby=verdict] ol button"})
    command = RATE_TOO_HIGH.remedies[0].command
    assert "Copied" in found["text"] or found["selected"] == command


def test_keyboard_navigation_printing_and_selecting_a_run(runs: dict[str, Path]) -> None:
    keyboard, printed, chosen = look(
        {"url": runs["digits"].as_uri(), "keys": ["Tab"]},
        {"url": runs["digits"].as_uri(), "pdf": True},
        {"url": runs["compare"].as_uri(), "press": "th button:has-text('numbers')"},
    )
    assert keyboard["focus"] not in ("", "BODY")
    assert printed["pdf"] > 20_000
    assert "Coverage of the quantiles" in chosen["text"]
    results = chosen["text"].partition("in full")[0]
    assert (
        "Learning rate too high, Dead units, Saturated units, Target leakage, Likely label errors, Overfitting"
        in results
    )


def test_diverged_runs_and_runs_with_different_losses(runs: dict[str, Path]) -> None:
    diverged, losses, same_loss = look(*({"url": runs[name].as_uri()} for name in ("diverged", "losses", "compare")))
    assert "No epoch has ended." in diverged["text"]
    assert "not finite" in diverged["text"].partition("Events")[2].partition("Quality")[0]
    assert "Root mean squared error on validation rows" in losses["text"].partition("in full")[0]
    assert "Validation loss" not in losses["text"].partition("in full")[0]
    assert "Validation loss" in same_loss["text"].partition("in full")[0]


def test_a_notebook_shows_the_report_in_a_frame(tmp_path: Path) -> None:
    run = ml.fit(None, "iris", epochs=2, run=tmp_path / "run", **FAST)
    page = tmp_path / "notebook.html"
    page.write_text(f"<!doctype html><title>notebook</title><link rel=icon href=data:,>{run._repr_html_()}")
    (found,) = look({"url": page.as_uri(), "frame": True})
    assert "Verdict" in found["text"]
    assert found["errors"] == []
    assert [url for url in found["requests"] if not url.startswith(("file:", "about:", "data:"))] == []


def test_no_script_in_the_data_runs(tmp_path: Path, tried: Any) -> None:
    """Use every payload as the name of a column, a class, the target and a run, and as the value of a cell."""
    assert len(PAYLOADS) >= 60
    assert len(set(PAYLOADS)) == len(PAYLOADS)
    g = np.random.default_rng(0)
    rows = 4 * len(PAYLOADS)
    words = [PAYLOADS[i % len(PAYLOADS)] for i in range(rows)]
    table: dict[str, Any] = {name: g.normal(size=rows) for name in PAYLOADS}
    table |= {"cells": [words[(i * 7) % rows] for i in range(rows)], "<b>y</b>": words}
    pages = []
    for name, target in (("classes", "<b>y</b>"), ("columns", PAYLOADS[0])):
        path = tmp_path / f"<img src=x onerror=window.hit60=1> {name}"
        ml.fit(None, table, target=target, epochs=1, run=path, **FAST)
        found = web.report(path)
        found["findings"] = described_findings(hostile_finding(payload) for payload in PAYLOADS)
        found["verdict"]["tries"] = remedies(found["findings"])
        named = [{**found, "name": payload} for payload in PAYLOADS]
        page = tmp_path / f"{name}.html"
        page.write_text(web.html(named), encoding="utf-8")
        pages += [page, path / "report.html"]
    visits = [{"url": page.as_uri(), "open": True} for page in pages]
    for page, found in zip(pages, look(*visits), strict=True):
        assert found["hit"] == [], page
        assert found["dialogs"] == 0, page
        assert [url for url in found["requests"] if not url.startswith("file:")] == [], page
        assert len(found["requests"]) == 1, page
        assert found["foreign"] == found["handlers"] == 0, page
        assert found["scripts"] == 2, page  # the script of the page and its data
        assert found["errors"] == [], page
        assert found["overflow"] <= 0, page
        assert "<script>window.hit1=1</script>" in found["text"], page
    tried("R10: script payloads in every text of a report", 5 * len(PAYLOADS))


def hostile_finding(text: str) -> Event:
    remedy = Remedy(text=text, command=text)
    where = Place(layer=text, column=text)
    finding = Finding(kind=text, severity="error", message=text, where=where, evidence={text: 1.0}, remedies=(remedy,))
    return event_of(finding)


@pytest.mark.parametrize("epochs", [1, 4000])
def test_a_live_report_follows_a_run_and_ends_complete(tmp_path: Path, epochs: int) -> None:
    """The live page follows the log and shows the complete report at the end, also if the run ends before the browser
    has started."""
    opened: list[dict[str, Any]] = []
    threads: list[threading.Thread] = []

    def browse(url: str) -> bool:
        def wait() -> None:
            opened.extend(look({"url": url, "wait": ["Dead units", "The worst rows", "\nended\n"]}))

        threads.append(threading.Thread(target=wait))
        threads[0].start()
        return True

    messages: list[str] = []
    with watching(tmp_path / "run", say=messages.append, open_page=browse):
        ml.fit(None, "digits", epochs=epochs, time_limit=8.0, run=tmp_path / "run", observers=[Adds(DEAD)], **FAST)
    threads[0].join(timeout=120)
    (found,) = opened
    assert messages[0].startswith("live: http://127.0.0.1:")
    assert "Verdict" in found["text"]
    assert found["errors"] == []
    hosts = {url.split("/")[2] for url in found["requests"]}
    assert len(hosts) == 1
    assert {url.split("?")[0].rpartition("/")[2] for url in found["requests"]} == {"", "events"}
    assert "ended" in found["text"]
