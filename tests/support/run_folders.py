"""Shared by the tests of runs and their folders: a run with two steps, saves, its files, and an unfinished run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from multilayer.models.trained_model import TrainedModel
from multilayer.runs import RunFolder, events
from multilayer.training.fit import Run
from support.crash_saves import Do, perform, state_of

Tried = Callable[[str, int], None]

TWO = [Do("create"), Do("best", 1), Do("last", 1), Do("best", 2), Do("last", 2)]


def made(path: Path, todo: list[Do] = TWO) -> Path:
    perform(path, todo)
    return path


def save(run: RunFolder, what: Any, step: int, salt: int = 0) -> events.Checkpoint:
    return run.checkpoint(state_of(Do(what, step, salt)), {"salt": salt}, what)


def names(path: Path) -> list[str]:
    return sorted(os.listdir(path / "checkpoints"))


def parameters(run: Run) -> list[bytes]:
    """Return the bytes of the parameters of a run's model."""
    assert run.model is not None
    return [run.model.tensors[name].tobytes() for name in sorted(run.model.tensors)]


def unfinished(run: Path) -> None:
    """Remove the last event, as if the process had been killed before it was written."""
    log = run / "events.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))


def contents(model: TrainedModel | None) -> tuple[Any, ...]:
    """Return everything that determines the predictions."""
    assert model is not None
    calibration = model.calibration
    learned = None if calibration is None else (calibration.temperature, np.asarray(calibration.errors).tobytes())
    return str(model.spec), {name: value.tobytes() for name, value in model.tensors.items()}, learned
