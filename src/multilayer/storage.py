"""Files that are whole or not there: every write of a run or a model goes through here.

    write     temporary file beside the target → every byte → fsync → rename → fsync of the folder → look
    Log       lines added at the end; a line that could not be written whole is taken back
    read      a regular file of at most so many bytes
    remove    files, then fsync of their folders

A process may die between any two of these steps and a disk may refuse any of them. Each step passes a named point just
before it: a test sets `hook` to die or to raise an error of the system there. What the system refuses becomes a
StorageError that names the file and what to do; there is no success without the bytes on the disk.

The temporary file is never in another folder (which may be on another disk, or full), and its name begins with a dot.
Left out on purpose: retries, and locks (see runs).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from .errors import StorageError

POINTS = (
    "write.open",
    "write.bytes",
    "write.sync",
    "write.close",
    "write.rename",
    "write.folder",
    "write.look",
    "write.done",
    "log.open",
    "log.repair",
    "log.bytes",
    "log.take_back",
    "log.written",
    "log.sync",
    "remove.unlink",
    "remove.folder",
    "folder.make",
    "folder.sync",
    "lock.take",
    "checkpoint.begin",
    "checkpoint.committed",
    "checkpoint.pruned",
)
"""Every point, in no order that matters: a save passes some of them many times."""

hook: Callable[[str], None] | None = None
"""Called with the name of each point; None but in tests."""

TEMPORARY = ".tmp"
_PIECE = 1 << 24

_REMEDIES = {
    errno.ENOSPC: "the disk is full: free some space, then run again",
    errno.EDQUOT: "your quota on this disk is used up: free some space, then run again",
    errno.EACCES: "permission is missing: choose another path, or have its owner allow it",
    errno.EPERM: "permission is missing: choose another path, or have its owner allow it",
    errno.EROFS: "the disk is read-only: choose a path on another one",
    errno.EIO: "the disk reports a fault: save to another disk and check this one",
    errno.ENOENT: "there is no such file or folder: check the path",
    errno.ENOTDIR: "a part of the path is a file, not a folder: check the path",
    errno.EISDIR: "it is a folder: give the path of a file",
    errno.EEXIST: "it is there already: choose another path",
    errno.EFBIG: "a file of this size is not allowed: raise the limit (ulimit -f) or save to another disk",
    errno.ENAMETOOLONG: "the name is too long: choose a shorter one",
    errno.EMFILE: "too many files are open: raise the limit (ulimit -n)",
}


def point(name: str) -> None:
    """Just before a step. In production this does nothing."""
    if hook is not None:
        hook(name)


@contextlib.contextmanager
def reported(action: str, path: Path) -> Generator[None]:
    """Turns what the system refuses into the error that users meet."""
    try:
        yield
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0, "unknown error")
        remedy = _REMEDIES.get(error.errno or 0, f"the system says {error.strerror or error}")
        raise StorageError(f"cannot {action} {path} ({code}): {remedy}") from error
    except UnicodeEncodeError:
        raise StorageError(f"cannot {action} {str(path)!r}: a path must not hold half of a surrogate pair") from None
    except ValueError as error:
        if isinstance(error, StorageError) or "null byte" not in str(error):
            raise
        raise StorageError(f"cannot {action} {str(path)!r}: a path must not hold a null character") from None


def write(path: str | os.PathLike[str], chunks: bytes | Iterable[bytes]) -> None:
    """Puts a file in place as a whole; whatever happens before the rename, the old one stays as it was.

    Where the path is a link, the file it points to is replaced.
    """
    target = Path(path)
    with reported("write", target):
        final = Path(os.path.realpath(target))
        temporary = final.with_name(f".{final.name[:100]}.{os.urandom(6).hex()}{TEMPORARY}")
        size = 0
        point("write.open")
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CLOSE_ON_EXEC, 0o666)
        try:
            try:
                for chunk in [chunks] if isinstance(chunks, bytes) else chunks:
                    for piece in _pieces(chunk):
                        point("write.bytes")
                        _write_all(file, piece)
                    size += len(chunk)
                point("write.sync")
                os.fsync(file)
                point("write.close")
            finally:
                os.close(file)
            point("write.rename")
            os.replace(temporary, final)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        _sync_folder(final.parent, "write.folder")
        point("write.look")
        found = os.stat(final).st_size
        if found != size:
            raise StorageError(f"cannot write {target}: {size} bytes were written, {found} are there: check the disk")
        point("write.done")


@contextlib.contextmanager
def opened(path: str | os.PathLike[str]) -> Generator[BinaryIO]:
    """A regular file to read. A folder, a pipe, a socket or a device is refused before it is opened: reading one could
    block or never end. The check is repeated after opening, in case the file was replaced in between."""
    source = Path(path)
    with reported("read", source):
        _check_regular(os.stat(source), source)
        file = os.open(source, os.O_RDONLY | _CLOSE_ON_EXEC | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(file, "rb") as stream:
        _check_regular(os.fstat(file), source)
        yield stream


def _check_regular(about: os.stat_result, source: Path) -> None:
    if not stat.S_ISREG(about.st_mode):
        kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
        kind = kinds.get(stat.S_IFMT(about.st_mode), "a device")
        raise StorageError(f"cannot read {source}: it is not a regular file but {kind}: give the path of a file")


def read(path: str | os.PathLike[str], *, limit: int) -> bytes:
    """The bytes of a regular file, at most `limit`."""
    source = Path(path)
    with reported("read", source), opened(source) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > limit:
            raise StorageError(f"cannot read {source}: at most {limit:,} bytes are allowed, it has {size:,}")
        data = stream.read(size + 1)
    if len(data) != size:
        raise StorageError(f"cannot read {source}: it changed while it was read: try again")
    return data


def remove(paths: Iterable[Path]) -> None:
    """Takes files away, if they are there, in the order given."""
    folders: dict[Path, None] = {}
    for path in paths:
        with reported("remove", path):
            point("remove.unlink")
            path.unlink(missing_ok=True)
            folders[path.parent] = None
    for folder in folders:
        with reported("save", folder):
            _sync_folder(folder, "remove.folder")


def make_folder(path: Path) -> bool:
    """Makes a folder, and those above it; whether it is new. Of several processes one gets True."""
    with reported("make the folder", path):
        point("folder.make")
        for folder in (path.parent, path):
            if folder.exists() and not folder.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "a file is in the way")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            path.mkdir()
        except FileExistsError:
            return False
        _sync_folder(path.parent, "folder.sync")
        return True


def remove_temporaries(folder: Path) -> None:
    """Takes away what writers that were killed left behind. Only for whoever is the one writer of the folder."""
    with reported("clean", folder):
        left = sorted(folder.glob(f".*{TEMPORARY}"))
    remove(left)


class Log:
    """A file of lines that only grows.

    A line is handed to the system at once: a killed process loses nothing. `sync` waits for the disk: a machine that
    loses power loses what came after the last one. A line is there as a whole or not at all: the torn last line of a
    writer that was killed is cut off before the next, and a line that the disk took in part is taken back.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with reported("open", path):
            point("log.open")
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | _CLOSE_ON_EXEC, 0o666)
            try:
                self._size = self._whole_lines()
                _sync_folder(path.parent, "folder.sync")
            except BaseException:
                os.close(self._file)
                raise

    def append(self, line: str) -> None:
        """Adds one line, given without its end."""
        data = f"{line}\n".encode()
        if data.count(b"\n") != 1:
            raise ValueError(f"a line must not hold a line break, got {line!r}")
        with reported("append to", self.path):
            self._repair()
            try:
                point("log.bytes")
                _write_all(self._file, memoryview(data))
            except BaseException:
                with contextlib.suppress(OSError):
                    point("log.take_back")
                    os.ftruncate(self._file, self._size)
                raise
            self._size += len(data)
            point("log.written")

    def sync(self) -> None:
        """Waits until every line is on the disk."""
        with reported("save", self.path):
            point("log.sync")
            os.fsync(self._file)

    def close(self) -> None:
        with reported("close", self.path):
            os.close(self._file)

    def _repair(self) -> None:
        """Cuts off what stands after the last whole line: a killed writer's, or ours that could not be taken back."""
        if os.fstat(self._file).st_size > self._size:
            point("log.repair")
            os.ftruncate(self._file, self._size)

    def _whole_lines(self) -> int:
        """Where the last line that has an end ends."""
        end = os.fstat(self._file).st_size
        while end > 0:
            start = max(0, end - 65536)
            os.lseek(self._file, start, os.SEEK_SET)
            last = os.read(self._file, end - start).rfind(b"\n")
            if last >= 0:
                return start + last + 1
            end = start
        return 0


_CLOSE_ON_EXEC = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def _pieces(chunk: bytes) -> Iterator[memoryview]:
    view = memoryview(chunk)
    for start in range(0, len(chunk), _PIECE):
        yield view[start : start + _PIECE]


def _write_all(file: int, data: memoryview) -> None:
    """The system may take a part of what it is given; it says how much."""
    while data:
        taken = os.write(file, data)
        if taken <= 0:
            raise OSError(errno.EIO, "the disk took none of the bytes")
        data = data[taken:]


def _sync_folder(folder: Path, name: str) -> None:
    """Makes the names in a folder last. Windows has no such call; some network disks refuse it."""
    point(name)
    if sys.platform == "win32":
        return
    file = os.open(folder, os.O_RDONLY | _CLOSE_ON_EXEC)
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(file)
