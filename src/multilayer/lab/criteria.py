"""Criteria and verdicts: what must be measured for a claim to hold.

A criterion computes one number from the rows of each seed, and compares it with a bound. The n numbers of n seeds have
the mean m and the standard deviation s. The 95 % interval of the mean is m ± t s/√n, with t from Student's
distribution.

    met        the whole interval is on the right side of the bound
    not met    the whole interval is on the wrong side
    unclear    the bound is inside the interval: more seeds are needed

A claim holds if all its criteria are met, and does not hold here if none is. Otherwise it holds partly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..core.formatting import number
from ..errors import DataError
from .rows import Rows

Outcome = Literal["met", "not met", "unclear"]
Verdict = Literal["holds", "holds partly", "does not hold here"]
VERDICTS: tuple[Verdict, ...] = ("holds", "holds partly", "does not hold here")

LEVEL = 0.95
"""Level of the intervals."""


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """A number for each seed, and the bound that it must reach. Exactly one of the bounds is given.

    `value` may return infinity, for example for a run that diverged. If it returns NaN for a seed, for example because
    both sides of a ratio are infinite or 0, or finds no rows, the criterion is not measured and its outcome unclear.
    """

    statement: str
    """What must be true, as a sentence with the bound, such as "The error falls by a factor of at least 10."."""
    value: Callable[[Rows], float]
    at_least: float | None = None
    at_most: float | None = None
    log: bool = False
    """Whether mean and interval are computed on logarithms, for ratios that differ by orders of magnitude."""

    def __post_init__(self) -> None:
        assert (self.at_least is None) != (self.at_most is None), f"a criterion has one bound: {self.statement}"

    def judge(self, rows: Rows) -> Judgement:
        """Compute the number for each seed, and compare the interval over the seeds with the bound."""
        found = [self._of(own) for _, own in rows.by("seed")]
        assert found, f"no seed: {self.statement}"
        mean, low, high = interval(found, log=self.log)
        return Judgement(
            statement=self.statement,
            mean=mean,
            low=low,
            high=high,
            at_least=self.at_least,
            at_most=self.at_most,
            outcome=self._outcome(low, high),
        )

    def _of(self, rows: Rows) -> float:
        """Return the number of one seed, or NaN if its rows do not determine it."""
        try:
            with np.errstate(divide="ignore", invalid="ignore"):
                return self.value(rows)
        except (DataError, ZeroDivisionError):
            return math.nan

    def _outcome(self, low: float, high: float) -> Outcome:
        if self.at_least is not None:
            return "met" if low >= self.at_least else "not met" if high < self.at_least else "unclear"
        assert self.at_most is not None
        return "met" if high <= self.at_most else "not met" if low > self.at_most else "unclear"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The number of a criterion over all seeds: its mean and its interval."""

    statement: str
    mean: float
    low: float
    high: float
    at_least: float | None
    at_most: float | None
    outcome: Outcome

    @property
    def bound(self) -> str:
        """The bound as text.

        >>> Criterion(statement="…", value=len, at_least=2).judge(Rows([{"seed": 0}])).bound
        '≥ 2'
        """
        return f"≥ {number(self.at_least)}" if self.at_least is not None else f"≤ {number(self.at_most or 0.0)}"

    @property
    def measured(self) -> str:
        """The mean with its interval as text."""
        if math.isnan(self.mean):
            return "not measured"
        if self.low == self.high:
            return number(self.mean)
        return f"{number(self.mean)} ({number(self.low)} to {number(self.high)})"

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def interval(values: Iterable[float], *, log: bool = False) -> tuple[float, float, float]:
    """Return mean, lower and upper end of the interval of the mean. With one value, all three are this value.

    With `log`, the values must be positive, and the mean is the geometric mean. With a value that is infinite or, with
    `log`, 0, the interval is that from the smallest to the largest value.

    >>> [round(number, 3) for number in interval([1.0, 2.0, 3.0])]
    [2.0, -0.484, 4.484]
    """
    found = np.asarray(list(values), dtype=np.float64)
    if log and np.isfinite(found).all() and (found > 0).all():
        mean, low, high = interval(np.log(found))
        return math.exp(mean), math.exp(low), math.exp(high)
    if log or not np.isfinite(found).all():
        return float(found.mean()), float(found.min()), float(found.max())
    mean, n = float(found.mean()), len(found)
    if n < 2 or found.min() == found.max():
        return mean, mean, mean
    from scipy.special import stdtrit

    half = float(stdtrit(n - 1, (1 + LEVEL) / 2)) * float(found.std(ddof=1)) / math.sqrt(n)
    return mean, mean - half, mean + half


def verdict(judgements: Iterable[Judgement]) -> Verdict:
    """Return the verdict about a claim."""
    outcomes = {one.outcome for one in judgements}
    if outcomes == {"met"}:
        return "holds"
    return "holds partly" if "met" in outcomes else "does not hold here"
