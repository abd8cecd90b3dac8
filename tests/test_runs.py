"""The run folder: R1 (kills), R2 (errors of the system) and R3 (damage) over checkpoints and the log."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crash
from crash import Do, perform, stand_after, stand_on_disk, state_of, tree
from multilayer import events, storage
from multilayer.engine import State
from multilayer.errors import EventError, FileError, RunError, StorageError
from multilayer.runs import RunFolder, find
from soak import FULL, memory_folder

Tried = Callable[[str, int], None]

TWO = [Do("create"), Do("best", 1), Do("last", 1), Do("best", 2), Do("last", 2)]


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as path:
        yield path
    storage.hook = None


def made(path: Path, todo: list[Do] = TWO) -> Path:
    perform(path, todo)
    return path


def save(run: RunFolder, what: Any, step: int, salt: int = 0) -> events.Checkpoint:
    return run.checkpoint(state_of(Do(what, step, salt)), {"salt": salt}, what)


def names(path: Path) -> list[str]:
    return sorted(os.listdir(path / "checkpoints"))


# Making and opening


def test_a_run_from_its_making_to_its_reading(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", config={"seed": 3, "arch": "2-1", "ü": [1.5, None]}) as run:
        first = events.Start(
            step=0, network="2-1", parameters=3, rows=4, engine="numpy", seed=3, config={}, versions={}, time=5.0
        )
        run.append(first)
        told = save(run, "last", 7)
        run.append(told)
    again = RunFolder.open(tmp_path / "run")
    assert again.config == {"seed": 3, "arch": "2-1", "ü": [1.5, None]}
    read = again.events()
    assert read[0] == first
    assert events.same(read, [first, told])
    assert read[1].time is not None
    loaded = again.latest()
    assert loaded is not None
    assert loaded.state.equals(state_of(Do("last", 7)))
    assert (loaded.extra, loaded.step, loaded.path, loaded.event, loaded.notes) == ({"salt": 0}, 7, told.path, told, ())
    assert (again.path / told.path).is_file()
    assert again.best() is None
    assert sorted(os.listdir(again.path)) == [".lock", "checkpoints", "config.json", "events.jsonl"]


def test_runs_count_up(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    assert find(root) == []
    made = [
        RunFolder.create(config={}, name=name, root=root) for name in ("digits", "digits", "a b/../c.csv", "..", "")
    ]
    assert [run.path.name for run in made] == ["digits-001", "digits-002", "a-b-..-c.csv-001", "run-001", "run-002"]
    assert all(run.path.parent == root for run in made)
    (root / "digits-041").mkdir()
    assert RunFolder.create(config={}, name="digits", root=root).path.name == "digits-042"
    assert len(find(root)) == 6


def test_several_processes_each_get_their_own(tmp_path: Path) -> None:
    code = (
        f"from multilayer.runs import RunFolder\nprint(RunFolder.create(config={{}}, root={str(tmp_path)!r}).path.name)"
    )
    command = [sys.executable, "-c", code]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert sorted(process.communicate()[0].strip() for process in started) == [f"run-00{i}" for i in range(1, 5)]


def test_the_default_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert RunFolder.create(config={}, name="digits").path == Path("runs/digits-001")
    assert find() == [Path("runs/digits-001")]


def test_what_is_no_place_for_a_run(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    RunFolder.create(tmp_path / "empty", config={}).close()
    with pytest.raises(
        RunError, match=r"a new or empty folder, .*empty has checkpoints: choose another path, or resume"
    ):
        RunFolder.create(tmp_path / "empty", config={})
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="a part of the path is a file"):
        RunFolder.create(tmp_path / "file", config={})
    with pytest.raises(FileError, match="saved as JSON"):
        RunFolder.create(tmp_path / "new", config={"a": float("nan")})
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "not JSON"),
        (b"{}", "not the configuration of a run"),
        (b"[]", "not the configuration of a run"),
        (b'{"config":{},"format":"multilayer-run","version":2}', "version must be at most 1, got 2: update multilayer"),
        (b'{"config":{},"format":"multilayer-run","version":true}', "got True: no such version exists"),
        (b'{"config":[],"format":"multilayer-run","version":1}', "not the configuration of a run"),
    ],
)
def test_what_is_no_run(tmp_path: Path, text: bytes, message: str) -> None:
    with pytest.raises(RunError, match="there is no run at"):
        RunFolder.open(tmp_path / "none")
    with pytest.raises(RunError, match="is not a run: it has no config"):
        RunFolder.open(tmp_path)
    (tmp_path / "config.json").write_bytes(text)
    with pytest.raises((RunError, FileError), match=message):
        RunFolder.open(tmp_path, write=True)
    (tmp_path / "config.json").write_bytes(b'{"config":{"a":1},"format":"multilayer-run","version":1}')
    with RunFolder.open(tmp_path, write=True) as run:  # the failure released its lock
        assert run.config == {"a": 1}


# The lock


def test_one_writer_and_any_number_of_readers(folder: Path) -> None:
    with RunFolder.create(folder / "run", config={}) as run:
        with pytest.raises(RunError, match="is open in this process: wait for it to end, or choose another run"):
            RunFolder.open(run.path, write=True)
        for _ in range(3):
            reader = RunFolder.open(run.path)
            with pytest.raises(RunError, match="not open for writing: open it with write=True"):
                save(reader, "last", 1)
            with pytest.raises(RunError, match="not open for writing"):
                reader.append(events.Notice(step=0, message="", remedy=""))
        code = f"from multilayer.runs import RunFolder\nRunFolder.open({str(run.path)!r}, write=True)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert f"is open in process {os.getpid()}" in done.stderr
    with pytest.raises(RunError, match="not open for writing"):
        save(run, "last", 1)
    RunFolder.open(folder / "run", write=True).close()


def test_the_lock_of_a_killed_process_is_gone(folder: Path) -> None:
    code = (
        "import os, signal\nfrom multilayer.runs import RunFolder\n"
        f"run = RunFolder.create({str(folder / 'run')!r}, config={{}})\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    assert (folder / "run" / ".lock").read_text().isdigit()
    RunFolder.open(folder / "run", write=True).close()


def test_a_disk_without_locks_is_taken_as_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from multilayer.runs import lock

    def none(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(lock.fcntl, "flock", none)
    RunFolder.create(folder / "run", config={}).close()
    monkeypatch.setattr(lock.fcntl, "flock", lambda *_: os.fsync(10**6))
    with pytest.raises(StorageError, match=r"cannot lock .*EBADF"):
        RunFolder.open(folder / "run", write=True)


# Events


def test_a_torn_last_line_is_dropped_and_a_damaged_one_named(folder: Path) -> None:
    run = RunFolder.create(folder / "run", config={})
    assert RunFolder.open(run.path).events() == []
    for step in range(3):
        run.append(events.Notice(step=step, message="a\nb ü \u2028", remedy="r"))
    whole = run.log.read_bytes()
    assert whole.count(b"\n") == 3
    for cut in range(len(whole)):
        run.log.write_bytes(whole[:cut])
        assert len(run.events()) == whole[:cut].count(b"\n")
    lines = whole.split(b"\n")
    for damage, message in (
        (b"", "events.jsonl, line 2: not JSON"),
        (b"{", "line 2: not JSON"),
        (b"[]", "line 2: an event must be a JSON object"),
        (b'{"event":"none"}', "line 2: unknown event 'none'"),
        (lines[1][:-1], "line 2: not JSON"),
        (b"\0" * 10, "line 2: not JSON"),
        (b"\xff", "line 2: not UTF-8"),
    ):
        run.log.write_bytes(b"\n".join([lines[0], damage, lines[2], b""]))
        with pytest.raises((EventError, FileError), match=message):
            run.events()


def test_events_as_they_count(folder: Path) -> None:
    with RunFolder.create(folder / "run", config={}) as run:
        told = [events.Notice(step=step, message="m", remedy="r", time=1.0) for step in range(4)]
        for event in told:
            run.append(event)
        assert run.events() == told
        assert run.events(effective=True) == events.effective(told)


def test_the_clock_is_the_events_alone(folder: Path) -> None:
    """Two runs of the same things are equal files, but for the time of an event."""
    for name in ("a", "b"):
        made(folder / name)
        time.sleep(0.01)
    a, b = (tree(folder / name) for name in ("a", "b"))
    assert a.pop(".lock") == b.pop(".lock")
    assert a == b


# Which checkpoints are kept


def test_which_are_kept(folder: Path) -> None:
    with RunFolder.create(folder / "run", config={}) as run:
        for step in range(1, 8):
            if step in (1, 2, 6):
                save(run, "best", step)
            save(run, "last", step)
            places = {name[:13] for name in names(run.path)}
            lasts = [f"{n:08d}-last" for n in (step - 1, step) if n > 0]
            at = [max((b for b in (1, 2, 6) if b <= n), default=0) for n in (step - 1, step)]
            assert places == {*lasts, *(f"{n:08d}-best" for n in at if n)}
            assert len(names(run.path)) == 2 * len(places)
        latest, best = run.latest(), run.best()
        assert latest is not None
        assert best is not None
        assert (latest.step, best.step) == (7, 6)
        assert (latest.notes, best.notes) == ((), ())


def test_a_rollback_takes_back_what_came_after(folder: Path) -> None:
    with RunFolder.create(folder / "run", config={}) as run:
        for what, step in (("best", 1), ("last", 1), ("last", 2), ("best", 3)):
            save(run, what, step)
        best = run.best(at=2)
        assert best is not None
        assert best.step == 1
        save(run, "last", 2, salt=5)
        for found, step in ((run.latest(), 2), (run.best(), 1)):
            assert found is not None
            assert found.step == step
        latest = run.latest()
        assert latest is not None
        assert latest.extra == {"salt": 5}


def test_going_back_behind_a_last(folder: Path) -> None:
    with RunFolder.open(made(folder / "run", [Do("create"), *(Do("last", n) for n in (1, 2, 3))]), write=True) as run:
        save(run, "last", 2, salt=5)
        latest = run.latest()
        assert latest is not None
        assert (latest.step, latest.extra) == (2, {"salt": 5})
        assert not [name for name in names(run.path) if name.startswith("00000003")]


def test_names_follow_from_content(folder: Path) -> None:
    """A resumed run tells of the same paths and hashes as one that was never broken."""
    unbroken = made(folder / "a", [Do("create"), Do("last", 1), Do("last", 2), Do("last", 3)])
    broken = made(folder / "b", [Do("create"), Do("last", 1), Do("reopen"), Do("last", 2), Do("reopen"), Do("last", 3)])
    assert names(unbroken) == names(broken)


def test_what_cannot_be_saved_leaves_nothing(folder: Path) -> None:
    with RunFolder.open(made(folder / "run"), write=True) as run:
        before = tree(run.path)
        for state, extra, message in (
            (state_of(Do("last", 3)), {"a": float("inf")}, "saved as JSON"),
            (State(parameters={"w": np.array(["a"])}, step=3), {}, "must hold numbers"),  # pyright: ignore
            (State(parameters={"../w": np.zeros(1)}, step=3), {}, "a tensor's name"),
        ):
            with pytest.raises(FileError, match=message):
                run.checkpoint(state, extra, "last")
        assert tree(run.path) == before


def test_empty_and_wide_states(folder: Path) -> None:
    with RunFolder.create(folder / "run", config={}) as run:
        for step, w in enumerate(
            (np.zeros((0, 3)), np.float32(1).reshape(()), np.arange(6.0).reshape(2, 3).T), start=1
        ):
            state = State(parameters={"w": w}, averages={"w": w}, step=step, rate_factor=0.1)
            run.checkpoint(state, {}, "last")
            loaded = run.latest()
            assert loaded is not None
            assert loaded.state.equals(state)


# R1


def test_a_kill_at_every_point(tried: Tried) -> None:
    with memory_folder() as folder:
        command = [sys.executable, crash.__file__, str(folder), *(["--full"] if FULL else [])]
        done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    matrix, at_random = json.loads(done.stdout)
    assert matrix["failures"] + at_random["failures"] == []
    # What only a failure passes has its own tests: a line that is taken back.
    assert set(matrix["points"]) == set(storage.POINTS) - {"log.take_back"}
    assert matrix["cases"].keys() == crash.SCENARIOS.keys()
    assert min(matrix["cases"][name] for name in ("first save", "second save", "best and last")) >= 25
    tried("R1: kills at points of a save, scenarios of a run folder", sum(matrix["cases"].values()))
    tried("R1: kills of a saving process at random times", at_random["cases"]["random times"])
    assert sum(matrix["cases"].values()) >= 380
    assert max(at_random["done"]) > 10


# R2


ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EIO)
NO_CALL = ("checkpoint.begin", "checkpoint.committed", "checkpoint.pruned")
"""Points between the calls to the system, where none can fail."""


@pytest.mark.parametrize("scenario", crash.SCENARIOS)
def test_an_error_at_every_point(folder: Path, scenario: str, tried: Tried) -> None:
    past, todo = crash.SCENARIOS[scenario]
    base, path = folder / "base", folder / "run"
    perform(base, past)
    shutil.copytree(base, path) if base.exists() else None
    points, _ = crash.listed(path, todo)
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

        storage.hook = hook
        with pytest.raises(StorageError, match=rf"cannot .* \({errno.errorcode[code]}\): "):
            perform(path, todo, count)
        storage.hook = None
        crash.check(path, past, todo, done[0])
    tried("R2: errors of the system, scenarios of a run folder", len(cases if FULL else cases[::4]))
    assert len(cases) >= 5 * 8


@pytest.mark.parametrize("writes", range(4))
@pytest.mark.parametrize("code", [errno.ENOSPC, 0], ids=["full", "nothing taken"])
def test_short_writes(folder: Path, monkeypatch: pytest.MonkeyPatch, writes: int, code: int, tried: Tried) -> None:
    """The disk takes half of a write, then no more; a full disk is left as it was found."""
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
        patch.setattr(storage.os, "write", half)
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
    """Folders that may not be written to: reading works, writing says why."""
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


# R3


def damages(path: Path, *, flips: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """Ways to damage the newest `last` checkpoint, each with its name."""
    checkpoints = path / "checkpoints"
    note, data = checkpoints / "00000002-last.json", next(checkpoints.glob("00000002-last-*"))
    older, best = next(checkpoints.glob("00000001-last-*")), next(checkpoints.glob("00000002-best-*"))
    generator = random.Random(0)

    def put(target: Path, content: bytes) -> Callable[[], None]:
        return lambda: (target.write_bytes(content), None)[1]

    for target, share in ((data, 0.7), (note, 0.3)):
        content = target.read_bytes()
        bits = [(place, bit) for place in range(len(content)) for bit in range(8)]
        for place, bit in bits if FULL else generator.sample(bits, round(flips * share)):
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            yield f"{target.suffix}: bit {bit} of byte {place}", put(target, bytes(changed))
        cuts = range(len(content)) if FULL else sorted({0, 1, 7, 8, 9, *range(0, len(content), len(content) // 20)})
        for cut in cuts:
            yield f"{target.suffix}: cut to {cut}", put(target, content[:cut])
        for more in (b"\0", b"\n", b" ", content):
            yield f"{target.suffix}: {len(more)} bytes more", put(target, content + more)
        yield f"{target.suffix}: zeros", put(target, b"\0" * len(content))
        yield f"{target.suffix}: gone", target.unlink
    yield "another step's data", put(data, older.read_bytes())
    yield "another kind's data", put(data, best.read_bytes())
    yield "another step's note", put(note, (checkpoints / "00000001-last.json").read_bytes())
    yield "another kind's note", put(note, (checkpoints / "00000002-best.json").read_bytes())
    yield "a note of a newer version", put(note, note.read_bytes().replace(b'"version":1', b'"version":2'))
    yield "a note of a wrong hash", put(note, note.read_bytes().replace(data.name[14:22].encode(), b"00000000"))
    yield "a folder", lambda: (data.unlink(), data.mkdir(), None)[2]
    yield "a pipe", lambda: (data.unlink(), os.mkfifo(data), None)[2]
    yield "a link to itself", lambda: (data.unlink(), data.symlink_to(data.name), None)[2]


def restore(path: Path, content: dict[str, bytes]) -> None:
    for name in names(path):
        target = path / "checkpoints" / name
        if str(target.relative_to(path)) in content and target.is_file() and not target.is_symlink():
            continue
        target.rmdir() if target.is_dir() else target.unlink()
    for name, data in content.items():
        (path / name).write_bytes(data)


def test_damage_is_found_and_told(folder: Path, tried: Tried) -> None:
    path = made(folder / "run")
    whole, count = tree(path), 0
    for name, damage in damages(path, flips=500):
        damage()
        loaded = RunFolder.open(path).latest()
        assert loaded is not None, name
        assert loaded.step == 1, name
        assert loaded.state.equals(state_of(Do("last", 1))), name
        told = f"the last checkpoint of step 2 was {'not finished' if name == '.json: gone' else 'passed over'}: "
        assert any(note.startswith(told) for note in loaded.notes), (name, loaded.notes)
        restore(path, whole)
        count += 1
    assert stand_on_disk(path) == stand_after(TWO)
    tried("R3: damaged checkpoints, fallback told", count)
    assert count >= 500 + 40 + 9


def test_damage_to_all_is_an_error(folder: Path) -> None:
    path = made(folder / "run")
    for file in (path / "checkpoints").glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:-1])
    run = RunFolder.open(path)
    with pytest.raises(
        RunError, match=r"no last checkpoint that is whole: .*step 2 was passed over.*step 1 was passed"
    ):
        run.latest()
    with pytest.raises(RunError, match=r"no best checkpoint that is whole: .*step 2"):
        run.best()


def test_a_damaged_best_falls_back_too(folder: Path) -> None:
    path = made(folder / "run")
    next((path / "checkpoints").glob("00000002-best-*")).write_bytes(b"")
    best = RunFolder.open(path).best()
    assert best is not None
    assert best.step == 1
    assert "the best checkpoint of step 2 was passed over" in best.notes[0]


def test_going_on_after_damage(folder: Path) -> None:
    """The run goes on from the older one; what it makes then is whole, and damaged notes are swept away."""
    path = made(folder / "run")
    (path / "checkpoints" / "00000002-last.json").write_bytes(b"")
    with RunFolder.open(path, write=True) as run:
        save(run, "last", 3)
        assert [name for name in names(path) if "-last." in name] == ["00000001-last.json", "00000003-last.json"]
        latest = run.latest()
    assert latest is not None
    assert (latest.step, latest.notes) == (3, ())


def test_a_state_that_is_none(folder: Path) -> None:
    """A file that is whole by its hashes and still no state of training."""
    from multilayer import files
    from multilayer.runs import checkpoints

    path = made(folder / "run")
    for tensors, about in (
        ({"counters": np.zeros(3)}, {"extra": {}, "purpose": "last", "step": 2}),
        ({"counters": np.zeros(())}, {"extra": {}, "purpose": "last", "step": 2}),
        ({}, {"extra": {}, "purpose": "last", "step": 2}),
        ({"counters": np.array([np.nan, 1])}, {"extra": {}, "purpose": "last", "step": 2}),
        ({"counters": np.array([9.0, 1])}, {"extra": {}, "purpose": "last", "step": 2}),
        ({"counters": np.array([2.0, 1])}, {"extra": {}, "purpose": "last", "step": 3}),
        ({"counters": np.array([2.0, 1])}, {"extra": [], "purpose": "last", "step": 2}),
        ({"counters": np.array([2.0, 1])}, {"extra": {}, "purpose": "best", "step": 2}),
    ):
        place = checkpoints.Place(2, "last")
        sha256 = files.save(path / "made", tensors, about, kind="checkpoint")
        os.replace(path / "made", path / "checkpoints" / place.data(sha256))
        (path / "checkpoints" / place.note).write_text(checkpoints._note_text(place, sha256))
        loaded = RunFolder.open(path).latest()
        assert loaded is not None
        assert loaded.step == 1
        assert "the last checkpoint of step 2 was passed over" in loaded.notes[0]


def test_reading_while_another_process_writes(folder: Path) -> None:
    """A reader sees a checkpoint that is whole however often the writer takes old ones away."""
    path = made(folder / "run", [Do("create"), Do("last", 1)])
    code = f"import sys\nsys.path.insert(0, {os.path.dirname(crash.__file__)!r})\nfrom crash import *\n" + (
        f"perform(Path({str(path)!r}), [Do('last', step) for step in range(2, 200)])"
    )
    writer = subprocess.Popen([sys.executable, "-c", code])
    seen: list[int] = []
    while writer.poll() is None:
        loaded = RunFolder.open(path).latest()
        assert loaded is not None
        seen.append(loaded.step)
    assert writer.returncode == 0
    assert seen == sorted(seen)
    assert len(set(seen)) > 10
