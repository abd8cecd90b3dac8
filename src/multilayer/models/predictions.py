"""Predictions as an Arrow table, for files and programs. Predictions as arrays are methods of `TrainedModel`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ..data import Encoded
from .trained_model import TrainedModel


def prediction_table(model: TrainedModel, rows: Encoded, *, probabilities: bool = False) -> Any:
    """Return a table with a column per target. With `probabilities`, a column per class is added."""
    task, z = model.encoding.task, model.forward(rows)
    values = model.encoding.decode(z)
    flat = values.reshape(len(values), -1)
    each = flat.shape[1] // len(task.names)
    names = list(task.names) if each == 1 else [f"{name} {i + 1}" for name in task.names for i in range(each)]
    columns: dict[str, Any] = {name: flat[:, i].tolist() for i, name in enumerate(names)}
    if probabilities:
        several = task.kind == "multilabel"
        heads = [f"p({n})" for n in task.names] if several else [f"{task.names[0]}={c}" for c in task.classes[0]]
        p = model.encoding.probabilities(z)
        columns |= {head: p[:, i] for i, head in enumerate(heads)}
    return pa.table(columns)
