"""A picture of a network: layers from left to right with their shapes, parameters and share of the cost.

Small networks are drawn as the neurons and connections they are; all others as blocks whose height follows the width of
what flows through them, on a logarithmic scale. Drawn with matplotlib, the extra `plot`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...costs.summary import outline
from ...spec import Spec
from ..plots.style import check_path, house, save
from . import blocks, neurons

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw", "network_figure"]


def draw(spec: Spec | str, path: str | Path) -> None:
    """Writes a picture of a network as .svg, .png or .pdf."""
    check_path(path)
    save(network_figure(spec), path, title=str(spec)[:400])


def network_figure(spec: Spec | str) -> Figure:
    """The picture as a matplotlib figure."""
    spec = Spec.of(spec)
    plain = outline(spec, fold=False) if len(spec.entries) <= neurons.MOST_ENTRIES else None
    with house("a picture of a network"):
        if plain is not None and neurons.fits(plain):
            return neurons.figure(plain)
        return blocks.figure(outline(spec))
