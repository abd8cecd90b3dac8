"""Errors for unknown argument names: they name the argument of this package that means the same.

Python's own error for an unknown keyword does not help users who know the names of other libraries: `max_iter`,
`eval_set`, `callbacks`. The decorator `explain_unknown` replaces it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any, ParamSpec, TypeVar

from .. import errors
from ..errors import UnknownArgument, unknown_name
from ..runs.config import Config

P = ParamSpec("P")
R = TypeVar("R")

ELSEWHERE = {
    "eval_set": "pass X_val and y_val to fit",
    "validation_data": "pass X_val and y_val to fit",
    "X_val": "pass it to fit",
    "y_val": "pass it to fit",
    "sample_weight": "pass it to fit",
    "sample_weight_val": "pass it to fit",
    "groups": "pass it to fit",
    "time_column": "pass it to fit",
    "callbacks": "pass them to set_callbacks",
    "callback": "pass it to set_callbacks",
}
"""What to do for arguments of other libraries that are neither an option nor a misspelled one."""


def explain_unknown(method: Callable[P, R]) -> Callable[P, R]:
    """Decorate a method so that an unknown keyword raises `UnknownArgument`."""
    valid = list(inspect.signature(method).parameters)[1:]
    return errors.explain_unknown(
        method, error=lambda args, name: unknown_argument(type(args[0]), name, valid, method=method.__name__)
    )


def unknown_argument(estimator: type[Any], name: str, valid: Iterable[str], *, method: str) -> UnknownArgument:
    """Return the error for an unknown argument of a method. `valid` are the names of its arguments."""
    owner = estimator.__name__
    place = owner if method == "__init__" else f"{owner}.{method}"
    options: list[str] = estimator._get_param_names()
    advice = None
    if name in ELSEWHERE:
        advice = ELSEWHERE[name].removesuffix(" to fit") if method == "fit" else ELSEWHERE[name]
    elif method == "fit" and name in options:
        advice = f"pass it to the constructor, {owner}({name}=…)"
    elif method == "__init__" and name in {field.name for field in fields(Config)} - {"seed", "threads"}:
        advice = f"ml.fit has this option, ml.fit(None, (X, y), {name}=…)"
    if advice is not None:
        return UnknownArgument(f"{place}: unknown argument {name!r}: {advice}")
    return UnknownArgument(f"{place}: {unknown_name('argument', name, valid)}")
