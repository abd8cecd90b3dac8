"""What every kind of layer answers, without PyTorch.

A layer is plain data: what the user chose and nothing that follows from its neighbours. The width that reaches it is an
argument of everything it answers.

    width(d)                  d numbers a row in → how many out
    parameters(d), buffers(d) names, shapes, roles and first values of its tensors
    cost(d, batch)            FLOPs of its forward and backward pass, by part
    kept(d)                   what PyTorch keeps of it for the backward pass
    forward(x, p, run)        numpy: x (B, d) → y (B, width), and what backward needs
    backward(dy, cache, p)    numpy: ∂L/∂y → ∂L/∂x and ∂L/∂p for every parameter

and the facts that other packages use, each with a default that is correct for most kinds:

    normalises, over_batch, divisor, torch_module, on_page
    moments(d, x, V)          mean squares of its outputs and gradients at initialization
    reaching(gain, square)    the same, for the initialization scheme of the next layer's weights
    timed(d)                  the benchmark layers that are timed when an engine is calibrated
    fused_widths(d, …), looped_widths(d), weights_alone
                              numbers per row that the fused engine stores for it

Letters: B batch, I numbers in, O numbers out; `dy` is ∂loss/∂y. The numpy pair is the slow reference that every other
twin is measured against, in float64.
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
"""A network with more is a mistake or an attack."""

Role = Literal["weight", "bias", "norm", "scale", "embedding", "activation", "frequency", "statistic"]


@dataclass(frozen=True)
class Draw:
    """First values that a layer fixes itself: N(0, scale²), or uniform on ±scale."""

    law: Literal["normal", "uniform"]
    scale: float


@dataclass(frozen=True)
class EvenlySpaced:
    """First values that stand evenly from −bound to bound along the last axis; said, not made: they may be many."""

    bound: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Parameter:
    """One tensor of a layer. `value` None means: by the network's initialisation scheme."""

    name: str
    shape: tuple[int, ...]
    role: Role
    fan_in: int = 0
    fan_out: int = 0
    value: float | Array | Draw | EvenlySpaced | None = None
    shared: bool = False
    """One tensor for the whole network, whichever layers use it."""

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def decays(self) -> bool:
        """Weight decay shrinks matrices alone: not biases, norms, scales or the numbers of an activation."""
        return self.role == "weight"


@dataclass(frozen=True, kw_only=True)
class Forward:
    """FLOPs of a forward pass by part."""

    matmul: int = 0
    bias: int = 0
    activation: int = 0
    other: int = 0

    @cached_property
    def total(self) -> int:
        return int(self.matmul) + int(self.bias) + int(self.activation) + int(self.other)


@dataclass(frozen=True, kw_only=True)
class Backward:
    """FLOPs of a backward pass by part: dW and dA are the matrix products alone."""

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
    """One walk through a network: whether it trains, and where dropout's masks come from.

    `keep(d, p)` gives the (B, d) mask of the next dropout layer in order: 0, or 1/(1 − p) where a number is kept.
    """

    training: bool = False
    categories: tuple[int, ...] = ()
    """Known values of each category column of the rows that come in."""
    keep: Callable[[int, float], Array] | None = None
    updates: dict[str, Array] = dataclass_field(default_factory=dict[str, Array])
    """New values of buffers, by name; a container puts its own name in front."""


@dataclass(frozen=True)
class Moments:
    """Moments of one unit: mean square, mean product on two rows, mean."""

    q: float
    c: float
    m: float


@dataclass(frozen=True)
class Passed:
    """The moments of a layer's outputs, and its factor on the mean square of the gradient. None means unknown."""

    moments: Moments | None = None
    backward: float | None = None
    scatter: float = 0.0
    """The variance of log q that the finite width adds."""


TIMED_WIDTH = 128
"""Width of the layers that are timed when an engine is calibrated."""
MAX_TIMED_WIDTH = 2**16
LINE = 16
"""Numbers in a line of the fused engine, and rows in a panel."""


