"""A canvas for diagrams: shapes and text at positions in points, with the origin at the top left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from .style import INK, TEXT, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Point = tuple[float, float]


class Canvas:
    """Draw onto `figure`. Later shapes cover earlier ones."""

    figure: Figure

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.figure = new_figure(width, height)
        self._axes = self.figure.add_axes((0.0, 0.0, 1.0, 1.0))
        self._axes.set_axis_off()
        self._axes.set_xlim(0, width)
        self._axes.set_ylim(height, 0)
        self._order = 1.0

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = TEXT,
        colour: str = INK,
        bold: bool = False,
        align: Literal["left", "center", "right"] = "center",
    ) -> None:
        """Draw one line of text. The middle of its capital letters is at y."""
        weight = "bold" if bold else "normal"
        self._axes.text(
            x, y + 0.36 * size, text, fontsize=size, color=colour, fontweight=weight, ha=align, va="baseline",
            zorder=self._next(),
        )  # fmt: skip

    def box(
        self, x: float, y: float, width: float, height: float, *, fill: str, edge: str = "none", radius: float = 0.0,
        line: float = 0.8,
    ) -> None:  # fmt: skip
        from matplotlib.patches import FancyBboxPatch

        round_ = min(radius, width / 2, height / 2)
        style = f"round,pad=0,rounding_size={round_:.3f}" if round_ else "square,pad=0"
        patch = FancyBboxPatch(
            (x, y), width, height, boxstyle=style, facecolor=fill, edgecolor=edge, linewidth=line, zorder=self._next()
        )
        self._axes.add_patch(patch)

    def polygon(self, points: Sequence[Point], *, fill: str, edge: str = "none", line: float = 0.8) -> None:
        from matplotlib.patches import Polygon

        self._axes.add_patch(
            Polygon(
                list(points), facecolor=fill, edgecolor=edge, linewidth=line, joinstyle="round", zorder=self._next()
            )
        )

    def circle(self, x: float, y: float, radius: float, *, fill: str, edge: str = "none", line: float = 1.0) -> None:
        from matplotlib.patches import Circle

        self._axes.add_patch(
            Circle((x, y), radius, facecolor=fill, edgecolor=edge, linewidth=line, zorder=self._next())
        )

    def line(self, points: Sequence[Point], *, colour: str, width: float = 1.0, arrow: bool = False) -> None:
        x, y = zip(*points, strict=True)
        options: dict[str, Any] = {"color": colour, "linewidth": width, "solid_joinstyle": "round"}
        self._axes.plot(x, y, zorder=self._next(), **options)
        if arrow:
            (x0, y0), (x1, y1) = points[-2:]
            length = max(((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5, 1e-9)
            ux, uy = (x1 - x0) / length, (y1 - y0) / length
            back = [(x1 - 6 * ux - 3 * s * uy, y1 - 6 * uy + 3 * s * ux) for s in (-1, 1)]
            self.polygon([(x1, y1), *back], fill=colour)

    def lines(self, pairs: Sequence[tuple[Point, Point]], *, colour: str, width: float) -> None:
        """Draw many straight lines at once."""
        from matplotlib.collections import LineCollection

        self._axes.add_collection(
            LineCollection(list(pairs), colors=colour, linewidths=width, zorder=self._next()), autolim=False
        )

    def _next(self) -> float:
        self._order += 0.001
        return self._order


def tint(colour: str, share: float) -> str:
    """Mix a color with white. The share 1 gives the color, 0 gives white.

    >>> tint("#000000", 0.5)
    '#808080'
    """
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(255 - (255 - part) * share):02x}" for part in parts)
