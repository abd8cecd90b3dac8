"""The interface of an engine: it holds the data, the parameters and the optimizer state, and runs training steps.

The training loop decides the order of the rows, the schedules and when to evaluate. It divides the steps into chunks;
the size of the chunks does not change the result.

    run          several steps, each with forward, loss, backward, clipping, update
    gradients    loss and gradients over given rows, without an update (data parallelism, diagnostics)
    apply        one update: `apply(gradients(rows))` equals a step of `run` over these rows bit for bit
    outputs      raw outputs for given rows, without dropout and with running statistics
    state, load  copy and set all values that training changes
    stop         interrupt a call in another thread
    close        release threads

`SingleEngine` is the base class of the engines of one network. An ensemble has one engine per member.

A step over rows r with sample weights w minimizes Σ w_r loss_r / Σ w_r. Dropout masks depend on the seed, the epoch,
the number of the dropout layer, the row number and the unit, but not on batches, threads or processes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
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
from .config import EngineConfig

if TYPE_CHECKING:
    from ..data.batches import Data, Rows


@dataclass(frozen=True, kw_only=True, eq=False)
class Order:
    """Rows of one epoch in the order of training, divided into consecutive batches. The last may be smaller."""

    epoch: int
    rows: Rows
    batch: int

    def __post_init__(self) -> None:
        if self.batch < 1 or self.epoch < 0:
            raise OptionError(f"an order needs batch ≥ 1 and epoch ≥ 0, got {self.batch!r} and {self.epoch!r}")

    @property
    def steps(self) -> int:
        """Number of batches."""
        return -(-len(self.rows) // self.batch)

    def check(self, **schedules: Array) -> None:
        """Raise OptionError for a schedule whose length is not the number of steps."""
        for name, values in schedules.items():
            if len(values) != self.steps:
                raise OptionError(f"{name} must have one number for each of {self.steps} steps, got {len(values)}")

    def batches(self) -> list[Rows]:
        """Return the rows of each batch."""
        return [self.rows[i : i + self.batch] for i in range(0, len(self.rows), self.batch)]


LossFunction = Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class Settings(EngineConfig):
    """The options of an engine, with the values that depend on the data and the network. `Settings.of` makes them."""

    loss: str
    """The loss of the task, such as `huber(delta=2)`. It is never "auto"."""
    loss_function: LossFunction | None = None
    """A function in torch that training minimizes instead: `(z, y) → losses of the rows (B,), or their mean`.

    The validation loss, the link and the calibration are those of `loss`. Only the torch engine accepts a function."""
    rate_factors: Mapping[str, float] = field(default_factory=dict[str, float])
    """Factor on the learning rate by parameter name. The default is 1."""
    decay_factors: Mapping[str, float] = field(default_factory=dict[str, float])
    """Factor on weight decay and L2 by parameter name. The default is 1 for weight matrices and 0 for the rest."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for group in ("rate_factors", "decay_factors"):
            for name, value in getattr(self, group).items():
                if not 0 <= value < math.inf:
                    raise OptionError(f"{group} of {name!r} must be finite and at least 0, got {value!r}")

    @staticmethod
    def of(
        config: EngineConfig, *, loss: str, loss_function: LossFunction | None, rate_factors: Mapping[str, float]
    ) -> Settings:
        """Return the options of `config` that concern the engine, with the given values."""
        options: dict[str, Any] = {option.name: getattr(config, option.name) for option in fields(EngineConfig)}
        return Settings(**options, loss=loss, loss_function=loss_function, rate_factors=rate_factors)

    def check(self, parameters: Iterable[str]) -> None:
        """Raise OptionError for a factor of a parameter that the network does not have."""
        names = list(parameters)
        for field_name in ("rate_factors", "decay_factors"):
            for name in getattr(self, field_name):
                if name not in names:
                    raise OptionError(unknown_name(f"parameter in {field_name}", name, names))


@dataclass(frozen=True, kw_only=True, eq=False)
class StepStatistics:
    """For each parameter, the norm of its gradient before clipping and the norm of its values after the step."""

    place: int
    """Position of the step in the chunk."""
    gradients: dict[str, float]
    parameters: dict[str, float]


@dataclass(frozen=True, eq=False)
class UnitCounts:
    """For each unit of an activation layer, the number of rows of some steps with z in a range (unit_counts.py)."""

    rows: int
    inactive: NDArray[np.int64]
    """Rows for which f′(z) is exactly 0, because f can die."""
    flat: NDArray[np.int64]
    """Rows for which z is beyond a saturation point. 0 for functions that only die, as ReLU does."""

    def __add__(self, other: UnitCounts) -> UnitCounts:
        return UnitCounts(self.rows + other.rows, self.inactive + other.inactive, self.flat + other.flat)


