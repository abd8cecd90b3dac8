"""Quantities as people write them: 2GB, 512MiB, 1e9, 10M. `core.formatting` formats them.

K M G T P are powers of 1000, Ki Mi Gi Ti Pi powers of 1024. What comes in is computed exactly (a fraction, never a
float) and cut down to a whole number.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Literal

from ..errors import OptionError

Unit = Literal["bytes", "flops", "count"]

_NUMBER = re.compile(r"\s*([0-9][0-9_,]*\.?[0-9]*|\.[0-9]+)(?:e([+-]?[0-9]{1,2}))?\s*([a-z]*)\s*", re.IGNORECASE)
_PREFIXES = ("", "k", "m", "g", "t", "p")
_EXAMPLES = {"bytes": "2GB, 512MiB or 1e9", "flops": "1e9, 10M or 1.5G", "count": "1e6, 10M or 235146"}
LEAST_PLAIN = 1_000_000
"""Numbers of bytes below this need a unit: a plain 2 rarely means two bytes."""
_WORDS = {"bytes": ("", "b"), "flops": ("", "flop", "flops"), "count": ("",)}


def parse(text: str, *, what: str, unit: Unit = "count") -> int:
    """A quantity of at least 1; `what` names the option in the error.

    >>> parse("2GB", what="memory", unit="bytes"), parse("1.5MiB", what="memory", unit="bytes")
    (2000000000, 1572864)
    """
    match = _NUMBER.fullmatch(text) if len(text) <= 60 else None
    factor = None if match is None else _factor(match[3].lower(), unit)
    if match is None or factor is None:
        raise OptionError(f"{what} must be a quantity such as {_EXAMPLES[unit]}, got {text[:60]!r}")
    value = int(Fraction(re.sub("[_,]", "", match[1])) * Fraction(10) ** int(match[2] or 0) * factor)
    if value < 1:
        raise OptionError(f"{what} must be at least 1, got {text!r}")
    if unit == "bytes" and not match[3] and value < LEAST_PLAIN:
        raise OptionError(
            f"{what} needs a unit, got {text!r}: write {text.strip()}GB, {text.strip()}MB or {text.strip()}B"
        )
    return value


def _factor(suffix: str, unit: Unit) -> int | None:
    for word in sorted(_WORDS[unit], key=len, reverse=True):
        prefix = suffix.removesuffix(word)
        if prefix + word != suffix:
            continue
        if prefix in _PREFIXES:
            return 1000 ** _PREFIXES.index(prefix)
        if unit == "bytes" and prefix.endswith("i") and prefix[:-1] in _PREFIXES[1:]:
            return 1024 ** _PREFIXES.index(prefix[:-1])
    return None
