"""Checkpoints: saved states from which a run resumes. At least one is valid if the process is killed at any time.

    STEP-KIND-HASH.safetensors    the state of the engine, and the rest of the run as JSON
    STEP-KIND.json                the note: it makes the checkpoint valid, and contains the SHA-256 of its data

Writing: the data file is written first and the note second. Data files are never overwritten, and a data file without a
note is ignored. If the process is killed between two writes, the previous checkpoint stays valid.

Reading: the hash and the id of the run are checked. Checkpoints of older versions have no id. An invalid checkpoint is
skipped with a note to the user.

Deleting: a new checkpoint of kind `last` deletes the others except

- the newest two of kind `last`,
- the newest of kind `best`, and the newest of kind `best` at the time of each of these two.

It also deletes checkpoints of later steps, which are superseded. A new `best` deletes nothing, because it may be older
than the `last` checkpoint of an interrupted run. Resuming a run deletes the files that a new `last` would delete,
because the process may have been killed before it deleted them. Names depend only on step, kind and content, so a
resumed run makes the same ones as an uninterrupted run.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from ..core import atomic_files, canonical_json, tensor_file
from ..engines import State
from ..errors import FileError, RunError, StorageError
from . import events

Kind = Literal["last", "best"]

VERSION = 1
KEEP = 2
"""Number of checkpoints of kind `last` that are kept."""

_NOTE = re.compile(r"(\d{8,})-(last|best)\.json")
_DATA = re.compile(r"(\d{8,})-(last|best)-[0-9a-f]{8}\.safetensors")
_MAX_NOTE = 4096


@dataclass(frozen=True, kw_only=True, eq=False)
class Loaded:
    """A valid checkpoint. `notes` tell the user which newer checkpoints were skipped, and why."""

    state: State
    extra: dict[str, Any]
    event: events.Checkpoint
    """The event that was emitted when it was saved."""
    notes: tuple[str, ...] = ()

    @property
    def step(self) -> int:
        return self.event.step

    @property
    def path(self) -> str:
        """Relative to the run's folder."""
        return self.event.path


