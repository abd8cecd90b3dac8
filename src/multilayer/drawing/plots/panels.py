"""A grid of panels: lines, maps of a function of two variables, and small images.

    Panel    lines, from `lines.py`
    Map      a matrix of numbers as colors, with contour lines, points and paths on top
    Images   small square images in a grid, such as the weights of the units of a first layer

Two panels stand next to each other. A map of positive and negative numbers has white at 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .lines import Panel, draw_lines
from .style import INK, MUTED, SMALL, heading, new_figure, place, plot_style, shorten, text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS, _WIDTH, _HEIGHT = 2, 760.0, 200.0
_TOP, _LEFT, _GAP_Y, _EDGE = 76.0, 58.0, 72.0, 16.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Map:
    """Values (rows along y, columns along x) over a rectangle. `points` are named positions (x, y)."""

    title: str
    values: NDArray[Any]
    x: tuple[float, float]
    """Centers of the first and the last column."""
    y: tuple[float, float]
    x_label: str = ""
    y_label: str = ""
    label: str = ""
    """What the color shows."""
    levels: Sequence[float] = ()
    """Values of contour lines."""
    points: Sequence[tuple[str, float, float]] = ()
    path: Sequence[tuple[float, float]] = ()
    """Positions that a line connects."""
    log: bool = False
    """Whether the colors are logarithmic."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Images:
    """Images (number, height, width). Each has its own color scale, symmetric around 0 if a value is negative."""

    title: str
    images: NDArray[Any]
    names: Sequence[str] = ()
    columns: int = 8


AnyPanel = Panel | Map | Images


def panels_figure(panels: Sequence[AnyPanel], *, title: str, subtitle: str = "", columns: int = _COLUMNS) -> Figure:
    """Draw panels in a grid, row by row."""
    with plot_style("a plot"):
        columns = min(columns, len(panels))
        lines = -(-len(panels) // columns)
        figure = new_figure(_WIDTH, _TOP + lines * _HEIGHT + (lines - 1) * _GAP_Y + 46)
        heading(figure, _EDGE, title, shorten(subtitle, _WIDTH - 2 * _EDGE))
        each = (_WIDTH - _EDGE) / columns
        for i, panel in enumerate(panels):
            x, y = (i % columns) * each, _TOP + (i // columns) * (_HEIGHT + _GAP_Y)
            _DRAW[type(panel)](figure, panel, x, y, each)
        return figure


def _lines(figure: Figure, panel: Panel, x: float, y: float, width: float) -> None:
    names = max((text_width(line.name, SMALL) for line in panel.lines if line.name), default=0.0)
    draw_lines(place(figure, x + _LEFT, y, width - _LEFT - names - 20, _HEIGHT), panel)


def _map(figure: Figure, panel: Map, x: float, y: float, width: float) -> None:
    from matplotlib.colors import LogNorm, TwoSlopeNorm

    ax = place(figure, x + _LEFT, y, width - _LEFT - 74, _HEIGHT)
    ax.set_title(panel.title, pad=8)
    ax.grid(visible=False)
    values = np.ma.masked_invalid(np.asarray(panel.values, dtype=float))
    low, high = float(values.min()), float(values.max())
    signed = low < 0 < high and not panel.log
    norm: Any = None
    if panel.log:
        norm = LogNorm(max(low, high * 1e-12), high)
    elif signed:
        reach = max(-low, high)
        norm = TwoSlopeNorm(0.0, -reach, reach)
    steps = [
        (last - first) / max(n - 1, 1) / 2
        for (first, last), n in zip((panel.x, panel.y), values.shape[::-1], strict=True)
    ]
    (left, right), (bottom, top) = (
        (first - step, last + step) for (first, last), step in zip((panel.x, panel.y), steps, strict=True)
    )
    image = ax.imshow(
        values, origin="lower", extent=(left, right, bottom, top), aspect="auto", norm=norm,
        cmap="RdBu_r" if signed else "viridis", interpolation="nearest",
    )  # fmt: skip
    if panel.levels:
        grid = [np.linspace(*ends, n) for ends, n in zip((panel.x, panel.y), values.shape[::-1], strict=True)]
        ax.contour(*grid, values, levels=sorted(panel.levels), colors="white", linewidths=0.6, alpha=0.8)
    if panel.path:
        ax.plot(*zip(*panel.path, strict=True), color=INK, linewidth=1.2)
    for name, px, py in panel.points:
        ax.plot([px], [py], marker="o", markersize=4.5, color="white", markeredgecolor=INK)
        ax.annotate(name, (px, py), xytext=(5, 4), textcoords="offset points", fontsize=SMALL, color=INK,
                    bbox={"facecolor": "white", "alpha": 0.75, "pad": 1, "linewidth": 0})  # fmt: skip
    ax.set_xlabel(panel.x_label)
    ax.set_ylabel(panel.y_label)
    bar = place(figure, x + width - 66, y, 8, _HEIGHT)
    figure.colorbar(image, cax=bar)
    bar.grid(visible=False)
    bar.set_title(panel.label, fontsize=SMALL, color=MUTED, fontweight="normal", pad=8, loc="center")


def _images(figure: Figure, panel: Images, x: float, y: float, width: float) -> None:
    count = len(panel.images)
    columns = min(panel.columns, count)
    lines = math.ceil(count / columns)
    names = 12.0 if panel.names else 3.0
    side = min((width - _LEFT) / columns - 3, (_HEIGHT - 4) / lines - names)
    for i, image in enumerate(np.asarray(panel.images, dtype=float)):
        ax = place(figure, x + _LEFT + (i % columns) * (side + 3), y + (i // columns) * (side + names), side, side)
        reach = float(np.abs(image).max()) or 1.0
        signed = float(image.min()) < 0
        ax.imshow(image, cmap="RdBu_r" if signed else "gray_r", vmin=-reach if signed else 0, vmax=reach)
        _blank(ax)
        if panel.names:
            ax.set_xlabel(panel.names[i], fontsize=SMALL - 1, labelpad=1.5)
    w, h = figure.get_figwidth() * 72, figure.get_figheight() * 72
    figure.text((x + _LEFT) / w, 1 - (y - 9) / h, panel.title, fontsize=9.5, fontweight="bold", color=INK)


def _blank(ax: Axes) -> None:
    ax.set_xticks([])
    ax.set_yticks([])
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set_visible(True)


_DRAW: dict[type[AnyPanel], Any] = {Panel: _lines, Map: _map, Images: _images}
