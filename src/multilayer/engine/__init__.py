"""Engines: what runs the steps. `protocol` says what each must do; they differ in speed, never in result."""

from __future__ import annotations

from .protocol import Augment, Batch, Chunk, Data, Engine, Gradients, Order, Settings, Tap
from .state import State

__all__ = ["Augment", "Batch", "Chunk", "Data", "Engine", "Gradients", "Order", "Settings", "State", "Tap"]
