"""Looking inside a network: what every layer computed, forward and back."""

from __future__ import annotations

from .float64_model import Answer, Opened, opened
from .trace import Step, Trace, trace

__all__ = ["Answer", "Opened", "Step", "Trace", "opened", "trace"]
