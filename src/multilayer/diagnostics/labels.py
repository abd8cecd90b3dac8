"""Label errors: rows whose label contradicts a confident prediction from rows like them.

Labels that are wrong at random limit the accuracy equally in all regions: the most confident predictions are wrong as
often as the others. Classes that overlap are different: predictions far from the boundary are nearly always right. So
the error rate among the most confident rows, and how little it differs from that of less confident rows, distinguish
the two cases.

The errors are those of the network on the held-out rows, and those of four simple methods on all rows. Each method
predicts a row from the other rows:

    linear       ridge regression on the encoded columns
    features     ridge regression on random ReLU features of the columns
    products     ridge regression on the columns and the products of two of them
    neighbors    the share of each class among the 25 nearest rows

The confidence is the largest prediction minus the second largest. If one method or the network predicts its confident
rows well, their labels are right.

Suspects are rows whose label has much less of the prediction than another class. The prediction is the mean of
`features` and `neighbors`, weighted by 1 / error⁶, so that the better one counts much more. Suspects then lose their
vote, and all rows are judged again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ..models import metrics
from .references import distances, fit_ridge, inputs_of, random_features, strongest
from .rows import CheckedRows, joined

NEIGHBORS = 25
MOST_ROWS = 1500
FEWEST_ROWS = 80
FEWEST_JUDGED = 20
"""With fewer held-out rows, the model is judged on training rows."""
MOST_MULTIPLIED = 16
"""Products are made of at most this many columns, those with the largest correlation with the target."""
BINS = 10
ROUNDS = 3
NOISY_MODEL = 0.14
"""Error rate of the model in its most confident half of the rows, with one error more, that suggests wrong labels."""
CONTRADICTED = 0.5
"""A row is a suspect if its label has at most this fraction of the prediction of the most likely label."""
SURE = 0.02
"""Smallest error rate in the weight of a method."""
POWER = 6
"""The weight of a method is 1 / error to this power."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class LabelFacts:
    """Errors of simple methods and of the model, by confidence.

    Each tuple has the error rate of the most confident quarter of the rows first.
    """

    rows: int
    """Number of rows that the model is judged on."""
    model_errors: tuple[float, ...]
    model_confidence: tuple[float, ...]
    calibration_error: float
    """Mean difference of probability and frequency over ten bins of the probability of the predicted class."""
    overconfidence: float
    """Mean probability of the predicted class minus the accuracy."""
    reference_errors: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    """Errors of "linear", "features", "products" and "neighbors" on all rows. Empty if they were not needed."""
    suspects: tuple[int, ...] = ()
    """Rows of the table, from 0, the clearest contradiction first."""

    @property
    def model_error(self) -> float:
        """Error rate of the model in its most confident half of the rows, with one error more: of a few rows, none may
        be wrong by chance."""
        half = (self.rows + 1) // 2
        return (sum(self.model_errors[:2]) / 2 * half + 1) / (half + 1)

    @property
    def lowest_quarter(self) -> float:
        """The lowest error rate of a method in its most confident quarter of the rows."""
        return min(errors[0] for errors in self.reference_errors.values())

    @property
    def confident_errors(self) -> tuple[float, float]:
        """Error rates in the confident half and the other half of the rows, of the method with fewest in the first."""
        best = min(self.reference_errors.values(), key=lambda errors: errors[0] + errors[1])
        return (best[0] + best[1]) / 2, (best[2] + best[3]) / 2


