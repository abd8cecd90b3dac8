"""The columns of a table as inputs of an ONNX model, and the encoding as its first operators.

| column | input | missing value |
|---|---|---|
| number, duration | float64, durations in seconds | NaN |
| boolean | float64, 1 or 0 | NaN |
| date, datetime | float64, seconds since 1970-01-01 (UTC, if there is a time zone) | NaN |
| time of day | float64, seconds since midnight | NaN |
| text | string | an empty string, or a string that did not occur in training |

Inputs are float64 and scaled as float64, as in the data package: float32 would round dates to multiples of 128 seconds.
Each column is an input (rows,). A model of an array or of images has one input, `x` (rows, columns). Columns that
training dropped are not inputs, but they are part of `x`.

Each preprocessing step (`data.preprocessing`) has a writer, in `COLUMN_WRITERS` or `NUMBER_WRITERS`.

Not included: an error for numbers that are not finite or beyond float32, which a graph cannot express.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...data import Encoding
from ...data.columns import Column
from ...data.preprocessing import (
    DAY,
    FAR,
    HOUR,
    THURSDAY,
    YEAR,
    Codes,
    DateParts,
    FillMissing,
    NumberStep,
    SmoothClip,
    Standardise,
    Step,
    Unlearned,
)
from ...data.table import to_numpy
from ...errors import DataError, warn
from ..protocol import is_array
from .graph import ROWS, Graph, Port
from .layers import Rows

ARRAY = "x"
"""Name of the input of a model that was trained on an array."""
WHOLE = 2**53
"""Largest integer up to which float64 represents every integer."""

UNSEEN = "a string that did not occur in training"
_SINCE = "seconds since 1970-01-01"
_DESCRIPTIONS = {"date": _SINCE, "datetime": _SINCE, "time": "seconds since midnight"}


def ports(encoding: Encoding) -> list[Port]:
    """Return the inputs of the model."""
    if is_array(encoding):
        names = ", ".join(column.name for column in encoding.columns[:20])
        description = f"{len(encoding.columns)} columns as in training, NaN for missing values: {names}"
        return [Port(name=ARRAY, dtype=np.float64, shape=(ROWS, len(encoding.columns)), description=description)]
    return [_port(column, encoding) for column in encoding.columns if column.kind != "drop"]


def write(g: Graph, encoding: Encoding) -> Rows:
    """Write the encoding and return the encoded rows, as `Encoding.transform` does."""
    g.place = "encoding/"
    if is_array(encoding):
        kept = np.array([i for i, column in enumerate(encoding.columns) if column.parts])
        return Rows(_numbers(g, encoding, g.op("Gather", ARRAY, kept, axis=1)), ())
    parts = [part for column in encoding.numeric for part in _column(g, encoding, column)]
    numbers = _numbers(g, encoding, _stacked(g, parts)) if parts else None
    return Rows(numbers, tuple(code for column in encoding.categorical for code in _column(g, encoding, column)))


def warn_of_empty_strings(encoding: Encoding) -> None:
    """Warn if an empty string cannot be used for missing values."""
    names = [
        repr(column.name) for column in encoding.columns if _is_text(column, encoding) and _had_empty(column, encoding)
    ]
    if names:
        warn(
            f"column{'s' * (len(names) > 1)} {', '.join(names)}: an empty string was a category in training, so it is "
            f"not a missing value in ONNX: pass {UNSEEN} for missing values, or train without empty strings"
        )


def _had_empty(column: Column, encoding: Encoding) -> bool:
    return "" in encoding.vocabularies[column.name].to_pylist()


def _port(column: Column, encoding: Encoding) -> Port:
    if _is_text(column, encoding):
        missing = UNSEEN if _had_empty(column, encoding) else "an empty string"
        return Port(
            name=column.name, dtype=np.object_, shape=(ROWS,), description=f"text, {missing} for missing values"
        )
    description = _DESCRIPTIONS.get(column.kind, "1 for true, 0 for false" if column.family == "boolean" else "numbers")
    return Port(name=column.name, dtype=np.float64, shape=(ROWS,), description=f"{description}, NaN for missing values")


def _is_text(column: Column, encoding: Encoding) -> bool:
    return column.kind == "categorical" and pa.types.is_large_string(encoding.vocabularies[column.name].type)


def _numbers(g: Graph, encoding: Encoding, values: str) -> str:
    """Fill missing values, scale, and append indicators of missing values.   (B, V) → (B, F) in float32"""
    missing = g.op("IsNaN", values)
    for step in encoding.number_steps:
        values = NUMBER_WRITERS[type(step)](g, step, values, missing)
    x = g.cast(values, np.float32)
    firsts = np.cumsum([0, *(len(column.parts) for column in encoding.numeric)])
    indicated = np.array([first for first, c in zip(firsts, encoding.numeric, strict=False) if c.indicator], np.int64)
    if not len(indicated):
        return x
    return g.op("Concat", x, g.cast(g.op("Gather", missing, indicated, axis=1), np.float32), axis=1)


def _stacked(g: Graph, parts: list[str]) -> str:
    """Stack V columns (B,) → (B, V), with three operators for any number of columns."""
    flat = g.op("Concat", *parts, axis=0)
    return g.op("Transpose", g.op("Reshape", flat, np.array([len(parts), -1])), perm=[1, 0])


def _fill_missing(g: Graph, step: FillMissing, values: str, missing: str) -> str:
    return g.op("Where", missing, step.fill, values)


def _standardise(g: Graph, step: Standardise, values: str, missing: str) -> str:
    return g.op("Div", g.op("Sub", values, step.center), step.scale)


def _smooth_clip(g: Graph, step: SmoothClip, values: str, missing: str) -> str:
    r = g.op("Clip", values, np.float64(-FAR), np.float64(FAR))
    third = g.op("Div", r, np.float64(3))
    return g.op("Div", r, g.op("Sqrt", g.op("Add", np.float64(1), g.op("Mul", third, third))))


NUMBER_WRITERS: dict[type[NumberStep], Callable[[Graph, Any, str, str], str]] = {
    FillMissing: _fill_missing,
    Standardise: _standardise,
    SmoothClip: _smooth_clip,
}
"""Writers of steps for all numbers together: values (B, V) and a mask of missing values → (B, V)."""


def _unlearned(g: Graph, step: Unlearned, value: str) -> list[str]:
    return [g.op("Mul", value, np.float64(np.nan))]


def _date_parts(g: Graph, step: DateParts, value: str) -> list[str]:
    days = g.op("Div", value, np.float64(DAY))
    if step.kind == "time":
        found = [g.op("Div", value, np.float64(HOUR)), *_circle(g, days)]
    else:
        weeks = g.op("Div", g.op("Add", days, np.float64(THURSDAY)), np.float64(7))
        found = [days, *_circle(g, g.op("Div", days, np.float64(YEAR))), *_circle(g, weeks), *_circle(g, days)]
    return found if step.parts is None else [found[part] for part in step.parts]


def _circle(g: Graph, turns: str) -> tuple[str, str]:
    angle = g.op("Mul", np.float64(2 * np.pi), g.op("Sub", turns, g.op("Floor", turns)))
    return g.op("Sin", angle), g.op("Cos", angle)


def _codes(g: Graph, step: Codes, value: str) -> list[str]:
    keys = _keys(value, step.vocabulary)
    code = g.op(
        "LabelEncoder",
        value,
        domain="ai.onnx.ml",
        keys_tensor=keys,
        values_tensor=np.arange(1, len(keys) + 1),
        default_tensor=np.array([int(step.constant)]),
    )
    return [code]


def _keys(name: str, vocabulary: Any) -> NDArray[Any]:
    if pa.types.is_large_string(vocabulary.type):
        return np.array(vocabulary.to_pylist(), dtype=np.object_)
    keys = to_numpy(vocabulary)
    for value in keys[np.abs(keys.astype(np.float64)) > WHOLE][:1].tolist():
        raise DataError(
            f"column {name!r}: numbers as categories must lie within ±2^53 in ONNX, got {value}: "
            "convert the column to strings, then train again"
        )
    return keys.astype(np.float64)


COLUMN_WRITERS: dict[type[Step], Callable[[Graph, Any, str], list[str]]] = {
    DateParts: _date_parts,
    Unlearned: _unlearned,
    Codes: _codes,
}
"""Writers of steps for one column: its input (B,) → the numbers that the network uses, or the code, (B,) each."""


def _column(g: Graph, encoding: Encoding, column: Column) -> list[str]:
    first, *_ = encoding.steps_of(column)
    writer = COLUMN_WRITERS.get(type(first))
    return [column.name] if writer is None else writer(g, first, column.name)
