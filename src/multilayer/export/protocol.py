"""The input of exporters: `Trained`, the parts of a trained model that they use.

Exporters import no model class. If a run or an estimator is passed, its model is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ..data import Encoding
from ..errors import OptionError
from ..nn.calibration import Calibration
from ..nn.layers.base import Array
from ..spec import Spec


class TrainedMember(Protocol):
    """One network with its weights. `models.Member` implements it."""

    @property
    def spec(self) -> Spec: ...
    @property
    def encoding(self) -> Encoding:
        """How rows become inputs of this network. Members with equal encodings share one object."""
        ...

    @property
    def tensors(self) -> Mapping[str, Array]:
        """Parameters and buffers by name."""
        ...

    @property
    def weight(self) -> float:
        """Weight in the average, relative to the other members."""
        ...


class Trained(Protocol):
    """Members that predict one target, and their calibration. `models.TrainedModel` implements it."""

    @property
    def members(self) -> Sequence[TrainedMember]: ...
    @property
    def encoding(self) -> Encoding:
        """Encoding of the first member. All members have its task, its loss and its columns."""
        ...

    @property
    def calibration(self) -> Calibration | None: ...
    @property
    def weights(self) -> tuple[float, ...] | None:
        """Weights of the members. None if they are equal."""
        ...


def model_of(model: Any) -> Any:
    """Return the model of a run or a fitted estimator. Anything else is returned unchanged.

    Raises
    ------
    OptionError
        If a run or an estimator has no network: training failed, or a classifier saw a single class.
    """
    for name in ("model_", "model"):
        if hasattr(model, name):
            found = getattr(model, name)
            if found is None:
                reason = "it was fitted on a single class" if name == "model_" else "the run ended without one"
                raise OptionError(f"{type(model).__name__} has no network: {reason}")
            return found
    return model


def trained(model: Any, *, otherwise: str = "train it first") -> Trained:
    """Return the trained model: `model` itself, or the model of a run or estimator.

    `otherwise` says what to do with an untrained network.

    Raises
    ------
    OptionError
        If `model` is not a trained model, or is an estimator that is not fitted.
    """
    found = model_of(model)
    if isinstance(getattr(found, "encoding", None), Encoding):
        return found
    is_module = hasattr(found, "state_dict")
    remedy = ": call fit first" if hasattr(model, "fit") else ""
    if is_module or isinstance(found, Spec):
        remedy = f": {otherwise}"
    got = f"an untrained {type(found).__name__}" if is_module else repr(found)
    raise OptionError(f"a trained model is needed (from ml.fit, ml.load or a fitted estimator), got {got}{remedy}")


def distinct(members: Sequence[TrainedMember]) -> list[Encoding]:
    """Return the different encodings of the members."""
    return list({id(one.encoding): one.encoding for one in members}.values())


def check_member(member: int, members: int) -> int:
    """Return `member`, or raise an error if the model does not have this member."""
    if not 0 <= member < members:
        raise OptionError(f"member must be from 0 to {members - 1}, got {member}")
    return member


def is_array(encoding: Encoding) -> bool:
    """Return whether the training data was an array or images: numbers whose columns are identified by position."""
    plain = all(column.kind in ("numeric", "drop") and column.family == "number" for column in encoding.columns)
    return plain and (encoding.positional or encoding.image is not None)
