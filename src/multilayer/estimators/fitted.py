"""What fitted estimators offer: the network and its cost, feature importances, files, pickles and the notebook view.

A pickle contains the bytes of the model file. It is small, contains no training data, and loading the model runs no
code of the file.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ..costs import Cost, cost, options_of_run
from ..errors import OptionError
from ..models.evaluation_rows import EvaluationRows
from ..models.importance import importance
from ..models.trained_model import TrainedModel, load
from ..spec import Spec
from .partial_fit import Partial

if TYPE_CHECKING:
    from ..export.torch_module import TrainedNetwork


class NotAvailable(OptionError, AttributeError):
    """A fitted attribute that this estimator does not have. `hasattr` returns False for it."""


class FittedMixin:
    """Attributes and methods of fitted estimators that do not depend on how they were trained."""

    _classifies: ClassVar[bool]
    _held_out_rows: EvaluationRows | None = None
    """Some of the held-out rows of the last fit, encoded. Not part of a pickle."""
    _importances: NDArray[np.float64] | None = None

    def _fitted_model(self) -> TrainedModel:
        """Return the model, or None for a classifier that was trained on a single class."""
        check_is_fitted(self)
        return cast(Any, self).model_

    def _network(self) -> TrainedModel:
        """Return the model. Raise an error if all training rows had the same class, so there is no model."""
        model = cast("TrainedModel | None", self._fitted_model())
        if model is None:
            raise NotAvailable("there is no network: all training rows had the same class, which is always predicted")
        return model

    # Attributes

    @property
    def spec_(self) -> Spec:
        """The network of an ensemble member, as a `Spec`."""
        return self._network().spec

    @property
    def cost_(self) -> Cost:
        """Cost of one training step of one ensemble member, with the batch size and optimizer of the fit.

        Multiply it by ``len(model_.members)`` for the ensemble. For a loaded model, the training options are unknown,
        and the cost is that of a step with one row.
        """
        model, config = self._network(), getattr(self, "config_", dict[str, Any]())
        return cost(
            model.spec,
            batch=config.get("batch_size") or 1,
            loss=model.encoding.loss,
            **options_of_run(config),
        )

    @property
    def feature_importances_(self) -> NDArray[np.float64]:
        """Permutation importance of each column of X, measured on held-out rows.

        The importance is how much the accuracy (for numbers, R²) decreases if the values of a column are shuffled. It
        is the average over five shuffles of at most 1,000 held-out rows. In an ensemble, each row is predicted by the
        members that did not train on it. Columns that were dropped have importance 0. A useless column may have a value
        below 0. Columns with the same information share their importance.

        The values are computed at first use, which may take some seconds. The rows are not part of a pickle, so use
        the attribute before pickling, or use `model_.importance(data)`, which works on any rows with a target.
        """
        model = self._network()
        if self._importances is None:
            if self._held_out_rows is None:
                raise NotAvailable(
                    "feature_importances_ needs the held-out rows of a fit, which this estimator does not have: "
                    "use model_.importance((X, y)) with other rows"
                )
            found = importance(self._held_out_rows)
            names = [column.name for column in model.encoding.columns]
            self._importances = np.array([found.means.get(name, 0.0) for name in names])
        return self._importances.copy()

    # Files

    def save(self, path: str | Path) -> None:
        """Save the trained model: network, encoding and calibration, but no training data and no options.

        Parameters
        ----------
        path : str or Path
            File to write, usually ``"….safetensors"``. Read it with `load` of this class, or with `ml.load`.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        StorageError
            If the file cannot be written.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from sklearn.datasets import load_iris
        >>> from multilayer import MLPClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> model = MLPClassifier(ensemble=2, epochs=4, hidden=8, random_state=0).fit(X, y)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/iris.safetensors")
        ...     [path.name for path in Path(folder).iterdir()]
        ['iris.safetensors']
        """
        self._network().save(path)

    def to_onnx(self, path: str | Path) -> None:
        """Write an ONNX model that includes the encoding of the columns: see `ml.to_onnx`.

        Parameters
        ----------
        path : str or Path
            File to write.

        Raises
        ------
        MissingExtra
            If the library onnx is not installed.

        Examples
        --------
        >>> import tempfile
        >>> from sklearn.datasets import load_iris
        >>> from multilayer import MLPClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> model = MLPClassifier(ensemble=2, epochs=4, hidden=8, random_state=0).fit(X, y)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.to_onnx(f"{folder}/iris.onnx")
        """
        self._network().to_onnx(path)

    def to_torch(self, *, member: int | None = None, preprocessing: bool = False) -> TrainedNetwork:
        """Return the trained network as a torch module, as `ml.to_torch` does.

        Parameters
        ----------
        member : int, optional
            Ensemble member to convert, counted from 0, without calibration. By default, the calibrated average of all
            members.
        preprocessing : bool
            Whether the module scales its inputs. By default, it takes scaled numbers.

        Returns
        -------
        TrainedNetwork
            The module, in evaluation mode.

        Raises
        ------
        MissingExtra
            If torch is not installed.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from multilayer import MLPClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> net = MLPClassifier(ensemble=2, epochs=4, hidden=8, random_state=0).fit(X, y).to_torch(preprocessing=True)
        >>> net.training
        False
        """
        return self._network().to_torch(member=member, preprocessing=preprocessing)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return a fitted estimator from a model file or a run folder.

        Parameters
        ----------
        path : str or Path
            A file from `save`, or the folder of a run.

        Returns
        -------
        estimator
            It predicts as the saved model. Its options have their defaults, and it has no `history_`.

        Raises
        ------
        OptionError
            If the file contains a regressor and this class is a classifier, or vice versa.
        FileError
            If the file is damaged or is not a model.

        Examples
        --------
        >>> import tempfile
        >>> from sklearn.datasets import load_iris
        >>> from multilayer import MLPClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> model = MLPClassifier(ensemble=2, epochs=4, hidden=8, random_state=0).fit(X, y)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/iris.safetensors")
        ...     again = MLPClassifier.load(f"{folder}/iris.safetensors")
        >>> bool((again.predict(X) == model.predict(X)).all())
        True
        """
        model = load(path)
        if model.encoding.task.classifies != cls._classifies:
            holds, name = ("a regressor", "MLPRegressor") if cls._classifies else ("a classifier", "MLPClassifier")
            raise OptionError(f"{cls.__name__}.load cannot read {path}, which contains {holds}: use {name}.load")
        made = cls()
        made._become(model)
        return made

    def _become(self, model: TrainedModel) -> None:
        """Set the fitted attributes from a loaded model."""
        names = [column.name for column in model.encoding.columns]
        this = cast(Any, self)
        this.model_ = model
        this.n_features_in_ = len(names)
        if not model.encoding.positional and not any(column.numbered for column in model.encoding.columns):
            this.feature_names_in_ = np.array(names, dtype=object)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(cast("dict[str, Any]", super().__getstate__()))
        state.pop("_held_out_rows", None)
        for name in ("model_", "_partial"):
            if state.get(name) is not None:
                state[name] = state[name].to_bytes()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        for name, kind in (("model_", TrainedModel), ("_partial", Partial)):
            if isinstance(state.get(name), bytes):
                state[name] = kind.from_bytes(state[name])
        cast(Any, super()).__setstate__(state)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    # Notebook

    def _repr_html_inner(self) -> str:
        """Return the HTML of scikit-learn and, if the estimator is fitted, a picture of the network."""
        return cast(Any, super())._repr_html_inner() + self._picture()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        """Return what Jupyter shows: text and, unless scikit-learn's option `display` is "text", HTML."""
        bundle = dict(cast(Any, super())._repr_mimebundle_(**options))
        if "text/html" in bundle:
            bundle["text/html"] += self._picture()
        return bundle

    def _picture(self) -> str:
        """Return the network as HTML. It is empty if there is no network or matplotlib is not installed."""
        if not hasattr(self, "spec_") or importlib.util.find_spec("matplotlib") is None:
            return ""
        from ..drawing.picture import draw

        return f"<div style='overflow-x: auto'>{draw(self.spec_).svg}</div>"
