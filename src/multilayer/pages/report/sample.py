"""The rows a model is judged by, with their own values: those held out of training, or others that have their target.

`x`, `codes` and `y` are what the network reads, `table` is the rows as the user knows them, in the same order. Where a
run held none out its training rows are judged, and the report says so.
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
from .outputs import Judges, outputs

Array = NDArray[Any]
Floats = NDArray[np.float64]
Origin = Literal["held out", "trained on", "given"]

TRAINING_ROWS = 2000
"""Training rows that are looked at beside the others, to see how far apart both are."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """`numbers` are the rows' places in their source, from 0."""

    model: TrainedModel
    x: Array | Sparse
    codes: NDArray[np.int64] | None
    y: Array
    weight: Floats | None
    numbers: Rows
    table: Table | None
    origin: Origin
    judges: Judges = None
    """Members of an ensemble that did not train on a row (N, members); all of them count where this is None."""

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
        """The truth and what was predicted, as metrics compare them."""
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
    """Rows of a table, for their values alone."""
    return replace(table.take(places), origin=None)


def of_prepared(
    model: TrainedModel, prepared: TrainingData, source: Any, validation: Any = None
) -> tuple[Sample, Sample, Table | None]:
    """The rows to judge by, some training rows, and the whole table.

    `validation` is as in `DataOptions`.
    """
    loader = is_loader(source)
    table = None if loader else read(source)
    judged, apart = table, len(prepared.validation) > 0
    if is_separate(validation) and apart and not loader:
        judged = model.encoding.read(validation, targets=True)
    held, origin = (prepared.validation, "held out") if apart else (prepared.train, "trained on")
    train = prepared.train
    if len(train) > TRAINING_ROWS:
        train = train[np.linspace(0, len(train) - 1, TRAINING_ROWS).astype(np.int64)]
    judges = _judges(prepared, len(model.members))
    rows = _part(model, prepared, held, judged, cast(Origin, origin))
    return (
        replace(
            rows,
            judges=None if judges is None or not apart else judges[held],
            # Rows of a loader are numbered on from those of training.
            numbers=rows.numbers - len(prepared.train) * (loader and apart),
        ),
        _part(model, prepared, train, table, "trained on"),
        table,
    )


def _judges(prepared: TrainingData, members: int) -> Judges:
    """Which member holds out which row (rows, members): member i the i-th part, and so on in turn."""
    if not prepared.folds or members == 1:
        return None
    found = np.zeros((len(prepared.data), members), dtype=np.bool_)
    for i in range(members):
        found[prepared.folds[i % len(prepared.folds)], i] = True
    return found


def of_source(model: TrainedModel, source: Any) -> tuple[Sample, Table]:
    """Any rows that have their target."""
    encoding = model.encoding
    table = encoding.read(source, targets=True)
    found: Encoded = encoding.encode(table, targets=True)
    sample = Sample(
        model=model,
        x=found.x,
        codes=found.codes,
        y=cast(Any, found.y),
        weight=None,
        numbers=found.rows,
        table=taken(table, found.rows),
        origin="given",
    )
    return sample, table


def _part(model: TrainedModel, prepared: TrainingData, rows: Rows, table: Table | None, origin: Origin) -> Sample:
    data = prepared.data
    weight = None if data.weight is None else data.weight[rows]
    numbers = prepared.origin[rows]
    return Sample(
        model=model,
        x=rows_of(data.x, rows),
        codes=None if data.codes is None else data.codes[rows],
        y=data.y[rows],
        weight=None if weight is None else np.asarray(weight, dtype=np.float64),
        numbers=numbers,
        table=None if table is None else taken(table, numbers),
        origin=origin,
    )
