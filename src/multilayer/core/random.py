"""The one random stream, seen from numpy: a function of what a number is for, with no state in between.

    word = philox4x32-10(key = seed, counter = (unit >> 2, row, epoch, purpose << 24 | part))[unit & 3]

    seed     64 bits   the run's seed, or one that `derive` made of it
    purpose   8 bits   what the number is for (`Purpose`): a new use of randomness never shifts an old one
    part     24 bits   which of several: the layer, the parameter, the column
    epoch    32 bits   0 where there are no epochs
    row      32 bits   the row's own number in its table, not its place in a batch
    unit     34 bits   which number of the row

The promise: a number depends on these six and on nothing else (not on the batch, the number of threads or processes,
or which other numbers were drawn), and it is the same bits on every platform, in every version of the package. That
holds for the doubles as well: they are made of + − × ÷ and √ in a fixed order, without contraction and without a
library's logarithm.

The numbers have 32 random bits: `uniform` moves in steps of 2⁻³², `normal` reaches |z| = 6.33. Left out on purpose:
a generator object, a global seed, and distributions that one caller needs, which are made of `uniform` there.
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
    """What a number is for. The core holds the values; they are part of the stream and never change."""

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
    """32 random bits for each row and unit. → (rows, units) uint32.

    `rows` is how many, from row 0 on, or an array of row numbers; `units` is how many, from unit 0 on, or a range.

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
    """(bits + ½) / 2³², strictly between 0 and 1. → (rows, units) float64."""
    return _core.uniform(*_window(seed, purpose, epoch, part, rows, units))


def normal(
    seed: int, purpose: Purpose, *, rows: Rows, units: int | range, epoch: int = 0, part: int = 0
) -> NDArray[np.float64]:
    """Φ⁻¹ of `uniform`: mean 0, variance 1. → (rows, units) float64."""
    return _core.normal(*_window(seed, purpose, epoch, part, rows, units))


def keep(
    seed: int, purpose: Purpose, *, rows: Rows, units: int | range, p: float, epoch: int = 0, part: int = 0
) -> NDArray[np.uint8]:
    """0 with probability p, else 1: bits ≥ round(p·2³²). → (rows, units) uint8.

    The same unit is dropped at every larger p as well, since the bits do not depend on p.
    """
    if not 0.0 <= p < 1.0:
        raise OptionError(f"p must be at least 0 and less than 1, got {p!r}")
    return _core.keep(*_window(seed, purpose, epoch, part, rows, units), float(p))


def permutation(n: int, *, seed: int, epoch: int) -> NDArray[np.int64]:
    """The numbers 0 … n−1 in the order in which `epoch` visits them. → (n,) int64.

    Fisher–Yates with one 64-bit draw each, whose bias is below n/2⁶⁴.

    >>> permutation(5, seed=7, epoch=0), permutation(5, seed=7, epoch=1)
    (array([0, 1, 4, 2, 3]), array([4, 3, 0, 1, 2]))
    """
    # Draw i takes units 2i and 2i + 1.
    order = _core.permutation(
        _integer("seed", seed, 64), _integer("epoch", epoch, 32), _integer("n", n, 33, inclusive=True)
    )
    return order.view(np.int64)  # numpy's own int64: the core's is the other 64-bit C type, equal but printed apart


def derive(seed: int, member: int) -> int:
    """The seed of one member of a family (an ensemble, a sweep, folds) whose streams must not share numbers."""
    return _core.derive(_integer("seed", seed, 64), _integer("member", member, 32))


class _Window(NamedTuple):
    """The arguments that every function of rows and units passes to the core, in its order."""

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
    """`value` as an int in [0, 2^power), or up to 2^power where it counts things."""
    try:
        number = operator.index(value)
    except TypeError:
        raise OptionError(f"{name} must be an integer, got {value!r}") from None
    if not 0 <= number < (1 << power) + inclusive:
        bound = "at most" if inclusive else "less than"
        raise OptionError(f"{name} must be at least 0 and {bound} 2^{power}, got {number}")
    return number
