"""Checks of plots and pictures: the position of every label, overlapping labels, and labels outside the figure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from matplotlib.figure import Figure
from matplotlib.text import Text

from multilayer.drawing.plots.style import plot_style

SVG = "{http://www.w3.org/2000/svg}"


def texts_of_svg(path: Path) -> list[str]:
    """Return every text of a well-formed SVG file."""
    return ["".join(node.itertext()) for node in ElementTree.parse(path).getroot().iter(f"{SVG}text")]


def boxes(figure: Figure) -> list[tuple[str, Any]]:
    """Return each visible text with its box in points."""
    with plot_style():
        figure.set_dpi(72)
        figure.draw_without_rendering()
        renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
        found = [t for t in _texts(figure) if t.get_visible() and t.get_text().strip()]
        return [(t.get_text(), Text.get_window_extent(t, renderer)) for t in found]


def _texts(figure: Figure) -> Iterator[Text]:
    """Yield the text objects of a figure. Of the tick labels, only those within the limits, which matplotlib draws."""
    yield from figure.texts
    for axes in figure.axes:
        yield from axes.texts
        if axes.axison:
            yield from (axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label)
            for axis in (axes.xaxis, axes.yaxis):
                yield from (tick.label1 for tick in axis._update_ticks())


def overlapping(figure: Figure, *, slack: float = 0.6) -> list[tuple[str, str]]:
    """Return pairs of labels whose boxes overlap by more than `slack` points in both directions."""
    found: list[tuple[str, str]] = []
    for (a, p), (b, q) in combinations(boxes(figure), 2):
        wide = min(p.x1, q.x1) - max(p.x0, q.x0)
        tall = min(p.y1, q.y1) - max(p.y0, q.y0)
        if wide > slack and tall > slack:
            found.append((a, b))
    return found


def outside(figure: Figure) -> list[str]:
    """Return labels that are partly outside the figure."""
    width, height = figure.get_figwidth() * 72, figure.get_figheight() * 72
    return [
        text
        for text, box in boxes(figure)
        if box.x0 < -0.5 or box.y0 < -0.5 or box.x1 > width + 0.5 or box.y1 > height + 0.5
    ]
