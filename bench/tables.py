"""Train and predict on real tables without preparing them.   python bench/tables.py [FOLDER [NAME...]]

The default of FOLDER is $MULTILAYER_DATA. For each of the 26 tables in FOLDER/INDEX.json, the script runs `mlp train
TABLE --target TARGET` without other options. Then it runs `mlp predict` on a copy with shuffled rows, reordered
columns, unknown categories and missing values. It prints a line per table and writes bench/results/tables.json. The
exit code is 1 if a table is missing, a command fails or a metric is not a finite number, and 2 without a folder.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import compute, parquet

TABLES = 26


def disturbed(table: pa.Table, target: str) -> pa.Table:
    """Return the table without its target, with shuffled rows and columns, unknown categories and missing values."""
    generator = np.random.default_rng(0)
    table = table.drop_columns([target]).take(pa.array(generator.permutation(len(table))))
    columns = {}
    for name in generator.permutation(table.column_names):
        column = table[name].combine_chunks()
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            unseen = pa.array(np.arange(len(column)) % 50 == 7)
            column = compute.if_else(unseen, pa.scalar("never seen", column.type), column)
        gaps = pa.array(generator.random(len(column)) < 0.05)
        columns[str(name)] = compute.if_else(gaps, pa.scalar(None, column.type), column)
    return pa.table(columns)


def mlp(*args: str, cwd: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "multilayer", *args]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def good(line: str) -> bool:
    """Whether a line has metrics and all of them are finite numbers.

    >>> good("on held-out rows: accuracy 0.9, auc nan"), good("on held-out rows: rmse 1.2e+04"), good("")
    (False, True, False)
    """
    values = [part.split()[-1] for part in line.partition(": ")[2].split(", ") if part]
    return bool(values) and all(re.fullmatch(r"-?[\d.]+(e[+-]\d+)?", value) for value in values)


def main(folder: Path, names: list[str]) -> int:
    listed = json.loads((folder / "INDEX.json").read_text())
    entries = [entry for entry in listed if entry["file"].endswith(".parquet")]  # the others are images
    assert len(entries) == TABLES, f"{folder / 'INDEX.json'} must list {TABLES} tables, got {len(entries)}"
    unknown = set(names) - {entry["name"] for entry in entries}
    assert not unknown, f"{folder / 'INDEX.json'} does not list {', '.join(sorted(unknown))}"
    found = {}
    for entry in sorted(entries, key=lambda entry: entry.get("rows", 0)):
        name, target = entry["name"], entry["target"]
        path = folder / entry["file"]
        if names and name not in names:
            continue
        if not path.exists():
            found[name] = {"ok": False, "seconds": 0.0, "metrics": "", "error": f"{path} is missing"}
            print(f"FAIL {name:20} {path} is missing", flush=True)
            continue
        with tempfile.TemporaryDirectory() as work:
            started = time.perf_counter()
            trained = mlp("train", str(path.resolve()), "--target", target, "--run", "run", "--quiet", cwd=work)
            seconds = time.perf_counter() - started
            table = parquet.read_table(path)
            parquet.write_table(disturbed(table, target), Path(work) / "new.parquet")
            predicted = mlp("predict", "run", "new.parquet", "--out", "out.parquet", cwd=work)
            ok = trained.returncode == predicted.returncode == 0
            ok = ok and parquet.read_table(Path(work) / "out.parquet").num_rows == len(table)
            metrics = [line for line in trained.stdout.splitlines() if line.startswith("on held-out")]
            ok = ok and good("".join(metrics))
            error = (
                "" if ok else (trained.stderr + predicted.stderr).strip()
            )  # stderr can also contain notes about drift
        found[name] = {"ok": ok, "seconds": round(seconds, 1), "metrics": "".join(metrics), "error": error}
        print(f"{'ok  ' if ok else 'FAIL'} {name:20} {seconds:6.1f} s  {''.join(metrics)}{error}", flush=True)
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    (results / "tables.json").write_text(json.dumps(found, indent=2))
    print(f"{sum(run['ok'] for run in found.values())} of {len(found)} tables")
    return 0 if all(run["ok"] for run in found.values()) else 1


if __name__ == "__main__":
    given = sys.argv[1:] or [place for place in [os.environ.get("MULTILAYER_DATA", "")] if place]
    if not given or not (Path(given[0]) / "INDEX.json").exists():
        print("name the folder with the tables, as an argument or in MULTILAYER_DATA", file=sys.stderr)
        sys.exit(2)
    sys.exit(main(Path(given[0]), given[1:]))
