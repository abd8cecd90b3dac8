"""Summarise the results of tabular.py: ranks, wins, paired intervals, lost tables, times, calibration.

A split of a table counts only if all compared models have a result for it. Values are means over such splits. Slow
models often have only one split. All models are compared on the splits that all of them have. Models with more splits
are then compared again on theirs. Intervals of the difference in rank are 95 % paired bootstrap intervals over tables,
with 10,000 draws. An interval below zero means better than the peer, and an interval that contains zero means no
difference.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

OURS = "multilayer"
DRAWS = 10_000
FAR = 1.1
"""A table counts as lost if the error is over FAR times the best error, and over two standard errors above it."""


def read(paths: list[Path]) -> list[dict[str, Any]]:
    """Return the last result of each table, split and model."""
    found: dict[tuple[str, int, str], dict[str, Any]] = {}
    for path in paths:
        if not path.exists():
            continue
        for line in path.read_text().splitlines():
            one = json.loads(line)
            found[one["data"], one["split"], one["model"]] = one
    return list(found.values())


def by_table(results: list[dict[str, Any]], measure: str) -> dict[str, dict[str, list[float]]]:
    """Return the measure of each split, by table and model."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in results:
        if measure in one and math.isfinite(one[measure]):
            found[one["data"]][one["model"]].append(one[measure])
    return found


def matrix(results: list[dict[str, Any]], measure: str, models: list[str]) -> tuple[list[str], np.ndarray]:
    """Return the tables that every model has, and the means over splits, of shape (tables, models)."""
    found = by_table(results, measure)
    tables = sorted(table for table, there in found.items() if all(model in there for model in models))
    values = [[float(np.mean(found[table][model])) for model in models] for table in tables]
    return tables, np.array(values).reshape(len(tables), len(models))


def ranks(values: np.ndarray) -> np.ndarray:
    """Return the ranks in each row: 1 for the smallest value. Equal values share the mean of their ranks.

    >>> ranks(np.array([[0.2, 0.1, 0.2]])).tolist()
    [[2.5, 1.0, 2.5]]
    """
    less = (values[:, None, :] < values[:, :, None]).sum(2)
    equal = (values[:, None, :] == values[:, :, None]).sum(2)
    return less + (equal + 1) / 2


