"""Long tests have a short and a full form. `SOAK=1 pytest` runs the full form."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FULL = os.environ.get("SOAK") == "1"


@contextmanager
def memory_folder() -> Iterator[Path]:
    """Create a temporary folder, in memory if possible, so that thousands of saves are fast."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)
