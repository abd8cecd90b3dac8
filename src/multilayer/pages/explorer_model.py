"""A trained network as data for the explorer page: layers, parameters, example rows, and how to read both.

    tensors    parameters of every member, as base64 of little-endian floats; of one member if all are too many
    mark       identifier of the model in links
    made_of    how the predictions are computed, such as "calibrated average of 8 members"
    score      score of the whole model on all rows; the page shows some of the rows
    rows       inputs of the network: scaled numbers and codes of categories; the page scales a value that a user enters
    features   name and scaling of each input: (x − center)/scale for a number, then squashed if robust; or a category
    output     how raw outputs become a prediction: classes and probabilities, or numbers in the target's units
    cost       FLOPs and parameters of every layer
    findings   faults of the training run, with layer and units

The page is reduced if the network is too large, or if the page cannot compute one of its layers. A reduced page has the
predictions for the rows and the reason, but no tensors.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from ..costs import cost
from ..data import Encoded, Encoding
from ..data.preprocessing import apply_steps
from ..data.targets import classes_in
from ..diagnostics.display import described
from ..errors import DataError, OptionError
from ..interpretation.float64_model import Float64Model, answered, encoded, to_float64
from ..models import metrics
from ..models.trained_model import TrainedModel
from ..nn import layers as L
from ..nn.calibration import Calibration, combination
from ..nn.layers.base import Array, Pass, forward_through
from ..nn.losses import get as loss_of
from ..spec import Spec

MOST_NUMBERS = 4_000_000
"""Largest number of stored numbers. With more, the page would open slowly and be hard to share."""
MOST_WIDTH = 1024
"""Largest number of units of a layer. The matrix views of wider layers would be unreadable."""
MOST_ROWS = 120
"""Largest number of rows on the page."""


def model_state(
    model: Any, X: Any = None, y: Any = None, *, member: int = 0, findings: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Return the data of the page for a model and some rows.

    `member` is the one that is shown first. `findings` are those of the run, as `Finding.to_dict`.
    """
    network = to_float64(model, member=member)
    if network.predictor is not None:
        network.predictor.check_alike("the explorer")
    if network.predictor is not None and network.predictor.weights is not None:
        raise OptionError(
            f"the explorer needs members of equal weight, got the weights {network.predictor.weights}: "
            "pass a model of one member"
        )
    members = network.members
    whole = [network if i == member else to_float64(model, member=i) for i in range(members)]
    reason = reduced(network.spec)
    rows = _rows(network, X, y)
    shown = whole if members * network.spec.n_stored <= MOST_NUMBERS else [network]
    state: dict[str, Any] = {
        "text": str(network.spec),
        "spec": network.spec.to_dict(),
        "reduced": reason,
        "tensors": [] if reason else [{name: packed(value) for name, value in one.places.items()} for one in shown],
        "mark": _mark(network.spec, whole),
        "features": _features(network, rows["names"]),
        "rows": _packed_rows(rows["x"], rows["codes"]),
        "places": rows["places"],
        "targets": rows["targets"],
        "made_of": combination(members, None if network.predictor is None else network.predictor.calibration),
        "score": rows["score"],
        "predictions": [_outputs(one, rows["x"], rows["codes"]).tolist() for one in whole],
        "output": _output(network),
        "member": member,
        "members": members,
        "image": None,
        "cost": _costs(network.spec),
        "findings": [described(finding) for finding in findings],
    }
    if network.predictor is not None and network.predictor.encoding.image is not None:
        state["image"] = list(network.predictor.encoding.image)
    return state


def reduced(spec: Spec) -> str:
    """Return the reason why the page cannot compute a network. Empty if it can."""
    if spec.n_stored > MOST_NUMBERS:
        return f"the network has {spec.n_stored:,} numbers, and the page takes up to {MOST_NUMBERS:,}"
    for entry in spec.entries:
        if entry.d_out > MOST_WIDTH or entry.width_in > MOST_WIDTH:
            widest = max(entry.d_out, entry.width_in)
            return f"{entry.name} has {widest:,} units, and the page shows up to {MOST_WIDTH:,}"
        if not entry.layer.on_page:
            known = isinstance(entry.layer, L.Activation)
            what = "an activation that" if known else f"a layer of kind {entry.layer.kind}, which"
            return f"{entry.name} is {what} the page cannot compute"
    return ""


