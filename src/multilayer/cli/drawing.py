"""Drawings made of characters: a curve in braille dots, and bars."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a braille character, by row and column of its dots."""


def curve(y: NDArray[np.floating], low: float, high: float, *, width: int, height: int) -> list[str]:
    """Lines of `width` characters that show y, one value for each of 2·width columns of dots; gaps where it is unknown.

    >>> for line in curve(np.linspace(0, 1, 8), 0, 1, width=4, height=1): print(line)
    ⣀⠤⠒⠉
    """
    rows = 4 * height
    cells = np.zeros((height, width), dtype=np.int64)
    before: int | None = None
    for x, value in enumerate(y[: 2 * width]):
        if not (math.isfinite(value) and low <= value <= high):
            before = None
            continue
        row = round((high - float(value)) / (high - low) * (rows - 1))
        for r in (row,) if before in (None, row) else _joined(row, before):
            cells[r // 4, x // 2] |= _DOTS[r % 4][x % 2]
        before = row
    return ["".join(chr(0x2800 + int(cell)) for cell in line) for line in cells]


def _joined(row: int, before: int) -> range:
    """The dots of one column that reach from its own row to the one before."""
    return range(row, before) if row < before else range(before + 1, row + 1)


def share_bar(share: float, *, width: int) -> Text:
    """A percentage and its bar; 0.0 only where it is 0.

    >>> share_bar(0.5, width=4).plain, share_bar(0.0001, width=4).plain
    (' 50.0 % ██', ' <0.1 % ')
    """
    figure = "<0.1" if 0 < share < 0.0005 else f"{100 * share:.1f}"
    return Text.assemble(f"{figure:>5} % ", (_blocks(share * width), "cyan"))


def log_bar(value: float, decades: float, *, width: int, limit: float) -> Text:
    """How far a number is from 1, to the right above it and to the left below, `decades` at the end of either side.

    Red from a factor of `limit` on. What has no place on the scale, 0 and what is not finite, is arrows to its end.

    >>> log_bar(100.0, 4, width=9, limit=1e3).plain, log_bar(0.01, 4, width=9, limit=1e3).plain
    ('    │██  ', '  ██│    ')
    """
    half = width // 2
    if not value > 0 or not math.isfinite(value):
        sides = ("◀" * half, " " * half) if value == 0 else (" " * half, "▶" * half)
        return Text.assemble((sides[0], "red"), ("│", "dim"), (sides[1], "red"))
    length = min(abs(math.log10(value)) / decades, 1.0) * half
    colour = "cyan" if 1 / limit < value < limit else "red"
    if value >= 1:
        return Text.assemble(" " * half, ("│", "dim"), (_blocks(length).ljust(half), colour))
    # There are blocks that fill the left of a place in eighths, and on the right only its half.
    halves = round(length * 2)
    blocks = ("▐" if halves % 2 else "") + "█" * (halves // 2)
    return Text.assemble((blocks.rjust(half), colour), ("│", "dim"), " " * half)


def _blocks(length: float) -> str:
    eighths = round(length * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
