"""Lines of a plot from the rows of a result: means over the seeds, with their intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..drawing.plots import Line
from .criteria import interval
from .rows import Rows


def curve(
    rows: Rows, x: str, y: str, *, name: str, log: bool = False, dashed: bool = False, colour: int | None = None
) -> Line:
    """Return a line through the means of `y` at each value of `x`, with their 95 % intervals over the rows.

    With `log`, means are geometric, for a logarithmic axis. All values must then be positive.

    >>> rows = Rows([{"seed": s, "width": w, "error": 1 / w} for s in (0, 1) for w in (4, 2)])
    >>> line = curve(rows, "width", "error", name="ReLU")
    >>> line.x, line.y
    ([2, 4], [0.5, 0.25])
    """
    groups = sorted(((at, own) for (at,), own in rows.by(x)), key=lambda group: group[0])
    found = [interval(own.numbers(y), log=log) for _, own in groups]
    band = ([low for _, low, _ in found], [high for _, _, high in found])
    return Line(
        name=name,
        x=[at for at, _ in groups],
        y=[mean for mean, _, _ in found],
        points=len(groups) <= 24,
        dashed=dashed,
        colour=colour,
        band=band if any(low < high for _, low, high in found) else None,
    )


def curves(
    rows: Rows, x: str, y: str, by: str, *, name: Callable[[object], str] = str, log: bool = False
) -> Sequence[Line]:
    """Return a line per value of the column `by`."""
    return [curve(own, x, y, name=name(value), log=log) for (value,), own in rows.by(by)]
