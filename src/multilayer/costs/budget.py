"""A budget for continuous integration: limits on a step's FLOPs, a step's memory and the parameters.

flops=1e9,memory=100MB,parameters=1M
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import BudgetExceeded, OptionError, unknown_name
from . import quantity
from .count import Cost
from .quantity import Unit

UNITS: dict[str, Unit] = {"flops": "flops", "memory": "bytes", "parameters": "count"}


@dataclass(frozen=True, kw_only=True)
class Item:
    name: str
    value: int
    limit: int

    @property
    def ok(self) -> bool:
        return self.value <= self.limit

    def __str__(self) -> str:
        over = f"{self.value / self.limit:,.2f} times the limit of {self.limit:,}, {self.value - self.limit:,} over"
        return f"{self.name} is {self.value:,}: {over}"


def parse(text: str) -> dict[str, int]:
    """
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
        limits[name] = quantity.parse(value, what=f"the budget for {name}", unit=UNITS[name])
    return limits


def check(cost: Cost, limits: dict[str, int]) -> tuple[Item, ...]:
    """Each limit with the figure it holds against: `step`, `memory.total` and `parameters`."""
    values = {"flops": cost.step, "memory": cost.memory.total, "parameters": cost.parameters}
    return tuple(Item(name=name, value=values[name], limit=limit) for name, limit in limits.items())


def require(items: tuple[Item, ...]) -> None:
    """Raises what is over, each item by how much."""
    over = [str(item) for item in items if not item.ok]
    if over:
        raise BudgetExceeded("over budget: " + "; ".join(over))
