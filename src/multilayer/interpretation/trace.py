"""`trace`: every number of one training step, in float64.

    forward    each layer: x → y                       linear: y is z;  activation: y is a
    loss       per row, and the mean
    backward   each layer, last first: dy → dx, grads  linear: dy is δ, dx is dA of the layer before, grads dW and db
    update     each parameter after the first step of the optimizer

The computation uses the numpy layers, which are also the reference in the tests of the engines. The explorer page shows
the same numbers. Dropout is off and batch norm uses its running statistics, so that the numbers of a row do not depend
on the other rows.

A trained model takes raw rows and encodes them. The steps are those of one member. The prediction of the whole model
(all members, averaged and calibrated) is in `Trace.model`.

Not included: the state of the optimizer from earlier steps. A trace is one step; use `ml.fit` for training.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from ..core.formatting import count
from ..errors import DataError, unknown_name
from ..models.trained_model import TrainedModel
from ..nn import losses, optimizers
from ..nn.layers import Pass
from ..nn.layers.base import Array
from ..nn.layers.passes import Gradients, Values, backward_pass, forward_pass
from .float64_model import Answer, Float64Model, answered, encoded, to_float64


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """The inputs, outputs and gradients of one layer.

    Attributes
    ----------
    name, kind : str
        Name of the layer, such as ``"linear1"``, and its kind, such as ``"tanh"``.
    x : ndarray or tuple of ndarray
        Inputs (B, I), or numbers and codes for a layer that reads typed inputs.
    y : ndarray
        Outputs (B, O).
    dy : ndarray
        ∂loss/∂y: δ of a linear layer, dA of an activation.
    dx : ndarray
        ∂loss/∂x.
    gradients : mapping
        ∂loss/∂p by the name of the parameter: ``weight`` is dW, ``bias`` is db.
    after : mapping
        Parameters of the layer after the update.
    """

    name: str
    kind: str
    x: Any
    y: Array
    dy: Array
    dx: Array
    gradients: Mapping[str, Array]
    after: Mapping[str, Array]


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """Every number of a training step of one ensemble member, as `ml.trace` returns it.

    ``found["linear1"]`` is the `Step` of a layer.

    Attributes
    ----------
    loss : float
        Mean loss of the rows.
    rows : ndarray
        Loss of each row (B,).
    output : ndarray
        Raw outputs z (B, C) of the traced member, without calibration.
    steps : tuple of Step
        All layers in the order of execution. The layers of a residual block come before its sum.
    member, members : int
        The traced member, counted from 0, and the number of members.
    prediction : ndarray or None
        Prediction of the traced member: class labels, or numbers in the target's units. None for a network without an
        encoding.
    model : Answer or None
        Predictions of the whole model. None for a network without an encoding.

    Examples
    --------
    >>> import multilayer as ml
    >>> found = ml.trace(ml.build("2-3:tanh-1"), [[1.0, -1.0]], [[1.0]])
    >>> [(step.name, step.y.shape) for step in found.steps]
    [('linear1', (1, 3)), ('tanh1', (1, 3)), ('linear2', (1, 1))]
    """

    loss: float
    rows: Array
    output: Array
    steps: tuple[Step, ...]
    member: int = 0
    members: int = 1
    prediction: Array | None = None
    model: Answer | None = None

    @property
    def shows(self) -> str:
        """Description of the network that the steps belong to, and of `model`."""
        one = f"member {self.member} of {self.members}" if self.members > 1 else "one network"
        if self.model is None or self.model.made_of == one:
            return one
        return f"{one}; .model has the {self.model.made_of.removeprefix('one ')}"

    def __repr__(self) -> str:
        return f"Trace({count(len(self.rows), 'row')}, {len(self.steps)} layers, loss {self.loss:.6g}: {self.shows})"

    def _repr_html_(self) -> str:
        """Return a table of the layers for a notebook: shapes, sizes of the outputs, and norms of the gradients."""
        heads = ("layer", "kind", "outputs y", "mean |y|", "‖dy‖", "gradients")
        lines = [
            (
                step.name,
                step.kind,
                " × ".join(map(str, step.y.shape)),
                f"{np.abs(step.y).mean():.4g}" if step.y.size else "",
                f"{np.linalg.norm(step.dy):.4g}",
                ", ".join(f"‖∂{name}‖ {np.linalg.norm(value):.4g}" for name, value in step.gradients.items()),
            )
            for step in self.steps
        ]
        rows = ["".join(f"<td>{html.escape(cell)}</td>" for cell in line) for line in lines]
        head = "".join(f"<th>{text}</th>" for text in heads)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><caption>{html.escape(repr(self))}</caption><tr>{head}</tr>{body}</table>"

    def __getitem__(self, name: str) -> Step:
        for step in self.steps:
            if step.name == name:
                return step
        raise KeyError(unknown_name("layer", name, [step.name for step in self.steps]))

    def to_dict(self) -> dict[str, Any]:
        """Return the trace as a dictionary that JSON can represent.

        Returns
        -------
        dict
            The attributes, with arrays as nested lists.

        Examples
        --------
        >>> import multilayer as ml
        >>> found = ml.trace(ml.build("2-3:tanh-1"), [[1.0, -1.0]], [[1.0]])
        >>> [step["name"] for step in found.to_dict()["steps"]]
        ['linear1', 'tanh1', 'linear2']
        """
        return {
            "shows": self.shows,
            "member": self.member,
            "members": self.members,
            "prediction": None if self.prediction is None else self.prediction.tolist(),
            "model": None if self.model is None else _answer_to_dict(self.model),
            "loss": self.loss,
            "rows": self.rows.tolist(),
            "output": self.output.tolist(),
            "steps": [_step_to_dict(step) for step in self.steps],
        }


def trace(
    model: Any,
    x: Any,
    y: Any = None,
    *,
    member: int = 0,
    loss: str = "auto",
    optimizer: str = "sgd",
    learning_rate: float = 0.1,
    l2: float = 0.0,
) -> Trace:
    """Compute every z, a, δ, dW, db and update of one training step.

    Parameters
    ----------
    model : TrainedModel, Run, fitted estimator, Model or torch.nn.Sequential
        A trained model, or a network from `ml.build`.
    x
        For a trained model, raw rows in any form that `model.predict` takes: an array, a DataFrame, a file or the name
        of a bundled data set. For a network, encoded rows (B, I), or ``(numbers, codes)`` with categorical columns.
    y : optional
        Targets. For a trained model, class labels or numbers in the target's units; by default, the target column of
        `x`. For a network, class indices (B,) for cross-entropy, otherwise numbers (B, C). With one output, (B,) is
        the same as (B, 1).
    member : int
        Ensemble member to trace, counted from 0. `Trace.model` has the prediction of all members.
    loss : str
        Name of the loss. ``"auto"`` is the loss of the trained model; for a network, the number of outputs decides.
    optimizer : str
        Optimizer of the update, which is its first step: its state is empty before.
    learning_rate : float
        Learning rate of the update.
    l2 : float
        Strength of L2 regularization.

    Returns
    -------
    Trace
        ``found["linear1"]`` is the step of a layer; `found.model` holds the predictions of the whole model.

    Raises
    ------
    DataError
        If the rows do not fit the model, or have no targets.
    OptionError
        If the model has no such member.

    Examples
    --------
    >>> import multilayer as ml
    >>> found = ml.trace(ml.build("2-3:tanh-1"), [[1.0, -1.0]], [[1.0]])
    >>> found["linear1"].gradients["weight"].shape
    (3, 2)
    >>> model = ml.fit("4-8-3", "iris", epochs=2, quiet=True).model
    >>> found = ml.trace(model, "iris")                 # raw rows, scaled by the model
    >>> bool((found.model.prediction == model.predict("iris")).all())
    True
    """
    network = to_float64(model, member=member)
    inputs, targets, name, answer = _rows(network, x, y, loss)
    chosen = losses.of(name, network.spec.d_out)
    places = network.places
    run = Pass(categories=network.spec.inputs.categories)
    caches: dict[str, Any] = {}
    found: dict[str, Values] = {}
    with np.errstate(over="ignore", invalid="ignore"):
        z = forward_pass(network.spec.layers, inputs, places, run, found, caches)
        goal = _goal(targets, z, chosen)
        rows = chosen.rows(z, goal)
        back: dict[str, Gradients] = {}
        backward_pass(network.spec.layers, chosen.slope(z, goal) / len(z), places, caches, back)
    after = _updated(network, back, optimizers.get(optimizer), learning_rate, l2)
    steps = tuple(
        Step(
            name=entry.name,
            kind=entry.layer.label,
            x=found[entry.name][0],
            y=found[entry.name][1],
            dy=back[entry.name][0],
            dx=back[entry.name][1],
            gradients=back[entry.name][2],
            after={key: after[network.spec.tensor_names[f"{entry.name}.{key}"]] for key in back[entry.name][2]},
        )
        for entry in network.spec.entries
    )
    return Trace(
        loss=float(rows.mean()),
        rows=rows,
        output=z,
        steps=steps,
        member=member,
        members=network.members,
        prediction=None if network.predictor is None else network.predictor.encoding.decode(z),
        model=answer,
    )


def _rows(network: Float64Model, x: Any, y: Any, loss: str) -> tuple[Any, Any, str, Answer | None]:
    """Return the encoded inputs and targets, the loss, and the predictions of the whole model."""
    predictor = network.predictor
    if predictor is not None:
        if loss != "auto":
            name = losses.get(loss).name
            predictor = predictor.with_encodings(lambda encoding: replace(encoding, loss=name))
        rows = encoded(predictor, x, y)
        own = rows[network.member]
        inputs = own.x[:] if own.codes is None else (own.x[:], own.codes)
        return inputs, own.y, predictor.encoding.loss, answered(cast(TrainedModel, network.predictor), rows)
    if y is None:
        raise DataError("trace needs targets: call trace(model, x, y), or pass a trained model and a table with them")
    if network.spec.inputs.categories:
        numbers, codes = x
        inputs = (_matrix(numbers, network.spec.inputs.numeric), np.asarray(codes, dtype=np.int64))
        return inputs, y, loss, None
    return _matrix(x, network.spec.inputs.numeric), y, loss, None


def _matrix(x: Any, width: int) -> Array:
    values = np.asarray(x.detach().cpu() if hasattr(x, "detach") else x, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != width or not len(values):
        raise DataError(f"x must be rows of {width} numbers, (B, {width}), got shape {values.shape}")
    return values


def _goal(y: Any, z: Array, loss: losses.Loss) -> Any:
    values = np.asarray(y.detach().cpu() if hasattr(y, "detach") else y)
    if loss.classes and values.ndim == 1:
        values = values.astype(np.int64)
        fits = values.shape == (len(z),) and (not len(values) or (values.min() >= 0 and values.max() < z.shape[1]))
        needed = f"({len(z)},) class numbers from 0 to {z.shape[1] - 1}"
    else:
        values = values.astype(np.float64)
        shape = (len(z), z.shape[1] // loss.per_target)
        if values.shape == (len(z),) and shape[1] == 1:
            values = values[:, None]  # (B, 1)
        fits, needed = values.shape == shape, f"{shape} numbers"
    if not fits:
        raise DataError(f"y must be {needed}, got shape {values.shape}")
    return values


def _updated(
    network: Float64Model, back: Mapping[str, Any], optimizer: optimizers.Optimizer, rate: float, l2: float
) -> dict[str, Array]:
    """Return every parameter after the first step. The gradient of a shared parameter is the sum over its uses."""
    total: dict[str, Array] = {}
    for place, g in _gradients(back):
        stored = network.spec.tensor_names[place]
        total[stored] = total[stored] + g if stored in total else g
    after: dict[str, Array] = {}
    for name, g in total.items():
        p = network.tensors[name]
        if l2 and network.spec.parameters[name].decays:
            g = g + l2 * p
        change, _ = optimizer.update(g, {slot: np.zeros_like(p) for slot in optimizer.slots}, rate, 1)
        after[name] = p - change
    return after


def _gradients(back: Mapping[str, Any]) -> Iterator[tuple[str, Array]]:
    return ((f"{place}.{key}", g) for place, (_, _, grads) in back.items() for key, g in grads.items())


def _answer_to_dict(answer: Answer) -> dict[str, Any]:
    return {
        "made_of": answer.made_of,
        "output": answer.output.tolist(),
        "prediction": answer.prediction.tolist(),
        "probabilities": None if answer.probabilities is None else answer.probabilities.tolist(),
    }


def _step_to_dict(step: Step) -> dict[str, Any]:
    x = [part.tolist() for part in step.x] if isinstance(step.x, tuple) else step.x.tolist()
    numbers = {"y": step.y, "dy": step.dy, "dx": step.dx}
    return {
        "name": step.name,
        "kind": step.kind,
        "x": x,
        **{key: value.tolist() for key, value in numbers.items()},
        "gradients": {key: value.tolist() for key, value in step.gradients.items()},
        "after": {key: value.tolist() for key, value in step.after.items()},
    }
