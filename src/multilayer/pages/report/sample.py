"""The rows that a model is evaluated on, with its outputs: held-out rows, or other rows with a target.

`table` has the original values of the same rows. If a run has no held-out rows, its training rows are used, and the
report contains a warning.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import numpy as np

from ...data import Table, TrainingData, is_loader, read
from ...data.options import is_separate
from ...data.table import Rows
from ...models.evaluation_rows import EvaluationRows, judges_of
from ...models.trained_model import TrainedModel

Origin = Literal["held out", "trained on", "given"]

TRAINING_ROWS = 2000
"""Training rows that are evaluated for comparison."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample(EvaluationRows):
    """Rows with a target, and their original values. `numbers` are their positions in the source, from 0."""

    numbers: Rows
    table: Table | None
    origin: Origin

    def take(self, places: Rows) -> Sample:
        return replace(
            super().take(places),
            numbers=self.numbers[places],
            table=None if self.table is None else taken(self.table, places),
        )


def taken(table: Table, places: Rows) -> Table:
    """Return rows of a table, without their positions in its source."""
    return replace(table.take(places), origin=None)


def of_prepared(
    model: TrainedModel, prepared: TrainingData, source: Any, validation: Any = None
) -> tuple[Sample, Sample, Table | None]:
    """Return the rows to evaluate on, some training rows, and the whole table.

    `validation` is as in `DataOptions.validation`.
    """
    loader, has_held_out = is_loader(source), len(prepared.validation) > 0
    table = None if loader else read(source)
    sample_table = table
    if is_separate(validation) and has_held_out and not loader:
        sample_table = model.encoding.read(validation, targets=True)
    data = prepared.data
    every = Sample(
        model=model,
        x=data.x,
        codes=data.codes,
        y=data.y,
        weight=data.weight,
        numbers=prepared.origin,
        table=None,
        origin="trained on",
    )
    train = prepared.train
    if len(train) > TRAINING_ROWS:
        train = train[np.linspace(0, len(train) - 1, TRAINING_ROWS).astype(np.int64)]
    if has_held_out:
        unseen = replace(every, origin="held out", judges=judges_of(prepared, model))
        sample = _with_table(unseen.take(prepared.validation), sample_table)
    else:
        sample = _with_table(every.take(prepared.train), sample_table)
    if loader and has_held_out:  # rows of a validation loader are numbered after the training rows
        sample = replace(sample, numbers=sample.numbers - len(prepared.train))
    return sample, _with_table(every.take(train), table), table


def _with_table(sample: Sample, table: Table | None) -> Sample:
    return replace(sample, table=None if table is None else taken(table, sample.numbers))


def of_source(model: TrainedModel, source: Any) -> tuple[Sample, Table]:
    """Read and encode rows with a target. Return them as a sample, and their table."""
    model.check_alike("a report", networks=False)
    table = model.encoding.read(source, targets=True)
    found = model.encoding.encode(table, targets=True)
    sample = Sample(
        model=model,
        x=found.x,
        codes=found.codes,
        y=cast(Any, found.y),
        numbers=found.rows,
        table=taken(table, found.rows),
        origin="given",
    )
    return sample, table
