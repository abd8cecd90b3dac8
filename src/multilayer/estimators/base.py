"""What both estimators share: options, data in, training, keeping and showing.

Options left at None are the recipe's. Fitting never changes an option; what was chosen is in `config_`. A pickle holds
the model file's bytes, so it is small, has no training data in it and loads without running code of a model.
"""

from __future__ import annotations

import importlib.util
import io
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

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

from ..costs import Cost, cost
from ..data import Task, read
from ..data.readers import with_meaning
from ..data.splits import group_numbers, moments
from ..data.table import Table
from ..data.weights import weights_within
from ..errors import OptionError, warn
from ..models import metrics
from ..models.trained_model import TrainedModel, load
from ..nn import losses
from ..nn.layers import Inputs
from ..runs.config import Config
from ..runs.events import EpochEnd, Start, plain
from ..spec import Spec
from ..training.fit import Run
from ..training.fit import fit as train
from ..training.recipe import Recipe, network
from ..training.run import obey
from ..training.setup import OtherNetwork
from .callbacks import CallbackSupportMixin, Tasks, has_callbacks, with_callbacks
from .inputs import (
    as_rows,
    check_no_names,
    column,
    holds_objects,
    is_frame,
    length_of,
    named,
    refuse_infinity,
    target_names,
    texts_of_model,
    texts_of_table,
    with_finite_rest,
)
from .partial_fit import Partial

if TYPE_CHECKING:
    from ..export.torch_module import TrainedNetwork

Validation = float | Literal["auto"] | None
HeldOut = tuple[Any, Any, Any]
"""Validation rows from the user: X, y and weights."""

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
DESCRIBED = ("classes_", "n_features_in_", "feature_names_in_")
"""What a fit finds out about its data before there is a model."""
LARGEST_SEED = 2**64 - 1


class NoNetwork(OptionError, AttributeError):
    """What a classifier that saw one class alone does not have."""


