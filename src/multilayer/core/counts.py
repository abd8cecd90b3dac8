"""Integers with the formula that they were computed from.

A cost is written once, as arithmetic on named sizes. The result is an integer and its formula.

    >>> B, I, O = named(B=32, I=784, O=256)
    >>> matmul = 2 * B * I * O
    >>> matmul, matmul.formula, matmul.numbers
    (12845056, '2·B·I·O', '2·32·784·256')

`Count` is an int and can be used like one, also in JSON. Only +, − and × with integers keep the formula. Other
operations return a plain number.
"""

from __future__ import annotations

from typing import SupportsIndex


class Count(int):
    """An int with a `formula` in symbols, and the same formula in `numbers`."""

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
    """Return one `Count` for each size, with its name as the formula."""
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
