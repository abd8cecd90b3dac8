"""The right to write to a folder: one process has it, and the system takes it back when that process ends.

However a process ends, kill -9 included, its lock ends with it, so there is no stale lock to guess about. The process's
number in the file is for the message alone. A disk without locks, and Windows, go without.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

from ..core import atomic_files
from ..errors import RunError

if sys.platform != "win32":
    import fcntl

NAME = ".lock"


class Lock:
    """Held from its making until `release`."""

    def __init__(self, folder: Path) -> None:
        path = folder / NAME
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
            who = "this process" if holder == str(os.getpid()) else f"process {holder or 'of another kind'}"
            raise RunError(f"{folder} is open in {who}: wait for it to end, or choose another run") from None
