"""Writes are complete or have no effect, and errors of the system are reported: R2 for single files."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from multilayer.core import atomic_files
from multilayer.errors import StorageError

Tried = Callable[[str, int], None]

ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EIO)


@pytest.fixture(autouse=True)
def _no_hook() -> Iterator[None]:
    yield
    atomic_files.hook = None


def fail_at(k: int, code: int) -> Callable[[str], None]:
    """Return a hook that raises an error of the system at the k-th point."""
    countdown = iter(range(k, -1, -1))

    def hook(name: str) -> None:
        if next(countdown, -1) == 0:
            raise OSError(code, os.strerror(code))

    return hook


def passed(action: Callable[[], Any]) -> list[str]:
    names: list[str] = []
    atomic_files.hook = names.append
    action()
    atomic_files.hook = None
    return names


# write


@pytest.mark.parametrize(
    "chunks", [b"", b"abc", [b"a", b"", b"bc"], iter([b"abc"])], ids=["none", "one", "some", "iterator"]
)
def test_write_writes_every_byte(tmp_path: Path, chunks: Any) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"a longer text that was there before")
    atomic_files.write(path, chunks)
    assert path.read_bytes() in (b"", b"abc")
    assert os.listdir(tmp_path) == ["f"]


def test_a_large_file_is_written_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic_files, "_PIECE", 10)
    data = bytes(range(256))
    names = passed(lambda: atomic_files.write(tmp_path / "f", data))
    assert names.count("write.bytes") == 26
    assert (tmp_path / "f").read_bytes() == data


def test_the_order_of_the_system_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order makes a write safe against power failures: the bytes are on the disk before the name."""
    calls: list[str] = []
    for name in ("open", "write", "fsync", "close", "replace", "stat"):
        real = getattr(os, name)

        def noted(*args: Any, name: str = name, real: Any = real, **kwargs: Any) -> Any:
            calls.append(name)
            return real(*args, **kwargs)

        monkeypatch.setattr(atomic_files.os, name, noted)
    atomic_files.write(str(tmp_path / "f"), b"abc")
    monkeypatch.undo()
    folder, temporary = ["open", "stat"], ["open", "write", "fsync", "close", "replace"]
    assert calls == [*folder, *temporary, "fsync", "stat", "close"]


def test_a_new_file_has_the_mode_of_the_umask(tmp_path: Path) -> None:
    atomic_files.write(tmp_path / "f", b"abc")
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o666 & ~umask


def test_writing_to_a_link_or_a_pipe_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "f")
    (tmp_path / "dangling").symlink_to(tmp_path / "new")
    os.mkfifo(tmp_path / "pipe")
    before = sorted(os.listdir(tmp_path))
    for name, message in (
        ("link", r"cannot write .*link \(ELOOP\): it is a symbolic link, which is not followed here: delete it"),
        ("dangling", r"cannot write .*dangling \(ELOOP\): it is a symbolic link"),
        ("pipe", r"cannot write .*pipe: it is not a regular file: choose another path"),
    ):
        with pytest.raises(StorageError, match=message):
            atomic_files.write(tmp_path / name, b"new")
    assert sorted(os.listdir(tmp_path)) == before
    assert (tmp_path / "f").read_bytes() == b"old"


def test_a_link_created_during_a_write_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"old")

    def swap(name: str) -> None:
        if name == "write.rename":
            (tmp_path / "f").symlink_to(tmp_path / "target")

    atomic_files.hook = swap
    atomic_files.write(tmp_path / "f", b"new")
    assert (tmp_path / "target").read_bytes() == b"old"
    assert not (tmp_path / "f").is_symlink()
    assert (tmp_path / "f").read_bytes() == b"new"


