"""A small network as neurons: a circle for every neuron, a line for every connection, columns from left to right.

Each neuron contains the curve of its activation. Norms and dropout are listed below the column whose outputs they
change.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...costs.summary import NetworkSummary, Part
from ...nn.activations import ActivationFunction
from ...nn.layers import Activation
from ..plots.canvas import Canvas, tint
from ..plots.style import CARD, MUTED, SMALL, text_width
from .common import (
    BLUE,
    EDGE,
    HEADING,
    LINE,
    caption,
    caption_width,
    draw_caption,
    draw_share,
    glyph,
    heading,
    heading_width,
    key,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_UNITS = 12
MOST_LAYERS = 7
MOST_ENTRIES = 5 * MOST_LAYERS
"""Largest number of layers in a spec that can be drawn as neurons, including activations and norms."""
_RADIUS, _GAP, _APART = 11.0, 29.0, 112.0


@dataclass
class _Column:
    """The neurons of one layer. `part` is their linear map, `after` are the layers between it and the next map."""

    units: int
    part: Part | None
    after: list[Part] = field(default_factory=list[Part])

    @property
    def function(self) -> ActivationFunction | None:
        found = [self.part.activation] if self.part else []
        found += [part.activation for part in self.after]
        return next((layer.function for layer in found if isinstance(layer, Activation)), None)


def fits(summary: NetworkSummary) -> bool:
    """Return whether every neuron can be drawn: no blocks, no categorical inputs, and few neurons and layers."""
    if summary.spec.inputs.categories or any(p.parts or p.times > 1 or p.kind == "columns" for p in summary.parts):
        return False
    widths = [summary.spec.inputs.numeric, *(p.d_out for p in summary.parts)]
    return max(widths) <= MOST_UNITS and 1 <= sum(part.mixes for part in summary.parts) <= MOST_LAYERS


def figure(summary: NetworkSummary) -> Figure:
    columns = [_Column(summary.spec.inputs.numeric, None)]
    for part in summary.parts:
        if part.mixes:
            columns.append(_Column(part.d_out, part))
        else:
            columns[-1].after.append(part)
    needs = [max(2 * _RADIUS, *(_width(part) for part in _parts(column)), _word_width(column)) for column in columns]
    apart = max(_APART, *(needs[i] / 2 + needs[i + 1] / 2 + 14 for i in range(len(needs) - 1)), 0.0)
    drawn = needs[0] / 2 + apart * (len(columns) - 1) + needs[-1] / 2
    tallest = max(column.units for column in columns)
    extra = max(len(column.after) for column in columns)
    width = max(drawn + 2 * EDGE, heading_width(summary))
    middle = HEADING + 32 + _GAP * tallest / 2
    below = middle + _GAP * tallest / 2 + 14
    bottom = below + (4 + 2 * extra) * LINE
    canvas = Canvas(width, bottom + 20)
    heading(canvas, summary)

    xs = [(width - drawn) / 2 + needs[0] / 2 + apart * i for i in range(len(columns))]
    for left, right, x0, x1 in zip(columns, columns[1:], xs, xs[1:], strict=False):
        pairs = [((x0, a), (x1, b)) for a in _places(left.units, middle) for b in _places(right.units, middle)]
        canvas.lines(pairs, colour=tint(BLUE, 0.45), width=0.9 if len(pairs) < 60 else 0.55)
    for i, (column, x) in enumerate(zip(columns, xs, strict=True)):
        function = column.function
        for y in _places(column.units, middle):
            canvas.circle(
                x, y, _RADIUS, fill=tint(BLUE, 0.12) if column.part else CARD, edge=BLUE if column.part else MUTED
            )
            if function is not None:
                glyph(canvas, x, y, 13, function)
        canvas.text(x, middle - _GAP * tallest / 2 - 12, f"(B, {column.units})", size=SMALL, colour=MUTED)
        y = below
        if column.part is not None:
            draw_caption(canvas, x, y, column.part, summary.share(column.part))
            y += 4 * LINE
        for part in column.after:
            canvas.text(x, y, _after(part), size=SMALL, colour=MUTED)
            draw_share(canvas, x, y + LINE, summary.share(part))
            y += 2 * LINE
        if i in (0, len(columns) - 1):
            word = "outputs" if i else "inputs"
            canvas.text(x, middle - _GAP * tallest / 2 - 12 - LINE, word, size=SMALL, bold=True)
    key(canvas, bottom + 6)
    return canvas.figure


def _places(units: int, middle: float) -> list[float]:
    return [middle + _GAP * (i - (units - 1) / 2) for i in range(units)]


def _parts(column: _Column) -> list[Part]:
    return [*([column.part] if column.part else []), *column.after]


def _width(part: Part) -> float:
    return max(caption_width(part), 0.0 if part.mixes else text_width(_after(part), SMALL))


def _word_width(column: _Column) -> float:
    return max(text_width(f"(B, {column.units})", SMALL), text_width("outputs", SMALL, bold=True))


def _after(part: Part) -> str:
    name, chosen, parameters = caption(part)
    return " · ".join(word for word in (name, chosen, parameters if part.parameters else "") if word)