class Tabular(CallbackSupportMixin, BaseEstimator, ABC):
    """A network for tables. Not used itself."""

    _estimator_type: str
    _classifies: ClassVar[bool]
    hidden: Sequence[int] | None
    activation: str | Sequence[str] | None
    loss: str | None
    metric: str | None
    ensemble: int | None
    validation: Any
    time_limit: float | None
    epochs: int | None
    batch_size: int | None
    learning_rate: float | None
    dropout: float | None
    weight_decay: float | None
    random_state: Any
    n_threads: int | None
    device: str | None
    verbose: bool
    warm_start: bool

    def _store(self, options: dict[str, Any]) -> None:
        """Store the constructor options unchanged, as attributes of the same names."""
        self.__dict__.update((name, value) for name, value in options.items() if name != "self")

    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
        sample_weight_val: Any = None,
        groups: Any = None,
        times: Any = None,
    ) -> Self:
        """Trains on a table; rows of one group, and the latest by `times`, are held out together."""
        with self._or_as_before():
            held_out = (X_val, y_val, sample_weight_val)
            self._fit_rows(X, y, sample_weight, held_out=held_out, groups=groups, times=times)
        return self

    @abstractmethod
    def _fit_rows(self, X: Any, y: Any, sample_weight: Any, *, held_out: HeldOut, groups: Any, times: Any) -> None:
        """Check the target, then train."""

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
        classes: Sequence[int] | None = None,
        class_names: tuple[Any, ...] = (),
    ) -> Run:
        check_no_names(groups=groups, times=times)
        tasks = Tasks(self, given) if has_callbacks(self) else None
        start = getattr(self, "model_", None) if self.warm_start else None
        seed, split = self._seed(), getattr(self, "_split", None)
        if start is not None and hasattr(self, "config_"):
            seed = self.config_["seed"]  # members hold out what they held out before, and never trained on
        asked = self._asked()
        if start is not None:
            asked.setdefault("ensemble", len(start.members))
        try:
            run = train(
                None,
                self._named(X, y, given[1], class_names),
                hidden=self.hidden,
                activation=self.activation,
                dropout=self.dropout,
                sample_weight=sample_weight,
                validation_weight=sample_weight_val,
                group=groups,
                time_column=times,
                categorical=None,
                start=start,
                keep_constant=True,
                classes=classes,
                quiet=not self.verbose,
                each_epoch=tasks,
                **cast(Any, {**asked, "task": task, "validation": validation, "seed": seed}),
            )
        except OtherNetwork as error:
            assert start is not None, "only then is there another"
            raise OptionError(_go_on_as_before(start, error)) from None
        assert run.model is not None
        self._keep(run.model, run)
        if tasks is not None:
            tasks.end()
        if run.failed:
            said = f"training ended at epoch {self.n_iter_}, and the model is the best before it: {run.end.reason}"
            warn(f"{said}; try a lower learning_rate", ConvergenceWarning)
        own = validation is None or isinstance(validation, tuple)
        if start is not None and self._split != split and not own:
            warn(
                "warm_start: the rows held out are not known to be those of the fit before, so that members may have "
                "trained on them and be taken for too sure: fit on the same rows, or give X_val and y_val"
            )
        obey(run.signal)  # the estimator is fitted all the same
        return run

    def _named(self, X: Any, y: Any, given: Any, class_names: tuple[Any, ...]) -> Table:
        """Return the table to train on, with the names that the model stores: of the targets, if `given` has any, of
        the classes, and whether the column names were numbers."""
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

    def _check_options(self, table: Any, *, task: Task, groups: Any, times: Any) -> None:
        """What `fit` would refuse, where nothing is trained."""
        check_no_names(groups=groups, times=times)
        rows = read(table)
        if groups is not None:
            group_numbers(groups, rows)
        if times is not None:
            moments(times, rows)
        recipe = self._recipe()
        config = Config.from_dict({**self._asked(), "seed": self._seed()})
        if config.metric not in ("auto", "loss"):
            metrics.fitting(config.metric, task)
        network(
            Inputs(numeric=1),
            1,
            hidden=(1,) if recipe.hidden is None else recipe.hidden,
            activation="relu" if recipe.activation is None else recipe.activation,
            dropout=recipe.dropout or 0.0,
        )

    def _asked(self) -> dict[str, Any]:
        threads = getattr(self, "n_threads", None)
        if threads is not None and (not isinstance(threads, int | np.integer) or threads < 1):
            raise OptionError(f"n_threads must be a whole number of at least 1, or None for all, got {threads!r}")
        found = {ours: getattr(self, name) for name, ours in ASKED.items() if getattr(self, name, None) is not None}
        if self.time_limit is not None:
            found["time_limit"] = self.time_limit
        return found

    def _keep(self, model: TrainedModel, run: Run) -> None:
        """What a fitted estimator has."""
        epochs = [event for event in run.log if isinstance(event, EpochEnd)]
        measured = epochs[0].metrics if epochs else run.metrics  # without an epoch: the names, and no values
        held_out = epochs[0].validation_loss is not None if epochs else bool(measured)
        names = ("loss", "validation_loss", "seconds") if held_out else ("loss", "seconds")
        history = {name: [getattr(event, name) for event in epochs] for name in names}
        for name in measured:
            history[name] = [event.metrics[name] for event in epochs]
        probabilities = losses.get(model.encoding.loss).gives_probabilities
        if held_out and model.calibration is not None and probabilities:
            history["tempered_loss"], history["validation_loss"] = history["validation_loss"], history["log_loss"]
        self.model_, self._partial, self.history_ = model, None, history
        self.n_iter_ = max(run.end.epoch, 1)
        began = next(event for event in run.log if isinstance(event, Start))
        self.config_, self._split = plain(began.config), (began.rows, began.held_out)

    def _seed(self) -> int:
        """The seed of a fit: the number itself, or one drawn from a generator, whose state moves on as it must."""
        if isinstance(self.random_state, int | np.integer):
            if not 0 <= self.random_state <= LARGEST_SEED:
                raise OptionError(f"random_state must be at least 0 and below 2^64, got {self.random_state}")
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    # Data

    def _table(self, X: Any, *, reset: bool, trained: Any = None) -> Any:
        """X as the data layer reads it, after scikit-learn's own checks of names and numbers of columns. `trained` is
        the table of a fit that has no model yet, whose rows to judge by X is."""
        X = as_rows(X)
        model = None if reset or trained is not None else cast("TrainedModel | None", getattr(self, "model_", None))
        if is_frame(X):
            renamed = named(X)
            validate_data(self, X, reset=reset, skip_check_array=True)
            if not len(X):
                raise ValueError(f"Found array with 0 sample(s) (shape={X.shape}) while a minimum of 1 is required.")
            return with_finite_rest(renamed, model)
        sparse = hasattr(X, "tocsr")
        texts = set[int]()
        if getattr(getattr(X, "dtype", None), "kind", "O") == "O":
            texts = texts_of_model(model) if trained is None else texts_of_table(trained)
        if sparse or not (texts or holds_objects(X)):
            kind = [np.float64, np.float32] if sparse else "numeric"
            X = validate_data(self, X, accept_sparse="csr", dtype=kind, ensure_all_finite=False, reset=reset)
            X = X.astype(np.float64) if X.dtype == object else X  # whole numbers beyond 64 bits
            refuse_infinity(X)
            return X
        if isinstance(X, list | tuple):
            X = np.asarray(X, dtype=object)
        X = check_array(X, dtype=cast(Any, None), ensure_all_finite=False)
        validate_data(self, X, reset=reset, skip_check_array=True)
        columns = {f"x{i}": column(X[:, i], f"the array: column 'x{i}'", text=i in texts) for i in range(X.shape[1])}
        table = Table(name="the array", columns=columns, positional=True)
        return with_meaning(table) if reset else with_finite_rest(table, model)

    def _weights(self, sample_weight: Any, X: Any) -> NDArray[np.float64] | None:
        if sample_weight is None:
            return None
        found = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        return weights_within(found, np.float64)  # class weights are products and sums of them

    def _held_out(self, table: Any, X_val: Any, y_val: Any, sample_weight_val: Any) -> tuple[Any, Any]:
        """Rows of validation where they are given, else the option; and what they count. `table` is to train on."""
        if (X_val is None) != (y_val is None):
            raise OptionError("validation rows need both X_val and y_val, got one of them")
        if X_val is not None:
            return (self._table(X_val, reset=False, trained=table), y_val), self._weights(sample_weight_val, X_val)
        if sample_weight_val is not None:
            raise OptionError("sample_weight_val needs X_val and y_val, got neither")
        if isinstance(self.validation, str) and self.validation != "auto":
            raise OptionError(
                f"validation must be 'auto', a share of rows or None, got {self.validation!r}: rows of your own are "
                "X_val and y_val"
            )
        return self.validation, None

    @contextmanager
    def _or_as_before(self) -> Generator[None]:
        """What describes the data stays that of the model that is there, where a fit ends before it has another."""
        had = {name: value for name, value in vars(self).items() if name in DESCRIBED}
        model = getattr(self, "model_", None)
        try:
            yield
        except BaseException:
            if getattr(self, "model_", None) is model:
                for name in DESCRIBED:
                    self.__dict__.pop(name, None)
                self.__dict__.update(had)
            raise

    def _model(self) -> TrainedModel:
        check_is_fitted(self)
        return self.model_

    def _network(self) -> TrainedModel:
        """The model, where there is one: a classifier that saw one class alone has none."""
        model = cast("TrainedModel | None", self._model())
        if model is None:
            raise NoNetwork("there is no network: the classifier saw one class alone, which it always answers")
        return model

    # A piece at a time

    @property
    def _begun(self) -> bool:
        """Whether there is a network to go on with."""
        return getattr(self, "model_", None) is not None

    def _take_piece(
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
        """Train on the first piece, or on another one after a piece, `fit` or `load`. `given` is the y of the user."""
        if not self._begun:
            asked = {**self._asked(), "task": task, "seed": self._seed()}
            rows = self._named(X, y, given, class_names)
            past = Partial.begin(self._recipe(), rows, weight, asked, classes=classes)
        else:
            past = cast("Partial | None", getattr(self, "_partial", None))
            if past is None and hasattr(self, "config_"):
                past = Partial.after(self.model_, self.config_)
            elif past is None:
                past = Partial.of_model(self.model_, rows=length_of(X), seed=self._seed())
            past = past.with_options(self._asked()).go_on((X, y), weight)
        if past.state is None:  # the first after `fit` or `load`, and it was taken back
            return
        self._partial, self._split = past, None
        self.model_ = past.model
        self.config_ = past.config.to_dict()
        self.history_ = {"loss": list(past.losses)}
        self.n_iter_ = max(past.passes, 1)

    # Keeping

    def save(self, path: str | Path) -> None:
        """Writes the model file: network, encoding and calibration, nothing of the data. `load` or `ml.load` reads."""
        self._network().save(path)

    def to_onnx(self, path: str | Path) -> None:
        """Write an ONNX model that contains the encoding, for other languages: docs/explanation/export.md."""
        self._network().to_onnx(path)

    def to_torch(self, *, member: int | None = None, preprocessing: bool = False) -> TrainedNetwork:
        """Return the trained network as a torch module; see `ml.to_torch`."""
        return self._network().to_torch(member=member, preprocessing=preprocessing)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """A fitted estimator from a model file, or a run's folder. It has no options, and no history."""
        model = load(path)
        if model.encoding.task.classifies != cls._classifies:
            holds, name = ("a regressor", "MLPRegressor") if cls._classifies else ("a classifier", "MLPClassifier")
            raise OptionError(
                f"{cls.__name__}.load needs a model of its own kind, got {holds}, {path}: {name}.load reads it"
            )
        made = cls()
        made._take(model)
        return made

    def _take(self, model: TrainedModel) -> None:
        """Becomes fitted with a model alone."""
        names = [column.name for column in model.encoding.columns]
        self.model_ = model
        self.n_features_in_ = len(names)
        if not model.encoding.positional and not any(column.numbered for column in model.encoding.columns):
            self.feature_names_in_ = np.array(names, dtype=object)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(cast("dict[str, Any]", super().__getstate__()))
        for name in ("model_", "_partial"):
            if state.get(name) is not None:
                state[name] = state[name].to_bytes()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        for name, kind in (("model_", TrainedModel), ("_partial", Partial)):
            if isinstance(state.get(name), bytes):
                state[name] = kind.from_bytes(state[name])
        super().__setstate__(state)

    # Showing

    @property
    def spec_(self) -> Spec:
        """The network of one member."""
        return self._network().spec

    @property
    def cost_(self) -> Cost:
        """What a training step of one member costs, as it was trained: `cost_.step`, `cost_.parameters`, …

        The ensemble costs that times `len(model_.members)`. A loaded model tells no more than its loss: a step of one
        row.
        """
        model, config = self._network(), getattr(self, "config_", dict[str, Any]())
        return cost(
            model.spec,
            batch=config.get("batch_size") or 1,
            optimizer=config.get("optimizer", "adam"),
            loss=model.encoding.loss,
            engine="fused" if config.get("engine") == "fused" else "torch",
            dtype=config.get("dtype", "float32"),
            l2=bool(config.get("l2")),
            clip=config.get("clip_norm") is not None,
            average=config.get("average") is not None,
        )

    def _repr_html_inner(self) -> str:
        """Return scikit-learn's block and, if fitted and matplotlib is installed, a picture of the network."""
        block = super()._repr_html_inner()
        if not hasattr(self, "spec_") or importlib.util.find_spec("matplotlib") is None:
            return block
        from ..drawing.picture import network_figure

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


def _go_on_as_before(had: TrainedModel, asked: OtherNetwork) -> str:
    """What to change back, where a warm start is asked for a network that is not there."""
    if had.spec.inputs != asked.spec.inputs:
        remedy = "fit on columns that give the same inputs"
    elif had.spec != asked.spec:
        remedy = "set hidden, activation, dropout and loss as they were"
    else:
        remedy = f"set ensemble={len(had.members)}"
    return (
        f"warm_start goes on with the network that is there, {len(had.members)} × {had.spec}, "
        f"got {asked.members} × {asked.spec}: {remedy}, or warm_start=False to begin anew"
    )
