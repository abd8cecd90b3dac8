"""The scripts of bench/ fail without data, with missing tables, and with metrics that are not finite."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"


def started(script: Path, *args: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "MULTILAYER_DATA"}
    command = [sys.executable, str(script), *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


@pytest.mark.parametrize("name", ["tables.py", "images.py"])
def test_without_data_it_says_what_is_needed(name: str) -> None:
    done = started(BENCH / name)
    assert done.returncode == 2
    assert "as an argument or in MULTILAYER_DATA" in done.stderr


def test_missing_tables_are_failures(tmp_path: Path) -> None:
    script = shutil.copy(BENCH / "tables.py", tmp_path)  # it writes its results next to itself
    listed = [{"name": f"t{i}", "file": f"t{i}.parquet", "target": "y"} for i in range(26)]
    (tmp_path / "INDEX.json").write_text(json.dumps(listed))
    done = started(Path(script), str(tmp_path))
    assert done.returncode == 1
    assert done.stdout.count("is missing") == 26
    assert "0 of 26 tables" in done.stdout
    (tmp_path / "INDEX.json").write_text(json.dumps(listed[1:]))
    done = started(Path(script), str(tmp_path))
    assert done.returncode == 1
    assert "must list 26 tables, got 25" in done.stderr


@pytest.mark.parametrize(
    ("line", "good"),
    [
        ("on held-out rows: accuracy 0.9, log_loss 1.2e-05", True),
        ("on held-out rows: rmse 1.2e+04, r2 -3", True),
        ("on held-out rows: accuracy 0.9, auc nan", False),
        ("on held-out rows: rmse inf", False),
        ("", False),
    ],
)
def test_a_metric_that_is_not_finite_is_a_failure(line: str, good: bool) -> None:
    assert runpy.run_path(str(BENCH / "tables.py"))["good"](line) is good


def test_a_ratio_over_the_limit_is_reported() -> None:
    over = runpy.run_path(str(BENCH / "overhead.py"))["over"]
    result = {"network": "2-1", "threads": 1, "engine ratio": 1.05, "loop ratio": 1.01}
    assert over([result]) == []
    assert over([result, {**result, "loop ratio": 1.06}]) == ["2-1, 1 threads: loop ratio 1.060 is over 1.05"]
    assert len(over([{**result, "engine ratio": float("nan")}])) == 1


def test_code_lines_counts_neither_docstrings_nor_comments_nor_blank_lines(tmp_path: Path) -> None:
    code = (
        '"""What it is.\n\nMore of it."""\n\nx = 1  # why\n"""What x is."""\n# a comment\ny = [\n\n    """2\n3""",\n]\n'
    )
    (tmp_path / "inner").mkdir()
    (tmp_path / "one.py").write_text(code)
    (tmp_path / "inner" / "two.py").write_text("def f():\n    'Say it.'\n    return 1\n")
    done = started(BENCH / "code_lines.py", str(tmp_path))
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["2", "5", "7"]
