"""R1 and R2: runs that are killed at every point, and system errors at every point."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from multilayer.core import atomic_files
from multilayer.errors import StorageError
from multilayer.runs import RunFolder, events
from support import crash_saves
from support.crash_saves import perform, tree
from support.long_tests import FULL, memory_folder
from support.run_folders import Tried, made, save

# R1


def test_a_kill_at_every_point(tried: Tried) -> None:
    with memory_folder() as folder:
        command = [sys.executable, crash_saves.__file__, str(folder), *(["--full"] if FULL else [])]
        done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    matrix, at_random = json.loads(done.stdout)
    assert matrix["failures"] + at_random["failures"] == []
    # Points that only a failure reaches, such as removing an incomplete line, have their own tests.
    assert set(matrix["points"]) == set(atomic_files.POINTS) - {"log.take_back"}
    assert matrix["cases"].keys() == crash_saves.SCENARIOS.keys()
    assert min(matrix["cases"][name] for name in ("first save", "second save", "best and last")) >= 25
    tried("R1: kills at points of a save, scenarios of a run folder", sum(matrix["cases"].values()))
    tried("R1: kills of a saving process at random times", at_random["cases"]["random times"])
    assert sum(matrix["cases"].values()) >= 380
    assert max(at_random["done"]) > 10


# R2


ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EIO)
NO_CALL = ("checkpoint.begin", "checkpoint.committed", "checkpoint.pruned")
"""Points between system calls, at which nothing can fail."""


@pytest.mark.parametrize("scenario", crash_saves.SCENARIOS)
def test_an_error_at_every_point(folder: Path, scenario: str, tried: Tried) -> None:
    past, todo = crash_saves.SCENARIOS[scenario]
    base, path = folder / "base", folder / "run"
    perform(base, past)
    shutil.copytree(base, path) if base.exists() else None
    points, _ = crash_saves.listed(path, todo)
    cases = [(k, code) for k, point in enumerate(points) if point not in NO_CALL for code in ERRNOS]
    for k, code in cases if FULL else cases[::4]:
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(base, path) if base.exists() else None
        done, left = [0], iter(range(k, -1, -1))

        def count(done: list[int] = done) -> None:
            done[0] += 1

        def hook(_: str, left: Iterator[int] = left, code: int = code) -> None:
            if next(left, -1) == 0:
                raise OSError(code, os.strerror(code))

        atomic_files.hook = hook
        with pytest.raises(StorageError, match=rf"cannot .* \({errno.errorcode[code]}\): "):
            perform(path, todo, count)
        atomic_files.hook = None
        crash_saves.check(path, past, todo, done[0])
    tried("R2: errors of the system, scenarios of a run folder", len(cases if FULL else cases[::4]))
    assert len(cases) >= 5 * 8


@pytest.mark.parametrize("writes", range(4))
@pytest.mark.parametrize("code", [errno.ENOSPC, 0], ids=["full", "nothing taken"])
def test_short_writes(folder: Path, monkeypatch: pytest.MonkeyPatch, writes: int, code: int, tried: Tried) -> None:
    """The disk accepts half of a write, then nothing. The files on it stay unchanged."""
    run = RunFolder.open(made(folder / "run"), write=True)
    before, real, count = tree(run.path), os.write, [0]

    def half(file: int, data: Any) -> int:
        count[0] += 1
        if count[0] <= writes // 2:
            return real(file, data)
        if count[0] == writes // 2 + 1 and writes % 2:
            return real(file, data[: len(data) // 2])
        if code:
            raise OSError(code, os.strerror(code))
        return 0

    with monkeypatch.context() as patch:
        patch.setattr(atomic_files.os, "write", half)
        with pytest.raises(StorageError, match=r"disk is full|EIO"):
            save(run, "last", 3)
        with pytest.raises(StorageError, match=r"disk is full|EIO"):
            run.append(events.Notice(step=1, message="m", remedy="r"))
    assert tree(run.path) == before
    save(run, "last", 3)
    loaded = run.latest()
    assert loaded is not None
    assert loaded.step == 3
    tried("R2: short writes of a checkpoint", 1)


def test_a_real_disk_that_is_read_only(folder: Path) -> None:
    """In a read-only folder, reading works, and writing is a clear error."""
    path = made(folder / "run")
    before = tree(path)
    code = f"""
import os
from multilayer.runs import RunFolder
from multilayer.errors import StorageError
os.chdir("/")
if os.getuid() == 0:
    os.setuid(65534)
print(RunFolder.open({str(path)!r}).latest().step, RunFolder.open({str(path)!r}).best().step)
path = {str(path)!r}
for action in (lambda: RunFolder.open(path, write=True), lambda: RunFolder.create(path + "/x", config={{}})):
    try:
        action()
    except StorageError as error:
        print(error)
"""
    for part in (path.parent, path, path / "checkpoints"):
        part.chmod(0o555)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    for part in (path.parent, path, path / "checkpoints"):
        part.chmod(0o755)
    assert done.stdout.startswith("2 2\n"), done.stderr
    assert done.stdout.count("permission is missing") == 2
    assert tree(path) == before
