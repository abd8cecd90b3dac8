"""Which default options suit networks of the user's own?   python bench/default_rule.py [--tables N] [--first I]

Trains random networks on generated tables with several rules for epochs, rate, decay, averaging and validation, next to
scikit-learn's MLP. `training/plan.py` holds the rule that was chosen; no bundled or real table is used here.

Tables: Gaussian classes, classes and numbers of a random tanh network, linear functions, sums of axis-aligned boxes,
curves and checkerboards in the plane, Boolean functions; 60 to 4,000 rows, 2 to 40 columns, several levels of noise.
Networks: one or two hidden layers of 8 to 256 units. The test set has 2,000 new rows (Boolean functions: all rows).

Prints for each rule the mean of log(error / best error of all rules), the mean rank, the same ratio for the log-loss,
the expected calibration error and the seconds. Results are stored in --out after each fit; a second run continues.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import log_loss
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tabular import calibration_error

import multilayer as ml

FAMILIES = ("blobs", "network", "linear", "network regression", "boxes", "box regression", "plane", "boolean")
HIDDEN = ((8,), (16,), (32,), (100,), (32, 32), (64, 64), (128, 64), (256, 128))
TEST = 2000
FLOOR = 0.01
"""Added to errors before their ratio is taken: differences between tiny errors do not matter."""
RULES: dict[str, dict[str, Any] | None] = {
    "default": {},
    "decay 0.05": {"weight_decay": 0.05},
    "decay 0.2": {"weight_decay": 0.2},
    "no averaging": {"average": 0.0},
    "no calibration": {"calibrate": False},
    "hold out 10 %": {"validation": 0.1},
    "rate 0.003": {"learning_rate": 0.003},
    "rate 0.02": {"learning_rate": 0.02},
    "20 epochs": {"epochs": 20},
    "scikit-learn": None,
}


class Case(NamedTuple):
    X: Any
    y: Any
    X_test: Any
    y_test: Any
    classes: int
    """0 for regression."""
    hidden: tuple[int, ...]
    activation: str
    all_rows: bool

    @property
    def spec(self) -> str:
        outputs = self.classes if self.classes > 2 else 1
        layers = [f"{width}:{self.activation}" for width in self.hidden]
        return "-".join([str(self.X.shape[1]), *layers, str(outputs)])


def case(i: int) -> Case:
    """Return table and network number i."""
    random = np.random.default_rng(i)
    family = FAMILIES[i % len(FAMILIES)]
    rows, columns = (int(np.exp(random.uniform(*np.log(ends)))) for ends in ((60, 4000), (2, 40)))
    hidden = HIDDEN[random.integers(len(HIDDEN))]
    activation = ("relu", "tanh", "gelu")[random.integers(3)]
    if family == "boolean":
        X, y = boolean(random)
        return Case(X, y, X, y, 2, (max(8, 4 * X.shape[1]),), activation, True)
    total = rows + TEST
    if family == "blobs":
        X, y, classes = blobs(random, total, columns)
    elif family == "plane":
        X, y, classes = *plane(random, total), 2
    else:
        X, y, classes = function(random, total, columns, family)
    return Case(X[:rows], y[:rows], X[rows:], y[rows:], classes, hidden, activation, False)


def boolean(random: np.random.Generator) -> tuple[Any, Any]:
    bits = int(random.integers(2, 6))
    X = ((np.arange(2**bits)[:, None] >> np.arange(bits)) & 1).astype(float)
    y = X.sum(1).astype(int) % 2 if random.uniform() < 0.5 else random.integers(0, 2, len(X))
    if len(set(y.tolist())) == 1:
        y[0] = 1 - y[0]
    return X, y


def blobs(random: np.random.Generator, rows: int, columns: int) -> tuple[Any, Any, int]:
    classes = int(random.integers(2, 6))
    means = random.normal(size=(classes, columns)) * random.uniform(1, 5) / np.sqrt(columns)
    mixing = np.eye(columns) + 0.3 * random.normal(size=(columns, columns))
    y = random.integers(0, classes, rows)
    return means[y] + random.normal(size=(rows, columns)) @ mixing, y, classes


def plane(random: np.random.Generator, rows: int) -> tuple[Any, Any]:
    """Return two spirals, two rings or a checkerboard."""
    t, y, kind = random.uniform(size=rows), random.integers(0, 2, rows), random.integers(3)
    if kind == 2:
        X = random.uniform(-1, 1, size=(rows, 2))
        return X, (np.floor((X + 1) / 2 * random.integers(2, 5)).sum(1) % 2).astype(int)
    turns = random.uniform(0.3, 2.0)
    radius = 0.05 + 0.95 * np.sqrt(t) if kind == 0 else 1 - 0.5 * y
    angle = 2 * np.pi * (turns * np.sqrt(t) + y / 2 if kind == 0 else t)
    X = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
    return X + random.uniform(0.01, 0.1) * random.normal(size=X.shape), y


def function(random: np.random.Generator, rows: int, columns: int, family: str) -> tuple[Any, Any, int]:
    """Return a noisy function of normal and log-normal columns, as numbers or cut into classes."""
    X = random.normal(size=(rows, columns))
    if random.uniform() < 0.5:
        X[:, : columns // 2] = np.exp(X[:, : columns // 2])
    if family == "linear":
        value = X @ (random.normal(size=columns) * (random.uniform(size=columns) < 0.5) + 1e-3)
    elif family.startswith("network"):
        weights = random.normal(size=(columns, 16)) / np.sqrt(columns) * random.uniform(0.5, 2.5)
        value = np.tanh(X @ weights + random.normal(size=16)) @ random.normal(size=16)
    else:
        value = np.zeros(rows)
        for _ in range(random.integers(3, 12)):
            inside = np.ones(rows, bool)
            for column in random.integers(columns, size=random.integers(1, 4)):
                above = X[:, column] > np.quantile(X[:, column], random.uniform(0.1, 0.9))
                inside &= above ^ (random.uniform() < 0.5)
            value += inside * random.normal()
    value = (value - value.mean()) / (value.std() + 1e-12)
    value += np.exp(random.uniform(*np.log((0.05, 1.5)))) * random.normal(size=rows)
    if family in ("linear", "network regression", "box regression"):
        return X, 50 * value + 100, 0
    classes = int(random.integers(2, 5))
    return X, np.digitize(value, np.quantile(value, np.linspace(0, 1, classes + 1)[1:-1])), classes


def fitted(given: Case, options: dict[str, Any] | None) -> Any:
    """Return the trained model; options None are scikit-learn's MLP."""
    if options is not None:
        y = given.y if not given.classes else np.array([f"class {label}" for label in given.y])
        held_out = {"validation": None} if given.all_rows else {}
        return ml.fit(given.spec, (given.X, y), quiet=True, threads=1, **{**options, **held_out}).model
    kind: Callable[..., Any] = MLPClassifier if given.classes else MLPRegressor
    activation = "tanh" if given.activation == "tanh" else "relu"
    network = kind(hidden_layer_sizes=given.hidden, activation=activation, random_state=0)
    return make_pipeline(StandardScaler(), network).fit(given.X, given.y)