def packed(value: Array) -> dict[str, Any]:
    """Return numbers as base64, in float32 if that is exact: the page is then half as large."""
    narrow = value.astype("<f4")
    stored = narrow if np.array_equal(narrow.astype(np.float64), value) else value.astype("<f8")
    return {
        "type": stored.dtype.str[1:],
        "shape": list(value.shape),
        "data": base64.b64encode(stored.tobytes()).decode(),
    }


def _mark(spec: Spec, members: list[Float64Model]) -> str:
    digest = hashlib.sha256(str(spec).encode())
    for one in members:
        for name, value in sorted(one.tensors.items()):
            digest.update(name.encode() + value.tobytes())
    return digest.hexdigest()[:16]


# Rows


def _rows(network: Float64Model, X: Any, y: Any) -> dict[str, Any]:
    if network.predictor is not None:
        return _table_rows(network.predictor, X, y)
    spec = network.spec
    names = [str(name) for name in getattr(X, "columns", [])]
    if spec.inputs.categories:
        x, codes = (np.zeros((1, spec.inputs.numeric)), np.zeros((1, len(spec.inputs.categories)))) if X is None else X
        x, codes = np.asarray(x, dtype=np.float64), np.asarray(codes, dtype=np.int64)
    else:
        x = np.zeros((1, spec.inputs.numeric)) if X is None else np.asarray(X, dtype=np.float64)
        codes = None
        if x.ndim != 2 or x.shape[1] != spec.inputs.numeric:
            raise DataError(
                f"X must be rows of {spec.inputs.numeric} numbers (B, {spec.inputs.numeric}), got shape {x.shape}"
            )
    keep = _spaced(len(x))
    targets = None if y is None else [_value(v) for v in np.asarray(y).reshape(len(x), -1)[keep, 0]]
    return {
        "x": x[keep],
        "codes": None if codes is None else codes[keep],
        "names": names,
        "places": [] if X is None else [int(i) for i in keep],
        "targets": targets,
        "score": None,
    }


def _table_rows(predictor: TrainedModel, X: Any, y: Any) -> dict[str, Any]:
    encoding = predictor.encoding
    if X is None:
        # Without rows, the page has one row to change: medians, and unknown categories.
        x = np.zeros((1, len(encoding.numeric_names)))
        missing = np.full(len(encoding.center), np.nan)
        x[0, : len(missing)] = apply_steps(encoding.number_steps, missing, np.float64)
        codes = np.zeros((1, len(encoding.categorical)), dtype=np.int64) if encoding.categorical else None
        return {"x": x, "codes": codes, "names": [], "places": [], "targets": None, "score": None}
    rows = encoded(predictor, X, y, targets=False)
    found = rows[0]
    keep = _spaced(len(found.rows))
    return {
        "x": found.x[:][keep],
        "codes": None if found.codes is None else found.codes[keep],
        "names": [],
        "places": [int(i) for i in found.rows[keep]],
        "targets": None if found.y is None else _decoded_targets(encoding, found.y[keep]),
        "score": None if found.y is None else _score(predictor, rows, found.y),
    }


def _decoded_targets(encoding: Encoding, y: Array) -> list[Any]:
    """Return targets in the form of predictions: a class, the labels that apply, or numbers in their units."""
    task = encoding.task
    if task.kind == "multilabel":
        applies = [[name for name, yes in zip(task.names, row, strict=True) if yes] for row in (y > 0.5).tolist()]
        return [", ".join(row) or "none" for row in applies]
    if task.classifies:
        return [_value(task.classes[0][i]) for i in classes_in(y).astype(np.int64).tolist()]
    values = task.units.invert(np.asarray(y, dtype=np.float64))  # (N, T)
    return (values[:, 0] if len(task.names) == 1 else values).tolist()


