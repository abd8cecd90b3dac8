"""Canonical JSON: equal values give equal text, and ambiguous text is an error."""

from __future__ import annotations

import contextlib
import json
import math
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multilayer.core import canonical_json
from multilayer.errors import FileError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


def writable(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


@given(VALUES)
def test_a_value_is_read_back_and_has_one_text(value: Any) -> None:
    if not writable(value):
        with pytest.raises(FileError, match="can be saved as JSON"):
            canonical_json.dumps(value)
        return
    text = canonical_json.dumps(value)
    again = canonical_json.loads(text, "x")
    assert again == value
    assert canonical_json.dumps(again) == text
    assert canonical_json.loads(json.dumps(value, indent=1).encode(), "x") == value


def test_order_of_keys_does_not_matter() -> None:
    assert canonical_json.dumps({"b": 1, "a": {"d": 2, "c": 3}}) == canonical_json.dumps(
        {"a": {"c": 3, "d": 2}, "b": 1}
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "f: not JSON"),
        (b"{", "f: not JSON"),
        (b'{"a": 1, "a": 2}', "'a' occurs twice"),
        (b'{"x": {"a": 1, "b": 2, "a": 1}}', "'a' occurs twice"),
        (b"NaN", "NaN is not a JSON number"),
        (b"[Infinity]", "Infinity is not"),
        (b"[-Infinity]", "-Infinity is not"),
        (b"1e999", "the number 1e999 is too large"),
        (b"-1e999", "too large"),
        (b"9" * 5000, "f: Exceeds the limit"),
        (b"\xff", "not UTF-8"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        ("{}".encode("utf-16"), "f: not"),
        (b'"\\ud800"', "not UTF-8"),
        (b'{"\\ud800": 1}', "not UTF-8"),
        (b'"\xed\xa0\x80"', "not UTF-8"),
        (b"[" * 65 + b"]" * 65, "at most 64 levels"),
        (b"[" * 300_000, "at most 64 levels"),
        (b"[" * 300_001, "at most 300,000 lists and objects"),
        (b"[" + b"[]," * 10**6 + b"[]]", "at most 300,000 lists and objects"),
        (b'{"a":' * 10**5, "at most 64 levels"),
        (b'"' + b'\\"' * 10**6, "f: not JSON"),
        (b"{} {}", "Extra data"),
        (b"'a'", "not JSON"),
        (b"[1,]", "not JSON"),
        (b"01", "Extra data"),
        (b'"\n"', "not JSON"),
        (b"\x00", "not JSON"),
    ],
    ids=lambda value: value[:20].decode("latin-1") if isinstance(value, bytes) else None,
)
def test_invalid_text_is_an_error(text: bytes, message: str) -> None:
    with pytest.raises(FileError, match=message):
        canonical_json.loads(text, "f")


def test_brackets_in_strings_do_not_count() -> None:
    value = ["[" * 100, '\\"[' * 100, {"{" * 100: "\\"}]
    assert canonical_json.loads(canonical_json.dumps(value), "x") == value
    assert canonical_json.loads("[" * 64 + "]" * 64, "x")
    assert canonical_json.loads("[" + "[]," * 1000 + "[]]", "x")


@pytest.mark.parametrize(
    "value",
    [math.nan, [math.inf], {"a": -math.inf}, {1: 2}, [{None: 1}], {"a"}, b"x", 1j, "\ud800", object()],
    ids=lambda value: type(value).__name__,
)
def test_values_that_cannot_be_saved_are_errors(value: Any) -> None:
    with pytest.raises(FileError, match=r"JSON to be saved|saved as JSON"):
        canonical_json.dumps(value)


def test_too_deep_values_and_texts_are_errors() -> None:
    value: Any = 1
    for _ in range(65):
        value = [value]
    with pytest.raises(FileError, match="at most 64 levels"):
        canonical_json.dumps(value)
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(FileError, match="saved as JSON"):
        canonical_json.dumps(loop)


@pytest.mark.parametrize(
    "text",
    [
        "[" + "[]," * 299_990 + "[]]",
        "[" + "{}," * 299_990 + "{}]",
        "[" + '{"a":{"b":1}},' * 149_990 + "1]",
        "[" + '"",' * 1_390_000 + '""]',
        "[" + "1," * 2_090_000 + "1]",
        "[" + "1e9," * 1_040_000 + "1]",
        "{" + ",".join(f'"{i}":1' for i in range(400_000)) + ',"7":1}',
        '"\\' * 2_090_000,
        "[" + '"\\u0061",' * 460_000 + "1]",
    ],
    ids=["lists", "objects", "nested", "strings", "numbers", "floats", "keys", "quotes", "escapes"],
)
def test_malicious_text_takes_less_than_a_second(text: str) -> None:
    assert len(text) < 5_000_000
    start = time.process_time()
    with contextlib.suppress(FileError):
        canonical_json.loads(text, "x")
    assert time.process_time() - start < 1.0
