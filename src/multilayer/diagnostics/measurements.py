"""All measurements of a run or a model: the networks, their initial state, skills, columns, labels and the history.

The initial state is computed again from the configuration of the run: the weights of a seed never change. It is unknown
for weights that were fitted to the data, and for a run that began with another model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core import random
from ..core.sparse import Sparse
from ..models.trained_model import Member, TrainedModel
from ..nn import losses
from ..nn.layers.base import Array
from ..nn.losses import Loss
from ..spec.initialization import initialise
from .columns import ColumnFacts, measure_columns
from .curvature import Sharpness, noise_scale, sharpness
from .history import History
from .labels import LabelFacts, measure_labels
from .networks import NetworkMeasurement, Update, measure_network
from .references import GOOD, Skills, has_middle, measure_skills
from .rows import CheckedRows, Samples

NETWORK_ROWS = 256
"""Rows of a forward and backward pass."""
FEWEST_STEPS = 100
"""After fewer steps, errors of the model say nothing about the labels."""
LEAKED = 0.8
"""A model of lower skill on training and on held-out rows has no column that predicts nearly perfectly."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Measurements:
    """Everything that the detectors read. None means that a part could not be measured."""

    members: tuple[NetworkMeasurement, ...]
    initial: NetworkMeasurement | None
    """The first member before training."""
    expected_loss: float
    """Loss of a network whose outputs are 0: log C for C classes, the variance for a standardized target.

    It is the scale of other losses, unless it is 0, as for the perceptron loss. NaN for a loss function of the user.
    """
    skills: Skills | None
    network_rows: int
    """Number of rows that the networks were measured on."""
    columns: ColumnFacts
    labels: LabelFacts | None
    history: History | None
    noise_scale: float | None = None
    """Gradient noise scale of the first member: up to about this batch size, larger batches save steps."""
    sharpness: Sharpness | None = None
    """Curvature of the training loss of the first member."""

    @staticmethod
    def of(
        model: TrainedModel,
        samples: Samples,
        history: History | None,
        *,
        fresh: bool = True,
        full: bool = True,
        curvature: bool = False,
        own_loss: bool = False,
    ) -> Measurements:
        """Measure a model.

        `fresh` is whether the run began with the initial weights of its configuration. Without `full`, only what the
        detectors need is measured, which takes a fraction of the time. `curvature` adds the sharpness. With `own_loss`,
        the run has a loss function of the user: what its predictions should be, and the size of its loss, are unknown.
        """
        train, held_out = samples.train, samples.held_out
        rows = train.at_most(NETWORK_ROWS)
        first = [
            _initial(one, history, i, len(model.members)) if fresh else None for i, one in enumerate(model.members)
        ]
        loss = losses.get(model.encoding.loss)
        judged = held_out is not None and len(held_out) > 0 and has_middle(model.encoding.loss) and not own_loss
        skills = measure_skills(train, held_out, full=full) if held_out is not None and judged else None
        long = history is None or history.steps >= FEWEST_STEPS
        may_have_noise = long and (skills is None or skills.held_out < GOOD)
        return Measurements(
            members=tuple(
                _measured(one, rows, one.tensors, start, full=full, update=_update(history))
                for one, start in zip(model.members, first, strict=True)
            ),
            initial=None
            if first[0] is None
            else _measured(model.members[0], rows, first[0], None, full=False, update=_update(history)),
            expected_loss=math.nan
            if own_loss
            else float(np.mean(loss.rows(np.zeros((len(train), model.spec.d_out)), train.y))),
            skills=skills,
            network_rows=len(rows),
            columns=measure_columns(
                train, alone=full or skills is None or max(skills.train, skills.held_out) >= LEAKED
            ),
            labels=measure_labels(train, held_out, full=full) if full or may_have_noise else None,
            history=history,
            noise_scale=_of_first(noise_scale, model, rows) if full else None,
            sharpness=_of_first(sharpness, model, rows) if curvature else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the measurements as JSON values."""
        return {
            "members": [one.to_dict() for one in self.members],
            "initial": None if self.initial is None else self.initial.to_dict(),
            "expected_loss": self.expected_loss,
            "network_rows": self.network_rows,
            "skills": None if self.skills is None else asdict(self.skills),
            "columns": asdict(self.columns),
            "labels": None if self.labels is None else asdict(self.labels),
            "history": None if self.history is None else dict(self.history.facts),
            "noise_scale": self.noise_scale,
            "sharpness": None if self.sharpness is None else asdict(self.sharpness),
        }


def _measured(
    member: Member,
    rows: CheckedRows,
    tensors: Any,
    initial: dict[str, Array] | None,
    *,
    full: bool,
    update: Update | None = None,
) -> NetworkMeasurement:
    x, codes, y, loss = _inputs(member, rows)
    return measure_network(member.spec, tensors, x, codes, y, loss, initial=initial, full=full, update=update)


def _inputs(member: Member, rows: CheckedRows) -> tuple[Array, NDArray[np.int64] | None, NDArray[Any], Loss]:
    x = rows.x[np.arange(len(rows))] if isinstance(rows.x, Sparse) else rows.x
    codes = rows.codes if member.spec.inputs.categories else None
    return np.asarray(x, np.float32), codes, rows.y, losses.get(member.encoding.loss)


def _of_first(measure: Callable[..., Any], model: TrainedModel, rows: CheckedRows) -> Any:
    first = model.members[0]
    return measure(first.spec, first.tensors, *_inputs(first, rows))


def _update(history: History | None) -> Update | None:
    rate = None if history is None else history.config.get("learning_rate")
    if history is None or rate is None:
        return None
    return Update(rate=rate, adaptive=history.adaptive)


def _initial(member: Member, history: History | None, place: int, members: int) -> dict[str, Array] | None:
    """Return the parameters and buffers of a member before training, if its configuration determines them."""
    if history is None or history.config.get("init", "data") == "data":
        return None
    seed = int(history.config["seed"])
    own = random.derive(seed, place) if members > 1 else seed
    return initialise(member.spec, history.config["init"], seed=own)
