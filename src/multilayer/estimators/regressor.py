"""`MLPRegressor`: the recipe behind scikit-learn's contract, for numbers, their quantiles and intervals."""

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
from ..errors import DataError, OptionError, warn
from ..nn import losses
from ..nn.calibration import Calibration
from .base import HeldOut, Tabular, Validation
from .inputs import length_of, unmasked


class MLPRegressor(RegressorMixin, MultiOutputMixin, Tabular):
    """A regressor for tables: networks trained by the recipe, their predictions averaged.

    Options are those of `MLPClassifier`, without class_weight. `loss` is mse unless given: mae, huber(delta=1),
    quantile(0.1, 0.5, 0.9), poisson. Intervals come from rows that the members did not see.

    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> MLPRegressor(ensemble=2, epochs=8, random_state=0).fit(X, y).predict(X[:3]).shape
    (3,)
    """

    _classifies = False

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
        random_state: Any = None,
        n_threads: int | None = None,
        device: str | None = None,
        verbose: bool = False,
        warm_start: bool = False,
    ) -> None:
        self._store(locals())

    def _fit_rows(self, X: Any, y: Any, sample_weight: Any, *, held_out: HeldOut, groups: Any, times: Any) -> None:
        table = self._table(X, reset=True)
        numbers = self._numbers(y, table)
        validation, weight_val = self._held_out(table, *held_out)
        if isinstance(validation, tuple):
            validation = (validation[0], self._numbers(validation[1], validation[0], name="y_val"))
        self._fit(
            table,
            numbers,
            given=(X, y),
            task="regression" if numbers.ndim == 1 else "multioutput",
            sample_weight=self._weights(sample_weight, X),
            validation=validation,
            sample_weight_val=weight_val,
            groups=groups,
            times=times,
        )

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """One pass over some rows. The first call, or `fit`, fixes columns and scales; the members then go on."""
        with self._or_as_before():
            table = self._table(X, reset=not self._begun)
            numbers, weight = self._numbers(y, table), self._weights(sample_weight, X)
            task = "regression" if numbers.ndim == 1 else "multioutput"
            self._take_piece(table, numbers, weight, y, task=task)
            return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The target of each row; with a quantile loss of several levels, the median: trained for, or on the line
        between the levels around it, or the level nearest to it."""
        model = self._model()
        return targets.middle(model.predict(self._table(X, reset=False)), model.encoding.loss)

    def predict_quantiles(self, X: Any, quantiles: Sequence[float] = (0.1, 0.5, 0.9)) -> NDArray[np.float64]:
        """Quantiles of the target (rows, …, quantiles): those the network was trained for, or the prediction moved by
        the quantiles of the errors on held-out rows, infinite where these are too few to tell."""
        model = self._model()
        table = self._table(X, reset=False)
        if np.ndim(cast(Any, quantiles)) != 1 or not len(quantiles) or np.asarray(quantiles).dtype.kind not in "iuf":
            raise OptionError(f"quantiles must be one number or more, such as [0.1, 0.9], got {quantiles!r}")
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
                    f"the quantile {float(q)} needs errors of {_many(needed[q])} held-out rows that count alike, got "
                    f"{len(errors.errors):,}: it has no end; ask for one nearer to 0.5, or fit with more rows held out"
                )
            chosen = self._possible(middle[:, :, None] + moves)
        return chosen[:, 0] if len(model.encoding.task.names) == 1 else chosen

    def predict_interval(self, X: Any, coverage: float = 0.9) -> NDArray[np.float64]:
        """Low and high (rows, …, 2) between which the given share of new rows lies, by the errors on held-out rows;
        with a quantile loss of several levels, around the lowest and the highest."""
        if not isinstance(coverage, int | float | np.number):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(f"coverage must be a number above 0 and below 1, got {coverage!r}")
        errors, loss = self._errors(), losses.get(self._model().encoding.loss)
        moves = np.stack(errors.interval(coverage, loss), -1) * self._units()[:, None]  # (T, 2)
        needed = errors.too_few(coverage, loss)
        if needed is not None:
            warn(
                f"coverage={float(coverage)} needs errors of {_many(needed)} held-out rows that count alike, got "
                f"{len(errors.errors):,}: the interval has no ends; ask for less, or fit with more rows held out"
            )
        table = self._table(X, reset=False)
        levels = self._model().predict(table).reshape(length_of(table), len(moves), -1)  # (N, T, Q)
        around = levels[:, :, [0, -1]]
        both = around + moves
        crossed = both[..., :1] > both[..., 1:]  # where much less is asked for than the levels cover
        both = self._possible(np.where(crossed, around.mean(-1, keepdims=True), both))
        return both[:, 0] if both.shape[1] == 1 else both

    def _errors(self) -> Calibration:
        calibration = self._model().calibration
        if calibration is None or not len(calibration.errors):
            raise OptionError(
                "intervals need rows that were held out, and the model has no errors of such: fit it with validation"
            )
        return calibration

    def _possible(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Counts are not below 0."""
        return np.maximum(values, 0.0) if losses.get(self._model().encoding.loss).link == "exp" else values

    def _units(self) -> NDArray[np.float64]:
        return np.asarray(self._model().encoding.task.std)

    def _numbers(self, y: Any, table: Any, *, name: str = "y") -> NDArray[np.float64]:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        y = unmasked(y)
        if np.asarray(y).dtype == object:
            found = np.asarray(y)
            y = np.array([np.nan if is_missing(value) else value for value in found.ravel()]).reshape(found.shape)
        kind = np.asarray(y).dtype
        if kind.kind in "mM":
            raise DataError(f"{name} must be numbers, got {kind}: give them as such, days since a first one for dates")
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
