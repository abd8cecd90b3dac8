"""The facts of a case of bench/detectors.py, measured without the detectors.

trained    trains a case, and keeps the network of several epochs: the first, the last, and some between
scores     losses and metrics, also on the test rows that no run sees
facts      these, and the layers and gradients of every kept network by a plain pass through the numpy layers
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from detector_cases import Case
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import multilayer as ml
from multilayer.data import DataOptions, Encoded, TrainingData
from multilayer.errors import DataError
from multilayer.interpretation.float64_model import to_float64
from multilayer.nn import losses
from multilayer.nn.activations.properties import dead, saturated
from multilayer.nn.layers import Activation, Linear, Pass
from multilayer.nn.layers.passes import Gradients, Values, backward_pass, forward_pass
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
        except DataError:
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
    inputs = x if data.codes is None else (x, data.codes[rows])
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
