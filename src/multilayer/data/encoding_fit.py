"""Fit an `Encoding` to the training rows of a table: kinds, vocabularies, scales, and which columns to drop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..core.formatting import count
from ..errors import DataError, OptionError, option, unknown_name
from ..nn.layers import Inputs
from . import columns as C
from .columns import SCALINGS, Column, Kind
from .encoding import BLOCK, Encoding
from .preprocessing import Codes
from .table import Rows, Table, from_numpy, pc, where
from .targets import Task
from .text_files import counts_rows

Floats = NDArray[np.float64]
Scale = tuple[float, float, float, float, float]
"""Center, scale, fill value, lowest and highest training value of a number."""
ROW_NUMBER_NAMES = {"id", "index", "row", "rownames", "rowid", "row_id", "unnamed: 0"}
"""Names of a column of consecutive whole numbers that is dropped, because it only numbers the rows."""

ROUNDED = "whole numbers too large to differ as floats: subtract the smallest, or make them a category"
NO_VARIATION = ("constant", "empty", ROUNDED)
"""Reasons for dropping a column that has no information. If all columns were dropped, such a column is kept first."""
ROW_NUMBERS = "row numbers"
DROPPED_BY_USER = "asked for"
"""Reason for a column that the user dropped. It is never kept."""

SMALL = 1e-140
"""Differences below this lose digits in float64 when squared, or become 0."""
NO_UNIT = float(np.finfo(np.float64).max)
"""Scale of a constant column: every value becomes 0 in float32."""
ANY_VALUE = (-NO_UNIT, NO_UNIT)
"""Range of a number for which no value is far from the training rows."""
FEWEST_FOR_RANGE = 10
"""A range is stored only for columns with at least this many different values. In other columns, such as flags and
small counts, new values outside the range are common."""
SAMPLE_FOR_RANGE = 1000
"""Number of rows in which distinct values are counted."""
BLOCK_SIZE = 1 << 18
"""Numbers of a matrix that are processed together, so that they stay in the cache."""


def fit(
    table: Table,
    train: Rows,
    *,
    inputs: tuple[str, ...],
    task: Task,
    loss: str,
    scaling: str = "auto",
    kinds: Mapping[str, str] | None = None,
    keep_constant: bool | Literal["all"] = False,
    network: Inputs | None = None,
) -> tuple[Encoding, list[str]]:
    """Fit the encoding of the columns `inputs` to the training rows. Return it and notes for the user.

    `kinds` are the kinds that the user specified.

    Constant columns are dropped, unless the number of inputs of `network` includes them.

    If no column can be used, an error is raised. With `keep_constant`, one column is kept as an input that is always 0,
    so that every prediction is the same. "all" keeps every constant column, because the column may vary in later rows.
    It has no effect on predictions until `with_variation` is called with another value.
    """
    if scaling not in SCALINGS:
        raise OptionError(unknown_name("scaling", scaling, SCALINGS))
    images = table.image is not None and scaling == "auto" and set(inputs) <= set(table.matrix_names) and not kinds
    if images and _varies(table.matrix, train):
        return _fit_image(table, train, inputs, task, loss), []
    scaling = "standard" if scaling == "auto" else scaling
    declared: dict[str, Kind] = {name: C.check_kind(kind, name) for name, kind in (kinds or {}).items()}
    for name in declared:
        if name not in inputs:
            raise DataError(f"{table.name}: {unknown_name('input column', name, inputs)}")
    if not inputs:
        raise DataError(
            f"{table.name}: a table needs a column besides its target, got {', '.join(table.names)}: add a column"
        )
    usual = [name for name in inputs if name not in declared and not _is_counter(table, name)]
    ready = _plain_scales(table, train, usual, scaling)
    fitted = [
        _FittedColumn(column=Column(name=name, family="number", kind="numeric", parts=(0,)), scales=[ready[name]])
        if name in ready
        else _fit_column(
            *(table, train, name, declared.get(name), scaling),
            keep_constant=keep_constant == "all",
        )
        for name in inputs
    ]
    if all(one.column.kind == "drop" for one in fitted):
        place = _first_to_keep([one.column for one in fitted]) if keep_constant else None
        if place is None and len(table) == 1:
            raise DataError(
                f"{table.name}: training needs at least two rows, got one, so every column is constant: add rows"
            )
        if place is None:
            reasons = _describe_dropped([one.column for one in fitted])
            raise DataError(f"{table.name}: all columns were dropped, so there is nothing to learn from: {reasons}")
        kept = replace(fitted[place].column, kind="numeric", parts=(0,), family="empty", zone=None)
        fitted[place] = _FittedColumn(column=kept, scales=[(0.0, 1.0, 0.0, *ANY_VALUE)])
    with_constant = [
        _fit_column(table, train, name, declared.get(name), scaling, keep_constant=True)
        if network is not None and one.column.why == "constant"
        else one
        for name, one in zip(inputs, fitted, strict=True)
    ]
    constant = sum(one.column.why == "constant" for one in fitted)
    notes = [note for one in fitted for note in one.notes]
    if constant and network == _inputs_of(with_constant):
        fitted = with_constant
        notes.append(f"{count(constant, 'constant column')} kept, because the network has an input for each")
    columns = tuple(one.column for one in fitted)
    vocabularies = {one.column.name: one.vocabulary for one in fitted if one.vocabulary is not None}
    scales = [scale for one in fitted for scale in one.scales]
    center, scale, fill, low, high = np.array(scales, dtype=np.float64).reshape(-1, 5).T.copy()
    whole = not vocabularies and all(column.parts == (0,) and not column.indicator for column in columns)
    encoding = Encoding(
        columns=columns,
        task=task,
        loss=loss,
        scaling=scaling,
        center=center,
        scale=scale,
        fill=fill,
        low=low,
        high=high,
        vocabularies=vocabularies,
        image=table.image if whole else None,
        positional=table.positional,
    )
    dropped = dropped_note(encoding)
    return encoding, [*notes, *([] if dropped is None else [dropped])]


@dataclass(kw_only=True)
class _FittedColumn:
    """A column, the scale of each of its numbers, its vocabulary if it is categorical, and notes for the user."""

    column: Column
    scales: Sequence[Scale] = ()
    vocabulary: Any = None
    notes: Sequence[str] = ()


def _inputs_of(fitted: Sequence[_FittedColumn]) -> Inputs:
    numbers = sum(len(one.column.parts) + one.column.indicator for one in fitted)
    return Inputs(
        numeric=numbers, categories=tuple(len(one.vocabulary) for one in fitted if one.vocabulary is not None)
    )


def _fit_column(
    table: Table,
    train: Rows,
    name: str,
    declared: Kind | None,
    scaling: str,
    *,
    keep_constant: bool,
) -> _FittedColumn:
    """Fit a column. All its values are checked, so that values in held-out rows cannot raise an error later."""
    family = "number" if name in table.places else C.family_of(table.column(name), where(table, name))
    kind = declared or _default_kind(table, name, family)
    parts, indicator, scales = (), False, []
    vocabulary, notes, why = None, [], ""
    if kind == "drop":
        why = "empty" if declared is None else DROPPED_BY_USER
    elif kind == "categorical":
        vocabulary, why, notes = _categories(table, name, train, declared=declared is not None)
    elif declared is None and _is_counter(table, name):
        why = ROW_NUMBERS
    else:
        parts, indicator, scales, why = _fit_numbers(table, train, name, kind, scaling)
    if why == "constant" and keep_constant:
        why, family = "", "empty" if kind == "categorical" else family
    if why:
        kind, parts, indicator, scales, vocabulary = "drop", (), False, [], None
    zone = None if name in table.places else C.has_zone(table.column(name))
    column = Column(name=name, family=family, kind=kind, parts=parts, indicator=indicator, zone=zone, why=why)
    return _FittedColumn(column=column, scales=scales, vocabulary=vocabulary, notes=notes)


def _fit_numbers(
    table: Table, train: Rows, name: str, kind: Kind, scaling: str
) -> tuple[tuple[int, ...], bool, list[Scale], str]:
    """Return which parts of a column vary, whether values are missing, the scales, and the reason to drop it or ""."""
    values = C.numbers(table, name, kind)[train]  # (N, parts)
    nothing = np.isnan(values[:, 0])
    indicator = bool(nothing.any())
    values = values[~nothing]
    if not len(values):
        return (), indicator, [], "empty"
    parts = tuple(i for i in range(values.shape[1]) if values[:, i].min() < values[:, i].max())
    if parts:
        scales = _scales(np.ascontiguousarray(values[:, list(parts)].T), scaling)
        # Times of day and (sin, cos) of dates have natural limits.
        scales = [
            scale if part == 0 and kind != "time" else (*scale[:3], *ANY_VALUE)
            for part, scale in zip(parts, scales, strict=True)
        ]
        return parts, indicator, scales, ""
    why = "" if indicator else "constant"  # a missing-value indicator is informative, even if the values are not
    if why and C.has_distinct_integers(table.column(name).take(from_numpy(train))):
        why = ROUNDED
    constant = float(values[0, 0])
    return (0,), indicator, [(constant, NO_UNIT, constant, *ANY_VALUE)], why


def with_variation(encoding: Encoding, source: Any) -> Encoding:
    """Return the encoding for another batch of rows. Columns that were constant before and vary in these rows
    are no longer encoded as 0. They are not scaled."""
    place, scale, columns = 0, encoding.scale.copy(), list(encoding.columns)
    table: Table | None = None
    for i, column in enumerate(columns):
        known = column.kind == "categorical" and column.family == "empty"
        flat = column.family != "empty" and column.parts == (0,) and encoding.scale[place] == NO_UNIT
        if known or flat:
            table = encoding.read(source, targets=True) if table is None else table
        if known and table is not None:
            vocabulary = encoding.vocabularies[column.name]
            keys = C.keys_of(table.column(column.name), table, column.name)
            if Codes(vocabulary=vocabulary).apply(keys)[0].min() == 0:
                columns[i] = replace(column, family=C.family_of(pa.chunked_array([vocabulary]), column.name))
        elif flat and table is not None:
            values = C.numbers(table, column.name, column.kind)[:, 0]
            if (values[~np.isnan(values)] != encoding.center[place]).any():
                scale[place] = 1.0
        place += len(column.parts)
    unknown = np.zeros(0)  # unknown, because later batches may have other values
    return replace(encoding, columns=tuple(columns), scale=scale, low=unknown, high=unknown)


def dropped_note(encoding: Encoding) -> str | None:
    """Return which columns were dropped, why, and what to do. None if only the user dropped columns."""
    dropped = [column for column in encoding.columns if column.why not in ("", DROPPED_BY_USER)]
    return f"columns dropped: {_describe_dropped(dropped)}" if dropped else None


def _first_to_keep(columns: list[Column]) -> int | None:
    """Return the position of the first constant or empty column, else of the first that the user did not drop."""
    flat = [i for i, column in enumerate(columns) if column.why in NO_VARIATION]
    others = [i for i, column in enumerate(columns) if column.why != DROPPED_BY_USER]
    return next(iter([*flat, *others]), None)


def _default_kind(table: Table, name: str, family: C.Family) -> Kind:
    if name not in table.places and C.is_category(table.column(name)) and family in ("number", "text", "boolean"):
        return "categorical"
    return C.DEFAULT_KIND[family]


def _is_counter(table: Table, name: str) -> bool:
    return name.strip().lower() in ROW_NUMBER_NAMES and counts_rows(table.column(name))


def _categories(table: Table, name: str, train: Rows, *, declared: bool) -> tuple[Any, str, list[str]]:
    """Return the vocabulary of the training rows, the reason to drop the column (or ""), and notes for the user."""
    column = table.column(name)
    keys = C.keys_of(column, table, name)
    seen = keys.take(from_numpy(train))
    values = C.vocabulary(seen)
    if not len(values):
        return values, "empty", []
    if len(values) == 1 and not seen.null_count:
        return values, "constant", []
    if not pa.types.is_large_string(keys.type) or declared:
        return values, "", []
    declare = f"treat all its values as categories: {option('categorical', repr(name))}"
    C.check_not_numbers(table, name, C.vocabulary(keys), keys, otherwise=declare)
    if C.reads_as_categories(len(values), len(train)):
        return values, "", []
    if not C.is_category(column) or 2 * len(values) > len(train):
        if pc.all(pc.match_substring_regex(values, C.DATES)).as_py():
            return values, C.OTHER_DATES, []
        return values, f"{C.FREE_TEXT} (more than {C.FEW_VALUES} and half the rows, or {C.MAX_CATEGORIES:,})", []
    kept = f"the {C.MAX_CATEGORIES:,} most frequent of {len(values):,} values"
    note = f"{name!r}: {kept} are categories, all others are read as unknown"
    return C.most_frequent(seen, C.MAX_CATEGORIES), "", [note]


def _plain_scales(table: Table, train: Rows, names: list[str], scaling: str) -> dict[str, Scale]:
    """Return the scales of the columns of a matrix that vary and have no missing values, many columns at a time."""
    found: dict[str, Scale] = {}
    if table.matrix is None or not len(train):
        return found
    names = [name for name in names if name in table.places]
    at_once = max(1, BLOCK_SIZE // len(table.matrix))
    for start in range(0, len(names), at_once):
        part = names[start : start + at_once]
        values = table.matrix[:, [table.places[name] for name in part]].T.astype(np.float64, order="C")  # (columns, N)
        with np.errstate(invalid="ignore"):
            fits = (np.abs(values) <= C.LARGEST).all(1)
            values = values[:, train]
            fits &= values.min(1) < values.max(1)
        chosen = [name for name, fit in zip(part, fits.tolist(), strict=True) if fit]
        found |= zip(chosen, _scales(values[fits], scaling), strict=True)
    return found


def _scales(values: Floats, scaling: str) -> list[Scale]:
    """Return center, scale, fill value and range of columns (columns, N) that vary."""
    if not len(values):
        return []
    minimum, maximum = values.min(1), values.max(1)
    median, spread = np.median(values, axis=1), maximum - minimum
    if scaling == "none":
        center, scale = np.zeros(len(values)), np.ones(len(values))
    elif scaling == "robust":
        low, high = np.quantile(values, (0.25, 0.75), axis=1)
        center, scale = median, np.where(high - low > 0, high - low, spread / 2)
    else:
        std = values.std(1)
        small = spread < SMALL
        if small.any():
            std[small] = spread[small] * (values[small] / spread[small, None]).std(1)
        # The standard deviation of numbers that differ in their last bits only may round to 0.
        center, scale = values.mean(1), np.where(std > 0, std, spread)
    different = 1 + (np.diff(np.sort(values[:, :SAMPLE_FOR_RANGE])) > 0).sum(1)
    minimum, maximum = (
        np.where(different < FEWEST_FOR_RANGE, any_value, end)
        for any_value, end in zip(ANY_VALUE, (minimum, maximum), strict=True)
    )
    return list(zip(*(one.tolist() for one in (center, scale, median, minimum, maximum)), strict=True))


def _fit_image(table: Table, train: Rows, inputs: tuple[str, ...], task: Task, loss: str) -> Encoding:
    """Fit an encoding of images: it keeps every pixel, and all pixels have the same scale."""
    assert isinstance(table.matrix, np.ndarray), "a sparse matrix contains no images"
    n = len(inputs)
    center, scale = (0.0, table.top) if table.top is not None else _mean_and_deviation(table.matrix, train)
    if not (np.isfinite(center) and np.isfinite(scale)):
        for name in inputs:
            C.numbers(table, name, "numeric")  # raises an error with the row
        raise DataError(f"{table.name}: all pixels are missing: pass images with numbers")
    return Encoding(
        columns=tuple(Column(name=name, family="number", kind="numeric", parts=(0,)) for name in inputs),
        task=task,
        loss=loss,
        scaling="range",
        center=np.full(n, center),
        scale=np.full(n, scale),
        fill=np.full(n, center),
        image=table.image,
        top=table.top,
        positional=table.positional,
    )


def _varies(matrix: Any, train: Rows) -> bool:
    """Return whether any two training rows of a matrix differ. A missing value counts as a difference."""
    blocks = (matrix[train[start : start + BLOCK]] for start in range(0, len(train), BLOCK))
    return any((block != matrix[train[0]]).any() for block in blocks)


def _mean_and_deviation(matrix: NDArray[Any], train: Rows) -> tuple[float, float]:
    """Compute mean and standard deviation of all numbers except missing values, one block of rows at a time."""

    def total(of: Callable[[Floats], Any]) -> float:
        blocks = (matrix[train[start : start + BLOCK]].astype(np.float64) for start in range(0, len(train), BLOCK))
        return float(sum(np.nansum(of(block)) for block in blocks))

    count = total(lambda values: ~np.isnan(values))
    if not count:
        return np.nan, np.nan
    mean = total(lambda values: values) / count
    deviation = float(np.sqrt(total(lambda values: (values - mean) ** 2) / count))
    if deviation < SMALL:  # the mean absolute deviation does not underflow
        deviation = total(lambda values: np.abs(values - mean)) / count
    return mean, deviation or 1.0


def _describe_dropped(columns: Iterable[Column]) -> str:
    """List the dropped columns by reason, with remedies."""
    reasons: dict[str, list[str]] = {}
    for column in columns:
        reasons.setdefault(column.why, []).append(column.name)
    words: list[str] = []
    for why, names in reasons.items():
        more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
        remedy = _remedy(why, names[0])
        words.append(f"{', '.join(repr(name) for name in names[:5])}{more} ({why}{remedy})")
    return "; ".join(words)


def _remedy(why: str, name: str) -> str:
    """Return what to do about a dropped column."""
    if why in (DROPPED_BY_USER, ROUNDED):
        return ""
    if why == ROW_NUMBERS:
        return ": rename the column to use it as a feature"
    if why == C.OTHER_DATES:
        return ": write dates as 2024-12-31, or convert the column with pandas.to_datetime"
    if why.startswith(C.FREE_TEXT):
        declared = option("categorical", repr(name))
        return f": group its values, derive numbers from it, or use all as categories: {declared}"
    return ": remove the column, or check why it does not vary"
