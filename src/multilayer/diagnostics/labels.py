"""Label errors: rows whose label contradicts a confident prediction from rows like them.

Labels that are wrong at random limit the accuracy equally in all regions: the most confident predictions are wrong as
often as the others. Classes that overlap are different: predictions far from the boundary are nearly always right. So
the error rate among the most confident rows, and how little it differs from that of less confident rows, distinguish
the two cases.

Confidence is the share of the 25 nearest training rows with the same label. It is measured for held-out rows, or for
training rows without their own label. Suspects are rows whose neighbors clearly prefer another label.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from ..models import metrics
from .references import distances, inputs_of
from .rows import CheckedRows, joined

NEIGHBORS = 25
MOST_ROWS = 1500
FEWEST_ROWS = 80
FEWEST_HELD_OUT = 60
"""With fewer held-out rows, the votes of the neighbors are measured on training rows."""
FEWEST_JUDGED = 20
"""With fewer held-out rows, the model is judged on training rows."""
BINS = 10
ROUNDS = 3
NOISY = 0.1
"""Error rate of the model in the most confident quarter of the rows that suggests wrong labels."""
CONTRADICTED = 0.5
"""A row is a suspect if its label has at most this fraction of the votes of the most frequent label."""


@dataclass(frozen=True, kw_only=True)
class LabelFacts:
    """Errors of the vote of the neighbors, and of the model, by confidence.

    Each tuple has the error rate of the most confident quarter of the rows first.
    """

    rows: int
    vote_errors: tuple[float, ...]
    vote_confidence: tuple[float, ...]
    model_errors: tuple[float, ...]
    model_confidence: tuple[float, ...]
    calibration_error: float
    """Mean difference of probability and frequency over ten bins of the probability of the predicted class."""
    overconfidence: float
    """Mean probability of the predicted class minus the accuracy."""
    suspects: tuple[int, ...]
    """Rows of the table, from 0, the clearest contradiction first."""


def measure_labels(train: CheckedRows, held_out: CheckedRows | None, *, full: bool = True) -> LabelFacts | None:
    """Measure the labels of a classification. None for other tasks, and with too few rows.

    Without `full`, rows with clean labels are not searched for suspects.
    """
    if train.task.kind not in metrics.CLASSES or len(train) < FEWEST_ROWS:
        return None
    train = train.at_most(MOST_ROWS)
    judged = train if held_out is None or len(held_out) < FEWEST_JUDGED else held_out.at_most(MOST_ROWS)
    voted = train if len(judged) < FEWEST_HELD_OUT else judged
    votes = _shares(distances(inputs_of(train), None if voted is train else inputs_of(judged)), train)
    truth, given = (np.asarray(side) for side in judged.sides)
    truth = truth.astype(np.int64)
    vote_errors, vote_confidence = _by_confidence(votes, _labels(voted))
    model_errors, model_confidence = _by_confidence(given, truth)
    noisy = model_errors[0] >= NOISY
    return LabelFacts(
        rows=len(judged),
        vote_errors=vote_errors,
        vote_confidence=vote_confidence,
        model_errors=model_errors,
        model_confidence=model_confidence,
        calibration_error=_calibration_error(given, truth),
        overconfidence=float((given.max(1) - (given.argmax(1) == truth)).mean()),
        suspects=_suspects([train] if judged is train else [train, judged]) if full or noisy else (),
    )


def _shares(distance: NDArray[np.float64], train: CheckedRows) -> NDArray[np.float64]:
    """Return the shares of the classes among the nearest training rows (rows, classes)."""
    k = min(NEIGHBORS, distance.shape[1] - 1)
    nearest = np.argpartition(distance, k - 1, axis=1)[:, :k]
    labels = np.eye(train.sides[1].shape[1])[_labels(train)]
    return cast("NDArray[np.float64]", labels[nearest].mean(1))


def _labels(rows: CheckedRows) -> NDArray[np.int64]:
    return np.asarray(rows.sides[0]).astype(np.int64)


def _suspects(parts: list[CheckedRows]) -> tuple[int, ...]:
    """Return the rows of the table that their neighbors contradict. Suspects lose their vote, and all are judged again.

    Held-out rows vote too: here, the neighbors judge each other's labels, not the model.
    """
    rows = parts[0] if len(parts) == 1 else joined(*parts)
    distance, labels = distances(inputs_of(rows)), _labels(rows)
    every, lead = np.arange(len(rows)), np.zeros(len(rows))
    for _ in range(ROUNDS):
        votes = _shares(np.where(lead > 0, np.inf, distance), rows)
        own, top = votes[every, labels], votes.max(1)
        lead = np.where(own <= CONTRADICTED * top, top - own, 0.0)
    found = np.flatnonzero(lead > 0)
    return tuple(rows.numbers[found[np.argsort(-lead[found], kind="stable")]].tolist())


def _by_confidence(p: NDArray[np.float64], truth: NDArray[np.int64]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the error rate and the mean confidence of each quarter of the rows, the most confident first."""
    order = np.argsort(-p.max(1), kind="stable")
    quarters = np.array_split(order, 4)
    errors = tuple(float((p[part].argmax(1) != truth[part]).mean()) for part in quarters)
    return errors, tuple(float(p[part].max(1).mean()) for part in quarters)


def _calibration_error(p: NDArray[np.float64], truth: NDArray[np.int64]) -> float:
    confidence, right = p.max(1), p.argmax(1) == truth
    bins = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    gaps = np.bincount(bins, confidence - right, minlength=BINS)
    return float(np.abs(gaps).sum() / len(p))
