"""Counter-based random numbers: each number is a function of its key, and there is no state.

    word = philox4x32-10(key = seed, counter = (unit >> 2, row, epoch, purpose << 24 | part))[unit & 3]

    seed     64 bits   seed of the run, or one derived from it (`derive`)
    purpose   8 bits   use of the number (`Purpose`), so that a new use does not change the numbers of another
    part     24 bits   index of the layer, parameter or column
    epoch    32 bits   epoch, or 0
    row      32 bits   index of the row in its table, not in a batch
    unit     34 bits   index of the number in the row

A number depends only on these six values. It does not depend on the batch, on the number of threads or processes, or on
other random numbers. It has the same bits on every platform and in every version of the package. This includes the
doubles: they are computed with + − × ÷ and √ in a fixed order, without fused operations and without the logarithm of a
library.

The numbers have 32 random bits: `uniform` has steps of 2⁻³², `normal` has |z| ≤ 6.33. Not included: a generator object,
a global seed, and distributions with a single user, which computes them from `uniform`.

Philox: Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011. Normal: Wichura, algorithm AS 241, 1988.
"""

from __future__ import annotations

import operator
from enum import IntEnum
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from ..errors import OptionError, unknown_name
from . import _core

Rows = SupportsIndex | NDArray[np.integer[Any]]


class Purpose(IntEnum):
    """The use of a random number. The values are those of the compiled core and never change."""

    INIT = _core.PURPOSES["init"]
    SHUFFLE = _core.PURPOSES["shuffle"]
    DROPOUT = _core.PURPOSES["dropout"]
    AUGMENT = _core.PURPOSES["augment"]
    SPLIT = _core.PURPOSES["split"]
    DATA = _core.PURPOSES["data"]
    DERIVE = _core.PURPOSES["derive"]
    MEASURE = _core.PURPOSES["measure"]


def bits(
    seed: int, purpose: Purpose, *, rows: Rows, units: int | range, epoch: int = 0, part: int = 0
) -> NDArray[np.uint32]:
    """Return 32 random bits for each row and unit. → (rows, units) uint32.

    `rows` is a number of rows, starting at row 0, or an array of indices. `units` is a number of units, starting at 0,
    or a range.

    >>> bits(7, Purpose.DATA, rows=2, units=3)
    array([[1136628613, 4270377385,  907252024],
           [1173735652, 3801839564,  534647358]], dtype=uint32)
    >>> bits(7, Purpose.DATA, rows=np.array([1]), units=range(1, 3))
    array([[3801839564,  534647358]], dtype=uint32)
    """
    return _core.bits(*_window(seed, purpose, epoch, part, rows, units))


def uniform(
    seed: int, purpose: Purpose, *, rows: Rows, units: int | range, epoch: int = 0, part: int = 0
) -> NDArray[np.float64]:
    """Return uniform numbers (bits + ½) / 2³², between 0 and 1 exclusive. → (rows, units) float64."""
    return _core.uniform(*_window(seed, purpose, epoch, part, rows, units))


def normal(
    seed: int, purpose: Purpose, *, rows: Rows, units: int | range, epoch: int = 0, part: int = 0
) -> NDArray[np.float64]:
    """Return normal numbers with mean 0 and variance 1: Φ⁻¹ of `uniform`. → (rows, units) float64."""
    return _core.normal(*_window(seed, purpose, epoch, part, rows, units))


def keep(
    seed: int, purpose: Purpose, *, rows: Rows, units: int | range, p: float, epoch: int = 0, part: int = 0
) -> NDArray[np.uint8]:
    """Return 0 with probability p, else 1: bits ≥ round(p·2³²). → (rows, units) uint8.

    A unit that is 0 for p is also 0 for every larger p, because the bits do not depend on p.
    """
    if not 0.0 <= p < 1.0:
        raise OptionError(f"p must be at least 0 and less than 1, got {p!r}")
    return _core.keep(*_window(seed, purpose, epoch, part, rows, units), float(p))


def permutation(n: int, *, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the numbers 0 … n−1 in the random order of an epoch. → (n,) int64.

    This is a Fisher–Yates shuffle with 64 random bits per step. The bias is below n/2⁶⁴.

    >>> permutation(5, seed=7, epoch=0), permutation(5, seed=7, epoch=1)
    (array([0, 1, 4, 2, 3]), array([4, 3, 0, 1, 2]))
    """
    # Draw i takes units 2i and 2i + 1.
    order = _core.permutation(
        _integer("seed", seed, 64), _integer("epoch", epoch, 32), _integer("n", n, 33, inclusive=True)
    )
    return order.view(
        np.int64
    )  # the same values: numpy has two types of 64-bit integers in C, and prints the other one with its name


def derive(seed: int, member: int) -> int:
    """Return the seed of a member, for example of an ensemble. Different members have different random numbers."""
    return _core.derive(_integer("seed", seed, 64), _integer("member", member, 32))


class _Window(NamedTuple):
    """The arguments of the functions of the compiled core, in their order."""

    seed: int
    purpose: int
    epoch: int
    part: int
    rows: NDArray[np.int64]
    unit: int
    units: int


def _window(seed: int, purpose: Purpose, epoch: int, part: int, rows: Rows, units: int | range) -> _Window:
    names = Purpose.__members__
    if purpose not in names.values():
        raise OptionError(unknown_name("purpose", str(purpose), names))
    if not isinstance(units, range):
        units = range(_integer("units", units, 34, inclusive=True))
    if units.step != 1:
        raise OptionError(f"units must be a count or a range of step 1, got {units}")
    _integer("units", units.start, 34, inclusive=True)
    _integer("units", max(units.start, units.stop), 34, inclusive=True)
    return _Window(
        seed=_integer("seed", seed, 64),
        purpose=int(purpose),
        epoch=_integer("epoch", epoch, 32),
        part=_integer("part", part, 24),
        rows=_row_numbers(rows),
        unit=units.start,
        units=len(units),
    )


def _row_numbers(rows: Rows) -> NDArray[np.int64]:
    if not isinstance(rows, np.ndarray):
        return np.arange(_integer("rows", rows, 32, inclusive=True), dtype=np.int64)
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise OptionError(
            f"rows must be a count or a one-dimensional integer array, got {rows.dtype} of shape {rows.shape}"
        )
    for extreme in (int(rows.min()), int(rows.max())) if rows.size else ():
        if not 0 <= extreme < 1 << 32:
            raise OptionError(f"row numbers must be at least 0 and less than 2^32, got {extreme}")
    return np.ascontiguousarray(rows, dtype=np.int64)


def _integer(name: str, value: SupportsIndex, power: int, *, inclusive: bool = False) -> int:
    """Return `value` as an int. It must be in [0, 2^power), or at most 2^power if `inclusive`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise OptionError(f"{name} must be an integer, got {value!r}") from None
    if not 0 <= number < (1 << power) + inclusive:
        bound = "at most" if inclusive else "less than"
        raise OptionError(f"{name} must be at least 0 and {bound} 2^{power}, got {number}")
    return number
