"""The state of training: everything that must be saved to go on bit for bit.

    parameters, buffers     by the names of the spec
    optimizer               slot → parameter → tensor
    averages                running averages of the parameters, or empty
    step                    updates made so far
    rate_factor             what rollbacks have multiplied the learning rate by; schedules stay pure

`tensors` is the flat form that files hold: one name → array mapping, `optimizer/mean/linear1.weight`. Policies keep
their own state; it is checkpointed beside this one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from ..errors import StateError
from ..nn.layers.base import Array
from ..nn.optimizers import Optimizer
from ..spec import Spec


@dataclass(frozen=True, kw_only=True, eq=False)
class State:
    parameters: dict[str, Array]
    buffers: dict[str, Array] = field(default_factory=dict[str, Array])
    optimizer: dict[str, dict[str, Array]] = field(default_factory=dict[str, dict[str, Array]])
    averages: dict[str, Array] = field(default_factory=dict[str, Array])
    step: int = 0
    rate_factor: float = 1.0

    @staticmethod
    def first(spec: Spec, values: Mapping[str, Array], optimizer: Optimizer, *, averaged: bool) -> State:
        """Before the first step: slots at zero, averages at the parameters."""
        parameters = {name: np.array(values[name]) for name in spec.parameters}
        return State(
            parameters=parameters,
            buffers={name: np.array(values[name]) for name in spec.buffers},
            optimizer={slot: {name: np.zeros_like(p) for name, p in parameters.items()} for slot in optimizer.slots},
            averages={name: p.copy() for name, p in parameters.items()} if averaged else {},
        )

    def copy(self) -> State:
        return State.from_tensors({name: value.copy() for name, value in self.tensors().items()})

    def tensors(self) -> dict[str, Array]:
        flat = {f"parameters/{name}": value for name, value in self.parameters.items()}
        flat |= {f"buffers/{name}": value for name, value in self.buffers.items()}
        for slot, values in self.optimizer.items():
            flat |= {f"optimizer/{slot}/{name}": value for name, value in values.items()}
        flat |= {f"averages/{name}": value for name, value in self.averages.items()}
        # A float64 holds every whole number up to 2^53.
        flat["counters"] = np.array([self.step, self.rate_factor], dtype=np.float64)
        return flat

    @staticmethod
    def from_tensors(tensors: Mapping[str, Array]) -> State:
        groups: dict[str, dict[str, Array]] = {"parameters": {}, "buffers": {}, "averages": {}}
        slots: dict[str, dict[str, Array]] = {}
        for name, value in tensors.items():
            group, _, rest = name.partition("/")
            if group == "optimizer":
                slot, _, parameter = rest.partition("/")
                slots.setdefault(slot, {})[parameter] = value
            elif group in groups:
                groups[group][rest] = value
            elif name != "counters":
                raise StateError(f"a state holds parameters, buffers, optimizer, averages and counters, got {name!r}")
        if "counters" not in tensors:
            raise StateError("a state needs its counters, got none")
        step, rate_factor = _counters(tensors["counters"])
        return State(**groups, optimizer=slots, step=step, rate_factor=rate_factor)

    def check(self, spec: Spec, optimizer: Optimizer, *, averaged: bool) -> None:
        """Refuses a state of another network or optimiser, naming the first tensor that does not fit."""
        if spec.parameters and averaged != bool(self.averages):
            wanted, got = ("averages", "none") if averaged else ("no averages", "some")
            raise StateError(
                f"an engine {'with' if averaged else 'without'} `average` needs a state with {wanted}, got {got}: "
                "go on with the settings that the state was made with"
            )
        if set(self.optimizer) != set(optimizer.slots):
            raise StateError(
                f"{optimizer.name} keeps {', '.join(optimizer.slots) or 'nothing'} between steps, "
                f"got a state with {', '.join(self.optimizer) or 'nothing'}"
            )
        groups = [("parameters", self.parameters, spec.parameters), ("buffers", self.buffers, spec.buffers)]
        groups += [(f"optimizer/{slot}", values, spec.parameters) for slot, values in self.optimizer.items()]
        if self.averages:
            groups.append(("averages", self.averages, spec.parameters))
        for group, found, wanted in groups:
            for name in sorted(found.keys() ^ wanted.keys()):
                word = "misses" if name in wanted else "has an unknown"
                raise StateError(f"the state {word} tensor {group}/{name} for the network {spec}")
            for name, parameter in wanted.items():
                if found[name].shape != parameter.shape:
                    shapes = f"{parameter.shape}, got {found[name].shape}"
                    raise StateError(f"{group}/{name} must have the shape {shapes}")

    def equals(self, other: State) -> bool:
        """Bit for bit: the same names, types, shapes and bytes."""
        mine, theirs = self.tensors(), other.tensors()
        return mine.keys() == theirs.keys() and all(
            value.dtype == theirs[name].dtype
            and value.shape == theirs[name].shape
            and value.tobytes() == theirs[name].tobytes()
            for name, value in mine.items()
        )


def _counters(values: Array) -> tuple[int, float]:
    numbers = cast("list[Any]", np.asarray(values).ravel().tolist())
    form = "counters must be the step, a whole number of at least 0, and a rate factor above 0"
    if len(numbers) != 2 or not all(isinstance(n, int | float) and math.isfinite(n) for n in numbers):
        raise StateError(f"{form}, got {_short(numbers)}")
    step, factor = numbers
    if step < 0 or step != int(step) or factor <= 0:
        raise StateError(f"{form}, got {_short(numbers)}")
    return int(step), float(factor)


def _short(values: list[Any]) -> str:
    return str(values) if len(values) < 5 else f"{len(values)} numbers"
