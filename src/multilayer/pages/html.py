"""One HTML file from a built template and its data.

    template   built/NAME.html with script and style, and the placeholders __STATE__ and __POLICY__
    data       JSON in a script element of type application/json, which browsers do not run

The content security policy allows the script and the style of the template by the SHA-256 of their text. It forbids
all other scripts, style attributes and requests. Text from the user cannot end the script element or become markup:
<, > and & are written as JSON escapes. So are U+2028 and U+2029, which end a line in JavaScript but not in JSON.

There is no fallback for a missing template: wheels contain the templates, and `make pages` builds them in a checkout.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

from ..core.canonical_json import plain
from ..errors import StorageError

_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}
_SCRIPT = re.compile(r'<script type="module">(.*?)</script>', re.DOTALL)
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)


def fill(name: str, state: Any, *, live: bool = False) -> str:
    """Return the page of this name with its data. If `live`, the page may connect to the server that sent it."""
    template = _template(name)
    # The data is inserted last, because it may contain the placeholders.
    before, after = template.replace("__POLICY__", _policy(template, live=live)).split("__STATE__")
    return f"{before}{to_json(state)}{after}"


def to_json(state: Any) -> str:
    """Return JSON that is safe inside a script element, with sorted keys. NaN and infinities become strings."""
    text = json.dumps(plain(state), ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)
    return text.translate(_ESCAPES)


def _template(name: str) -> str:
    path = Path(__file__).parent / "built" / f"{name}.html"
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        raise StorageError(
            f"the page {name!r} has not been built at {path}: in a checkout, run `make pages` "
            "(it needs Node and npm); wheels contain it"
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
