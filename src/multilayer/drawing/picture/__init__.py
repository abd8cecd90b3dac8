"""A picture of a network: layers from left to right with their shapes, parameters and shares of the cost.

Small networks are drawn as neurons and connections. Larger networks are drawn as blocks, whose height is the logarithm
of the width of a layer. This needs matplotlib, the extra `plot`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, overload

from ...costs.summary import summarize
from ...spec import Spec
from ..plots.style import check_path, encoded, plot_style, save
from . import blocks, neurons

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Picture", "draw", "network_figure"]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A picture of a network, as `draw` returns it. A notebook shows it.

    Attributes
    ----------
    spec : Spec
        The network.
    svg : str
        The picture as an SVG element.

    Examples
    --------
    >>> draw("2-3:tanh-1").svg[:4]
    '<svg'
    """

    spec: Spec
    svg: str

    def __repr__(self) -> str:
        return f"Picture({self.spec})"

    def _repr_svg_(self) -> str:
        return self.svg


@overload
def draw(spec: Spec | str, path: None = None) -> Picture: ...
@overload
def draw(spec: Spec | str, path: str | Path) -> None: ...
def draw(spec: Spec | str, path: str | Path | None = None) -> Picture | None:
    """Draw a network: show it in a notebook, or save it to a file.

    Parameters
    ----------
    spec : Spec or str
        The network, such as ``"784-256-128-10"``.
    path : str or Path, optional
        The file to write: .svg, .png or .pdf. An existing file is replaced only when the new one is complete.

    Returns
    -------
    Picture or None
        Without `path`, the picture. A notebook shows it if it is the last expression of a cell.

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
    >>> ml.draw("2-3:tanh-1")
    Picture(2-3:tanh-1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ml.draw("2-3:tanh-1", f"{folder}/network.svg")
    """
    if path is not None:
        check_path(path)
    figure = network_figure(spec)
    title = str(spec)[:400]
    if path is not None:
        save(figure, path, title=title)
        return None
    svg = encoded(figure, ".svg", title=title).decode()
    return Picture(spec=Spec.of(spec), svg=svg[svg.index("<svg") :])


def network_figure(spec: Spec | str) -> Figure:
    """Return the picture as a matplotlib figure."""
    spec = Spec.of(spec)
    plain = summarize(spec, fold=False) if len(spec.entries) <= neurons.MOST_ENTRIES else None
    with plot_style("a picture of a network"):
        if plain is not None and neurons.fits(plain):
            return neurons.figure(plain)
        return blocks.figure(summarize(spec))
