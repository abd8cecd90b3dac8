"""bench/tabular.py: fits, continued runs, missing models, and the statistics of hand-made results."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

BENCH = Path(__file__).parents[1] / "bench"


@pytest.fixture
def summary(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    import tabular_summary

    return tabular_summary


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Return a folder with two tables of 60 rows with missing values and a category, and their index."""
    generator = np.random.default_rng(0)
    listed = []
    for name, task in (("yes_or_no", "binary"), ("amount", "regression")):
        x = generator.normal(size=60)
        frame = pd.DataFrame(
            {"x": np.where(generator.random(60) < 0.1, np.nan, x), "c": generator.choice(["a", "b"], 60)}
        )
        frame["y"] = np.where(x > 0, "p", "n") if task == "binary" else x
        frame.to_parquet(tmp_path / f"{name}.parquet")
        about = {"name": name, "file": f"{name}.parquet", "task": task, "target": "y", "rows": 60, "features": 2}
        listed.append({**about, "categorical_columns": ["c"]})
    (tmp_path / "INDEX.json").write_text(json.dumps(listed))
    return tmp_path


def started(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / "tabular.py"), *args]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_runs_continues_and_reports_missing_models(tables: Path) -> None:
    out = tables / "results.jsonl"
    models = "multilayer-1,sklearn,no_such_library"
    done = started(str(tables), "--models", models, "--out", str(out))
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert "no_such_library: not installed, skipped" in done.stdout
    assert {(one["data"], one["model"]) for one in lines} == {
        (table, model) for table in ("yes_or_no", "amount") for model in ("multilayer-1", "sklearn")
    }
    assert not [one for one in lines if "failed" in one], done.stdout
    for one in lines:
        assert one["n"] == 42
        assert one["test"] == 18
        assert np.isfinite(one["error"])
        assert ("ece" in one) == (one["task"] == "binary") == ("logloss" in one)
    again = started(str(tables), "--models", models, "--out", str(out))
    assert len(out.read_text().splitlines()) == len(lines)
    assert "nothing to compare: multilayer and a peer are needed" in again.stdout
    assert again.returncode == 1


def test_without_data_it_says_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MULTILAYER_DATA", raising=False)
    done = started()
    assert done.returncode == 2
    assert "as an argument or in MULTILAYER_DATA" in done.stderr


def test_a_failed_fit_is_reported_in_the_results(tables: Path) -> None:
    shutil.copy(tables / "INDEX.json", tables / "x")
    (tables / "amount.parquet").write_bytes(b"no table")
    out = tables / "results.jsonl"
    started(str(tables), "--models", "sklearn", "--out", str(out))
    lines = {one["data"]: one for one in map(json.loads, out.read_text().splitlines())}
    assert "failed" in lines["amount"]
    assert "failed" not in lines["yes_or_no"]


def results(**errors: list[float]) -> list[dict[str, Any]]:
    about = {"task": "binary", "split": 0, "n": 700, "test": 300, "fit": 1.0, "predict": 0.1}
    return [
        {
            **about,
            "data": f"t{i}",
            "model": model,
            "error": value,
            "logloss": value,
            "ece": value,
            "fit": 1.0 + (model == "peer"),
        }
        for model, values in errors.items()
        for i, value in enumerate(values)
    ]


def test_ranks_and_intervals(summary: Any) -> None:
    assert summary.ranks(np.array([[0.1, 0.2, 0.2], [0.3, 0.1, 0.2]])).tolist() == [[1.0, 2.5, 2.5], [3.0, 1.0, 2.0]]
    low, high = summary.interval(np.array([-1.0] * 26))
    assert (low, high) == (-1.0, -1.0)
    low, high = summary.interval(np.array([-1.0, 1.0] * 13))
    assert low < 0 < high


def test_tables_lost(summary: Any) -> None:
    """On 300 rows, 0.2 against 0.1 is lost, 0.105 is within 10 %, and 0.13 is within two standard errors."""
    found = summary.lost(results(multilayer=[0.1, 0.105, 0.13], peer=[0.2, 0.1, 0.1]), ["multilayer", "peer"])
    assert found == {"multilayer": [], "peer": ["t0"]}


def test_report(summary: Any, capsys: pytest.CaptureFixture[str]) -> None:
    data = results(multilayer=[0.1, 0.2, 0.3], peer=[0.2, 0.3, 0.2], half=[0.5])
    assert summary.report(data) == 0
    printed = capsys.readouterr().out
    assert "half has no result for: t1, t2" in printed
    assert "== half, multilayer, peer: 1 tables, 1 splits in total" in printed
    assert "== multilayer, peer: 3 tables, 3 splits in total" in printed
    assert summary.report(results(multilayer=[0.1, 0.2, 0.3], peer=[0.2, 0.3, 0.2])) == 0
    printed = capsys.readouterr().out
    assert "multilayer     mean rank  1.33  best on  2  worst on  1" in printed
    assert "multilayer minus this: -0.33" in printed
    assert "0.500×" in printed  # 1 s against 2 s of the peer
    assert "not worse than the best peer on 2 of 3" in printed


def test_models_are_compared_on_the_splits_that_all_have(summary: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Split 1 is easier. It must not count in a comparison with a peer that only has split 0."""
    first = results(multilayer=[0.3], peer=[0.2], slow=[0.25])
    second = [{**one, "split": 1} for one in results(multilayer=[0.01], peer=[0.2])]
    assert [one["split"] for one in summary.shared(first + second, ["multilayer", "peer", "slow"])] == [0, 0, 0]
    summary.report(first + second)
    everyone, several = capsys.readouterr().out.split("== ")[1:]
    assert "multilayer     mean rank  3.00" in everyone
    assert "multilayer     mean rank  1.00" in several
    assert "slow" not in several


def test_later_lines_replace_earlier_ones(summary: Any, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text("\n".join(json.dumps(one) for one in results(multilayer=[0.3]) + results(multilayer=[0.1])))
    assert [one["error"] for one in summary.read([path, tmp_path / "absent.jsonl"])] == [0.1]
