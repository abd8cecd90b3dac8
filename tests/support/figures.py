"""What tests of plots and pictures ask of a figure: where its text is, and whether any of it is hidden."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from matplotlib.figure import Figure
from matplotlib.text import Text

from multilayer.drawing.plots.style import house

SVG = "{http://www.w3.org/2000/svg}"


def texts_of_svg(path: Path) -> list[str]:
    """Every text of an SVG file, which must be well-formed."""
    return ["".join(node.itertext()) for node in ElementTree.parse(path).getroot().iter(f"{SVG}text")]


def boxes(figure: Figure) -> list[tuple[str, Any]]:
    """Each text that is drawn, with its box in points."""
    with house():
        figure.set_dpi(72)
        figure.draw_without_rendering()
        renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
        found = [t for t in _texts(figure) if t.get_visible() and t.get_text().strip()]
        return [(t.get_text(), Text.get_window_extent(t, renderer)) for t in found]


def _texts(figure: Figure) -> Iterator[Text]:
    """Of the ticks those within the limits: matplotlib keeps others too, and does not draw them."""
    yield from figure.texts
    for axes in figure.axes:
        yield from axes.texts
        if axes.axison:
            yield from (axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label)
            for axis in (axes.xaxis, axes.yaxis):
                yield from (tick.label1 for tick in axis._update_ticks())


def overlapping(figure: Figure, *, slack: float = 0.6) -> list[tuple[str, str]]:
    """Pairs of texts whose boxes overlap by more than `slack` points both ways."""
    found: list[tuple[str, str]] = []
    for (a, p), (b, q) in combinations(boxes(figure), 2):
        wide = min(p.x1, q.x1) - max(p.x0, q.x0)
        tall = min(p.y1, q.y1) - max(p.y0, q.y0)
        if wide > slack and tall > slack:
            found.append((a, b))
    return found


def outside(figure: Figure) -> list[str]:
    """Texts that are not whole within the figure."""
    width, height = figure.get_figwidth() * 72, figure.get_figheight() * 72
    return [
        text
        for text, box in boxes(figure)
        if box.x0 < -0.5 or box.y0 < -0.5 or box.x1 > width + 0.5 or box.y1 > height + 0.5
    ]
