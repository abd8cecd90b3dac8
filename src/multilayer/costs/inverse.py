"""Questions asked backwards: what fits, and how long it lasts.

    largest_batch   the most rows a batch may have within so many bytes
    widest          all hidden widths scaled by one factor, inputs and outputs kept, within FLOPs or parameters
    deepest         the last hidden layer (or residual block) repeated, within FLOPs or parameters
    time            seconds of so many epochs, from this machine's measured roofline
    sweep           the cost as the batch or the widest hidden layer grows, at powers of two: batch=1..4096

Each answer is exact: it fits, and the next larger one does not. `account` prices a network as the asker would, by
default as `multilayer.cost` does. FLOPs are those of `Cost.step` and bytes those of
`Memory.total`, the very figures that an account of the answer shows.

Scaling: with W the widest hidden width and t its new one, a hidden width w becomes w·t/W, rounded half up, at least 1
and a multiple of what group norms ask for. A width that must equal another one (the end of a residual block) follows
it. Equal widths stay equal, and no width ever falls as t grows, so that bisection over t finds the largest.
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
"""Where the search for a batch ends: memory that does not grow with the batch would never stop it."""
MAX_WIDTH = 2**31


class Account(Protocol):
    """What a step of a network costs; without a batch, that of the one who asks."""

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
    """The most rows that fit; 0 if not even one does, `MAX_BATCH` if their number hardly matters.

    `temporary` counts the largest temporary too, which `Memory.total` leaves out.

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
    """`spec` has its widest hidden layer at `width`, where the network that was asked about had it at `base`;
    `at_limit` when the search ended there."""

    spec: Spec
    width: int
    base: int
    at_limit: bool


def widest(
    spec: Spec, *, flops: int | None = None, parameters: int | None = None, account: Account = _account
) -> Widest | None:
    """The widest network of the same form within the limits; None if not even widths of 1 fit.

    >>> widest(Spec.parse("784-256-128-10"), parameters=1_000_000)
    Widest(spec=Spec('784-829-415-10'), width=829, base=256, at_limit=False)
    """
    _require_limit(flops, parameters)
    base = max(hidden_widths(spec), default=0)
    if not base:
        raise OptionError(f"only a network with a hidden layer can be widened, got {str(spec)[:100]}")

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
    """`spec` has its last hidden layer or block `copies` times; `at_limit` when no network may have more layers.
    `step` is in FLOPs."""

    spec: Spec
    copies: int
    repeated: str
    at_limit: bool
    parameters: int
    step: int


def deepest(
    spec: Spec, *, flops: int | None = None, parameters: int | None = None, account: Account = _account
) -> Deepest | None:
    """The deepest network made by repeating the last hidden layer; None if the network itself is over a limit.

    From the second copy on every copy costs the same, so the answer is a division.

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
    """Widths that scaling may change, in order."""
    found: list[int] = []

    def note(width: int) -> int:
        found.append(width)
        return width

    _resized(spec, note)
    return found


def with_width(spec: Spec, width: int) -> Spec:
    """The network with its widest hidden layer at `width` and all other hidden widths in proportion.

    >>> with_width(Spec.parse("784-256-128-10"), 64)
    Spec('784-64-32-10')
    """
    base = max(hidden_widths(spec), default=0)
    if not base:
        raise OptionError(f"only a network with a hidden layer can be widened, got {str(spec)[:100]}")
    multiple = math.lcm(*(layer.divisor for layer in _all_layers(spec.layers)))
    return _resized(spec, lambda w: multiple * max(1, (2 * w * width + base * multiple) // (2 * base * multiple)))


def _resized(spec: Spec, width: Callable[[int], int]) -> Spec:
    return Spec(spec.inputs, _resized_layers(spec.layers, spec, 0, None, width))


def _resized_layers(
    layers: Sequence[Layer], spec: Spec, d: int, out: int | None, width: Callable[[int], int]
) -> Iterator[Layer]:
    """`out` is the width the layers must end with; None keeps that of the last one that sets a width."""
    setting = [i for i, layer in enumerate(layers) if _sets_width(layer)]
    d = d or spec.inputs.numeric
    for i, layer in enumerate(layers):
        if isinstance(layer, Residual):
            yield Residual(tuple(_resized_layers(layer.layers, spec, d, d, width)))
        elif isinstance(layer, Columns):
            d = layer.width(spec.inputs if spec.inputs.categories else d)
            yield layer
        elif _sets_width(layer):
            own = cast(Any, layer)
            last = i == setting[-1]
            d = (own.d_out if out is None else out) if last else width(own.d_out)
            yield replace(own, d_out=d)
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
    """Where the last hidden layer or block begins, and where what follows it does: norm and activation belong to it."""
    starts = [i for i, layer in enumerate(spec.layers) if _sets_width(layer) or isinstance(layer, Residual)]
    ends = [*starts[1:], len(spec.layers)]
    groups = list(zip(starts, ends, strict=True))
    if groups and not isinstance(spec.layers[groups[-1][0]], Residual):
        groups.pop()  # the output layer
    if not groups:
        raise OptionError(f"only a network with a hidden layer can be deepened, got {str(spec)[:100]}")
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
    """The largest number from 1 to `most` that fits, 0 if 1 does not; whoever fits, so does everything smaller."""
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
        raise OptionError("a limit is needed: flops or parameters")


# Sweep


Over = Literal["batch", "width"]
_MOST = {"batch": 2**40, "width": 2**30}


@dataclass(frozen=True, kw_only=True)
class Point:
    value: int
    cost: Cost


@dataclass(frozen=True, kw_only=True)
class Sweep:
    over: Over
    points: tuple[Point, ...]


def parse_sweep(text: str) -> tuple[Over, tuple[int, ...]]:
    """
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
    """`account(spec, batch)` gives the cost of one point; `batch` holds while the width is swept."""
    points = [
        Point(value=v, cost=account(spec, v) if over == "batch" else account(with_width(spec, v), batch))
        for v in values
    ]
    return Sweep(over=over, points=tuple(points))
