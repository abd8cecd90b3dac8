"""A run on disk: what was asked for, what happened, and checkpoints to go on from."""

from __future__ import annotations

from .checkpoints import Loaded
from .folder import RESTORE, RunFolder, find, no_model

__all__ = ["RESTORE", "Loaded", "RunFolder", "find", "no_model"]