def test_nothing_is_written_through_a_link_that_replaces_the_folder_during_a_write(tmp_path: Path) -> None:
    """The write goes to the folder that was opened, even if its path points elsewhere later."""
    for name in ("run/checkpoints", "other"):
        (tmp_path / name).mkdir(parents=True)

    def swap(name: str) -> None:
        if name == "write.open":
            (tmp_path / "run/checkpoints").rename(tmp_path / "run/moved")
            (tmp_path / "run/checkpoints").symlink_to(tmp_path / "other")

    atomic_files.hook = swap
    atomic_files.write(tmp_path / "run/checkpoints/f", b"new", root=tmp_path / "run")
    atomic_files.hook = None
    assert os.listdir(tmp_path / "other") == []
    assert os.listdir(tmp_path / "run/moved") == ["f"]
    for action in (
        lambda: atomic_files.write(tmp_path / "run/checkpoints/f", b"new", root=tmp_path / "run"),
        lambda: atomic_files.read(tmp_path / "run/checkpoints/f", limit=9, root=tmp_path / "run"),
        lambda: atomic_files.remove([tmp_path / "run/checkpoints/f"], root=tmp_path / "run"),
        lambda: atomic_files.names(tmp_path / "run/checkpoints", root=tmp_path / "run"),
    ):
        with pytest.raises(StorageError, match=r"cannot use .*run/checkpoints \(ELOOP\): it is a symbolic link"):
            action()


def test_a_log_is_not_written_through_links_or_pipes(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"old\n")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    (tmp_path / "hard").hardlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "pipe")
    for name, message in (("link", "symbolic link"), ("hard", "hard link.*by a copy"), ("pipe", "not a regular file")):
        with pytest.raises(StorageError, match=message):
            atomic_files.Log(tmp_path / name)
    assert (tmp_path / "target").read_bytes() == b"old\n"


def test_concurrent_writers_leave_one_complete_file(tmp_path: Path) -> None:
    texts = [bytes([i]) * 100_000 for i in range(8)]
    threads = [threading.Thread(target=atomic_files.write, args=(tmp_path / "f", text)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "f").read_bytes() in texts
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize("old", [None, b"old"], ids=["new", "replaced"])
def test_an_error_at_every_point_of_a_write(tmp_path: Path, old: bytes | None, tried: Tried) -> None:
    path = tmp_path / "f"
    names = passed(lambda: atomic_files.write(path, [b"n", b"ew"]))
    count = 0
    for k, name in enumerate(names):
        for code in ERRNOS:
            path.unlink(missing_ok=True)
            if old is not None:
                path.write_bytes(old)
            atomic_files.hook = fail_at(k, code)
            with pytest.raises(StorageError, match=f"cannot write .*f \\({errno.errorcode[code]}\\): .*") as caught:
                atomic_files.write(path, [b"n", b"ew"])
            atomic_files.hook = None
            assert isinstance(caught.value.__cause__, OSError)
            renamed = names.index(name) > names.index("write.rename")
            assert os.listdir(tmp_path) == (["f"] if renamed or old is not None else []), name
            if path.exists():
                assert path.read_bytes() == (b"new" if renamed else old)
            count += 1
    tried("R2: errors of the system in a write", count)
    assert count == len(ERRNOS) * 9


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_short_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int) -> None:
    """If the system writes a part, the rest is written next. If it writes nothing, that is an error."""
    real = os.write
    monkeypatch.setattr(atomic_files.os, "write", lambda file, data: real(file, data[:taken]) if taken else 0)
    if taken:
        atomic_files.write(tmp_path / "f", b"0123456789")
        assert (tmp_path / "f").read_bytes() == b"0123456789"
    else:
        with pytest.raises(StorageError, match="EIO"):
            atomic_files.write(tmp_path / "f", b"0123456789")
        assert not os.listdir(tmp_path)


