"""A close look at one step: which layer stands behind a spike, and where a value first stopped being finite."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..engines import Engine, State
from ..errors import BatchError

Where = Literal["input", "target", "loss", "gradient", "parameter"]


@dataclass(frozen=True, kw_only=True)
class Bad:
    where: Where
    layer: str
    unit: int | None
    rows: list[int]


def blame(engine: Engine, rows: NDArray[np.int64], *, epoch: int) -> str:
    """The layer whose gradient is largest for its size, over the rows of a step."""
    gradients = engine.gradients(rows, epoch=epoch).gradients
    sizes = {name: float(np.sqrt(np.mean(np.square(g, dtype=np.float64)))) for name, g in gradients.items()}
    return max(sizes, key=lambda name: np.nan_to_num(sizes[name], nan=np.inf)).rpartition(".")[0]


def bad_parameter(state: State) -> Bad | None:
    """The first parameter that is not finite."""
    for name, value in state.parameters.items():
        if not np.isfinite(value).all():
            return Bad(where="parameter", layer=name.rpartition(".")[0], unit=_unit(value), rows=[])
    return None


def first_bad(engine: Engine, rows: NDArray[np.int64], *, epoch: int) -> Bad:
    """Where the first value of a step that is not finite is: parameters, then the rows' own, then what follows."""
    parameter = bad_parameter(engine.state())
    if parameter is not None:
        return replace(parameter, rows=rows.tolist())
    batch = engine.data.take(rows, epoch=epoch)  # as the step saw them
    own: tuple[tuple[Where, NDArray[Any]], ...] = (("input", batch.x), ("target", batch.y))
    for where, values in own:
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            bad = ~np.isfinite(values.reshape(len(rows), -1))
            column = int(np.argwhere(bad)[0][1])
            return Bad(where=where, layer=f"column {column}", unit=column, rows=rows[bad.any(1)].tolist())
    step = engine.gradients(rows, epoch=epoch)
    loss, gradients = step.loss, step.gradients
    guilty = [int(row) for row in rows if not np.isfinite(_loss_alone(engine, row, epoch))]
    if not np.isfinite(loss):
        return Bad(where="loss", layer=list(gradients)[-1].rpartition(".")[0], unit=None, rows=guilty or rows.tolist())
    # A gradient goes backward: the last layer with a bad one is where it arose.
    for name, g in reversed(list(gradients.items())):
        if not np.isfinite(g).all():
            return Bad(where="gradient", layer=name.rpartition(".")[0], unit=_unit(g), rows=guilty or rows.tolist())
    return Bad(where="gradient", layer="all layers together", unit=None, rows=guilty or rows.tolist())


def _loss_alone(engine: Engine, row: int, epoch: int) -> float:
    try:
        return engine.gradients(np.array([row]), epoch=epoch).loss
    except BatchError:  # statistics of one row say nothing
        return 0.0


def _unit(values: NDArray[np.floating]) -> int | None:
    bad = np.argwhere(~np.isfinite(np.atleast_1d(values)))
    return int(bad[0][0]) if len(bad) else None
