"""`Encoding`: convert the rows of a table to numbers. It is fitted on the training rows and stored with the model.

    x      (N, F)   the scaled numbers of numeric and date columns; then a missing-value indicator (0 or 1) for each
                    column that had missing values in training
    codes  (N, C)   a code for each categorical column: 0 missing or unknown, else 1 … n in sorted order

`Encoding.steps_of` lists the preprocessing steps of a column (`preprocessing`). Missing numbers become the median. Then
each number is scaled, with the statistics of the training rows:

    standard   (x − mean)/std
    robust     r = (x − median)/(q75 − q25), or 2(x − median)/(max − min) if the quartiles are equal; then
               r/√(1 + (r/3)²). Holzmüller et al. 2024
    none       x
    range      images: x/top, 255 for bytes; without a top, one mean and std for all pixels

    columns             at training                                     at prediction
    constant, empty     dropped, also constant numbers of a date        ignored
    too many strings    dropped                                         ignored
    used                                                                found by name (arrays: by position), required
    others                                                              ignored

The notes count unknown categories, unexpected missing values, and numbers that are outside the training range by at
least its width. The family "empty" marks columns without information: a numeric column is always 0, and a categorical
column had one value so far and always has the code 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..core.formatting import count
from ..core.sparse import Sparse
from ..errors import DataError, warn
from ..nn.layers import Inputs
from . import columns as C
from . import encoding_storage
from .columns import Column
from .preprocessing import (
    Codes,
    DateParts,
    FillMissing,
    NumberStep,
    SmoothClip,
    Standardise,
    Step,
    Unlearned,
    ValueStep,
    apply_steps,
)
from .readers import read_raw
from .table import Rows, Shape, Table, from_numpy, where
from .targets import Task, probabilities
from .targets import decode as decode_outputs
from .targets import encode as encode_targets
from .training_range import TrainingRange
from .type_inference import convert_text_as_trained

Floats = NDArray[np.float64]
CodeRows = NDArray[np.int64]
MOST_NOTES = 5
"""Largest number of notes in one warning."""
BLOCK = 8192
"""Rows of a matrix that are scaled at a time."""


class Note(str):
    """A message about new rows. The notes of one `kind` are joined to one warning."""

    kind: str

    def __new__(cls, text: str, kind: str) -> Note:
        made = super().__new__(cls, text)
        made.kind = kind
        return made


@dataclass(frozen=True, kw_only=True, eq=False)
class Encoded:
    """A table as numbers. `rows` are the positions in the source, from 0, of the rows that were used."""

    x: NDArray[Any] | Sparse
    codes: CodeRows | None
    y: NDArray[Any] | None
    rows: Rows
    notes: tuple[Note, ...]

    def warn(self) -> None:
        """Give one warning for each kind of difference between these rows and the training rows."""
        for kind in dict.fromkeys(note.kind for note in self.notes):
            found = [note for note in self.notes if note.kind == kind]
            more = f"; and {len(found) - MOST_NOTES:,} more" if len(found) > MOST_NOTES else ""
            warn("; ".join(found[:MOST_NOTES]) + more)


@dataclass(frozen=True, kw_only=True, eq=False)
class Encoding:
    """The fitted conversion of the columns of a table to numbers.

    `center`, `scale` and `fill` have one value for each number of x that is not a missing-value indicator. So do `low`
    and `high`, the range of the training rows. They are empty for images, loaders and models saved before ranges were
    stored.
    """

    columns: tuple[Column, ...]
    task: Task
    loss: str
    scaling: str
    center: Floats
    scale: Floats
    fill: Floats
    low: Floats = field(default_factory=lambda: np.zeros(0))
    high: Floats = field(default_factory=lambda: np.zeros(0))
    vocabularies: Mapping[str, Any] = field(default_factory=dict[str, Any])
    image: Shape | None = None
    top: float | None = None
    positional: bool = False

    @cached_property
    def numeric(self) -> tuple[Column, ...]:
        return tuple(c for c in self.columns if c.parts)

    @cached_property
    def categorical(self) -> tuple[Column, ...]:
        return tuple(c for c in self.columns if c.kind == "categorical")

    @cached_property
    def _used(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns if c.kind != "drop")

    @cached_property
    def numeric_names(self) -> tuple[str, ...]:
        """Names of the numbers of x, such as "born (year, sin)" or "age (missing)"."""
        values = [c.name + C.PARTS[c.kind][part] for c in self.numeric for part in c.parts]
        return (*values, *(f"{c.name} (missing)" for c in self.numeric if c.indicator))

    @cached_property
    def number_steps(self) -> tuple[NumberStep, ...]:
        """The steps, in order, for all numbers of x except the missing-value indicators."""
        found = (FillMissing(fill=self.fill), Standardise(center=self.center, scale=self.scale))
        return (*found, SmoothClip()) if self.scaling == "robust" else found

    @cached_property
    def _places(self) -> dict[str, slice]:
        """The positions in x of the numbers of each numeric column."""
        ends = np.cumsum([len(c.parts) for c in self.numeric]).tolist()
        return {c.name: slice(end - len(c.parts), end) for c, end in zip(self.numeric, ends, strict=True)}

    def steps_of(self, column: Column) -> tuple[Step, ...]:
        """Return the steps of a column that is used, in order."""
        return (self.code_step(column),) if column.kind == "categorical" else self.value_steps(column)

    def code_step(self, column: Column) -> Codes:
        return Codes(vocabulary=self.vocabularies[column.name], constant=column.family == "empty")

    def value_steps(self, column: Column) -> tuple[ValueStep, ...]:
        shared = tuple(step.at(self._places[column.name]) for step in self.number_steps)
        if column.family == "empty":
            return (Unlearned(), *shared)
        return shared if column.kind == "numeric" else (DateParts(kind=column.kind, parts=column.parts), *shared)

    @property
    def inputs(self) -> Inputs:
        sizes = tuple(len(self.vocabularies[c.name]) for c in self.categorical)
        return Inputs(numeric=len(self.numeric_names), categories=sizes)

    @property
    def outputs(self) -> int:
        """Number of outputs that the network needs."""
        return self.task.outputs(self.loss)

    @property
    def metric(self) -> str:
        return self.task.metric

    # New rows

    def apply(self, source: Any, *, dtype: Any = np.float32) -> tuple[NDArray[Any], CodeRows | None]:
        """Return x and codes of new rows."""
        found = self.encode(source, dtype=dtype)
        return found.x[:], found.codes

    def encode(self, source: Any, *, targets: bool = False, dtype: Any = np.float32) -> Encoded:
        """Return new rows as numbers, with notes. With `targets`, rows without a target are dropped, with a note."""
        table = self.read(source, targets=targets)
        notes = [Note(note, "reading") for note in table.notes]
        rows = np.arange(len(table))
        if targets:
            present = usable(table, self.task.names)
            if not present.any():
                raise DataError(f"{table.name}: no row has a target: pass rows with {', '.join(self.task.names)}")
            if not present.all():
                notes.append(Note(f"{count(int((~present).sum()), 'row')} without a target left out", "target"))
                rows = np.flatnonzero(present)
                table = table.take(rows)
        for column in self.columns:
            if column.kind != "drop" and (column.family != "number" or column.name not in table.places):
                note = C.check_family(table, column.name, column.family, zone=column.zone)
                notes += [] if note is None else [Note(note, "family")]
        x, codes, more = self.transform(table, dtype)
        y = encode_targets(self.task, table, self.loss, dtype) if targets else None
        return Encoded(x=x, codes=codes, y=y, rows=rows, notes=(*notes, *more))

    def read(self, source: Any, *, targets: bool = False) -> Table:
        """Read new rows as a table with the column names and the column types of training."""
        hints = self._hints(targets)
        table = self._aligned(read_raw(source, hints=hints), targets)
        names = [*self._used, *(self.task.names if targets else ())]
        return convert_text_as_trained(table, names, hints, self.vocabularies)

    def transform(self, table: Table, dtype: Any) -> tuple[NDArray[Any] | Sparse, CodeRows | None, list[Note]]:
        """Return the numbers of a table whose columns have the names and families of training. x may be sparse."""
        notes: list[Note] = []
        x: NDArray[Any] | Sparse
        whole = all(c.name in table.places and c.kind == "numeric" and c.family != "empty" for c in self.numeric)
        if whole and isinstance(table.matrix, Sparse):
            x = self._transform_sparse(table, table.matrix, dtype)
        elif whole and table.matrix is not None:
            x = np.empty((len(table), len(self.numeric_names)), dtype=dtype)
            self._transform_matrix(table, x, notes)
        else:
            x = np.empty((len(table), len(self.numeric_names)), dtype=dtype)
            indicators = len(self.center)
            for column in self.numeric:
                values = self._read(table, column)  # (N,)
                nothing = np.isnan(values)
                if column.indicator:
                    x[:, indicators] = nothing
                    indicators += 1
                elif nothing.any():
                    notes.append(_unforeseen(column.name, int(nothing.sum())))
                values = values[:, None] if column.kind == "numeric" else values
                x[:, self._places[column.name]] = apply_steps(self.value_steps(column), values, dtype)
        if not self._range.is_near(x):
            self._check_range(x, table)
            notes += self._far_notes(x, table)
        known = self.categorical
        codes = np.empty((len(table), len(known)), dtype=np.int64) if known else None
        for i, column in enumerate(known):
            assert codes is not None
            keys = table.column(column.name)
            if column.family != "empty":
                keys = _as_trained(C.keys_of(keys, table, column.name), column)
            codes[:, i], unknown = self.code_step(column).apply(keys)
            if unknown.any():
                kinds = len(C.vocabulary(keys.filter(from_numpy(unknown))))
                what = f"{count(int(unknown.sum()), 'row')} with {count(kinds, 'value')} that training did not see"
                notes.append(Note(f"{column.name!r}: {what}: read as unknown", "unseen"))
        return x, codes, notes

    def _transform_sparse(self, table: Table, matrix: Sparse, dtype: Any) -> Sparse:
        """Return the scaled stored values, and the scaled value of the elements that are not stored, per column."""
        order = np.array([table.places[c.name] for c in self.numeric], dtype=np.int64)
        place_of = np.full(len(matrix.base), -1)
        place_of[order] = np.arange(len(order))
        columns = place_of[matrix.columns]
        kept = columns >= 0
        columns, values = columns[kept], matrix.values[kept].astype(np.float64)
        for i in np.flatnonzero(~(np.abs(values) <= C.LARGEST))[:1]:
            C.numbers(table, self.numeric[columns[i]].name, "numeric")  # raises an error with the row
        base = np.zeros(len(self.numeric_names), dtype=dtype)  # indicators are 0: a sparse table has no missing values
        base[: len(order)] = apply_steps(self.number_steps, matrix.base[order].astype(np.float64), dtype)
        starts = np.concatenate([[0], np.cumsum(kept)])[matrix.starts]
        here = tuple(step.at(columns) for step in self.number_steps)
        return Sparse(base=base, starts=starts, columns=columns, values=apply_steps(here, values, dtype))

    def _transform_matrix(self, table: Table, x: NDArray[Any], notes: list[Note]) -> None:
        assert table.matrix is not None
        order = np.array([table.places[c.name] for c in self.numeric], dtype=np.int64)
        straight = np.array_equal(order, np.arange(table.matrix.shape[1]))
        with_indicator = np.array([c.indicator for c in self.numeric], dtype=np.bool_)
        lost = np.zeros(len(order), dtype=np.int64)
        V = len(order)
        for start in range(0, len(table), BLOCK):
            block = table.matrix[start : start + BLOCK]
            values = (block if straight else block[:, order]).astype(np.float64)
            with np.errstate(invalid="ignore"):
                if (np.abs(values) > C.LARGEST).any():
                    column = int(np.flatnonzero((np.abs(values) > C.LARGEST).any(0))[0])
                    C.numbers(table, self.numeric[column].name, "numeric")  # raises an error with the row
            nothing = np.isnan(values)
            lost += nothing.sum(0)
            x[start : start + BLOCK, V:] = nothing[:, with_indicator]
            x[start : start + BLOCK, :V] = apply_steps(self.number_steps, values, x.dtype)
        for i in np.flatnonzero((lost > 0) & ~with_indicator):
            notes.append(_unforeseen(self.numeric[i].name, int(lost[i])))

    def _read(self, table: Table, column: Column) -> Floats:
        """Return the values of a numeric column before its first step. Values of an unlearned column are not read."""
        if column.family == "empty":
            return np.zeros(len(table))
        return C.read_numbers(table, column.name, column.kind)

    def _check_range(self, x: NDArray[Any] | Sparse, table: Table) -> None:
        values = x.values if isinstance(x, Sparse) else x
        if np.isfinite(values).all():
            return
        first = np.argwhere(~np.isfinite(values))[0]
        row, place = (int(i) for i in (x.place(first[0]) if isinstance(x, Sparse) else first))
        raise DataError(
            f"{where(table, self.numeric_names[place], row)}: is so far from the training rows that its scaled value "
            f"does not fit in {x.dtype}: correct it or leave it empty"
        )

    @cached_property
    def _range(self) -> TrainingRange:
        indicators = len(self.numeric_names) - len(self.center)
        return TrainingRange(low=self.low, high=self.high, steps=self.number_steps, indicators=indicators)

    def _far_notes(self, x: NDArray[Any] | Sparse, table: Table) -> list[Note]:
        """Return a note for each column with numbers far outside the training range."""
        notes: list[Note] = []
        owners = [(column, part) for column in self.numeric for part in column.parts]
        for place in self._range.maybe_far(x).tolist():
            column, part = owners[place]
            n = self._range.count_far(place, C.numbers(table, column.name, column.kind)[:, part])
            if n:
                ends = [_shown(float(end), column) for end in (self.low[place], self.high[place])]
                what = f"{count(n, 'row')} far outside the training range ({' to '.join(ends)})"
                notes.append(Note(f"{column.name!r}: {what}: the predictions may be wrong", "range"))
        return notes

    def _hints(self, targets: bool) -> dict[str, Any]:
        """Return the types of columns in training, for text files: a column of strings may contain only digits now."""
        types: dict[str, Any] = {"text": pa.large_string(), "boolean": pa.bool_(), "date": pa.date32()}
        hints = {c.name: types[c.family] for c in self.columns if c.kind != "drop" and c.family in types}
        for column in self.categorical:
            if column.family == "empty" and pa.types.is_large_string(self.vocabularies[column.name].type):
                hints[column.name] = pa.large_string()
        if targets:
            for name, found in zip(self.task.names, self.task.classes, strict=False):
                if isinstance(found[0], str):
                    hints[name] = pa.large_string()
        return hints

    def _aligned(self, table: Table, targets: bool) -> Table:
        """Return the table with the column names of training. Check that all columns of training are there."""
        names = tuple(c.name for c in self.columns)
        if self.image is not None and table.image is not None and table.image != self.image:
            raise DataError(
                f"{table.name}: images must have the shape of training {self.image}, got {table.image}: resize them"
            )
        if targets and table.targets and set(table.targets) != set(self.task.names):
            if len(table.targets) != len(self.task.names):
                raise DataError(
                    f"{table.name}: must have {len(self.task.names)} targets as in training, got {len(table.targets)}"
                )
            new = dict(zip(table.targets, self.task.names, strict=True))
            kept = [name for name in table.columns if name in new or name not in self.task.names]
            renamed = {new.get(name, name): table.columns[name] for name in kept}
            table = replace(table, columns=renamed, targets=self.task.names)
        given = tuple(name for name in table.names if name not in table.targets)
        with_targets = len(given) == len(names) + len(self.task.names) and {*names, *self.task.names} == {*given}
        if not with_targets and (table.positional or (self.positional and not set(names) <= set(given))):
            rest = [name for name in given if name not in self.task.names] if not table.positional else list(given)
            if len(rest) != len(names):
                raise DataError(f"{table.name}: must have {len(names):,} columns as in training, got {len(rest):,}")
            new = dict(zip(rest, names, strict=True))
            table = replace(
                table,
                columns={new.get(name, name): column for name, column in table.columns.items()},
                matrix_names=tuple(new.get(name, name) for name in table.matrix_names),
            )
        present = set(table.names)
        unknown = [name for name in self.task.names if targets and name not in present]
        lacking = [c.name for c in self.columns if c.kind != "drop" and c.name not in present]
        words = ", ".join(repr(name) for name in lacking[:20]) + (", …" if len(lacking) > 20 else "")
        if unknown:
            named = ", ".join(repr(name) for name in unknown[:20])
            if lacking:
                both = f"the target {named} and {count(len(lacking), 'column')} of training are missing: {words}"
                raise DataError(f"{table.name}: {both}: pass a table with the columns of training")
            raise DataError(
                f"{table.name}: the target {named} is missing: add the column, predictions are compared with it"
            )
        if lacking:
            missing = f"{count(len(lacking), 'column')} of training missing: {words}"
            raise DataError(f"{table.name}: {missing}: add them, with empty values if unknown")
        if self.top is not None and isinstance(table.matrix, np.ndarray) and table.matrix.dtype.kind == "f":
            self._check_bytes(table)
        return table

    def _check_bytes(self, table: Table) -> None:
        """Raise an error for fractions, if the pixels of training were 0 … 255."""
        assert isinstance(table.matrix, np.ndarray), "a sparse matrix contains no images"
        with np.errstate(invalid="ignore"):
            bad = (table.matrix != np.floor(table.matrix)) & ~np.isnan(table.matrix)
        if bad.any():
            row, place = (int(i) for i in np.argwhere(bad)[0])
            raise DataError(
                f"{where(table, table.matrix_names[place], row)}: pixels were whole numbers from 0 to {self.top:g} in "
                f"training, got {table.matrix[row, place]:g}: multiply by {self.top:g} and round"
            )

    # Predictions

    def decode(self, z: Any, loss: str | None = None) -> NDArray[Any]:
        """Return predictions from raw outputs."""
        return decode_outputs(self.task, z, loss or self.loss)

    def probabilities(self, z: Any, loss: str | None = None) -> NDArray[np.float64]:
        return probabilities(self.task, z, loss or self.loss)

    # As data

    def to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return encoding_storage.to_parts(self)

    @staticmethod
    def from_parts(data: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Encoding:
        return Encoding(**encoding_storage.from_parts(data, arrays))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Encoding):
            return NotImplemented
        (data, arrays), (other_data, other_arrays) = self.to_parts(), other.to_parts()
        return (
            data == other_data
            and arrays.keys() == other_arrays.keys()
            and all(
                value.dtype == other_arrays[name].dtype and value.tobytes() == other_arrays[name].tobytes()
                for name, value in arrays.items()
            )
        )

    __hash__ = None  # type: ignore[assignment]


def usable(table: Table, names: tuple[str, ...]) -> NDArray[np.bool_]:
    """Return which rows have a value in all of the given columns."""
    present = np.ones(len(table), dtype=np.bool_)
    for name in names:
        present &= ~C.missing(table.column(name))
    return present


def _shown(end: float, column: Column) -> str:
    """Return an end of a range for a message: a number or a date."""
    return f"{end:g}" if column.kind == "numeric" else str(np.datetime64(int(end), "D"))


def _unforeseen(name: str, n: int) -> Note:
    return Note(f"{name!r}: {count(n, 'missing value')}, none in training: read as the median", "missing")


def _as_trained(keys: Any, column: Column) -> Any:
    """Convert 0 and 1 to false and true, if the column was boolean in training."""
    if column.family == "boolean" and not pa.types.is_boolean(keys.type) and not pa.types.is_null(keys.type):
        return keys.cast(pa.bool_())
    return keys
