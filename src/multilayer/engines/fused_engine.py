"""Training and prediction with the compiled core, without torch. A call runs many steps without returning to Python.

    float32   vectorized kernels if the processor supports them, otherwise simple loops
    float64   simple loops (csrc/reference/reference.h); `core="reference"` uses them in float32 as well

The core holds parameters, optimizer state and averages. It reads arrays in place if they have its type. Codes and row
numbers are copied and checked, since the core uses them as indices: a later change of the user's arrays cannot make it
read outside its memory. `Data.take` computes augmented and sparse rows for each call; dropout masks still use the row
numbers of the data.

A network with a layer without a kernel raises SpecError. `fused_program.why_not` checks this before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core import _core, machine, named_options
from ..core.sparse import Sparse, pieces
from ..data.batches import Batch, Data, Rows, require_within, row_numbers
from ..errors import OptionError, SpecError, option, unknown_name
from ..nn.layers.base import Array, Parameter
from ..nn.layers.norms import require_rows
from ..spec import Spec
from .fused_program import (
    are_integers,
    check_codes,
    classes_of,
    codes_of,
    contiguous_rows,
    copied,
    operations_of,
    program_of,
    why_not,
)
from .protocol import Chunk, Gradients, Order, Settings, SingleEngine, State, StepStatistics, UnitCounts
from .unit_counts import counted_layers

FusedTable = _core.TableFloat | _core.TableDouble

CORES = ("auto", "reference", *_core.fused_kernels())
TABLES = {"float32": _core.TableFloat, "float64": _core.TableDouble}
REFERENCES = {"float32": _core.reference_float, "float64": _core.reference_double}

MAX_ROWS_PER_CALL = 16_384
"""Largest number of computed rows in one call of the core. It limits memory."""


class FusedEngine(SingleEngine):
    """Implements `Engine` with the compiled core. Only one Python thread may call it at a time."""

    name = "fused"

    def __init__(
        self,
        spec: Spec,
        data: Data,
        settings: Settings,
        *,
        init: str = "auto",
        dtype: Any = np.float32,
        threads: int | None = None,
        core: str = "auto",
    ) -> None:
        reason = why_not(spec, settings.loss, settings.optimizer)
        if reason is not None:
            raise SpecError(f"{reason}: train {spec} with {option('engine', 'torch')}")
        super().__init__(spec, data, settings)
        self.dtype = _dtype(dtype)
        program = program_of(spec, settings)
        self.threads = machine.threads() if threads is None else named_options.threads(threads)
        if core not in CORES:
            raise OptionError(unknown_name("core", core, CORES))
        if core == "reference" or self.dtype == np.float64:
            self._core = REFERENCES[self.dtype.name](program)
        else:
            self._core = _core.fused(program, self.threads, "" if core == "auto" else core)
        self._table = None if isinstance(data.x, Sparse) else self._held(data)
        self._rate_factor = 1.0
        self._most_dropout = max([op.p for op in program.ops], default=0.0)
        moved = [place for op in program.ops for place in (op.mean, op.var) if place != _core.NONE]
        self._moving = [name for place, name in enumerate(spec.buffers) if place in moved]
        self._counted = {name: units for name, (_, units) in counted_layers(spec).items()}
        self._places = {"parameters": _places(spec.parameters), "buffers": _places(spec.buffers)}
        self.load(self.first_state(init, self.dtype))

    # The protocol

    def run(self, order: Order, *, rate: Array, decay: Array, dropout: Array, count_units: bool = False) -> Chunk:
        order.check(rate=rate, decay=decay, dropout=dropout)
        order = replace(order, rows=row_numbers(order.rows))
        rates = np.ascontiguousarray(rate, dtype=np.float64) * self._rate_factor
        decays, factors = (np.ascontiguousarray(values, dtype=np.float64) for values in (decay, dropout))
        self._check_step(min(order.batch, len(order.rows) - (order.steps - 1) * order.batch), factors)
        taken, norms = [np.zeros(0)], [np.zeros(0)]
        bad, finite, statistics = None, True, list[StepStatistics]()
        counts = np.zeros(2 * sum(self._counted.values()) if count_units else 0, dtype=np.int64)
        first = 0
        for part in self._parts(order):
            table, rows, ids = self._training(part)
            steps = slice(first, first + part.steps)
            before = self._core.step
            loss, norm, bad, finite, recorded, counted = self._core.run(
                table, rows, ids, part.batch, part.epoch, rates[steps], decays[steps], factors[steps], count_units
            )
            counts += counted
            statistics += self._statistics(recorded, before, first)
            taken.append(loss)
            norms.append(norm)
            if bad is not None:
                bad += first
                break
            first += part.steps
        loss, norm = np.concatenate(taken), np.concatenate(norms)
        units = self._units(len(order.rows), counts) if count_units else {}
        return Chunk(loss=loss, gradient_norm=norm, bad=bad, finite=finite, statistics=statistics, units=units)

    def _units(self, rows: int, counts: NDArray[np.int64]) -> dict[str, UnitCounts]:
        """Return the counts by layer. The core counts the inactive rows of all units of a layer, then the flat rows."""
        found: dict[str, UnitCounts] = {}
        first = 0
        for name, units in self._counted.items():
            middle, end = first + units, first + 2 * units
            found[name] = UnitCounts(rows, counts[first:middle], counts[middle:end])
            first = end
        return found

    def _statistics(self, recorded: NDArray[np.float64], step: int, first: int) -> list[StepStatistics]:
        """Return the statistics of recorded steps. `step` steps ran before; positions in the chunk start at `first`."""
        names, every = list(self.spec.parameters), self.settings.statistics_every or 1
        found = recorded.reshape(-1, 2, len(names)).tolist() if names else []
        return [
            StepStatistics(
                place=first + every - 1 - step % every + i * every,
                gradients=dict(zip(names, gradients, strict=True)),
                parameters=dict(zip(names, parameters, strict=True)),
            )
            for i, (gradients, parameters) in enumerate(found)
        ]

    def gradients(self, rows: Rows, *, epoch: int, dropout: float = 1.0) -> Gradients:
        rows = row_numbers(rows)
        self._check_step(len(rows), np.array([dropout]))
        table, places, ids = self._training(Order(epoch=epoch, rows=rows, batch=max(len(rows), 1)))
        loss, found, moved = self._core.gradients(table, places, ids, epoch, float(dropout))
        shaped = {name: g.reshape(p.shape) for (name, p), g in zip(self.spec.parameters.items(), found, strict=True)}
        buffers = {name: b.reshape(p.shape) for (name, p), b in zip(self.spec.buffers.items(), moved, strict=True)}
        return Gradients(loss=loss, gradients=shaped, buffers={name: buffers[name] for name in self._moving})

    def apply(self, gradients: Gradients, *, rate: float, decay: float) -> float:
        found = [self._flat(gradients.gradients[name]) for name in self.spec.parameters]
        buffers = self._read("buffers") | gradients.buffers
        moved = [self._flat(buffers[name]) for name in self.spec.buffers]
        return self._core.apply(found, moved, rate * self._rate_factor, decay)

    def outputs(self, rows: Rows, *, averaged: bool = False) -> Array:
        rows = row_numbers(rows)
        if self._table is not None:
            return self._core.outputs(self._table, rows, averaged)
        found = [np.empty((0, self.spec.d_out), dtype=self.dtype)]
        for part in pieces(len(rows), self.spec.inputs.numeric, MAX_ROWS_PER_CALL) if len(rows) else ():
            table = self._held(self.data.take(rows[part]))
            found.append(self._core.outputs(table, np.arange(len(rows[part])), averaged))
        return np.concatenate(found)

    def state(self) -> State:
        return State(
            parameters=self._read("parameters"),
            buffers=self._read("buffers"),
            optimizer={slot: self._read(f"slot{i}") for i, slot in enumerate(self.optimizer.slots)},
            averages={} if self.settings.average is None else self._read("averages"),
            step=self._core.step,
            rate_factor=self._rate_factor,
        )

    def load(self, state: State) -> None:
        state.check(self.spec, self.optimizer, averaged=self.settings.average is not None)
        groups = {"parameters": state.parameters, "buffers": state.buffers, "averages": state.averages}
        groups |= {f"slot{i}": state.optimizer[slot] for i, slot in enumerate(self.optimizer.slots)}
        for group, values in groups.items():
            names = self.spec.buffers if group == "buffers" else self.spec.parameters
            for place, name in enumerate(names if values else ()):
                self._core.write(_core.Group[group], place, self._flat(values[name]))
        self._core.step, self._rate_factor = state.step, state.rate_factor

    def stop(self) -> None:
        """Interrupt a call in another thread, which then raises KeyboardInterrupt, as after Ctrl-C."""
        self._core.stop()

    @property
    def bytes(self) -> int:
        """Current memory of the core's arrays. `ml.cost(…, engine="fused")` predicts it."""
        return self._core.bytes

    # Tensors

    def _read(self, group: str) -> dict[str, Array]:
        values = self._core.read(_core.Group[group])
        places = self._places["buffers" if group == "buffers" else "parameters"]
        return {name: values[place].reshape(shape) for name, place, shape in places}

    @np.errstate(over="ignore")
    def _flat(self, values: Array) -> Array:
        return np.require(values, self.dtype, ["C", "A"]).reshape(-1)

    # Rows

    def _parts(self, order: Order) -> Iterator[Order]:
        """Yield the whole order, or consecutive batches of it if the rows must be computed."""
        if not self.data.made:
            yield order
            return
        require_within(order.rows, len(self.data))  # before the first step, as the core does
        rows = pieces(len(order.rows), self.spec.inputs.numeric, MAX_ROWS_PER_CALL)[0].stop
        size = max(rows // order.batch, 1) * order.batch
        for start in range(0, len(order.rows), size):
            yield replace(order, rows=order.rows[start : start + size])

    def _training(self, order: Order) -> tuple[FusedTable, Rows, Rows]:
        """Return a table, and for each row of the order its position in the table and its row number."""
        rows = order.rows
        if self._table is not None and not self.data.made:
            return self._table, rows, rows
        made = [self.data.take(batch, epoch=order.epoch) for batch in order.batches() or [rows]]
        return self._held(made[0] if len(made) == 1 else _joined(made)), np.arange(len(rows)), rows

    @np.errstate(over="ignore")  # values too large for float32 become infinite, and the step reports them
    def _held(self, batch: Batch) -> FusedTable:
        """Return checked rows for the core. Arrays in the right form are not copied."""
        labels = self.loss.classes and batch.y.ndim == 1
        categories = self.spec.inputs.categories
        return TABLES[self.dtype.name](
            contiguous_rows(np.asarray(batch.x), self.dtype),
            codes_of(batch, categories) if categories else None,
            classes_of(batch.y, self.spec.d_out) if labels else None,
            None if labels else np.require(batch.y, self.dtype, ["C", "A"]),
            None if batch.weight is None else np.require(batch.weight, self.dtype, ["C", "A"]),
        )

    def _check_step(self, smallest: int, dropout: NDArray[np.float64]) -> None:
        """Raise an error for batches that are too small and for invalid dropout factors."""
        if self._moving:
            require_rows(smallest)
        for factor in (dropout.min(initial=0.0), dropout.max(initial=0.0)):
            p = factor * self._most_dropout
            if not (factor >= 0 and p < 1):
                raise OptionError(f"dropout times its factor must be at least 0 and below 1, got {p:g}")


def _places(tensors: Mapping[str, Parameter]) -> list[tuple[str, slice, tuple[int, ...]]]:
    """Return for each tensor its name, its slice of the concatenated values, and its shape."""
    ends = accumulate(p.size for p in tensors.values())
    return [(name, slice(end - p.size, end), p.shape) for (name, p), end in zip(tensors.items(), ends, strict=True)]


def _dtype(dtype: Any) -> np.dtype[Any]:
    name = getattr(dtype, "__name__", None) or str(dtype)
    if name not in TABLES:
        raise OptionError(
            f"the fused engine computes in float32 or float64, got {name!r}: use {option('engine', 'torch')}"
        )
    return np.dtype(name)


def _joined(batches: list[Batch]) -> Batch:
    codes = [b.codes for b in batches if b.codes is not None]
    weight = [b.weight for b in batches if b.weight is not None]
    return Batch(
        x=np.concatenate([b.x for b in batches]),
        y=np.concatenate([b.y for b in batches]),
        codes=np.concatenate(codes) if codes else None,
        weight=np.concatenate(weight) if weight else None,
    )


class PredictProgram:
    """A network with float32 parameters, packed for prediction only.

    The outputs have the same bits as those of a `FusedEngine` with the same parameters, for any number of rows. Several
    Python threads may call one program at the same time; it releases the GIL.
    """

    def __init__(
        self, spec: Spec, tensors: Mapping[str, Array], *, threads: int | None = None, kernels: str | None = None
    ) -> None:
        reason = why_not(spec)
        if reason is not None:
            raise SpecError(f"{reason}: predict with {spec} in numpy or PyTorch")
        if kernels not in (None, *_core.fused_kernels()):
            raise OptionError(unknown_name("kernels", kernels, _core.fused_kernels()))
        self.spec = spec
        self.threads = machine.threads() if threads is None else named_options.threads(threads)
        parameters, buffers = (
            [np.require(tensors[name], np.float32, ["C", "A"]).reshape(-1) for name in names]
            for names in (spec.parameters, spec.buffers)
        )
        self.core = _core.PredictionCore(operations_of(spec), parameters, buffers, self.threads, kernels or "")

    @property
    def bytes(self) -> int:
        """Memory of the program, and of each thread that calls it."""
        return self.core.bytes

    def outputs(self, x: Array | Sparse, codes: NDArray[Any] | None = None) -> Array:
        """Return raw outputs (rows, d_out) for features x (rows, F) and codes (rows, categories)."""
        if isinstance(x, Sparse):
            parts = pieces(*x.shape)
            return np.concatenate([self.outputs(x[part], None if codes is None else codes[part]) for part in parts])
        copy, categories = None, self.spec.inputs.categories
        if codes is not None:
            copy = copied(codes)
            if not are_integers(codes) and codes.shape[1:] == (len(categories),):
                check_codes(copy, codes, categories)
        try:
            return self.core.outputs(contiguous_rows(x, np.dtype(np.float32)), copy)
        except IndexError:
            if codes is not None and copy is not None:  # only codes are used as indices
                check_codes(copy, codes, categories)
            raise
