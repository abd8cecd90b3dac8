"""What a row of data is made of: so many numbers, and columns of categories with so many known values each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...errors import SpecError
from .base import whole


@dataclass(frozen=True)
class Inputs:
    """`numeric` numbers, then one whole number per category column: 0 for missing or unknown, 1..n for its n values.

    >>> Inputs(numeric=13, categories=(3, 12))
    Inputs(numeric=13, categories=(3, 12))
    """

    numeric: int = 0
    categories: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "numeric", whole("inputs", self.numeric, least=0))
        if not isinstance(self.categories, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise SpecError(f"categories must be one number for each column, got {self.categories!r}: write (3, 12)")
        object.__setattr__(self, "categories", tuple(whole("categories", n) for n in self.categories))
        if not self.numeric and not self.categories:
            raise SpecError("a network needs at least one input, got none")

    @staticmethod
    def of(inputs: int | Inputs) -> Inputs:
        if isinstance(inputs, Inputs):
            return inputs
        return Inputs(numeric=whole("inputs", inputs))

    @property
    def count(self) -> int:
        """Values in a row."""
        return self.numeric + len(self.categories)
