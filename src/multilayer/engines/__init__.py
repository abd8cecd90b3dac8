"""Engines: what runs the steps. `protocol` says what each must do; they differ in speed, never in result.

The training loop belongs in `training`. The compiled core is in `csrc/`.
"""

from __future__ import annotations

from .protocol import Chunk, Engine, Gradients, Order, Settings, State, StepStatistics

__all__ = ["Chunk", "Engine", "Gradients", "Order", "Settings", "State", "StepStatistics"]
