"""Atomic files: every write of a run or a model is complete, or has no effect.

    write     temporary file next to the target → all bytes → fsync → rename → fsync of the folder → check of the size
    Log       append lines; an incomplete line is removed
    read      a regular file of at most `limit` bytes
    remove    files, then fsync of their folders

A process can be killed between any two of these steps, and any of them can fail. Each step calls `point` first, so that
a test can set `hook` to end the process or raise an error there. An error of the system becomes a StorageError that
names the file and what to do. A function returns only after the bytes are on the disk.

The temporary file is in the same folder as the target, because another folder can be on another disk. Its name begins
with a dot.

A run folder may come from another person, so nothing in it may redirect a read or a write. Writing never follows a
symbolic link. If `root`, the folder of a run, is passed, no link below it is followed: each folder on the path is
opened with O_NOFOLLOW, and the file is opened relative to the descriptor of its folder. A link that replaces a folder
in the meantime is therefore an error. `root` itself can be a link, because the user chose it.

Not included: retries, and locks (see `runs`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from ..errors import StorageError

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
"""Names of all points, in any order. A save can pass a point several times."""

hook: Callable[[str], None] | None = None
"""Function that is called with the name of each point. None, except in tests."""

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
    errno.ELOOP: "it is a symbolic link, which is not followed here: delete it, or replace it with the file itself",
    errno.EEXIST: "it exists already: choose another path",
    errno.EFBIG: "a file of this size is not allowed: raise the limit (ulimit -f) or save to another disk",
    errno.ENAMETOOLONG: "the name is too long: choose a shorter one",
    errno.EMFILE: "too many files are open: raise the limit (ulimit -n)",
}


def point(name: str) -> None:
    """Call the hook of a test before a step."""
    if hook is not None:
        hook(name)


@contextlib.contextmanager
def reported(action: str, path: Path) -> Generator[None]:
    """Turn errors of the system into a StorageError."""
    try:
        yield
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0, "unknown error")
        remedy = _REMEDIES.get(error.errno or 0, f"the system says {error.strerror or error}")
        if action == "write" and error.errno == errno.ENOENT and not path.parent.exists():
            remedy = f"there is no folder {path.parent}: check the path"
        raise StorageError(f"cannot {action} {path} ({code}): {remedy}") from error
    except UnicodeEncodeError:
        raise StorageError(
            f"cannot {action} {str(path)!r}: a path must not contain half of a surrogate pair: rename it"
        ) from None
    except ValueError as error:
        if isinstance(error, StorageError) or "\0" not in str(path):
            raise
        raise StorageError(f"cannot {action} {str(path)!r}: a path must not contain a null character") from None


class _Folder:
    """An open folder. Files are opened relative to its descriptor, even if another folder takes its path meanwhile."""

    def __init__(self, path: Path, root: Path | None = None) -> None:
        self.path = path
        self._file: int | None = None
        inner = () if root is None else path.relative_to(root).parts
        if sys.platform == "win32":  # Windows has no descriptors of folders
            for i in range(len(inner)):
                _refuse_link(path.parents[i - 1] if i else path)
            return
        self._file = os.open(path if root is None else root, _FOLDER)
        for i, part in enumerate(inner):
            outer = self._file
            try:
                self._file = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=outer)
            except OSError:
                _refuse_link(Path(cast(Path, root), *inner[: i + 1]))
                raise
            finally:
                os.close(outer)

    def __enter__(self) -> _Folder:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            os.close(self._file)

    def _name(self, name: str) -> str:
        return name if self._file is not None else str(self.path / name)

    def open(self, name: str, flags: int) -> int:
        """Open a file of this folder. It never follows a link and never waits for the other end of a pipe."""
        return os.open(self._name(name), flags | _NO_FOLLOW | _FLAGS, 0o666, dir_fd=self._file)

    def replace(self, name: str, other: str) -> None:
        os.replace(self._name(name), self._name(other), src_dir_fd=self._file, dst_dir_fd=self._file)

    def unlink(self, name: str) -> None:
        os.unlink(self._name(name), dir_fd=self._file)

    def stat(self, name: str) -> os.stat_result:
        return os.stat(self._name(name), dir_fd=self._file, follow_symlinks=False)

    def names(self) -> list[str]:
        return sorted(os.listdir(self.path if self._file is None else self._file))

    def sync(self, name: str) -> None:
        """Make changes of names in the folder durable. Windows and some network disks do not support it."""
        point(name)
        if self._file is None:
            return
        try:
            os.fsync(self._file)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise


def _refuse_link(path: Path) -> None:
    """Raise an error that names the link on the path, because the error of the system does not."""
    if path.is_symlink():
        raise StorageError(f"cannot use {path} ({errno.errorcode[errno.ELOOP]}): {_REMEDIES[errno.ELOOP]}")


def write(path: str | os.PathLike[str], chunks: bytes | Iterable[bytes], *, root: Path | None = None) -> None:
    """Write a file atomically. If anything fails before the rename, the old file stays unchanged.

    An existing file keeps its permissions. A symbolic link, a pipe or a device at `path` raises an error.
    """
    target = Path(path)
    with reported("write", target), _Folder(target.parent, root) as folder:
        mode = _check_target(folder, target)
        temporary = f".{target.name[:100]}.{os.urandom(6).hex()}{TEMPORARY}"
        size = 0
        point("write.open")
        file = folder.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            try:
                if mode is not None and sys.platform != "win32":
                    os.fchmod(file, mode)
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
            folder.replace(temporary, target.name)  # a link created in the meantime is replaced, not followed
        except BaseException:
            with contextlib.suppress(OSError):
                folder.unlink(temporary)
            raise
        folder.sync("write.folder")
        point("write.look")
        found = folder.stat(target.name).st_size
        if found != size:
            raise StorageError(
                f"cannot write {target}: {size} bytes were written, but the file has {found}: check the disk"
            )
        point("write.done")


def _check_target(folder: _Folder, target: Path) -> int | None:
    """Return the permissions of the target, if it exists. Raise an error if it is not a regular file."""
    try:
        mode = folder.stat(target.name).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, "a symbolic link")
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # for a folder, the rename raises an error
        raise StorageError(f"cannot write {target}: it is not a regular file: choose another path")
    return stat.S_IMODE(mode)


@contextlib.contextmanager
def opened(path: str | os.PathLike[str]) -> Generator[BinaryIO]:
    """Open a regular file for reading. Raise an error for folders, pipes, sockets and devices."""
    with os.fdopen(_open_regular(Path(path), None), "rb") as stream:
        yield stream


def read(path: str | os.PathLike[str], *, limit: int, root: Path | None = None) -> bytes:
    """Return the bytes of a regular file, at most `limit`."""
    source = Path(path)
    with reported("read", source), os.fdopen(_open_regular(source, root), "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > limit:
            raise StorageError(f"cannot read {source}: at most {limit:,} bytes are allowed, the file has {size:,}")
        data = stream.read(size + 1)
    if len(data) != size:
        raise StorageError(f"cannot read {source}: it changed during reading: try again")
    return data


def read_from(path: Path, start: int, *, root: Path | None = None) -> bytes:
    """Return the bytes from `start` to the current end of a file. Another process may append to it."""
    with reported("read", path), os.fdopen(_open_regular(path, root), "rb") as stream:
        stream.seek(start)
        return stream.read()


def _open_regular(path: Path, root: Path | None) -> int:
    """Open a regular file. The check is repeated after opening, in case the file was replaced in between."""
    with reported("read", path):
        if root is None:
            _check_regular(os.stat(path), path)
            file = os.open(path, os.O_RDONLY | _FLAGS)
        else:
            with _Folder(path.parent, root) as folder:
                file = folder.open(path.name, os.O_RDONLY)
        try:
            _check_regular(os.fstat(file), path)
        except BaseException:
            os.close(file)
            raise
    return file


def _check_regular(about: os.stat_result, source: Path) -> None:
    if not stat.S_ISREG(about.st_mode):
        kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
        kind = kinds.get(stat.S_IFMT(about.st_mode), "a device")
        raise StorageError(f"cannot read {source}: it is not a regular file but {kind}: give the path of a file")


def open_in_place(path: Path, flags: int = 0) -> int:
    """Open a file to read and change it in place. Create it if it does not exist.

    Symbolic links, hard links and devices are errors, because a write would change another file.
    """
    with _Folder(path.parent) as folder:
        file = folder.open(path.name, os.O_RDWR | os.O_CREAT | flags)
    try:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode):
            raise StorageError(f"cannot open {path}: it is not a regular file: delete it")
        if about.st_nlink > 1:
            raise StorageError(
                f"cannot open {path}: it is a hard link, so a write would change another file: replace it by a copy"
            )
    except BaseException:
        os.close(file)
        raise
    return file


def remove(paths: Iterable[Path], *, root: Path | None = None) -> None:
    """Remove files, if they exist, in the given order. For a link, remove the link and not its target."""
    folders: dict[Path, None] = {}
    for path in paths:
        with reported("remove", path), _Folder(path.parent, root) as folder:
            point("remove.unlink")
            with contextlib.suppress(FileNotFoundError):
                folder.unlink(path.name)
            folders[path.parent] = None
    for path in folders:
        with reported("save", path), _Folder(path, root) as folder:
            folder.sync("remove.folder")


def make_folder(path: Path) -> bool:
    """Create a folder and its parents, and return whether it is new. Only one of several processes gets True."""
    with reported("make the folder", path):
        point("folder.make")
        for folder in (path.parent, path):
            if folder.exists() and not folder.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "a file has this name")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            path.mkdir()
        except FileExistsError:
            return False
        with _Folder(path.parent) as outer:
            outer.sync("folder.sync")
        return True


def names(path: Path, *, root: Path | None = None) -> list[str]:
    """Return the sorted names in a folder. The list is empty if the folder does not exist."""
    with reported("look into", path):
        try:
            with _Folder(path, root) as folder:
                return folder.names()
        except FileNotFoundError:
            return []


def refuse_links(paths: Iterable[Path]) -> None:
    """Raise an error if a path is a symbolic link. Call it early, so that no work is lost."""
    for path in paths:
        _refuse_link(path)


def remove_temporaries(folder: Path, *, root: Path | None = None) -> None:
    """Remove temporary files of writers that were killed. Only the single writer of the folder may call it."""
    left = [name for name in names(folder, root=root) if name.startswith(".") and name.endswith(TEMPORARY)]
    remove([folder / name for name in left], root=root)


class Log:
    """A file of lines that only grows.

    `append` passes a line to the system at once, so a killed process loses no line. `sync` waits for the disk, so a
    power failure loses only lines after the last `sync`. The file contains complete lines only: an incomplete last
    line is removed before the next line is written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with reported("open", path):
            point("log.open")
            self._file = open_in_place(path, os.O_APPEND)
            try:
                self._size = self._whole_lines()
                with _Folder(path.parent) as folder:
                    folder.sync("folder.sync")
            except BaseException:
                os.close(self._file)
                raise

    def append(self, line: str) -> None:
        """Append one line. `line` has no line break."""
        data = f"{line}\n".encode()
        if data.count(b"\n") != 1:
            raise ValueError(f"a line must not contain a line break, got {line!r}")
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
        """Wait until every line is on the disk."""
        with reported("save", self.path):
            point("log.sync")
            os.fsync(self._file)

    def close(self) -> None:
        with reported("close", self.path):
            os.close(self._file)

    def _repair(self) -> None:
        """Remove an incomplete line at the end, of this process or of one that was killed."""
        if os.fstat(self._file).st_size > self._size:
            point("log.repair")
            os.ftruncate(self._file, self._size)

    def _whole_lines(self) -> int:
        """Return the size of the file up to the end of its last complete line."""
        end = os.fstat(self._file).st_size
        while end > 0:
            start = max(0, end - 65536)
            os.lseek(self._file, start, os.SEEK_SET)
            last = os.read(self._file, end - start).rfind(b"\n")
            if last >= 0:
                return start + last + 1
            end = start
        return 0


# Flags that the system does not have are 0.
_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)


def _pieces(chunk: bytes) -> Iterator[memoryview]:
    view = memoryview(chunk)
    for start in range(0, len(chunk), _PIECE):
        yield view[start : start + _PIECE]


def _write_all(file: int, data: memoryview) -> None:
    """Write all bytes. os.write may write a part of them, and returns their number."""
    while data:
        taken = os.write(file, data)
        if taken <= 0:
            raise OSError(errno.EIO, "the disk accepted no bytes")
        data = data[taken:]
