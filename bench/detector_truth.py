"""What is true of a case of bench/detectors.py: what it is compared with, and whether its fault is really there.

    others      the same table with other rates, networks or options: what the case should be compared with
    verdict     whether the seeded fault is there, or whether a healthy case is healthy
    present     all faults of the network and the table that a plain measurement shows, also those that were not seeded

The quality of a model is its loss on the test rows, which no run has seen. The excess of a loss is

    (loss − best loss) / (loss of the best constant − best loss)

with the best loss of the case and its others: 0 is as good as the best, 1 as bad as a constant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from detector_cases import HEALTHY, Case, layers
from detector_facts import Facts

# What a case is compared with


def others(case: Case, rate: float) -> dict[str, Case]:
    """Return the cases that show what is possible, by name. `rate` is the rate of the case."""
    found: dict[str, Case] = {}
    usual = case.with_options(init=None, scaling=None, l2=None, on_spike=None)
    match case.kind:
        case "rate_too_high" | "rate_too_low":
            up = -1 if case.kind == "rate_too_high" else 1
            found = {f"rate 1e{up * power:+g}": _at(case, rate * 10 ** (up * power)) for power in (0.75, 1.5, 2.25)}
        case "vanishing_gradients" | "exploding_gradients" | "saturated_units" | "symmetric_units":
            found = {"init auto": case.with_options(init=None, scaling=None)}
            if case.kind == "vanishing_gradients":
                gelu = replace(case, hidden=(case.hidden or "").replace("sigmoid", "gelu"))
                found["gelu, init auto"] = gelu.with_options(init=None)
        case "unscaled_inputs":
            found = {"scaled": case.with_options(scaling=None)}
        case "underfitting":
            found = {"larger": replace(usual, hidden=layers(2, 48, "gelu"), options=_plain(case))}
        case "overfitting":
            found = {"regularized": regularized(case)}
        case "label_noise":
            found = {"clean": replace(case, table=replace(case.table, flipped=0.0))}
        case "leakage":
            found = {"without": replace(case, table=replace(case.table, leak=""))}
        case "wrong_loss":
            found = _right_loss(case)
        case "batch_norm_small_batch":
            found = {"batch 32": case.with_options(batch_size=32, epochs=min(400, case.options["epochs"] * 4))}
            found["layernorm"] = replace(case, hidden=(case.hidden or "").replace("batchnorm", "layernorm"))
        case "healthy":
            found = {f"rate 1e{power:+g}": _at(case, rate * 10**power) for power in (-1, -0.5, 0.5, 1)}
            for name, hidden in (("wide", layers(2, 64, "gelu")), ("linear", "")):
                found[name] = replace(case, hidden=hidden, options=_plain(case))
            found["regularized"] = regularized(case)
        case _:
            pass
    return found


def _at(case: Case, rate: float) -> Case:
    return case.with_options(learning_rate=float(f"{rate:.3g}"))


def _plain(case: Case) -> dict[str, Any]:
    """Return the default options, with the seed and the task of the case."""
    return {name: case.options[name] for name in ("seed", "threads", "task") if name in case.options}


def regularized(case: Case) -> Case:
    """Return a small network with dropout, weight decay and patience for the same table."""
    return replace(case, hidden=layers(1, 32, "gelu", dropout=0.2), options={**_plain(case), "weight_decay": 0.5})


def _right_loss(case: Case) -> dict[str, Case]:
    if case.table.family == "many":  # numbers that are classes: as text, they are inferred to be classes
        return {}
    if case.table.target == "counts":
        return {"poisson": case.with_options(loss="poisson")}
    if case.table.target == "outliers":
        return {"mae": case.with_options(loss="mae")}
    return {"classes": case.with_options(task=None)}


# Verdicts


def verdict(kind: str, fact: Facts, other: Mapping[str, Facts]) -> tuple[bool, str]:
    """Return whether the fault of a case is there, or a healthy case is healthy, and the numbers that show it."""
    shown: dict[str, float] = CHECKS[kind](fact, other)
    limits = LIMITS[kind]
    failed = [name for name, (low, high) in limits.items() if not low <= shown[name] <= high]
    text = ", ".join(f"{name} {value:.3g}" for name, value in shown.items())
    return not failed, f"{'not: ' + ', '.join(failed) + ': ' if failed else ''}{text}"


def excess(fact: Facts, other: Mapping[str, Facts], name: str = "test") -> float:
    """Return the excess of a loss over the best of the case and its others, at most 10."""
    key = "train" if name.startswith("train") else name
    best = min([fact.get(name, math.inf), *(one.get(key, math.inf) for one in other.values())])
    room = max(fact["base"] - best, 1e-9)
    return min(10.0, (fact.get(name, math.inf) - best) / room) if math.isfinite(best) else 10.0


def worst(fact: Facts, key: str) -> float:
    """Return the largest share of a layer in the model that the run returned."""
    return max([layer[key] for layer in fact["model"] if key in layer], default=0.0)


def last(fact: Facts) -> list[Facts]:
    return fact["layers"][max(fact["layers"], key=int)]


def signal_slope(fact: Facts) -> float:
    """Return log10 of ‖∂L/∂z‖ of the first layer with weights over that of the last, before training."""
    norms = [max(layer["signal"], 1e-300) for layer in fact["layers"]["0"] if "gradient" in layer]
    return math.log10(norms[0] / norms[-1]) if norms and all(map(math.isfinite, norms)) else 0.0


def rise(fact: Facts) -> float:
    """Return how far the validation loss has risen since its best epoch, in units of what can be learned.

    The loss is that of the events, or that of the raw outputs if it rises more: a temperature corrects the first one.
    """
    curve = [float(point[1]) for point in fact["history"] if point[1] is not None]
    pairs = [(curve[-1], min(curve))] if curve else []
    pairs += [(fact["validation_last"], fact["validation"])] if "validation" in fact else []
    return max([(end - best) / max(fact["base"] - best, 0.05 * fact["base"]) for end, best in pairs], default=0.0)


def gap(fact: Facts) -> float:
    """Return (validation loss − training loss) / loss of a constant, at the end."""
    return (fact.get("validation_last", math.inf) - fact["train_last"]) / fact["base"]


def _structure(fact: Facts, other: Mapping[str, Facts]) -> dict[str, float]:
    return {"dead": worst(fact, "dead"), "saturated": worst(fact, "saturated")}


def _gradients(fact: Facts, other: Mapping[str, Facts]) -> dict[str, float]:
    top = max([layer["gradient"] for layer in fact["layers"]["0"] if "gradient" in layer], default=0.0)
    harm = max(excess(fact, other, "train_last"), excess(fact, other))
    return {"slope": signal_slope(fact), "norm": top, "harm": harm}


def _rates(fact: Facts, other: Mapping[str, Facts]) -> dict[str, float]:
    return {"train": excess(fact, other, "train_last"), "test": excess(fact, other)}


def _overfitting(fact: Facts, other: Mapping[str, Facts]) -> dict[str, float]:
    return {
        "gap": gap(fact),
        "rise": rise(fact),
        "train": fact["train_last"] / fact["base"],
        "test": excess(fact, other),
    }


def _table(fact: Facts, other: Mapping[str, Facts]) -> dict[str, float]:
    best = [*fact["alone"], 0.0, 0.0]
    return {"test": excess(fact, other), "sizes": fact["columns"], "alone": best[0], "second": best[1]}


def _labels(fact: Facts, other: Mapping[str, Facts]) -> dict[str, float]:
    return {"clean": next(iter(other.values()))["accuracy"]}


def _loss(fact: Facts, other: Mapping[str, Facts]) -> dict[str, float]:
    for name, key in (("poisson", "deviance"), ("mae", "mae")):
        if name in other:
            return {"worse": fact[key] / max(other[name][key], 1e-9) - 1}
    right = other["classes"]["accuracy"] if "classes" in other else 1.0
    return {"worse": right - fact["rounded"]}


def _healthy(fact: Facts, other: Mapping[str, Facts]) -> dict[str, float]:
    at_end = last(fact)
    return {
        "test": excess(fact, other),
        "dead": max(worst(fact, "dead"), *[layer.get("dead", 0.0) for layer in at_end], 0.0),
        "saturated": max(worst(fact, "saturated"), *[layer.get("saturated", 0.0) for layer in at_end], 0.0),
        "learned": 1 - fact["test"] / fact["base"],
        "gap": (fact.get("validation", fact["test"]) - fact["train"]) / fact["base"],
        "rise": 0.0 if fact["patience"] else rise(fact),
        "alone": fact["alone"][0],
        "accidents": fact["accidents"],
    }


def present(kind: str, fact: Facts) -> set[str]:
    """Return the seeded fault, and the faults that plain measurements of the same case show."""
    slope, top = signal_slope(fact), max([one.get("gradient", 0.0) for one in fact["layers"]["0"]], default=0.0)
    shown = {
        "dead_units": worst(fact, "dead") >= UNITS,
        "saturated_units": worst(fact, "saturated") >= UNITS,
        "symmetric_units": worst(fact, "duplicates") >= DUPLICATES,
        "vanishing_gradients": slope <= SLOPE,
        "exploding_gradients": top >= NORM,
        "unscaled_inputs": fact["columns"] >= DECADES,
        "batch_norm_small_batch": fact["batch_norm"] and fact["batch"] <= 4,
    }
    return {kind} | {name for name, there in shown.items() if there}


ALL = math.inf
UNITS, DUPLICATES, SLOPE, NORM, DECADES = 0.3, 0.5, -3, 30, 2
"""Limits from which a layer, the gradients before training and the columns have a fault."""
CLEARLY, NEARLY = 0.15, 0.1
"""Excess of a loss that is clearly worse than the best, and of a loss that is about as good."""
LIMITS: dict[str, dict[str, tuple[float, float]]] = {
    "dead_units": {"dead": (UNITS, 1)},
    "saturated_units": {"saturated": (UNITS, 1)},
    "vanishing_gradients": {"slope": (-ALL, SLOPE), "harm": (CLEARLY, ALL)},
    "exploding_gradients": {"norm": (NORM, ALL), "harm": (CLEARLY, ALL)},
    "symmetric_units": {"duplicates": (DUPLICATES, 1)},
    "rate_too_high": {"train": (CLEARLY, ALL), "test": (0.05, ALL)},
    "rate_too_low": {"train": (CLEARLY, ALL), "test": (0.05, ALL)},
    "overfitting": {"gap": (0.3, ALL), "rise": (0.2, ALL), "train": (-ALL, 0.3)},
    "underfitting": {"test": (0.25, ALL)},
    "unscaled_inputs": {"sizes": (DECADES, ALL), "test": (NEARLY, ALL)},
    "label_noise": {"clean": (0.88, 1)},
    "leakage": {"alone": (0.94, 1), "second": (-ALL, 0.85)},
    "wrong_loss": {"worse": (0.05, ALL)},
    "batch_norm_small_batch": {"test": (0.05, ALL)},
    HEALTHY: {
        "test": (-ALL, NEARLY),
        "dead": (0, 0.15),
        "saturated": (0, 0.15),
        "learned": (0.3, 1),
        "gap": (-ALL, 0.5),
        "rise": (-ALL, 0.15),
        "alone": (-ALL, 0.92),
        "accidents": (0, 0),
    },
}
"""Smallest and largest value of what must hold for a case to count."""
CHECKS: dict[str, Any] = {
    "dead_units": _structure,
    "saturated_units": _structure,
    "vanishing_gradients": _gradients,
    "exploding_gradients": _gradients,
    "symmetric_units": lambda fact, other: {
        "duplicates": max(layer["duplicates"] for layer in fact["model"] if "duplicates" in layer)
    },
    "rate_too_high": _rates,
    "rate_too_low": _rates,
    "overfitting": _overfitting,
    "underfitting": lambda fact, other: {"test": excess(fact, other)},
    "unscaled_inputs": _table,
    "label_noise": _labels,
    "leakage": _table,
    "wrong_loss": _loss,
    "batch_norm_small_batch": lambda fact, other: {"test": excess(fact, other)},
    HEALTHY: _healthy,
}