def test_a_file_with_missing_bytes_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system reports success, but writes less."""
    real = os.write
    monkeypatch.setattr(atomic_files.os, "write", lambda file, data: real(file, data[:-1]) + 1)
    with pytest.raises(StorageError, match="10 bytes were written, but the file has 9"):
        atomic_files.write(tmp_path / "f", b"0123456789")


def test_an_exception_in_the_iterator_of_chunks(tmp_path: Path) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"abc"
        raise KeyboardInterrupt

    (tmp_path / "f").write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt):
        atomic_files.write(tmp_path / "f", chunks())
    assert os.listdir(tmp_path) == ["f"]
    assert (tmp_path / "f").read_bytes() == b"old"


def test_invalid_paths_are_errors(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"")
    for path, message in (
        (tmp_path / "folder", "EISDIR.*it is a folder"),
        (tmp_path / "none" / "f", "ENOENT.*check the path"),
        (tmp_path / "file" / "f", "ENOTDIR.*a part of the path is a file"),
        (Path("/proc/none"), "cannot write /proc/none"),
        (tmp_path / ("x" * 300), "ENAMETOOLONG.*shorter"),
        (tmp_path / "a\0b", "null character"),
    ):
        with pytest.raises(StorageError, match=message):
            atomic_files.write(path, b"abc")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_an_existing_file_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "f"
    atomic_files.write(path, b"old")
    path.chmod(0o640)
    atomic_files.write(path, b"new")
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.read_bytes() == b"new"


def in_process(code: str) -> str:
    imports = "import os, sys\nfrom pathlib import Path\nfrom multilayer.core import atomic_files\n"
    script = f"{imports}from multilayer.errors import *\n{code}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout


def test_a_real_limit_on_size(tmp_path: Path) -> None:
    """The system writes the first 1,000 bytes, then raises an error."""
    output = in_process(f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
log = atomic_files.Log(Path({str(tmp_path)!r}, "log"))
log.append("x" * 900)
for action in (lambda: atomic_files.write({str(tmp_path / "f")!r}, b"x" * 5000), lambda: log.append("y" * 500)):
    try:
        action()
    except StorageError as error:
        print(error)
log.append("z" * 50)
""")
    assert output.count("EFBIG") == 2
    assert "ulimit -f" in output
    assert os.listdir(tmp_path) == ["log"]
    assert (tmp_path / "log").read_text() == "x" * 900 + "\n" + "z" * 50 + "\n"


def test_a_real_lack_of_permission(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"old")
    tmp_path.chmod(0o555)
    output = in_process(f"""
if os.getuid() == 0:
    os.setuid(65534)
try:
    atomic_files.write({str(tmp_path / "f")!r}, b"new")
except StorageError as error:
    print(error)
""")
    tmp_path.chmod(0o755)
    assert re.search(r"cannot write .*f \(EACCES\): permission is missing", output)
    assert (tmp_path / "f").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]


# read


def test_read_accepts_regular_files_up_to_a_size(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    assert atomic_files.read(tmp_path / "f", limit=3) == b"abc"
    for path, message in (
        ("f", "at most 2 bytes are allowed, the file has 3"),
        ("none", "ENOENT.*check the path"),
        (".", "not a regular file"),
        ("pipe", "not a regular file"),
        ("/dev/zero", "not a regular file"),
        ("loop", "ELOOP"),
        ("f/g", "ENOTDIR"),
        ("a\0b", "null character"),
    ):
        with pytest.raises(StorageError, match=message):
            atomic_files.read(tmp_path / path, limit=2)


def test_a_file_that_grows_during_reading_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"abc")
    real = os.fstat

    def fstat(file: int) -> os.stat_result:
        about = real(file)
        path.write_bytes(path.read_bytes() + b"def")
        return about

    monkeypatch.setattr(atomic_files.os, "fstat", fstat)
    with pytest.raises(StorageError, match="it changed during reading"):
        atomic_files.read(path, limit=100)


# folders


