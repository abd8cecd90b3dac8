"""A run on disk: its configuration, its events, and checkpoints to resume from.

Training belongs in `training`. The file formats belong in `core`.
"""

from __future__ import annotations

from .checkpoints import Loaded
from .folder import RESTORE, RunFolder, find, next_number, no_model, numbered, runs_in

__all__ = ["RESTORE", "Loaded", "RunFolder", "find", "next_number", "no_model", "numbered", "runs_in"]