def interval(differences: np.ndarray, seed: int = 0) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the mean over tables."""
    draws = np.random.default_rng(seed).integers(0, len(differences), size=(DRAWS, len(differences)))
    low, high = np.quantile(differences[draws].mean(1), [0.025, 0.975])
    return float(low), float(high)


def lost(results: list[dict[str, Any]], models: list[str]) -> dict[str, list[str]]:
    """Return the lost tables of each model: its error is over 10 % and over two standard errors above the best."""
    tables, errors = matrix(results, "error", models)
    spread = by_table(results, "error")
    tests = {one["data"]: one.get("test", round(one["n"] * 3 / 7)) for one in results if "n" in one}
    kinds = {one["data"]: one["task"] for one in results}
    found: dict[str, list[str]] = {model: [] for model in models}
    for table, row in zip(tables, errors, strict=True):
        best = row.min()
        for model, error in zip(models, row, strict=True):
            splits = spread[table][model]
            if kinds[table] != "regression":
                noise = math.sqrt(max(best * (1 - best), 0.0) / (tests[table] * len(splits)))
            else:
                noise = float(np.std(splits, ddof=1)) / math.sqrt(len(splits)) if len(splits) > 1 else 0.0
            if error > FAR * best and error > best + 2 * noise:
                found[model].append(table)
    return found


def shared(results: list[dict[str, Any]], models: list[str]) -> list[dict[str, Any]]:
    """Return the results of these models on the splits that all of them have."""
    there: dict[tuple[str, int], set[str]] = defaultdict(set)
    for one in results:
        there[one["data"], one["split"]].add(one["model"])
    whole = {split for split, found in there.items() if found.issuperset(models)}
    return [one for one in results if one["model"] in models and (one["data"], one["split"]) in whole]


def report(results: list[dict[str, Any]]) -> int:
    """Print the summary. Return 1 if there is nothing to compare."""
    for one in results:
        if "failed" in one:
            print(f"failed: {one['model']} on {one['data']}, split {one['split']}: {one['failed']}")
    good = [one for one in results if "failed" not in one]
    splits: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for one in good:
        splits[one["model"]].add((one["data"], one["split"]))
    models = sorted(splits)
    if len(models) < 2 or OURS not in models:
        print(f"nothing to compare: {OURS} and a peer are needed, got {', '.join(models) or 'nothing'}")
        return 1
    everything = {one["data"] for one in good}
    for model in models:
        if absent := sorted(everything - {table for table, _ in splits[model]}):
            print(f"{model} has no result for: {', '.join(absent)}")
    if not shared(good, models):
        print("no table has results of all models")
        return 1
    _standings(shared(good, models), models)
    fewest = min(len(found) for found in splits.values())
    several = [model for model in models if len(splits[model]) > fewest]
    if OURS in several and 1 < len(several) < len(models):
        _standings(shared(good, several), several)
    return 0


def _standings(results: list[dict[str, Any]], models: list[str]) -> None:
    counts = {(one["data"], one["split"]) for one in results}
    tables, errors = matrix(results, "error", models)
    print(f"\n== {', '.join(models)}: {len(tables)} tables, {len(counts)} splits in total")
    _ranked("error", errors, models, lost(results, models))
    _, losses = matrix(results, "logloss", models)
    if len(losses):
        _ranked("log-loss", losses, models, None)
    _times(results, models)
    _calibrated(results, models)
    print("\nerror by table; * marks the best")
    print(f"{'':20s}" + "".join(f"{model:>14s}" for model in models))
    for table, row in zip(tables, errors, strict=True):
        marks = ["*" if value == row.min() else " " for value in row]
        print(f"{table:20s}" + "".join(f"{value:13.4f}{mark}" for value, mark in zip(row, marks, strict=True)))


def _ranked(name: str, values: np.ndarray, models: list[str], beaten: dict[str, list[str]] | None) -> None:
    ours, place = models.index(OURS), ranks(values)
    wins, worst = (values == values.min(1, keepdims=True)).sum(0), (place == place.max(1, keepdims=True)).sum(0)
    print(f"\n{name}: {len(values)} tables")
    for i in np.argsort(place.mean(0), kind="stable"):
        line = f"  {models[i]:14s} mean rank {place[:, i].mean():5.2f}  best on {wins[i]:2d}  worst on {worst[i]:2d}"
        if beaten is not None:
            line += f"  lost {len(beaten[models[i]]):2d}"
        if i != ours:
            low, high = interval(place[:, ours] - place[:, i])
            line += (
                f"  rank of {OURS} minus this: {(place[:, ours] - place[:, i]).mean():+.2f} [{low:+.2f}, {high:+.2f}]"
            )
        print(line)


def _times(results: list[dict[str, Any]], models: list[str]) -> None:
    ours = models.index(OURS)
    for measure in ("fit", "predict", "predict_many"):
        _, seconds = matrix(results, measure, models)
        if not len(seconds):
            continue
        ratios = np.exp(np.log(seconds[:, [ours]] / seconds).mean(0))
        print(f"\n{measure} time, {len(seconds)} tables: time of {OURS} / time of the model, geometric mean")
        for i, model in enumerate(models):
            print(f"  {model:14s} {ratios[i]:8.3f}×  (mean time of the model {seconds[:, i].mean():.3f} s)")


def _calibrated(results: list[dict[str, Any]], models: list[str]) -> None:
    known = [model for model in models if any("ece" in one for one in results if one["model"] == model)]
    if OURS not in known or len(known) < 2:
        print("\nexpected calibration error: not in these results")
        return
    _, values = matrix(results, "ece", known)
    ours = known.index(OURS)
    others = np.delete(values, ours, 1)
    print(f"\nexpected calibration error, {len(values)} tables")
    for i, model in enumerate(known):
        print(f"  {model:14s} mean {values[:, i].mean():.4f}")
    print(
        f"  {OURS} is not worse than the best peer on {int((values[:, ours] <= others.min(1)).sum())} of {len(values)}"
    )
