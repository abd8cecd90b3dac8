"""Line plots in panels next to each other. Each line has its name at its right end instead of a legend."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.formatting import tick_size
from .style import COLOURS, MUTED, SMALL, heading, new_figure, place, plot_style, spread, text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LABEL_GAP = 11.0
_FAR = 200.0
"""Axis limits are at most 10 to the power of this number. With larger limits, matplotlib's tick locator overflows."""
_TOP, _BOTTOM, _EDGE = 62.0, 46.0, 16.0


@dataclass(frozen=True, kw_only=True)
class Line:
    """Values y at x. A value that is not finite, or not positive on a logarithmic axis, leaves a gap."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    dashed: bool = False
    points: bool = False
    """Whether each value has a marker, as measurements do."""
    band: tuple[Sequence[float], Sequence[float]] | None = None
    """Lower and upper ends of an interval at each x, drawn as an area."""
    colour: int | None = None
    """Position in `COLOURS`. None is the position of the line."""
    joined: bool = True
    """Whether the values are connected. Values of categories have no order, and are shown as separate markers."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A pair of axes with lines. Tick labels put a prefix before `unit`, as in 10 MFLOP or 16 MiB."""

    title: str
    lines: Sequence[Line]
    x_label: str = ""
    y_label: str = ""
    unit: str | None = None
    log_x: bool = False
    log_y: bool = False
    ticks: Sequence[str] = ()
    """Names of x = 1, 2, …"""
    marks: Mapping[str, float] = field(default_factory=dict[str, float])
    """Positions of vertical lines on the x axis, by their name."""
    limits: tuple[float, float] | None = None
    """Ends of the y axis. By default, they follow from the values."""


def lines_figure(
    panels: Sequence[Panel], *, title: str, subtitle: str = "", width: float = 720.0, height: float = 300.0
) -> Figure:
    """Plot panels next to each other. Sizes are in points."""
    with plot_style("a plot of lines"):
        figure = new_figure(width, height)
        heading(figure, 16, title, subtitle)
        room = [max((text_width(line.name, SMALL) for line in p.lines if line.name), default=0.0) + 14 for p in panels]
        ticks = [38 + text_width(p.unit or "", SMALL) for p in panels]
        each = (width - 2 * _EDGE - sum(room) - sum(ticks)) / len(panels)
        x = _EDGE
        for panel, before, after in zip(panels, ticks, room, strict=True):
            draw_lines(place(figure, x + before, _TOP, each, height - _TOP - _BOTTOM), panel)
            x += before + each + after
        return figure


def draw_lines(ax: Axes, panel: Panel) -> None:
    """Draw a panel into axes."""
    from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullLocator

    ax.set_title(panel.title, pad=8)
    ax.set_xlabel(panel.x_label)
    ax.set_ylabel(panel.y_label)
    for axis, log in ((ax.xaxis, panel.log_x), (ax.yaxis, panel.log_y)):
        if log:
            axis.set_major_locator(LogLocator(numticks=7))
            axis.set_minor_locator(NullLocator())
    ends: list[tuple[Line, str, float, float]] = []
    drawn: list[float] = []
    for i, line in enumerate(panel.lines):
        colour = COLOURS[(i if line.colour is None else line.colour) % len(COLOURS)]
        x, y = np.asarray(line.x, dtype=float), np.asarray(line.y, dtype=float)
        y = np.where(np.isfinite(y) & ((y > 0) | (not panel.log_y)), y, np.nan)
        dashes = "none" if not line.joined else (0, (4, 2.5)) if line.dashed else "-"
        marked = line.points or not line.joined
        marker: dict[str, Any] = {"marker": "o", "markersize": 3.6, "markeredgewidth": 0} if marked else {}
        ax.plot(x, y, color=colour, linestyle=dashes, **marker)
        if line.band is not None:
            low, high = (np.asarray(end, dtype=float) for end in line.band)
            if panel.log_y:  # an interval can reach below 0, where a logarithmic axis has no place
                low = np.where(low > 0, low, y / 10)
            if line.joined:
                ax.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
            else:
                ax.vlines(x, low, high, color=colour, linewidth=1.2)
        known = np.flatnonzero(~np.isnan(y))
        if len(known):
            ends.append((line, colour, float(x[known[-1]]), float(y[known[-1]])))
            drawn += [float(value) for value in y[known]]
    if panel.log_x and ends:
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:.2g}")
    elif panel.ticks:
        _name_ticks(ax, panel.ticks)
    elif ends and all(float(x).is_integer() for line in panel.lines for x in line.x):
        ax.xaxis.set_major_locator(MaxNLocator(7, integer=True))
    if panel.log_y and ends:
        ax.set_yscale("log", base=2 if panel.unit == "B" else 10)
        ax.yaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter(lambda value, _: power(value))
        _log_limits(ax, drawn)
    else:
        ax.yaxis.set_major_locator(MaxNLocator(5))
    if panel.unit == "B":
        ax.yaxis.set_major_formatter(lambda value, _: tick_size(value))
    elif panel.unit is not None:
        ax.yaxis.set_major_formatter(EngFormatter(unit=panel.unit, sep=" "))
    if not ends:
        ax.set_yticks([])
        ax.text(
            0.5,
            0.5,
            "no value above 0" if panel.log_y else "no value",
            transform=ax.transAxes,
            ha="center",
            va="center",
            color=MUTED,
        )
    if panel.limits is not None:
        ax.set_ylim(*panel.limits)
    for name, x in panel.marks.items():
        ax.axvline(x, color=MUTED, linewidth=1.0, linestyle=(0, (2, 2)))
        ax.annotate(
            name, xy=(x, 1), xycoords=("data", "axes fraction"), xytext=(3, -8), textcoords="offset points",
            fontsize=SMALL, color=MUTED,
        )  # fmt: skip
    name_ends(ax, ends)


