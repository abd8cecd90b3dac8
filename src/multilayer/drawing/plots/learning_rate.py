"""The plot of a learning-rate search: the range test with its smoothed loss, and the held-out losses of short runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...core.formatting import count
from .lines import Line, name_ends, power
from .style import COLOURS, FAINT, MUTED, heading, new_figure, place, plot_style, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Values = Sequence[float]

_WIDTH, _HEIGHT, _TOP, _BOTTOM, _LEFT, _GAP, _NAMES, _EDGE = 760.0, 300.0, 76.0, 46.0, 52.0, 130.0, 62.0, 16.0


def learning_rate_figure(
    *,
    range_test: tuple[Values, Values, Values],
    rounds: Mapping[int, tuple[Values, Values]],
    chosen: float | None,
    start_loss: float | None = None,
    subtitle: str = "",
) -> Figure:
    """Plot the range test, and a line per round of short runs.

    Parameters
    ----------
    range_test : tuple
        Learning rates, losses of the batches, smoothed losses.
    rounds : mapping
        For each number of steps, the learning rates and the held-out losses. A run that diverged has the loss `inf`.
    chosen : float or None
        The suggested learning rate, which both panels mark.
    start_loss : float or None
        The held-out loss before training.
    """
    with plot_style("the plot of a learning-rate search"):
        figure = new_figure(_WIDTH, _HEIGHT)
        title = f"Suggested learning rate: {chosen:g}" if chosen is not None else "No suggestion"
        heading(figure, 16, title, shorten(subtitle, _WIDTH - 2 * _EDGE))
        width = (_WIDTH - _LEFT - _GAP - _NAMES - _EDGE) / (2 if rounds else 1)
        panel = place(figure, _LEFT, _TOP, width, _HEIGHT - _TOP - _BOTTOM)
        _range_test(panel, *range_test, chosen=chosen)
        if rounds:
            panel = place(figure, _LEFT + width + _GAP, _TOP, width, _HEIGHT - _TOP - _BOTTOM)
            _rounds(panel, rounds, chosen=chosen, start_loss=start_loss)
        return figure


def _range_test(ax: Axes, rates: Values, losses: Values, smoothed: Values, *, chosen: float | None) -> None:
    ax.set_title("range test: loss of each batch", pad=8)
    ax.plot(rates, _finite(losses), color=FAINT, linewidth=1.0)
    ax.plot(rates, _finite(smoothed), color=COLOURS[0])
    _limits(ax, [*losses, *smoothed], float(smoothed[0]))
    _rates(ax, rates, chosen)
    known = [i for i, loss in enumerate(smoothed) if np.isfinite(loss)]
    if known:
        line = Line(name="smoothed", x=rates, y=smoothed)
        name_ends(ax, [(line, COLOURS[0], float(rates[known[-1]]), float(smoothed[known[-1]]))])


def _rounds(
    ax: Axes, rounds: Mapping[int, tuple[Values, Values]], *, chosen: float | None, start_loss: float | None
) -> None:
    ax.set_title("short runs: held-out loss", pad=8)
    ends: list[tuple[Line, str, float, float]] = []
    values: list[float] = []
    every: list[float] = []
    for i, (steps, (rates, losses)) in enumerate(sorted(rounds.items())):
        colour = COLOURS[i % len(COLOURS)]
        ax.plot(rates, _finite(losses), color=colour, marker="o", markersize=3.6, markeredgewidth=0)
        known = [(rate, loss) for rate, loss in zip(rates, losses, strict=True) if np.isfinite(loss)]
        every += list(rates)
        if known:
            values += [loss for _, loss in known]
            ends.append((Line(name=count(steps, "step"), x=rates, y=losses), colour, *known[-1]))
    if start_loss is not None:
        ax.axhline(start_loss, color=MUTED, linewidth=1.0, linestyle=(0, (4, 2.5)))
        values.append(start_loss)
    _limits(ax, values, values[0] if start_loss is None else start_loss)
    _rates(ax, every, chosen)
    if start_loss is not None:
        ends.append((Line(name="untrained", x=(), y=()), MUTED, float(ax.get_xlim()[1]), start_loss))
    name_ends(ax, ends)


def _finite(values: Values) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    found = np.asarray(values, dtype=float)
    return np.where(np.isfinite(found), found, np.nan)


def _limits(ax: Axes, values: Values, start: float) -> None:
    """Limit the loss axis to a little above the start, so that a diverging loss does not flatten the curves."""
    known = [value for value in values if np.isfinite(value)]
    low, high = min(known, default=0.0), max(known, default=1.0)
    high = min(high, start + 0.6 * max(start - low, 1e-3 * abs(start)))
    margin = 0.06 * ((high - low) or 1.0)
    ax.set_ylim(low - margin, high + margin)


def _rates(ax: Axes, rates: Values, chosen: float | None) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    ax.set_xscale("log")
    ax.set_xlabel("learning rate")
    ax.xaxis.set_major_locator(LogLocator(numticks=7))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: power(value)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlim(min(rates) / 1.3, max(rates) * 1.3)
    if chosen is not None:
        ax.axvline(chosen, color=COLOURS[2], linewidth=1.2)
