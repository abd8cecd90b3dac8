"""Column importance in the report, within a time limit. `models.importance` describes the method.

Every column is shuffled once, then again while time is left. If shuffling all columns would take too long, those with
the largest variance are used. In images, squares of pixels are shuffled.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from ...models import metrics
from ...models.evaluation_rows import outputs
from ...models.importance import FEWEST_ROWS, NUMBERS, Place, most_rows, places, shuffled
from .quality import number
from .sample import Sample

ROUNDS = 10
SECONDS = 0.3
"""No further round begins after this time."""
FIRST = 3
"""The first round is always complete. The number of rows is chosen so that it takes at most `FIRST * SECONDS`."""
LEAST_COLUMNS = 100
"""Number of columns that are always shuffled: those with the largest variance."""
PROBE = 1024
"""Number of rows for measuring the time of a prediction."""
PATCHES = 10
"""Number of squares of an image in each direction. Smaller images are shuffled pixel by pixel."""


def importance(sample: Sample, metric: str, *, seconds: float = SECONDS) -> dict[str, Any] | None:
    """Return the importance of the columns for the report. None if there are fewer than two rows or no columns."""
    encoding = sample.model.encoding
    columns = list(places(encoding))
    image, patch = encoding.image, 1
    if image is not None:
        patch = -(-max(image[:2]) // PATCHES) if max(image[:2]) > PATCHES else 1
        columns = list(patches(columns, image, patch))
    if len(sample) < 2 or not columns:
        return None
    of = len(columns)
    each = _seconds_per_row(sample)
    most = min(len(sample), most_rows(sample.x.shape[1]))
    rows = max(min(most, FEWEST_ROWS), min(most, int(FIRST * seconds / (each * of))))
    sample = sample.at_most(rows)
    if image is None:
        columns = _varying(sample, columns, max(LEAST_COLUMNS, int(FIRST * seconds / (each * rows))))
    base, drops = shuffled(sample, columns, metric, rounds=ROUNDS, seconds=seconds)
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


def _seconds_per_row(sample: Sample) -> float:
    """Measure the time to predict one row, in seconds."""
    places = np.arange(max(1, min(PROBE, NUMBERS // max(sample.x.shape[1], 1)))) % len(sample)
    started = time.perf_counter()
    codes, judges = (None if one is None else one[places] for one in (sample.codes, sample.judges))
    outputs(sample.model, sample.x[places], cast(Any, codes), cast(Any, judges))
    return (time.perf_counter() - started) / len(places)


def _varying(sample: Sample, columns: list[Place], most: int) -> list[Place]:
    """Return `most` columns in their order: the categorical ones, and numeric ones with the largest variance."""
    if len(columns) <= most:
        return columns
    spread = sample.x[:].var(0)
    by = [-np.inf if code is not None else -float(spread[numbers].max(initial=0.0)) for _, numbers, code in columns]
    return [columns[i] for i in np.sort(np.argsort(by, kind="stable")[:most])]


def patches(columns: list[Place], image: tuple[int, int, int], size: int) -> Iterator[Place]:
    """Yield the squares of an image, row by row. A square contains every channel of its pixels."""
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
