"""A table's arrays as the compiled core reads them: of its types, and never a place outside what it looks up.

x, y, weight   read where they are, if they are of the core's type
codes          copied, and checked on the copy: the core finds weights by them, and would read and write elsewhere
               if the caller, or another thread, changed one later
class numbers  checked once and read where they are: the core compares them, and looks up nothing by them
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ..data.batches import Batch
from ..errors import DataError
from ..nn.layers.columns import code_refused

Codes = NDArray[np.int64]

_COPIES: WeakKeyDictionary[Batch, Codes] = WeakKeyDictionary()
"""Of tables that engines hold: those of an ensemble hold the same one."""


def beside(x: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Rows whose numbers stand side by side, in the core's type; rows may be further apart than they are long."""
    if not x.size:  # numpy gives what is empty no strides
        return np.empty((1 + len(x), x.shape[1]), dtype)[: len(x)]
    apart, within = x.strides
    fits = x.dtype == dtype and x.flags.aligned and apart >= 0 and apart % dtype.itemsize == 0
    return x if fits and within == dtype.itemsize else np.require(x, dtype, ["C", "A"])


def codes_of(batch: Batch, categories: tuple[int, ...]) -> Codes:
    """A copy of its codes, checked. Engines over one table share it while it is what the table holds."""
    assert batch.codes is not None, "check_data refuses a table without the network's codes"
    codes = _COPIES.get(batch)
    if codes is None or not np.array_equal(codes, batch.codes):
        codes = _COPIES[batch] = copied(batch.codes)
    check_codes(codes, batch.codes, categories)
    return codes


@np.errstate(invalid="ignore")  # NaN has no whole number: it is given one, and found to differ from it
def copied(codes: NDArray[Any]) -> Codes:
    """One copy, whatever their type; fractions are cut off, for `check_codes` to find."""
    return np.array(codes, dtype=np.int64, order="C")


def are_whole(numbers: NDArray[Any]) -> bool:
    """Whether their type has nothing else."""
    return numbers.dtype.kind in "iub"


def check_codes(codes: Codes, given: NDArray[Any], categories: tuple[int, ...]) -> None:
    """Refuses the first code that is not from 0 to its column's number of values, or not what was given."""
    for i, n in enumerate(categories):
        wrong = (codes[:, i] < 0) | (codes[:, i] > n)
        if not are_whole(given):
            wrong |= codes[:, i] != given[:, i]
        _refuse_first(wrong, given[:, i], lambda code, row, i=i, n=n: code_refused(i, n, code, row))


def classes_of(y: NDArray[Any], classes: int) -> NDArray[np.int64]:
    """Class numbers from 0 to one less than there are classes."""
    wrong = ~((y >= 0) & (y < classes) & (y == np.trunc(y)))
    _refuse_first(
        wrong,
        y,
        lambda code, row: (
            f"y must hold class numbers from 0 to {classes - 1}, got {code} in row {row}: give the network more outputs"
        ),
    )
    return np.require(y, np.int64, ["C", "A"])


def _refuse_first(wrong: NDArray[np.bool_], given: NDArray[Any], refused: Callable[[float, int], str]) -> None:
    for row in np.flatnonzero(wrong)[:1].tolist():
        raise DataError(refused(given[row].item(), row)) from None
