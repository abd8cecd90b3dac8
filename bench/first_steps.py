"""Measure how good networks are with default options.   python bench/first_steps.py [FOLDER] [--out FILE]

Each network is trained with `ml.fit(spec, data)` and compared with a peer: scikit-learn's MLP with the same hidden
layers and a standard scaler. For diabetes, the peer is ridge regression. For MNIST and Fashion-MNIST, it is this
package with its former defaults.

FOLDER contains tables listed in INDEX.json (see bench/tabular.py), `mnist` and `fashion_mnist`. Without FOLDER, only
the bundled data sets are measured. At most 10,000 rows of each table are used, 30 % of them for testing.

Results are stored in --out after each case. A second run continues from there. The exit code is 1 if a required figure
is not reached.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import RidgeCV
from sklearn.metrics import accuracy_score, mean_squared_error, r2_score
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tabular import calibration_error, load, rows_of, shaped, usual_pipeline

import multilayer as ml
from multilayer.data import DataConfig, DataOptions, Table, make_training_data, read

SPLITS = 10
SETS = {
    "iris": ("4-16-3", 0.95),
    "wine": ("13-32-3", 0.96),
    "breast_cancer": ("30-32-1", 0.95),
    "moons": ("2-16-1", 0.96),
    "spirals": ("2-32-32-1", 0.97),
    "digits": ("64-64-10", 0.97),
}
SOLVED = {"xor": ("2-8:tanh-1", 10, 10), "songs": ("2-8:tanh-1", 20, 20), "parity(4)": ("4-16:tanh-1", 10, 9)}
TABLES, AT_LEAST = 20, 16
"""The number of tables (the smallest of the folder), and on how many of them our accuracy must reach the peer's."""
FORMER: dict[str, Any] = {
    "epochs": 20,
    "learning_rate": 1e-3,
    "weight_decay": 1e-4,
    "metric": "accuracy",
    "calibrate": False,
}
Figures = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "first_steps.jsonl")
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    known = (
        {row["case"]: row for row in map(json.loads, given.out.read_text().splitlines())} if given.out.exists() else {}
    )
    found: list[Figures] = []
    print(f"{'case':20} {'network':28} {'ours':>8} {'peer':>8} {'needed':>8}  {'ECE':>6} {'peer':>6}  seconds, peer")
    for name, measure in cases(given.folder):
        if name not in known:
            known[name] = {"case": name, **measure()}
            with given.out.open("a") as file:
                file.write(json.dumps(known[name]) + "\n")
        found.append(known[name])
        print(line(known[name]), flush=True)
    return summary(found)


def cases(folder: Path | None) -> Iterator[tuple[str, Callable[[], Figures]]]:
    for name, (spec, needed) in SETS.items():
        yield name, lambda name=name, spec=spec, needed=needed: classified(name, spec, needed)
    for name, (spec, seeds, needed) in SOLVED.items():
        yield name, lambda name=name, spec=spec, seeds=seeds, needed=needed: solved(name, spec, seeds, needed)
    yield "diabetes", diabetes
    if folder is None:
        return
    listed = [row for row in json.loads((folder / "INDEX.json").read_text()) if row["file"].endswith(".parquet")]
    for row in sorted(listed, key=lambda row: row["rows"])[:TABLES]:
        yield f"table {row['name']}", lambda row=row: table(folder, row)
    for name in ("mnist", "fashion_mnist"):
        yield name, lambda name=name: images(folder / name)


def line(row: Figures) -> str:
    needed = "" if row.get("needed") is None else f"{row['needed']:.4g}"
    ece = f"{row['ece']:6.3f} {row['peer_ece']:6.3f}" if "ece" in row else " " * 13
    times = f"{row['seconds']:.2f}, {row['peer_seconds']:.2f}"
    return f"{row['case']:20} {row['network']:28} {row['ours']:8.4f} {row['peer']:8.4f} {needed:>8}  {ece}  {times}"


