"""Permutation importance: how much worse a model gets if the values of a column are shuffled among the rows.

A shuffled column keeps its values, but they no longer say anything about the row (Breiman 2001; Fisher, Rudin &
Dominici 2019). All encoded numbers of a column are shuffled together, for example the parts of a date or the
missing-value indicator.
Columns with the same information share their importance, so each of them may seem useless.
"""

from __future__ import annotations

import html
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core import random
from ..data.encoding import Encoding
from ..errors import DataError
from . import metrics
from .evaluation_rows import Array, EvaluationRows, outputs
from .metrics import truth_and_given

ROUNDS = 5
MOST_ROWS, FEWEST_ROWS = 1000, 32
BLOCK, NUMBERS = 8192, 1 << 22
"""Largest number of rows in one prediction, and largest number of values in these rows."""
MOST_PREDICTIONS = 1 << 21
"""Largest number of predictions per round, which is rows × columns. If there would be more, fewer rows are used."""

Place = tuple[str, list[int], int | None]
"""The name of a column, the positions of its numbers in x, and its position among the category codes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Importance:
    """Permutation importance of the columns of a model, the most important column first.

    Attributes
    ----------
    metric : str
        The metric that was measured, such as ``"accuracy"``.
    value : float
        The metric with unchanged columns.
    means : dict of str to float
        By column, how much worse the metric was with shuffled values, on average over the rounds.
    deviations : dict of str to float
        By column, the standard deviation over the rounds.
    rows, rounds : int
        Number of rows that were used, and how often each column was shuffled.

    Examples
    --------
    >>> import multilayer as ml
    >>> found = ml.fit("4-16-3", "iris", epochs=20, quiet=True).model.importance("iris", rounds=2)
    >>> found.metric, found.rows, found.rounds, len(found.means)
    ('accuracy', 150, 2, 4)
    """

    metric: str
    value: float
    means: Mapping[str, float]
    deviations: Mapping[str, float]
    rows: int
    rounds: int

    def __repr__(self) -> str:
        wide = max(map(len, self.means), default=0)
        lines = [f"{name:<{wide}}  {mean:8.4f} ± {self.deviations[name]:.4f}" for name, mean in self.means.items()]
        return "\n".join([self._title(), *lines])

    def _repr_html_(self) -> str:
        """Return a table with a bar for each column, for notebooks."""
        largest = max(map(abs, self.means.values()), default=0.0) or 1.0
        rows = [
            f'<tr><td style="text-align:left">{html.escape(name)}</td><td>{mean:.4f}</td>'
            f"<td>± {self.deviations[name]:.4f}</td>"
            f'<td><meter min="0" max="1" value="{max(mean, 0.0) / largest:.3f}"></meter></td></tr>'
            for name, mean in self.means.items()
        ]
        return f"<table><caption>{html.escape(self._title())}</caption>{''.join(rows)}</table>"

    def _title(self) -> str:
        return f"decrease in quality if a column is shuffled ({self.metric} {self.value:.4f}, {self.rows:,} rows)"


def importance(rows: EvaluationRows, metric: str | None = None, *, rounds: int = ROUNDS) -> Importance:
    """Return the importance of every column. By default, the metric is accuracy for classes and R² for numbers."""
    usual = "accuracy" if rows.task.classifies else "r2"
    name = usual if metric is None else metrics.fitting(metric, rows.task).name
    columns = list(places(rows.model.encoding))
    if len(rows) < 2:
        raise DataError(f"importance needs at least two rows with a target, got {len(rows)}: pass more rows")
    rows = rows.at_most(min(most_rows(rows.x.shape[1]), max(FEWEST_ROWS, MOST_PREDICTIONS // max(len(columns), 1))))
    value, drops = shuffled(rows, columns, name, rounds=rounds)
    means, deviations = drops.mean(0), drops.std(0)
    order = np.argsort(-means, kind="stable")
    return Importance(
        metric=name,
        value=value,
        means={columns[i][0]: float(means[i]) for i in order},
        deviations={columns[i][0]: float(deviations[i]) for i in order},
        rows=len(rows),
        rounds=len(drops),
    )


def most_rows(width: int) -> int:
    """Return the largest number of rows that are used if each row is encoded as `width` numbers."""
    return min(MOST_ROWS, max(FEWEST_ROWS, NUMBERS // max(width, 1)))


def shuffled(
    rows: EvaluationRows, columns: Sequence[Place], metric: str, *, rounds: int, seconds: float = math.inf
) -> tuple[float, NDArray[np.float64]]:
    """Return the metric, and how much worse it is with each column shuffled (rounds, columns).

    No round begins after `seconds`, except for the first.
    """
    function, higher = metrics.get(metric).function, metrics.get(metric).better == "higher"
    base = function(*rows.sides, rows.weights)
    worse: list[list[float]] = []
    started = time.perf_counter()
    while len(worse) < rounds and (not worse or time.perf_counter() - started < seconds):
        order = random.permutation(len(rows), seed=0, epoch=2 + len(worse))
        with np.errstate(all="ignore"):
            values = list(_values(rows, columns, order, function))
        worse.append([base - value if higher else value - base for value in values])
    return base, np.array(worse)


def places(encoding: Encoding) -> Iterator[Place]:
    """Yield where the numbers and codes of each column are in the encoded rows. Dropped columns are left out."""
    indicator, start = len(encoding.center), 0
    numbers: dict[str, list[int]] = {}
    for column in encoding.numeric:
        numbers[column.name] = list(range(start, start + len(column.parts)))
        start += len(column.parts)
        if column.indicator:
            numbers[column.name].append(indicator)
            indicator += 1
    codes = {column.name: i for i, column in enumerate(encoding.categorical)}
    for column in encoding.columns:
        if column.name in numbers or column.name in codes:
            yield column.name, numbers.get(column.name, []), codes.get(column.name)


def _values(rows: EvaluationRows, columns: Sequence[Place], order: NDArray[np.int64], function: Any) -> Iterator[float]:
    """Yield the metric with each column shuffled. As many columns as fit into a block are evaluated together."""
    n, given = len(rows), rows.x[:]
    together = max(1, min(BLOCK, NUMBERS // max(given.shape[1], 1)) // n)
    for start in range(0, len(columns), together):
        part = columns[start : start + together]
        x = np.tile(given, (len(part), 1))
        codes = None if rows.codes is None else np.tile(rows.codes, (len(part), 1))
        for i, (_, numbers, code) in enumerate(part):
            block = slice(i * n, (i + 1) * n)
            x[block, numbers] = given[order][:, numbers]
            if codes is not None and rows.codes is not None and code is not None:
                codes[block, code] = rows.codes[order, code]
        judges = None if rows.judges is None else np.tile(rows.judges, (len(part), 1))
        z = outputs(rows.model, x, codes, judges)
        for i in range(len(part)):
            yield _metric(rows, z[i * n : (i + 1) * n], function)


def _metric(rows: EvaluationRows, z: Array, function: Any) -> float:
    return function(*truth_and_given(rows.task, rows.y, z, rows.loss), rows.weights)
