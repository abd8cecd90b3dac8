"""`MLPClassifier`: the recipe behind scikit-learn's contract, for classes and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_consistent_length, column_or_1d

from ..errors import OptionError
from ..predictor import Predictor
from .base import Tabular, Validation, first_of, length_of
from .callbacks import with_callbacks
from .partial import Partial


class MLPClassifier(ClassifierMixin, Tabular):
    """A classifier for tables: networks trained by the recipe, their probabilities averaged and calibrated.

    hidden, activation      widths of the hidden layers, and their function or one for each
    loss, metric            what is minimised, and what decides which epoch is kept
    ensemble                members; each holds out a part of the rows of its own
    validation              "auto", a share of rows, or None; or give `X_val, y_val` to fit
    time_limit              seconds; epochs and members are planned to fit
    epochs, batch_size, learning_rate, dropout, weight_decay
    class_weight            "balanced", or a number for each class
    random_state            fixes everything that is random, whatever the number of threads
    n_threads, device, verbose
    warm_start              fit goes on from the parameters that are there

    None leaves the choice to the recipe. After fit: `classes_`, `history_`, `n_iter_`, `spec_`, `cost_`, `config_`.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> MLPClassifier(ensemble=2, epochs=8, random_state=0).fit(X, y).score(X, y) > 0.9
    True
    """

    def __init__(
        self,
        *,
        hidden: Sequence[int] | None = None,
        activation: str | Sequence[str] | None = None,
        loss: str | None = None,
        metric: str | None = None,
        ensemble: int | None = None,
        validation: Validation = "auto",
        time_limit: float | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        dropout: float | None = None,
        weight_decay: float | None = None,
        class_weight: str | Mapping[Any, float] | None = None,
        random_state: Any = None,
        n_threads: int | None = None,
        device: str | None = None,
        verbose: bool = False,
        warm_start: bool = False,
    ) -> None:
        self.hidden = hidden
        self.activation = activation
        self.loss = loss
        self.metric = metric
        self.ensemble = ensemble
        self.validation = validation
        self.time_limit = time_limit
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.dropout = dropout
        self.weight_decay = weight_decay
        self.class_weight = class_weight
        self.random_state = random_state
        self.n_threads = n_threads
        self.device = device
        self.verbose = verbose
        self.warm_start = warm_start

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
        table = self._table(X, reset=True)
        codes, task = self._labels(y, table)
        validation = self._validation(X_val, y_val)
        if isinstance(validation, tuple):
            validation = (validation[0], self._codes(validation[1]))
        if task == "one class":
            return self
        weight = self._weights(sample_weight, X)
        self._fit(
            table,
            codes,
            given=(X, y),
            task=task,
            sample_weight=self._class_weighted(codes, weight),
            validation=validation,
            sample_weight_val=sample_weight_val,
            groups=groups,
            times=times,
        )
        self._name_classes()
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """One pass over some rows. The first call, or `fit`, fixes columns, scales and classes; members then go on."""
        past = self._continued(classes=len(getattr(self, "classes_", ())))
        table = self._table(X, reset=past is None)
        if past is None:
            self.classes_ = np.unique(column_or_1d(y) if classes is None else np.asarray(classes))
            if len(self.classes_) < 2:
                raise OptionError(f"partial_fit needs all classes at its first call, got {self.classes_.tolist()}")
        codes = self._codes(y)
        weight = self._class_weighted(codes, self._weights(sample_weight, X))
        if past is None:
            asked = {"loss": "cross_entropy", **self._asked(), "task": "classification", "seed": self._seed()}
            self._partial = Partial.begin(self._recipe(), (table, codes), weight, asked, classes=len(self.classes_))
        else:
            self._partial = past.go_on((table, codes), weight)
        self._take(self._partial.model)
        self._name_classes()
        self.n_iter_ = self._partial.passes
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class of each row; for several labels, 0 or 1 for each."""
        p = self.predict_proba(X)
        if self._multilabel:
            return (p > 0.5).astype(np.int64)
        return self.classes_[p.argmax(1)]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class (rows, classes); of each label, where there are several."""
        model = self._fitted()
        table = self._table(X, reset=False)
        if model is None:
            return np.ones((length_of(table), 1))
        return model.predict_proba(table).astype(np.float64, copy=False)

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    @property
    def _multilabel(self) -> bool:
        return self.model_ is not None and self.model_.encoding.task.kind == "multilabel"

    def _fitted(self) -> Predictor | None:
        return cast("Predictor | None", self._model())

    # Labels

    def _labels(self, y: Any, table: Any) -> tuple[NDArray[Any], str]:
        """y as class numbers, or as labels of 0 and 1; and the task."""
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        check_consistent_length(first_of(table), y)
        if not hasattr(y, "toarray"):
            assert_all_finite(np.asarray(y), input_name="y")
        check_classification_targets(y)
        if type_of_target(y, input_name="y") == "multilabel-indicator":
            dense = np.asarray(y.toarray() if hasattr(y, "toarray") else y).astype(np.int64)
            self.classes_ = np.arange(dense.shape[1])
            return dense, "multilabel"
        y = column_or_1d(y, warn=True)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) == 1:
            self.model_, self.n_iter_, self.history_ = None, 1, {}
            return codes, "one class"
        return codes.astype(np.int64), "binary" if len(self.classes_) == 2 else "multiclass"

    def _codes(self, y: Any) -> NDArray[np.int64]:
        y = column_or_1d(y, warn=True)
        places = np.searchsorted(self.classes_, y)
        known = self.classes_[np.minimum(places, len(self.classes_) - 1)] == y
        if not known.all():
            strange = np.asarray(y)[~known][0]
            raise OptionError(
                f"classes are {self.classes_.tolist()[:20]}, got {strange!r} in row {int((~known).argmax())}"
            )
        return places.astype(np.int64)

    def _class_weighted(self, codes: NDArray[Any], weight: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
        """The rows' weights times those of their classes; balanced: N/(C · weight of the class)."""
        if self.class_weight is None:
            return weight
        if codes.ndim > 1:
            raise OptionError("class_weight needs one class a row, got several labels")
        rows = np.ones(len(codes)) if weight is None else weight
        if isinstance(self.class_weight, str):
            if self.class_weight != "balanced":
                raise OptionError(f"class_weight must be 'balanced' or a mapping, got {self.class_weight!r}")
            sizes = np.bincount(codes, weights=rows, minlength=len(self.classes_))
            factor = rows.sum() / (len(self.classes_) * np.maximum(sizes, np.finfo(np.float64).tiny))
        else:
            known = self.classes_.tolist()
            strange = [name for name in self.class_weight if name not in known]
            if strange:
                raise OptionError(f"class_weight names {strange[0]!r}: classes are {known[:20]}")
            factor = np.array([float(self.class_weight.get(name, 1.0)) for name in known])
        return rows * factor[codes]

    def _name_classes(self) -> None:
        """The model's classes become the labels themselves, so that a saved model tells them."""
        model = self.model_
        assert model is not None
        if model.encoding.task.kind == "multilabel":
            return
        names: tuple[Any, ...] = tuple(self.classes_.tolist())
        if not all(isinstance(name, str | int | float | bool) for name in names):
            names = tuple(str(name) for name in names)
        task = replace(model.encoding.task, classes=(names,))
        self.model_ = replace(model, encoding=replace(model.encoding, task=task))

    def _take(self, model: Predictor) -> None:
        super()._take(model)
        if not hasattr(self, "classes_"):
            found = model.encoding.task.classes
            self.classes_ = np.array(found[0]) if len(found) == 1 else np.arange(len(found))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags
