"""The generated parts of the page about diagnostics: the rules of the detectors, their thresholds, and their measured
rates.

    rules       each detector's docstring, with the constants that it and its helpers read
    explained   `EXPLAINS`: which finding is left out because of which other
    rates       the tables of bench/detectors.py, from docs/measured/detectors.txt

`constants` replaces {{module.NAME}} in a page by the value of a constant, with an optional format such as
{{unit_detectors.DEAD_SHARE:%}}. Modules are those of `multilayer.diagnostics`, or of `multilayer` with their package.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

MEASURED = Path(__file__).parents[1] / "measured" / "detectors.txt"
"""Output of python bench/detectors.py --set report --markdown --remedies."""
COMMAND = "python bench/detectors.py --set report --markdown --remedies"

_CONSTANT = re.compile(r"\{\{([\w.]+)\.([A-Z][A-Z_]*)(?::([%,]))?\}\}")


def constants(markdown: str) -> str:
    """Return the page with the values of the constants that it names."""
    return _CONSTANT.sub(lambda match: _value(_module(match[1]), match[2], match[3]), markdown)


def _module(name: str) -> Any:
    for package in ("multilayer.diagnostics", "multilayer"):
        try:
            return importlib.import_module(f"{package}.{name}")
        except ModuleNotFoundError:
            continue
    raise ValueError(f"unknown module {name!r} in a page: expected one of multilayer.diagnostics, such as networks")


def _value(module: Any, name: str, form: str | None) -> str:
    from multilayer.core.formatting import percent

    if not hasattr(module, name):
        raise ValueError(f"unknown constant {name!r} in a page: {module.__name__} has no such name")
    value = getattr(module, name)
    return percent(value) if form == "%" else f"{value:,}" if form == "," else _number(value)


def _number(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_number, value))})"
    return f"{value:g}"


# Rules


def rules(table: Callable[..., list[str]]) -> str:
    """Return a table with the rule and the thresholds of each detector."""
    from multilayer.diagnostics import TITLES
    from multilayer.diagnostics.check import DETECTORS

    rows: list[list[str]] = []
    for kind, detector in DETECTORS.items():
        found = "<br>".join(dict.fromkeys(_threshold(*one) for one in thresholds(detector)))
        rows.append([f"**{TITLES[kind]}**<br>`{kind}`", _rule(detector), found])
    return "\n".join(table(["finding", "is reported", "thresholds"], rows))


def _rule(detector: Any) -> str:
    text = " ".join((inspect.getdoc(detector) or "").split())
    start = "Yield a finding "
    if not text.startswith(start):
        raise ValueError(f"the docstring of {detector.__name__} must begin with {start!r}, got {text[:40]!r}")
    return text.removeprefix(start)


def thresholds(detector: Any) -> Iterator[tuple[Any, str]]:
    """Yield module and name of each constant that decides about a finding, not those of its remedies."""
    from multilayer.diagnostics import findings

    for function in _called(detector):
        home = function.__globals__
        for name in _names(function.__code__):
            if name.isupper() and name in home and not hasattr(findings, name) and _is_number(home[name]):
                yield _origin(home, name), name


def _called(detector: Any) -> list[FunctionType]:
    """Return a detector, and the functions of the diagnostics and properties of a case that it reads."""
    from multilayer.diagnostics.case import Case

    found: list[FunctionType] = []
    waiting: list[Any] = [detector]
    while waiting:
        function = waiting.pop(0)
        if function in found or "Remedy" in str(function.__annotations__.get("return", "")):
            continue
        found.append(function)
        for name in _names(function.__code__):
            called, read = function.__globals__.get(name), vars(Case).get(name)
            if isinstance(called, FunctionType) and called.__module__.startswith("multilayer.diagnostics"):
                waiting.append(called)
            if isinstance(read, property):
                waiting.append(read.fget)
    return found


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _is_number(value: Any) -> bool:
    return all(map(_is_number, value)) if isinstance(value, tuple) else isinstance(value, int | float)


def _origin(home: dict[str, Any], name: str) -> Any:
    """Return the module that documents a constant: this one, or the one from which it is imported."""
    own = sys.modules[home["__name__"]]
    if name in documented(own):
        return own
    modules = [one for key, one in sys.modules.items() if key.startswith("multilayer.diagnostics.")]
    return next((one for one in modules if name in documented(one) and getattr(one, name) is home[name]), own)


def _threshold(module: Any, name: str) -> str:
    text, group = documented(module).get(name, ("", (name,)))
    values = ", ".join(f"`{one}` = {_number(getattr(module, one))}" for one in group)
    return f"{values}: {text[:1].lower()}{text[1:].rstrip('.')}" if text else values


@cache
def documented(module: Any) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return for each constant of a module the string below it, and the names that this string describes."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    body = ast.parse(Path(module.__file__).read_text()).body
    for node, below in pairwise(body):
        if not isinstance(node, ast.Assign) or not isinstance(below, ast.Expr):
            continue
        target, value = node.targets[0], below.value
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        group = tuple(one.id for one in names if isinstance(one, ast.Name))
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            found |= dict.fromkeys(group, (" ".join(value.value.split()), group))
    return found


# Other tables


def explained(table: Callable[..., list[str]]) -> str:
    """Return which finding is left out if which other was found."""
    from multilayer.diagnostics import KINDS
    from multilayer.diagnostics.check import EXPLAINS

    rows = [
        [f"`{kind}`", ", ".join(f"`{one}`" for one in KINDS if one in EXPLAINS[kind])]
        for kind in KINDS
        if kind in EXPLAINS
    ]
    return "\n".join(table(["finding", "is left out if one of these was found"], rows))


def rates() -> str:
    """Return the tables that the bench printed, or how to make them."""
    if not MEASURED.exists():
        return f"This checkout has no measurements. `{COMMAND} > docs/measured/{MEASURED.name}` makes them."
    return tables_in(MEASURED.read_text())


def tables_in(text: str) -> str:
    """Return the tables in Markdown of the last part of an output.

    >>> tables_in("== set report\\nleakage: 24 cases\\n\\n| a |\\n|---|\\n| 1 |\\n\\nmissed: x\\n\\n| b |\\n|---|")
    '| a |\\n|---|\\n| 1 |\\n\\n| b |\\n|---|'
    """
    last = text.rpartition("== set ")[2]
    blocks = re.findall(r"(?:^\|.*\n?)+", last, re.M)
    return "\n\n".join(block.strip() for block in blocks)
