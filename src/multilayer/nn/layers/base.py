"""The interface of all layers: `Layer`. numpy only.

A layer stores only the options that the user chose. Its methods take the width d of its input.

    width(d)                  width of the output
    parameters(d), buffers(d) names, shapes, roles and initial values of its tensors
    cost(d, batch)            FLOPs of the forward and backward pass, by part
    kept(d)                   memory that PyTorch keeps for the backward pass
    forward(x, p, run)        x (B, d) → y (B, width), and a cache for `backward`
    backward(dy, cache, p)    ∂L/∂y → ∂L/∂x, and ∂L/∂p for every parameter

Other packages use these properties and methods. Their defaults are correct for most kinds.

    normalises, over_batch, divisor, torch_module, on_page
    moments(d, x, V)          mean squares of outputs and gradients at initialization
    reaching(gain, square)    the same, for the initialization scheme of the next layer's weights
    timed(d)                  benchmark layers that are timed when an engine is calibrated
    fused_widths(d, …), looped_widths(d), weights_alone
                              values per row that the fused engine stores

Letters: B batch, I inputs, O outputs; `dy` is ∂loss/∂y. `forward` and `backward` in float64 are the slow reference: the
tests compare all other implementations with it.
"""

from __future__ import annotations

import math
import typing
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from dataclasses import field as dataclass_field
from functools import cached_property
from typing import Any, ClassVar, Literal, SupportsIndex, cast

import numpy as np
from numpy.typing import NDArray

from ...core import named_options
from ...errors import SpecError
from ..activations.function import Kept

Array = NDArray[np.floating[Any]]
Tensors = Mapping[str, Array]

MAX_LAYERS = 100_000
"""Largest number of layers of a network. More are a mistake or an attack."""

Role = Literal["weight", "bias", "norm", "scale", "embedding", "activation", "frequency", "statistic"]


@dataclass(frozen=True)
class Draw:
    """Random initial values: N(0, scale²), or uniform on ±scale."""

    law: Literal["normal", "uniform"]
    scale: float


@dataclass(frozen=True)
class EvenlySpaced:
    """Initial values with equal steps from −bound to bound along the last axis. They are computed only when needed."""

    bound: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Parameter:
    """One tensor of a layer. Without a `value`, the initialization scheme of the network sets its values."""

    name: str
    shape: tuple[int, ...]
    role: Role
    fan_in: int = 0
    fan_out: int = 0
    value: float | Array | Draw | EvenlySpaced | None = None
    shared: bool = False
    """Whether all layers of the network that use the tensor share it."""

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def decays(self) -> bool:
        """Whether weight decay applies: to weight matrices only, not to biases, norms, scales or activations."""
        return self.role == "weight"


@dataclass(frozen=True, kw_only=True)
class Forward:
    """FLOPs of a forward pass, by part."""

    matmul: int = 0
    bias: int = 0
    activation: int = 0
    other: int = 0

    @cached_property
    def total(self) -> int:
        return int(self.matmul) + int(self.bias) + int(self.activation) + int(self.other)


@dataclass(frozen=True, kw_only=True)
class Backward:
    """FLOPs of a backward pass, by part. dW and dA count the matrix products only."""

    dW: int = 0
    db: int = 0
    dA: int = 0
    activation: int = 0
    other: int = 0

    @cached_property
    def total(self) -> int:
        return int(self.dW) + int(self.db) + int(self.dA) + int(self.activation) + int(self.other)


@dataclass(frozen=True, kw_only=True)
class Flops:
    forward: Forward = Forward()
    backward: Backward = Backward()


@dataclass(kw_only=True)
class Pass:
    """Options and results of one forward pass through a network.

    `keep(d, p)` returns the (B, d) mask of the next dropout layer: 0, or 1/(1 − p) for the values that are kept.
    """

    training: bool = False
    categories: tuple[int, ...] = ()
    """Number of known values of each category column of the inputs."""
    keep: Callable[[int, float], Array] | None = None
    updates: dict[str, Array] = dataclass_field(default_factory=dict[str, Array])
    """New values of buffers by name. A container adds its name as a prefix."""
    watch: Callable[[str, Layer, Any], None] | None = None
    """Called before each layer with its name in the network, the layer and its input."""
    inside: str = ""
    """Names of the containers around the current layer, such as `residual1.`."""


@dataclass(frozen=True)
class Moments:
    """Moments of one unit: mean square q, mean product c of two rows, mean m."""

    q: float
    c: float
    m: float


@dataclass(frozen=True)
class Passed:
    """The moments of a layer's outputs, and its factor on the mean square of the gradient. None means unknown."""

    moments: Moments | None = None
    backward: float | None = None
    scatter: float = 0.0
    """Variance of log q that the finite width adds."""


