"""The explorer page: small networks to experiment with, the catalogue of activations, and the user's own network.

explore(model, X, y)    create the page; a notebook displays it in a sandboxed frame
.save(path)             write the page as one HTML file that loads nothing from the network
.show()                 open the page in the browser
"""

from __future__ import annotations

import html
import math
import tempfile
import webbrowser
from pathlib import Path
from typing import Any

from ..core import atomic_files
from ..diagnostics.display import findings_in
from ..errors import MultilayerError, warn
from ..models.trained_model import load
from ..nn import activations
from ..nn.activations import properties
from ..runs import RunFolder
from . import explorer_model
from .html import fill

HEIGHT = 860
"""Height of the frame in a notebook, in pixels."""


class Explorer:
    """The explorer page of a model, or the lessons only. `explore` creates it.

    Parameters
    ----------
    state : dict
        Content of the page, as data for JSON. It always has the key "catalogue", and "model" if there is a model.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     explore().save(f"{folder}/explorer.html").name
    'explorer.html'
    """

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    @property
    def html(self) -> str:
        """The page as HTML."""
        return fill("explorer", self.state)

    def save(self, path: str | Path) -> Path:
        """Write the page as one HTML file.

        Parameters
        ----------
        path : str or Path
            File to write. An existing file is replaced.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        StorageError
            If the file cannot be written.
        """
        path = Path(path)
        atomic_files.write(path, self.html.encode())
        return path

    def show(self) -> Path:
        """Write the page to a temporary file and open it in the browser.

        Returns
        -------
        Path
            The temporary file.
        """
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
    one member. The page can switch to another member. If a run or its folder is passed, the page marks layers and units
    with the findings of the run.

    Parameters
    ----------
    model : TrainedModel, Run, str, Path, fitted estimator, Model or torch.nn.Sequential, optional
        A trained model, a run, a run folder, a model file, or a network from `ml.build`.
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
    SpecError
        If `model` is not a network with weights.
    DataError
        If the rows do not fit the model.
    OptionError
        If `member` is out of range, or if the ensemble has unequal weights or different networks.

    Examples
    --------
    >>> import multilayer as ml
    >>> page = ml.explore(ml.build("2-3:tanh-1"), [[0.5, -0.5]])
    >>> page.state["model"]["text"]
    '2-3:tanh-1'
    >>> "model" in ml.explore().state  # the lessons only
    False
    """
    state: dict[str, Any] = {"catalogue": catalogue()}
    if model is not None:
        findings = _findings(model)
        opened = load(model) if isinstance(model, str | Path) else model
        state["model"] = explorer_model.model_state(opened, X, y, member=member, findings=findings)
    return Explorer(state)


def _findings(model: Any) -> list[dict[str, Any]]:
    """Return the findings of a run or a run folder. Models have none."""
    if not isinstance(model, str | Path):
        found = findings_in(getattr(model, "log", ()))
        return found or [finding.to_dict() for finding in getattr(model, "findings", ())]
    if not (Path(model) / "events.jsonl").is_file():
        return []
    try:
        return findings_in(RunFolder.open(model).events())
    except MultilayerError as error:  # the model can be explored without the log
        warn(f"the page does not show the findings of the run: {error}")
        return []


def catalogue() -> list[dict[str, Any]]:
    """Return the entries of the gallery: the elementwise activations without parameters, and their properties."""
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
