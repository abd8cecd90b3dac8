"""Mean squares of activations and gradients by depth at initialization, predicted and measured, on a log scale.

A point is the output of a layer or block. Linear layers before an activation, and layers in a residual block, are not
shown, because their values would make the lines zigzag.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from ...errors import OptionError
from ...nn import activations
from ...spec.propagation import LayerVariance, Variance
from .lines import Line, Panel, lines_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def variance_figure(variance: Variance) -> Figure:
    """Plot two panels: E[a²] of the forward pass and E[δ²] of the backward pass, with a point per layer or block."""
    outer = [layer for layer in variance.layers if "." not in layer.name]
    layers = [layer for layer, after in zip_longest(outer, outer[1:]) if not _feeds_activation(after)]
    if not layers:
        raise OptionError("a plot of variances needs at least one layer, got none")
    depth = [float(i) for i in range(1, len(layers) + 1)]
    nan = float("nan")
    names = [layer.name for layer in layers]
    x_label = "layer, from the inputs to the outputs"

    def panel(title: str, measured: list[float], predicted: list[float | None]) -> Panel:
        lines = [Line(name="measured", x=depth, y=measured, points=len(depth) <= 60)]
        if any(value is not None for value in predicted):
            known = [nan if value is None else value for value in predicted]
            lines.append(Line(name="predicted", x=depth, y=known, dashed=True))
        return Panel(title=title, lines=lines, x_label=x_label, log_y=True, ticks=names)

    panels = (
        panel("activations, E[a²]", [v.measured_forward for v in layers], [v.predicted_forward for v in layers]),
        panel("gradients, E[δ²]", [v.measured_backward for v in layers], [v.predicted_backward for v in layers]),
    )
    title = f"Initialization by {variance.scheme}: mean squares by depth"
    return lines_figure(panels, title=title, subtitle=variance.verdict)


def _feeds_activation(after: LayerVariance | None) -> bool:
    return after is not None and after.name.rstrip("0123456789") in activations.catalogue
