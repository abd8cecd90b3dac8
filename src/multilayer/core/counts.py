"""Whole numbers that remember the formula they came from.

A cost is written once, as arithmetic on named sizes, and read twice: as an integer and as the formula beside it.

    >>> B, I, O = named(B=32, I=784, O=256)
    >>> matmul = 2 * B * I * O
    >>> matmul, matmul.formula, matmul.numbers
    (12845056, '2·B·I·O', '2·32·784·256')

`Count` is an int, so it goes wherever an int goes (JSON included). Only + − and × with whole numbers keep the formula;
anything else gives a plain number.
"""

from __future__ import annotations

from typing import SupportsIndex


class Count(int):
    """An int with `formula` (its letters) and `numbers` (its figures)."""

    formula: str
    numbers: str
    _is_sum: bool

    def __new__(cls, value: int, formula: str | None = None, numbers: str | None = None, *, is_sum: bool = False):
        count = super().__new__(cls, value)
        count.formula = str(value) if formula is None else formula
        count.numbers = str(value) if numbers is None else numbers
        count._is_sum = is_sum
        return count

    def __add__(self, other: int) -> Count:
        return _sum(self, count(other), "+") if hasattr(other, "__index__") else NotImplemented

    def __radd__(self, other: int) -> Count:
        return _sum(count(other), self, "+")

    def __sub__(self, other: int) -> Count:
        return _sum(self, count(other), "−") if hasattr(other, "__index__") else NotImplemented

    def __rsub__(self, other: int) -> Count:
        return _sum(count(other), self, "−")

    def __mul__(self, other: SupportsIndex) -> Count:
        return _product(self, count(other)) if hasattr(other, "__index__") else NotImplemented

    def __rmul__(self, other: SupportsIndex) -> Count:
        return _product(count(other), self)

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)


def count(value: SupportsIndex) -> Count:
    return value if isinstance(value, Count) else Count(int(value))


def named(**sizes: int) -> tuple[Count, ...]:
    """One `Count` for each size, under its letter."""
    return tuple(Count(int(size), letter, str(int(size))) for letter, size in sizes.items())


def _sum(a: Count, b: Count, sign: str) -> Count:
    value = int(a) + int(b) if sign == "+" else int(a) - int(b)
    if int(b) == 0 and b.formula == "0":
        return a
    if int(a) == 0 and a.formula == "0" and sign == "+":
        return b
    bracket = sign == "−" and b._is_sum  # pyright: ignore[reportPrivateUsage]
    right = (f"({b.formula})", f"({b.numbers})") if bracket else (b.formula, b.numbers)
    return Count(value, f"{a.formula} {sign} {right[0]}", f"{a.numbers} {sign} {right[1]}", is_sum=True)


def _product(a: Count, b: Count) -> Count:
    def factor(c: Count) -> tuple[str, str]:
        return (f"({c.formula})", f"({c.numbers})") if c._is_sum else (c.formula, c.numbers)  # pyright: ignore[reportPrivateUsage]

    if a.formula == "1" or b.formula == "1":
        return b if a.formula == "1" else a
    if a.formula == "0" or b.formula == "0":
        return Count(0)
    (f, m), (g, n) = factor(a), factor(b)
    return Count(int(a) * int(b), f"{f}·{g}", f"{m}·{n}")
