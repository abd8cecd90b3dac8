"""A machine description with round numbers, for which predictions can be computed exactly."""

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
"""A machine with 1 GFLOP/s, whose memory traffic takes almost no time."""
