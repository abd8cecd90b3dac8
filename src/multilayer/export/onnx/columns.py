"""A table's columns as inputs of an ONNX model, and the encoding as its first operators.

    column                  input                 missing
    numbers, durations      float64, seconds      NaN
    true and false          float64, 1 and 0      NaN
    dates and moments       float64, seconds since 1970-01-01 (of UTC, where they have a time zone)      NaN
    times of day            float64, seconds since midnight      NaN
    text                    string                an empty text, or any, that training did not see

Inputs are float64 and scaled as such, as the data layer does: a float32 would round years to days and large counts to
dozens. Each column is an input of its own (rows,); a model of an array or of pictures has one, `x` (rows, columns).
Columns that training dropped are no inputs, but have their place in `x`.

Every preprocessing step (`data.steps`) has a writer, in `COLUMN_WRITERS` or `NUMBER_WRITERS`.

Left out on purpose: refusing numbers that are not finite or beyond float32, for which a graph has no words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...data import Encoding
from ...data.columns import Column
from ...data.steps import (
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
"""What the one input of a model is called that was trained on an array."""
WHOLE = 2**53
"""Up to which a float64 tells whole numbers apart."""

UNSEEN = "a text that training did not see"
_SINCE = "seconds since 1970-01-01"
_SAID = {"date": _SINCE, "datetime": _SINCE, "time": "seconds since midnight"}


def ports(encoding: Encoding) -> list[Port]:
    """The inputs of the model."""
    if is_array(encoding):
        names = ", ".join(column.name for column in encoding.columns[:20])
        said = f"{len(encoding.columns)} columns as in training, NaN where missing: {names}"
        return [Port(name=ARRAY, dtype=np.float64, shape=(ROWS, len(encoding.columns)), said=said)]
    return [_port(column, encoding) for column in encoding.columns if column.kind != "drop"]


def write(g: Graph, encoding: Encoding) -> Rows:
    """x and codes as `Encoding.transform` makes them."""
    g.place = "encoding/"
    if is_array(encoding):
        kept = np.array([i for i, column in enumerate(encoding.columns) if column.parts])
        return Rows(_numbers(g, encoding, g.op("Gather", ARRAY, kept, axis=1)), ())
    parts = [part for column in encoding.numeric for part in _column(g, encoding, column)]
    numbers = _numbers(g, encoding, _beside(g, parts)) if parts else None
    return Rows(numbers, tuple(code for column in encoding.categorical for code in _column(g, encoding, column)))


def tell_empty(encoding: Encoding) -> None:
    """Warn if an empty string cannot be used for missing values."""
    names = [
        repr(column.name) for column in encoding.columns if _is_text(column, encoding) and _had_empty(column, encoding)
    ]
    if names:
        warn(
            f"column{'s' * (len(names) > 1)} {', '.join(names)}: training had empty texts, which are a value of their "
            f"own, so {UNSEEN} must stand for missing values in ONNX, not an empty one; or train again without them"
        )


def _had_empty(column: Column, encoding: Encoding) -> bool:
    return "" in encoding.vocabularies[column.name].to_pylist()


def _port(column: Column, encoding: Encoding) -> Port:
    if _is_text(column, encoding):
        missing = UNSEEN if _had_empty(column, encoding) else "empty"
        return Port(name=column.name, dtype=np.object_, shape=(ROWS,), said=f"text, {missing} where missing")
    said = _SAID.get(column.kind, "1 for true, 0 for false" if column.family == "boolean" else "numbers")
    return Port(name=column.name, dtype=np.float64, shape=(ROWS,), said=f"{said}, NaN where missing")


def _is_text(column: Column, encoding: Encoding) -> bool:
    return column.kind == "categorical" and pa.types.is_large_string(encoding.vocabularies[column.name].type)


def _numbers(g: Graph, encoding: Encoding, values: str) -> str:
    """Missing values filled, scaled, then 0 or 1 for each column that may lack some.   (B, V) → (B, F) in float32"""
    nothing = g.op("IsNaN", values)
    for step in encoding.number_steps:
        values = NUMBER_WRITERS[type(step)](g, step, values, nothing)
    x = g.cast(values, np.float32)
    firsts = np.cumsum([0, *(len(column.parts) for column in encoding.numeric)])
    lacking = np.array([first for first, c in zip(firsts, encoding.numeric, strict=False) if c.indicator], np.int64)
    if not len(lacking):
        return x
    return g.op("Concat", x, g.cast(g.op("Gather", nothing, lacking, axis=1), np.float32), axis=1)


def _beside(g: Graph, parts: list[str]) -> str:
    """V times (B,) → (B, V); one after another first, so that thousands of columns need three operators."""
    flat = g.op("Concat", *parts, axis=0)
    return g.op("Transpose", g.op("Reshape", flat, np.array([len(parts), -1])), perm=[1, 0])


def _fill_missing(g: Graph, step: FillMissing, values: str, nothing: str) -> str:
    return g.op("Where", nothing, step.fill, values)


def _standardise(g: Graph, step: Standardise, values: str, nothing: str) -> str:
    return g.op("Div", g.op("Sub", values, step.center), step.scale)


def _smooth_clip(g: Graph, step: SmoothClip, values: str, nothing: str) -> str:
    r = g.op("Clip", values, np.float64(-FAR), np.float64(FAR))
    third = g.op("Div", r, np.float64(3))
    return g.op("Div", r, g.op("Sqrt", g.op("Add", np.float64(1), g.op("Mul", third, third))))


NUMBER_WRITERS: dict[type[NumberStep], Callable[[Graph, Any, str, str], str]] = {
    FillMissing: _fill_missing,
    Standardise: _standardise,
    SmoothClip: _smooth_clip,
}
"""Writers of steps for all numbers together: values (B, V) and a mask of missing values → (B, V)."""


def _unlearned(g: Graph, step: Unlearned, given: str) -> list[str]:
    return [g.op("Mul", given, np.float64(np.nan))]


def _date_parts(g: Graph, step: DateParts, given: str) -> list[str]:
    days = g.op("Div", given, np.float64(DAY))
    if step.kind == "time":
        found = [g.op("Div", given, np.float64(HOUR)), *_circle(g, days)]
    else:
        weeks = g.op("Div", g.op("Add", days, np.float64(THURSDAY)), np.float64(7))
        found = [days, *_circle(g, g.op("Div", days, np.float64(YEAR))), *_circle(g, weeks), *_circle(g, days)]
    return found if step.parts is None else [found[part] for part in step.parts]


def _circle(g: Graph, turns: str) -> tuple[str, str]:
    angle = g.op("Mul", np.float64(2 * np.pi), g.op("Sub", turns, g.op("Floor", turns)))
    return g.op("Sin", angle), g.op("Cos", angle)


def _codes(g: Graph, step: Codes, given: str) -> list[str]:
    keys = _keys(given, step.vocabulary)
    code = g.op(
        "LabelEncoder",
        given,
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
            "make the column text, then train again"
        )
    return keys.astype(np.float64)


COLUMN_WRITERS: dict[type[Step], Callable[[Graph, Any, str], list[str]]] = {
    DateParts: _date_parts,
    Unlearned: _unlearned,
    Codes: _codes,
}
"""Writers of steps for one column: its input (B,) → the numbers that are used, or the code, (B,) each."""


def _column(g: Graph, encoding: Encoding, column: Column) -> list[str]:
    first, *_ = encoding.steps_of(column)
    writer = COLUMN_WRITERS.get(type(first))
    return [column.name] if writer is None else writer(g, first, column.name)