def timed_width(width: int, each: int) -> int:
    """The width, or less where each number of it makes many inside."""
    return max(1, min(width, MAX_TIMED_WIDTH // each))


def lines(n: int) -> int:
    """n rounded up to whole lines."""
    return -(-n // LINE) * LINE


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A benchmark layer for calibration, its numbers per row (`standard`), and those of the layer itself."""

    layer: Layer
    d: Any
    standard: int
    numbers: int


class Layer(ABC):
    """Base of every kind of layer; see the module's text for what its methods mean."""

    kind: ClassVar[str]
    mixes: ClassVar[bool] = False
    """Whether each output depends on many inputs through weights: what an activation is worth standing between."""
    normalises: ClassVar[bool] = False
    """Whether it is a norm: its outputs have a mean square of 1, whatever its inputs are."""
    over_batch: ClassVar[bool] = False
    """Whether it uses statistics of the training batch, which must then have at least two rows."""

    @property
    def label(self) -> str:
        """The name its tensors go by, before the ordinal: `linear` of `linear2.weight`."""
        return self.kind

    def width(self, d: int) -> int:
        return d

    def widest(self, d: int) -> int:
        """Numbers a row of the widest tensor that it makes on its way."""
        return self.width(d)

    def parameters(self, d: int) -> tuple[Parameter, ...]:
        return ()

    def buffers(self, d: int) -> tuple[Parameter, ...]:
        return ()

    @abstractmethod
    def cost(self, d: int, batch: int, *, input_gradient: bool = True) -> Flops: ...

    def kept(self, d: int, *, input_gradient: bool = True) -> Kept:
        """`Kept.extra` is not used by layers: extras are counted per row."""
        return Kept()

    @property
    def passes_through(self) -> bool:
        """True where the output is the very input, so that no new tensor is made."""
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
    def forward(self, x: Array, p: Tensors, run: Pass) -> tuple[Array, Any]: ...

    @abstractmethod
    def backward(self, dy: Array, cache: Any, p: Tensors) -> tuple[Array, dict[str, Array]]: ...


def named(layers: Iterable[Layer]) -> Iterator[tuple[str, Layer]]:
    """Each layer with the name its tensors go by: its label and which of that label it is, from 1.

    >>> from multilayer.nn.layers import Activation, Linear
    >>> [name for name, _ in named([Linear(8), Activation("relu"), Linear(1)])]
    ['linear1', 'relu1', 'linear2']
    """
    seen: Counter[str] = Counter()
    for layer in layers:
        seen[layer.label] += 1
        yield f"{layer.label}{seen[layer.label]}", layer


def forward_through(layers: Iterable[Layer], x: Array, p: Tensors, run: Pass) -> tuple[Array, list[Any]]:
    """The layers one after another; `p` holds their tensors under `name.tensor`."""
    caches: list[Any] = []
    for name, layer in named(layers):
        outer, run.updates = run.updates, {}
        x, cache = layer.forward(x, part_of(p, name), run)
        run.updates = outer | {f"{name}.{key}": value for key, value in run.updates.items()}
        caches.append(cache)
    return x, caches


def backward_through(
    layers: Iterable[Layer], dy: Array, caches: list[Any], p: Tensors
) -> tuple[Array, dict[str, Array]]:
    """The way back: ∂L/∂x, and ∂L/∂p under the names of `p`."""
    grads: dict[str, Array] = {}
    for (name, layer), cache in zip(reversed(list(named(layers))), reversed(caches), strict=True):
        dy, inner = layer.backward(dy, cache, part_of(p, name))
        grads |= {f"{name}.{key}": g for key, g in inner.items()}
    return dy, grads


def part_of(p: Tensors, name: str) -> dict[str, Array]:
    prefix = f"{name}."
    return {key.removeprefix(prefix): value for key, value in p.items() if key.startswith(prefix)}


def size(parameters: Iterable[Parameter]) -> int:
    return sum(p.size for p in parameters)


def whole(name: str, value: SupportsIndex, *, least: int = 1, most: int = 2**31) -> int:
    return named_options.whole(name, value, least=least, most=most, error=SpecError)


def store_whole(thing: object, **called: str) -> None:
    """Makes fields of a frozen dataclass plain ints of at least 1; each is given with what messages call it."""
    for field, name in called.items():
        object.__setattr__(thing, field, whole(name, getattr(thing, field)))


def require_number(name: str, value: float, *, positive: bool = False, requirement: str = "") -> float:
    """The value as a float, so that equal networks read back equal from text and JSON."""
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
    """The dataclass fields that make a layer what it is; what it derives is left out."""
    return [field for field in fields(cast(Any, cls)) if field.init]


def check_fields(cls: type[Layer], values: Mapping[str, Any]) -> None:
    """Refuses a value that is not of its field's type; what the values mean is the layer's own check."""
    hints = typing.get_type_hints(cls)
    for name, value in values.items():
        if name not in ("layers", "constants") and not _fits(value, hints[name]):
            raise SpecError(f"{name} must be {_describe(hints[name])}, got {value!r}")


def _fits(value: object, hint: Any) -> bool:
    """Whether a value is of a field's type; a whole number fits where a float is asked for, true and false do not."""
    origin = typing.get_origin(hint)
    if origin is Literal:
        return isinstance(value, str)  # which names are valid is the layer's own check, with its suggestion
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
