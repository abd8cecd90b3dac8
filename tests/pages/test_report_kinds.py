"""Every kind of run has a report: each task, loss, split, weighting, engine and type of data."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import multilayer as ml
from multilayer.pages.report.report import html, report

G = np.random.default_rng(0)
X = G.normal(size=(200, 4))
YES = X[:, 0] + 0.3 * G.normal(size=200) > 0
TABLE = {
    "a": X[:, 0].tolist(),
    "b": X[:, 1].tolist(),
    "group": (np.arange(200) // 5).tolist(),
    "weight": np.abs(X[:, 2]).tolist(),
    "y": YES.tolist(),
}
DATES = {
    "took": [datetime.timedelta(seconds=int(i)) for i in G.integers(0, 999, 200)],
    "when": [datetime.datetime(2020, 1, 1) + datetime.timedelta(hours=int(i)) for i in G.integers(0, 9999, 200)],
    "y": X[:, 0].tolist(),
}
MISSING = {"x": X[:, 0].tolist(), "k": ["a", None] * 100, "y": [None if i % 7 == 0 else X[i, 1] for i in range(200)]}
COLOURS = (G.integers(0, 255, (120, 16, 16, 3), dtype=np.uint8), G.integers(0, 2, 120))

CASES: dict[str, tuple[str | None, Any, dict[str, Any]]] = {
    "several numbers": (None, (X, X[:, :2] * 2 + 1), {}),
    "counts": (None, (X, G.poisson(np.exp(X[:, 0]))), {"loss": "poisson", "task": "regression"}),
    "two classes as two outputs": (None, (X, YES), {"loss": "cross_entropy"}),
    "classes with squared error": (None, (X, G.integers(0, 3, 200)), {"loss": "mse", "task": "multiclass"}),
    "a perceptron": ("4-1", (X, YES), {"loss": "perceptron", "learning_rate": 0.01}),
    "weights of classes": (None, (X, YES), {"class_weight": "balanced"}),
    "weights in a column": (None, TABLE, {"target": "y", "sample_weight": "weight"}),
    "weights in memory": (None, (X, YES), {"sample_weight": np.abs(X[:, 2])}),
    "groups": (None, TABLE, {"target": "y", "group": "group"}),
    "time": (None, TABLE, {"target": "y", "time_column": "a"}),
    "float64": ("4-8-1", (X, YES), {"dtype": "float64"}),
    "torch": ("4-8-1", (X, YES), {"engine": "torch"}),
    "no kernel": ("4-kan(6)-1", (X, YES), {}),
    "too few rows to hold out": ("4-1", (X[:12], YES[:12]), {}),
    "one row held out": ("4-1", (X[:60], YES[:60]), {"validation": 0.02}),
    "sixty classes": (None, (np.repeat(X, 4, 0), np.arange(800) % 60), {"task": "multiclass"}),
    "averaged": ("4-8-1", (X, YES), {"average": 0.9}),
    "colour images": (None, COLOURS, {}),
    "missing values": (None, MISSING, {"target": "y"}),
    "dates and durations": (None, DATES, {"target": "y"}),
    "quantiles of two targets": (None, (X, X[:, :2]), {"loss": "quantile(0.1, 0.5, 0.9)"}),
    "a class that is not held out": ("4-1", (X, np.arange(200) == 0), {"validation": 0.1}),
    "members that hold out different rows": ("4-8-1", (X, YES), {"ensemble": 3}),
    "members that hold out the same rows": ("4-8-1", (X, YES), {"ensemble": 3, "validation": 0.2}),
    "separate validation data": (None, (X, YES), {"validation": (X[:40], YES[:40])}),
}


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_run_has_a_report(name: str, tmp_path: Path) -> None:
    spec, data, options = CASES[name]
    run = ml.fit(spec, data, epochs=2, quiet=True, threads=1, run=tmp_path / "run", **options)
    found = report(tmp_path / "run")
    shown = {one["name"]: one["value"] for one in found["evaluation"]["metrics"]}
    for metric, value in run.metrics.items():
        assert shown[metric] == (None if np.isnan(value) else pytest.approx(value, rel=1e-4, abs=1e-6)), metric
    for one in found["evaluation"]["metrics"]:
        if one["value"] is not None and one["how"] == "exact":
            assert one["low"] <= one["value"] <= one["high"]
    assert found["verdict"]["sentences"]
    assert len(found["evaluation"]["worst"]["rows"]) == min(12, found["evaluation"]["rows"])
    assert html([found]) == (tmp_path / "run" / "report.html").read_text()


def test_a_report_of_few_rows_has_a_warning(tmp_path: Path) -> None:
    ml.fit("4-1", (X[:60], YES[:60]), epochs=1, quiet=True, validation=0.02, run=tmp_path / "run")
    text = " ".join(one["text"] for one in report(tmp_path / "run")["verdict"]["sentences"])
    assert "on 1 row it has never seen" in text
    assert "These figures are rough: they come from 1 row." in text


def test_the_importance_of_images_is_by_squares(tmp_path: Path) -> None:
    ml.fit(None, COLOURS, epochs=1, quiet=True, run=tmp_path / "run")
    found = report(tmp_path / "run")["evaluation"]
    assert (found["importance"]["patch"], found["importance"]["image"]) == (2, [8, 8, 1])
    assert len(found["importance"]["columns"]) == 64
    assert found["worst"]["image"] == [16, 16, 3]
    assert len(found["worst"]["rows"][0]["pixels"]) == 16 * 16 * 3
