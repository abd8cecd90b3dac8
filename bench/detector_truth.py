"""What is true of a case of bench/detectors.py, measured without the detectors.

    trained      trains a case, and keeps the network of several epochs: the first, the last, and some between
    facts        losses, layers and gradients of a trained case, by a plain pass through the numpy layers
    others       the same table with other rates, networks or options: what the case should be compared with
    verdict      whether the seeded fault is there, or whether a healthy case is healthy

The quality of a model is its loss on the test rows, which no run has seen. The excess of a loss is

    (loss − best loss) / (loss of the best constant − best loss)

with the best loss of the case and its others: 0 is as good as the best, 1 as bad as a constant.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from detector_cases import HEALTHY, Case, layers
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import multilayer as ml
from multilayer.data import DataOptions, Encoded, TrainingData
from multilayer.interpretation.float64_model import to_float64
from multilayer.interpretation.passes import Gradients, Values, backward_pass, forward_pass
from multilayer.nn import losses
from multilayer.nn.activations.properties import dead, saturated
from multilayer.nn.layers import Activation, Linear, Pass
from multilayer.runs.config import Config
from multilayer.runs.stored_data import read_once
from multilayer.training.inputs import encode

SNAPSHOTS = 6
ROWS = 256
"""Rows of a gradient."""
Facts = dict[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Trained:
    """A run with its encoded rows, and the models of some epochs: epoch 0 is before training."""

    case: Case
    run: Any
    prepared: TrainingData
    models: dict[int, Any]


def trained(case: Case, *, snapshots: bool = True) -> Trained:
    """Train a case."""
    models: dict[int, Any] = {}

    def keep(progress: Any) -> bool:
        every = max(1, progress.epochs // SNAPSHOTS)
        if snapshots and (progress.epoch % every == 0 or progress.epoch in (1, progress.epochs)):
            models[progress.epoch] = progress.model()
        return False

    table, options = case.loaded.train, dict(case.options)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        run: Any = ml.fit(case.network, table, target="y", quiet=True, each_epoch=keep, **options)
        config = Config.from_dict(next(one for one in run.events if one["event"] == "start")["config"])
        spec = run.model.spec
        prepared = encode(read_once(table), DataOptions(target="y", inputs=spec.inputs, outputs=spec.d_out), config)
    return Trained(case=case, run=run, prepared=prepared, models=models)


# Losses


def scores(one: Trained) -> Facts:
    """Return the losses of the model and of the best constant, and the metrics on the test rows."""
    prepared, model = one.prepared, one.run.model
    loss = losses.get(prepared.encoding.loss)
    last = one.models[max(one.models)] if one.models else model
    test = one.case.loaded.test
    parts = {"train": prepared.train, "validation": prepared.validation}
    found: Facts = {"base": float(loss.rows(*_constant(loss, prepared)).mean())}
    for name, rows in parts.items():
        if len(rows):
            found[name] = _mean_loss(loss, model, _rows(prepared, rows), prepared.data.y[rows])
            found[f"{name}_last"] = _mean_loss(loss, last, _rows(prepared, rows), prepared.data.y[rows])
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        encoded = model.encode(test, targets=True)
        try:
            z = model.forward(encoded).astype(np.float64)
            found["test"] = _finite(loss.rows(z, encoded[0].y).mean())
            found |= _metrics(one, model.predict(test), test["y"].to_numpy())
        except ml.DataError:
            found["test"] = math.inf
    return found


def _rows(prepared: TrainingData, rows: Any) -> Encoded:
    data = prepared.data
    codes = None if data.codes is None else data.codes[rows]
    return Encoded(x=data.x[rows], codes=codes, y=data.y[rows], rows=np.arange(len(rows)), notes=())


def _mean_loss(loss: losses.Loss, model: Any, rows: Encoded, y: Any) -> float:
    """Return the loss of the averaged raw outputs, without calibration."""
    with np.errstate(all="ignore"):
        z = np.mean([member.outputs(rows).astype(np.float64) for member in model.members], axis=0)
        return _finite(loss.rows(z, y).mean())


def _finite(value: Any) -> float:
    return float(value) if np.isfinite(value) else math.inf


def _constant(loss: losses.Loss, prepared: TrainingData) -> tuple[Any, Any]:
    """Return the outputs of the best constant, and the targets."""
    y = prepared.data.y[prepared.train]
    if loss.classes:
        shares = np.maximum(np.bincount(y, minlength=prepared.encoding.outputs) / len(y), 1e-12)
        return np.broadcast_to(np.log(shares), (len(y), len(shares))), y
    middle = np.clip(y.mean(0), 1e-9, None if loss.link != "sigmoid" else 1 - 1e-9) if loss.link else y.mean(0)
    links = {"sigmoid": lambda p: np.log(p / (1 - p)), "exp": np.log, None: lambda p: p}
    value = np.median(y, axis=0) if loss.name in ("mae", "huber") else links[loss.link](middle)
    return np.broadcast_to(value, (len(y), len(value))), y


def _metrics(one: Trained, predicted: Any, y: Any) -> Facts:
    """Return accuracy or R² on the test rows, and for numbers the mean absolute error and the Poisson deviance."""
    if one.prepared.encoding.task.classifies:
        right = float((predicted == y).mean())
        return {"accuracy": right, "rounded": right}
    predicted = np.asarray(predicted, dtype=np.float64).ravel()
    found = {
        "r2": float(1 - ((predicted - y) ** 2).mean() / y.var()),
        "mae": float(np.abs(predicted - y).mean()),
        "rounded": float((np.round(predicted) == y).mean()),
    }
    if (y >= 0).all():
        p, zero = np.maximum(predicted, 1e-3), np.where(y > 0, y, 1)
        found["deviance"] = float(2 * (np.where(y > 0, y * np.log(zero / p), 0) - (y - p)).mean())
    return found


# Layers and gradients


def layers_of(model: Any, prepared: TrainingData) -> list[Facts]:
    """Return facts of each layer with weights and of each activation, of every member, by a plain numpy pass.

    `dead` and `saturated` are the shares of such units on all training rows. `near_zero` and `large` are the shares of
    values with |a| < 1e-6 and |a| > 0.95. `gradient` is ‖∂L/∂W‖, `signal` is ‖∂L/∂y‖, of ROWS training rows.
    """
    found: list[Facts] = []
    for member in range(len(model.members)):
        network = to_float64(model, member=member)
        spec, places = network.spec, network.places
        loss = losses.of(prepared.encoding.loss, spec.d_out)
        with np.errstate(all="ignore"):
            values, _, _ = _forward(spec, places, prepared, prepared.train)
            _, caches, z = _forward(spec, places, prepared, prepared.train[:ROWS])
            back: dict[str, Gradients] = {}
            y = prepared.data.y[prepared.train[:ROWS]]
            backward_pass(spec.layers, loss.slope(z, y) / len(z), places, caches, back)
            for entry in spec.entries:
                if isinstance(entry.layer, Activation | Linear):
                    own = {key: places[f"{entry.name}.{key}"] for key in _learned(entry.layer)}
                    one = _layer(entry.layer, values[entry.name], back[entry.name], own)
                    found.append({"layer": entry.name, "member": member + 1, "units": entry.d_out, **one})
    return found


def _forward(spec: Any, places: Any, prepared: TrainingData, rows: Any) -> tuple[dict[str, Values], Any, Any]:
    data = prepared.data
    x: Any = np.asarray(data.x[rows], dtype=np.float64)
    values: dict[str, Values] = {}
    caches: dict[str, Any] = {}
    inputs = (x, data.codes[rows]) if spec.inputs.categories else x
    z = forward_pass(spec.layers, inputs, places, Pass(categories=spec.inputs.categories), values, caches)
    return values, caches, z


def _learned(layer: Any) -> list[str]:
    return list(layer.function.learned) if isinstance(layer, Activation) else []


def _layer(layer: Any, values: Values, back: Gradients, learned: Mapping[str, Any]) -> Facts:
    a = values.y
    found: Facts = {
        "kind": layer.label,
        "near_zero": float((np.abs(a) < 1e-6).mean()),
        "large": float((np.abs(a) > 0.95).mean()),
        "signal": _finite(np.linalg.norm(back.dy)),
    }
    if isinstance(layer, Activation):
        if layer.blend:  # a blended unit passes z on, so it is never dead
            return found
        found["dead"] = float(dead(layer.function, values.x, learned).mean())
        found["saturated"] = float(saturated(layer.function, values.x, learned).mean())
        return found
    gradient = back.parameters["weight"]
    found["gradient"] = _finite(np.linalg.norm(gradient))
    spread = np.abs(a).max() + 1e-300
    found["duplicates"] = 1 - len(np.unique(np.round(a[:64] / spread, 6), axis=1).T) / a.shape[1]
    return found


def facts(one: Trained) -> Facts:
    """Return everything that is measured of a trained case."""
    run, prepared = one.run, one.prepared
    config = next(event for event in run.events if event["event"] == "start")["config"]
    epochs = [event for event in run.events if event["event"] == "epoch"]
    kinds = [event["event"] for event in run.events]
    train = one.case.loaded.train
    return {
        **scores(one),
        "layers": {str(epoch): layers_of(model, prepared) for epoch, model in one.models.items()},
        "model": layers_of(run.model, prepared),
        "history": [[event["loss"], event["validation_loss"], event["gradient_norm"]] for event in epochs][:400],
        "batch_norm": "batchnorm" in str(run.model.spec),
        "status": run.end.status,
        "failed": run.failed,
        "accidents": sum(kinds.count(kind) for kind in ("spike", "non_finite", "rollback")),
        "steps": run.end.step,
        "seconds": run.end.seconds,
        "rate": config["learning_rate"],
        "patience": config["patience"],
        "batch": min(len(prepared.train), -(-len(prepared.train) * run.end.epoch // max(1, run.end.step))),
        "columns": float(np.log10(_sizes(prepared).max() / _sizes(prepared).min())),
        "alone": alone(train),
        "doubted": doubted(one),
        "rows": len(prepared.train),
    }


def doubted(one: Trained) -> float:
    """Return the share of held-out rows whose given class has a probability below 0.1."""
    prepared, model = one.prepared, one.run.model
    if not prepared.encoding.task.classifies or not len(prepared.validation):
        return 0.0
    with np.errstate(all="ignore"):
        p = model.encoding.probabilities(model.forward(_rows(prepared, prepared.validation)))
    y = prepared.data.y[prepared.validation].astype(int).ravel()
    return float((p[np.arange(len(y)), y] < 0.1).mean())


def _sizes(prepared: TrainingData) -> Any:
    x = np.asarray(prepared.data.x[prepared.train], dtype=np.float64)
    sizes = np.sqrt((x**2).mean(0))
    return sizes[sizes > 0] if (sizes > 0).any() else np.ones(1)


def alone(frame: Any) -> list[float]:
    """Return how well each column alone predicts the target, best first: R² or (accuracy − chance)/(1 − chance).

    A tree of depth 12 is trained on two thirds of the rows and judged on the others.
    """
    y = frame["y"].to_numpy()
    classes = y.dtype.kind != "f"
    order = np.random.default_rng(0).permutation(len(y))
    cut = 2 * len(y) // 3
    fit, judge = order[:cut], order[cut:]
    chance = np.unique(y, return_counts=True)[1].max() / len(y) if classes else 0.0
    found: list[float] = []
    for name in frame.columns.drop("y"):
        x = frame[name]
        x = (x if x.dtype.kind in "fiu" else x.astype("category").cat.codes).to_numpy(dtype=float)[:, None]
        tree = (DecisionTreeClassifier if classes else DecisionTreeRegressor)(
            max_depth=12, min_samples_leaf=3, random_state=0
        )
        score = tree.fit(x[fit], y[fit]).score(x[judge], y[judge])
        found.append(float((score - chance) / (1 - chance)))
    return sorted(found, reverse=True)[:3]


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


ALL = math.inf
CLEARLY, NEARLY = 0.15, 0.1
"""Excess of a loss that is clearly worse than the best, and of a loss that is about as good."""
DUPLICATES = 0.5
LIMITS: dict[str, dict[str, tuple[float, float]]] = {
    "dead_units": {"dead": (0.3, 1)},
    "saturated_units": {"saturated": (0.3, 1)},
    "vanishing_gradients": {"slope": (-ALL, -3), "harm": (CLEARLY, ALL)},
    "exploding_gradients": {"norm": (30, ALL), "harm": (CLEARLY, ALL)},
    "symmetric_units": {"duplicates": (DUPLICATES, 1)},
    "rate_too_high": {"train": (CLEARLY, ALL), "test": (0.05, ALL)},
    "rate_too_low": {"train": (CLEARLY, ALL), "test": (0.05, ALL)},
    "overfitting": {"gap": (0.3, ALL), "rise": (0.2, ALL), "train": (-ALL, 0.3)},
    "underfitting": {"test": (0.25, ALL)},
    "unscaled_inputs": {"sizes": (2, ALL), "test": (NEARLY, ALL)},
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
