"""Any trained network of ours, or a torch `nn.Sequential`, as its description and its numbers in float64.

What explains a network walks the numpy layers with these, so that all explanations share one way in. torch is imported
only where the network given is a torch module.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import OptionError, SpecError
from ..layers.base import Array
from ..predictor import Predictor
from ..spec import Spec


@dataclass(frozen=True, kw_only=True, eq=False)
class Opened:
    """`tensors` holds parameters and buffers by stored name, in float64; `predictor` is there where one was given."""

    spec: Spec
    tensors: Mapping[str, Array]
    predictor: Predictor | None = None

    @property
    def places(self) -> dict[str, Array]:
        """The tensors by the place that uses them, as the numpy layers take them."""
        found = {place: self.tensors[stored] for place, stored in self.spec.tensor_names.items()}
        return found | {name: self.tensors[name] for name in self.spec.buffers}


def opened(model: Any, *, member: int = 0) -> Opened:
    """The parts of a model: what `ml.fit` and `ml.load` give, what `ml.build` makes, or a torch `nn.Sequential`.

    A run and a fitted estimator stand for the model they hold; of an ensemble one member is opened.
    """
    if not isinstance(getattr(model, "spec", None), Spec):
        model = getattr(model, "model_", getattr(model, "model", model))
    if isinstance(model, Predictor):
        if not 0 <= member < model.members:
            raise OptionError(f"member must be from 0 to {model.members - 1}, got {member}")
        return Opened(spec=model.spec, tensors=_double(model.member(member)), predictor=model)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        from ..model import Model, from_torch

        own = model if isinstance(model, Model) else from_torch(model)
        state = {name: value.detach().cpu().numpy() for name, value in own.state_dict().items()}
        return Opened(spec=own.spec, tensors=_double(state))
    raise SpecError(
        f"a network with its weights is needed (from ml.fit, ml.load, ml.build, or a nn.Sequential), got {model!r}"
    )


def _double(tensors: Mapping[str, Any]) -> dict[str, Array]:
    return {name: np.asarray(value, dtype=np.float64) for name, value in tensors.items()}
