"""What the rows of each class count, given class by class or balanced: then every class counts as much as another.

    balanced   f_c = Σv / (C · Σv of class c),   v what each row counts by itself, over all rows given to fit

That is scikit-learn's definition. A class none of whose rows count has nothing to balance; one whose factor is 0 is
left out of training and stays a class. Factors hold for every row: trained on, held out, or given to be judged by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import OptionError, called
from .targets import Class

Floats = NDArray[np.float64]


def factors(
    class_weight: str | Mapping[Any, Any], classes: Sequence[Class], place: NDArray[np.int64], weights: Floats | None
) -> Floats:
    """What a row of each class counts more than by itself; `place` is the class of each row.   → (C,)

    >>> factors("balanced", ("no", "yes"), np.array([0, 0, 0, 1]), None).round(2).tolist()
    [0.67, 2.0]
    >>> factors({"yes": 3}, ("no", "yes"), np.array([0, 1]), None).tolist()
    [1.0, 3.0]
    """
    what = called("class_weight")
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
            raise OptionError(f"{what} names {plain(name)!r}: classes are {', '.join(map(str, classes[:20]))}")
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not (number and 0 <= float(value) < math.inf):
            raise OptionError(f"{what} must be 0 or more and finite, got {plain(value)!r} for {plain(name)!r}")
        found[matching[0]] = value
    return found


def weighed(weights: Floats | None, factor: Floats, place: NDArray[np.int64]) -> Floats:
    """What each row counts, its class included."""
    return factor[place] if weights is None else weights * factor[place]


def _spellings(value: Class) -> set[str]:
    """The texts that name a class where keys are texts, as in TOML: true is True, 1 is 1.0."""
    if isinstance(value, bool):
        return {str(value), str(value).lower()}
    return {str(value), f"{value:.0f}"} if isinstance(value, float) and value.is_integer() else {str(value)}


def plain(value: Any) -> Any:
    """A value as Python has it, for messages."""
    return value.item() if isinstance(value, np.generic) else value
