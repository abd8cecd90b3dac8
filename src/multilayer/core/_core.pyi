"""Types of the compiled core (csrc/bind). The callers (`random`, `machine`, the fused engine)
check the arguments."""

from collections.abc import Sequence
from enum import Enum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__version__: Final[str]

# The random stream (csrc/runtime/random.h).
PURPOSES: Final[dict[str, int]]

def philox(counter: Sequence[int], seed: int) -> list[int]: ...
def bits(
    seed: int, purpose: int, epoch: int, part: int, rows: NDArray[np.int64], unit: int, units: int
) -> NDArray[np.uint32]: ...
def uniform(
    seed: int, purpose: int, epoch: int, part: int, rows: NDArray[np.int64], unit: int, units: int
) -> NDArray[np.float64]: ...
def normal(
    seed: int, purpose: int, epoch: int, part: int, rows: NDArray[np.int64], unit: int, units: int
) -> NDArray[np.float64]: ...
def keep(
    seed: int, purpose: int, epoch: int, part: int, rows: NDArray[np.int64], unit: int, units: int, p: float
) -> NDArray[np.uint8]: ...
def permutation(seed: int, epoch: int, n: int) -> NDArray[np.int64]: ...
def derive(seed: int, member: int) -> int: ...

# This machine (csrc/runtime/machine.h, csrc/runtime/microbenchmarks.h).
def instruction_sets() -> list[str]: ...
def usable_threads() -> int: ...
def cpu_quota(root: str) -> float: ...
def matrix_peak(threads: int, seconds: float) -> float: ...
def read_bandwidth(bytes: int, threads: int, seconds: float) -> float: ...
def triad_bandwidth(bytes: int, threads: int, seconds: float) -> float: ...
def microbenchmarks() -> dict[str, tuple[int, int]]: ...
def microbenchmark_tile(name: str, a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]: ...
def microbenchmark_sum(name: str, x: NDArray[np.float32]) -> NDArray[np.float32]: ...
def microbenchmark_triad(
    name: str, x: NDArray[np.float32], z: NDArray[np.float32], s: float
) -> NDArray[np.float32]: ...

# The engine's program (csrc/program.h). Members of an enum are looked up by name: Kind["linear"].
NONE: Final[int]

class Kind(Enum): ...
class Function(Enum): ...
class Numeric(Enum): ...
class LossKind(Enum): ...
class OptimizerKind(Enum): ...
class Group(Enum): ...

class Category:
    values: int
    table: int
    width: int

class Columns:
    numeric: Numeric
    n: int
    K: int
    D: int
    frequency: int
    phase: int
    weight: int
    bias: int
    edges: int
    categories: list[Category]

class CountedRange:
    inactive_low: float
    inactive_high: float
    flat_low: float
    flat_high: float

class Op:
    kind: Kind
    d_in: int
    d_out: int
    weight: int
    bias: int
    factor: float
    function: Function
    constant: float
    learned: int
    blend: int
    counted: CountedRange
    p: float
    part: int
    eps: float
    groups: int
    momentum: float
    mean: int
    var: int
    columns: Columns

class Parameter:
    size: int
    rate_factor: float
    decay_factor: float

class Loss:
    kind: LossKind
    constant: float
    quantiles: list[float]

class Optimizer:
    kind: OptimizerKind
    momentum: float
    beta1: float
    beta2: float
    eps: float

class Program:
    numeric: int
    d_out: int
    ops: list[Op]
    parameters: list[Parameter]
    buffers: list[int]
    loss: Loss
    optimizer: Optimizer
    seed: int
    l2: float
    clip_norm: float
    clip_value: float
    average: float
    statistics_every: int

# Cores and the tables they run over, in float and double. Arrays are held and not copied.
class _CoreTable:
    def __init__(
        self,
        x: NDArray[Any],
        codes: NDArray[np.int64] | None,
        classes: NDArray[np.int64] | None,
        y: NDArray[Any] | None,
        weight: NDArray[Any] | None,
    ) -> None: ...

class TableFloat(_CoreTable): ...
class TableDouble(_CoreTable): ...

class _Core:
    step: int
    bytes: Final[int]
    def run(
        self,
        table: _CoreTable,
        rows: NDArray[np.int64],
        ids: NDArray[np.int64],
        batch: int,
        epoch: int,
        rate: NDArray[np.float64],
        decay: NDArray[np.float64],
        dropout: NDArray[np.float64],
        count_units: bool = False,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], int | None, bool, NDArray[np.float64], NDArray[np.int64]]: ...
    def gradients(
        self, table: _CoreTable, rows: NDArray[np.int64], ids: NDArray[np.int64], epoch: int, dropout: float
    ) -> tuple[float, list[NDArray[Any]], list[NDArray[Any]]]: ...
    def apply(
        self, gradients: Sequence[NDArray[Any]], buffers: Sequence[NDArray[Any]], rate: float, decay: float
    ) -> float: ...
    def outputs(self, table: _CoreTable, rows: NDArray[np.int64], averaged: bool) -> NDArray[Any]: ...
    def stop(self) -> None: ...
    def read(self, group: Group) -> NDArray[Any]: ...
    def write(self, group: Group, place: int, values: NDArray[Any]) -> None: ...

class CoreFloat(_Core): ...
class CoreDouble(_Core): ...

def reference_float(program: Program) -> CoreFloat: ...
def reference_double(program: Program) -> CoreDouble: ...
def fused(program: Program, threads: int, kernels: str = "", *, all_threads: bool = False) -> CoreFloat: ...
def fused_kernels() -> list[str]: ...

# Prediction (csrc/predict/predict.h).
class PredictionCore:
    bytes: Final[int]
    def __init__(
        self,
        program: Program,
        parameters: Sequence[NDArray[np.float32]],
        buffers: Sequence[NDArray[np.float32]],
        threads: int,
        kernels: str = "",
        *,
        all_threads: bool = False,
    ) -> None: ...
    def outputs(self, x: NDArray[np.float32], codes: NDArray[np.int64] | None = None) -> NDArray[np.float32]: ...
