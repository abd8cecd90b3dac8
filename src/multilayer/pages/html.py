"""One HTML file from a built template and its data.

    template   pages/NAME.html: script and style inside, __STATE__ where the data goes, __POLICY__ where the policy goes
    data       JSON in a script element of type application/json, which a browser never runs

The content security policy allows that one script and that one style by the SHA-256 of their text and nothing else:
no other script, no style attribute, no request. What a user wrote can neither end the element it stands in nor become
markup: <, > and & are written as JSON escapes, as are the two line ends that JavaScript knows and JSON does not.

Left out on purpose: a fallback for a missing template. It is part of every wheel; a checkout makes it with `make`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from ..errors import StorageError

_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}
_SCRIPT = re.compile(r'<script type="module">(.*?)</script>', re.DOTALL)
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)


def fill(name: str, state: Any, *, live: bool = False) -> str:
    """The page of that name with its data. `live` lets it listen to the server that it came from."""
    template = _template(name)
    # The data goes in last: it may hold the words that mark the places.
    before, after = template.replace("__POLICY__", _policy(template, live=live)).split("__STATE__")
    return f"{before}{to_json(state)}{after}"


def to_json(state: Any) -> str:
    """JSON that can stand inside a script element. NaN and infinities, which JSON has not, become their names."""
    return json.dumps(_plain(state), ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)


def _template(name: str) -> str:
    path = Path(__file__).parent / "built" / f"{name}.html"
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        raise StorageError(
            f"the page {name!r} has not been built at {path}: in a checkout run `make pages` (it needs Node and npm); "
            "a wheel always has it"
        ) from None


def _policy(template: str, *, live: bool) -> str:
    rules = ["default-src 'none'"]
    for rule, part in (("script-src", _SCRIPT), ("style-src", _STYLE)):
        rules.append(f"{rule} {_hash(part.findall(template)[0])}")
    rules += ["img-src data: blob:", "base-uri 'none'", "form-action 'none'"]
    if live:
        rules.append("connect-src 'self'")
    return "; ".join(rules)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _plain(value: Any) -> Any:
    """Arrays as lists, numpy's numbers as Python's, and no number that JSON cannot say."""
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(item) for item in cast("Sequence[Any]", value)]
    return value
