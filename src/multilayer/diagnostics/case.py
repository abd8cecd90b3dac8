"""What a detector reads: the model, the measurements, and the options of its run; and the remedies it can propose."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core.formatting import count
from ..costs import cost
from ..models.trained_model import TrainedModel
from ..nn.layers import Activation, BatchNorm, Columns, Dropout, Layer, LayerNorm, Linear, Residual
from ..runs.config import RECIPE_RATE, kind_of, learning_rate
from ..runs.stored_data import ANY_TABLE, CommandSource
from ..spec import Spec
from ..spec.networks import mlp
from .commands import options_of_run, training_command
from .findings import Remedy
from .history import History
from .measurements import Measurements
from .networks import NetworkMeasurement

BEHIND = 0.08
"""A network is behind if its skill is this much below that of a simple reference."""

COLLAPSED = 0.3
"""Weights have collapsed if their norm is below this fraction of the initial norm."""

NEAR_ADAM, NEAR_OTHERS = 3.0, 10.0
"""A learning rate is clearly different from the default if it is larger or smaller by this factor."""
STRONG_DROPOUT, STRONG_DECAY, STRONG_L2, NARROW = 0.6, 1.0, 0.05, 2
"""Options that limit what a network can learn: a dropout rate, decoupled weight decay, an L2 penalty, and the units of
the narrowest hidden layer."""

Change = Callable[[Sequence[Layer]], Iterator[Layer]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A model with its measurements. `source` is the table of its run as words of a command."""

    model: TrainedModel
    measured: Measurements
    source: CommandSource = ANY_TABLE

    @property
    def spec(self) -> Spec:
        return self.model.spec

    @property
    def history(self) -> History | None:
        return self.measured.history

    def option(self, name: str, default: Any = None) -> Any:
        """Return an option of the run, or the default if it is unknown."""
        return default if self.history is None else self.history.config.get(name, default)

    def fact(self, name: str, default: float = 0.0) -> float:
        """Return a number of the history."""
        return default if self.history is None else self.history.facts.get(name, default)

    @property
    def network(self) -> NetworkMeasurement:
        """The first member."""
        return self.measured.members[0]

    def flops_share(self, activation: str) -> float:
        """Return the share of a step's FLOPs of the layer with weights before an activation."""
        account, before = cost(self.spec, batch=32), ""
        for entry in self.spec.entries:
            if entry.name == activation:
                break
            before = entry.name if entry.layer.mixes else before
        found = next((row for row in account.layers if row.name == before), None)
        return 0.0 if found is None else (found.forward.total + found.backward.total) / max(account.step, 1)

    # Remedies

    def train_with(self, text: str, **changes: Any) -> Remedy:
        """Return a remedy that trains again with other options. The text says why, if there is no command for it."""
        options = None if self.history is None else options_of_run(self.history, self.spec, self.model.encoding)
        command, why = training_command(self.source, self.spec, options, changes)
        return Remedy(
            text=f"{text} There is no command, because {why}." if why else text, command=command, changes=changes
        )

    def spec_with(self, change: Change) -> str:
        """Return the network with changed layers, also inside residual blocks."""
        return str(self.with_changes(self.spec, change))

    @staticmethod
    def with_changes(spec: Spec, change: Change) -> Spec:
        return Spec(spec.inputs, _changed(spec.layers, change))

    def usual_rate(self) -> dict[str, Any]:
        """Return the default learning rate as a change, if the run used a clearly different one.

        Good rates of optimizers other than Adam differ more from the default.
        """
        given = self.option("learning_rate")
        near = NEAR_ADAM if str(self.option("optimizer", "")).startswith("adam") else NEAR_OTHERS
        if not given or 1 / near <= given / self.default_rate <= near:
            return {}
        return {"learning_rate": self.default_rate if self.of_recipe else None}

    @property
    def default_rate(self) -> float:
        """The default learning rate of the network."""
        return RECIPE_RATE[kind_of(self.model.encoding)] if self.of_recipe else learning_rate(self.spec)

    @property
    def of_recipe(self) -> bool:
        """Whether the layers are scaled by 1/√inputs, as in the tabular recipe, which has its own learning rates."""
        return any(isinstance(one.layer, Linear) and one.layer.scale == "tangent" for one in self.spec.entries)

    def usual_init(self) -> dict[str, Any]:
        return {} if self.option("init", "auto") in ("auto", "data") else {"init": "auto"}

    def usual_scaling(self) -> dict[str, Any]:
        return {"scaling": "auto"} if self.option("scaling", "auto") == "none" else {}

    def less_regularization(self) -> dict[str, Any]:
        """Return the options of regularization that are stronger than their defaults."""
        changes: dict[str, Any] = {}
        if self.option("weight_decay", 0.0) > 0.1:
            changes["weight_decay"] = 0.1
        if self.option("l2", 0.0) > 0:
            changes["l2"] = 0.0
        return changes

    def wider(self) -> str:
        """Return a plain network with the same inputs and outputs, at least 64 units wide.

        The options of the recipe fit only its own layers: its network becomes twice as wide.
        """
        if self.of_recipe:
            return self._resized(lambda width: 2 * width)
        widths = [entry.d_out for entry in self.spec.entries if isinstance(entry.layer, Linear)][:-1]
        return str(mlp(self.spec.inputs, [max(64, 2 * max(widths, default=0))] * 2, self.spec.d_out, activation="gelu"))

    def narrower(self) -> str:
        """Return a plain network with the same inputs and outputs, a quarter as wide, with dropout.

        The network of the recipe keeps its layers and its dropout, and becomes a quarter as wide.
        """
        if self.of_recipe:
            return self._resized(lambda width: max(8, width // 4))
        widths = [entry.d_out for entry in self.spec.entries if isinstance(entry.layer, Linear)][:-1]
        hidden = [max(8, width // 4) for width in widths[:2]]
        return str(mlp(self.spec.inputs, hidden, self.spec.d_out, activation="gelu", dropout=0.2))

    def _resized(self, size: Callable[[int], int]) -> str:
        """Return the network with other widths of its hidden layers."""
        *hidden, last = self.spec.layers
        resized = [replace(one, d_out=size(one.d_out)) if isinstance(one, Linear) else one for one in hidden]
        return str(Spec(self.spec.inputs, [*resized, last]))

    def spec_for(self, outputs: int) -> str:
        """Return the network with another number of outputs."""
        *rest, last = self.spec.layers
        assert isinstance(last, Linear)
        return str(Spec(self.spec.inputs, [*rest, replace(last, d_out=outputs)]))

    # Facts that several detectors need

    @property
    def behind(self) -> bool:
        """Whether a simple reference is clearly better on held-out rows, or the network has learned nothing."""
        skills = self.measured.skills
        if skills is None:
            return self.fact("fall", 1.0) < 0.1
        return self.lead > BEHIND and self.lead > 2 * skills.error

    @property
    def lead(self) -> float:
        """How much more skill the best reference has on held-out rows. NaN if it is unknown."""
        skills = self.measured.skills
        return math.nan if skills is None else skills.best_reference - skills.held_out

    @property
    def collapsed(self) -> bool:
        """Whether strong weight decay has reduced the weights to a fraction of their initial size."""
        return self.network.growth < COLLAPSED and self._strong_decay

    @property
    def _strong_decay(self) -> bool:
        return self.option("weight_decay", 0.0) > STRONG_DECAY or self.option("l2", 0.0) > STRONG_L2

    @property
    def limits(self) -> list[str]:
        """The options that limit what the network can learn."""
        found: list[str] = []
        layers = [entry.layer for entry in self.spec.entries]
        dropout = max((layer.p for layer in layers if isinstance(layer, Dropout)), default=0.0)
        widths = [entry.d_out for entry in self.spec.entries if entry.layer.mixes]
        if dropout >= STRONG_DROPOUT:
            found.append(f"a dropout rate of {dropout:g}")
        if self.option("weight_decay", 0.0) > STRONG_DECAY:
            found.append(f"a weight decay of {self.option('weight_decay'):g}")
        if self.option("l2", 0.0) > STRONG_L2:
            found.append(f"an L2 penalty of {self.option('l2'):g}")
        if min(widths[:-1], default=NARROW + 1) <= NARROW:
            found.append(f"a layer of {count(min(widths[:-1]), 'unit')}")
        if not any(map(_bends, layers)):
            linear = sum(isinstance(layer, Linear) for layer in layers)
            found.append("no hidden layer" if linear == 1 else "no activation function")
        return found

    @property
    def largest_update(self) -> float:
        """Size of a step relative to the weights, of the initial or the final network. NaN if it is unknown."""
        known = [one.update_ratio for one in (self.measured.initial, self.network) if one is not None]
        return max([ratio for ratio in known if not math.isnan(ratio)], default=math.nan)

    @property
    def skill_evidence(self) -> dict[str, float]:
        skills = self.measured.skills
        if skills is None:
            return {}
        return {"train": skills.train, "held_out": skills.held_out, "reference": skills.best_reference}


def _bends(layer: Layer) -> bool:
    """Return whether a layer is not linear in the numeric columns."""
    linear = isinstance(layer, Linear) or (isinstance(layer, Columns) and layer.numeric == "none")
    return isinstance(layer, Activation) or layer.normalises or (layer.mixes and not linear)


def _changed(layers: Sequence[Layer], change: Change) -> list[Layer]:
    inner = [
        replace(one, layers=tuple(_changed(one.layers, change))) if isinstance(one, Residual) else one for one in layers
    ]
    return list(change(inner))


def with_activation(name: str) -> Callable[[Sequence[Layer]], Iterator[Layer]]:
    """Return a change that replaces every activation."""

    def change(layers: Sequence[Layer]) -> Iterator[Layer]:
        for layer in layers:
            yield Activation(name) if isinstance(layer, Activation) and layer.function.elementwise else layer

    return change


def with_layer_norm(layers: Sequence[Layer]) -> Iterator[Layer]:
    """Put a layer norm before every activation that has none, and in place of every batch norm."""
    last: Layer | None = None
    for layer in layers:
        if isinstance(layer, BatchNorm):
            layer = LayerNorm()
        elif isinstance(layer, Activation) and last is not None and not last.normalises:
            yield LayerNorm()
        yield layer
        last = layer


def batch_to_layer_norm(layers: Sequence[Layer]) -> Iterator[Layer]:
    """Replace every batch norm by a layer norm."""
    for layer in layers:
        yield LayerNorm() if isinstance(layer, BatchNorm) else layer
