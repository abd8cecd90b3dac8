"""`MLPClassifier`: the recipe behind scikit-learn's contract, for classes and labels."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_consistent_length, column_or_1d

from ..core.formatting import short
from ..data import Task
from ..data import weights as sample_weights
from ..data.arrays import is_missing
from ..data.table import NOT_UNICODE, is_unicode
from ..data.targets import untrained
from ..errors import DataError, OptionError, warn
from ..models.trained_model import TrainedModel
from .base import HeldOut, Tabular, Validation
from .inputs import check_numbers, length_of, unmasked

ANY_CLASSES = Task(kind="binary", names=("y",), classes=((0, 1),))
"""Stands for any classes where metrics that fit them are meant."""


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

    None leaves the choice to the recipe. After fit: `classes_`, `history_`, `n_iter_`, `spec_`, `cost_`, `config_`. In
    `history_`, validation_loss is the log loss on rows held out; tempered_loss, at its best temperature, decides.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> MLPClassifier(ensemble=2, epochs=8, random_state=0).fit(X, y).score(X, y) > 0.9
    True
    """

    _classifies = True

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
        self._store(locals())

    def _fit_rows(self, X: Any, y: Any, sample_weight: Any, *, held_out: HeldOut, groups: Any, times: Any) -> None:
        table = self._table(X, reset=True)
        before = getattr(self, "classes_", None) if self.warm_start and self._begun else None
        codes, task = self._labels(y, table)
        self._check_warm(before)
        validation, weight_val = self._held_out(table, *held_out)
        if isinstance(validation, tuple):
            labels = self._checked(validation[1], validation[0], name="y_val")
            validation = (validation[0], self._codes(labels, several=task == "multilabel", name="y_val"))
        weight = self._weights(sample_weight, X)
        factor = self._class_factors(codes, weight)
        if factor is not None:
            weight = sample_weights.weighed(weight, factor, codes)
            if isinstance(validation, tuple):
                weight_val = sample_weights.weighed(weight_val, factor, validation[1])
        if task == "one class":
            self._check_options(table, task=ANY_CLASSES, groups=groups, times=times)
            check_numbers(table)
            return self._answer_always()
        run = self._fit(
            table,
            codes,
            given=(X, y),
            task=task,
            sample_weight=weight,
            validation=validation,
            sample_weight_val=weight_val,
            groups=groups,
            times=times,
            classes=self._numbered(task),
            class_names=self._class_names(task),
        )
        unseen = [sample_weights.plain(name) for i, name in enumerate(self.classes_) if untrained(i) in run.notes]
        if unseen and times is not None:
            some = ", ".join(repr(name) for name in unseen[:5])
            warn(f"no row to train on is of the class {some}: all are among the latest, which are held out")

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """One pass over some rows. The first call, or `fit`, fixes columns, scales and classes; members then go on."""
        with self._or_as_before():
            begun = self._begun
            table = self._table(X, reset=not begun)
            labels = self._checked(y, table)
            if begun:
                self._check_same(classes)
                task = self._network().encoding.task.kind
            else:
                task = self._first_labels(labels, classes)
            codes = self._codes(labels, several=task == "multilabel")
            weight = self._weights(sample_weight, X)
            factor = self._class_factors(codes, weight)
            weight = weight if factor is None else sample_weights.weighed(weight, factor, codes)
            names = self._class_names(task)
            self._take_piece(table, codes, weight, y, task=task, classes=self._numbered(task), class_names=names)
            return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class of each row; for several labels, 0 or 1 for each."""
        p = self.predict_proba(X)
        if self.model_ is not None and self.model_.encoding.task.kind == "multilabel":
            return (p > 0.5).astype(np.int64)
        return self.classes_[p.argmax(1)]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class (rows, classes); of each label, where there are several."""
        model = cast("TrainedModel | None", self._model())
        table = self._table(X, reset=False)
        if model is None:
            check_numbers(table)
            return np.ones((length_of(table), 1))
        return model.predict_proba(table).astype(np.float64, copy=False)

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    # Labels

    def _labels(self, y: Any, table: Any) -> tuple[NDArray[Any], str]:
        """y as class numbers, or as labels of 0 and 1; and the task."""
        y = self._checked(y, table)
        if type_of_target(y, input_name="y") == "multilabel-indicator":
            self.classes_ = np.arange(y.shape[1])
            return self._codes(y, several=True), "multilabel"
        self.classes_, codes = np.unique(column_or_1d(y, warn=True), return_inverse=True)
        if len(self.classes_) == 1:
            return codes, "one class"
        return codes.astype(np.int64), "binary" if len(self.classes_) == 2 else "multiclass"

    def _first_labels(self, y: Any, classes: Any) -> str:
        """The task of the first piece, whose rows may lack some of the classes."""
        if type_of_target(y, input_name="y") == "multilabel-indicator":
            self.classes_ = np.arange(y.shape[1])
            self._check_same(classes)
            return "multilabel"
        self.classes_ = np.unique(column_or_1d(y)) if classes is None else _sorted(classes)
        if len(self.classes_) < 2:
            raise OptionError(
                f"partial_fit needs all classes at its first call, two or more, got {self.classes_.tolist()}: "
                "name them, classes=[…]"
            )
        return "binary" if len(self.classes_) == 2 else "multiclass"

    def _checked(self, y: Any, table: Any, *, name: str = "y") -> Any:
        """y as an array of labels, one for each row of the table and none missing."""
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        if hasattr(y, "toarray"):
            y = y.toarray()
        y = unmasked(y)
        check_consistent_length(table, y)
        values = _checked_labels(y, name)
        with warnings.catch_warnings():
            if name != "y" or self._begun:  # the classes are known
                warnings.simplefilter("ignore", UserWarning)
            check_classification_targets(y)
        return values

    def _codes(self, y: Any, *, several: bool, name: str = "y") -> NDArray[np.int64]:
        """The number of each row's class; or 0 and 1 for each label, where there are several."""
        if several:
            labels = np.asarray(y)
            odd = labels[~np.isin(labels, (0, 1))]
            if labels.ndim != 2 or labels.shape[1] != len(self.classes_) or len(odd):
                got = f"{sample_weights.plain(odd[0])!r}" if len(odd) else f"the shape {labels.shape}"
                raise OptionError(f"{name} must be 0 or 1 for each of {len(self.classes_)} labels, got {got}")
            return labels.astype(np.int64)
        y = column_or_1d(y, warn=True)
        if isinstance(y[0], str) == isinstance(self.classes_[0], str):
            places = np.searchsorted(self.classes_, y)
            known = self.classes_[np.minimum(places, len(self.classes_) - 1)] == y
        else:  # texts and numbers have no order among each other
            places = known = np.zeros(len(y), dtype=np.bool_)
        if not known.all():
            row = int((~known).argmax())
            raise OptionError(
                f"{name}: classes are {self.classes_.tolist()[:20]}, got {sample_weights.plain(y[row])!r} in row "
                f"{row + 1:,}: all classes are those of the first rows, or of classes=[…] in partial_fit"
            )
        return places.astype(np.int64)

    def _numbered(self, task: str) -> tuple[int, ...]:
        """The classes as their numbers: those that a target may have."""
        return (0, 1) if task == "multilabel" else tuple(range(len(self.classes_)))

    def _class_names(self, task: str) -> tuple[Any, ...]:
        """The labels that the model stores for the class numbers. Several labels have no names."""
        return () if task == "multilabel" else tuple(self.classes_.tolist())

    def _check_same(self, classes: Any) -> None:
        """Classes cannot change between two pieces."""
        if classes is None:
            return
        given = _sorted(classes)
        if not np.array_equal(given, self.classes_):
            raise OptionError(
                f"classes must be those of the first call, {self.classes_.tolist()[:20]}, "
                f"got {given.tolist()[:20]}: leave them out, or begin a new classifier"
            )

    def _check_warm(self, before: NDArray[Any] | None) -> None:
        """A warm start goes on with the classes it had."""
        if before is not None and not np.array_equal(before, self.classes_):
            raise OptionError(
                f"warm_start goes on with the classes {before.tolist()[:20]}, got {self.classes_.tolist()[:20]}: "
                "fit with warm_start=False, or a new classifier"
            )

    def _answer_always(self) -> None:
        """Fitted with one class: what belonged to a network is gone."""
        self.model_, self.n_iter_, self.history_ = None, 1, {}
        for name in ("config_", "_partial"):
            if hasattr(self, name):
                delattr(self, name)

    def _class_factors(self, codes: NDArray[Any], weight: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
        """What rows count by their classes; None where that makes no difference."""
        if self.class_weight is None:
            return None
        if codes.ndim > 1:
            raise OptionError("class_weight needs one class a row, got several labels")
        return sample_weights.factors(self.class_weight, self.classes_.tolist(), codes, weight)

    def _take(self, model: TrainedModel) -> None:
        super()._take(model)
        if not hasattr(self, "classes_"):
            found = model.encoding.task.classes
            self.classes_ = np.array(found[0]) if len(found) == 1 else np.arange(len(found))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


def _checked_labels(labels: Any, name: str, *, each: str = "row") -> NDArray[Any]:
    """Labels as an array: none is missing, and all are texts, or numbers or booleans."""
    values = np.asarray(labels)
    given = np.asarray(labels, dtype=object) if isinstance(labels, list | tuple) else values  # as numpy found them
    if given.dtype == object:
        nothing = [is_missing(value) for value in given.ravel().tolist()]
        if any(nothing):
            got = f"got none in {each} {_row(nothing, given, True) + 1:,}: leave the {each} out"
            raise DataError(f"{name}: every {each} must have a class, {got}")
        text = [isinstance(value, str) for value in given.ravel().tolist()]
        if any(text) and not all(text):  # texts have no order among other objects
            rows = sorted(_row(text, given, kind) for kind in (True, False))
            got = " and ".join(f"{given[row]!r} in {each} {row + 1:,}" for row in rows)
            raise DataError(f"{name} must be all texts, or all numbers or booleans, got {got}: give all as texts")
        bad = [isinstance(value, str) and not is_unicode(value) for value in given.ravel().tolist()]
        if any(bad):
            row = _row(bad, given, True)
            raise DataError(f"{name}: {each} {row + 1:,}: {NOT_UNICODE}, got {short(given[row])}: correct it")
    assert_all_finite(values, input_name=name)
    if values.dtype.kind in "mM":  # they would come back from a model file as texts
        raise DataError(f"{name} must be texts, numbers or booleans, got {values.dtype}: give them as texts")
    return values


def _sorted(classes: Any) -> NDArray[Any]:
    """Classes that were named."""
    return np.unique(_checked_labels(classes, "classes", each="place"))


def _row(flags: Sequence[bool], values: NDArray[Any], wanted: bool) -> int:
    """The row of the first value that is so."""
    return flags.index(wanted) // max(values[:1].size, 1)
