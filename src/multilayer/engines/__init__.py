"""Engines run training steps and predictions. `protocol` defines their interface; their results agree.

The training loop belongs in `training`. The compiled core is in `csrc/`.
"""

from __future__ import annotations

from .protocol import Chunk, Engine, Gradients, Order, Settings, State, StepStatistics, UnitCounts

__all__ = ["Chunk", "Engine", "Gradients", "Order", "Settings", "State", "StepStatistics", "UnitCounts"]
