"""Cost as one size grows: the batch, or the widths of the hidden layers.

    batch=1..4096   1, 2, 4, … 4096
    width=16..1024  the widest hidden layer at 16, 32, … 1024, the others in proportion (`inverse.with_width`)

The values are the ends and the powers of two between them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

from ..errors import OptionError, unknown_name
from ..spec import Spec
from .count import Cost
from .inverse import with_width

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


def parse(text: str) -> tuple[Over, tuple[int, ...]]:
    """
    >>> parse("batch=1..20")
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
