"""How good are suggested learning rates?

    python bench/learning_rate.py FOLDER [--seeds N] [--optimizer NAME]
    python bench/learning_rate.py --generated N

FOLDER/INDEX.json lists the 26 tables. Of each, at most 3,000 rows train a network with two layers of 64 ReLU units for
100 epochs with the default options, once with each of nine learning rates from 0.0001 to 1, and once with the rate of
each rule:

    find_learning_rate   the suggestion of the package
    default              the rate of a training without the option
    steepest slope       the rate at which the smoothed loss of the range test falls fastest, as in Lightning
    minimum / 10         a tenth of the rate with the lowest smoothed loss, as in fastai 1
    valley               half of the longest decreasing part of the smoothed loss, as in fastai 2

The last three use the range test of the finder without its first ten steps, as these libraries do.

A rule is good on a table if the final validation loss is at most 5 % above the lowest of the nine. The final model is
the one that `fit` returns, of the best epoch; the share for the model of the last epoch is printed as well. A missing
suggestion counts as bad. The ratio of times is the processor time of the search over that of one training.

`--generated N` uses N generated tables of default_rule.py instead, with other depths and optimizers as well. The
constants of the finder were chosen on numbers 9000 to 9159, so the first of the N is 9200.

Results are stored in --out after each table; a second run continues.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from default_rule import case

import multilayer as ml
from multilayer.data import DataOptions, make_training_data, read
from multilayer.runs.config import Config
from multilayer.runs.events import EpochEnd
from multilayer.training import learning_rate_finder

GRID = tuple(float(f"{rate:.3g}") for rate in np.logspace(-4, 0, 9))
ROWS, EPOCHS, TOLERANCE = 3000, 100, 0.05
RULES = ("find_learning_rate", "default", "steepest slope", "minimum / 10", "valley")
SKIPPED = 10
FIRST = 9200
"""Number of the first generated table."""
OPTIMIZERS = ("adamw",) * 6 + ("adam", "momentum", "momentum", "sgd")


class Task(NamedTuple):
    name: str
    data: Any
    spec: ml.Spec
    options: dict[str, Any]


def real(folder: Path, seed: int, optimizer: str) -> Iterator[Task]:
    """Yield the tables. The categories of a column, and so the network, depend on the split and its seed."""
    import pyarrow.parquet as pq

    for row in json.loads((folder / "INDEX.json").read_text()):
        if not row["file"].endswith(".parquet"):
            continue  # images
        table = pq.read_table(folder / row["file"])
        if len(table) > ROWS:
            table = table.take(np.sort(np.random.default_rng(0).permutation(len(table))[:ROWS]))
        encoding = make_training_data(read(table), DataOptions(target=row["target"]), Config(seed=seed)).encoding
        spec = ml.mlp(encoding.inputs, (64, 64), encoding.outputs, activation="relu")
        options: dict[str, Any] = {"optimizer": optimizer, "target": row["target"], "epochs": EPOCHS}
        yield Task(row["name"], table, spec, options if optimizer == "adamw" else {**options, "weight_decay": 0.0})


def generated(number: int) -> Iterator[Task]:
    """Yield generated tables with networks of one to five layers."""
    for i in range(FIRST, FIRST + number):
        given = case(i)
        if given.all_rows:
            continue
        random = np.random.default_rng(i + 77)
        optimizer = OPTIMIZERS[random.integers(len(OPTIMIZERS))]
        spec = ml.Spec.parse(given.spec)
        if random.uniform() < 0.3:
            depth = int(random.integers(1, 6))
            spec = ml.mlp(spec.inputs, (given.hidden[0],) * depth, spec.d_out, activation=given.activation)
        y = np.array([f"class {label}" for label in given.y]) if given.classes else given.y
        decay = {} if optimizer == "adamw" else {"weight_decay": 0.0}
        steps = math.ceil(0.8 * len(y) / 32)
        options = {"optimizer": optimizer, **decay, "batch_size": 32, "epochs": math.ceil(4000 / steps)}
        yield Task(f"generated-{i}", (given.X, y), spec, options)


def final_losses(task: Task, rate: float, seed: int) -> tuple[float, float, float]:
    """Return the validation loss of the best and of the last epoch, and the processor time of the training."""
    began = time.process_time()
    run = ml.fit(task.spec, task.data, learning_rate=rate, seed=seed, threads=1, quiet=True, **task.options)
    taken = time.process_time() - began
    found = [event.validation_loss for event in run.log if isinstance(event, EpochEnd)]
    losses = [loss if loss is not None and math.isfinite(loss) else math.inf for loss in found] or [math.inf]
    return min(losses), math.inf if run.failed else losses[-1], taken


def steepest(rates: np.ndarray, smoothed: np.ndarray) -> float:
    return float(rates[int(np.argmin(np.gradient(smoothed)))])


def lowest(rates: np.ndarray, smoothed: np.ndarray) -> float:
    return float(rates[int(np.argmin(smoothed))]) / 10


def valley(rates: np.ndarray, smoothed: np.ndarray) -> float:
    """Return the rate in the middle of the longest decreasing subsequence, by fastai's formula."""
    lengths, end = [1] * len(smoothed), 0
    for i in range(1, len(smoothed)):
        lengths[i] = 1 + max((lengths[j] for j in range(i) if smoothed[i] < smoothed[j]), default=0)
        end = i if lengths[i] > lengths[end] else end
    start = end - lengths[end]
    third = (end - start) / 3
    return float(rates[max(0, start + int(third) + int(third / 2))])


