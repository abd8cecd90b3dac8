"""Kill training runs in separate processes: `python tests/support/kill_runs.py FOLDER POINTS RANDOM ENGINE`.

If ENGINE is `recipe`, the runs use the default recipe for tables, reduced to two small members.

First, a run is trained without interruption. Then it is trained again in forks that are killed by SIGKILL: at POINTS
points of its saves, spread over the run, and at RANDOM random times. Each run is resumed; some are killed again before
they end. The model, the log and the checkpoints must be bit-identical to those of the uninterrupted run. The script
prints the number of cases as JSON.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from multilayer.core import atomic_files
from multilayer.runs import RunFolder
from multilayer.runs.events import Resume, same
from multilayer.training.fit import fit, resume
from multilayer.training.recipe import Recipe

OPTIONS: dict[str, Any] = {
    "engine": "auto",
    "epochs": 5,
    "batch_size": 16,
    "quiet": True,
    "report": False,
    "checkpoint_every": 7,
    "average": 0.9,
    "patience": 20,
    "learning_rate": 0.01,
}


def data() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(120, 3))
    return x, np.sin(x[:, 0]) + x[:, 1] * x[:, 2]


def train(path: Path) -> None:
    recipe = OPTIONS["engine"] == "recipe"
    options = OPTIONS | {"engine": "auto", "ensemble": 2} if recipe else OPTIONS
    fit(Recipe(hidden=(8,)) if recipe else "3-8:batchnorm:tanh:dropout(0.2)-1", data(), run=path, **options)


def continue_run(path: Path) -> None:
    if (path / "config.json").exists():
        resume(path, data=data(), quiet=True, report=False)
    else:  # killed before the run was created
        shutil.rmtree(path, ignore_errors=True)
        train(path)


def fork(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return pid


def die_at(point: int, work: Callable[[Path], None], path: Path) -> Callable[[], None]:
    def run() -> None:
        seen = 0

        def hook(name: str) -> None:
            nonlocal seen
            seen += 1
            if seen == point:
                os.kill(os.getpid(), signal.SIGKILL)

        atomic_files.hook = hook
        work(path)

    return run


def check(path: Path, whole: Path) -> bool:
    """Assert that a run equals the uninterrupted one. Return whether it was resumed."""
    resumed, uninterrupted = RunFolder.open(path), RunFolder.open(whole)
    assert resumed.model.read_bytes() == uninterrupted.model.read_bytes(), "the model differs"
    log = resumed.events()
    assert same(log, uninterrupted.events()), "the log differs"
    names = [sorted(p.name for p in folder.checkpoints.iterdir()) for folder in (resumed, uninterrupted)]
    assert names[0] == names[1], "the checkpoints differ"
    return any(isinstance(event, Resume) for event in log)


def main(root: Path, points: int, times: int) -> dict[str, int]:
    whole = root / "whole"
    started = time.perf_counter()
    passed: list[str] = []
    atomic_files.hook = passed.append
    train(whole)
    atomic_files.hook = None
    seconds = time.perf_counter() - started
    chance = random.Random(1)
    tried = {"at points of saves": 0, "at random times": 0, "twice": 0, "resumed": 0}

    def attempt(name: str, first: Callable[[], None], delay: float | None) -> None:
        path = root / name
        pid = fork(first)
        if delay is not None:
            time.sleep(delay)
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        if chance.random() < 0.3:
            pid = fork(lambda: continue_run(path))
            time.sleep(chance.random() * seconds)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            tried["twice"] += 1
        _, status = os.waitpid(fork(lambda: continue_run(path)), 0)
        assert status == 0, f"{name}: resuming failed"
        tried["resumed"] += check(path, whole)
        shutil.rmtree(path)

    for point in np.unique(np.linspace(1, len(passed), points).astype(int)).tolist():
        attempt(f"point{point}", die_at(point, train, root / f"point{point}"), None)
        tried["at points of saves"] += 1
    for i in range(times):
        path = root / f"time{i}"
        attempt(path.name, lambda path=path: train(path), chance.random() * seconds * 1.1)
        tried["at random times"] += 1
    return {**tried, "points of a run": len(passed)}


if __name__ == "__main__":
    OPTIONS["engine"] = sys.argv[4]
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