def power(value: float) -> str:
    """Format a power of ten.

    >>> power(100.0), power(0.01), power(1e-12)
    ('100', '0.01', '10⁻¹²')
    """
    if 0.001 <= value <= 10_000 or value <= 0:
        return f"{value:,g}"
    return "10" + f"{round(math.log10(value))}".translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _name_ticks(ax: Axes, names: Sequence[str]) -> None:
    """Label every tick with its name if there is space, otherwise some ticks with their number."""
    from matplotlib.ticker import FixedLocator, MaxNLocator

    width = ax.get_position().width * ax.get_figure(root=True).get_figwidth() * 72  # pyright: ignore[reportOptionalMemberAccess]
    ax.set_xlim(0.6, len(names) + 0.4)
    if sum(text_width(name, SMALL) + 8 for name in names) <= width:
        ax.xaxis.set_major_locator(FixedLocator(list(range(1, len(names) + 1))))
        ax.set_xticklabels(names)
    else:
        ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))


def _log_limits(ax: Axes, values: Sequence[float]) -> None:
    """Set the limits with a margin of 5 %, and to at least two decades, so that small changes look small."""
    low, high = math.log10(min(values)), math.log10(max(values))
    reach = max(0.55 * (high - low), 1.0)
    middle = (low + high) / 2
    ax.set_ylim(10 ** max(middle - reach, -_FAR), 10 ** min(middle + reach, _FAR))


def name_ends(ax: Axes, ends: Sequence[tuple[Line, str, float, float]]) -> None:
    """Write the name of each line to the right of its end, and move names that overlap."""
    figure = ax.get_figure(root=True)
    if figure is None or not ends:
        return
    points = 72 / figure.dpi
    ax.autoscale_view()  # matplotlib sets limits that follow from the data only when it draws
    box = ax.get_window_extent()
    low, high = box.y0 * points + 4, box.y1 * points - 4
    heights = [float(ax.transData.transform((x, y))[1]) * points for _, _, x, y in ends]
    inside = [min(max(h, low - 4), high + 4) for h in heights]
    for (line, colour, x, _), at, target in zip(
        ends, spread(inside, _LABEL_GAP, low, max(high, low)), inside, strict=True
    ):
        if not line.name:
            continue
        left, right = float(ax.transData.transform((x, 1))[0]) * points, box.x1 * points
        ax.annotate(
            line.name,
            xy=(left, target),
            xycoords="figure points",
            xytext=(right + 9, at),
            textcoords="figure points",
            color=colour,
            fontsize=SMALL,
            va="center_baseline",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.6,
                "shrinkA": 2,
                "shrinkB": 2,
                "relpos": (0, 0.5),
            },
        )
