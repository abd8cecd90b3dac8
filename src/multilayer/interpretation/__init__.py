"""Explain a network: every number that a training step computes, layer by layer.

Statistics of a run belong in the report, in `pages`.
"""

from __future__ import annotations

from .float64_model import Answer, Float64Model, to_float64
from .trace import Step, Trace, trace

__all__ = ["Answer", "Float64Model", "Step", "Trace", "to_float64", "trace"]
