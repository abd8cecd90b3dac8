"""What a model makes of rows that are numbers already, by the right members of an ensemble.

`judges` (N, members) says whose word counts for a row: members of an ensemble hold out different rows, and a row that
was trained on is judged only by those that never saw it. Their outputs are put together first and the temperature comes
after, as training does where it measures itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.sparse import Sparse, rows_of
from ...data import Encoded
from ...models.trained_model import TrainedModel
from ...nn import losses
from ...nn.calibration import combined

Array = NDArray[Any]
Codes = NDArray[np.int64] | None
Judges = NDArray[np.bool_] | None


def outputs(model: TrainedModel, x: Array | Sparse, codes: Codes, judges: Judges = None) -> NDArray[np.float64]:
    """Raw outputs z (N, d_out)."""
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
        found[mine] = combined(loss, [together], model.calibration and model.calibration.of_judges)
    return found


def _encoded(x: Array | Sparse, codes: Codes) -> Encoded:
    return Encoded(x=x, codes=codes, y=None, rows=np.arange(len(x)), notes=())
