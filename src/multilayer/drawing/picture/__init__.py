"""A picture of a network: layers from left to right with their shapes, parameters and shares of the cost.

Small networks are drawn as neurons and connections. Larger networks are drawn as blocks, whose height is the logarithm
of the width of a layer. This needs matplotlib, the extra `plot`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...costs.summary import summarize
from ...spec import Spec
from ..plots.style import check_path, plot_style, save
from . import blocks, neurons

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw", "network_figure"]


def draw(spec: Spec | str, path: str | Path) -> None:
    """Save a picture of a network.

    Parameters
    ----------
    spec : Spec or str
        The network, such as ``"784-256-128-10"``.
    path : str or Path
        The file to write: .svg, .png or .pdf. An existing file is replaced only when the new one is complete.

    Raises
    ------
    SpecError
        If the network is invalid.
    OptionError
        If the file has another suffix, or its folder does not exist.
    MissingExtra
        If matplotlib is not installed.

    Examples
    --------
    >>> import tempfile
    >>> import multilayer as ml
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ml.draw("2-3:tanh-1", f"{folder}/network.svg")
    """
    check_path(path)
    save(network_figure(spec), path, title=str(spec)[:400])


def network_figure(spec: Spec | str) -> Figure:
    """Return the picture as a matplotlib figure."""
    spec = Spec.of(spec)
    plain = summarize(spec, fold=False) if len(spec.entries) <= neurons.MOST_ENTRIES else None
    with plot_style("a picture of a network"):
        if plain is not None and neurons.fits(plain):
            return neurons.figure(plain)
        return blocks.figure(summarize(spec))
