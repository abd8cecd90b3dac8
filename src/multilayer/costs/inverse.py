"""Inverse questions about the cost: what fits within a limit, and how long training takes.

| function | answer |
|---|---|
| `largest_batch` | the largest batch within a number of bytes |
| `widest` | all hidden widths scaled by one factor, within FLOPs or parameters |
| `deepest` | the last hidden layer or residual block repeated, within FLOPs or parameters |
| `time` | seconds for a number of epochs, from the measured roofline of this machine |
| `sweep` | the cost as the batch or the widest hidden layer grows in powers of two, such as batch=1..4096 |

The answers are exact: the result fits, and the next larger one does not. `account` computes the cost of a network, by
default with `multilayer.cost`. FLOPs are `Cost.step`, and bytes are `Memory.total`.

Scaling: if W is the widest hidden width and t its new value, a hidden width w becomes w·t/W, rounded half up, at least
1, and a multiple of the number of groups of group norms. The end of a residual block keeps the width of its beginning.
Equal widths stay equal. No width decreases as t grows, so bisection over t finds the largest.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from ..errors import OptionError, unknown_name
from ..nn import losses, optimizers
from ..nn.layers import MAX_LAYERS, Columns, Layer, Residual
from ..spec import Spec
from .count import DTYPES, Cost, cost
from .memory import memory

if TYPE_CHECKING:
    from ..core.machine import Machine

MAX_BATCH = 2**40
"""The search for a batch stops here: the memory of some networks does not grow with the batch."""
MAX_WIDTH = 2**31


class Account(Protocol):
    """A function that returns the cost of a network. Without a batch, it uses its own default."""

    def __call__(self, spec: Spec, batch: int | None = None, /) -> Cost: ...


def _account(spec: Spec, batch: int | None = None) -> Cost:
    return cost(spec) if batch is None else cost(spec, batch=batch)


def largest_batch(
    spec: Spec,
    memory_bytes: int,
    *,
    optimizer: str = "adam",
    loss: str = "auto",
    engine: str = "torch",
    dtype: str = "float32",
    convention: str = "actual",
    average: bool = False,
    clip: bool = False,
    temporary: bool = False,
) -> int:
    """Return the largest batch that fits, or 0 if one row does not fit. The search stops at `MAX_BATCH`.

    With `temporary`, `Memory.temporary` is counted too, which `Memory.total` leaves out.

    >>> largest_batch(Spec.parse("784-256-128-10"), 2_000_000_000)
    423649
    """
    chosen = losses.of(loss, spec.d_out)

    def fits(batch: int) -> bool:
        found = memory(
            spec,
            batch,
            loss=chosen,
            optimizer=optimizers.get(optimizer),
            engine=engine,
            itemsize=DTYPES[dtype],
            convention=convention,
            average=average,
            clip=clip,
        )
        return found.total + (int(found.temporary) if temporary else 0) <= memory_bytes

    return _largest(fits, start=1, most=MAX_BATCH)


@dataclass(frozen=True, kw_only=True)
class Widest:
    """The result of `widest`.

    `width` is the widest hidden width of `spec`, and `base` that of the original network. `at_limit` is true if the
    search stopped there.
    """

    spec: Spec
    width: int
    base: int
    at_limit: bool


def widest(
    spec: Spec, *, flops: int | None = None, parameters: int | None = None, account: Account = _account
) -> Widest | None:
    """Return the widest network of the same form within the limits, or None if widths of 1 do not fit.

    >>> widest(Spec.parse("784-256-128-10"), parameters=1_000_000)
    Widest(spec=Spec('784-829-415-10'), width=829, base=256, at_limit=False)
    """
    _require_limit(flops, parameters)
    base = max(hidden_widths(spec), default=0)
    if not base:
        raise OptionError(
            f"only a network with a hidden layer can be widened, got {str(spec)[:100]}: add a hidden layer"
        )

    def fits(width: int) -> bool:
        wide = with_width(spec, width)
        return (parameters is None or wide.n_parameters <= parameters) and (
            flops is None or account(wide).step <= flops
        )

    width = _largest(fits, start=base, most=MAX_WIDTH // 2)
    if not width:
        return None
    return Widest(spec=with_width(spec, width), width=width, base=base, at_limit=width == MAX_WIDTH // 2)


@dataclass(frozen=True, kw_only=True)
class Deepest:
    """The result of `deepest`.

    `spec` has the last hidden layer or block `copies` times. `at_limit` is true if this is the largest number of layers
    that a network may have. `step` is in FLOPs.
    """

    spec: Spec
    copies: int
    repeated: str
    at_limit: bool
    parameters: int
    step: int


def deepest(
    spec: Spec, *, flops: int | None = None, parameters: int | None = None, account: Account = _account
) -> Deepest | None:
    """Repeat the last hidden layer as often as the limits allow. Return None if the network itself exceeds a limit.

    From the second copy on, each copy costs the same, so the result is computed by a division.

    >>> found = deepest(Spec.parse("784-256-128-10"), parameters=300_000)
    >>> found.spec, found.copies, found.repeated, found.parameters
    (Spec('784-256-128*4-10'), 4, 'linear2', 284682)
    """
    _require_limit(flops, parameters)
    start, end = _last_hidden(spec)
    one, two, three = (_repeated(spec, start, end, n) for n in (1, 2, 3))
    per_copy = len(three.entries) - len(two.entries)
    most = 1 + (MAX_LAYERS - len(one.entries)) // per_copy
    sizes = [s.n_parameters for s in (one, two, three)]
    steps = [account(s).step for s in (one, two, three)]
    limits = [(limit, values) for limit, values in ((parameters, sizes), (flops, steps)) if limit is not None]
    copies = min(_copies(limit, values, most) for limit, values in limits)
    if not copies:
        return None
    label = next(e.name for e in spec.entries if e.depth == 0 and e.layer is spec.layers[start])
    return Deepest(
        spec=_repeated(spec, start, end, copies),
        copies=copies,
        repeated=label,
        at_limit=copies == most,
        parameters=_value(sizes, copies),
        step=_value(steps, copies),
    )


@dataclass(frozen=True, kw_only=True)
class Time:
    """Predicted training time. It may be a lower bound."""

    seconds: float
    lower_bound: bool


def time(
    spec: Spec,
    *,
    epochs: int,
    rows: int,
    batch: int = 32,
    account: Account = _account,
    machine: Machine | None = None,
    measured: float | None = None,
) -> Time:
    """Predict the training time from the roofline of `machine` (this machine, if not given).

    The roofline uses the calibration of an earlier `mlp cost --measure`; without one, the result is a lower bound.
    `measured` is the timed step of `batch` rows in seconds: every full step takes that long, and the smaller last step
    of an epoch is scaled by the same factor.
    """
    from ..core import machine as machines
    from .roofline import predict, recall

    here = machine or machines.measure()
    full, rest = divmod(rows, batch)
    seconds, lower_bound = 0.0, False
    for steps, size in ((full, batch), (1, rest)):
        if steps and size:
            taken = account(spec, size)
            found = predict(taken, here, calibration=recall(here) if taken.engine == "torch" else None)
            seconds, lower_bound = seconds + steps * found.seconds, lower_bound or not found.calibrated
    if measured is None:
        return Time(seconds=epochs * seconds, lower_bound=lower_bound)
    predicted = predict(account(spec, batch), here, calibration=recall(here)).seconds
    return Time(seconds=epochs * seconds * measured / predicted, lower_bound=False)


# Widths


def hidden_widths(spec: Spec) -> list[int]:
    """Return the widths that scaling may change, in order."""
    widths: list[int] = []

    def record(width: int) -> int:
        widths.append(width)
        return width

    _resized(spec, record)
    return widths


def with_width(spec: Spec, width: int) -> Spec:
    """Return the network with `width` as its widest hidden width and the other hidden widths in proportion.

    >>> with_width(Spec.parse("784-256-128-10"), 64)
    Spec('784-64-32-10')
    """
    base = max(hidden_widths(spec), default=0)
    if not base:
        raise OptionError(
            f"only a network with a hidden layer can be widened, got {str(spec)[:100]}: add a hidden layer"
        )
    multiple = math.lcm(*(layer.divisor for layer in _all_layers(spec.layers)))
    return _resized(spec, lambda w: multiple * max(1, (2 * w * width + base * multiple) // (2 * base * multiple)))


def _resized(spec: Spec, width: Callable[[int], int]) -> Spec:
    return Spec(spec.inputs, _resized_layers(spec.layers, spec, 0, None, width))


def _resized_layers(
    layers: Sequence[Layer], spec: Spec, d: int, out: int | None, width: Callable[[int], int]
) -> Iterator[Layer]:
    """Yield the layers with new widths. `out` is the width of the last one; None keeps it."""
    setting = [i for i, layer in enumerate(layers) if _sets_width(layer)]
    d = d or spec.inputs.numeric
    for i, layer in enumerate(layers):
        if isinstance(layer, Residual):
            yield Residual(tuple(_resized_layers(layer.layers, spec, d, d, width)))
        elif isinstance(layer, Columns):
            d = layer.width(spec.inputs if spec.inputs.categories else d)
            yield layer
        elif _sets_width(layer):
            wide = cast(Any, layer)
            last = i == setting[-1]
            d = (wide.d_out if out is None else out) if last else width(wide.d_out)
            yield replace(wide, d_out=d)
        else:
            yield layer


def _sets_width(layer: Layer) -> bool:
    return hasattr(layer, "d_out")


def _all_layers(layers: Iterable[Layer]) -> Iterator[Layer]:
    for layer in layers:
        yield layer
        if isinstance(layer, Residual):
            yield from _all_layers(layer.layers)


# Depth


def _last_hidden(spec: Spec) -> tuple[int, int]:
    """Return the start and the end of the last hidden layer or block, with its norm and activation."""
    starts = [i for i, layer in enumerate(spec.layers) if _sets_width(layer) or isinstance(layer, Residual)]
    ends = [*starts[1:], len(spec.layers)]
    groups = list(zip(starts, ends, strict=True))
    if groups and not isinstance(spec.layers[groups[-1][0]], Residual):
        groups.pop()  # the output layer
    if not groups:
        raise OptionError(
            f"only a network with a hidden layer can be deepened, got {str(spec)[:100]}: add a hidden layer"
        )
    return groups[-1]


def _repeated(spec: Spec, start: int, end: int, copies: int) -> Spec:
    return Spec(spec.inputs, [*spec.layers[:end], *spec.layers[start:end] * (copies - 1), *spec.layers[end:]])


def _copies(limit: int, values: list[int], most: int) -> int:
    one, two, three = values
    if two > limit:
        return int(one <= limit)
    return most if three == two else min(most, 2 + (limit - two) // (three - two))


def _value(values: list[int], copies: int) -> int:
    one, two, three = values
    return one if copies == 1 else two + (copies - 2) * (three - two)


# Search


def _largest(fits: Callable[[int], bool], *, start: int, most: int) -> int:
    """Return the largest number from 1 to `most` that fits, or 0. If a number fits, all smaller ones fit."""
    low, high = 0, start
    while high < most and fits(high):
        low, high = high, min(2 * high, most)
    if high == most and fits(most):
        return most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _require_limit(flops: int | None, parameters: int | None) -> None:
    if flops is None and parameters is None:
        raise OptionError("a limit is needed, got none: pass flops or parameters")


# Sweep


Over = Literal["batch", "width"]
_MOST = {"batch": 2**40, "width": 2**30}


@dataclass(frozen=True, kw_only=True)
class Point:
    """A value of the batch or of the width, with the cost."""

    value: int
    cost: Cost


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Costs over a range of batch sizes or widths."""

    over: Over
    points: tuple[Point, ...]


