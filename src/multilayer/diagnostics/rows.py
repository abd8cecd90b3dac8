"""The rows that a network is checked on: encoded rows with their targets, and their numbers in the table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np

from ..core.sparse import Sparse
from ..data import TrainingData
from ..data.table import Rows
from ..errors import DataError
from ..models.evaluation_rows import EvaluationRows, Floats, judges_of, outputs
from ..models.trained_model import TrainedModel

MOST_TRAIN, MOST_HELD_OUT = 2000, 1000
"""Largest number of rows that are kept of a run."""
MOST_VALUES, FEWEST_ROWS = 1 << 20, 32
"""Largest number of values of the kept training rows. Of wide tables, fewer rows are kept, but not fewer than this."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CheckedRows(EvaluationRows):
    """Evaluation rows, with their positions in the source from 0."""

    numbers: Rows

    @cached_property
    def z(self) -> Floats:
        """Raw outputs (N, d_out). A diverged network whose outputs are not finite predicts nothing: they count as 0."""
        try:
            return outputs(self.model, self.x, self.codes, self.judges)
        except DataError:
            return np.zeros((len(self), self.model.spec.d_out))

    def take(self, places: Rows) -> CheckedRows:
        return replace(super().take(places), numbers=self.numbers[places])


def joined(first: CheckedRows, second: CheckedRows) -> CheckedRows:
    """Return the rows of both, for measurements that do not need the model."""
    dense = [one.x[np.arange(len(one))] if isinstance(one.x, Sparse) else one.x for one in (first, second)]
    codes = [one.codes for one in (first, second) if one.codes is not None]
    return CheckedRows(
        model=first.model,
        x=np.concatenate(dense),
        codes=np.concatenate(codes) if codes else None,
        y=np.concatenate([first.y, second.y]),
        numbers=np.concatenate([first.numbers, second.numbers]),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Samples:
    """Some of the training rows and of the held-out rows of a run."""

    train: CheckedRows
    held_out: CheckedRows | None

    @staticmethod
    def of_training(model: TrainedModel, prepared: TrainingData, *, fold: int = 0) -> Samples:
        """Return at most `MOST_TRAIN` training rows and `MOST_HELD_OUT` held-out rows of a run, fewer of a wide table.

        Most rows of an ensemble with folds are training rows of some members and held-out rows of others. The held-out
        rows are then those of one fold, and the training rows are all others, so no row is in both.
        """
        data = prepared.data
        every = CheckedRows(
            model=model,
            x=data.x,
            codes=data.codes,
            y=data.y,
            weight=data.weight,
            judges=judges_of(prepared, model),
            numbers=prepared.origin,
        )
        held_out = prepared.validation if every.judges is None else prepared.folds[fold]
        train = prepared.train[~np.isin(prepared.train, held_out)]
        most = max(FEWEST_ROWS, MOST_VALUES // max(data.x.shape[1], 1))
        return Samples(
            train=replace(every, judges=None).take(spread(train, min(most, MOST_TRAIN))),
            held_out=every.take(spread(held_out, min(most, MOST_HELD_OUT))) if len(held_out) else None,
        )

    @staticmethod
    def of_source(model: TrainedModel, source: object) -> Samples:
        """Return rows of a table with the target. All of them count as training rows."""
        model.check_alike("a check on a table", networks=False)
        found = model.read(source, targets=True)[0]
        rows = CheckedRows(model=model, x=found.x, codes=found.codes, y=cast("np.ndarray", found.y), numbers=found.rows)
        return Samples(train=rows, held_out=None)


def spread(rows: Rows, most: int) -> Rows:
    """Return at most `most` rows at equal distances.

    >>> spread(np.arange(10), 4).tolist()
    [0, 3, 6, 9]
    """
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]
