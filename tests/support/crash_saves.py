"""Kill a run at every point of a save, in separate processes: `python tests/support/crash_saves.py FOLDER [--full]`.

A scenario has the past actions of a run and its next actions. The next actions run once, to list the points that they
pass. Then each point has a fork that is killed by SIGKILL at that point, and each write to a file has a fork that is
killed halfway through the write. The fork reports through a pipe how many actions it completed. Afterward, the run must
be readable. Its state must be bit-identical to the state after that number of actions, or after one more. It must also
be possible to continue the run. The script prints the number of cases and the failures as JSON.
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
from typing import Any, NamedTuple

import numpy as np

from multilayer.core import atomic_files, tensor_file
from multilayer.engines import State
from multilayer.errors import RunError
from multilayer.runs import Loaded, RunFolder, events


class Do(NamedTuple):
    what: str
    step: int = 0
    salt: int = 0


SCENARIOS: dict[str, tuple[list[Do], list[Do]]] = {
    "create and first save": ([], [Do("create"), Do("last", 1)]),
    "first save": ([Do("create")], [Do("last", 1)]),
    "second save": ([Do("create"), Do("last", 1)], [Do("last", 2)]),
    "third save, the first is pruned": ([Do("create"), Do("last", 1), Do("last", 2)], [Do("last", 3)]),
    "best and last": (
        [Do("create"), *(Do(what, step) for step in (1, 2) for what in ("best", "last"))],
        [Do("event", 3), Do("best", 3), Do("event", 3), Do("last", 3), Do("event", 3)],
    ),
    "the same step again": ([Do("create"), Do("last", 1), Do("last", 2)], [Do("last", 2, 7)]),
    "the only step again": ([Do("create"), Do("last", 2)], [Do("last", 2, 7)]),
    "the same content again": ([Do("create"), Do("last", 1), Do("last", 2)], [Do("last", 2)]),
    "rollback to before a best checkpoint": (
        [Do("create"), Do("best", 1), Do("last", 2), Do("best", 3)],
        [Do("last", 2, 7), Do("best", 3, 7), Do("last", 4, 7)],
    ),
    "a best checkpoint older than the last": (
        [Do("create"), Do("best", 1), Do("last", 2)],
        [Do("best", 1), Do("last", 4)],
    ),
    "rollback to before a last checkpoint": (
        [Do("create"), Do("last", 1), Do("last", 2), Do("last", 3)],
        [Do("last", 2, 7), Do("last", 3, 7)],
    ),
    "events": ([Do("create"), Do("event", 1)], [Do("event", 2), Do("event", 3)]),
    "open a killed run": (
        [Do("create"), Do("last", 1), Do("event", 1), Do("litter")],
        [Do("reopen"), Do("event", 2), Do("last", 2)],
    ),
    "save the model twice": ([Do("create"), Do("model", 1)], [Do("model", 2)]),
}


def state_of(do: Do) -> State:
    w = np.random.default_rng([do.step, do.salt]).normal(size=(3, 2))
    return State(parameters={"linear1.weight": w}, optimizer={"mean": {"linear1.weight": w / 2}}, step=do.step)


def perform(path: Path, todo: list[Do], done: Callable[[], None] = lambda: None) -> None:
    """Perform actions on a run. Call `done` after each of them."""
    run: RunFolder | None = None
    try:
        for do in todo:
            if do.what == "create":
                run = RunFolder.create(path, config={"a": 1})
            elif do.what == "reopen" or run is None:
                if run is not None:
                    run.close()
                run = RunFolder.open(path, write=True)
            act(run, do)
            done()
    finally:
        if run is not None:
            run.close()


def act(run: RunFolder, do: Do) -> None:
    if do.what == "event":
        run.append(events.Notice(step=do.step, message="m", remedy="r", time=1.0))
    elif do.what == "model":
        tensor_file.save(run.model, {"network/w": np.arange(do.step)}, MODEL)
    elif do.what == "litter":
        (run.checkpoints / ".00000002-last.json.0123.tmp").write_bytes(b"{")
        (run.path / ".config.json.0123.tmp").write_bytes(b"")
        with run.log.open("ab") as log:
            log.write(b'{"event":"prog')
    elif do.what in ("last", "best"):
        run.checkpoint(state_of(do), {"salt": do.salt}, do.what)  # pyright: ignore[reportArgumentType]


ENDS = (".safetensors", ".json")
MODEL = {"spec": {}, "encoding": {}, "loss": "mse"}


class Stand(NamedTuple):
    """The state of a run after some actions."""

    created: bool
    last: Do | None
    best: Do | None
    events: int
    model: int


def stand_after(todo: list[Do]) -> Stand:
    """Return the expected state after these actions, computed without files."""
    saved: dict[tuple[int, str], Do] = {}
    for do in todo:
        if do.what in ("last", "best"):
            if do.what == "last":
                saved = {place: other for place, other in saved.items() if place[0] <= do.step}
            saved[do.step, do.what] = do
    lasts = [do for (_, what), do in sorted(saved.items()) if what == "last"]
    last = lasts[-1] if lasts else None
    bests = [do for (step, what), do in sorted(saved.items()) if what == "best" and (not last or step <= last.step)]
    return Stand(
        created=any(do.what == "create" for do in todo),
        last=last,
        best=bests[-1] if bests else None,
        events=sum(do.what == "event" for do in todo),
        model=max((do.step for do in todo if do.what == "model"), default=0),
    )


def stand_on_disk(path: Path) -> Stand:
    try:
        run = RunFolder.open(path)
    except RunError:
        return Stand(created=False, last=None, best=None, events=0, model=0)
    last = run.latest()
    best = run.best(at=None if last is None else last.step)
    model = len(tensor_file.load(run.model)[0]["network/w"]) if run.model.exists() else 0
    return Stand(created=True, last=_as_do(last), best=_as_do(best), events=len(run.events()), model=model)


def _as_do(loaded: Loaded | None) -> Do | None:
    if loaded is None:
        return None
    do = Do(loaded.event.kind, loaded.step, loaded.extra["salt"])
    assert loaded.state.equals(state_of(do)), "the loaded state differs from the saved one"
    assert not any("skipped" in note for note in loaded.notes), loaded.notes
    return do


def tree(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def check(path: Path, past: list[Do], todo: list[Do], done: int) -> None:
    """Check a run after a process was killed that had completed `done` actions."""
    before = tree(path)
    found = stand_on_disk(path)
    assert tree(path) == before, "reading the run changed its files"
    allowed = [stand_after(past + todo[:i]) for i in (done, done + 1)]
    for field, value in found._asdict().items():
        assert value in [getattr(stand, field) for stand in allowed], (
            f"{field} must be as in one of {allowed}, got {value}"
        )
    # The run can continue, and incomplete files are removed.
    ahead = max((do.step for do in past + todo), default=0) + 1
    perform(path, [Do("reopen") if found.created else Do("create"), Do("last", ahead), Do("event", ahead)])
    again = stand_on_disk(path)
    assert (again.last, again.events) == (Do("last", ahead), found.events + 1), again
    names = [str(file.relative_to(path)) for file in path.rglob("*")]
    assert not [name for name in names if name.endswith(atomic_files.TEMPORARY)], names
    data, notes = ([name for name in names if name.startswith("checkpoints") and name.endswith(end)] for end in ENDS)
    assert len(data) == len(notes), names


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def in_fork(path: Path, todo: list[Do], arm: Callable[[], None], delay: float | None = None) -> int:
    """Perform actions in a process that is killed. Return the number of completed actions."""
    get, put = os.pipe()
    write = os.write
    child = os.fork()
    if child == 0:
        os.close(get)
        arm()
        perform(path, todo, lambda: (write(put, b"."), None)[1])
        os._exit(0)
    os.close(put)
    if delay is not None:
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert killed or delay is not None, f"the process must be killed by SIGKILL, got status {status}"
    done = 0
    while part := os.read(get, 65536):
        done += len(part)
    os.close(get)
    return done


def at_point(k: int) -> None:
    remaining = iter(range(k, -1, -1))
    atomic_files.hook = lambda name: die() if next(remaining) == 0 else None


def at_write(k: int) -> None:
    """Kill the process after half of the bytes of the k-th write to a file."""
    remaining, write = iter(range(k, -1, -1)), os.write

    def half(file: int, data: Any) -> int:
        if next(remaining) == 0:
            write(file, data[: len(data) // 2])
            die()
        return write(file, data)

    os.write = half


def listed(path: Path, todo: list[Do]) -> tuple[list[str], int]:
    """Return the points that the actions pass, and the number of writes to files."""
    names: list[str] = []
    writes, write = [0], os.write

    def counted(file: int, data: Any) -> int:
        writes[0] += 1
        return write(file, data)

    atomic_files.hook, os.write = names.append, counted
    try:
        perform(path, todo)
    finally:
        atomic_files.hook, os.write = None, write
    return names, writes[0]


def matrix(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"points": [], "cases": {}, "failures": []}
    for name, (past, todo) in SCENARIOS.items():
        base, path = folder / "base", folder / "run"
        perform(base, past)
        _copy(base, path)
        names, writes = listed(path, todo)
        found["points"] += names
        deaths = [(at_point, k, names[k]) for k in range(len(names))]
        deaths += [(at_write, k, f"half of write {k}") for k in range(writes)]
        found["cases"][name] = len(deaths)
        for arm, k, label in deaths:
            _copy(base, path)
            try:
                done = in_fork(path, todo, lambda arm=arm, k=k: arm(k))
                check(path, past, todo, done)
            except Exception as error:
                found["failures"].append(f"{name}, {label} ({k}): {type(error).__name__}: {error}")
        shutil.rmtree(base, ignore_errors=True)
    return found


def at_random(folder: Path, count: int) -> dict[str, Any]:
    """Kill a process that saves continuously, after a random time."""
    generator = random.Random(0)
    todo = [Do("create")]
    for step in range(1, 400):
        todo += [Do("event", step), Do("last", step)] + ([Do("best", step), Do("event", step)] if step % 3 == 0 else [])
    found: dict[str, Any] = {"cases": {"random times": count}, "failures": [], "done": []}
    for i in range(count):
        path = folder / f"random{i}"
        try:
            done = in_fork(path, todo, lambda: None, delay=generator.uniform(0, 0.15))
            found["done"].append(done)
            check(path, [], todo[: done + 1], done)
        except Exception as error:
            found["failures"].append(f"random time {i}: {type(error).__name__}: {error}")
        shutil.rmtree(path, ignore_errors=True)
    return found


def _copy(base: Path, path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    if base.exists():
        shutil.copytree(base, path)


if __name__ == "__main__":
    root = Path(sys.argv[1])
    print(json.dumps([matrix(root), at_random(root, 200 if "--full" in sys.argv else 20)]))
