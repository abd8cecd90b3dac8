"""The checks that constants of activations pass, so that every message reads the same way.

requirement, then the value received: "leaky_relu needs alpha to be a finite number, got alpha='x'"
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ...errors import SpecError, unknown_name


def number(where: str, name: str, value: object, *, positive: bool = False) -> float:
    """A finite number; every kind of number becomes a float, so that 1 and 1.0 make equal functions."""
    result = _real(value)
    if not math.isfinite(result) or (positive and result <= 0):
        kind = "positive" if positive else "finite"
        raise SpecError(f"{where} needs {name} to be a {kind} number, got {name}={value!r}")
    return result


def whole(where: str, name: str, value: object, *, low: int, high: int) -> int:
    """A whole number between two bounds, both allowed. 3.0 is 3, as JSON from other languages writes it."""
    result = _real(value)
    if not low <= result <= high or not result.is_integer():
        raise SpecError(f"{where} needs {name} to be a whole number from {low} to {high}, got {name}={value!r}")
    return int(result)


def one_of(where: str, name: str, value: object, valid: Iterable[str]) -> str:
    """A name from a closed set."""
    valid = tuple(valid)
    if not isinstance(value, str) or value not in valid:
        raise SpecError(unknown_name(f"{name} of {where}", str(value), valid))
    return value


def _real(value: object) -> float:
    """The value as a float, NaN where it is not a number; a truth value is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # a whole number too large for a float
        return math.inf
