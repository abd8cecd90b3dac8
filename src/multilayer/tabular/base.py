"""What both estimators share: options, data in, training, keeping and showing.

Options left at None are the recipe's. Fitting never changes an option; what was chosen is in `config_`. A pickle holds
the model file's bytes, so it is small, has no training data in it and loads without running code of a model.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import (
    _check_sample_weight,  # pyright: ignore[reportPrivateUsage, reportUnknownVariableType]
    check_is_fitted,
    validate_data,
)

from ..costs import cost
from ..errors import DataError, OptionError
from ..predictor import Predictor
from ..training.fit import Run
from ..training.fit import fit as train
from ..training.signals import obey
from .callbacks import CallbackSupportMixin, Tasks, has_callbacks
from .partial import Partial
from .recipe import Recipe
from .timing import Within

Validation = float | Literal["auto"] | None

ASKED = {
    "loss": "loss",
    "metric": "metric",
    "ensemble": "ensemble",
    "epochs": "epochs",
    "batch_size": "batch_size",
    "learning_rate": "learning_rate",
    "weight_decay": "weight_decay",
    "n_threads": "threads",
    "device": "device",
}
"""Options of an estimator and of `ml.fit` that mean the same."""


class Tabular(CallbackSupportMixin, BaseEstimator):
    """A network for tables. Not used itself."""

    _estimator_type: str
    hidden: Sequence[int] | None
    activation: str | Sequence[str] | None
    dropout: float | None
    validation: Any
    time_limit: float | None
    random_state: Any
    verbose: bool
    warm_start: bool

    def _fit(
        self,
        X: Any,
        y: Any,
        *,
        given: tuple[Any, Any],
        task: str,
        sample_weight: Any,
        validation: Any,
        sample_weight_val: Any,
        groups: Any,
        times: Any,
    ) -> Run:
        tasks = Tasks(self, given) if has_callbacks(self) else None
        recipe = self._recipe()
        start = getattr(self, "model_", None) if self.warm_start else None
        chooser = recipe if self.time_limit is None else Within(recipe, self.time_limit)
        if sample_weight_val is not None and not isinstance(validation, tuple):
            raise OptionError("sample_weight_val needs X_val and y_val, got neither")
        run = train(
            chooser,
            (X, y),
            sample_weight=sample_weight,
            validation_weight=sample_weight_val,
            group=groups,
            time_column=times,
            start=start,
            keep_constant=True,
            quiet=not self.verbose,
            each_epoch=tasks,
            **cast(Any, {**self._asked(), "task": task, "validation": validation, "seed": self._seed()}),
        )
        assert run.model is not None
        self._keep(run.model, run)
        if tasks is not None:
            tasks.end()
        if run.failed:
            said = f"training ended at epoch {self.n_iter_}, and the model is the best before it: {run.end.reason}"
            warnings.warn(f"{said}; try a lower learning_rate", ConvergenceWarning, stacklevel=3)
        obey(run.signal)  # the estimator is fitted all the same
        return run

    def _recipe(self) -> Recipe:
        return Recipe(hidden=self.hidden, activation=self.activation, dropout=self.dropout)

    def _asked(self) -> dict[str, Any]:
        found = {ours: getattr(self, name) for name, ours in ASKED.items() if getattr(self, name, None) is not None}
        if self.time_limit is not None:
            found["time_limit"] = self.time_limit
        return found

    def _keep(self, model: Predictor, run: Run) -> None:
        """What a fitted estimator has."""
        epochs = [event for event in run.events if event["event"] == "epoch"]
        measured = epochs[0]["metrics"] if epochs else run.metrics  # no epoch came to its end: the names, and no values
        held_out = epochs[0].get("validation_loss") is not None if epochs else bool(measured)
        names = ("loss", "validation_loss", "seconds") if held_out else ("loss", "seconds")
        history = {name: [event[name] for event in epochs] for name in names}
        for name in measured:
            history[name] = [event["metrics"][name] for event in epochs]
        self.model_ = model
        self._partial = None
        self.history_ = history
        self.n_iter_ = max(run.end.epoch, 1)
        self.spec_ = model.spec
        self.config_ = next(event["config"] for event in run.events if event["event"] == "start")

    def _seed(self) -> int:
        """The seed of a fit: the number itself, or one drawn from a generator, whose state moves on as it must."""
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    # Data

    def _table(self, X: Any, *, reset: bool) -> Any:
        """X as the data layer reads it, after scikit-learn's own checks of names and numbers of columns."""
        if _is_frame(X):
            named = _named(X)
            validate_data(self, X, reset=reset, skip_check_array=True)
            if not len(X):
                raise ValueError(f"Found array with 0 sample(s) (shape={X.shape}) while a minimum of 1 is required.")
            return named
        sparse = hasattr(X, "tocsr")
        if sparse or not _holds_text(X):
            kind = [np.float64, np.float32] if sparse else "numeric"
            return validate_data(self, X, accept_sparse="csr", dtype=kind, ensure_all_finite="allow-nan", reset=reset)
        X = check_array(X, dtype=cast(Any, None), ensure_all_finite=False)
        validate_data(self, X, reset=reset, skip_check_array=True)
        return {f"x{i}": _column(X[:, i]) for i in range(X.shape[1])}

    def _weights(self, sample_weight: Any, X: Any) -> NDArray[np.float64] | None:
        if sample_weight is None:
            return None
        return _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)

    def _validation(self, X_val: Any, y_val: Any) -> Any:
        """Data of its own where it is given, else the option."""
        if (X_val is None) != (y_val is None):
            raise OptionError("validation rows need both X_val and y_val, got one of them")
        return self.validation if X_val is None else (self._table(X_val, reset=False), y_val)

    def _model(self) -> Predictor:
        check_is_fitted(self)
        return self.model_

    def _network(self) -> Predictor:
        """The model, where there is one: a classifier that saw one class alone has none."""
        model = cast("Predictor | None", self._model())
        if model is None:
            raise OptionError("there is no network: the classifier saw one class alone, which it always answers")
        return model

    def _continued(self, *, classes: int = 0) -> Partial | None:
        """Where training is between two pieces: after the last one, or after `fit`; None at the first."""
        if getattr(self, "_partial", None) is None and getattr(self, "model_", None) is not None:
            if not hasattr(self, "config_"):
                return None  # a model from a file has lost how it was trained
            return Partial.after(self.model_, self.config_, classes=classes)
        return getattr(self, "_partial", None)

    # Keeping

    def save(self, path: str | Path) -> None:
        """Writes the model file: network, encoding and calibration, nothing of the data. `load` or `ml.load` reads."""
        self._network().save(path)

    def to_onnx(self, path: str | Path) -> None:
        """Writes an ONNX model with the encoding inside, for other languages and servers: docs/export.md."""
        self._network().to_onnx(path)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """A fitted estimator from a model file."""
        made = cls()
        made._take(Predictor.load(path))
        return made

    def _take(self, model: Predictor) -> None:
        """Becomes fitted with a model alone."""
        names = [column.name for column in model.encoding.columns]
        self.model_, self.spec_ = model, model.spec
        self.n_features_in_ = len(names)
        if not model.encoding.positional:
            self.feature_names_in_ = np.array(names, dtype=object)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(cast("dict[str, Any]", super().__getstate__()))
        for name in ("model_", "_partial"):
            if state.get(name) is not None:
                state[name] = state[name].to_bytes()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        for name, kind in (("model_", Predictor), ("_partial", Partial)):
            if isinstance(state.get(name), bytes):
                state[name] = kind.from_bytes(state[name])
        super().__setstate__(state)

    # Showing

    @property
    def cost_(self) -> Any:
        """What one member costs, for a batch of one row: `cost_.forward`, `cost_.parameters`, …"""
        return cost(self._network().spec, batch=1)

    def _repr_html_inner(self) -> str:
        """scikit-learn's own block, and the network under it once there is one."""
        block = super()._repr_html_inner()
        if not hasattr(self, "spec_"):
            return block
        from ..picture import network_figure

        with io.StringIO() as text:
            network_figure(self.spec_).savefig(text, format="svg", bbox_inches="tight")
            picture = text.getvalue()
        return f"{block}<div>{picture[picture.index('<svg') :]}</div>"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags


def _is_frame(X: Any) -> bool:
    return hasattr(X, "columns") and hasattr(X, "shape")


def _named(X: Any) -> Any:
    """Columns whose names are numbers become texts: a table's columns have names, each its own."""
    names: list[Any] = list(getattr(X, "column_names", X.columns))  # pyarrow's columns are the values
    twice = [name for i, name in enumerate(names) if name in names[:i]] if len(set(names)) < len(names) else []
    if twice:
        raise DataError(f"columns must have names of their own, got {twice[0]!r} twice: rename one")
    if all(isinstance(name, str) for name in names):
        return X
    return X.rename(columns={name: str(name) for name in names})


def _holds_text(X: Any) -> bool:
    """Whether an array holds anything but numbers."""
    array = X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object) if isinstance(X, list | tuple) else X
    if getattr(array, "dtype", None) is None or array.dtype.kind not in "OUS":
        return False
    flat = cast("NDArray[Any]", array).ravel()
    return any(isinstance(value, str | bytes) for value in flat.tolist()) and not _all_numbers(flat)


def _all_numbers(flat: NDArray[Any]) -> bool:
    try:
        flat.astype(np.float64)
    except (TypeError, ValueError):
        return False
    return True


def _column(values: NDArray[Any]) -> Any:
    """One column of an array of objects, as numbers where all are."""
    present = [value for value in values.tolist() if value is not None]
    if all(isinstance(value, int | float | bool) for value in present):
        return np.array([np.nan if value is None else value for value in values.tolist()], dtype=np.float64)
    return [None if value is None or value != value else str(value) for value in values.tolist()]


def first_of(table: Any) -> Any:
    """Something as long as the table."""
    return next(iter(table.values())) if isinstance(table, dict) else table


def length_of(table: Any) -> int:
    first = first_of(table)
    return int(first.shape[0]) if hasattr(first, "shape") else len(first)