@dataclass(frozen=True, kw_only=True, eq=False)
class Chunk:
    """Results of consecutive steps: the loss before each update, and the gradient norm before clipping.

    `bad` is the position of the first step whose loss or gradient is not finite, or None. The state after it is not
    defined: the loop loads the state before the chunk and repeats the steps one by one. `finite` is whether all
    parameters are finite after the last step. It has no meaning if `bad` is not None.
    """

    loss: NDArray[np.float64]
    gradient_norm: NDArray[np.float64]
    bad: int | None = None
    finite: bool = True
    statistics: Sequence[StepStatistics] = ()
    units: Mapping[str, UnitCounts] = field(default_factory=dict[str, UnitCounts])
    """Counts over all steps by the name of the activation layer, such as `residual1.relu1` or `member2/relu1`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Gradients:
    """Loss, gradients and new buffers of a training step before its update. Replicas average all three."""

    loss: float
    gradients: dict[str, Array]
    """Gradients by parameter."""
    buffers: dict[str, Array] = field(default_factory=dict[str, Array])
    """New values of the buffers that a training step changes: running statistics."""


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
        """Number of rows per epoch if every member has its own row order. An `Order` then holds positions in this row
        order. None if an `Order` holds row numbers of the data."""
        ...

    def own_rows(self, rows: Rows, epoch: int) -> Rows:
        """Return the row numbers of the data for the rows, or positions, of an `Order`."""
        ...

    def run(self, order: Order, *, rate: Array, decay: Array, dropout: Array, count_units: bool = False) -> Chunk:
        """Run `order.steps` steps.

        `rate`, `decay` and `dropout` have one value per step: the learning rate, the decoupled weight decay and a
        factor on the dropout of the spec. `count_units` fills `Chunk.units`; it changes no other result.
        """
        ...

    def gradients(self, rows: Rows, *, epoch: int, dropout: float = 1.0) -> Gradients:
        """Return loss, gradients and new buffers of a training step over `rows`, without an update."""
        ...

    def apply(self, gradients: Gradients, *, rate: float, decay: float) -> float:
        """Clip the gradients, update the parameters and set the buffers. Return the gradient norm before clipping."""
        ...

    def outputs(self, rows: Rows, *, averaged: bool = False) -> Array:
        """Return raw outputs (rows, d_out). `averaged` uses the averaged parameters if the engine keeps them."""
        ...

    def member_outputs(self, rows: Rows, *, averaged: bool = False) -> Array:
        """Return the raw outputs of each network (networks, rows, d_out)."""
        ...

    def state(self) -> State:
        """Return a copy of all values that must be saved to continue with the same bits."""
        ...

    def load(self, state: State) -> None:
        """Set the state. Raise StateError if it belongs to another network or optimizer."""
        ...

    def stop(self) -> None:
        """Interrupt a call in another thread with KeyboardInterrupt. Engines that cannot do this finish the call."""
        ...

    def close(self) -> None:
        """Release threads. The engine must not be used afterward."""
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
    """Return the names of the dropout layers with p > 0. The position in this list is part of the key of the masks."""
    return [e.name for e in spec.entries if isinstance(e.layer, Dropout) and e.layer.p]


def check_data(spec: Spec, data: Data, loss: Loss) -> None:
    """Raise OptionError for arrays whose shapes do not fit the network. Engines rely on this check."""
    n, targets = len(data), spec.d_out // loss.per_target
    expected: dict[str, tuple[Any, tuple[tuple[int, ...], ...]]] = {
        "x": (data.x, ((n, spec.inputs.numeric),)),
        "y": (data.y, ((n,), (n, spec.d_out)) if loss.classes else ((n, targets),)),
    }
    if data.codes is not None or spec.inputs.categories:
        expected["codes"] = (data.codes, ((n, len(spec.inputs.categories)),))
    if data.weight is not None:
        expected["weight"] = (data.weight, ((n,),))
    for name, (array, shapes) in expected.items():
        if array is None or array.shape not in shapes:
            got = f"shape {array.shape}" if array is not None else "none"
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
    """Optimizer state by slot, then by parameter."""
    averages: dict[str, Array] = field(default_factory=dict[str, Array])
    """Running averages of the parameters, or empty."""
    step: int = 0
    """Number of updates so far."""
    rate_factor: float = 1.0
    """Factor on the learning rate after rollbacks."""

    def copy(self) -> State:
        """Return a state with copies of all arrays."""
        return State.from_tensors({name: value.copy() for name, value in self.tensors().items()})

    def tensors(self) -> dict[str, Array]:
        """Return all values by name, as files hold them."""
        flat = {f"parameters/{name}": value for name, value in self.parameters.items()}
        flat |= {f"buffers/{name}": value for name, value in self.buffers.items()}
        for slot, values in self.optimizer.items():
            flat |= {f"optimizer/{slot}/{name}": value for name, value in values.items()}
        flat |= {f"averages/{name}": value for name, value in self.averages.items()}
        # float64 is exact for integers up to 2^53.
        flat["counters"] = np.array([self.step, self.rate_factor], dtype=np.float64)
        return flat

    @staticmethod
    def from_tensors(tensors: Mapping[str, Array]) -> State:
        """Return the state of arrays from `tensors`."""
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
        """Raise StateError for a state of another network or optimizer. The message names the first wrong tensor."""
        if spec.parameters and averaged != bool(self.averages):
            expected, got = ("averages", "none") if averaged else ("no averages", "some")
            raise StateError(
                f"an engine {'with' if averaged else 'without'} `average` needs a state with {expected}, got {got}: "
                "continue with the settings of the run that saved the state"
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
        for group, found, expected in groups:
            for name in sorted(found.keys() ^ expected.keys()):
                word = "misses" if name in expected else "has an unknown"
                raise StateError(f"the state {word} tensor {group}/{name} for the network {spec}")
            for name, parameter in expected.items():
                if found[name].shape != parameter.shape:
                    shapes = f"{parameter.shape}, got {found[name].shape}"
                    raise StateError(f"{group}/{name} must have the shape {shapes}")

    def equals(self, other: State) -> bool:
        """Return whether names, types, shapes and all bits are equal."""
        first, second = self.tensors(), other.tensors()
        return first.keys() == second.keys() and all(
            value.dtype == second[name].dtype
            and value.shape == second[name].shape
            and value.tobytes() == second[name].tobytes()
            for name, value in first.items()
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
