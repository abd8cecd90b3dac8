"""The rows that a model is evaluated on, with its outputs: rows held out of training, or other rows with a target.

`x`, `codes` and `y` are what the network reads; `table` has the same rows with the user's own values. If a run held out
no rows, its training rows are used, and the report says so.

In an ensemble, members may hold out different rows. `judges` (N, members) says which members did not train on a row.
Only their outputs are averaged for this row; the temperature is applied after the average, as in training.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from ...core.sparse import Sparse, rows_of
from ...data import Encoded, Table, TrainingData, is_loader, read
from ...data.table import Rows
from ...data.training_data import is_separate
from ...models.metrics import truth_and_given
from ...models.trained_model import TrainedModel
from ...nn import losses
from ...nn.calibration import combined

Array = NDArray[Any]
Floats = NDArray[np.float64]
Codes = NDArray[np.int64] | None
Judges = NDArray[np.bool_] | None
Origin = Literal["held out", "trained on", "given"]

TRAINING_ROWS = 2000
"""Training rows that are evaluated for comparison."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """Rows with a target. `numbers` are their positions in the source, from 0."""

    model: TrainedModel
    x: Array | Sparse
    codes: Codes
    y: Array
    numbers: Rows
    table: Table | None
    origin: Origin
    weight: Array | None = None
    judges: Judges = None
    """Members of an ensemble that did not train on a row (N, members). None means all members."""

    def __len__(self) -> int:
        return len(self.x)

    @property
    def task(self) -> Any:
        return self.model.encoding.task

    @property
    def loss(self) -> str:
        return self.model.encoding.loss

    @cached_property
    def z(self) -> Floats:
        """Raw outputs (N, d_out)."""
        return outputs(self.model, self.x, self.codes, self.judges)

    @cached_property
    def sides(self) -> tuple[Array, Array]:
        """Truth and prediction, as metrics compare them."""
        return truth_and_given(self.task, self.y, self.z, self.loss)

    @cached_property
    def weights(self) -> Floats:
        return np.ones(len(self)) if self.weight is None else np.asarray(self.weight, dtype=np.float64)

    @cached_property
    def row_losses(self) -> Floats:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(losses.get(self.loss).rows(self.z, self.y), dtype=np.float64)

    def take(self, places: Rows) -> Sample:
        return replace(
            self,
            x=rows_of(self.x, places),
            codes=None if self.codes is None else self.codes[places],
            y=self.y[places],
            weight=None if self.weight is None else self.weight[places],
            numbers=self.numbers[places],
            table=None if self.table is None else taken(self.table, places),
            judges=None if self.judges is None else self.judges[places],
        )


def taken(table: Table, places: Rows) -> Table:
    """Return rows of a table, without their positions in its source."""
    return replace(table.take(places), origin=None)


def of_prepared(
    model: TrainedModel, prepared: TrainingData, source: Any, validation: Any = None
) -> tuple[Sample, Sample, Table | None]:
    """Return the rows to evaluate on, some training rows, and the whole table.

    `validation` is as in `DataOptions`.
    """
    loader, apart = is_loader(source), len(prepared.validation) > 0
    table = None if loader else read(source)
    judged = table
    if is_separate(validation) and apart and not loader:
        judged = model.encoding.read(validation, targets=True)
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
    if apart:
        own = replace(every, origin="held out", judges=_judges(prepared, len(model.members)))
        held = _with_table(own.take(prepared.validation), judged)
    else:
        held = _with_table(every.take(prepared.train), judged)
    if loader and apart:  # the rows of a validation loader are numbered after those of training
        held = replace(held, numbers=held.numbers - len(prepared.train))
    return held, _with_table(every.take(train), table), table


def _with_table(sample: Sample, table: Table | None) -> Sample:
    return replace(sample, table=None if table is None else taken(table, sample.numbers))


def _judges(prepared: TrainingData, members: int) -> Judges:
    """Return which member holds out which row (rows, members). Member i holds out fold i modulo the number of folds."""
    if not prepared.folds or members == 1:
        return None
    found = np.zeros((len(prepared.data), members), dtype=np.bool_)
    for i in range(members):
        found[prepared.folds[i % len(prepared.folds)], i] = True
    return found


def of_source(model: TrainedModel, source: Any) -> tuple[Sample, Table]:
    """Return a sample of any rows that have their target, and their table."""
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


def outputs(model: TrainedModel, x: Array | Sparse, codes: Codes, judges: Judges = None) -> Floats:
    """Return raw outputs z (N, d_out) of encoded rows. A row without judges uses all members."""
    if judges is None:
        return model.forward(_encoded(x, codes)).astype(np.float64)
    loss, found = losses.get(model.encoding.loss), np.empty((len(x), model.spec.d_out))
    patterns, which = np.unique(judges, axis=0, return_inverse=True)
    for p, pattern in enumerate(patterns):
        mine = np.flatnonzero(which.reshape(-1) == p)
        part = _encoded(rows_of(x, mine), None if codes is None else codes[mine])
        asked = np.flatnonzero(pattern) if pattern.any() else range(len(model.members))
        members = [model.members[i] for i in asked]
        weights = None if model.weights is None else [one.weight for one in members]
        together = combined(loss, [one.outputs(part) for one in members], weights=weights)
        found[mine] = combined(loss, [together], model.calibration and model.calibration.for_out_of_fold)
    return found


def _encoded(x: Array | Sparse, codes: Codes) -> Encoded:
    return Encoded(x=x, codes=codes, y=None, rows=np.arange(len(x)), notes=())
