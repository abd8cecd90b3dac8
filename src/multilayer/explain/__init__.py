"""Looking inside a network: what every layer computed, forward and back."""

from __future__ import annotations

from .opened import Opened, opened
from .trace import Step, Trace, trace

__all__ = ["Opened", "Step", "Trace", "opened", "trace"]