def summary(found: list[Figures]) -> int:
    """Print a summary. Return 1 if a required figure is not reached."""
    missed = [row["case"] for row in found if row.get("needed") is not None and not reached(row)]
    tables = [row for row in found if row["case"].startswith("table ")]
    if tables:
        level = sum(row["ours"] >= row["peer"] for row in tables)
        print(f"tables: at least as accurate as scikit-learn's MLP on {level} of {len(tables)}, needed {AT_LEAST}")
        missed += ["tables"] if level < AT_LEAST else []
    judged = [row for row in found if "ece" in row]
    ours, peer = (float(np.mean([row[key] for row in judged])) for key in ("ece", "peer_ece"))
    print(f"mean expected calibration error of {len(judged)} cases: {ours:.4f}, scikit-learn {peer:.4f}")
    missed += ["calibration"] if ours > peer else []
    print("missed: " + ", ".join(missed) if missed else "all required figures are reached")
    return 1 if missed else 0


def reached(row: Figures) -> bool:
    return row["ours"] <= row["needed"] if row.get("smaller") else row["ours"] >= row["needed"]


def parts(name: str, seed: int) -> tuple[Table, Table]:
    """Split a bundled data set: three quarters for training, the rest for testing."""
    whole = read(name)
    y = whole.column(whole.targets[0]).to_numpy()
    strata = None if name == "diabetes" else y
    train, test = train_test_split(np.arange(len(whole)), test_size=0.25, random_state=seed, stratify=strata)
    return whole.take(np.sort(train)), whole.take(np.sort(test))


def arrays(rows: Table) -> tuple[Any, Any]:
    target = rows.targets[0]
    inputs = rows.matrix if rows.matrix is not None else None
    if inputs is None:
        inputs = np.stack([rows.column(name).to_numpy() for name in rows.names if name != target], 1)
    return np.asarray(inputs, dtype=float), rows.column(target).to_numpy()


def peer_of(spec: str, seed: int) -> Any:
    """Return scikit-learn's MLP with the same hidden layers."""
    layers = spec.split("-")[1:-1]
    widths = tuple(int(layer.split(":")[0]) for layer in layers)
    activation = "tanh" if "tanh" in layers[0] else "relu"
    return MLPClassifier(hidden_layer_sizes=widths, activation=activation, random_state=seed)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    return work(), time.perf_counter() - start


def classified(name: str, spec: str, needed: float) -> Figures:
    """Return mean test accuracies and calibration errors over splits."""
    rows: list[tuple[float, ...]] = []
    for seed in range(SPLITS):
        train, test = parts(name, seed)
        run, seconds = timed(lambda train=train, seed=seed: ml.fit(spec, train, seed=seed, quiet=True))
        X, y = arrays(train)
        model = make_pipeline(StandardScaler(), peer_of(spec, seed))
        _, peer_seconds = timed(lambda model=model, X=X, y=y: model.fit(X, y))
        X, y = arrays(test)
        codes = np.searchsorted(model.classes_, y)
        p, q = run.model.predict_proba(test), model.predict_proba(X)
        accuracies = accuracy_score(codes, p.argmax(1)), accuracy_score(codes, q.argmax(1))
        rows.append((*accuracies, calibration_error(p, codes), calibration_error(q, codes), seconds, peer_seconds))
    ours, peer, ece, peer_ece, seconds, peer_seconds = np.mean(rows, axis=0).tolist()
    times = {"seconds": seconds, "peer_seconds": peer_seconds}
    return {"network": spec, "ours": ours, "peer": peer, "needed": needed, "ece": ece, "peer_ece": peer_ece, **times}


