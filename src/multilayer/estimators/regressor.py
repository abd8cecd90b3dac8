"""`MLPRegressor`: numbers, quantiles and prediction intervals from tables, with the interface of scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

from ..core.formatting import short
from ..data import targets
from ..data.arrays import is_missing
from ..data.options import DataKeywords
from ..errors import DataError, OptionError, warn
from ..nn import losses
from ..nn.calibration import Calibration
from .base import BaseMLP, HeldOut, Hidden, Validation, Verbose
from .inputs import from_dataset, length_of, unmasked
from .names import explain_unknown


class MLPRegressor(RegressorMixin, MultiOutputMixin, BaseMLP):
    """Predict numbers from the rows of a table with an ensemble of neural networks.

    The predictions of the members are averaged. Prediction intervals come from the errors on rows that the members did
    not train on. No option is required: the recipe chooses a value for each option left at None.

    Parameters
    ----------
    loss : str, optional
        Loss to minimize. By default ``"mse"``. Others: ``"mae"``, ``"huber(delta=1)"``, ``"quantile(0.1, 0.5, 0.9)"``,
        ``"poisson"``.
    metric : str, optional
        Validation metric that selects the best epoch: ``"r2"``, ``"mae"``, ``"rmse"``. By default, the loss.
    hidden, activation, dropout : optional
        Widths of the hidden layers, their activation, and the dropout rate.
    epochs, batch_size, learning_rate, weight_decay : optional
        Options of the optimization.
    ensemble, validation, patience, time_limit : optional
        Number of networks, which rows they hold out, and when training stops early.
    categorical : str, int or sequence, optional
        Columns to treat as categories, whatever their values are.
    random_state, n_threads, device, verbose, warm_start : optional
        Seed, hardware, progress display, and whether `fit` continues from the previous fit. The reference of
        `MLPClassifier` describes these options and their values in full.

    Attributes
    ----------
    history_ : dict of list
        Values per epoch: ``"loss"``, ``"seconds"`` and, if rows are held out, ``"validation_loss"`` and metrics.
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
    >>> from sklearn.datasets import load_diabetes
    >>> from multilayer import MLPRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> MLPRegressor(ensemble=2, epochs=8, random_state=0).fit(X, y).predict(X[:3]).shape
    (3,)
    """

    _classifies = False

    @explain_unknown
    def __init__(
        self,
        *,
        loss: str | None = None,
        metric: str | None = None,
        hidden: Hidden = None,
        activation: str | Sequence[str] | None = None,
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
        random_state: Any = None,
        n_threads: int | None = None,
        device: str | None = None,
        verbose: Verbose = "auto",
        warm_start: bool = False,
    ) -> None:
        self._store(locals())

    def _fit_rows(self, X: Any, y: Any, sample_weight: Any, held_out: HeldOut, options: DataKeywords) -> None:
        table = self._table(X, reset=True)
        numbers = self._numbers(y, table)
        validation, weight_val = self._validation(table, *held_out)
        if isinstance(validation, tuple):
            validation = (validation[0], self._numbers(validation[1], validation[0], name="y_val"))
        options["sample_weight"], options["sample_weight_val"] = self._weights(sample_weight, X), weight_val
        task = "regression" if numbers.ndim == 1 else "multioutput"
        self._fit(table, numbers, given=(X, y), task=task, validation=validation, options=options)

    @explain_unknown
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Make one pass over some rows, at a constant learning rate.

        The first call, or an earlier `fit`, fixes the columns and scales. No rows are held out, so there are no
        prediction intervals.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        OptionError
            If an option changes the network or the loss after the first call.
        DataError
            If the rows cannot be used.

        Examples
        --------
        >>> from multilayer import MLPRegressor
        >>> model = MLPRegressor(ensemble=2, hidden=8, random_state=0)
        >>> for X, y in [([[0.0], [1.0]], [0.0, 2.0]), ([[0.2], [0.9]], [0.4, 1.8])]:
        ...     model = model.partial_fit(X, y)
        >>> model.n_iter_
        2
        """
        with self._keeping_data_attributes():
            X, y = from_dataset(X, y)
            table = self._table(X, reset=not self._has_network)
            numbers, weight = self._numbers(y, table), self._weights(sample_weight, X)
            task = "regression" if numbers.ndim == 1 else "multioutput"
            self._train_on_piece(table, numbers, weight, y, task=task)
            return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Predict the target of each row.

        With a quantile loss of several levels, this is the median. If 0.5 is not a trained level, the median is
        interpolated between the nearest levels, or is the nearest level.

        Parameters
        ----------
        X : data frame, array, sparse matrix, list of rows or torch tensor
            Rows with the columns of the training rows.

        Returns
        -------
        ndarray of shape (rows,) or (rows, targets)
            Predictions in the units of y.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        DataError
            If the rows do not fit the model.

        Examples
        --------
        >>> import numpy as np
        >>> from multilayer import MLPRegressor
        >>> X = np.linspace(-1, 1, 100)[:, None]
        >>> MLPRegressor(ensemble=2, epochs=8, hidden=8, random_state=0).fit(X, X[:, 0]).predict(X[:5]).shape
        (5,)
        """
        model = self._fitted_model()
        return targets.middle(model.predict(self._table(X, reset=False)), model.encoding.loss)

    def predict_quantiles(self, X: Any, quantiles: Sequence[float] = (0.1, 0.5, 0.9)) -> NDArray[np.float64]:
        """Predict quantiles of the target.

        With a quantile loss, these must be trained levels. Otherwise, the prediction is shifted by the quantiles of the
        errors on held-out rows.

        Parameters
        ----------
        X : data frame, array, sparse matrix, list of rows or torch tensor
            Rows with the columns of the training rows.
        quantiles : sequence of float
            Levels above 0 and below 1.

        Returns
        -------
        ndarray of shape (rows, quantiles) or (rows, targets, quantiles)
            Quantiles in the units of y. A quantile is infinite, with a warning, if there are too few held-out rows.

        Raises
        ------
        OptionError
            If a level is invalid or was not trained, or the model has no held-out rows.

        Examples
        --------
        >>> import numpy as np
        >>> from multilayer import MLPRegressor
        >>> X = np.linspace(-1, 1, 100)[:, None]
        >>> model = MLPRegressor(ensemble=2, epochs=8, hidden=8, random_state=0).fit(X, X[:, 0])
        >>> model.predict_quantiles(X[:5], [0.1, 0.5, 0.9]).shape
        (5, 3)
        """
        model = self._fitted_model()
        table = self._table(X, reset=False)
        if np.ndim(cast(Any, quantiles)) != 1 or not len(quantiles) or np.asarray(quantiles).dtype.kind not in "iuf":
            raise OptionError(f"quantiles must be a list of numbers, such as [0.1, 0.9], got {quantiles!r}")
        if losses.get(model.encoding.loss).quantiles:
            trained = list(targets.levels(model.encoding.loss))
            absent = [q for q in quantiles if q not in trained]
            if absent:
                raise OptionError(f"the network was trained for the quantiles {trained}, got {float(absent[0])}")
            found = model.predict(table).reshape(length_of(table), -1, len(trained))
            chosen = found[..., [trained.index(q) for q in quantiles]]
        else:
            middle, errors = model.predict(table).reshape(length_of(table), -1), self._errors()
            moves = np.stack([errors.quantile(q) for q in quantiles], -1) * self._units()[:, None]  # (T, Q)
            needed = {q: rows for q in quantiles if (rows := errors.too_few_for(q)) is not None}
            if needed:
                q = max(needed, key=lambda q: needed[q])
                warn(
                    f"the quantile {float(q)} needs {_many(needed[q])} held-out rows of equal weight, got "
                    f"{len(errors.errors):,}, so it is infinite: use a level nearer to 0.5, or hold out more rows"
                )
            chosen = self._possible(middle[:, :, None] + moves)
        return chosen[:, 0] if len(model.encoding.task.names) == 1 else chosen

    def predict_interval(self, X: Any, coverage: float = 0.9) -> NDArray[np.float64]:
        """Predict an interval that contains the target of a new row with a given probability.

        The intervals are conformal: they come from the errors on held-out rows. With a quantile loss of several levels,
        they lie around the lowest and the highest level.

        Parameters
        ----------
        X : data frame, array, sparse matrix, list of rows or torch tensor
            Rows with the columns of the training rows.
        coverage : float
            Share of new rows whose target lies within the interval.

        Returns
        -------
        ndarray of shape (rows, 2) or (rows, targets, 2)
            Lower and upper ends in the units of y. They are infinite, with a warning, if there are too few held-out
            rows for this coverage.

        Raises
        ------
        OptionError
            If the coverage is invalid, or the model has no held-out rows.

        Examples
        --------
        >>> import numpy as np
        >>> from multilayer import MLPRegressor
        >>> X = np.linspace(-1, 1, 100)[:, None]
        >>> model = MLPRegressor(ensemble=2, epochs=8, hidden=8, random_state=0).fit(X, X[:, 0])
        >>> low, high = model.predict_interval(X, coverage=0.8).T
        >>> bool((low < high).all())
        True
        """
        if not isinstance(coverage, int | float | np.number):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(f"coverage must be a number above 0 and below 1, got {coverage!r}")
        errors, loss = self._errors(), losses.get(self._fitted_model().encoding.loss)
        moves = np.stack(errors.interval(coverage, loss), -1) * self._units()[:, None]  # (T, 2)
        needed = errors.too_few(coverage, loss)
        if needed is not None:
            warn(
                f"coverage={float(coverage)} needs {_many(needed)} held-out rows of equal weight, got "
                f"{len(errors.errors):,}, so the interval is infinite: lower the coverage, or hold out more rows"
            )
        table = self._table(X, reset=False)
        levels = self._fitted_model().predict(table).reshape(length_of(table), len(moves), -1)  # (N, T, Q)
        around = levels[:, :, [0, -1]]
        both = around + moves
        crossed = both[..., :1] > both[..., 1:]  # if the coverage is much lower than that of the levels
        both = self._possible(np.where(crossed, around.mean(-1, keepdims=True), both))
        return both[:, 0] if both.shape[1] == 1 else both

    def _errors(self) -> Calibration:
        calibration = self._fitted_model().calibration
        if calibration is None or not len(calibration.errors):
            raise OptionError(
                "intervals need the errors on held-out rows, and no rows were held out: fit with validation='auto'"
            )
        return calibration

    def _possible(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Raise negative values to 0 if the target is a count."""
        return np.maximum(values, 0.0) if losses.get(self._fitted_model().encoding.loss).link == "exp" else values

    def _units(self) -> NDArray[np.float64]:
        """Return the scale of each target."""
        return np.asarray(self._fitted_model().encoding.task.std)

    def _numbers(self, y: Any, table: Any, *, name: str = "y") -> NDArray[np.float64]:
        """Return y as float64, one row for each row of the table."""
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        y = unmasked(y)
        if np.asarray(y).dtype == object:
            found = np.asarray(y)
            y = np.array([np.nan if is_missing(value) else value for value in found.ravel()]).reshape(found.shape)
        kind = np.asarray(y).dtype
        if kind.kind in "mM":
            raise DataError(f"{name} must be numbers, got {kind}: convert dates to days since a first date")
        texts = np.asarray(y).ravel().tolist() if kind.kind in "US" else []
        if words := [text for text in texts if not _is_number(text)]:
            raise DataError(f"{name} must be numbers, got {short(words[0])}: MLPClassifier predicts classes")
        numbers = check_array(y, ensure_2d=False, dtype=cast(Any, np.float64), input_name=name)
        if numbers.ndim == 2 and numbers.shape[1] == 1:
            numbers = column_or_1d(numbers, warn=True)
        check_consistent_length(table, numbers)
        return numbers


def _is_number(text: str | bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _many(rows: int) -> str:
    return f"{rows:,}" if rows < 1e12 else f"{rows:.3g}"
