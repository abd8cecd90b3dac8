"""JSON in one form: equal values are equal text, and text that could mean two things is refused.

Written: keys sorted, no spaces, no NaN or Infinity, characters as they are. Read: UTF-8 without a mark, no key twice,
finite numbers, a bounded depth and number of lists and objects; the caller bounds the length. Reading takes time and
memory in proportion to the text, whatever the text says.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Any, NoReturn, cast

import numpy as np

from ..errors import FileError

MAX_DEPTH = 64
"""Levels of lists and objects. A network of residual blocks inside each other has a few."""

MAX_CONTAINERS = 300_000
"""Lists and objects, which cost far more memory and time than the two bytes they take."""

# A string, or one without an end up to the end of the text: every quote is looked at once.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)


def dumps(value: object) -> str:
    """The one text of a value.

    >>> dumps({"b": [1, 2.5, None], "a": "σ"})
    '{"a":"σ","b":[1,2.5,null]}'
    """
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise FileError(f"only finite numbers, texts, lists and objects can be saved as JSON: {error}") from None
    _check_keys(value)
    if _depth(text) > MAX_DEPTH:
        raise FileError(f"JSON to be saved must be at most {MAX_DEPTH} levels deep")
    return text


def loads(data: bytes | str, where: str) -> Any:
    """The value of a text; `where` begins every error."""
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        if text.count("[") + text.count("{") > MAX_CONTAINERS:
            raise FileError(f"{where}: JSON must have at most {MAX_CONTAINERS:,} lists and objects")
        if _depth(text) > MAX_DEPTH:
            raise FileError(f"{where}: JSON must be at most {MAX_DEPTH} levels deep")
        value = json.loads(
            text, object_pairs_hook=_no_duplicates, parse_constant=_no_constant, parse_float=_finite_float
        )
        if "\\u" in text:  # half of a surrogate pair is text that cannot be written again
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise FileError(f"{where}: not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except UnicodeError as error:
        raise FileError(f"{where}: not UTF-8: {error}"[:300]) from None
    except RecursionError:
        raise FileError(f"{where}: JSON is nested too deeply for where it is read") from None
    except ValueError as error:  # ours, or a whole number of thousands of digits
        raise FileError(str(error) if isinstance(error, FileError) else f"{where}: {error}") from None
    return value


def _depth(text: str) -> int:
    """How deep brackets nest, outside of strings; or how many there are, where that is few enough."""
    few = text.count("[") + text.count("{")
    if few <= MAX_DEPTH:
        return few
    try:
        bare = np.frombuffer(_STRING.sub("", text).encode("utf-8"), dtype=np.uint8)
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair") from None
    opens = (bare == ord("[")) | (bare == ord("{"))
    closes = (bare == ord("]")) | (bare == ord("}"))
    steps = opens.astype(np.int8) - closes.astype(np.int8)
    return int(np.cumsum(steps, dtype=np.int32).max(initial=0))


def _check_keys(value: object) -> None:
    """json.dumps turns numbers into keys of text: {1: …} would come back as {"1": …}."""
    if isinstance(value, dict):
        for key, inner in cast("dict[object, object]", value).items():
            if not isinstance(key, str):
                raise FileError(f"keys of JSON to be saved must be texts, got {key!r}")
            _check_keys(inner)
    elif isinstance(value, list | tuple):
        for inner in cast("list[object]", value):
            _check_keys(inner)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise ValueError(f"the key {counts.most_common(1)[0][0][:80]!r} stands twice in one object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite_float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits[:40]} is too large")
    return number
