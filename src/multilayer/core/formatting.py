"""Format values for people: 1,200 rows, 45.1 MFLOP, 3.73 MiB, 12.4 ms, 1:04, 97 %.

k M G T P E are powers of 1000, Ki Mi Gi Ti Pi Ei powers of 1024. A rounded figure has three significant digits, or all
digits of its whole part. `costs.budget.quantity` parses such quantities.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

_DECIMAL = ("", "k", "M", "G", "T", "P", "E")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")

# Words


def count(n: int, thing: str) -> str:
    """Format a count with its noun in the singular or plural.

    >>> count(1, "row"), count(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def short(value: object, longest: int = 60) -> str:
    """Return the start of repr(value), for an error message.

    >>> short("a" * 100, 20)
    "'aaaaaaaaaaaaaaaa..."
    """
    words = repr(value[:longest] if isinstance(value, str | bytes) else value)
    return words if len(words) <= longest else f"{words[: longest - 3]}..."


def cut(value: object, longest: int) -> str:
    """Shorten a text and end it with ….

    >>> cut("a long text", 7)
    'a long…'
    """
    text = str(value)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def listed(names: Iterable[object], word: str = "or") -> str:
    """Join names for a text.

    >>> listed(["sgd", "adam", "adamw"]), listed([256, 128], "and")
    ('sgd, adam or adamw', '256 and 128')
    """
    *most, last = map(str, names)
    return f"{', '.join(most)} {word} {last}" if most else last


# Numbers


def number(value: float) -> str:
    """Format a number with four significant digits."""
    return f"{value:.4g}"


def signed(value: int) -> str:
    """Format a difference with its sign and all digits.

    >>> signed(12288), signed(-12288)
    ('+12,288', '−12,288')
    """
    return f"{value:+,}".replace("-", "−")


def compact(value: int) -> str:
    """Format a count with a prefix, for a narrow column.

    >>> compact(12845056), compact(999), compact(999_950), compact(1000)
    ('12.8M', '999', '1.00M', '1.00k')
    """
    return _scaled(value, 1000, _DECIMAL, "").replace(" ", "")


def flops(value: int) -> str:
    """Format a number of floating-point operations.

    >>> flops(45124416), flops(640)
    ('45.1 MFLOP', '640 FLOP')
    """
    return _scaled(value, 1000, _DECIMAL, "FLOP")


def size(value: int) -> str:
    """Format a number of bytes.

    >>> size(3913120), size(0)
    ('3.73 MiB', '0 B')
    """
    return _scaled(value, 1024, _BINARY, "B")


def tick_size(value: float) -> str:
    """Format a number of bytes for the tick of an axis.

    >>> tick_size(512.0), tick_size(16 * 2.0**20), tick_size(1.5 * 2.0**40)
    ('512 B', '16 MiB', '1.5 TiB')
    """
    power = min(int(math.log2(value)) // 10, 6) if value >= 1 else 0
    return f"{value / 1024**power:,g} {_BINARY[power]}B"


def percent(share: float) -> str:
    """Format a share. Only a share of exactly 0 or 1 is printed as 0 % or 100 %.

    >>> percent(0.824), percent(0.0004), percent(0.9999), percent(0.041)
    ('82 %', '< 0.1 %', '> 99.9 %', '4.1 %')
    """
    if 0 < share < 0.0005:
        return "< 0.1 %"
    if 0.9995 < share < 1:
        return "> 99.9 %"
    return f"{100 * share:.1f} %" if 0 < share < 0.0995 or 0.995 <= share < 1 else f"{100 * share:.0f} %"


# Times


def duration(seconds: float) -> str:
    """Format a duration with a suitable unit.

    >>> duration(0.0000124), duration(75.0), duration(7384.0)
    ('12.4 µs', '1 min 15 s', '2 h 3 min')
    """
    if seconds >= 60:
        minutes, rest = divmod(round(seconds), 60)
        hours, minutes_left = divmod(minutes, 60)
        return f"{hours:,} h {minutes_left} min" if hours else f"{minutes} min {rest} s"
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1:
            return f"{_three(seconds * factor)} {unit}"
    return f"{_three(seconds * 1e9)} ns"


def clock(seconds: float) -> str:
    """Format a duration as hours, minutes and seconds.

    >>> clock(64), clock(3725)
    ('1:04', '1:02:05')
    """
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


# Digits


def _scaled(value: int, base: int, prefixes: tuple[str, ...], unit: str) -> str:
    if abs(value) < base:
        return f"{value} {unit}"
    scaled, index = value / base, 1
    while _rounds_to_base(scaled, base) and index < len(prefixes) - 1:
        scaled, index = scaled / base, index + 1
    figure = f"{scaled:.3g}" if abs(scaled) >= 1e9 else _three(scaled)  # larger than the largest prefix
    return f"{figure} {prefixes[index]}{unit}"


def _rounds_to_base(scaled: float, base: int) -> bool:
    return float(_three(abs(scaled)).replace(",", "")) >= base


def _three(value: float) -> str:
    """Format with three significant digits, or all digits of the integer part.

    >>> _three(3.731), _three(45.12), _three(999.4), _three(1023.0)
    ('3.73', '45.1', '999', '1,023')
    """
    decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:,.{decimals}f}"
