"""Open any model as a network with float64 weights, for explanations that use the numpy layers.

torch is imported only if the model is a torch module.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..data import Encoded
from ..errors import DataError, SpecError
from ..export.protocol import check_member, model_of
from ..models.trained_model import TrainedModel
from ..nn.calibration import combination
from ..nn.layers.base import Array
from ..spec import Spec


@dataclass(frozen=True, kw_only=True, eq=False)
class Float64Model:
    """A network with float64 weights.

    `tensors` contains the parameters and buffers of one member by stored name. `predictor` is the trained model.
    """

    spec: Spec
    tensors: Mapping[str, Array]
    predictor: TrainedModel | None = None
    member: int = 0

    @property
    def members(self) -> int:
        return 1 if self.predictor is None else len(self.predictor.members)

    @property
    def places(self) -> dict[str, Array]:
        """Return the tensors by the name of the layer that uses them, as the numpy layers expect."""
        found = {place: self.tensors[stored] for place, stored in self.spec.tensor_names.items()}
        return found | {name: self.tensors[name] for name in self.spec.buffers}


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """Predictions of a trained model for the traced rows: all members, averaged and calibrated."""

    output: Array
    """Outputs z (B, C), as `model.outputs`."""
    prediction: Array
    """Class labels, or numbers in the target's units, as `model.predict`."""
    probabilities: Array | None
    """Probabilities, as `model.predict_proba`; None for regression."""
    made_of: str
    """Description of the model, such as "calibrated average of 8 members"."""


def to_float64(model: Any, *, member: int = 0) -> Float64Model:
    """Open a model from `ml.fit`, `ml.load` or `ml.build`, a fitted estimator or a torch `nn.Sequential`.

    Parameters
    ----------
    model
        The model. For a run or a fitted estimator, its trained model.
    member : int
        Ensemble member to open, counted from 0.

    Raises
    ------
    SpecError
        If `model` has no weights.
    OptionError
        If the model has no such member.
    """
    found = model if isinstance(getattr(model, "spec", None), Spec) else model_of(model)
    if isinstance(found, TrainedModel):
        own = found.members[check_member(member, len(found.members))]
        return Float64Model(spec=own.spec, tensors=_double(own.tensors), predictor=found, member=member)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(found, torch.nn.Module):
        from ..pytorch.model import Model, from_torch

        check_member(member, 1)
        own = found if isinstance(found, Model) else from_torch(found)
        state = {name: value.detach().cpu().numpy() for name, value in own.state_dict().items()}
        return Float64Model(spec=own.spec, tensors=_double(state))
    remedy = ": call fit first" if hasattr(found, "fit") else ""
    raise SpecError(
        f"a network with its weights is needed (from ml.fit, ml.load, ml.build, a fitted estimator, or a "
        f"nn.Sequential), got {found!r}{remedy}"
    )


def encoded(predictor: TrainedModel, X: Any, y: Any = None, *, targets: bool = True) -> tuple[Encoded, ...]:
    """Encode raw rows for each member in float64. The model warns about these rows as in `predict`.

    Parameters
    ----------
    X
        Rows in any form that `predictor.predict` takes, or `(X, y)`.
    y
        Class labels, or numbers in the target's units. By default, the target in X.
    targets : bool
        Whether rows must have a target. If False, a target is encoded only if there is one.
    """
    source = X if y is None else (X, y)
    try:
        return predictor.read(source, targets=True, dtype=np.float64)
    except DataError:
        if targets or y is not None:
            raise
        return predictor.read(source, dtype=np.float64)


def answered(predictor: TrainedModel, rows: Sequence[Encoded]) -> Answer:
    """Return the predictions of the whole model for rows encoded in float64, bit-identical to those of `predict`."""
    encoding = predictor.encoding
    narrow = {id(part): replace(part, x=part.x[:].astype(np.float32)) for part in rows}
    z = predictor.forward([narrow[id(part)] for part in rows])
    return Answer(
        output=z,
        prediction=encoding.decode(z),
        probabilities=encoding.probabilities(z) if encoding.task.classifies else None,
        made_of=combination(len(predictor.members), predictor.calibration),
    )


def _double(tensors: Mapping[str, Any]) -> dict[str, Array]:
    return {name: np.asarray(value, dtype=np.float64) for name, value in tensors.items()}
