"""What a model makes of rows that are numbers already: in compiled code, and by the right members of an ensemble.

`judges` (N, members) says whose word counts for a row: members of an ensemble hold out different rows, and a row that
was trained on is judged only by those that never saw it. Their outputs are put together first and the temperature comes
after, as training does where it measures itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import losses
from ..calibration import combined
from ..data import Encoded
from ..engine import Data, Settings
from ..engine.fused_engine import FusedEngine
from ..engine.fused_program import why_not
from ..engine.state import State
from ..optim import get as get_optimizer
from ..predictor import Predictor

Array = NDArray[Any]
Codes = NDArray[np.int64] | None
Judges = NDArray[np.bool_] | None


def outputs(model: Predictor, x: Array, codes: Codes, y: Array, judges: Judges = None) -> NDArray[np.float64]:
    """Raw outputs z (N, d_out); y is only looked at, not used."""
    loss = losses.get(model.encoding.loss)
    if judges is None:
        z = [_member(model, i, x, codes, y) for i in range(model.members)]
        return z[0] if len(z) == 1 and model.calibration is None else combined(loss, z, model.calibration)
    found = np.empty((len(x), model.spec.d_out))
    patterns, which = np.unique(judges, axis=0, return_inverse=True)
    for p, pattern in enumerate(patterns):
        mine = np.flatnonzero(which.reshape(-1) == p)
        part = x[mine], None if codes is None else codes[mine], y[mine]
        asked = np.flatnonzero(pattern) if pattern.any() else range(model.members)
        found[mine] = combined(
            loss, [combined(loss, [_member(model, int(i), *part) for i in asked])], model.calibration
        )
    return found


def _member(model: Predictor, i: int, x: Array, codes: Codes, y: Array) -> NDArray[np.float64]:
    tensors = model.member(i)
    dtype = next(iter(tensors.values())).dtype if tensors else np.dtype(np.float32)
    if why_not(model.spec) is not None or dtype != np.float32 or not len(x):
        rows = Encoded(x=x, codes=codes, y=None, rows=np.arange(len(x)), notes=())
        return model._member(i, rows).astype(np.float64)
    settings = Settings(loss=model.encoding.loss, optimizer="sgd")
    engine = FusedEngine(model.spec, Data(x=x, codes=codes, y=y), settings, init="zeros")
    engine.load(State.first(model.spec, tensors, get_optimizer("sgd"), averaged=False))
    return engine.outputs(np.arange(len(x), dtype=np.int64)).astype(np.float64)
