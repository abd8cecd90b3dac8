"""What the tests of run folders share: a run of two steps, saves, and what stands in its folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crash import Do, perform, state_of
from multilayer import events
from multilayer.runs import RunFolder

Tried = Callable[[str, int], None]

TWO = [Do("create"), Do("best", 1), Do("last", 1), Do("best", 2), Do("last", 2)]


def made(path: Path, todo: list[Do] = TWO) -> Path:
    perform(path, todo)
    return path


def save(run: RunFolder, what: Any, step: int, salt: int = 0) -> events.Checkpoint:
    return run.checkpoint(state_of(Do(what, step, salt)), {"salt": salt}, what)


def names(path: Path) -> list[str]:
    return sorted(os.listdir(path / "checkpoints"))
