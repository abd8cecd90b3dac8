"""Parts of both kinds of pictures: the heading, captions, shares, and the curve of an activation."""

from __future__ import annotations

import numpy as np

from ...core.formatting import count, flops, percent
from ...costs.summary import NetworkSummary, Part
from ...nn.activations import ActivationFunction
from ..plots.activations import curve
from ..plots.canvas import Canvas
from ..plots.style import COLOURS, FAINT, GRID, INK, MUTED, SMALL, TITLE, shorten, text_width

EDGE = 18.0
"""Width of the empty border of a picture."""
HEADING = 56.0
"""Height of the heading."""
LINE = 11.5
"""Distance between two lines of a caption."""
SHARE_WIDTH = 30.0

_KEY = "under each layer: activation and options, parameters, share of the step's FLOPs"

BLUE, ACCENT = COLOURS[0], COLOURS[1]


def heading(canvas: Canvas, summary: NetworkSummary) -> None:
    room = canvas.width - 2 * EDGE
    canvas.text(EDGE, 22, shorten(str(summary.spec), room, TITLE, bold=True), size=TITLE, bold=True, align="left")
    canvas.text(EDGE, 38, subtitle(summary), colour=MUTED, size=SMALL + 0.5, align="left")


def subtitle(summary: NetworkSummary) -> str:
    cost = summary.cost
    return f"{count(cost.parameters, 'parameter')}  ·  {flops(cost.step)} per training step of {cost.batch} rows"


def heading_width(summary: NetworkSummary) -> float:
    """Return the width of the heading. A long name of a network is shortened."""
    title = min(text_width(str(summary.spec), TITLE, bold=True), 420.0)
    return 2 * EDGE + max(title, text_width(subtitle(summary), SMALL + 0.5), text_width(_KEY, SMALL - 1))


def caption(part: Part) -> list[str]:
    """Return the lines of a caption: name, options and activation, parameters. The share is drawn below them."""
    chosen = ", ".join(word for word in (part.detail, part.function if part.mixes else "") if word)
    return [part.heading, shorten(chosen, 110, SMALL), f"{part.parameters:,}" if part.parameters else "–"]


def caption_width(part: Part) -> float:
    name, *rest = caption(part)
    share = SHARE_WIDTH + 4 + text_width("> 99.9 %", SMALL - 0.5)
    return max(text_width(name, SMALL, bold=True), share, *(text_width(line, SMALL) for line in rest))


def draw_caption(canvas: Canvas, x: float, y: float, part: Part, share: float) -> None:
    name, chosen, parameters = caption(part)
    canvas.text(x, y, name, size=SMALL, bold=True)
    canvas.text(x, y + LINE, chosen, size=SMALL, colour=ACCENT)
    canvas.text(x, y + 2 * LINE, parameters, size=SMALL, colour=INK if part.parameters else FAINT)
    draw_share(canvas, x, y + 3 * LINE, share)


def draw_share(canvas: Canvas, x: float, y: float, share: float) -> None:
    """Draw a small bar with its percentage, centered at x."""
    words = percent(share)
    left = x - (SHARE_WIDTH + 4 + text_width(words, SMALL - 0.5)) / 2
    canvas.box(left, y - 2, SHARE_WIDTH, 4, fill=GRID, radius=2)
    if share > 0:
        canvas.box(left, y - 2, max(SHARE_WIDTH * share, 1.5), 4, fill=BLUE, radius=2)
    canvas.text(left + SHARE_WIDTH + 4, y, words, size=SMALL - 0.5, colour=MUTED, align="left")


def key(canvas: Canvas, y: float) -> None:
    """Draw a line that explains the captions."""
    canvas.text(EDGE, y, _KEY, size=SMALL - 1, colour=MUTED, align="left")


def glyph(canvas: Canvas, x: float, y: float, size: float, fn: ActivationFunction, *, colour: str = ACCENT) -> None:
    """Draw the curve of an activation over [−3, 3] in a square around (x, y)."""
    z = np.linspace(-3, 3, 49)
    a = curve(fn, z)
    known = np.isfinite(a)
    a = np.clip(np.where(known, a, 0), -3, 3)
    low, high = min(float(a[known].min()), 0.0), max(float(a[known].max()), 0.5)
    points = [
        (x + size * t / 7, y + size * (0.42 - 0.84 * (v - low) / (high - low)))
        for t, v, ok in zip(z, a, known, strict=True)
        if ok
    ]
    canvas.line(points, colour=colour, width=1.3)