TIMED_WIDTH = 128
"""Width of the layers that are timed when an engine is calibrated."""
MAX_TIMED_WIDTH = 2**16
"""Largest number of values per row inside a timed layer."""
LINE = 16
"""Values per line of the fused engine, and rows per panel."""


def timed_width(width: int, each: int) -> int:
    """Return the width, reduced if a unit has many values inside, so that the layer stays small."""
    return max(1, min(width, MAX_TIMED_WIDTH // each))


def lines(n: int) -> int:
    """Return n rounded up to a multiple of LINE."""
    return -(-n // LINE) * LINE


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A benchmark layer, its values per row (`standard`), and the values per row of the original layer."""

    layer: Layer
    d: Any
    standard: int
    numbers: int


class Layer(ABC):
    """Base class of all layers. The module's docstring describes the methods."""

    kind: ClassVar[str]
    mixes: ClassVar[bool] = False
    """Whether each output depends on many inputs through weights. An activation belongs between two such layers."""
    letters: ClassVar[Mapping[str, str]] = {}
    """Symbols in its `cost` that other layers do not use, with their meaning."""
    normalises: ClassVar[bool] = False
    """Whether it is a norm: the mean square of its outputs is 1 for any inputs."""
    over_batch: ClassVar[bool] = False
    """Whether it uses statistics of the training batch, which must then have at least two rows."""

    @property
    def label(self) -> str:
        """Name of its tensors without the ordinal: `linear` for `linear2.weight`."""
        return self.kind

    def width(self, d: int) -> int:
        """Return the width of the output for an input of width d."""
        return d

    def widest(self, d: int) -> int:
        """Return the values per row of the widest tensor that the layer computes."""
        return self.width(d)

    def parameters(self, d: int) -> tuple[Parameter, ...]:
        """Return the tensors that training changes."""
        return ()

    def buffers(self, d: int) -> tuple[Parameter, ...]:
        """Return the tensors that belong to the state but are not trained."""
        return ()

    @abstractmethod
    def cost(self, d: int, batch: int, *, input_gradient: bool = True) -> Flops:
        """Return the FLOPs for a batch. `input_gradient` is whether the backward pass computes ∂L/∂x."""

    def kept(self, d: int, *, input_gradient: bool = True) -> Kept:
        """Return what PyTorch keeps for the backward pass. Layers count per row and leave `Kept.extra` at 0."""
        return Kept()

    @property
    def passes_through(self) -> bool:
        """Whether the output is the input itself, without a new tensor."""
        return False

    @property
    def divisor(self) -> int:
        """A number that must divide the width of its input."""
        return 1

    @property
    def torch_module(self) -> bool:
        """Whether `torch.nn` has a module for it."""
        return False

    @property
    def on_page(self) -> bool:
        """Whether the explorer can compute it (frontend/engine/layers.ts). If not, it shows the values from Python."""
        return True

    def moments(self, d: int, x: Moments | None, V: float | None) -> Passed:
        """Return the moments of the outputs for inputs with moments x and weights of variance V. Default: unknown."""
        return Passed()

    def reaching(self, gain: float, square: float) -> tuple[float, float]:
        """Return 1/√E[a²] of the activation before the next weights, and the factor on E[a²] since that activation."""
        return 1.0, 1.0

    def timed(self, d: Any) -> tuple[Timed, ...]:
        """Return the benchmark layers that are timed when an engine is calibrated. By default the layer itself."""
        return (Timed(layer=self, d=TIMED_WIDTH, standard=TIMED_WIDTH, numbers=d),)

    @property
    def weights_alone(self) -> bool:
        """Whether the fused engine may compute its gradients as a sum over two halves of the rows."""
        return False

    def fused_widths(self, d: Any, *, learning: bool) -> tuple[int, ...]:
        """Return the numbers per row of each array that a step of the fused engine writes (csrc/fused/memory_plan.cpp).

        `learning` is whether a layer before it has parameters. Without a kernel, return what PyTorch keeps.
        """
        return self.width(d), self.kept(d).per_row

    def looped_widths(self, d: Any) -> tuple[int, ...]:
        """Return the same for the reference core (csrc/reference/core.cpp)."""
        return self.width(d), self.kept(d).per_row

    @abstractmethod
    def forward(self, x: Array, p: Tensors, run: Pass) -> tuple[Array, Any]:
        """Return the outputs, and what `backward` needs. `p` are the tensors by name."""

    @abstractmethod
    def backward(self, dy: Array, cache: Any, p: Tensors) -> tuple[Array, dict[str, Array]]:
        """Return ∂L/∂x, and ∂L/∂p by name."""


def named(layers: Iterable[Layer]) -> Iterator[tuple[str, Layer]]:
    """Yield each layer with its name: its label, and its number from 1 among the layers of that label.

    >>> from multilayer.nn.layers import Activation, Linear
    >>> [name for name, _ in named([Linear(8), Activation("relu"), Linear(1)])]
    ['linear1', 'relu1', 'linear2']
    """
    seen: Counter[str] = Counter()
    for layer in layers:
        seen[layer.label] += 1
        yield f"{layer.label}{seen[layer.label]}", layer


def forward_through(layers: Iterable[Layer], x: Array, p: Tensors, run: Pass) -> tuple[Array, list[Any]]:
    """Return the outputs of a sequence of layers, and their caches. `p` holds tensors by `layer.tensor`."""
    caches: list[Any] = []
    for name, layer in named(layers):
        if run.watch is not None:
            run.watch(run.inside + name, layer, x)
        outer, run.updates = run.updates, {}
        around, run.inside = run.inside, f"{run.inside}{name}."
        x, cache = layer.forward(x, part_of(p, name), run)
        run.inside = around
        run.updates = outer | {f"{name}.{key}": value for key, value in run.updates.items()}
        caches.append(cache)
    return x, caches


def backward_through(
    layers: Iterable[Layer], dy: Array, caches: list[Any], p: Tensors
) -> tuple[Array, dict[str, Array]]:
    """Return ∂L/∂x of a sequence of layers, and ∂L/∂p by the names of `p`."""
    grads: dict[str, Array] = {}
    for (name, layer), cache in zip(reversed(list(named(layers))), reversed(caches), strict=True):
        dy, inner = layer.backward(dy, cache, part_of(p, name))
        grads |= {f"{name}.{key}": g for key, g in inner.items()}
    return dy, grads


def part_of(p: Tensors, name: str) -> dict[str, Array]:
    """Return the tensors of one layer, without the prefix."""
    prefix = f"{name}."
    return {key.removeprefix(prefix): value for key, value in p.items() if key.startswith(prefix)}


def size(parameters: Iterable[Parameter]) -> int:
    """Return the number of values in all parameters."""
    return sum(p.size for p in parameters)


def whole(name: str, value: SupportsIndex, *, least: int = 1, most: int = 2**31) -> int:
    return named_options.whole(name, value, least=least, most=most, error=SpecError)


def store_whole(thing: object, **called: str) -> None:
    """Convert fields of a frozen dataclass to ints of at least 1. The values are their names in error messages."""
    for field, name in called.items():
        object.__setattr__(thing, field, whole(name, getattr(thing, field)))


def require_number(name: str, value: float, *, positive: bool = False, requirement: str = "") -> float:
    """Return the value as a float, so that a network read from a string or JSON equals the original."""
    try:
        number = math.nan if isinstance(value, bool | str) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    except OverflowError:
        raise SpecError(f"{name} must be a number that fits a float, got a whole number of 2^1024 or more") from None
    if not math.isfinite(number) or (positive and number <= 0):
        requirement = requirement or ("a positive number" if positive else "a finite number")
        raise SpecError(f"{name} must be {requirement}, got {value!r}")
    return number


def stored_fields(cls: type[Layer]) -> list[Any]:
    """Return the dataclass fields that a user sets, without derived ones."""
    return [field for field in fields(cast(Any, cls)) if field.init]


def check_fields(cls: type[Layer], values: Mapping[str, Any]) -> None:
    """Raise SpecError for a value of the wrong type. The layers check the values themselves."""
    hints = typing.get_type_hints(cls)
    for name, value in values.items():
        if name not in ("layers", "constants") and not _fits(value, hints[name]):
            raise SpecError(f"{name} must be {_describe(hints[name])}, got {value!r}")


def _fits(value: object, hint: Any) -> bool:
    """Return whether a value has the type of a field. An int fits a float field; a bool does not."""
    origin = typing.get_origin(hint)
    if origin is Literal:
        return isinstance(value, str)  # the layer checks the name and suggests the nearest valid one
    if origin is not None:
        return any(_fits(value, option) for option in typing.get_args(hint))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _describe(hint: Any) -> str:
    words = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", type(None): "null"}
    if typing.get_origin(hint) is Literal:
        return " or ".join(repr(option) for option in typing.get_args(hint))
    return words.get(hint) or " or ".join(_describe(option) for option in typing.get_args(hint))


def summed(x: Moments | None, g: Moments | None) -> Moments | None:
    """Return the moments of x + g for independent x and g."""
    if x is None or g is None:
        return None
    cross = 2 * x.m * g.m
    return Moments(x.q + g.q + cross, x.c + g.c + cross, x.m + g.m)
