"""A griffe extension: doctests of short docstrings, which have no section `Examples`, are shown as examples."""

from __future__ import annotations

import re
from typing import Any

import griffe

_SECTION = re.compile(r"^\s*Examples\n\s*-+$", re.M)


class Doctests(griffe.Extension):
    """Put the heading `Examples` before the first doctest of a docstring without one."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        docstring = obj.docstring
        if docstring is not None and ">>> " in docstring.value and not _SECTION.search(docstring.value):
            docstring.value = re.sub(r"(?m)^>>> ", "Examples\n--------\n>>> ", docstring.value, count=1)