class Place(NamedTuple):
    """The step and kind of a checkpoint, which identify it."""

    step: int
    kind: Kind

    @property
    def note(self) -> str:
        return f"{self.step:08d}-{self.kind}.json"

    def data(self, sha256: str) -> str:
        return f"{self.step:08d}-{self.kind}-{sha256[:8]}.safetensors"


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, folder: Path, run: str = "") -> None:
        self.folder = folder
        self.run = run
        """Id of the run, stored in its checkpoints. Empty for runs of versions without ids."""
        self.root = folder.parent
        """The folder of the run. No symbolic link below it is followed."""

    def save(self, state: State, extra: Mapping[str, Any], kind: Kind) -> events.Checkpoint:
        """Save a checkpoint. It is on the disk on return. After an error, the previous checkpoint is unchanged."""
        place = Place(state.step, kind)
        extra = {**extra, "run": self.run} if self.run else dict(extra)
        about = {"extra": extra, "purpose": kind, "step": state.step}
        data = tensor_file.encode(state.tensors(), about, kind="checkpoint")
        sha256 = hashlib.sha256(data).hexdigest()
        try:
            atomic_files.write(self.folder / place.data(sha256), data, root=self.root)
            atomic_files.write(self.folder / place.note, _note_text(place, sha256).encode(), root=self.root)
        except StorageError:
            with contextlib.suppress(StorageError):  # free the space of a full disk; report the first error
                self._sweep(self._places())
            raise
        atomic_files.point("checkpoint.committed")
        if kind == "last":
            self.rewind(state.step)
        atomic_files.point("checkpoint.pruned")
        return self._event(place, sha256)

    def newest(self, kind: Kind, *, at: int | None = None) -> Loaded | None:
        """Return the newest valid checkpoint, up to step `at`. None if there is no checkpoint."""
        while True:
            present = self._places()
            candidates = sorted(place for place in present if place.kind == kind and (at is None or place.step <= at))
            if not candidates:
                return None
            notes: list[str] = []
            for place in reversed(candidates):
                try:
                    return self._load(place, [*self._unfinished(place, at), *notes])
                # Errors of this package, and errors of `State` for invalid tensors, are derived from these two.
                except (ValueError, TypeError) as error:
                    notes.append(f"the {kind} checkpoint of step {place.step} was skipped: {error}")
            if present == self._places():  # otherwise another process has written checkpoints, so try again
                raise RunError(f"{self.folder} has no valid {kind} checkpoint: " + "; ".join(notes))

    def _load(self, place: Place, notes: Iterable[str]) -> Loaded:
        sha256 = _read_note(self.folder / place.note, place, self.root)
        path = self.folder / place.data(sha256)
        tensors, about = tensor_file.load(path, kind="checkpoint", sha256=sha256, root=self.root)
        state = State.from_tensors(tensors)
        if (state.step, about["step"], about["purpose"]) != (place.step, place.step, place.kind):
            raise FileError(f"{path}: contains step {state.step} of kind {about['purpose']!r}, unlike its name")
        if not isinstance(about["extra"], dict):
            raise FileError(f"{path}: extra must be a JSON object")
        if about["extra"].pop("run", self.run) != self.run and self.run:
            raise FileError(f"{path} is a checkpoint of another run")
        return Loaded(state=state, extra=about["extra"], event=self._event(place, sha256), notes=tuple(notes))

    def _event(self, place: Place, sha256: str) -> events.Checkpoint:
        path = f"{self.folder.name}/{place.data(sha256)}"
        return events.Checkpoint(step=place.step, kind=place.kind, path=path, sha256=sha256)

    def _unfinished(self, chosen: Place, at: int | None) -> list[str]:
        """Return notes about newer data files without a note file."""
        matches = (_DATA.fullmatch(name) for name in self._names())
        found = {Place(int(match[1]), cast("Kind", match[2])) for match in matches if match} - self._places()
        return [
            f"the {chosen.kind} checkpoint of step {place.step} was not finished: step {chosen.step} is used"
            for place in sorted(found)
            if place.kind == chosen.kind and chosen.step < place.step and (at is None or place.step <= at)
        ]

    def rewind(self, step: int) -> None:
        """Delete the checkpoints after a step, and earlier ones that are not kept. Notes are deleted before data."""
        places = self._places()
        readable = {place for place in places if self._noted(place) is not None}
        kept = _kept(readable, step)
        atomic_files.remove((self.folder / place.note for place in sorted(places - kept)), root=self.root)
        self._sweep(kept)

    def _sweep(self, places: Iterable[Place]) -> None:
        """Delete data files that do not belong to these checkpoints."""
        named = {place.data(self._noted(place) or "") for place in places}
        stray = [name for name in self._names() if _DATA.fullmatch(name) and name not in named]
        atomic_files.remove((self.folder / name for name in stray), root=self.root)

    def _noted(self, place: Place) -> str | None:
        """Return the hash in a note. None if the note is damaged. An unreadable file is an error: it may be valid."""
        try:
            return _read_note(self.folder / place.note, place, self.root)
        except FileError:
            return None

    def _places(self) -> set[Place]:
        matches = (_NOTE.fullmatch(name) for name in self._names())
        return {Place(int(match[1]), cast("Kind", match[2])) for match in matches if match}

    def _names(self) -> list[str]:
        return atomic_files.names(self.folder, root=self.root)


def _kept(places: set[Place], step: int) -> set[Place]:
    """Return the checkpoints to keep at a step, by the rule in the module docstring."""
    present = sorted(place for place in places if place.step <= step)
    lasts = [place for place in present if place.kind == "last"][-KEEP:]
    kept = set(lasts)
    for limit in (*(last.step for last in lasts), step):
        kept |= set([place for place in present if place.kind == "best" and place.step <= limit][-1:])
    return kept


def _note_text(place: Place, sha256: str) -> str:
    about = {"kind": place.kind, "sha256": sha256, "step": place.step, "version": VERSION}
    return canonical_json.dumps(about) + "\n"


def _read_note(path: Path, place: Place, root: Path) -> str:
    """Return the hash in a note. The file must equal, byte for byte, the note that `save` writes."""
    data = atomic_files.read(path, limit=_MAX_NOTE, root=root)
    about = canonical_json.loads(data, str(path))
    found = cast("dict[str, Any]", about) if isinstance(about, dict) else {}
    sha256 = found.get("sha256")
    if not isinstance(sha256, str) or not re.fullmatch("[0-9a-f]{64}", sha256):
        raise FileError(f"{path}: damaged: it must contain a SHA-256")
    if _note_text(place, sha256).encode() != data:
        raise FileError(f"{path}: damaged: not the note of a checkpoint of kind {place.kind} at step {place.step}")
    return sha256
