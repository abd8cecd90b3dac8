"""Quantities as people write and read them: 2GB, 512MiB, 1e9, 10M in; 45.1 MFLOP, 3.73 MiB, 12.4 ms out.

K M G T P are powers of 1000, Ki Mi Gi Ti Pi powers of 1024. What comes in is computed exactly (a fraction, never a
float) and cut down to a whole number; what goes out has three significant digits and stands beside the exact figure.
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


def flops(value: int) -> str:
    """
    >>> flops(45124416), flops(640)
    ('45.1 MFLOP', '640 FLOP')
    """
    return _scaled(value, 1000, ("", "k", "M", "G", "T", "P", "E"), "FLOP")


def size(value: int) -> str:
    """Bytes.

    >>> size(3913120), size(0)
    ('3.73 MiB', '0 B')
    """
    return _scaled(value, 1024, ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), "B")


def signed(value: int) -> str:
    """A difference, exact.

    >>> signed(12288), signed(-12288)
    ('+12,288', '−12,288')
    """
    return f"{value:+,}".replace("-", "−")


def short(value: int) -> str:
    """A count with a letter: a number for a narrow column.

    >>> short(12845056), short(999), short(999_950), short(1000)
    ('12.8M', '999', '1.00M', '1.00k')
    """
    return _scaled(value, 1000, ("", "k", "M", "G", "T", "P", "E"), "").replace(" ", "")


def duration(seconds: float) -> str:
    """
    >>> duration(0.0000124), duration(75.0), duration(7384.0)
    ('12.4 µs', '1 min 15 s', '2 h 3 min')
    """
    if seconds >= 60:
        minutes, rest = divmod(round(seconds), 60)
        hours, left = divmod(minutes, 60)
        return f"{hours:,} h {left} min" if hours else f"{minutes} min {rest} s"
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1:
            return f"{_three(seconds * factor)} {unit}"
    return f"{_three(seconds * 1e9)} ns"


def _scaled(value: int, base: int, prefixes: tuple[str, ...], unit: str) -> str:
    if abs(value) < base:
        return f"{value} {unit}"
    scaled, index = value / base, 1
    while _rounds_to_base(scaled, base) and index < len(prefixes) - 1:
        scaled, index = scaled / base, index + 1
    figure = f"{scaled:.3g}" if abs(scaled) >= 1e9 else _three(scaled)  # beyond the prefixes no digit is true
    return f"{figure} {prefixes[index]}{unit}"


def _rounds_to_base(scaled: float, base: int) -> bool:
    return float(_three(abs(scaled)).replace(",", "")) >= base


def _three(value: float) -> str:
    """Three significant digits, all of the whole part.

    >>> _three(3.731), _three(45.12), _three(999.4), _three(1023.0)
    ('3.73', '45.1', '999', '1,023')
    """
    decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:,.{decimals}f}"
