"""A budget for continuous integration: limits on the FLOPs and the memory of a step and on the parameters.

    flops=1e9,memory=100MB,parameters=1M

A quantity is a number with a unit, such as 2GB, 512MiB, 1e9 or 10M. K M G T P are powers of 1000, Ki Mi Gi Ti Pi powers
of 1024. It is computed exactly and rounded down to a whole number. `core.formatting` formats quantities.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from ..errors import BudgetExceeded, OptionError, unknown_name
from .count import Cost

Unit = Literal["bytes", "flops", "count"]
UNITS: dict[str, Unit] = {"flops": "flops", "memory": "bytes", "parameters": "count"}


@dataclass(frozen=True, kw_only=True)
class Item:
    """A limit and the value of the cost. `peak` is the value with the temporary memory of a step."""

    name: str
    value: int
    limit: int
    peak: int

    @property
    def ok(self) -> bool:
        return self.value <= self.limit

    def __str__(self) -> str:
        over = f"{self.value / self.limit:,.2f} times the limit of {self.limit:,}, {self.value - self.limit:,} over"
        return f"{self.name} is {self.value:,}: {over}"


def parse(text: str) -> dict[str, int]:
    """Return the limits by name.

    >>> parse("flops=1e9,memory=100MB")
    {'flops': 1000000000, 'memory': 100000000}
    """
    limits: dict[str, int] = {}
    for part in text.split(","):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals:
            raise OptionError(f"a budget is written name=limit, such as flops=1e9,memory=100MB, got {part.strip()!r}")
        if name not in UNITS:
            raise OptionError(unknown_name("budget", name, UNITS))
        if name in limits:
            raise OptionError(f"the budget for {name} is given twice")
        limits[name] = quantity(value, what=f"the budget for {name}", unit=UNITS[name])
    return limits


def check(cost: Cost, limits: dict[str, int]) -> tuple[Item, ...]:
    """Compare each limit with the cost: `step`, `memory.total` (without temporary memory) or `parameters`."""
    values = {"flops": cost.step, "memory": cost.memory.total, "parameters": cost.parameters}
    temporary = {"memory": int(cost.memory.temporary)}
    return tuple(
        Item(name=name, value=values[name], limit=limit, peak=values[name] + temporary.get(name, 0))
        for name, limit in limits.items()
    )


def require(items: tuple[Item, ...]) -> None:
    """Raise an error with every exceeded limit."""
    over = [str(item) for item in items if not item.ok]
    if over:
        raise BudgetExceeded("over budget: " + "; ".join(over))


# Quantities

_QUANTITY = re.compile(
    r"\s*([0-9][0-9_,]*\.?[0-9]*|\.[0-9]+)(?:e([+-]?[0-9]{1,2}))?\s*(?:([kmgtp])(i?))?(b|flops?)?\s*", re.IGNORECASE
)
_EXAMPLES = {"bytes": "2GB, 512MiB or 1e9", "flops": "1e9, 10M or 1.5G", "count": "1e6, 10M or 235146"}
_WORDS = {"bytes": ("", "b"), "flops": ("", "flop", "flops"), "count": ("",)}
LEAST_PLAIN = 1_000_000
"""Numbers of bytes below this need a unit: `2` rarely means two bytes."""


def quantity(text: str, *, what: str, unit: Unit = "count") -> int:
    """Return a quantity of at least 1; `what` names the option in the error.

    >>> quantity("2GB", what="memory", unit="bytes"), quantity("1.5MiB", what="memory", unit="bytes")
    (2000000000, 1572864)
    """
    match = _QUANTITY.fullmatch(text) if len(text) <= 60 else None
    number, exponent, prefix, binary, word = match.groups(default="") if match else ("",) * 5
    if not number or word.lower() not in _WORDS[unit] or (binary and unit != "bytes"):
        raise OptionError(f"{what} must be a quantity such as {_EXAMPLES[unit]}, got {text[:60]!r}")
    factor = (1024 if binary else 1000) ** (" kmgtp".index(prefix.lower()) if prefix else 0)
    value = int(Fraction(re.sub("[_,]", "", number)) * Fraction(10) ** int(exponent or 0) * factor)
    if value < 1:
        raise OptionError(f"{what} must be at least 1, got {text!r}")
    if unit == "bytes" and not prefix + word and value < LEAST_PLAIN:
        raise OptionError(
            f"{what} needs a unit, got {text!r}: write {text.strip()}GB, {text.strip()}MB or {text.strip()}B"
        )
    return value
