"""A summary of the data: the content of each column, and the rows with the largest loss.

    column   its type and encoding, the numbers of missing and of distinct values; the range, the median and a histogram
             for numbers, the most frequent values for other types
    row      its position in the source, its values, the target and the prediction

Values are those of the source, before any scaling. For wide tables, only the most important columns are included.
Images are stored as pixels.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ...core.formatting import cut
from ...data import Table, targets
from ...data import columns as C
from ...data.encoding import Encoding
from ...data.table import pc, to_numpy, where
from .quality import histogram, labels_of, number
from .sample import Sample, taken

MOST_COLUMNS = 60
"""Largest number of columns of a table that are included."""
MOST_VALUES = 8
"""Number of values that are listed for a column, the most frequent first."""
LONGEST = 120
"""Largest number of characters of a value. Longer values are cut."""
BINS = 16
WORST = 12
"""Number of rows with the largest loss that are listed."""
WORST_COLUMNS = 8
"""Largest number of columns that are listed for each of these rows."""


def summary(table: Table, encoding: Encoding, first: Sequence[str]) -> dict[str, Any]:
    """Return a summary of at most `MOST_COLUMNS` columns of a table, preferably those in `first`."""
    kinds = {column.name: column for column in encoding.columns}
    names = [name for name in table.names if name in kinds or name in encoding.task.names]
    inputs = [name for name in names if name in kinds]
    if len(inputs) > MOST_COLUMNS:
        known = {name: None for name in first if name in kinds}
        inputs = [*known, *(name for name in inputs if name not in known)][:MOST_COLUMNS]
    if encoding.image is not None:
        inputs = []
    target_columns = [name for name in encoding.task.names if name in table.names]
    return {
        "rows": len(table),
        "columns": len(kinds),
        "shown": [_column(table, name, kinds[name].kind) for name in inputs],
        "targets": [_column(table, name, "target") for name in target_columns],
        "image": None if encoding.image is None else list(encoding.image),
        "mean_image": None if encoding.image is None or table.matrix is None else _mean_image(table, encoding),
    }


def _column(table: Table, name: str, kind: str) -> dict[str, Any]:
    column = C.plain(table.column(name))
    family = C.family_of(column, where(table, name))
    missing = C.missing(column)
    found: dict[str, Any] = {
        "name": name,
        "family": C.FAMILY_NAMES[family],
        "kind": kind,
        "missing": int(missing.sum()),
        "distinct": len(pc.unique(column.drop_null())),
    }
    if family == "number":
        values = C.floats(column)
        known = values[np.isfinite(values)]
        if len(known):
            found["range"] = [number(v) for v in (known.min(), np.median(known), known.max())]
            found["histogram"] = histogram(known, bins=_bins(known))
    if family in ("date", "datetime", "time") and len(column) > int(missing.sum()):
        ends = pc.min_max(column).as_py()
        found["range"] = [cell(ends["min"]), None, cell(ends["max"])]
    if family in ("text", "boolean") or (kind in ("target", "categorical") and found["distinct"] <= C.FEW_VALUES):
        found["frequent"] = _frequent(column)
    return found


def _bins(values: Any) -> Any:
    """Return the bins of a histogram. A small range of integers has a bin for each integer."""
    low, high = values.min(), values.max()
    small_range = high - low < BINS and (values == np.floor(values)).all()
    return np.arange(low - 0.5, high + 1) if small_range else BINS


def _frequent(column: Any) -> list[list[Any]]:
    counted = pc.value_counts(column.drop_null())
    pairs = sorted(((one["counts"], cell(one["values"])) for one in counted.to_pylist()), key=lambda pair: -pair[0])
    return [[value, int(count)] for count, value in pairs[:MOST_VALUES]]


def _mean_image(table: Table, encoding: Encoding) -> list[float]:
    assert table.matrix is not None
    order = [table.places[column.name] for column in encoding.columns]
    return [round(float(v), 3) for v in table.matrix[:, order].mean(0, dtype=np.float64)]


def cell(value: Any) -> str | float | bool | None:
    """Convert a value for JSON: numbers are unchanged, dates are in ISO format, and other values become strings.

    >>> cell(datetime.date(2024, 5, 1)), cell(1.5), cell(None), cell(float("nan"))
    ('2024-05-01', 1.5, None, None)
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return number(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return cut(value, LONGEST)


# The worst rows


def worst(sample: Sample, first: Sequence[str]) -> dict[str, Any]:
    """Return the rows with the largest loss, in decreasing order, with values of the most important columns."""
    losses = np.where(np.isnan(sample.row_losses), np.inf, sample.row_losses)
    places = np.argsort(-losses, kind="stable")[:WORST]
    encoding = sample.model.encoding
    used = {column.name: None for column in encoding.columns if column.kind != "drop"}
    order = {name: None for name in first if name in used}
    names = [*order, *(name for name in used if name not in order)][:WORST_COLUMNS]
    rows = None if sample.table is None else taken(sample.table, places)
    cells = {} if rows is None or encoding.image is not None else {name: _cells(rows, name) for name in names}
    pixels = None if rows is None or encoding.image is None or rows.matrix is None else rows.matrix
    places_of = [] if rows is None or pixels is None else [rows.places[column.name] for column in encoding.columns]
    found: list[dict[str, Any]] = []
    for i, place in enumerate(places):
        entry: dict[str, Any] = {
            "row": int(sample.numbers[place]) + 1,
            "loss": number(float(sample.row_losses[place])),
            "values": [cells[name][i] for name in cells],
            **_answer(sample, int(place)),
        }
        if pixels is not None:
            entry["pixels"] = [round(float(v), 3) for v in pixels[i, places_of]]
        found.append(entry)
    return {"columns": list(cells), "rows": found, "image": list(encoding.image or ()) if pixels is not None else None}


def _cells(table: Table, name: str) -> list[Any]:
    if name not in table.names:
        return [None] * len(table)
    column = C.plain(table.column(name))
    if pa.types.is_duration(column.type):
        return [number(float(v)) for v in to_numpy(column.cast(pa.int64()))]
    return [cell(value) for value in column.to_pylist()]


def _answer(sample: Sample, place: int) -> dict[str, Any]:
    """Return the target and the prediction of a row as strings, and its error or probabilities."""
    truth, predicted = (side[place] for side in sample.sides)
    task = sample.task
    if task.kind == "multilabel":
        wrong = [str(name) for i, name in enumerate(task.names) if (predicted[i] > 0.5) != (truth[i] > 0.5)]
        yes = [str(name) for i, name in enumerate(task.names) if truth[i] > 0.5]
        return {"truth": ", ".join(yes) or "none", "predicted": f"wrong: {', '.join(wrong)}" if wrong else "correct"}
    if task.classifies:
        labels, best = labels_of(task), int(predicted.argmax())
        shares = {"sure": number(float(predicted[best])), "of_truth": number(float(predicted[truth]))}
        return {"truth": labels[int(truth)], "predicted": labels[best], **shares}
    decoded = np.asarray(targets.decode(task, sample.z[place : place + 1], sample.loss)).reshape(-1)
    answer = predicted if decoded.size == len(predicted) else decoded
    return {
        "truth": "; ".join(f"{v:.6g}" for v in truth),
        "predicted": "; ".join(f"{v:.6g}" for v in answer),
        "error": number(float(predicted[0] - truth[0])) if len(truth) == 1 else None,
    }
