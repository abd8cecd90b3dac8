"""A machine of round figures, so that what is predicted for it can be said exactly."""

from __future__ import annotations

from multilayer.core.machine import Bandwidth, Cache, Machine

SLOW = Machine(
    processor="a slow one",
    instruction_sets=(),
    threads=1,
    caches=(Cache(level="L1", size=1 << 30, shared_by=1),),
    matrix_peak=((1, 1.0),),
    bandwidths=tuple(Bandwidth(level=n, threads=1, working_set=1, read=1e6, triad=1e6) for n in ("L1", "DRAM")),
    quick=False,
)
"""1 GFLOP/s, and memory that is next to free."""