def solved(name: str, spec: str, seeds: int, needed: int) -> Figures:
    """Return the number of seeds that classify every row correctly after training on all rows."""
    whole = read(name)
    X, y = arrays(whole)
    found = [
        timed(lambda seed=seed: ml.fit(spec, name, validation=None, seed=seed, quiet=True)) for seed in range(seeds)
    ]
    right = [run.model.evaluate(whole)["accuracy"] == 1 for run, _ in found]
    peers = [
        timed(lambda seed=seed: make_pipeline(StandardScaler(), peer_of(spec, seed)).fit(X, y)) for seed in range(seeds)
    ]
    times = {"seconds": np.mean([s for _, s in found]), "peer_seconds": np.mean([s for _, s in peers])}
    also = sum(model.score(X, y) == 1 for model, _ in peers)
    return {"network": spec, "ours": sum(right), "peer": also, "needed": needed, **times}


def diabetes() -> Figures:
    """Return the mean test RMSE over splits, with that of ridge regression."""
    rows: list[tuple[float, ...]] = []
    for seed in range(SPLITS):
        train, test = parts("diabetes", seed)
        run, seconds = timed(lambda train=train, seed=seed: ml.fit("10-32-1", train, seed=seed, quiet=True))
        ridge, peer_seconds = timed(lambda train=train: make_pipeline(StandardScaler(), RidgeCV()).fit(*arrays(train)))
        X, y = arrays(test)
        rmse = [np.sqrt(mean_squared_error(y, p)) for p in (run.model.predict(test), ridge.predict(X))]
        rows.append((*rmse, seconds, peer_seconds))
    ours, peer, seconds, peer_seconds = np.mean(rows, axis=0).tolist()
    bound = {"needed": 1.05 * peer, "smaller": True}
    return {"network": "10-32-1", "ours": ours, "peer": peer, **bound, "seconds": seconds, "peer_seconds": peer_seconds}


def table(folder: Path, row: dict[str, Any]) -> Figures:
    """Return test accuracy or R² on a table with one hidden layer of 100 units, scikit-learn's default."""
    X, y, categories = load(folder, row)
    train, test = rows_of(y, row["task"], 0, 10_000)
    frame = X.iloc[train].assign(**{row["target"]: y[train]})
    classes = row["task"] != "regression"
    task = ("binary" if y.max() == 1 else "multiclass") if classes else "regression"
    encoding = make_training_data(frame, DataOptions(target=row["target"]), DataConfig(task=task)).encoding
    spec = ml.mlp(encoding.inputs, [100], encoding.outputs)
    run, seconds = timed(lambda: ml.fit(spec, frame, target=row["target"], task=task, quiet=True))
    filled = shaped("sklearn", X, categories)
    peer = usual_pipeline(0 if classes else 1, categories, [c for c in X.columns if c not in categories])
    _, peer_seconds = timed(lambda: peer.fit(filled.iloc[train], y[train]))
    found: Figures = {"network": "100 units", "seconds": seconds, "peer_seconds": peer_seconds}
    rows, truth = X.iloc[test], y[test]
    score = accuracy_score if classes else r2_score
    ours, other = run.model.predict(rows), peer.predict(filled.iloc[test])
    found |= {"ours": float(score(truth, ours)), "peer": float(score(truth, other))}
    if classes:
        p, q = run.model.predict_proba(rows), peer.predict_proba(filled.iloc[test])
        found |= {"ece": calibration_error(p, truth), "peer_ece": calibration_error(q, truth)}
    return found


def images(folder: Path) -> Figures:
    """Return the test accuracy, with that of the former defaults. Both are means over three seeds."""
    test = folder / "t10k-images-idx3-ubyte.gz"

    def mean(**options: Any) -> float:
        seeds = range(3)
        runs = [ml.fit("784-256-128-10", folder, quiet=True, seed=seed, **options) for seed in seeds]
        return float(np.mean([run.model.evaluate(test)["accuracy"] for run in runs]))

    ours, seconds = timed(mean)
    former, peer_seconds = timed(lambda: mean(**FORMER))
    times = {"seconds": seconds / 3, "peer_seconds": peer_seconds / 3}
    return {"network": "784-256-128-10", "ours": ours, "peer": former, "needed": former, **times}


if __name__ == "__main__":
    raise SystemExit(main())
