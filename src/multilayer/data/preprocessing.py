"""Preprocessing steps, applied one after another to the values of a column before a network reads them.

    step            takes                        gives
    DateParts       seconds (N,)                 numbers (N, parts): days or hours, and (sin, cos) of periods
    Unlearned       any numbers (N, V)           NaN, which FillMissing replaces by a constant
    FillMissing     numbers (N, V), NaN missing  numbers (N, V) without NaN
    Standardise     numbers (N, V)               (x − center)/scale; also the targets of a regression, and back
    SmoothClip      numbers (N, V)               x/√(1 + (x/3)²), within ±3 (Holzmüller et al. 2024)
    Codes           values of a column (N,)      whole numbers: 0 missing or unknown, else 1 … n in sorted order

A step is a frozen dataclass; `apply` is its numpy implementation. V numbers are processed together. `at` returns the
step for some of them. Other implementations are tables keyed by the type of step, in `export/onnx/columns.py` and
`export/torch_module.py`, which lists the steps that it does not have. `Encoding.steps_of` gives the steps of a column.

This module does not read columns (see `columns`), and does not compute missing-value indicators: `Encoding.transform`
computes them from the values before the first step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .table import pc, to_numpy

Floats = NDArray[np.float64]
Place = slice | NDArray[np.int64]

HOUR = 3600.0
DAY = 86_400.0
YEAR = 365.2425
"""Days in a mean Gregorian year. This is accurate enough for seasons."""
THURSDAY = 3
"""Days from Monday to the weekday of day 0 (Thursday, 1 January 1970)."""
FAR = 4e154
"""SmoothClip first limits values to ±FAR, because (x/3)² would overflow. The result is ±3 in both cases."""


@dataclass(frozen=True, kw_only=True)
class DateParts:
    """Seconds since midnight (`time`) or since 1970-01-01 (`date`, `datetime`), as numbers and (sin, cos) of periods.

    `parts` lists the numbers that are used, by position in `columns.PARTS`. None means all.
    """

    kind: str
    parts: tuple[int, ...] | None = None

    def apply(self, seconds: Floats) -> Floats:
        days = seconds / DAY
        if self.kind == "time":
            found = [seconds / HOUR, *_circle(days)]
        else:
            found = [days, *_circle(days / YEAR), *_circle((days + THURSDAY) / 7)]
            found += _circle(days) if self.kind == "datetime" else ()
        return np.stack(found if self.parts is None else [found[part] for part in self.parts], 1)


@dataclass(frozen=True, kw_only=True)
class Unlearned:
    """A column without values in the training data: all its values are read as missing."""

    def apply(self, values: Floats) -> Floats:
        return np.full_like(values, np.nan)


@dataclass(frozen=True, kw_only=True, eq=False)
class FillMissing:
    """Replace missing numbers by `fill` (V,), the median of the training rows."""

    fill: Floats

    def at(self, place: Place) -> FillMissing:
        return FillMissing(fill=self.fill[place])

    def apply(self, values: Floats) -> Floats:
        return np.where(np.isnan(values), self.fill, values)


@dataclass(frozen=True, kw_only=True, eq=False)
class Standardise:
    """Subtract `center` (V,) and divide by `scale` (V,)."""

    center: Floats
    scale: Floats

    def at(self, place: Place) -> Standardise:
        return Standardise(center=self.center[place], scale=self.scale[place])

    def apply(self, values: Floats) -> Floats:
        return (values - self.center) / self.scale

    def invert(self, values: Floats) -> Floats:
        return values * self.scale + self.center


@dataclass(frozen=True, kw_only=True)
class SmoothClip:
    """Limit numbers smoothly to ±3."""

    def at(self, place: Place) -> SmoothClip:
        return self

    def apply(self, values: Floats) -> Floats:
        values = np.minimum(np.maximum(values, -FAR), FAR)
        return values / np.sqrt(1 + (values / 3) ** 2)


@dataclass(frozen=True, kw_only=True, eq=False)
class Codes:
    """Map the values of `vocabulary`, a sorted Arrow array, to whole numbers.

    `constant` marks a column with a single value so far: the code of every value is 1.
    """

    vocabulary: Any
    constant: bool = False

    def apply(self, keys: Any) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the codes, and which values are neither missing nor in the vocabulary."""
        known = self.vocabulary
        if self.constant:
            return np.ones(len(keys), dtype=np.int64), np.zeros(len(keys), dtype=np.bool_)
        if pa.types.is_null(keys.type):
            return np.zeros(len(keys), dtype=np.int64), np.zeros(len(keys), dtype=np.bool_)
        nothing = to_numpy(pc.is_null(keys))
        if keys.type != known.type:  # whole numbers against floats
            keys, known = keys.cast(pa.float64(), safe=False), known.cast(pa.float64(), safe=False)
        found = pc.index_in(keys, value_set=known)
        place = np.where(to_numpy(pc.is_null(found)), 0, to_numpy(found).astype(np.int64) + 1)
        return place, (place == 0) & ~nothing


NumberStep = FillMissing | Standardise | SmoothClip
"""Steps for numbers (N, V). They can be applied to many columns at once."""
ValueStep = DateParts | Unlearned | NumberStep
"""Steps that convert one column to numbers."""
Step = ValueStep | Codes
STEPS: tuple[type[Step], ...] = (DateParts, Unlearned, FillMissing, Standardise, SmoothClip, Codes)


def apply_steps(steps: tuple[ValueStep, ...], values: Floats, dtype: Any) -> NDArray[Any]:
    """Apply the steps in order. Numbers that are too large for `dtype` become infinite."""
    with np.errstate(over="ignore"):
        for step in steps:
            values = step.apply(values)
        return values.astype(dtype)


def _circle(turns: Floats) -> tuple[Floats, Floats]:
    angle = 2 * np.pi * (turns - np.floor(turns))
    return np.sin(angle), np.cos(angle)