def measured(given: Case, options: dict[str, Any] | None) -> dict[str, float]:
    start = time.perf_counter()
    model = fitted(given, options)
    seconds = {"seconds": time.perf_counter() - start}
    if not given.classes:
        error = np.mean((model.predict(given.X_test) - given.y_test) ** 2) / np.var(given.y_test)
        return {"error": float(error), **seconds}
    p = np.full((len(given.X_test), given.classes), 1e-12)
    p[:, np.unique(given.y)] = np.clip(model.predict_proba(given.X_test), 1e-12, 1)
    p /= p.sum(1, keepdims=True)
    return {
        "error": float(np.mean(p.argmax(1) != given.y_test)),
        "log_loss": float(log_loss(given.y_test, p, labels=range(given.classes))),
        "ece": calibration_error(p, given.y_test),
        **seconds,
    }


def summary(found: dict[tuple[int, str], dict[str, float]]) -> None:
    """Print one line per rule over the tables that every rule has finished."""
    whole = sorted({i for i, _ in found if all((i, rule) in found for rule in RULES)})
    print(f"{len(whole)} tables\n{'rule':16} {'regret':>7} {'rank':>6} {'log-loss':>9} {'ECE':>7} {'seconds':>8}")
    for at, rule in enumerate(RULES):
        regret, rank, sure = [], [], []
        for i in whole:
            errors = np.array([found[i, name]["error"] for name in RULES])
            regret.append(np.log((errors[at] + FLOOR) / (errors.min() + FLOOR)))
            rank.append((errors < errors[at]).sum() + ((errors == errors[at]).sum() + 1) / 2)
            if "log_loss" in found[i, rule]:
                losses = np.array([found[i, name]["log_loss"] for name in RULES])
                sure.append(np.log((losses[at] + FLOOR) / (losses.min() + FLOOR)))
        ece = np.mean([found[i, rule]["ece"] for i in whole if "ece" in found[i, rule]])
        taken = np.mean([found[i, rule]["seconds"] for i in whole])
        figures = f"{np.mean(regret):7.4f} {np.mean(rank):6.2f} {np.mean(sure):9.4f} {ece:7.4f} {taken:8.2f}"
        print(f"{rule:16} {figures}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=96)
    parser.add_argument("--first", type=int, default=5000, help="number of the first table: others are other tables")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "default_rule.jsonl")
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    lines = given.out.read_text().splitlines() if given.out.exists() else []
    found = {(row["i"], row["rule"]): row for row in map(json.loads, lines)}
    with given.out.open("a") as file:
        for i in range(given.first, given.first + given.tables):
            for rule, options in RULES.items():
                if (i, rule) not in found:
                    found[i, rule] = {"i": i, "rule": rule, **measured(case(i), options)}
                    file.write(json.dumps(found[i, rule]) + "\n")
                    file.flush()
    summary(found)


if __name__ == "__main__":
    main()
