"""What an engine is: it owns parameters and optimiser, and runs steps over rows it is told.

The loop decides everything else (order, schedules, when to look) and cuts the work into chunks; how it cuts never
changes a result. An engine holds the data and one member's state; an ensemble is several engines.

    run        many steps: for each, forward, loss, backward, clip, update
    gradients  what a step over given rows would do, nothing changed (data parallel, diagnostics)
    apply      that step, or one made of several: `apply(gradients(rows))` is `run` over those rows, bit for bit
    outputs    raw outputs for given rows, dropout off, running statistics used
    state, load
    stop       interrupt a call in another thread
    close      release threads

`SingleEngine` is the base class of the engines of one network.

A step over rows r with sample weights w minimises Σ w_r loss_r / Σ w_r. Dropout masks are keyed by seed, epoch, the
dropout layer's ordinal, the row's own number and the unit, so they do not depend on the batch, threads or processes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import OptionError, StateError, unknown_name
from ..nn import losses, optimizers
from ..nn.layers import Dropout
from ..nn.layers.base import Array
from ..nn.losses import Loss
from ..nn.optimizers import Optimizer
from ..spec import Spec
from ..spec.initialization import initialise

if TYPE_CHECKING:
    from ..data.batches import Data, Rows


@dataclass(frozen=True, kw_only=True, eq=False)
class Order:
    """Rows of one epoch, cut into consecutive batches; the last may be smaller."""

    epoch: int
    rows: Rows
    batch: int

    def __post_init__(self) -> None:
        if self.batch < 1 or self.epoch < 0:
            raise OptionError(f"an order needs batch ≥ 1 and epoch ≥ 0, got {self.batch!r} and {self.epoch!r}")

    @property
    def steps(self) -> int:
        return -(-len(self.rows) // self.batch)

    def check(self, **schedules: Array) -> None:
        """Refuses schedules that have not one number a step."""
        for name, values in schedules.items():
            if len(values) != self.steps:
                raise OptionError(f"{name} must have one number for each of {self.steps} steps, got {len(values)}")

    def batches(self) -> list[Rows]:
        return [self.rows[i : i + self.batch] for i in range(0, len(self.rows), self.batch)]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What stays the same for a whole run. Loss and optimiser are texts: `huber(delta=2)`, `adam(beta2=0.95)`."""

    loss: str
    optimizer: str = "adam"
    seed: int = 0
    l2: float = 0.0
    clip_norm: float | None = None
    clip_value: float | None = None
    statistics_every: int | None = None
    """Steps between two statistics of every tensor; None for none."""
    average: float | None = None
    """β of the running average of the parameters, ā ← β ā + (1 − β) p after each step; None for none."""
    rate_factors: Mapping[str, float] = field(default_factory=dict[str, float])
    """What the learning rate is multiplied by, for parameters named here; 1 for the rest."""
    decay_factors: Mapping[str, float] = field(default_factory=dict[str, float])
    """What decay and L2 are multiplied by; for the rest 1 on weight matrices, 0 on biases, norms and the like."""

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**64:
            raise OptionError(f"seed must be from 0 to 2**64 - 1, got {self.seed!r}")
        for name in ("clip_norm", "clip_value"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise OptionError(f"{name} must be positive, got {value!r}")
        if self.statistics_every is not None and self.statistics_every < 1:
            raise OptionError(f"statistics_every must be at least 1, got {self.statistics_every!r}")
        if self.average is not None and not 0 <= self.average < 1:
            raise OptionError(f"average must be at least 0 and below 1, got {self.average!r}")
        factors = {
            f"{group} of {name!r}": value
            for group in ("rate_factors", "decay_factors")
            for name, value in getattr(self, group).items()
        }
        for name, value in {"l2": self.l2, **factors}.items():
            if not 0 <= value < math.inf:
                raise OptionError(f"{name} must be finite and at least 0, got {value!r}")

    def check(self, parameters: Iterable[str]) -> None:
        """Refuses a factor for a parameter that the network does not have; engines ask when they are made."""
        names = list(parameters)
        for field_name in ("rate_factors", "decay_factors"):
            for name in getattr(self, field_name):
                if name not in names:
                    raise OptionError(unknown_name(f"parameter in {field_name}", name, names))


@dataclass(frozen=True, kw_only=True, eq=False)
class StepStatistics:
    """Statistics of a step: by parameter the norm of its gradient before clipping, and of its values after the step."""

    place: int
    """In the chunk."""
    gradients: dict[str, float]
    parameters: dict[str, float]


@dataclass(frozen=True, kw_only=True, eq=False)
class Chunk:
    """What a run of steps tells: each step's loss before its update and the norm of its gradient before clipping.

    `bad` is the place in the chunk of the first step whose loss or gradient was not finite, or None. Steps from there
    on were not taken by their meaning: the loop loads the state it had before the chunk and looks closer. `finite`
    tells whether every parameter is so after the last step; after a bad one it means nothing.
    """

    loss: NDArray[np.float64]
    gradient_norm: NDArray[np.float64]
    bad: int | None = None
    finite: bool = True
    statistics: Sequence[StepStatistics] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Gradients:
    """What a training step finds before it changes anything; replicas average all three."""

    loss: float
    gradients: dict[str, Array]
    """By parameter."""
    buffers: dict[str, Array] = field(default_factory=dict[str, Array])
    """New values of those that a step moves: running statistics."""


class Engine(Protocol):
    """Implemented by `NumpyEngine`, `TorchEngine`, `FusedEngine` and `Ensemble`."""

    @property
    def name(self) -> str: ...

    @property
    def data(self) -> Data: ...

    @property
    def threads(self) -> int: ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Messages for the user: how the results differ from those of other engines."""
        ...

    @property
    def networks(self) -> int:
        """Number of networks: 1, or the members of an ensemble."""
        ...

    @property
    def places(self) -> int | None:
        """Rows per epoch if every member has its own row order: an `Order` then holds positions in it. None if an
        `Order` holds row numbers of the data."""
        ...

    def own_rows(self, rows: Rows, epoch: int) -> Rows:
        """Return the row numbers of the data for the rows, or positions, of an `Order`."""
        ...

    def run(self, order: Order, *, rate: Array, decay: Array, dropout: Array) -> Chunk:
        """Takes `order.steps` steps. Each step has its learning rate, its decoupled weight decay and a factor on the
        spec's dropout; all three have one number a step."""
        ...

    def gradients(self, rows: Rows, *, epoch: int, dropout: float = 1.0) -> Gradients:
        """The loss over `rows`, its gradient and the buffers' new values, as a training step would see them."""
        ...

    def apply(self, gradients: Gradients, *, rate: float, decay: float) -> float:
        """One update (clipping included) and the buffers' new values; gives the gradient's norm before clipping."""
        ...

    def outputs(self, rows: Rows, *, averaged: bool = False) -> Array:
        """Raw outputs (rows, d_out) at prediction; with the averaged parameters where asked for and kept."""
        ...

    def member_outputs(self, rows: Rows, *, averaged: bool = False) -> Array:
        """Return the raw outputs of each network (networks, rows, d_out)."""
        ...

    def state(self) -> State:
        """A copy of all that must be saved to go on exactly."""
        ...

    def load(self, state: State) -> None: ...

    def stop(self) -> None:
        """Interrupt a call in another thread with KeyboardInterrupt. Engines that cannot do this finish the call."""
        ...

    def close(self) -> None:
        """Release threads. The engine must not be used afterwards."""
        ...


class SingleEngine(ABC):
    """Base class of the engines of one network."""

    networks = 1
    places = None
    threads = 1

    def __init__(self, spec: Spec, data: Data, settings: Settings) -> None:
        self.spec, self.data, self.settings = spec, data, settings
        self.loss, self.optimizer = losses.get(settings.loss), optimizers.get(settings.optimizer)
        settings.check(spec.parameters)
        check_data(spec, data, self.loss)

    def first_state(self, init: str, dtype: Any) -> State:
        """Return the state before the first step: slots are zero, and averages equal the parameters."""
        values = {k: v.astype(dtype) for k, v in initialise(self.spec, init, seed=self.settings.seed).items()}
        parameters = {name: values[name] for name in self.spec.parameters}
        slots = self.optimizer.slots
        return State(
            parameters=parameters,
            buffers={name: values[name] for name in self.spec.buffers},
            optimizer={slot: {name: np.zeros_like(p) for name, p in parameters.items()} for slot in slots},
            averages={} if self.settings.average is None else {name: p.copy() for name, p in parameters.items()},
        )

    @property
    def notes(self) -> tuple[str, ...]:
        return self.data.notes

    @abstractmethod
    def outputs(self, rows: Rows, *, averaged: bool = False) -> Array: ...

    def own_rows(self, rows: Rows, epoch: int) -> Rows:
        return rows

    def member_outputs(self, rows: Rows, *, averaged: bool = False) -> Array:
        return self.outputs(rows, averaged=averaged)[None]

    def stop(self) -> None:
        """Do nothing. The call is finished."""
        return

    def close(self) -> None:
        """Do nothing. The engine has no threads."""
        return


def dropout_layers(spec: Spec) -> list[str]:
    """Names of the dropout layers in the order that keys their masks: each draws from the part of its ordinal, from 0.

    One with p = 0 draws nothing and has no ordinal.
    """
    return [e.name for e in spec.entries if isinstance(e.layer, Dropout) and e.layer.p]


def check_data(spec: Spec, data: Data, loss: Loss) -> None:
    """Refuses shapes that do not fit, which an engine would broadcast or read past."""
    n, targets = len(data), spec.d_out // loss.per_target
    wanted: dict[str, tuple[Any, tuple[tuple[int, ...], ...]]] = {
        "x": (data.x, ((n, spec.inputs.numeric),)),
        "y": (data.y, ((n,), (n, spec.d_out)) if loss.classes else ((n, targets),)),
    }
    if data.codes is not None or spec.inputs.categories:
        wanted["codes"] = (data.codes, ((n, len(spec.inputs.categories)),))
    if data.weight is not None:
        wanted["weight"] = (data.weight, ((n,),))
    for name, (array, shapes) in wanted.items():
        if array is None or array.shape not in shapes:
            got = "none" if array is None else f"shape {array.shape}"
            raise OptionError(f"{name} must have the shape {' or '.join(map(str, shapes))} for {spec}, got {got}")


@dataclass(frozen=True, kw_only=True, eq=False)
class State:
    """Everything that must be saved to continue training with the same bits.

    `tensors` is the flat form that files hold, with names such as `optimizer/mean/linear1.weight`. The state of the
    policies is saved separately.
    """

    parameters: dict[str, Array]
    buffers: dict[str, Array] = field(default_factory=dict[str, Array])
    optimizer: dict[str, dict[str, Array]] = field(default_factory=dict[str, dict[str, Array]])
    """By slot, then by parameter."""
    averages: dict[str, Array] = field(default_factory=dict[str, Array])
    """Running averages of the parameters, or empty."""
    step: int = 0
    """Number of updates so far."""
    rate_factor: float = 1.0
    """Factor on the learning rate after rollbacks."""

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