def measure_labels(train: CheckedRows, held_out: CheckedRows | None, *, full: bool = True) -> LabelFacts | None:
    """Measure the labels of a classification. None for other tasks, and with too few rows.

    Without `full`, only the model is judged if its confident predictions are right.
    """
    if train.task.kind not in metrics.CLASSES or len(train) < FEWEST_ROWS:
        return None
    train = train.at_most(MOST_ROWS)
    judged = train if held_out is None or len(held_out) < FEWEST_JUDGED else held_out.at_most(MOST_ROWS)
    truth, given = (np.asarray(side) for side in judged.sides)
    truth = truth.astype(np.int64)
    model_errors, model_confidence = _by_confidence(given, truth)
    facts = LabelFacts(
        rows=len(judged),
        model_errors=model_errors,
        model_confidence=model_confidence,
        calibration_error=_calibration_error(given, truth),
        overconfidence=float((given.max(1) - (given.argmax(1) == truth)).mean()),
    )
    if not full and facts.model_error < NOISY_MODEL:
        return facts
    methods = _Methods.of(train if judged is train else joined(train, judged))
    predictions = methods.predictions(np.zeros(len(methods.labels), np.bool_))
    errors = {name: _by_confidence(p, methods.labels)[0] for name, p in predictions.items()}
    return replace(facts, reference_errors=errors, suspects=methods.suspects(predictions))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Methods:
    """Simple methods that predict each row from the other rows. Held-out rows vote too: this does not judge the model.

    `distance` has the distances between all rows, as `distances` returns them.
    """

    numbers: NDArray[np.int64]
    labels: NDArray[np.int64]
    goal: Floats
    inputs: Floats
    features: Floats
    products: Floats
    distance: Floats

    @staticmethod
    def of(rows: CheckedRows) -> _Methods:
        truth, given = rows.sides
        labels = np.asarray(truth).astype(np.int64)
        goal, inputs = np.eye(np.asarray(given).shape[1])[labels], inputs_of(rows)
        chosen = inputs[:, strongest(inputs, goal)]
        return _Methods(
            numbers=rows.numbers,
            labels=labels,
            goal=goal,
            inputs=chosen,
            features=random_features(chosen, chosen.mean(0), chosen.std(0)),
            products=products(inputs[:, strongest(inputs, goal, most=MOST_MULTIPLIED)]),
            distance=distances(inputs),
        )

    def predictions(self, excluded: NDArray[np.bool_]) -> dict[str, Floats]:
        """Return the predictions of each method, from the rows that are not excluded."""
        return {
            "linear": self._ridge(self.inputs, excluded),
            "features": self._ridge(self.features, excluded),
            "products": self._ridge(self.products, excluded),
            "neighbors": self._shares(excluded),
        }

    def _ridge(self, inputs: Floats, excluded: NDArray[np.bool_]) -> Floats:
        fitted = fit_ridge(inputs[~excluded], self.goal[~excluded])
        predicted = fitted.predict(inputs)
        predicted[~excluded] = fitted.left_out
        return np.clip(predicted, 0.0, 1.0)

    def _shares(self, excluded: NDArray[np.bool_]) -> Floats:
        distance = np.where(excluded, np.inf, self.distance)
        k = min(NEIGHBORS, len(self.labels) - 1)
        nearest = np.argpartition(distance, k - 1, axis=1)[:, :k]
        return cast("Floats", self.goal[nearest].mean(1))

    def suspects(self, predictions: Mapping[str, Floats]) -> tuple[int, ...]:
        """Return the rows of the table whose label is contradicted, the clearest contradiction first."""
        names, every = ("features", "neighbors"), np.arange(len(self.labels))
        errors = [float((predictions[name].argmax(1) != self.labels).mean()) for name in names]
        weights = np.array([1 / max(error, SURE) ** POWER for error in errors])
        lead = np.zeros(len(self.labels))
        for _ in range(ROUNDS):
            found = self.predictions(lead > 0)
            p = np.average([found[name] for name in names], axis=0, weights=weights)
            own, top = p[every, self.labels], p.max(1)
            lead = np.where(own <= CONTRADICTED * top, top - own, 0.0)
        places = np.flatnonzero(lead > 0)
        return tuple(self.numbers[places[np.argsort(-lead[places], kind="stable")]].tolist())


def products(inputs: Floats) -> Floats:
    """Return the columns and the products of two columns, standardized."""
    first, second = np.triu_indices(inputs.shape[1])
    x = (inputs - inputs.mean(0)) / np.maximum(inputs.std(0), 1e-12)
    return np.concatenate([x, x[:, first] * x[:, second]], axis=1)


def _by_confidence(p: NDArray[np.float64], truth: NDArray[np.int64]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the error rate and the mean confidence of each quarter of the rows, the most confident first."""
    top = np.sort(p, axis=1)
    order = np.argsort(top[:, -2] - top[:, -1], kind="stable")
    quarters = np.array_split(order, 4)
    errors = tuple(float((p[part].argmax(1) != truth[part]).mean()) for part in quarters)
    return errors, tuple(float(p[part].max(1).mean()) for part in quarters)


def _calibration_error(p: NDArray[np.float64], truth: NDArray[np.int64]) -> float:
    confidence, right = p.max(1), p.argmax(1) == truth
    bins = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    gaps = np.bincount(bins, confidence - right, minlength=BINS)
    return float(np.abs(gaps).sum() / len(p))
