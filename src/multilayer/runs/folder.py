"""The folder of a run: its configuration, the log of its events, checkpoints, and the model.

    config.json          the configuration and its SHA-256; the folder is a run as soon as this file exists
    events.jsonl         one event per line; events are only appended; every plot and tracker reads it
    checkpoints/         saved states to resume from
    model.safetensors    the trained model
    report.json, report.html

Only one process writes (`open(path, write=True)`). It holds a lock, which ends with the process. Any number of
processes may read, which changes nothing. Only the events contain the time of day.

The SHA-256 of the configuration is also the id of the run. The start event of the log contains it, so that an edited
configuration and the log of another run are refused. Folders from versions without an id are accepted. A symbolic link
to the folder is followed; links inside it are refused (see `core.atomic_files`).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from ..core import atomic_files, canonical_json, machine
from ..engines import State
from ..errors import EventError, FileError, RunError
from . import events
from .checkpoints import Checkpoints, Kind, Loaded

if sys.platform != "win32":
    import fcntl

FORMAT = "multilayer-run"
VERSION = 1
RESTORE = "restore it from a copy, or train again in another folder"
"""Remedy for a file that differs from what the run wrote."""
_CONFIG = "config.json"
_LOCK = ".lock"
_WRITTEN = ("events.jsonl", "checkpoints", "model.safetensors", "report.json", "report.html", "tensorboard")
"""Other files and folders that `mlp resume` may write."""
_MAX_CONFIG = 1 << 24


class RunFolder:
    """The folder of a run, from `create` or `open`. `close`, or the end of a `with` block, closes it."""

    def __init__(self, path: Path, config: dict[str, Any], id: str, lock: Lock | None) -> None:
        self.path = path
        self.config = config
        self.id = id
        """SHA-256 of the configuration. Empty for folders of versions that did not record it."""
        self._checkpoints = Checkpoints(self.checkpoints, id)
        self._lock = lock
        self._log: atomic_files.Log | None = None
        if lock is not None:
            atomic_files.make_folder(self.checkpoints)
            atomic_files.remove_temporaries(path)
            atomic_files.remove_temporaries(self.checkpoints, root=path)
            self._log = atomic_files.Log(self.log)

    @property
    def log(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        return self.path / "model.safetensors"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def config_with(self, *keys: str) -> dict[str, Any]:
        """Return the configuration. Raise an error if one of the keys is missing."""
        missing = [key for key in keys if key not in self.config]
        if missing:
            raise RunError(
                f"{self.path / _CONFIG}: {', '.join(missing)} must be there, as training writes it, got only "
                f"{', '.join(self.config) or 'nothing'}: {RESTORE}"
            )
        return self.config

    # Create and open

    @staticmethod
    def create(
        path: str | os.PathLike[str] | None = None,
        *,
        config: Mapping[str, Any],
        name: str = "run",
        root: str | os.PathLike[str] = "runs",
    ) -> RunFolder:
        """Create a run at `path`, or at the next free path of root/name-001, root/name-002, …, and open it to write."""
        text = _config_text(config)
        if path is not None and not os.fspath(path):
            raise RunError("a new run needs the path of a new or empty folder, got an empty string")
        stem = re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-.")[:60] or "run"
        folder = _make_next(Path(root), stem) if path is None else Path(path)
        atomic_files.make_folder(folder)
        _check_empty(folder)  # before the lock, because its file would remain
        lock = Lock(folder)
        try:
            _check_empty(folder)  # again, because another process may have created a run meanwhile
            atomic_files.write(folder / _CONFIG, text.encode())
            return RunFolder(folder, *_config(text.encode(), folder / _CONFIG), lock)
        except BaseException:
            lock.release()
            raise

    @staticmethod
    def open(path: str | os.PathLike[str], *, write: bool = False) -> RunFolder:
        """Open a run to read it, or with `write` to resume it. Only one process can open a run with `write`."""
        folder = Path(path)
        file = folder / _CONFIG
        if not folder.is_dir():
            raise RunError(f"there is no run at {folder}: pass the folder of a run")
        if not file.exists():
            raise RunError(f"{folder} is not a run: it has no {_CONFIG}: pass the folder of a run")
        lock = Lock(folder) if write else None
        try:
            run = RunFolder(folder, *_config(atomic_files.read(file, limit=_MAX_CONFIG, root=folder), file), None)
            if lock is None:
                return run
            checkpoints = [run.checkpoints / name for name in atomic_files.names(run.checkpoints, root=folder)]
            atomic_files.refuse_links([*(folder / name for name in _WRITTEN), *checkpoints])
            if not run.log.exists() and any(
                path.suffix == ".json" for path in checkpoints
            ):  # without checkpoints, the run was killed before its first event
                raise RunError(f"{run.log} is missing, but there are checkpoints: {RESTORE}")
            return RunFolder(folder, run.config, run.id, lock)
        except BaseException:
            if lock is not None:
                lock.release()
            raise

    def close(self) -> None:
        log, self._log = self._log, None
        lock, self._lock = self._lock, None
        if log is not None:
            log.close()
        if lock is not None:
            lock.release()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Events

    def append(self, event: events.Event) -> None:
        """Append an event to the log, with the current time unless it has one.

        The event is not lost if the process is killed afterward. After the next checkpoint, it is not lost in a power
        failure.
        """
        stamped = event if event.time is not None else replace(event, time=time.time())
        self._writing().append(canonical_json.dumps(stamped.to_dict()))

    def events(self, *, effective: bool = False) -> list[events.Event]:
        """Return the events in order. With `effective`, events that a resume superseded are left out.

        An incomplete last line, from a process that was killed, is ignored. Any other damage is an error with the line
        number.
        """
        if not os.path.lexists(self.log):
            return []
        lines = atomic_files.read(self.log, limit=machine.physical_memory(), root=self.path).split(b"\n")
        emitted = [event_of(line, f"{self.log}, line {number}") for number, line in enumerate(lines[:-1], start=1)]
        for event in emitted:
            if isinstance(event, events.Start) and event.run != self.id:
                raise RunError(f"{self.log} is the log of another run, with another {_CONFIG}: {RESTORE}")
        return events.effective(emitted) if effective else emitted

    # Checkpoints

    def checkpoint(self, state: State, extra: Mapping[str, Any], kind: Kind) -> events.Checkpoint:
        """Save a state with additional JSON, and return the event for the caller to append.

        On return, the checkpoint and all earlier events are on the disk. After an error, the previous checkpoint is
        unchanged.
        """
        log = self._writing()
        atomic_files.point("checkpoint.begin")
        log.sync()
        return self._checkpoints.save(state, extra, kind)

    def latest(self) -> Loaded | None:
        """Return the newest valid checkpoint of kind `last`. None if there is no checkpoint."""
        return self._checkpoints.newest("last")

    def best(self, *, at: int | None = None) -> Loaded | None:
        """Return the newest valid checkpoint of kind `best`, up to step `at`."""
        return self._checkpoints.newest("best", at=at)

    def rewind(self, step: int) -> None:
        """Delete the checkpoints after the step from which the run resumes."""
        self._writing()
        self._checkpoints.rewind(step)

    def _writing(self) -> atomic_files.Log:
        if self._log is None:
            raise RunError(f"{self.path} is not open for writing: open it with write=True to add to it")
        return self._log


def no_model(path: Path) -> str:
    """Return the error message for a run without a model file."""
    return f"{path} has no model.safetensors: `mlp resume {path}` finishes the run, or rebuilds the file"


def find(root: str | os.PathLike[str] = "runs") -> list[Path]:
    """Return the run folders in a folder, sorted by name."""
    folder = Path(root)
    if not folder.is_dir():
        return []
    with atomic_files.reported("look into", folder):
        return sorted(path for path in folder.iterdir() if (path / _CONFIG).is_file())


def runs_in(path: str | os.PathLike[str]) -> list[Path]:
    """Return the runs that a path names: the runs in a folder that is not a run itself, otherwise only the path."""
    folder = Path(path)
    return [folder] if (folder / _CONFIG).exists() else find(folder) or [folder]


def event_of(line: bytes, where: str) -> events.Event:
    """Return the event of a line of the log. `where` is the file and line for error messages."""
    data = canonical_json.loads(line, where)
    if not isinstance(data, dict):
        raise FileError(f"{where}: an event must be a JSON object")
    try:
        return events.from_dict(cast("dict[str, Any]", data))
    except EventError as error:
        raise EventError(f"{where}: {error}") from None


def _config_text(config: Mapping[str, Any]) -> str:
    about = {"config": dict(config), "format": FORMAT, "version": VERSION}
    about["sha256"] = _sha256(about)  # raises an error for values that JSON cannot represent
    return json.dumps(about, ensure_ascii=False, indent=2, sort_keys=True) + "\n"


def _sha256(about: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a configuration, independent of its layout in the file."""
    return hashlib.sha256(canonical_json.dumps(about).encode()).hexdigest()


