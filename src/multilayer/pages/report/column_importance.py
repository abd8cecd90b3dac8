"""Which columns a model relies on: how much worse it gets when one of them is shuffled among the rows.

Permutation importance (Breiman 2001; Fisher, Rudin & Dominici 2019): a column keeps its values and loses what they say
of the row. All numbers of a column move together: the parts of a date, and whether it was missing. Every column is
shuffled once, then again while time is left; the mean and the standard deviation are over those rounds. Columns that
tell the same share what they have to tell: each of them may look as if it did not matter. Where columns are so many
that shuffling each would take too long, those that vary most are looked at.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ...core import random
from ...data.encoding import Encoding
from ...models import metrics
from ...models.metrics import truth_and_given
from .quality import number
from .sample import Array, Sample, outputs

ROUNDS = 10
SECONDS = 0.3
"""After so long no further round begins."""
FIRST = 3
"""So many times as long the first round may take, which is always whole: on as many rows as fit into it."""
MOST_ROWS, FEWEST_ROWS = 1000, 32
LEAST_COLUMNS = 100
"""Columns that are always looked at, the most varying ones."""
BLOCK, NUMBERS = 8192, 1 << 22
"""Rows that go through the network at a time, and the numbers they may hold."""
PROBE = 1024
"""Rows that tell how long one takes."""
PATCHES = 10
"""Of a picture in each direction; smaller pictures are looked at pixel by pixel."""


def importance(sample: Sample, metric: str, *, seconds: float = SECONDS) -> dict[str, Any] | None:
    """None where there are too few rows, or no column."""
    encoding = sample.model.encoding
    columns = list(places(encoding))
    image, patch = encoding.image, 1
    if image is not None:
        patch = -(-max(image[:2]) // PATCHES) if max(image[:2]) > PATCHES else 1
        columns = list(patches(columns, image, patch))
    if len(sample) < 2 or not columns:
        return None
    of, width = len(columns), sample.x.shape[1]
    each = _seconds_a_row(sample)
    most = min(len(sample), MOST_ROWS, max(FEWEST_ROWS, NUMBERS // max(width, 1)))
    rows = max(min(most, FEWEST_ROWS), min(most, int(FIRST * seconds / (each * of))))
    if rows < len(sample):
        sample = sample.take(np.sort(random.permutation(len(sample), seed=0, epoch=1)[:rows]))
    if image is None:
        columns = _varying(sample, columns, max(LEAST_COLUMNS, int(FIRST * seconds / (each * rows))))
    function, higher = metrics.get(metric).function, metrics.get(metric).better == "higher"
    base = function(*sample.sides, sample.weights)
    worse: list[list[float]] = []
    started = time.perf_counter()
    while len(worse) < ROUNDS and (not worse or time.perf_counter() - started < seconds):
        order = random.permutation(rows, seed=0, epoch=2 + len(worse))
        with np.errstate(all="ignore"):
            values = list(_values(sample, columns, order, function))
        worse.append([base - value if higher else value - base for value in values])
    drops = np.array(worse)  # (rounds, columns)
    found: list[dict[str, Any]] = [
        {
            "name": name,
            "mean": number(float(drops[:, i].mean())),
            "sd": number(float(drops[:, i].std(ddof=1))) if len(drops) > 1 else None,
        }
        for i, (name, _, _) in enumerate(columns)
    ]
    if image is None:
        found.sort(key=lambda column: column["mean"] or 0.0, reverse=True)
    return {
        "metric": metric,
        "better": metrics.get(metric).better,
        "base": number(base),
        "rounds": len(drops),
        "rows": rows,
        "image": None if image is None else [-(-image[0] // patch), -(-image[1] // patch), 1],
        "patch": patch,
        "of": of,
        "columns": found,
    }


def _seconds_a_row(sample: Sample) -> float:
    """As a block of rows tells."""
    places = np.arange(max(1, min(PROBE, NUMBERS // max(sample.x.shape[1], 1)))) % len(sample)
    started = time.perf_counter()
    codes, judges = (None if one is None else one[places] for one in (sample.codes, sample.judges))
    outputs(sample.model, sample.x[places], cast(Any, codes), cast(Any, judges))
    return (time.perf_counter() - started) / len(places)


def _varying(sample: Sample, columns: list[Place], most: int) -> list[Place]:
    """So many of the columns, in their order: those whose numbers vary most; categories all count as varying."""
    if len(columns) <= most:
        return columns
    spread = sample.x[:].var(0)
    by = [-np.inf if code is not None else -float(spread[numbers].max(initial=0.0)) for _, numbers, code in columns]
    return [columns[i] for i in np.sort(np.argsort(by, kind="stable")[:most])]


Place = tuple[str, list[int], int | None]
"""A column, its numbers in x, and its place among the codes."""


def places(encoding: Encoding) -> Iterator[Place]:
    """Where each column that is used stands in what the network reads."""
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


def patches(columns: list[Place], image: tuple[int, int, int], size: int) -> Iterator[Place]:
    """Squares of a picture, row by row; every channel of a pixel belongs to its square."""
    height, width, channels = image
    if size == 1 and channels == 1:
        yield from columns
        return
    for top in range(0, height, size):
        for left in range(0, width, size):
            square = [
                columns[(y * width + x) * channels + c][1]
                for y in range(top, min(top + size, height))
                for x in range(left, min(left + size, width))
                for c in range(channels)
            ]
            name = f"row {top}, column {left}"
            yield (f"square at {name}" if size > 1 else name), [place for part in square for place in part], None


def _values(sample: Sample, columns: list[Place], order: NDArray[np.int64], function: Any) -> Iterator[float]:
    """The metric with each column shuffled in turn; as many of them at a time as make a block."""
    n, own = len(sample), sample.x[:]
    together = max(1, min(BLOCK, NUMBERS // max(own.shape[1], 1)) // n)
    for start in range(0, len(columns), together):
        part = columns[start : start + together]
        x = np.tile(own, (len(part), 1))
        codes = None if sample.codes is None else np.tile(sample.codes, (len(part), 1))
        for i, (_, numbers, code) in enumerate(part):
            rows = slice(i * n, (i + 1) * n)
            x[rows, numbers] = own[order][:, numbers]
            if codes is not None and sample.codes is not None and code is not None:
                codes[rows, code] = sample.codes[order, code]
        judges = None if sample.judges is None else np.tile(sample.judges, (len(part), 1))
        z = outputs(sample.model, x, codes, judges)
        for i in range(len(part)):
            yield _judged(sample, z[i * n : (i + 1) * n], function)


def _judged(sample: Sample, z: Array, function: Any) -> float:
    return function(*truth_and_given(sample.task, sample.y, z, sample.loss), sample.weights)
