"""Compare the default estimators with peers on tables.

    python bench/tabular.py FOLDER [--models multilayer,tabm] [--splits N]

FOLDER/INDEX.json lists tables: name, file (Parquet), task, target, categorical_columns. At most 10,000 rows of each
table are used, 30 % of them for testing, with the same split for every model. A split is a seed. Models have their
default options, except for `--threads`:

    multilayer   ml.MLPClassifier() or ml.MLPRegressor(); multilayer-1 has one member, multilayer-4-64 has four members
                 and 64 epochs; multilayer-all trains on all rows, without held-out rows
    sklearn      scikit-learn's MLP after imputer, scaler and one-hot encoder
    realmlp, tabm (pytabkit), lightgbm, xgboost, catboost

Each fit runs in a separate process; `--python` is the interpreter for peers in another environment. Models that are not
installed are reported and skipped. Results are appended as lines of JSON to --out, and a second run continues from
there. --peers-results reads more such files. At the end, tabular_summary.py prints ranks, wins, intervals and times.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TEST_SHARE = 0.3
BINS = 15
MANY = 10_000
"""Number of rows of `predict_many`: the test rows, repeated."""
HERE = Path(__file__).parent
PEERS = ("sklearn", "realmlp", "tabm", "lightgbm", "xgboost", "catboost")
NEEDS = {"sklearn": "sklearn", "realmlp": "pytabkit", "tabm": "pytabkit"}
FILLED = ("sklearn", "realmlp", "tabm", "catboost")
"""Models that reject missing values in categories."""


# One fit, in a separate process


def cell(folder: Path, row: dict[str, Any], model: str, split: int, most: int, threads: int) -> dict[str, Any]:
    """Return the error, log-loss, calibration error and times of a model on one split of a table."""
    import numpy as np
    from sklearn.metrics import accuracy_score, log_loss, r2_score

    X, y, categories = load(folder, row)
    train, test = rows_of(y, row["task"], split, most)
    X = shaped(model, X, categories)
    estimator = made(model, row["task"], categories, [c for c in X.columns if c not in categories], threads)
    start, before = time.perf_counter(), time.process_time()
    estimator.fit(X.iloc[train], y[train])
    fitted, worked = time.perf_counter(), time.process_time() - before
    predicted = np.asarray(estimator.predict(X.iloc[test])).ravel()
    times = {"fit": fitted - start, "processor": worked, "predict": time.perf_counter() - fitted}
    times["predict_many"] = quickest(estimator, X.iloc[np.resize(test, MANY)])
    found = {"n": len(train), "test": len(test), "threads": threads, **times}
    if row["task"] == "regression":
        return {**found, "error": 1 - r2_score(y[test], predicted)}
    p = np.clip(np.asarray(estimator.predict_proba(X.iloc[test]), dtype=np.float64), 1e-15, 1)
    p /= p.sum(1, keepdims=True)
    return {
        **found,
        "error": 1 - accuracy_score(y[test], predicted),
        "logloss": log_loss(y[test], p, labels=np.unique(y[train])),
        "ece": calibration_error(p, y[test]),
    }


def quickest(estimator: Any, X: Any) -> float:
    """Return the seconds of the fastest of three predictions."""
    taken: list[float] = []
    for _ in range(3):
        start = time.perf_counter()
        estimator.predict(X)
        taken.append(time.perf_counter() - start)
    return min(taken)


def calibration_error(p: Any, y: Any) -> float:
    """Return Σ (share of rows in a bin) · |accuracy − confidence|, over 15 equal bins of the largest probability."""
    import numpy as np

    top, correct = p.max(1), p.argmax(1) == y
    bins = np.minimum((top * BINS).astype(int), BINS - 1)
    gaps = np.bincount(bins, weights=correct - top, minlength=BINS)
    return float(np.abs(gaps).sum() / len(y))


def load(folder: Path, row: dict[str, Any]) -> tuple[Any, Any, list[str]]:
    """Return the inputs as categories and numbers, the target (classes as integers), and the categorical columns."""
    import numpy as np
    import pandas as pd

    X = pd.read_parquet(folder / row["file"])
    target = X.pop(row["target"])
    categories = [name for name in row["categorical_columns"] or [] if name in X.columns]
    for name in X.columns:
        text = name in categories
        X[name] = X[name].astype("string").astype("category") if text else pd.to_numeric(X[name], errors="coerce")
    X = X.astype({name: "float64" for name in X.columns if name not in categories})
    if row["task"] == "regression":
        return X, target.to_numpy(dtype=float), categories
    return X, np.unique(target.astype(str).to_numpy(dtype=str), return_inverse=True)[1], categories


def rows_of(y: Any, task: str, split: int, most: int) -> tuple[Any, Any]:
    import numpy as np
    from sklearn.model_selection import train_test_split

    rows = np.arange(len(y))
    if len(rows) > most:
        rows = np.random.RandomState(split).permutation(rows)[:most]
    strata = y[rows] if task != "regression" and np.bincount(y[rows])[np.unique(y[rows])].min() > 1 else None
    return train_test_split(rows, test_size=TEST_SHARE, random_state=split, stratify=strata)


def shaped(model: str, X: Any, categories: list[str]) -> Any:
    """Return the table with missing values filled where the model rejects them."""
    X = X.copy()
    if model in FILLED:
        for name in categories:
            X[name] = X[name].astype(object).where(X[name].notna(), "missing").astype(str)
    if model in ("realmlp", "tabm"):
        X = X.drop(columns=[name for name in X.columns if name not in categories and X[name].isna().all()])
        for name in X.columns:
            X[name] = X[name].astype("category") if name in categories else X[name].fillna(X[name].median())
    return X


def made(model: str, task: str, categories: list[str], numbers: list[str], threads: int) -> Any:
    """Return the estimator with its default options."""
    which = 0 if task != "regression" else 1
    if model.startswith("multilayer"):
        import multilayer as ml

        parts = model.split("-")[1:]
        options = (
            dict(zip(("ensemble", "epochs"), map(int, parts), strict=False))
            if parts != ["all"]
            else {"validation": None}
        )
        return (ml.MLPClassifier, ml.MLPRegressor)[which](random_state=0, n_threads=threads, **options)
    if model == "sklearn":
        return usual_pipeline(which, categories, numbers)
    if model == "lightgbm":
        import lightgbm

        kind = (lightgbm.LGBMClassifier, lightgbm.LGBMRegressor)[which]
        return kind(n_jobs=threads, random_state=0, verbose=-1)
    if model == "xgboost":
        import xgboost

        kind = (xgboost.XGBClassifier, xgboost.XGBRegressor)[which]
        return kind(n_jobs=threads, random_state=0, enable_categorical=True)
    if model == "catboost":
        import catboost

        kind = (catboost.CatBoostClassifier, catboost.CatBoostRegressor)[which]
        options = {"verbose": 0, "allow_writing_files": False, "cat_features": categories}
        return kind(thread_count=threads, random_seed=0, **options)
    import pytabkit

    name = {"realmlp": "RealMLP_TD", "tabm": "TabM_D"}[model] + ("_Classifier", "_Regressor")[which]
    return getattr(pytabkit, name)(device="cpu", random_state=0, n_threads=threads, verbosity=0)


def usual_pipeline(which: int, categories: list[str], numbers: list[str]) -> Any:
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    scaled = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler())
    coded = OneHotEncoder(handle_unknown="ignore", max_categories=50, sparse_output=False)
    columns = ColumnTransformer([("numbers", scaled, numbers), ("categories", coded, categories)])
    return make_pipeline(columns, (MLPClassifier, MLPRegressor)[which](random_state=0))


# All fits


def separate_fit(python: str, limit: float, threads: int, *args: str) -> dict[str, Any]:
    """Run one fit in a separate process, so that its threads, crashes or timeouts do not affect other models."""
    variables = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    command = [python, "-W", "ignore", __file__, "--cell", *args, str(threads)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit, check=False, env={**os.environ, **variables}
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"no result after {limit:.0f} s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no error message"])[-1][:300]}
    return json.loads(done.stdout.splitlines()[-1])


def installed(python: str, model: str) -> bool:
    library = NEEDS.get(model, model.partition("-")[0])
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({library!r}) is None)"
    return subprocess.run([python, "-c", code], check=False).returncode == 0


def run(folder: Path, models: list[str], given: argparse.Namespace) -> None:
    """Run every table, split and model that is not in --out yet. Small tables come first."""
    listed = json.loads((folder / "INDEX.json").read_text())
    tables = [row for row in listed if row["file"].endswith(".parquet")]
    if given.names:
        tables = [row for row in tables if row["name"] in given.names.split(",")]
    out: Path = given.out
    past = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    others = {one["threads"] for one in past if "threads" in one} - {given.threads}
    if others:
        raise SystemExit(
            f"{out} has times measured with {others.pop()} threads, not {given.threads}: choose another file for --out"
        )
    done = {(one["data"], one["split"], one["model"]) for one in past if "failed" not in one}
    for row in sorted(tables, key=lambda row: row["rows"] * (row["features"] or 1)):
        for split in range(given.splits):
            for model in models:
                if (row["name"], split, model) in done:
                    continue
                python = sys.executable if model.startswith("multilayer") else given.python
                arguments = str(folder), json.dumps(row), model, str(split), str(given.rows)
                found = separate_fit(python, given.limit, given.threads, *arguments)
                about = {"data": row["name"], "task": row["task"], "split": split, "model": model}
                line = json.dumps({**about, **found})
                with out.open("a") as file:
                    file.write(line + "\n")
                print(line, flush=True)


def main() -> int:
    if sys.argv[1:2] == ["--cell"]:
        folder, row, model, split, most, threads = sys.argv[2:]
        print(json.dumps(cell(Path(folder), json.loads(row), model, int(split), int(most), int(threads))))
        return 0
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", nargs="?", default=os.environ.get("MULTILAYER_DATA"))
    options.add_argument("--models", default=",".join(("multilayer", *PEERS)))
    options.add_argument("--splits", type=int, default=1)
    options.add_argument("--rows", type=int, default=10_000)
    options.add_argument("--threads", type=int, default=2, help="threads of every model")
    options.add_argument("--names", help="names of tables, separated by commas (default: all)")
    options.add_argument("--limit", type=float, default=1800, help="maximum seconds for one fit")
    options.add_argument("--python", default=sys.executable, help="Python interpreter for the peers")
    options.add_argument("--out", type=Path, default=HERE / "results" / "tabular.jsonl")
    options.add_argument("--peers-results", type=Path, action="append", default=[], metavar="FILE")
    options.add_argument("--summary", action="store_true", help="only print the summary of existing results")
    given = options.parse_args()
    if not given.summary:
        if given.folder is None or not (Path(given.folder) / "INDEX.json").exists():
            print("name a folder with INDEX.json and tables, as an argument or in MULTILAYER_DATA", file=sys.stderr)
            return 2
        models: list[str] = []
        for model in given.models.split(","):
            python = sys.executable if model.startswith("multilayer") else given.python
            if installed(python, model):
                models.append(model)
            else:
                print(f"{model}: not installed, skipped")
        given.out.parent.mkdir(parents=True, exist_ok=True)
        run(Path(given.folder).resolve(), models, given)
    from tabular_summary import read, report

    return report(read([given.out, *given.peers_results]))


if __name__ == "__main__":
    sys.exit(main())
