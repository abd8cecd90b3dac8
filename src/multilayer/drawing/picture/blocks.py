"""A network as blocks: a bar for each vector, a trapezoid for each linear map, and a frame for each residual block.

    │◣  a linear map (or gate, maxout, KAN, columns), from its input width to its output width
    ▯   a layer that does not change the width: norm, dropout, scale
    ⊕   the end of a residual block, where the skip connection is added

Heights are the logarithms of widths. A map with a larger share of the FLOPs has a darker fill. Rows that are wider than
the page are wrapped. If there are too many layers, a label with their number replaces those in the middle.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...costs.summary import NetworkSummary, Part
from ...nn.layers import Inputs
from ..plots.canvas import Canvas, tint
from ..plots.style import CARD, FAINT, GRID, INK, MUTED, SMALL, text_width
from .common import (
    ACCENT,
    BLUE,
    EDGE,
    HEADING,
    LINE,
    caption_width,
    draw_caption,
    glyph,
    heading,
    heading_width,
    key,
    percent,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PAGE = 760.0
_TALL, _LOW = 96.0, 20.0
"""Heights of the widest vector and of a single number."""
_BAR = 8.0
_MOST = (36, 12, 6, 4)
"""Largest number of parts in a row, by depth. If there are more, the middle is omitted."""
_FRAME_LEFT, _FRAME_RIGHT, _FRAME_TOP, _FRAME_GAP = 16.0, 46.0, 34.0, 24.0
"""Space in a frame to the left, to the right and above its parts, and between a frame and the bars next to it."""
_SHAPES = 14.0
"""Height of the line with shapes above the blocks."""


@dataclass(frozen=True)
class _Omitted:
    """A placeholder for omitted parts: their number, their parameters, and the width after them."""

    count: int
    parameters: int
    d_out: int


_Item = Part | _Omitted


def figure(summary: NetworkSummary) -> Figure:
    return _Drawing(summary).draw()


class _Drawing:
    def __init__(self, summary: NetworkSummary) -> None:
        self.summary = summary
        self.widest = max(max(_widths(summary.parts)), _count(summary.spec.inputs), 16)
        self.items = _elided(summary.parts, 0)

    # Sizes

    def height(self, width: int) -> float:
        return _LOW + (_TALL - _LOW) * math.log(width) / math.log(self.widest)

    def width(self, item: _Item, depth: int) -> float:
        """Return the width of an item, including the bar after it."""
        if isinstance(item, _Omitted):
            return max(text_width(f"{item.parameters:,}", SMALL) + 12, 70.0) + _BAR
        if _framed(item, depth):
            inside = sum(self.width(inner, depth + 1) for inner in _elided(item.parts, depth + 1))
            title = text_width(_title(item), SMALL, bold=True) + 8 + text_width(self.about(item), SMALL)
            right = _FRAME_RIGHT if item.kind == "residual" else 10.0
            return max(_FRAME_LEFT + inside + right, title + 20) + 2 * _FRAME_GAP + _BAR
        if item.mixes:
            return max(64.0 if item.times == 1 else 92.0, caption_width(item) + 12 - _BAR) + _BAR
        outputs = 24.0 if item is self.items[-1] else 0.0  # the bar of the outputs is after it
        return caption_width(item) + 12 + outputs

    def about(self, part: Part) -> str:
        share = percent(self.summary.share(part))
        if part.times == 1:
            return f"{part.parameters:,} parameters  ·  {share}"
        each, rest = divmod(part.parameters, part.times)
        one = f"{each:,} parameters each" if not rest else f"{part.parameters:,} parameters"
        return f"{one}  ·  {share} together"

    # Drawing

    def draw(self) -> Figure:
        inputs = self._inputs_label()
        first = max(text_width(inputs, SMALL), text_width("inputs", SMALL, bold=True)) / 2 + _BAR / 2
        last = max(text_width("outputs", SMALL, bold=True), text_width(_shape(self.summary.spec.d_out), SMALL)) / 2
        rows = self._rows(first, last)
        levels = [max(_level(item, 0) for item in row) for row in rows]
        used = [first + sum(self.width(item, 0) for item in row) + last for row in rows]
        width = max(*used, heading_width(self.summary) - 2 * EDGE, 300.0) + 2 * EDGE
        heights = [_above(level) + _TALL + 14 + 4 * LINE + 8 * level + 10 for level in levels]
        canvas = Canvas(width, HEADING + sum(heights) + 14)
        heading(canvas, self.summary)
        y = HEADING
        for i, (row, level, height) in enumerate(zip(rows, levels, heights, strict=True)):
            x = EDGE + first if len(rows) > 1 else (width - used[i]) / 2 + first
            middle = y + _above(level) + _TALL / 2
            before = self.summary.spec.inputs if i == 0 else rows[i - 1][-1].d_out
            end = x + sum(self.width(item, 0) for item in row)
            canvas.line([(x, middle), (end, middle)], colour=FAINT, width=1.2)
            self._bar(canvas, x, middle, _count(before), label=inputs if i == 0 else _shape(_count(before)))
            names = middle - _TALL / 2 - _SHAPES / 2 - 1 - LINE
            if i == 0:
                canvas.text(x, names, "inputs", size=SMALL, bold=True)
            else:
                canvas.line([(x - 22, middle), (x - 7, middle)], colour=MUTED, width=1.2, arrow=True)
            self._items(canvas, row, x + _BAR / 2, middle, 0)
            if i == len(rows) - 1:
                if not _ends_in_bar(row[-1]):
                    self._bar(canvas, end, middle, self.summary.spec.d_out)
                canvas.text(end, names, "outputs", size=SMALL, bold=True)
            else:
                canvas.line([(end + 7, middle), (end + 22, middle)], colour=MUTED, width=1.2, arrow=True)
            y += height
        key(canvas, y)
        return canvas.figure

    def _rows(self, first: float, last: float) -> list[list[_Item]]:
        room = _PAGE - 2 * EDGE - first - last
        rows: list[list[_Item]] = [[]]
        used = 0.0
        for item in self.items:
            needs = self.width(item, 0)
            if rows[-1] and used + needs > room:
                rows.append([])
                used = 0.0
            rows[-1].append(item)
            used += needs
        return rows

    def _items(self, canvas: Canvas, items: Iterable[_Item], x: float, middle: float, depth: int) -> None:
        for item in items:
            width = self.width(item, depth)
            if isinstance(item, _Omitted):
                self._draw_omitted(canvas, x + (width - _BAR) / 2, middle, item)
                self._bar(canvas, x + width - _BAR / 2, middle, item.d_out)
            elif _framed(item, depth):
                self._frame(canvas, item, x, middle, width - 2 * _FRAME_GAP - _BAR, depth)
                self._bar(canvas, x + width - _BAR / 2, middle, item.d_out)
            elif item.mixes:
                self._map(canvas, item, x, middle, width - _BAR)
                self._bar(canvas, x + width - _BAR / 2, middle, item.d_out)
            else:
                self._slim(canvas, item, x + (caption_width(item) + 12) / 2, middle)
            x += width

    def _map(self, canvas: Canvas, part: Part, x: float, middle: float, width: float) -> None:
        a, b = self.height(part.width_in) / 2, self.height(part.d_out) / 2
        share = self.summary.share(part)
        fill = tint(BLUE, 0.12 + 0.5 * math.sqrt(share))
        x0, x1 = x + 2, x + width - 2
        for shift in (6.0, 3.0) if part.times > 1 else ():
            behind = [(x0 + shift, middle - a - shift), (x1 + shift - 6, middle - b - shift)]
            behind += [(x1 + shift - 6, middle + b - shift), (x0 + shift, middle + a - shift)]
            canvas.polygon(behind, fill=tint(BLUE, 0.08), edge=tint(BLUE, 0.45), line=0.7)
        x1 -= 6 if part.times > 1 else 0
        corners = [(x0, middle - a), (x1, middle - b), (x1, middle + b), (x0, middle + a)]
        canvas.polygon(corners, fill=fill, edge=tint(BLUE, 0.45), line=0.7)
        centre = (x0 + x1) / 2
        if part.times > 1:
            canvas.text(centre, middle - _TALL / 2 - _SHAPES / 2 - 1, f"×{part.times}", colour=ACCENT, bold=True)
        if part.activation is not None:
            canvas.box(centre - 9, middle - 9, 18, 18, fill=CARD, edge=tint(BLUE, 0.45), radius=4, line=0.7)
            glyph(canvas, centre, middle, 14, part.activation.function)
        draw_caption(canvas, x + width / 2, self._caption_y(middle), part, share)

    def _slim(self, canvas: Canvas, part: Part, x: float, middle: float) -> None:
        tall = self.height(part.d_out)
        wide = 22.0 if part.activation is not None else 14.0
        fill = CARD if part.kind == "dropout" else GRID
        for shift in (5.0, 2.5) if part.times > 1 else ():
            canvas.box(x - wide / 2 + shift, middle - tall / 2 - shift, wide, tall, fill=CARD, edge=FAINT, radius=5)
        canvas.box(x - wide / 2, middle - tall / 2, wide, tall, fill=fill, edge=MUTED, radius=5, line=0.7)
        if part.activation is not None:
            glyph(canvas, x, middle, 14, part.activation.function)
        elif part.kind == "dropout":
            for k in range(-2, 3):
                if k % 2 == 0:
                    canvas.circle(x, middle + k * tall / 6.5, 1.8, fill=MUTED)
                else:
                    canvas.circle(x, middle + k * tall / 6.5, 1.8, fill=CARD, edge=FAINT, line=0.8)
        if part.times > 1:
            canvas.text(x, middle - _TALL / 2 - _SHAPES / 2 - 1, f"×{part.times}", colour=ACCENT, bold=True)
        draw_caption(canvas, x, self._caption_y(middle), part, self.summary.share(part))

    def _frame(self, canvas: Canvas, part: Part, x: float, middle: float, width: float, depth: int) -> None:
        level = _level(part, depth)
        top = middle - _TALL / 2 - _above(level) + 4
        bottom = self._caption_y(middle) + 3 * LINE + 2 + 8 * level
        x0, x1 = x + _FRAME_GAP, x + _FRAME_GAP + width
        fill = "#f5f7f9" if depth % 2 == 0 else "#eaeef2"
        canvas.box(x0, top, x1 - x0, bottom - top, fill=fill, edge=FAINT, radius=8)
        title = _title(part)
        canvas.text(x0 + 10, top + 11, title, size=SMALL, bold=True, align="left")
        canvas.text(
            x0 + 18 + text_width(title, SMALL, bold=True), top + 11, self.about(part), size=SMALL, colour=MUTED,
            align="left",
        )  # fmt: skip
        canvas.line([(x, middle), (x1 + _FRAME_GAP, middle)], colour=FAINT, width=1.2)
        inside = [*_elided(part.parts, depth + 1)]
        start = x0 + _FRAME_LEFT
        self._items(canvas, inside, start, middle, depth + 1)
        if part.kind == "residual":
            skip, plus = top + 24, x1 - 14
            canvas.line(
                [(x0 + 8, middle), (x0 + 8, skip), (plus, skip), (plus, middle - 8)],
                colour=ACCENT,
                width=1.2,
                arrow=True,
            )
            canvas.circle(x0 + 8, middle, 2.2, fill=ACCENT)
            canvas.circle(plus, middle, 7.5, fill=CARD, edge=ACCENT, line=1.2)
            canvas.line([(plus - 4, middle), (plus + 4, middle)], colour=ACCENT, width=1.2)
            canvas.line([(plus, middle - 4), (plus, middle + 4)], colour=ACCENT, width=1.2)

    def _bar(self, canvas: Canvas, x: float, middle: float, width: int, *, label: str | None = None) -> None:
        tall = self.height(width)
        canvas.box(x - _BAR / 2, middle - tall / 2, _BAR, tall, fill="#36506b", radius=3)
        canvas.text(x, middle - _TALL / 2 - _SHAPES / 2 - 1, label or _shape(width), size=SMALL, colour=MUTED)

    def _draw_omitted(self, canvas: Canvas, x: float, middle: float, omitted: _Omitted) -> None:
        for k in (-1, 0, 1):
            canvas.circle(x + 8 * k, middle, 2, fill=MUTED)
        y = self._caption_y(middle)
        canvas.text(x, y, f"{omitted.count:,} more", size=SMALL, bold=True)
        canvas.text(x, y + 2 * LINE, f"{omitted.parameters:,}", size=SMALL, colour=INK)

    def _caption_y(self, middle: float) -> float:
        return middle + _TALL / 2 + 14

    def _inputs_label(self) -> str:
        inputs = self.summary.spec.inputs
        if not inputs.categories:
            return _shape(inputs.numeric)
        codes = f"(B, {len(inputs.categories)}) codes"
        return f"{_shape(inputs.numeric)} + {codes}" if inputs.numeric else codes


def _framed(part: Part, depth: int) -> bool:
    return bool(part.parts) and depth < len(_MOST) - 1


def _ends_in_bar(item: _Item) -> bool:
    return isinstance(item, _Omitted) or item.mixes or _framed(item, 0)


def _title(part: Part) -> str:
    name = part.heading if part.kind == "residual" else "repeated"
    return f"{name}  ×{part.times}" if part.times > 1 else name


def _elided(parts: Sequence[Part], depth: int) -> list[_Item]:
    most = _MOST[min(depth, len(_MOST) - 1)]
    if len(parts) <= most:
        return list(parts)
    head = most // 2
    tail = most - head - 1
    middle = parts[head : len(parts) - tail]
    omitted = _Omitted(len(middle), sum(part.parameters for part in middle), middle[-1].d_out)
    return [*parts[:head], omitted, *parts[len(parts) - tail :]]


def _level(item: _Item, depth: int) -> int:
    """Return the number of nested frames of an item."""
    if isinstance(item, _Omitted) or not _framed(item, depth):
        return 0
    return 1 + max(_level(inner, depth + 1) for inner in _elided(item.parts, depth + 1))


def _above(level: int) -> float:
    """Return the space above the blocks for shapes, titles of frames and skip connections."""
    return _SHAPES + 4 + max(_FRAME_TOP * level, LINE)


def _widths(parts: Sequence[Part]) -> list[int]:
    return [w for part in parts for w in (part.width_in, part.d_out, *(_widths(part.parts) if part.parts else ()))]


def _count(d: int | Inputs) -> int:
    return d.count if isinstance(d, Inputs) else d


def _shape(width: int) -> str:
    return f"(B, {width})"
