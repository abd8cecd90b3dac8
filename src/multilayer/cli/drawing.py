"""Draw in the terminal with characters: a curve in braille dots, and bars."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a braille character, by row and column of its dots."""


def curve(y: NDArray[np.floating], low: float, high: float, *, width: int, height: int) -> list[str]:
    """Return lines of `width` characters that plot y, one value per column of dots (2·width columns).

    Values that are not finite, or outside of `low` … `high`, leave a gap.

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
    """Return the rows of dots that connect a point to the point in the column before."""
    return range(row, before) if row < before else range(before + 1, row + 1)


def share_bar(share: float, *, width: int) -> Text:
    """Return a percentage with its bar. A share that is small but not 0 is printed as <0.1.

    >>> share_bar(0.5, width=4).plain, share_bar(0.0001, width=4).plain
    (' 50.0 % ██', ' <0.1 % ')
    """
    figure = "<0.1" if 0 < share < 0.0005 else f"{100 * share:.1f}"
    return Text.assemble(f"{figure:>5} % ", (_blocks(share * width), "cyan"))


def log_bar(value: float, decades: float, *, width: int, limit: float) -> Text:
    """Return a bar on a logarithmic scale around 1: to the right for larger values, to the left for smaller ones.

    Each side covers `decades` powers of ten. A value that differs from 1 by a factor of `limit` or more is red. For 0
    and values that are not finite, the bar consists of arrows.

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
    # Unicode has blocks that fill the left part of a cell in eighths, but only one for the right half.
    halves = round(length * 2)
    blocks = ("▐" if halves % 2 else "") + "█" * (halves // 2)
    return Text.assemble((blocks.rjust(half), colour), ("│", "dim"), " " * half)


def _blocks(length: float) -> str:
    eighths = round(length * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
