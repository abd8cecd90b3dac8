"""A plot of a search: the loss or metric of each trial with the best so far, and over every dimension.

Trials that stopped early are pale, because their value is from fewer epochs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .style import COLOURS, FAINT, MUTED, heading, new_figure, place, plot_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS, _WIDTH, _HEIGHT = 4, 150.0, 120.0
_TOP, _LEFT, _GAP_X, _GAP_Y, _EDGE = 70.0, 48.0, 46.0, 56.0, 18.0


@dataclass(frozen=True, kw_only=True)
class Point:
    """One trial: its number, its values in every dimension, its loss or metric, and whether it stopped early."""

    number: int
    values: Mapping[str, Any]
    value: float
    pruned: bool = False


def search_figure(
    points: Sequence[Point], dimensions: Mapping[str, bool], *, title: str, metric: str = "loss", larger: bool = False
) -> Figure:
    """Plot a panel with the trials in order, and one for each dimension.

    `dimensions` maps names to whether their axis is logarithmic. `larger` is True if larger values of the metric are
    better.
    """
    panels = 1 + len(dimensions)
    rows, y_label = -(-panels // _COLUMNS), f"validation {metric}".replace("_", " ")
    with plot_style("the plot of a search"):
        width = _LEFT + _COLUMNS * _WIDTH + (_COLUMNS - 1) * _GAP_X + _EDGE
        figure = new_figure(width, _TOP + rows * (_HEIGHT + _GAP_Y))
        complete = [point for point in points if not point.pruned]
        best = (max if larger else min)(complete, key=lambda point: point.value, default=None)
        subtitle = f"{len(points)} trials, {len(points) - len(complete)} of them stopped early"
        if best is not None:
            subtitle += f"; the best is trial {best.number}, with a {y_label} of {best.value:.4g}"
        heading(figure, _LEFT, title, subtitle)
        for i, name in enumerate(["trial", *dimensions]):
            x = _LEFT + (i % _COLUMNS) * (_WIDTH + _GAP_X)
            axes = place(figure, x, _TOP + (i // _COLUMNS) * (_HEIGHT + _GAP_Y), _WIDTH, _HEIGHT)
            _panel(axes, name, points, best, log=dimensions.get(name, False), larger=larger)
            if i % _COLUMNS == 0:
                axes.set_ylabel(y_label)
    return figure


def _logarithmic(axes: Axes, x: Sequence[float]) -> None:
    """Set a logarithmic axis with ticks at powers of ten, or at powers of two for a small range."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(base=10 if max(x) > 100 * min(x) else 2, numticks=6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())


def _panel(axes: Axes, name: str, points: Sequence[Point], best: Point | None, *, log: bool, larger: bool) -> None:
    values: list[Any] = [point.number if name == "trial" else point.values[name] for point in points]
    names = sorted({value for value in values if isinstance(value, str)})
    x = [float(names.index(value)) if isinstance(value, str) else float(value) for value in values]
    for pruned, colour in ((True, FAINT), (False, COLOURS[0])):
        shown = [i for i, point in enumerate(points) if point.pruned == pruned]
        axes.scatter([x[i] for i in shown], [points[i].value for i in shown], s=14, color=colour, zorder=3)
    if name == "trial" and best is not None:
        sign = -1.0 if larger else 1.0
        so_far = sign * np.minimum.accumulate([np.inf if point.pruned else sign * point.value for point in points])
        known = np.isfinite(so_far)
        axes.step(np.asarray(x)[known], so_far[known], where="post", color=MUTED, linewidth=1)
    if best is not None:
        at = x[[point.number for point in points].index(best.number)]
        axes.scatter([at], [best.value], s=42, facecolors="none", edgecolors=COLOURS[1], linewidths=1.4, zorder=4)
    if log:
        _logarithmic(axes, x)
    if names:
        axes.set_xticks(range(len(names)), names)
        axes.set_xlim(-0.5, len(names) - 0.5)
    best_first = sorted((point.value for point in points), reverse=larger)
    if (
        best_first and best_first[-1] != best_first[0]
    ):  # limit the axis, so that one bad trial does not hide the differences of the others
        first, middle, last = best_first[0], best_first[len(best_first) // 2], best_first[-1]
        reach = min(abs(last - first), 4 * abs(middle - first) + 1e-12)
        ends = sorted((first, first - reach if larger else first + reach))
        margin = 0.06 * reach
        axes.set_ylim(ends[0] - margin, ends[1] + margin)
    axes.set_title(name.replace("_", " "))
