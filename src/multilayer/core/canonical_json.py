"""Canonical JSON: equal values give equal text, and ambiguous text is an error.

| direction | form |
|---|---|
| write | sorted keys, no spaces, no NaN or Infinity, characters without escapes |
| read | UTF-8 without a byte order mark, no duplicate keys, finite numbers, limited depth and number of containers |

The caller limits the length of a text. Time and memory to read it are proportional to its length.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, NoReturn, cast

import numpy as np

from ..errors import FileError

MAX_DEPTH = 64
"""Largest depth of lists and objects. Nested residual blocks have a depth of a few."""

MAX_CONTAINERS = 300_000
"""Largest number of lists and objects. Each needs much more memory than its two bytes of text."""

# A string, or an unterminated string to the end of the text. Every quote is matched once, so the time is linear.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)


def plain(value: Any) -> Any:
    """Return a value for strict JSON: arrays become lists, and NaN and infinities "nan", "inf" and "-inf".

    >>> plain({"range": (0.0, float("inf"))})
    {'range': [0.0, 'inf']}
    """
    if isinstance(value, np.ndarray | np.generic):
        return plain(cast(Any, value).tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    return [plain(item) for item in cast("list[Any]", value)] if isinstance(value, list | tuple) else value


def dumps(value: object) -> str:
    """Return the text of a value.

    >>> dumps({"b": [1, 2.5, None], "a": "σ"})
    '{"a":"σ","b":[1,2.5,null]}'
    """
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise FileError(f"only finite numbers, strings, lists and objects can be saved as JSON: {error}") from None
    _check_keys(value)
    if _depth(text) > MAX_DEPTH:
        raise FileError(f"JSON to be saved must be at most {MAX_DEPTH} levels deep")
    return text


def loads(data: bytes | str, where: str) -> Any:
    """Return the value of a text. `where` is the start of every error message."""
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        if text.count("[") + text.count("{") > MAX_CONTAINERS:
            raise FileError(f"{where}: JSON must have at most {MAX_CONTAINERS:,} lists and objects")
        if _depth(text) > MAX_DEPTH:
            raise FileError(f"{where}: JSON must be at most {MAX_DEPTH} levels deep")
        value = json.loads(
            text, object_pairs_hook=_no_duplicates, parse_constant=_no_constant, parse_float=_finite_float
        )
        if "\\u" in text:  # half of a surrogate pair cannot be written again
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise FileError(f"{where}: not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except UnicodeError as error:
        raise FileError(f"{where}: not UTF-8: {error}"[:300]) from None
    except RecursionError:
        raise FileError(f"{where}: JSON is nested too deeply") from None
    except ValueError as error:  # also raised for an integer with thousands of digits
        raise FileError(str(error) if isinstance(error, FileError) else f"{where}: {error}") from None
    return value


def _depth(text: str) -> int:
    """Return an upper bound of the depth of brackets. It is exact if there are more than `MAX_DEPTH` brackets."""
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
    """Raise an error for a key that is not a string. json.dumps would save {1: …} as {"1": …}."""
    if isinstance(value, dict):
        for key, inner in cast("dict[object, object]", value).items():
            if not isinstance(key, str):
                raise FileError(f"keys of JSON to be saved must be strings, got {key!r}")
            _check_keys(inner)
    elif isinstance(value, list | tuple):
        for inner in cast("list[object]", value):
            _check_keys(inner)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise ValueError(f"the key {counts.most_common(1)[0][0][:80]!r} occurs twice in one object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite_float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits[:40]} is too large")
    return number
