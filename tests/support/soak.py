"""The short and the full form of long tests: `SOAK=1 pytest` runs the full one."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FULL = os.environ.get("SOAK") == "1"


@contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder in memory where there is one: thousands of saves wait for no disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)
