"""Sample weights, and class weights: factors on the sample weights of each class.

    balanced   f_c = Σv / (C · Σv of class c),   v = sample weights of all rows given to fit

This is scikit-learn's definition. With it, all classes have the same total weight. A class without weight is ignored in
this formula. Rows of a class with the factor 0 are not used, but the class remains one of the classes. The factors
apply to training rows, held-out rows and separate validation data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..core.formatting import count, short
from ..errors import DataError, OptionError, option_name
from . import columns as C
from . import targets
from .encoding import Encoded
from .table import Rows, Table, where
from .targets import Class

Floats = NDArray[np.float64]
ORDINARY = (1e-20, 1e20)
"""Weights in this range are used unchanged: their sums and products fit in float32."""


def factors(
    class_weight: str | Mapping[Any, Any], classes: Sequence[Class], place: NDArray[np.int64], weights: Floats | None
) -> Floats:
    """Return the factor of each class. `place` is the class number of each row.   → (C,)

    >>> factors("balanced", ("no", "yes"), np.array([0, 0, 0, 1]), None).round(2).tolist()
    [0.67, 2.0]
    >>> factors({"yes": 3}, ("no", "yes"), np.array([0, 1]), None).tolist()
    [1.0, 3.0]
    """
    what = option_name("class_weight")
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise OptionError(f"{what} must be 'balanced' or a mapping, got {class_weight!r}")
        sizes = np.bincount(place, weights=weights, minlength=len(classes)).astype(np.float64)
        return sizes.sum() / (len(classes) * np.where(sizes > 0, sizes, 1.0))
    if not isinstance(class_weight, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        such = f"{{{classes[0]!r}: 2.0}}"
        raise OptionError(f"{what} must be 'balanced' or a mapping such as {such}, got {class_weight!r}")
    found = np.ones(len(classes))
    for name, value in class_weight.items():
        matching = [i for i, one in enumerate(classes) if one == name or str(name) in _spellings(one)]
        if not matching:
            known = ", ".join(map(str, classes[:20]))
            raise OptionError(f"{what} must name classes of the target, got {plain(name)!r}: classes are {known}")
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not (number and 0 <= float(value) < math.inf):
            raise OptionError(f"{what} must be 0 or more and finite, got {plain(value)!r} for {plain(name)!r}")
        found[matching[0]] = value
    return found


def weighed(weights: Floats | None, factor: Floats, place: NDArray[np.int64]) -> Floats:
    """Return the weight of each row times the factor of its class."""
    return factor[place] if weights is None else weights * factor[place]


def _spellings(value: Class) -> set[str]:
    """Return the strings that name a class if the keys are strings, as in TOML: true is True, 1 is 1.0."""
    if isinstance(value, bool):
        return {str(value), str(value).lower()}
    return {str(value), f"{value:.0f}"} if isinstance(value, float) and value.is_integer() else {str(value)}


def plain(value: Any) -> Any:
    """Convert a numpy scalar to a Python value, for messages."""
    return value.item() if isinstance(value, np.generic) else value


def weights_of(table: Table, weight: Any) -> Floats:
    """Return the sample weights: the column named `weight`, or `weight` itself with one number per row."""
    name = weight if isinstance(weight, str) else "the weights"
    if isinstance(weight, str):
        column = C.plain(table.column(weight))
        if C.family_of(column, where(table, weight)) != "number":
            raise DataError(f"{where(table, weight)}: weights must be numbers, got {column.type}")
        values = C.floats(column)
    else:
        try:
            values = np.asarray(weight, dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError(f"{table.name}: weights must be one number per row, got {short(weight)}") from None
        if values.shape != (len(table),):
            expected = f"weights must be one number for each of {len(table):,} rows"
            raise DataError(f"{table.name}: {expected}, got an array of shape {values.shape}")
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise DataError(f"{where(table, name, row)}: weights must be 0 or more and finite, got {values[row]:g}")
    return values


def weights_within(weights: Floats, dtype: Any) -> NDArray[Any]:
    """Convert weights to the type of the network.

    Only the ratios of weights matter. If a weight is outside `ORDINARY`, all are divided by the largest. Weights that
    are then too small for the type become its smallest number.
    """
    low, high = ORDINARY
    if not len(weights) or (weights[weights > 0].min(initial=high) >= low and weights.max() <= high):
        return weights.astype(dtype)
    shares = weights / weights.max()
    return np.where(weights > 0, np.maximum(shares, np.finfo(dtype).tiny / np.finfo(dtype).eps), 0).astype(dtype)


def counting_rows(table: Table, weight: Any, notes: list[str]) -> tuple[Rows, Floats]:
    """Return the validation rows with a weight above 0, and their weights."""
    values = weights_of(table, weight)
    rows = np.flatnonzero(values).astype(np.int64)
    if not len(rows):
        raise DataError(
            f"{table.name}: validation weights must not all be 0, got {short(weight)}: pass a weight above 0"
        )
    if len(rows) < len(table):
        notes.append(f"validation: {count(len(table) - len(rows), 'row')} of weight 0 left out")
    return rows, values[rows]


def validation_weights(weights: Floats | None, factor: Floats | None, own: Encoded) -> Floats | None:
    """Return the weights of the validation rows, with the factors of their classes."""
    if factor is None:
        return weights
    weights = weighed(weights, factor, targets.classes_in(cast("NDArray[Any]", own.y)))
    if not weights.any():
        raise DataError("validation weights must not all be 0, got rows of classes of weight 0 only: add other classes")
    return weights


def by_class(
    class_weight: str | Mapping[Any, float],
    task: targets.Task,
    table: Table,
    origin: Rows,
    weights: Floats | None,
    notes: list[str],
) -> tuple[Table, Rows, Floats, Floats]:
    """Return the table of rows with a weight above 0, their origin and weights, and the factors of the classes."""
    if task.kind not in ("binary", "multiclass"):
        raise OptionError(f"{option_name('class_weight')} needs a task with one class per row, got {task.kind}")
    classes = task.classes[0]
    place = targets.class_numbers(table, task.names[0], classes)
    factor = factors(class_weight, classes, place, weights)
    weights = weighed(weights, factor, place)
    words = ", ".join(f"{name!r} {value:.3g}" for name, value in zip(classes[:5], factor, strict=False))
    notes.append(f"class weights of all rows, also held-out ones: {words}{', …' if len(classes) > 5 else ''}")
    rows = np.flatnonzero(weights > 0)
    if not len(rows):
        raise DataError(f"{table.name}: no row has a class of weight above 0: pass a class weight above 0")
    if len(rows) < len(table):
        notes.append(f"{count(len(table) - len(rows), 'row')} of classes of weight 0 left out")
        table = table.take(rows)
    return table, origin[rows], weights[rows], factor