def _score(predictor: TrainedModel, rows: Sequence[Encoded], y: Array) -> dict[str, Any] | None:
    """Return the score on all rows, as `score` of an estimator: exact-match accuracy, or R² if it is defined."""
    task, loss = predictor.encoding.task, predictor.encoding.loss
    answer = answered(predictor, rows)
    if task.kind == "multilabel":
        value = float(((cast(Array, answer.probabilities) > 0.5) == (y > 0.5)).all(1).mean())
    else:
        name = "accuracy" if task.classifies else "r2"
        value = metrics.measure(task, y, answer.output.astype(np.float64), loss=loss, names=(name,))[name]
    if not np.isfinite(value):
        return None
    return {"name": "accuracy" if task.classifies else "R²", "value": value, "rows": len(y)}


def _spaced(n: int) -> Any:
    """Return the positions of at most `MOST_ROWS` rows, evenly spaced."""
    return np.unique(np.linspace(0, n - 1, min(n, MOST_ROWS)).astype(np.int64)) if n else np.zeros(0, dtype=np.int64)


def _value(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _packed_rows(x: Array, codes: Any) -> dict[str, Any]:
    both = x if codes is None else np.concatenate([x, codes.astype(np.float64)], axis=1)
    return packed(np.asarray(both, dtype=np.float64))


def _outputs(network: Float64Model, x: Array, codes: Any) -> Array:
    run = Pass(categories=network.spec.inputs.categories)
    inputs: Any = x if codes is None else (x, codes)
    return forward_through(network.spec.layers, inputs, network.places, run)[0]


# Inputs, outputs and cost


def _features(network: Float64Model, names: list[str]) -> list[dict[str, Any]]:
    spec = network.spec
    if network.predictor is None:
        if len(names) != spec.inputs.numeric:
            names = [f"x{i + 1}" for i in range(spec.inputs.numeric)]
        numbers: Iterable[dict[str, Any]] = (
            {"name": name, "kind": "number", "center": 0.0, "scale": 1.0, "robust": False} for name in names
        )
        codes = [
            {"name": f"c{i + 1}", "kind": "category", "values": [str(v + 1) for v in range(n)]}
            for i, n in enumerate(spec.inputs.categories)
        ]
        return [*numbers, *codes]
    encoding = network.predictor.encoding
    found: list[dict[str, Any]] = []
    for i, name in enumerate(encoding.numeric_names):
        scaled = i < len(encoding.center)
        found.append(
            {
                "name": name,
                "kind": "number" if scaled else "flag",
                "center": float(encoding.center[i]) if scaled else 0.0,
                "scale": float(encoding.scale[i]) if scaled else 1.0,
                "robust": scaled and encoding.scaling == "robust",
            }
        )
    for column in encoding.categorical:
        values = [str(value) for value in encoding.vocabularies[column.name].to_pylist()]
        found.append({"name": column.name, "kind": "category", "values": values})
    return found


def _output(network: Float64Model) -> dict[str, Any]:
    if network.predictor is None:
        n = network.spec.d_out
        return {"kind": "numbers", "names": [f"output {i + 1}" if n > 1 else "output" for i in range(n)], "loss": ""}
    task, loss = network.predictor.encoding.task, network.predictor.encoding.loss
    chosen = loss_of(loss)
    calibration = network.predictor.calibration or Calibration()
    return {
        "kind": task.kind,
        "names": list(task.names),
        "classes": [[_value(c) for c in found] for found in task.classes],
        "mean": list(task.mean),
        "std": list(task.std),
        "loss": chosen.name,
        "link": chosen.link,
        "per_target": chosen.per_target,
        "temperature": calibration.temperature,
        "low": calibration.low.tolist(),
        "high": calibration.high.tolist(),
        "quantiles": list(dict(chosen.constants).get("q", ())),
    }


def _costs(spec: Spec) -> dict[str, Any]:
    account = cost(spec, batch=1)
    return {
        "forward": int(account.forward),
        "parameters": int(account.parameters),
        "layers": [
            {
                "name": row.name,
                "what": row.what,
                "d_in": int(row.d_in),
                "d_out": int(row.d_out),
                "parameters": int(row.parameters),
                "forward": int(row.forward.total),
                "backward": int(row.backward.total),
            }
            for row in account.layers
        ],
    }
