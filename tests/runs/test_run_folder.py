"""The run folder: creating and opening it, its log, and which checkpoints are kept."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multilayer.engines import State
from multilayer.errors import EventError, FileError, RunError, StorageError
from multilayer.runs import RunFolder, events, find, next_number, numbered
from support.crash_saves import Do, state_of, tree
from support.run_folders import made, names, save

# Making and opening


def test_create_write_and_read_a_run(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", config={"seed": 3, "arch": "2-1", "ü": [1.5, None]}) as run:
        first = events.Start(
            step=0,
            network="2-1",
            parameters=3,
            rows=4,
            engine="numpy",
            seed=3,
            config={},
            versions={},
            time=5.0,
            run=run.id,
        )
        run.append(first)
        event = save(run, "last", 7)
        run.append(event)
    again = RunFolder.open(tmp_path / "run")
    assert again.config == {"seed": 3, "arch": "2-1", "ü": [1.5, None]}
    read = again.events()
    assert read[0] == first
    assert events.same(read, [first, event])
    assert read[1].time is not None
    loaded = again.latest()
    assert loaded is not None
    assert loaded.state.equals(state_of(Do("last", 7)))
    assert (loaded.extra, loaded.step, loaded.path, loaded.event, loaded.notes) == (
        {"salt": 0},
        7,
        event.path,
        event,
        (),
    )
    assert (again.path / event.path).is_file()
    assert again.best() is None
    assert sorted(os.listdir(again.path)) == [".lock", "checkpoints", "config.json", "events.jsonl"]


def test_runs_are_numbered(tmp_path: Path) -> None:
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


def test_several_processes_get_different_numbers(tmp_path: Path) -> None:
    code = (
        f"from multilayer.runs import RunFolder\nprint(RunFolder.create(config={{}}, root={str(tmp_path)!r}).path.name)"
    )
    command = [sys.executable, "-c", code]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert sorted(process.communicate()[0].strip() for process in started) == [f"run-00{i}" for i in range(1, 5)]


def test_a_numbered_folder_is_kept_if_it_is_not_empty(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    with numbered("größe", root) as folder:
        assert folder == root / "größe-001"
        assert folder.is_dir()
    assert not root.exists()
    root.mkdir()
    with (
        numbered("a", root) as first,
        numbered("a", root) as second,
    ):  # the folder exists at once, so the number is used
        RunFolder.create(second, config={}).close()
    assert (first.name, second.name) == ("a-001", "a-002")
    assert [path.name for path in root.iterdir()] == ["a-002"]
    assert next_number(root, "a") == 3


def test_the_default_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert RunFolder.create(config={}, name="digits").path == Path("runs/digits-001")
    assert find() == [Path("runs/digits-001")]


def test_invalid_paths_of_a_new_run(tmp_path: Path) -> None:
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
def test_invalid_configurations(tmp_path: Path, text: bytes, message: str) -> None:
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


def test_the_lock_of_a_killed_process_is_released(folder: Path) -> None:
    code = (
        "import os, signal\nfrom multilayer.runs import RunFolder\n"
        f"run = RunFolder.create({str(folder / 'run')!r}, config={{}})\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    assert (folder / "run" / ".lock").read_text().isdigit()
    RunFolder.open(folder / "run", write=True).close()


def test_a_file_system_without_locks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from multilayer.runs import folder as runs_folder

    def none(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(runs_folder.fcntl, "flock", none)
    RunFolder.create(folder / "run", config={}).close()
    monkeypatch.setattr(runs_folder.fcntl, "flock", lambda *_: os.fsync(10**6))
    with pytest.raises(StorageError, match=r"cannot lock .*EBADF"):
        RunFolder.open(folder / "run", write=True)


# Events


def test_an_incomplete_last_line_is_ignored_and_a_damaged_line_is_an_error(folder: Path) -> None:
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


def test_effective_events(folder: Path) -> None:
    with RunFolder.create(folder / "run", config={}) as run:
        expected = [events.Notice(step=step, message="m", remedy="r", time=1.0) for step in range(4)]
        for event in expected:
            run.append(event)
        assert run.events() == expected
        assert run.events(effective=True) == events.effective(expected)


def test_only_events_contain_the_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same calls at another time give the same files, except for the times of events."""
    for name, now in (("a", 1e9), ("b", 2e9)):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        with RunFolder.open(made(folder / name), write=True) as run:
            run.append(events.Notice(step=1, message="m", remedy="r"))
    a, b = (tree(folder / name) for name in ("a", "b"))
    assert a.pop(".lock") == b.pop(".lock")
    log = a.pop("events.jsonl")
    assert log.count(b"1000000000.0") == 1
    assert b.pop("events.jsonl") == log.replace(b"1000000000.0", b"2000000000.0")
    assert a == b


# Which checkpoints are kept


def test_which_checkpoints_are_kept(folder: Path) -> None:
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


def test_a_rollback_deletes_later_checkpoints(folder: Path) -> None:
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


def test_rewinding_to_a_step_before_a_last_checkpoint(folder: Path) -> None:
    with RunFolder.open(made(folder / "run", [Do("create"), *(Do("last", n) for n in (1, 2, 3))]), write=True) as run:
        save(run, "last", 2, salt=5)
        latest = run.latest()
        assert latest is not None
        assert (latest.step, latest.extra) == (2, {"salt": 5})
        assert not [name for name in names(run.path) if name.startswith("00000003")]


def test_names_depend_only_on_content(folder: Path) -> None:
    """A resumed run emits the same paths and hashes as an uninterrupted run."""
    unbroken = made(folder / "a", [Do("create"), Do("last", 1), Do("last", 2), Do("last", 3)])
    broken = made(folder / "b", [Do("create"), Do("last", 1), Do("reopen"), Do("last", 2), Do("reopen"), Do("last", 3)])
    assert names(unbroken) == names(broken)


def test_a_failed_save_leaves_no_files(folder: Path) -> None:
    with RunFolder.open(made(folder / "run"), write=True) as run:
        before = tree(run.path)
        for state, extra, message in (
            (state_of(Do("last", 3)), {"a": float("inf")}, "saved as JSON"),
            (State(parameters={"w": np.array(["a"])}, step=3), {}, "must hold numbers"),  # pyright: ignore
            (State(parameters={"../w": np.zeros(1)}, step=3), {}, "the name of a tensor"),
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
