"""Arrow's threads use no memory of Python: the process would abort if they released it while Python exits."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from multilayer.data import read, text_files


def test_a_stream_copies_the_bytes() -> None:
    data = b"a,b\n1,2\n" * 1000
    before = sys.getrefcount(data)
    stream = text_files._stream(data)
    assert sys.getrefcount(data) == before
    assert stream.read() == data


@pytest.mark.parametrize(
    ("name", "text"), [("t.csv", "a,b\n1,2\n3,4\n"), ("t.jsonl", '{"a": 1, "b": 2}\n{"a": 3, "b": 4}\n')]
)
def test_text_files_are_parsed_from_copied_bytes(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams: list[Any] = []
    parsed: list[Any] = []

    def stream(data: bytes) -> Any:
        streams.append(original(data))
        return streams[-1]

    def recording(reader: Any) -> Any:
        return lambda source, **options: parsed.append(source) or reader(source, **options)

    original = text_files._stream
    monkeypatch.setattr(text_files, "_stream", stream)
    monkeypatch.setattr(text_files.pa_csv, "read_csv", recording(text_files.pa_csv.read_csv))
    monkeypatch.setattr(text_files.pa_json, "read_json", recording(text_files.pa_json.read_json))
    (tmp_path / name).write_text(text)
    assert len(read(tmp_path / name)) == 2
    assert parsed
    assert all(any(source is one for one in streams) for source in parsed)
