"""Inspection of a failed step: the layer that caused a spike, and the first value that was not finite."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..engines import Engine, State
from ..errors import BatchError
from ..runs.events import NonFinite


def largest_gradient_layer(engine: Engine, rows: NDArray[np.int64], *, epoch: int) -> str:
    """Return the layer with the largest root mean square of a gradient in a step on these rows."""
    gradients = engine.gradients(rows, epoch=epoch).gradients
    sizes = {name: float(np.sqrt(np.mean(np.square(g, dtype=np.float64)))) for name, g in gradients.items()}
    return max(sizes, key=lambda name: np.nan_to_num(sizes[name], nan=np.inf)).rpartition(".")[0]


def bad_parameter(state: State) -> NonFinite | None:
    """Return the event for the first parameter that is not finite, if there is one."""
    for name, value in state.parameters.items():
        if not np.isfinite(value).all():
            return NonFinite(
                step=state.step, where="parameter", layer=name.rpartition(".")[0], unit=_unit(value), rows=[]
            )
    return None


def first_bad(engine: Engine, rows: NDArray[np.int64], *, epoch: int, step: int) -> NonFinite:
    """Return the event for the first value of a step that is not finite.

    The order is: parameters, inputs, targets, loss, gradients.
    """
    parameter = bad_parameter(engine.state())
    if parameter is not None:
        return replace(parameter, step=step, rows=rows.tolist())
    batch = engine.data.take(rows, epoch=epoch)  # with the augmentation of this step
    for where, values in {"input": batch.x, "target": batch.y}.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            bad = ~np.isfinite(values.reshape(len(rows), -1))
            column = int(np.argwhere(bad)[0][1])
            bad_rows = rows[bad.any(1)].tolist()
            return NonFinite(step=step, where=cast(Any, where), layer=f"column {column}", unit=column, rows=bad_rows)
    taken = engine.gradients(rows, epoch=epoch)
    bad_rows = [int(row) for row in rows if not np.isfinite(_loss_alone(engine, row, epoch))] or rows.tolist()
    # Gradients are computed from the last layer to the first, so the value arose in the last layer that has one.
    names = [name for name, g in taken.gradients.items() if not np.isfinite(g).all()]
    if not np.isfinite(taken.loss):
        where, layer, unit = "loss", list(taken.gradients)[-1].rpartition(".")[0], None
    elif names:
        where, layer, unit = "gradient", names[-1].rpartition(".")[0], _unit(taken.gradients[names[-1]])
    else:
        where, layer, unit = "gradient", "all layers together", None
    return NonFinite(step=step, where=where, layer=layer, unit=unit, rows=bad_rows)


def _loss_alone(engine: Engine, row: int, epoch: int) -> float:
    try:
        return engine.gradients(np.array([row]), epoch=epoch).loss
    except BatchError:  # batch normalization cannot use a single row
        return 0.0


def _unit(values: NDArray[np.floating]) -> int | None:
    bad = np.argwhere(~np.isfinite(np.atleast_1d(values)))
    return int(bad[0][0]) if len(bad) else None
