"""The explorer page: toys to take apart, the catalogue of activations, and the user's own network.

explore(model, X, y)    in a notebook: shows itself, in a frame with no address of its own
.save(path)             one HTML file that needs nothing else and asks nothing of the network
.show()                 opens it in the browser
"""

from __future__ import annotations

import html
import math
import tempfile
import webbrowser
from pathlib import Path
from typing import Any

from ..core import atomic_files
from ..nn import activations
from ..nn.activations import properties
from . import explorer_model
from .html import fill

HEIGHT = 860
"""Of the frame in a notebook, in pixels."""


class Explorer:
    """The page of one model, or of the toys alone."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    @property
    def html(self) -> str:
        return fill("explorer", self.state)

    def save(self, path: str | Path) -> Path:
        """Writes the page as one file."""
        path = Path(path)
        atomic_files.write(path, self.html.encode())
        return path

    def show(self) -> Path:
        """Writes the page to a temporary file and opens it in the browser."""
        folder = Path(tempfile.mkdtemp(prefix="multilayer-explorer-"))
        path = self.save(folder / "explorer.html")
        webbrowser.open(path.as_uri())
        return path

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" sandbox="allow-scripts allow-downloads allow-modals" '
            f'width="100%" height="{HEIGHT}" title="multilayer explorer" frameborder="0"></iframe>'
        )


def explore(model: Any = None, X: Any = None, y: Any = None, *, member: int = 0) -> Explorer:
    """Create the explorer page of a model, with rows to inspect. Without a model, the page has only the lessons.

    Predictions on the page are those of the whole model: all members, averaged and calibrated. The layers are those of
    one member. The page can switch to another member.

    Parameters
    ----------
    model : TrainedModel, Run, fitted estimator, Model or torch.nn.Sequential, optional
        A trained model, or a network from `ml.build`.
    X : optional
        For a trained model, raw rows in any form that `model.predict` takes: a DataFrame, an array, a file or the name
        of a bundled data set. For a network, encoded rows. The page shows up to 120 rows.
    y : optional
        Targets. For a trained model, class labels or numbers in the target's units; by default, the target column of X.
    member : int
        Ensemble member that is shown first, counted from 0.

    Returns
    -------
    Explorer
        The page. A notebook displays it, `save(path)` writes it, and `show()` opens it.

    Raises
    ------
    DataError
        If the rows do not fit the model.

    Examples
    --------
    >>> page = explore()
    >>> "model" in page.state
    False
    """
    state: dict[str, Any] = {"catalogue": catalogue()}
    if model is not None:
        state["model"] = explorer_model.model_state(model, X, y, member=member)
    return Explorer(state)


def catalogue() -> list[dict[str, Any]]:
    """What the gallery tells of each activation that takes one number and learns nothing."""
    found: list[dict[str, Any]] = []
    for name in activations.catalogue:
        fn = activations.get(name)
        if fn.learned or not fn.elementwise:
            continue
        slope = properties.max_slope(fn)
        below, above = properties.saturates(fn)
        found.append(
            {
                "name": name,
                "formula": fn.formula,
                "flops": fn.flops,
                "flops_backward": fn.flops_backward,
                "cached": fn.cached,
                "vanishes": fn.vanishes,
                "dies": fn.dies,
                "kinks": list(fn.kinks),
                "max_slope": slope if math.isfinite(slope) else None,
                "gain": properties.gain(fn),
                "flat_below": below,
                "flat_above": above,
            }
        )
    return found
