"""Encoded rows with a target on which a model is evaluated, and the outputs of the model for them.

In an ensemble, members may hold out different rows. `judges` (N, members) says which members did not train on a row.
Only their outputs are averaged for this row. The temperature is applied after the average, as in training.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from ..core import random
from ..core.sparse import Sparse, rows_of
from ..data import Encoded, TrainingData
from ..data.table import Rows
from ..nn import losses
from ..nn.calibration import combined
from .metrics import truth_and_given

if TYPE_CHECKING:
    from .trained_model import TrainedModel

Array = NDArray[Any]
Floats = NDArray[np.float64]
Codes = NDArray[np.int64] | None
Judges = NDArray[np.bool_] | None


@dataclass(frozen=True, kw_only=True, eq=False)
class EvaluationRows:
    """Rows as the network reads them: numbers `x`, category codes `codes` and targets `y`."""

    model: TrainedModel
    x: Array | Sparse
    codes: Codes
    y: Array
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

    def take(self, places: Rows) -> Self:
        """Return the rows at these positions."""
        return replace(
            self,
            x=rows_of(self.x, places),
            codes=None if self.codes is None else self.codes[places],
            y=self.y[places],
            weight=None if self.weight is None else self.weight[places],
            judges=None if self.judges is None else self.judges[places],
        )

    def at_most(self, rows: int) -> Self:
        """Return all rows, or a random selection of this many rows that is always the same."""
        if rows >= len(self):
            return self
        return self.take(np.sort(random.permutation(len(self), seed=0, epoch=1)[:rows]))


def held_out_rows(model: TrainedModel, prepared: TrainingData, *, most: int) -> EvaluationRows | None:
    """Return at most `most` of the rows that training held out, or None if it held out no rows."""
    if not len(prepared.validation):
        return None
    data = prepared.data
    every = EvaluationRows(
        model=model, x=data.x, codes=data.codes, y=data.y, weight=data.weight, judges=judges_of(prepared, model)
    )
    held = prepared.validation
    chosen = held if most >= len(held) else held[np.sort(random.permutation(len(held), seed=0, epoch=1)[:most])]
    return every.take(chosen)


def given_rows(model: TrainedModel, source: Any) -> EvaluationRows:
    """Encode rows that have a target."""
    model.check_alike("an evaluation of single rows", networks=False)
    found = model.read(source, targets=True)[0]
    return EvaluationRows(model=model, x=found.x, codes=found.codes, y=cast(Any, found.y))


def judges_of(prepared: TrainingData, model: TrainedModel) -> Judges:
    """Return which member holds out which row (rows, members). Member i holds out fold i modulo the number of folds."""
    members = len(model.members)
    if not prepared.folds or members == 1:
        return None
    found = np.zeros((len(prepared.data), members), dtype=np.bool_)
    for i in range(members):
        found[prepared.folds[i % len(prepared.folds)], i] = True
    return found


def outputs(model: TrainedModel, x: Array | Sparse, codes: Codes, judges: Judges = None) -> Floats:
    """Return raw outputs z (N, d_out) of encoded rows. A row without judges uses all members."""
    if judges is None:
        return model.forward(_encoded(x, codes)).astype(np.float64)
    loss, found = losses.get(model.encoding.loss), np.empty((len(x), model.spec.d_out))
    patterns, which = np.unique(judges, axis=0, return_inverse=True)
    for p, pattern in enumerate(patterns):
        places = np.flatnonzero(which.reshape(-1) == p)
        part = _encoded(rows_of(x, places), None if codes is None else codes[places])
        chosen = np.flatnonzero(pattern) if pattern.any() else range(len(model.members))
        members = [model.members[i] for i in chosen]
        weights = None if model.weights is None else [one.weight for one in members]
        together = combined(loss, [one.outputs(part) for one in members], weights=weights)
        found[places] = combined(loss, [together], model.calibration and model.calibration.for_out_of_fold)
    return found


def _encoded(x: Array | Sparse, codes: Codes) -> Encoded:
    return Encoded(x=x, codes=codes, y=None, rows=np.arange(len(x)), notes=())
