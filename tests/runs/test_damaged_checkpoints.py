"""R3: damaged checkpoints are detected and reported, and the run resumes from an older checkpoint."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from multilayer.errors import RunError
from multilayer.runs import RunFolder
from support import crash_saves
from support.crash_saves import Do, stand_after, stand_on_disk, state_of, tree
from support.long_tests import FULL
from support.run_folders import TWO, Tried, made, names, save


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


def test_damage_is_detected_and_reported(folder: Path, tried: Tried) -> None:
    path = made(folder / "run")
    whole, count = tree(path), 0
    for name, damage in damages(path, flips=500):
        damage()
        loaded = RunFolder.open(path).latest()
        assert loaded is not None, name
        assert loaded.step == 1, name
        assert loaded.state.equals(state_of(Do("last", 1))), name
        expected = f"the last checkpoint of step 2 was {'not finished' if name == '.json: gone' else 'skipped'}: "
        assert any(note.startswith(expected) for note in loaded.notes), (name, loaded.notes)
        restore(path, whole)
        count += 1
    assert stand_on_disk(path) == stand_after(TWO)
    tried("R3: damaged checkpoints, reported and skipped", count)
    assert count >= 500 + 40 + 9


def test_damage_to_all_checkpoints_is_an_error(folder: Path) -> None:
    path = made(folder / "run")
    for file in (path / "checkpoints").glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:-1])
    run = RunFolder.open(path)
    with pytest.raises(RunError, match=r"no valid last checkpoint: .*step 2 was skipped.*step 1 was skipped"):
        run.latest()
    with pytest.raises(RunError, match=r"no valid best checkpoint: .*step 2"):
        run.best()


def test_an_older_checkpoint_replaces_a_damaged_best_one(folder: Path) -> None:
    path = made(folder / "run")
    next((path / "checkpoints").glob("00000002-best-*")).write_bytes(b"")
    best = RunFolder.open(path).best()
    assert best is not None
    assert best.step == 1
    assert "the best checkpoint of step 2 was skipped" in best.notes[0]


def test_resuming_after_damage(folder: Path) -> None:
    """The run resumes from the older checkpoint. New checkpoints are valid, and damaged notes are deleted."""
    path = made(folder / "run")
    (path / "checkpoints" / "00000002-last.json").write_bytes(b"")
    with RunFolder.open(path, write=True) as run:
        save(run, "last", 3)
        assert [name for name in names(path) if "-last." in name] == ["00000001-last.json", "00000003-last.json"]
        latest = run.latest()
    assert latest is not None
    assert (latest.step, latest.notes) == (3, ())


def test_an_invalid_state(folder: Path) -> None:
    """The hash of the file is correct, but its content is not a valid state."""
    from multilayer.core import tensor_file
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
        sha256 = tensor_file.save(path / "made", tensors, about, kind="checkpoint")
        os.replace(path / "made", path / "checkpoints" / place.data(sha256))
        (path / "checkpoints" / place.note).write_text(checkpoints._note_text(place, sha256))
        loaded = RunFolder.open(path).latest()
        assert loaded is not None
        assert loaded.step == 1
        assert "the last checkpoint of step 2 was skipped" in loaded.notes[0]


def test_reading_while_another_process_writes(folder: Path) -> None:
    """A reader always finds a valid checkpoint while the writer deletes old ones."""
    path = made(folder / "run", [Do("create"), Do("last", 1)])
    code = f"import sys\nsys.path.insert(0, {os.path.dirname(crash_saves.__file__)!r})\nfrom crash_saves import *\n" + (
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