def parse_sweep(text: str) -> tuple[Over, tuple[int, ...]]:
    """Return what is varied, and its values: both ends of the range and the powers of two between them.

    >>> parse_sweep("batch=1..20")
    ('batch', (1, 2, 4, 8, 16, 20))
    """
    name, equals, span = (part.strip() for part in text.partition("="))
    if equals and name not in _MOST:
        raise OptionError(unknown_name("sweep", name, _MOST))
    match = re.fullmatch(r"([0-9]{1,15})\.\.([0-9]{1,15})", span)
    low, high = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= low <= high <= _MOST.get(name, 1):
        raise OptionError(f"a sweep is written batch=1..4096 or width=16..1024, got {text[:60]!r}")
    powers = {2**i for i in range(low.bit_length(), high.bit_length())}
    return cast(Over, name), tuple(sorted({low, high, *(p for p in powers if low < p < high)}))


def sweep(
    spec: Spec, *, over: Over, values: tuple[int, ...], batch: int, account: Callable[[Spec, int], Cost]
) -> Sweep:
    """Compute the cost of each value with `account(spec, batch)`. A sweep over the width uses `batch`."""
    points = [
        Point(value=v, cost=account(spec, v) if over == "batch" else account(with_width(spec, v), batch))
        for v in values
    ]
    return Sweep(over=over, points=tuple(points))