def _config(data: bytes, path: Path) -> tuple[dict[str, Any], str]:
    """Return the configuration and its hash, which is empty if none was recorded."""
    about = canonical_json.loads(data, str(path))
    found = cast("dict[str, Any]", about) if isinstance(about, dict) else {}
    if found.get("format") != FORMAT or not isinstance(found.get("config"), dict):
        raise RunError(f"{path}: not the configuration of a run: {RESTORE}")
    version = found.get("version")
    if type(version) is not int or version != VERSION:
        newer = type(version) is int and version > VERSION
        remedy = "update multilayer to read it" if newer else "no such version exists"
        raise RunError(f"{path}: version must be at most {VERSION}, got {str(version)[:40]}: {remedy}")
    recorded = found.pop("sha256", "")
    if recorded and recorded != _sha256(found):
        raise RunError(f"{path} was changed after the run began: {RESTORE}")
    return _with_new_keys(found["config"]), recorded


def _with_new_keys(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration with today's keys for the data; earlier versions wrote time, weight and weights."""
    data = config.get("data")
    if not isinstance(data, dict) or "in_memory" in data:
        return config
    saved = cast("dict[str, Any]", data)
    renamed = {"time": "time_column", "weight": "sample_weight"}
    kept = {renamed.get(key, key): value for key, value in saved.items() if key not in ("weights", "validation")}
    marks = {"sample_weight": saved.get("weights"), "validation": saved.get("validation")}
    return {**config, "data": {**kept, "in_memory": [name for name, mark in marks.items() if mark is not None]}}


def _check_empty(folder: Path) -> None:
    with atomic_files.reported("look into", folder):
        present = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    if present:
        raise RunError(
            f"a new run needs a new or empty folder, {folder} has {present[0]}: "
            "choose another path, or resume the run in it"
        )


def next_number(root: Path, stem: str) -> int:
    """Return one more than the highest NNN of root/STEM-NNN."""
    pattern = re.compile(rf"{re.escape(stem)}-(\d{{3,}})")
    taken = [int(match[1]) for path in root.glob("*") if (match := pattern.fullmatch(path.name))]
    return max(taken, default=0) + 1


def _make_next(root: Path, stem: str) -> Path:
    """Make root/STEM-NNN with the next number. Concurrent processes get different folders."""
    number = next_number(root, stem)
    while not atomic_files.make_folder(root / f"{stem}-{number:03d}"):
        number += 1
    return root / f"{stem}-{number:03d}"


@contextmanager
def numbered(stem: str, root: str | os.PathLike[str] = "runs") -> Generator[Path]:
    """Make root/STEM-NNN with the next number, and remove it at the end if it is still empty."""
    outer = Path(root)
    is_new = not outer.exists()
    folder = _make_next(outer, stem)
    try:
        yield folder
    finally:
        with suppress(OSError):  # the folder is not empty
            folder.rmdir()
            if is_new:
                outer.rmdir()


class Lock:
    """A lock on a run folder for the process that writes to it, until `release`.

    The system releases it when the process ends, even by kill -9, so there are no stale locks. The process id in the
    file is only for the error message. On Windows, and on file systems without locks, nothing is locked.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / _LOCK
        with atomic_files.reported("lock", path):
            atomic_files.point("lock.take")
            self._file = atomic_files.open_in_place(path)
            try:
                self._take(folder)
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, str(os.getpid()).encode(), 0)
            except BaseException:
                os.close(self._file)
                raise

    def release(self) -> None:
        os.close(self._file)

    def _take(self, folder: Path) -> None:
        if sys.platform == "win32":
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK):
                return
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            holder = os.pread(self._file, 20, 0).decode("ascii", "replace")
            who = "this process" if holder == str(os.getpid()) else f"process {holder}" if holder else "another process"
            raise RunError(f"{folder} is open in {who}: wait for it to end, or choose another run") from None
