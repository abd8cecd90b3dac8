"""Arrow's threads hold nothing of Python's: one that lets go while Python ends would abort the process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from multilayer.data import read, text_files


def test_a_stream_is_of_memory_of_its_own() -> None:
    data = b"a,b\n1,2\n" * 1000
    before = sys.getrefcount(data)
    stream = text_files._stream(data)
    assert sys.getrefcount(data) == before
    assert stream.read() == data


@pytest.mark.parametrize(
    ("name", "text"), [("t.csv", "a,b\n1,2\n3,4\n"), ("t.jsonl", '{"a": 1, "b": 2}\n{"a": 3, "b": 4}\n')]
)
def test_every_text_is_read_from_such_a_stream(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    given: list[Any] = []

    def stream(data: bytes) -> Any:
        made.append(own(data))
        return made[-1]

    def noting(reader: Any) -> Any:
        return lambda source, **options: given.append(source) or reader(source, **options)

    own = text_files._stream
    monkeypatch.setattr(text_files, "_stream", stream)
    monkeypatch.setattr(text_files.pa_csv, "read_csv", noting(text_files.pa_csv.read_csv))
    monkeypatch.setattr(text_files.pa_json, "read_json", noting(text_files.pa_json.read_json))
    (tmp_path / name).write_text(text)
    assert len(read(tmp_path / name)) == 2
    assert given
    assert all(any(source is one for one in made) for source in given)
