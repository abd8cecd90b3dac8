"""Split rows into training and held-out rows. Each split depends on the seed and the table only.

    holdout      random rows
    stratified   random rows of each class, in proportion to its size; each class keeps at least one training row,
                 unless all classes have a single row
    grouped      random whole groups until the fraction is reached; a group is never on both sides
    by_time      the last rows in time; rows with equal times are on the same side
    folds        each row in one of k parts, stratified by class or by a numeric target
    grouped_folds  k parts; all rows of a group are in the same part

Groups and times may be given as one value per row. They are converted to numbers in the same order. All groups must
have the same type. Times are numbers, dates, timestamps or text such as 2024-12-31. Missing values raise an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..core import random
from ..core.formatting import short
from ..core.random import Purpose
from ..errors import DataError, OptionError, option
from . import columns as C
from .arrays import arrow_of, is_missing
from .table import Rows, Table, pc, to_numpy
from .type_inference import first_invalid

TINY = 10
"""With fewer rows, "auto" holds out no rows, unless they are split by group or by time."""
AUTO = 0.2
"""Fraction of rows that "auto" holds out."""

Pair = tuple[Rows, Rows]


def check_share(share: float) -> float:
    if not 0 < share < 1:
        raise OptionError(f"the fraction of rows to hold out must be above 0 and below 1, got {share!r}")
    return share


def keys(n: int, seed: int) -> NDArray[np.uint64]:
    """Return n random 64-bit numbers."""
    words = random.bits(seed, Purpose.SPLIT, rows=n, units=2).astype(np.uint64)
    return words[:, 0] << np.uint64(32) | words[:, 1]


def holdout(n: int, share: float, *, seed: int) -> Pair:
    """Return training rows and held-out rows, each sorted."""
    count = _count(n, share)
    return _pair(np.argsort(keys(n, seed), kind="stable")[:count], n)


def stratified(classes: NDArray[np.int64], share: float, *, seed: int) -> Pair:
    """Split each class in the same proportion. `classes` are class numbers from 0."""
    n = len(classes)
    total = _count(n, share)
    sizes = np.bincount(classes)
    exact = sizes * (total / n)
    take = np.minimum(np.floor(exact).astype(np.int64), np.maximum(sizes - 1, 0))
    # The remaining rows go to the classes that lost most by rounding. Of equal classes, the first comes first.
    for c in np.argsort(-(exact - take), kind="stable"):
        if take.sum() >= total:
            break
        take[c] += int(take[c] < sizes[c] - 1)
    order = np.lexsort((keys(n, seed), classes))
    rank = np.arange(n) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # place within the class
    chosen = order[rank < np.repeat(take, sizes)]
    if not len(chosen):
        return holdout(n, share, seed=seed)
    return _pair(chosen, n)


def grouped(groups: NDArray[np.int64], share: float, *, seed: int) -> Pair:
    """Hold out whole groups. `groups` are group numbers from 0."""
    n = len(groups)
    sizes = np.bincount(groups)
    if len(sizes) < 2:
        raise DataError("a split by group needs at least two groups, got one")
    order = np.argsort(keys(len(sizes), seed), kind="stable")
    before = np.cumsum(sizes[order]) - sizes[order]
    chosen = order[:-1][before[:-1] < _count(n, share)]
    return _pair(np.flatnonzero(np.isin(groups, chosen)), n)


def by_time(times: NDArray[np.float64], share: float) -> Pair:
    """Hold out the rows with the latest times."""
    n = len(times)
    ordered = np.sort(times)
    cut = ordered[n - _count(n, share)]
    late = times >= cut
    if late.all():
        late = times > cut
    if not late.any():
        raise DataError("a split by time needs at least two different times, got one")
    return _pair(np.flatnonzero(late), n)


def folds(n: int, k: int, *, seed: int, strata: NDArray[Any] | None = None) -> NDArray[np.int64]:
    """Return the part, from 0, of each of n rows.   → (n,)

    `strata` are class numbers, or values of a numeric target. Rows are sorted by `strata` and dealt to the parts one
    after another, so that all parts have a similar distribution. Rows with equal or similar values are in random order.
    """
    random_keys = keys(n, seed)
    if strata is None:
        order = np.argsort(random_keys, kind="stable")
    elif strata.dtype.kind == "f":
        rank = np.empty(n, dtype=np.int64)
        rank[np.argsort(strata, kind="stable")] = np.arange(n)
        order = np.lexsort((random_keys, rank // k))
    else:
        order = np.lexsort((random_keys, strata))
    part = np.empty(n, dtype=np.int64)
    part[order] = np.arange(n) % k
    return part


def grouped_folds(groups: NDArray[np.int64], k: int, *, seed: int) -> NDArray[np.int64]:
    """Assign whole groups, the largest first, to the part with the fewest rows.   → (n,)"""
    sizes = np.bincount(groups)
    if len(sizes) < 2:
        raise DataError("a split by group needs at least two groups, got one")
    k = min(k, len(sizes))
    held = np.zeros(k, dtype=np.int64)
    part = np.zeros(len(sizes), dtype=np.int64)
    for group in np.lexsort((keys(len(sizes), seed), -sizes)):
        part[group] = int(held.argmin())
        held[part[group]] += sizes[group]
    return part[groups]


def _count(n: int, share: float) -> int:
    """Return the number of rows to hold out. At least one row is held out, and one remains for training."""
    if n < 2:
        raise DataError(f"a split needs at least two rows, got {n}: train with {option('validation', 'None')}")
    return min(max(round(n * check_share(share)), 1), n - 1)


def _pair(held_out: NDArray[np.integer], n: int) -> Pair:
    mask = np.zeros(n, dtype=np.bool_)
    mask[held_out] = True
    return np.flatnonzero(~mask).astype(np.int64), np.flatnonzero(mask).astype(np.int64)


# Groups and times as one value per row


def group_numbers(groups: Any, table: Table) -> NDArray[np.int64]:
    """Convert groups, given as one value per row, to numbers from 0 in sorted order."""
    values = _check_one_per_row(groups, table, "group")
    _check_present(np.array([is_missing(value) for value in values.tolist()]), table, "group")
    try:
        return np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)
    except TypeError:
        kinds = sorted({type(value).__name__ for value in values.tolist()})
        remedy = "convert them to strings or whole numbers"
        raise DataError(f"{table.name}: groups must be of one type, got {' and '.join(kinds)}: {remedy}") from None


def moments(times: Any, table: Table) -> NDArray[np.float64]:
    """Convert times, given as one value per row, to numbers from 0 in sorted order. No time unit is rounded."""
    _check_one_per_row(times, table, "time")
    column = C.plain(times.to_arrow() if hasattr(times, "to_arrow") else arrow_of(times, f"{table.name}: the times"))
    _check_present(C.missing(column), table, "time")
    family = C.family_of(column, f"{table.name}: the times")
    if family == "text":
        column, family = _parse_times(column, table), "datetime"
    if family == "number":
        values = to_numpy(column) if pa.types.is_integer(column.type) else C.floats(column)
    elif family in ("date", "datetime"):
        unit = "ns" if pa.types.is_timestamp(column.type) and column.type.unit == "ns" else "us"
        values = to_numpy(column.cast(pa.timestamp(unit, tz=getattr(column.type, "tz", None))).cast(pa.int64()))
    else:
        raise DataError(
            f"{table.name}: times must be numbers, dates or timestamps, got {C.FAMILY_NAMES[family]}: convert them"
        )
    return np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.float64)


def _parse_times(strings: Any, table: Table) -> Any:
    for kind in (pa.timestamp("us"), pa.timestamp("us", tz="UTC")):
        try:
            return pc.cast(strings, kind)
        except pa.ArrowInvalid:
            continue
    row = first_invalid(strings, pa.timestamp("us")) or 0
    raise DataError(
        f"{table.name}: times must be numbers, dates or strings such as 2024-12-31 23:59, got "
        f"{short(strings[row].as_py())} in row {row + 1:,}"
    )


def _check_one_per_row(values: Any, table: Table, what: str) -> NDArray[Any]:
    found = np.asarray(values)
    if found.shape != (len(table),):
        got = f"got {found.item()!r}" if found.ndim == 0 else f"got {'×'.join(f'{n:,}' for n in found.shape)} values"
        raise DataError(f"{table.name}: there must be one {what} for each of {len(table):,} rows, {got}")
    return found


def _check_present(nothing: NDArray[np.bool_], table: Table, what: str) -> None:
    if nothing.any():
        row = int(np.flatnonzero(nothing)[0])
        raise DataError(f"{table.name}: every row must have a {what}, got none in row {row + 1:,}: remove the row")
