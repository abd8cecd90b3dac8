"""The common part of both estimators: options, checks of the data, and training.

The recipe chooses a value for each option left at None. Fitting does not change the options. The chosen values are in
`config_`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import (
    _check_sample_weight,  # pyright: ignore[reportPrivateUsage, reportUnknownVariableType]
    validate_data,
)

from ..core.canonical_json import plain
from ..data import Task, read
from ..data.options import DataKeywords
from ..data.readers import with_meaning
from ..data.splits import group_numbers, moments
from ..data.table import Table
from ..data.weights import weights_within
from ..errors import OptionError, warn
from ..models import metrics
from ..models.trained_model import TrainedModel
from ..nn import losses
from ..nn.layers import Inputs
from ..runs.config import Config
from ..runs.events import EpochEnd, Start
from ..training.fit import Run
from ..training.fit import fit as train
from ..training.recipe import Recipe, network
from ..training.setup import OtherNetwork
from ..training.signals import reraise_signal
from .callbacks import CallbackBridge, CallbackSupportMixin, has_callbacks, with_callbacks
from .fitted import FittedMixin
from .inputs import (
    as_rows,
    check_finite,
    check_not_names,
    check_unique_names,
    column,
    from_dataset,
    has_objects,
    is_frame,
    length_of,
    target_names,
    text_columns_of_model,
    text_columns_of_table,
    with_finite_dropped_columns,
)
from .names import explain_unknown, unknown_argument
from .partial_fit import Partial

Hidden = int | Sequence[int] | None
Validation = float | Literal["auto"] | None
Verbose = bool | int | Literal["auto"]
HeldOut = tuple[Any, Any, Any]
"""Validation rows from the user: X, y and weights."""

TRAINING_OPTIONS = {
    "loss": "loss",
    "metric": "metric",
    "ensemble": "ensemble",
    "epochs": "epochs",
    "patience": "patience",
    "batch_size": "batch_size",
    "learning_rate": "learning_rate",
    "weight_decay": "weight_decay",
    "n_threads": "threads",
    "device": "device",
}
"""Options of an estimator, with the options of `ml.fit` that mean the same."""
DATA_ATTRIBUTES = ("classes_", "n_features_in_", "feature_names_in_")
"""Fitted attributes that are set before there is a model."""
LARGEST_SEED = 2**64 - 1


class BaseMLP(FittedMixin, CallbackSupportMixin, BaseEstimator, ABC):
    """Base class of `MLPClassifier` and `MLPRegressor`."""

    _estimator_type: str
    hidden: Hidden
    activation: str | Sequence[str] | None
    loss: str | None
    metric: str | None
    ensemble: int | None
    validation: Any
    time_limit: float | None
    epochs: int | None
    patience: int | None
    batch_size: int | None
    learning_rate: float | None
    dropout: float | None
    weight_decay: float | None
    categorical: Any
    random_state: Any
    n_threads: int | None
    device: str | None
    verbose: Verbose
    warm_start: bool

    def _store(self, options: dict[str, Any]) -> None:
        """Store the constructor options unchanged, as attributes of the same names."""
        self.__dict__.update((name, value) for name, value in options.items() if name != "self")

    def set_params(self, **params: Any) -> Self:
        """Set options of the estimator.

        Parameters
        ----------
        **params
            Options of the constructor.

        Returns
        -------
        self
            The estimator.

        Raises
        ------
        OptionError
            If the constructor has no option with this name. The message names the nearest one.

        Examples
        --------
        >>> from multilayer import MLPClassifier
        >>> MLPClassifier().set_params(epochs=20).epochs
        20
        """
        valid = self._get_param_names()
        for name in params:
            if "__" not in name and name not in valid:
                raise unknown_argument(type(self), name, valid, method="__init__")
        return super().set_params(**params)

    @explain_unknown
    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
        sample_weight_val: Any = None,
        groups: Any = None,
        time_column: Any = None,
    ) -> Self:
        """Train on a table.

        Parameters
        ----------
        X : data frame, array, sparse matrix, list of rows, torch tensor or dataset
            The rows to train on. Values may be missing. Columns may contain numbers, text, categories, dates or times.
        y : array or Series
            The target of each row, without missing values. Several columns are several targets or labels. Omit y for a
            torch dataset of ``(row, target)`` pairs. For a Hugging Face dataset, it may be the name of a column.
        sample_weight : array of shape (rows,), optional
            Weight of each row. Rows of weight 0 have no effect.
        X_val, y_val : optional
            Separate validation rows. By default, a part of X is held out, see the option `validation`.
        sample_weight_val : array, optional
            Weight of each row of `X_val`.
        groups : array of shape (rows,), optional
            Group of each row. Rows of one group are held out together.
        time_column : array of shape (rows,), optional
            Time of each row: numbers, dates, or dates with times. The latest rows are held out.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        OptionError
            If an option or an argument is invalid.
        DataError
            If the rows or the targets cannot be used. The message names the row and the column.

        Examples
        --------
        >>> from multilayer import MLPClassifier
        >>> model = MLPClassifier(ensemble=2, epochs=8, hidden=8, random_state=0)
        >>> model.fit([[0.0, "a"], [1.0, "b"]] * 10, ["no", "yes"] * 10).classes_
        array(['no', 'yes'], dtype='<U3')
        """
        with self._keeping_data_attributes():
            X, y = from_dataset(X, y)
            held_out = (*from_dataset(X_val, y_val), sample_weight_val)
            check_not_names(groups=groups, time_column=time_column)
            self._fit_rows(X, y, sample_weight, held_out, {"group": groups, "time_column": time_column})
        return self

    @abstractmethod
    def _fit_rows(self, X: Any, y: Any, sample_weight: Any, held_out: HeldOut, options: DataKeywords) -> None:
        """Check the target, then train."""

    def _fit(
        self,
        X: Any,
        y: Any,
        *,
        given: tuple[Any, Any],
        task: str,
        validation: Any,
        options: DataKeywords,
        class_names: tuple[Any, ...] = (),
    ) -> Run:
        """Train with `ml.fit` and set the fitted attributes. `given` is X and y as the user passed them."""
        bridge = CallbackBridge(self, given) if has_callbacks(self) else None
        start = getattr(self, "model_", None) if self.warm_start else None
        seed, earlier_split = self._seed(), getattr(self, "_split", None)
        if start is not None and hasattr(self, "config_"):
            seed = self.config_["seed"]  # with the seed of the first fit, members hold out the same rows again
        training = self._training_options()
        if start is not None:
            training.setdefault("ensemble", len(start.members))
        try:
            run = train(
                None,
                self._table_with_names(X, y, given[1], class_names),
                hidden=self.hidden,
                activation=self.activation,
                dropout=self.dropout,
                categorical=self.categorical,
                start=start,
                keep_constant=True,
                quiet="auto" if self.verbose == "auto" else not self.verbose,
                each_epoch=bridge,
                **cast(Any, {**options, **training, "task": task, "validation": validation, "seed": seed}),
            )
        except OtherNetwork as error:
            assert start is not None, "the network can only differ from that of a start model"
            raise OptionError(_other_network(start, error)) from None
        assert run.model is not None
        self._set_fitted(run.model, run)
        if bridge is not None:
            bridge.end()
        if run.failed:
            message = f"training diverged at epoch {self.n_iter_}; the model is that of the best earlier epoch"
            warn(f"{message}: {run.end.reason}; try a lower learning_rate", ConvergenceWarning)
        separate = validation is None or isinstance(validation, tuple)
        if start is not None and self._split != earlier_split and not separate:
            warn(
                "warm_start: rows that are held out now may have been used for training, so probabilities and "
                "intervals may be overconfident: fit on the same rows as before, or pass X_val and y_val"
            )
        reraise_signal(run.signal)  # raise the signal only now, so that the estimator is fitted
        return run

    def _table_with_names(self, X: Any, y: Any, given: Any, class_names: tuple[Any, ...]) -> Table:
        """Return the training table with the names to store: target names (if `given` has them), class names, and
        whether columns were numbered."""
        table = read((X, y))
        columns = set(table.names) - set(table.targets)
        return replace(
            table,
            target_names=target_names(given, columns=columns, targets=len(table.targets)),
            class_names=class_names,
            numbered=not hasattr(self, "feature_names_in_"),
        )

    def _recipe(self) -> Recipe:
        return Recipe(hidden=self.hidden, activation=self.activation, dropout=self.dropout)

    def _check_options(self, table: Any, options: DataKeywords, *, task: Task) -> None:
        """Check the options as `ml.fit` does, for calls that do not train."""
        rows = read(table)
        if (groups := options.get("group")) is not None:
            group_numbers(groups, rows)
        if (times := options.get("time_column")) is not None:
            moments(times, rows)
        recipe = self._recipe()
        config = Config.from_dict({**self._training_options(), "seed": self._seed()})
        if config.metric not in ("auto", "loss"):
            metrics.fitting(config.metric, task)
        network(
            Inputs(numeric=1),
            1,
            hidden=(1,) if recipe.hidden is None else recipe.hidden,
            activation="relu" if recipe.activation is None else recipe.activation,
            dropout=recipe.dropout or 0.0,
        )

    def _training_options(self) -> dict[str, Any]:
        """Return the options that are set, by their names in `ml.fit`."""
        threads = getattr(self, "n_threads", None)
        if threads is not None and (not isinstance(threads, int | np.integer) or threads < 1):
            raise OptionError(f"n_threads must be a whole number of at least 1, or None for all, got {threads!r}")
        found = {
            option: getattr(self, name)
            for name, option in TRAINING_OPTIONS.items()
            if getattr(self, name, None) is not None
        }
        if self.time_limit is not None:
            found["time_limit"] = self.time_limit
        return found

    def _set_fitted(self, model: TrainedModel, run: Run) -> None:
        """Set the fitted attributes after training."""
        epochs = [event for event in run.log if isinstance(event, EpochEnd)]
        measured = epochs[0].metrics if epochs else run.metrics  # if no epoch was completed, there are only the names
        held_out = epochs[0].validation_loss is not None if epochs else bool(measured)
        names = ("loss", "validation_loss", "seconds") if held_out else ("loss", "seconds")
        history = {name: [getattr(event, name) for event in epochs] for name in names}
        for name in measured:
            history[name] = [event.metrics[name] for event in epochs]
        probabilities = losses.get(model.encoding.loss).gives_probabilities
        if held_out and model.calibration is not None and probabilities:
            history["tempered_loss"], history["validation_loss"] = history["validation_loss"], history["log_loss"]
        self.model_, self._partial, self.history_ = model, None, history
        self._held_out_rows, self._importances = run.held_out, None
        self.n_iter_ = max(run.end.epoch, 1)
        start = next(event for event in run.log if isinstance(event, Start))
        self.config_, self._split = plain(start.config), (start.rows, start.held_out)

    def _seed(self) -> int:
        """Return the seed of a fit: `random_state` itself, or a number drawn from it if it is a generator or None."""
        if isinstance(self.random_state, int | np.integer):
            if not 0 <= self.random_state <= LARGEST_SEED:
                raise OptionError(f"random_state must be at least 0 and below 2^64, got {self.random_state}")
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    # Data

    def _table(self, X: Any, *, reset: bool, trained: Any = None) -> Any:
        """Return X in a form that `data.read` accepts, after scikit-learn's checks of column names and numbers.

        `trained` is the table to train on, if X are its validation rows and there is no model yet.
        """
        names = None if reset else getattr(self, "feature_names_in_", None)
        X = as_rows(from_dataset(X, None, names)[0])
        model = None if reset or trained is not None else cast("TrainedModel | None", getattr(self, "model_", None))
        if is_frame(X):
            renamed = check_unique_names(X)
            validate_data(self, X, reset=reset, skip_check_array=True)
            if not len(X):
                raise ValueError(f"Found array with 0 sample(s) (shape={X.shape}) while a minimum of 1 is required.")
            return with_finite_dropped_columns(renamed, model)
        sparse = hasattr(X, "tocsr")
        text_columns = set[int]()
        if getattr(getattr(X, "dtype", None), "kind", "O") == "O":
            text_columns = text_columns_of_model(model) if trained is None else text_columns_of_table(trained)
        if sparse or not (text_columns or has_objects(X)):
            kind = [np.float64, np.float32] if sparse else "numeric"
            X = validate_data(self, X, accept_sparse="csr", dtype=kind, ensure_all_finite=False, reset=reset)
            X = X.astype(np.float64) if X.dtype == object else X  # whole numbers beyond 64 bits
            check_finite(X)
            return X
        if isinstance(X, list | tuple):
            X = np.asarray(X, dtype=object)
        X = check_array(X, dtype=cast(Any, None), ensure_all_finite=False)
        validate_data(self, X, reset=reset, skip_check_array=True)
        columns = {
            f"x{i}": column(X[:, i], f"the array: column 'x{i}'", text=i in text_columns) for i in range(X.shape[1])
        }
        table = Table(name="the array", columns=columns, positional=True)
        return with_meaning(table) if reset else with_finite_dropped_columns(table, model)

    def _weights(self, sample_weight: Any, X: Any) -> NDArray[np.float64] | None:
        """Return the sample weights, checked."""
        if sample_weight is None:
            return None
        found = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        return weights_within(found, np.float64)  # they are multiplied by class weights and summed

    def _validation(self, table: Any, X_val: Any, y_val: Any, sample_weight_val: Any) -> tuple[Any, Any]:
        """Return the validation rows if the user passed some, else the option `validation`; and their weights."""
        if (X_val is None) != (y_val is None):
            raise OptionError("validation rows need both X_val and y_val, got one of them")
        if X_val is not None:
            return (self._table(X_val, reset=False, trained=table), y_val), self._weights(sample_weight_val, X_val)
        if sample_weight_val is not None:
            raise OptionError("sample_weight_val needs X_val and y_val, got neither")
        if is_frame(self.validation) or (isinstance(self.validation, str) and self.validation != "auto"):
            got = "a data frame" if is_frame(self.validation) else repr(self.validation)
            raise OptionError(
                f"validation must be 'auto', a fraction of the rows or None, got {got}: pass separate rows to fit as "
                "X_val and y_val"
            )
        return self.validation, None

    @contextmanager
    def _keeping_data_attributes(self) -> Generator[None]:
        """If fit fails before there is a model, restore the attributes that describe the data."""
        before = {name: value for name, value in vars(self).items() if name in DATA_ATTRIBUTES}
        model = getattr(self, "model_", None)
        try:
            yield
        except BaseException:
            if getattr(self, "model_", None) is model:
                for name in DATA_ATTRIBUTES:
                    self.__dict__.pop(name, None)
                self.__dict__.update(before)
            raise

    # Incremental training

    @property
    def _has_network(self) -> bool:
        """Whether there is a network that training can continue with."""
        return getattr(self, "model_", None) is not None

    def _train_on_piece(
        self,
        X: Any,
        y: Any,
        weight: Any,
        given: Any,
        *,
        task: str,
        classes: Sequence[int] | None = None,
        class_names: tuple[Any, ...] = (),
    ) -> None:
        """Make one pass over some rows. `given` is y as the user passed it."""
        if not self._has_network:
            options = {**self._training_options(), "task": task, "seed": self._seed()}
            rows = self._table_with_names(X, y, given, class_names)
            trained = Partial.begin(
                self._recipe(), rows, weight, options, classes=classes, categorical=self.categorical
            )
        else:
            earlier = cast("Partial | None", getattr(self, "_partial", None))
            if earlier is None and hasattr(self, "config_"):
                earlier = Partial.after_fit(self.model_, self.config_)
            elif earlier is None:
                earlier = Partial.after_load(self.model_, rows=length_of(X), seed=self._seed())
            trained = earlier.with_options(self._training_options()).train((X, y), weight)
        if trained.state is None:
            return  # the first pass after `fit` or `load` was undone
        self._partial, self._split, self._held_out_rows, self._importances = trained, None, None, None
        self.model_ = trained.model
        self.config_ = trained.config.to_dict()
        self.history_ = {"loss": list(trained.losses)}
        self.n_iter_ = max(trained.passes, 1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags


def _other_network(before: TrainedModel, error: OtherNetwork) -> str:
    """Return the error message of a warm start with options for another network than the current one."""
    if before.spec.inputs != error.spec.inputs:
        remedy = "fit on columns that give the same inputs"
    elif before.spec != error.spec:
        remedy = "set hidden, activation, dropout and loss to their earlier values"
    else:
        remedy = f"set ensemble={len(before.members)}"
    current, asked = (
        f"{n} member{'' if n == 1 else 's'} of {spec}"
        for n, spec in ((len(before.members), before.spec), (error.members, error.spec))
    )
    return f"warm_start needs the current network ({current}), got {asked}: {remedy}, or set warm_start=False"
