"""`MLPClassifier`: classes and labels from tables, with the interface of scikit-learn."""

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
from ..data.options import DataKeywords
from ..data.table import NOT_UNICODE, is_unicode
from ..errors import DataError, OptionError, warn
from ..models.trained_model import TrainedModel
from .base import BaseMLP, HeldOut, Hidden, Validation, Verbose
from .inputs import check_numbers, from_dataset, length_of, unmasked
from .names import explain_unknown

ANY_CLASSES = Task(kind="binary", names=("y",), classes=((0, 1),))
"""The task for checking options if all rows have the same class."""


class MLPClassifier(ClassifierMixin, BaseMLP):
    """Classify the rows of a table with an ensemble of neural networks.

    The probabilities of the members are averaged and calibrated. No option is required: the recipe chooses a value for
    each option left at None.

    Parameters
    ----------
    hidden : int or sequence of int, optional
        Widths of the hidden layers. ``()`` is a linear model.
    activation : str or sequence of str, optional
        Activation of the hidden layers: one name, or one per layer.
    loss : str, optional
        Loss to minimize, such as ``"cross_entropy(label_smoothing=0.1)"``.
    metric : str, optional
        Validation metric that selects the best epoch: ``"accuracy"``, ``"auc"``, … By default, the log loss.
    ensemble : int, optional
        Number of networks to train. Each holds out a different part of the rows.
    validation : float, "auto" or None
        ``"auto"``: each member holds out a different part. A fraction: all members hold out the same rows. None: no
        rows are held out. Pass separate rows to `fit` as `X_val` and `y_val`.
    time_limit : float, optional
        Seconds for the whole fit. The numbers of epochs and members are chosen so that the fit ends in time.
    epochs : int, optional
        Number of passes over the rows.
    patience : int, optional
        Stop after this many epochs without improvement on the held-out rows. By default, all epochs are trained. In
        both cases, the model is that of the best epoch.
    batch_size : int, optional
        Rows per step.
    learning_rate : float, optional
        Peak learning rate.
    dropout : float, optional
        Dropout rate of the hidden layers.
    weight_decay : float, optional
        Decoupled weight decay.
    categorical : str, int or sequence, optional
        Columns to treat as categories, whatever their values are: names, or numbers for the columns of an array. Text
        columns and columns with a categorical dtype are always categories.
    class_weight : "balanced" or dict, optional
        Factor of the sample weights for each class.
    random_state : int, RandomState or None
        With a number, the result is reproducible for any number of threads.
    n_threads : int, optional
        Number of threads. By default, all cores are used if that is faster.
    device : str, optional
        ``"cpu"`` or ``"cuda"``.
    verbose : bool or "auto"
        ``"auto"`` shows the progress of a fit that takes longer than five seconds, with the remaining time, and removes
        it at the end; only in a terminal or a notebook. True shows it from the start. False shows nothing.
    warm_start : bool
        Whether `fit` continues with the parameters of the previous fit.

    Attributes
    ----------
    classes_ : ndarray
        The classes, in the order of the columns of `predict_proba`.
    history_ : dict of list
        Values per epoch: ``"loss"``, ``"seconds"`` and, if rows are held out, ``"validation_loss"`` and metrics. The
        epoch with the lowest ``"tempered_loss"`` is the best, unless `metric` is set. It is the validation loss at the
        best temperature, because calibration corrects overconfidence.
    n_iter_ : int
        Number of epochs of the last fit.
    feature_importances_ : ndarray
        Permutation importance of each column on held-out rows.
    spec_, cost_, config_, model_
        The network of a member, its cost, the chosen options, and the trained model.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from multilayer import MLPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> MLPClassifier(ensemble=2, epochs=8, random_state=0).fit(X, y).score(X, y) > 0.9
    True
    """

    _classifies = True

    @explain_unknown
    def __init__(
        self,
        *,
        hidden: Hidden = None,
        activation: str | Sequence[str] | None = None,
        loss: str | None = None,
        metric: str | None = None,
        ensemble: int | None = None,
        validation: Validation = "auto",
        time_limit: float | None = None,
        epochs: int | None = None,
        patience: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        dropout: float | None = None,
        weight_decay: float | None = None,
        categorical: Any = None,
        class_weight: str | Mapping[Any, float] | None = None,
        random_state: Any = None,
        n_threads: int | None = None,
        device: str | None = None,
        verbose: Verbose = "auto",
        warm_start: bool = False,
    ) -> None:
        self._store(locals())

    def _fit_rows(self, X: Any, y: Any, sample_weight: Any, held_out: HeldOut, options: DataKeywords) -> None:
        table = self._table(X, reset=True)
        before = getattr(self, "classes_", None) if self.warm_start and self._has_network else None
        codes, task = self._labels(y, table)
        self._check_same_classes(before)
        validation, weight_val = self._validation(table, *held_out)
        if isinstance(validation, tuple):
            labels = self._checked_y(validation[1], validation[0], name="y_val")
            validation = (validation[0], self._codes(labels, several=task == "multilabel", name="y_val"))
        weight = self._weights(sample_weight, X)
        factor = self._class_factors(codes, weight)
        if factor is not None:
            weight = sample_weights.weighed(weight, factor, codes)
            if isinstance(validation, tuple):
                weight_val = sample_weights.weighed(weight_val, factor, validation[1])
        if task == "single class":
            self._check_options(table, options, task=ANY_CLASSES)
            check_numbers(table)
            return self._predict_single_class()
        options["sample_weight"], options["sample_weight_val"] = weight, weight_val
        options["classes"] = self._class_numbers(task)
        run = self._fit(
            table,
            codes,
            given=(X, y),
            task=task,
            validation=validation,
            options=options,
            class_names=self._class_names(task),
        )
        unseen = [sample_weights.plain(name) for i, name in enumerate(self.classes_) if i in run.untrained]
        if unseen and options.get("time_column") is not None:
            some = ", ".join(repr(name) for name in unseen[:5])
            warn(f"no training row has the class {some}: all its rows are among the latest, which are held out")

    @explain_unknown
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Make one pass over some rows, at a constant learning rate.

        The first call, or an earlier `fit`, fixes the columns, scales and classes. No rows are held out, so there is no
        calibration.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.
        classes : array, optional
            All classes. Only needed in the first call, if its rows lack some of them.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        OptionError
            If `classes` differ from those of the first call, or an option changes the network or the loss.
        DataError
            If the rows cannot be used.

        Examples
        --------
        >>> from multilayer import MLPClassifier
        >>> model = MLPClassifier(ensemble=2, hidden=8, random_state=0)
        >>> for X, y in [([[0.0], [1.0]], ["no", "yes"]), ([[0.2], [0.9]], ["no", "yes"])]:
        ...     model = model.partial_fit(X, y, classes=["no", "yes"])
        >>> model.n_iter_
        2
        """
        with self._keeping_data_attributes():
            X, y = from_dataset(X, y)
            begun = self._has_network
            table = self._table(X, reset=not begun)
            labels = self._checked_y(y, table)
            if begun:
                self._check_unchanged(classes)
                task = self._network().encoding.task.kind
            else:
                task = self._first_labels(labels, classes)
            codes = self._codes(labels, several=task == "multilabel")
            weight = self._weights(sample_weight, X)
            factor = self._class_factors(codes, weight)
            weight = weight if factor is None else sample_weights.weighed(weight, factor, codes)
            self._train_on_piece(
                table,
                codes,
                weight,
                y,
                task=task,
                classes=self._class_numbers(task),
                class_names=self._class_names(task),
            )
            return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the most probable class of each row.

        Parameters
        ----------
        X : data frame, array, sparse matrix, list of rows or torch tensor
            Rows with the columns of the training rows.

        Returns
        -------
        ndarray of shape (rows,) or (rows, labels)
            Classes, or 0 and 1 for each label if y had several labels.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        DataError
            If the rows do not fit the model.

        Examples
        --------
        >>> from multilayer import MLPClassifier
        >>> model = MLPClassifier(ensemble=2, epochs=8, hidden=8, random_state=0)
        >>> model.fit([[0.0], [1.0]] * 10, ["no", "yes"] * 10).predict([[0.0], [1.0]])
        array(['no', 'yes'], dtype='<U3')
        """
        p = self.predict_proba(X)
        if self.model_ is not None and self.model_.encoding.task.kind == "multilabel":
            return (p > 0.5).astype(np.int64)
        return self.classes_[p.argmax(1)]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Predict the calibrated probability of each class.

        Parameters
        ----------
        X : data frame, array, sparse matrix, list of rows or torch tensor
            Rows with the columns of the training rows.

        Returns
        -------
        ndarray of shape (rows, classes)
            Probabilities in the order of `classes_`; with several labels, the probability of each label.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        DataError
            If the rows do not fit the model.

        Examples
        --------
        >>> from multilayer import MLPClassifier
        >>> model = MLPClassifier(ensemble=2, epochs=8, hidden=8, random_state=0)
        >>> p = model.fit([[0.0], [1.0]] * 10, ["no", "yes"] * 10).predict_proba([[0.0], [1.0]])
        >>> p.shape, bool(p[0, 0] > p[1, 0])
        ((2, 2), True)
        """
        model = cast("TrainedModel | None", self._fitted_model())
        table = self._table(X, reset=False)
        if model is None:
            check_numbers(table)
            return np.ones((length_of(table), 1))
        return model.predict_proba(table).astype(np.float64, copy=False)

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Predict the logarithm of the probability of each class.

        Parameters
        ----------
        X : data frame, array, sparse matrix, list of rows or torch tensor
            Rows with the columns of the training rows.

        Returns
        -------
        ndarray of shape (rows, classes)
            Logarithms of the result of `predict_proba`.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        DataError
            If the rows do not fit the model.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from multilayer import MLPClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> MLPClassifier(ensemble=2, epochs=4, hidden=8, random_state=0).fit(X, y).predict_log_proba(X).shape
        (150, 3)
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    # Labels

    def _labels(self, y: Any, table: Any) -> tuple[NDArray[Any], str]:
        """Return y as class numbers, or as 0 and 1 for each of several labels. Also return the task."""
        y = self._checked_y(y, table)
        if type_of_target(y, input_name="y") == "multilabel-indicator":
            self.classes_ = np.arange(y.shape[1])
            return self._codes(y, several=True), "multilabel"
        self.classes_, codes = np.unique(column_or_1d(y, warn=True), return_inverse=True)
        if len(self.classes_) == 1:
            return codes, "single class"
        return codes.astype(np.int64), "binary" if len(self.classes_) == 2 else "multiclass"

    def _first_labels(self, y: Any, classes: Any) -> str:
        """Set `classes_` in the first call of `partial_fit`, whose rows may lack some classes, and return the task."""
        if type_of_target(y, input_name="y") == "multilabel-indicator":
            self.classes_ = np.arange(y.shape[1])
            self._check_unchanged(classes)
            return "multilabel"
        self.classes_ = np.unique(column_or_1d(y)) if classes is None else _sorted(classes)
        if len(self.classes_) < 2:
            raise OptionError(
                f"the first call of partial_fit needs all classes, at least two, got {self.classes_.tolist()}: "
                "pass classes=[…]"
            )
        return "binary" if len(self.classes_) == 2 else "multiclass"

    def _checked_y(self, y: Any, table: Any, *, name: str = "y") -> Any:
        """Return y as an array with a label for each row of the table. Missing labels are an error."""
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        if hasattr(y, "toarray"):
            y = y.toarray()
        y = unmasked(y)
        check_consistent_length(table, y)
        values = _checked_labels(y, name)
        with warnings.catch_warnings():
            if name != "y" or self._has_network:  # the classes are known, so a warning about their number is useless
                warnings.simplefilter("ignore", UserWarning)
            check_classification_targets(y)
        return values

    def _codes(self, y: Any, *, several: bool, name: str = "y") -> NDArray[np.int64]:
        """Return the class number of each row; with several labels, 0 or 1 for each label."""
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
        else:  # strings and numbers cannot be compared
            places = known = np.zeros(len(y), dtype=np.bool_)
        if not known.all():
            row = int((~known).argmax())
            remedy = (
                "pass all classes in the first call, partial_fit(…, classes=[…])" if name == "y" else "drop the row"
            )
            raise OptionError(
                f"{name}: the classes are {self.classes_.tolist()[:20]}, got {sample_weights.plain(y[row])!r} in row "
                f"{row + 1:,}: {remedy}"
            )
        return places.astype(np.int64)

    def _class_numbers(self, task: str) -> tuple[int, ...]:
        """Return the numbers of the classes."""
        return (0, 1) if task == "multilabel" else tuple(range(len(self.classes_)))

    def _class_names(self, task: str) -> tuple[Any, ...]:
        """Return the labels that the model stores for the class numbers. Several labels have no names."""
        return () if task == "multilabel" else tuple(self.classes_.tolist())

    def _check_unchanged(self, classes: Any) -> None:
        """Check that later calls of `partial_fit` have the same classes as the first."""
        if classes is None:
            return
        given = _sorted(classes)
        if not np.array_equal(given, self.classes_):
            raise OptionError(
                f"classes must be those of the first call, {self.classes_.tolist()[:20]}, "
                f"got {given.tolist()[:20]}: omit them, or use a new classifier"
            )

    def _check_same_classes(self, before: NDArray[Any] | None) -> None:
        """Check that a warm start has the classes of the previous fit."""
        if before is not None and not np.array_equal(before, self.classes_):
            raise OptionError(
                f"warm_start continues with the classes {before.tolist()[:20]}, got {self.classes_.tolist()[:20]}: "
                "set warm_start=False, or use a new classifier"
            )

    def _predict_single_class(self) -> None:
        """Set the fitted attributes of a classifier that always predicts the only class of its training rows."""
        self.model_, self.n_iter_, self.history_, self._held_out_rows = None, 1, {}, None
        for name in ("config_", "_partial"):
            if hasattr(self, name):
                delattr(self, name)

    def _class_factors(self, codes: NDArray[Any], weight: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
        """Return the factors on the weights of the rows by their classes. None if `class_weight` is not set."""
        if self.class_weight is None:
            return None
        if codes.ndim > 1:
            raise OptionError("class_weight needs one class per row, got several labels: use sample_weight")
        return sample_weights.factors(self.class_weight, self.classes_.tolist(), codes, weight)

    def _become(self, model: TrainedModel) -> None:
        super()._become(model)
        if not hasattr(self, "classes_"):
            found = model.encoding.task.classes
            self.classes_ = np.array(found[0]) if len(found) == 1 else np.arange(len(found))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


def _checked_labels(labels: Any, name: str, *, each: str = "row") -> NDArray[Any]:
    """Return labels as an array. Raise an error for missing labels, and for strings mixed with numbers."""
    values = np.asarray(labels)
    # numpy converts a list of strings and numbers to strings
    given = np.asarray(labels, dtype=object) if isinstance(labels, list | tuple) else values
    if given.dtype == object:
        missing = [is_missing(value) for value in given.ravel().tolist()]
        if any(missing):
            row = _row(missing, given, True) + 1
            raise DataError(f"{name}: every {each} must have a class, got none in {each} {row:,}: drop the {each}")
        text = [isinstance(value, str) for value in given.ravel().tolist()]
        if any(text) and not all(text):  # they cannot be sorted together
            rows = sorted(_row(text, given, kind) for kind in (True, False))
            got = " and ".join(f"{given[row]!r} in {each} {row + 1:,}" for row in rows)
            raise DataError(f"{name} must be all strings, or all numbers or booleans, got {got}: use strings")
        bad = [isinstance(value, str) and not is_unicode(value) for value in given.ravel().tolist()]
        if any(bad):
            row = _row(bad, given, True)
            raise DataError(f"{name}: {each} {row + 1:,}: {NOT_UNICODE}, got {short(given[row])}: correct it")
    assert_all_finite(values, input_name=name)
    if values.dtype.kind in "mM":  # a model file would return them as strings
        raise DataError(f"{name} must be strings, numbers or booleans, got {values.dtype}: convert them to strings")
    return values


def _sorted(classes: Any) -> NDArray[Any]:
    """Return the classes that the user listed, sorted."""
    return np.unique(_checked_labels(classes, "classes", each="place"))


def _row(flags: Sequence[bool], values: NDArray[Any], flag: bool) -> int:
    """Return the row of the first value with this flag."""
    return flags.index(flag) // max(values[:1].size, 1)
