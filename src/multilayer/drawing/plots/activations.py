"""Plots of activations: f and f′, their kinks, and where they saturate.

Up to four functions share two panels, f on the left and f′ on the right. More functions have one panel each, with f in
blue and f′ in vermilion. A ring marks a kink. Where f saturates (as `properties` defines it), the panel of a single
function is shaded, and a shared panel has a bar in the color of the function at the bottom.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...errors import OptionError
from ...nn.activations import ActivationFunction
from ...nn.activations.function import Array
from ...nn.activations.properties import saturates
from .lines import Line, name_ends
from .style import CARD, COLOURS, FAINT, MUTED, SHADE, SMALL, TEXT, heading, new_figure, place, plot_style, text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_TOGETHER = 4
_COLUMNS = 4


def activation_figure(functions: Sequence[ActivationFunction]) -> Figure:
    """Plot f and f′ of one or more activations."""
    if not functions:
        raise OptionError("a plot of activations needs at least one, got none")
    with plot_style("a plot of activations"):
        return _together(functions) if len(functions) <= _MOST_TOGETHER else _gallery(functions)


def caption(fn: ActivationFunction) -> str:
    """Return the name with the constants that differ from the defaults, as in the text of a network.

    >>> from multilayer.nn.activations import get
    >>> caption(get("leaky_relu", alpha=0.2)), caption(get("relu"))
    ('leaky_relu(0.2)', 'relu')
    """
    from ...nn.activations import get

    usual = dict(get(fn.name).constants)
    changed = [(key, value) for key, value in fn.constants if usual[key] != value]
    if not changed:
        return fn.name
    first = next(iter(usual))
    words = [_word(value) if key == first else f"{key}={_word(value)}" for key, value in changed]
    return f"{fn.name}({', '.join(words)})"


def curve(fn: ActivationFunction, z: Array, *, slope: bool = False) -> Array:
    """Return f or f′ at the points z. For softmax, the other of two inputs is 0."""
    function = fn.df if slope else fn.f
    if fn.elementwise:
        return function(z)
    return function(np.stack([z, np.zeros_like(z)], axis=-1))[..., 0]


def _word(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _together(functions: Sequence[ActivationFunction]) -> Figure:
    names = [caption(fn) for fn in functions]
    width, height, top, bottom, left, between = 720.0, 330.0, 62.0, 44.0, 36.0, 34.0
    room = max(text_width(name, SMALL) for name in names) + 14
    each = (width - left - 14 - 2 * room - between) / 2
    one = len(functions) == 1
    figure = new_figure(width, height)
    heading(figure, 16, names[0] if one else " · ".join(names), _subtitle(functions))
    reach = max(_reach(fn) for fn in functions)
    z = _points(functions, reach)
    for i, slope in enumerate((False, True)):
        ax = place(figure, left + i * (each + room + between), top, each, height - top - bottom)
        ax.set_title("f′(z), the slope" if slope else "f(z)", pad=8)
        ax.set_xlabel("z")
        curves = [_cut(fn, z, curve(fn, z, slope=slope), slope=slope) for fn in functions]
        _limits(ax, reach, curves)
        _zero_lines(ax)
        ends: list[tuple[Line, str, float, float]] = []
        for k, (fn, name, y) in enumerate(zip(functions, names, curves, strict=True)):
            colour = COLOURS[k % len(COLOURS)]
            ax.plot(
                z, y, color=colour, zorder=4 - 0.1 * k, linewidth=1.7 + 0.8 * k
            )  # so that equal curves are all visible
            _kinks(ax, fn, colour, slope=slope)
            if one:
                _shade(ax, fn, reach)
            else:
                _bars(ax, fn, reach, colour, k)
            known = np.flatnonzero(np.isfinite(y))
            if len(known):
                last = known[-1]
                ends.append((Line(name=name, x=(), y=()), colour, float(z[last]), float(y[last])))
        name_ends(ax, ends)
    return figure


def _gallery(functions: Sequence[ActivationFunction]) -> Figure:
    rows = -(-len(functions) // _COLUMNS)
    cell_w, cell_h, left, top = 180.0, 150.0, 16.0, 58.0
    width, height = left + _COLUMNS * cell_w, top + rows * cell_h + 4
    figure = new_figure(width, height)
    heading(figure, left, "Activations", "")
    _legend(figure, left, width, height)
    for i, fn in enumerate(functions):
        x, y = left + (i % _COLUMNS) * cell_w, top + (i // _COLUMNS) * cell_h
        ax = place(figure, x + 16, y + 18, cell_w - 40, cell_h - 48)
        name = caption(fn)
        size = min(TEXT, TEXT * (cell_w - 26) / text_width(name, TEXT, bold=True))
        ax.set_title(name, pad=5, fontsize=size)
        reach = _reach(fn)
        z = _points([fn], reach)
        slopes, values = (_cut(fn, z, curve(fn, z, slope=s), slope=s) for s in (True, False))
        _limits(ax, reach, [values, slopes])
        _zero_lines(ax)
        _shade(ax, fn, reach)
        ax.plot(z, slopes, color=COLOURS[1], linewidth=1.3, zorder=3)
        ax.plot(z, values, color=COLOURS[0], linewidth=1.8, zorder=4)
        _kinks(ax, fn, COLOURS[0], slope=False)
        ax.tick_params(length=0, labelsize=SMALL - 1)
        ax.locator_params(nbins=4)
    return figure


def _legend(figure: Figure, left: float, width: float, height: float) -> None:
    x = left
    for words, colour in (
        ("f(z)", COLOURS[0]),
        ("f′(z)", COLOURS[1]),
        ("○ kink", MUTED),
        ("shaded: saturates, slope at most 1 % of the largest", MUTED),
    ):
        figure.text(x / width, 1 - 37 / height, words, fontsize=TEXT, color=colour)
        x += text_width(words, TEXT) + 16


def _subtitle(functions: Sequence[ActivationFunction]) -> str:
    parts = [functions[0].formula] if len(functions) == 1 else []
    if any(fn.kinks for fn in functions):
        parts.append("○ kink")
    if any(_flat_sides(fn) for fn in functions):
        flat = "shaded" if len(functions) == 1 else "bar"
        parts.append(f"{flat}: saturates, slope at most 1 % of the largest")
    return "   ·   ".join(parts)


def _flat_sides(fn: ActivationFunction) -> list[tuple[float, float]]:
    below, above = saturates(fn)
    sides = [(-math.inf, below)] if below is not None else []
    return [*sides, (above, math.inf)] if above is not None else sides


def _reach(fn: ActivationFunction) -> float:
    """Return half the width of the axis: 4, or up to 8 to include kinks and the start of saturation."""
    marks = [abs(end) for side in _flat_sides(fn) for end in side if math.isfinite(end)]
    marks += [abs(kink) for kink in fn.kinks]
    return min(8.0, max([4.0, *(math.ceil(1.3 * mark) for mark in marks)]))


def _points(functions: Sequence[ActivationFunction], reach: float) -> Array:
    """Return evenly spaced points, and points on both sides of every kink for sharp corners and vertical jumps."""
    kinks = np.array([kink for fn in functions for kink in fn.kinks])
    edges = np.concatenate([kinks, np.nextafter(kinks, np.inf), np.nextafter(kinks, -np.inf)])
    z = np.unique(np.concatenate([np.linspace(-reach, reach, 401), edges]))
    return z[np.abs(z) <= reach]


def _cut(fn: ActivationFunction, z: Array, y: Array, *, slope: bool) -> Array:
    """Return the curve with a gap at each jump, so that no line connects the two sides."""
    y = np.where(np.isfinite(y), y, np.nan)
    for kink in fn.kinks:
        sides = curve(fn, np.array([np.nextafter(kink, -np.inf), np.nextafter(kink, np.inf)]), slope=slope)
        if not abs(sides[1] - sides[0]) < 1e-6:
            y = np.where(z == kink, np.nan, y)
    return y


def _limits(ax: Axes, reach: float, curves: Sequence[Array]) -> None:
    """Set the limits of the axes: all values, but at most 1.1·reach in both directions."""
    known = np.concatenate([y[np.isfinite(y)] for y in curves])
    low, high = float(np.clip(known.min(), -1.1 * reach, 0)), float(np.clip(known.max(), 0.2, 1.1 * reach))
    pad = 0.1 * (high - low)
    ax.set_xlim(-reach, reach)
    ax.set_ylim(low - pad, high + pad)


def _zero_lines(ax: Axes) -> None:
    ax.axhline(0, color=FAINT, linewidth=0.9, zorder=1)
    ax.axvline(0, color=FAINT, linewidth=0.9, zorder=1)


def _kinks(ax: Axes, fn: ActivationFunction, colour: str, *, slope: bool) -> None:
    """Draw a ring at each kink. A jump has a dot at both ends, filled at the end that is the value of the function."""
    low, high = ax.get_xlim()
    for kink in fn.kinks:
        at = np.array([np.nextafter(kink, -np.inf), kink, np.nextafter(kink, np.inf)])
        y = curve(fn, at, slope=slope)
        jump = not abs(y[2] - y[0]) < 1e-6
        for k in (0, 2) if jump else (1,):
            if low < kink < high and np.isfinite(y[k]) and abs(y[k]) < 1e6:
                taken = jump and abs(y[k] - y[1]) < 1e-6
                face = colour if taken else CARD
                ax.plot([kink], [y[k]], "o", color=colour, markerfacecolor=face, markersize=4.4, zorder=6)


def _shade(ax: Axes, fn: ActivationFunction, reach: float) -> None:
    for low, high in _flat_sides(fn):
        ax.axvspan(max(low, -reach), min(high, reach), color=SHADE, zorder=0, linewidth=0)


def _bars(ax: Axes, fn: ActivationFunction, reach: float, colour: str, k: int) -> None:
    for low, high in _flat_sides(fn):
        ends = [max(low, -reach), min(high, reach)]
        if ends[0] < ends[1]:
            height = 0.012 + 0.016 * k
            ax.plot(ends, [height] * 2, color=colour, linewidth=2.6, transform=ax.get_xaxis_transform(), alpha=0.75)