PEERS = {"steepest slope": steepest, "minimum / 10": lowest, "valley": valley}


def measured(task: Task, seed: int) -> dict[str, Any]:
    """Return the final losses of the grid and of each rule, with the rates and the times."""
    searches: list[float] = []
    search = learning_rate_finder.suggest

    def timed(*args: Any, **options: Any) -> Any:
        began = time.process_time()
        found = search(*args, **options)
        searches.append(time.process_time() - began)
        return found

    learning_rate_finder.suggest = timed
    try:
        found = ml.find_learning_rate(task.spec, task.data, seed=seed, threads=1, quiet=True, **task.options)
    finally:
        learning_rate_finder.suggest = search
    rates, smoothed = np.array(found.rates), np.array(found.smoothed)
    chosen: dict[str, float | None] = {"find_learning_rate": found.learning_rate, "default": found.default}
    for name, rule in PEERS.items():
        chosen[name] = rule(rates[SKIPPED:], smoothed[SKIPPED:]) if len(rates) > 2 * SKIPPED else None
    grid = [final_losses(task, rate, seed) for rate in GRID]
    rules = {name: None if rate is None else final_losses(task, rate, seed)[:2] for name, rate in chosen.items()}
    return {
        "rates": chosen,
        "reason": found.reason,
        "grid": [one[:2] for one in grid],
        "rules": rules,
        "search": searches[0],
        "training": float(np.median([one[2] for one in grid])),
    }


def is_good(row: dict[str, Any], rule: str, which: int) -> bool:
    """Whether a rule is within the tolerance. `which` is 0 for the best epoch, 1 for the last."""
    best = min(losses[which] for losses in row["grid"])
    return row["rules"][rule] is not None and row["rules"][rule][which] <= (1 + TOLERANCE) * best


def other_seed(rows: list[dict[str, Any]], which: int) -> float:
    """Return the share of the best rate of the grid with another seed, so another split: more than this is chance."""
    good: list[bool] = []
    for row in rows:
        for other in rows:
            if other["name"] == row["name"] and other["seed"] != row["seed"]:
                here, there = ([losses[which] for losses in one["grid"]] for one in (row, other))
                good.append(here[int(np.argmin(there))] <= (1 + TOLERANCE) * min(here))
    return float(np.mean(good))


def summary(rows: list[dict[str, Any]]) -> None:
    print(f"\n{'table':22} {'seed':>4} {'best of grid':>18} " + " ".join(f"{name:>22}" for name in RULES))
    for row in rows:
        best = int(np.argmin([losses[0] for losses in row["grid"]]))
        cells: list[str] = []
        for rule in RULES:
            rate, losses = row["rates"][rule], row["rules"][rule]
            text = "none" if losses is None else f"{rate:.3g} → {losses[0]:.4g}"
            cells.append(f"{text + (' ✓' if is_good(row, rule, 0) else '  '):>22}")
        text = f"{GRID[best]:g} → {row['grid'][best][0]:.4g}"
        print(f"{row['name']:22} {row['seed']:4} {text:>18} " + " ".join(cells))
    names = sorted({row["name"] for row in rows})
    halves = {"all tables": names, "first half": names[::2], "second half": names[1::2]}
    for which, title in enumerate(("best epoch", "last epoch")):
        for label, kept in halves.items():
            own = [row for row in rows if row["name"] in kept]
            shares = [np.mean([is_good(row, rule, which) for row in own]) for rule in RULES]
            print(f"{title}, {label:12} {len(own):4} " + " ".join(f"{share:22.0%}" for share in shares))
        if len({row["seed"] for row in rows}) > 1:
            print(f"{title}, the best rate of the nine with another seed: {other_seed(rows, which):.0%}")
    ratios = [row["search"] / row["training"] for row in rows]
    print(f"processor time of the search / of a training: median {np.median(ratios):.1%}, most {max(ratios):.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--optimizer", default="adamw", help="for real tables; others than adamw have no weight decay")
    parser.add_argument("--generated", type=int, default=0, metavar="N")
    parser.add_argument("--out", type=Path, help="default: results/learning_rate-OPTIMIZER.jsonl, or -generated")
    given = parser.parse_args()
    if (given.folder is None) == (not given.generated):
        parser.error("name the folder with the tables, or --generated N")
    kind = "generated" if given.generated else given.optimizer
    out = given.out or Path(__file__).parent / "results" / f"learning_rate-{kind}.jsonl"
    out.parent.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    lines = out.read_text().splitlines() if out.exists() else []
    stored = {(row["name"], row["seed"]): row for row in map(json.loads, lines)}
    rows: list[dict[str, Any]] = []
    with out.open("a") as file:
        for seed in range(given.seeds):
            for task in (
                real(given.folder, seed, given.optimizer) if given.folder is not None else generated(given.generated)
            ):
                if (task.name, seed) not in stored:
                    stored[task.name, seed] = {"name": task.name, "seed": seed, **measured(task, seed)}
                    file.write(json.dumps(stored[task.name, seed]) + "\n")
                    file.flush()
                rows.append(stored[task.name, seed])
    summary(rows)


if __name__ == "__main__":
    main()