def test_folders(tmp_path: Path) -> None:
    assert atomic_files.make_folder(tmp_path / "a" / "b")
    assert not atomic_files.make_folder(tmp_path / "a" / "b")
    (tmp_path / "f").write_bytes(b"")
    with pytest.raises(StorageError, match=r"cannot make the folder .*a part of the path is a file"):
        atomic_files.make_folder(tmp_path / "f")
    with pytest.raises(StorageError, match=r"cannot make the folder .*a part of the path is a file"):
        atomic_files.make_folder(tmp_path / "f" / "g")
    (tmp_path / ".x.tmp").write_bytes(b"")
    (tmp_path / "x.tmp").write_bytes(b"")
    atomic_files.remove_temporaries(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["a", "f", "x.tmp"]
    atomic_files.remove([tmp_path / "f", tmp_path / "none"])
    assert sorted(os.listdir(tmp_path)) == ["a", "x.tmp"]


def test_a_disk_without_fsync_of_folders_is_supported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync

    def fsync(file: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{file}"):
            raise OSError(errno.EINVAL, "no")
        real(file)

    monkeypatch.setattr(atomic_files.os, "fsync", fsync)
    atomic_files.write(tmp_path / "f", b"abc")
    assert (tmp_path / "f").read_bytes() == b"abc"


# Log


def test_a_log_grows_by_lines(tmp_path: Path) -> None:
    log = atomic_files.Log(tmp_path / "log")
    log.append("one")
    assert (tmp_path / "log").read_text() == "one\n"
    log.append("zwei: ü")
    log.sync()
    log.close()
    log = atomic_files.Log(tmp_path / "log")
    log.append("")
    log.close()
    assert (tmp_path / "log").read_text() == "one\nzwei: ü\n\n"
    with pytest.raises(ValueError, match="line break"):
        atomic_files.Log(tmp_path / "log").append("a\nb")


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        (b"", b""),
        (b"torn", b""),
        (b"a\ntorn", b"a\n"),
        (b"a\n", b"a\n"),
        (b"a\n\n", b"a\n\n"),
        (b"a\n" + b"x" * 200_000, b"a\n"),
        (b"x" * 65_535 + b"\n" + b"y", b"x" * 65_535 + b"\n"),
        (b"x" * 65_536 + b"\n" + b"y" * 65_536, b"x" * 65_536 + b"\n"),
        (b"a\n" + b"\0" * 4096, b"a\n"),
    ],
    ids=range(9),
)
def test_an_incomplete_line_is_removed(tmp_path: Path, content: bytes, kept: bytes) -> None:
    (tmp_path / "log").write_bytes(content)
    log = atomic_files.Log(tmp_path / "log")
    log.append("next")
    log.close()
    assert (tmp_path / "log").read_bytes() == kept + b"next\n"


def test_an_error_at_every_point_of_a_log(tmp_path: Path, tried: Tried) -> None:
    path = tmp_path / "log"

    def work() -> None:
        log = atomic_files.Log(path)
        try:
            log.append("two")
            log.sync()
        finally:
            log.close()

    path.write_text("one\ntorn")
    count = 0
    for k in range(len(passed(work))):
        for code in ERRNOS:
            path.write_text("one\ntorn")
            atomic_files.hook = fail_at(k, code)
            with pytest.raises(StorageError, match=errno.errorcode[code]):
                work()
            atomic_files.hook = None
            work()
            assert path.read_text() in ("one\ntwo\n", "one\ntwo\ntwo\n")
            count += 1
    tried("R2: errors of the system in a log", count)
    assert count == len(ERRNOS) * 6


def test_a_line_that_is_written_in_part_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = atomic_files.Log(tmp_path / "log")
    log.append("one")
    real = os.write

    def full(file: int, data: Any) -> int:
        if len(data) <= 2:
            raise OSError(errno.ENOSPC, "full")
        return real(file, data[:-2])

    for broken in (False, True):  # in the second round, removing the line fails too
        with monkeypatch.context() as patch:
            patch.setattr(atomic_files.os, "write", full)
            if broken:
                patch.setattr(atomic_files.os, "ftruncate", lambda file, size: os.fsync(10**6))
            with pytest.raises(StorageError, match="disk is full"):
                log.append("two")
        assert (tmp_path / "log").read_text() == ("one\ntw" if broken else "one\n")
    log.append("three")
    log.close()
    assert (tmp_path / "log").read_text() == "one\nthree\n"
