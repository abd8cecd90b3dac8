"""Options by name with constants: `huber(delta=2)`, `adam(beta2=0.95)`, `normal(0.01)`.

A dict maps the valid names to functions that create the option. The keyword parameters of a function, with defaults,
are the constants. Numbers without a name are assigned to the parameters in order. A function with `*q` takes any number
of constants, with or without that name. This is used for losses, optimizers, initialization schemes and schedules.
"""

from __future__ import annotations

import inspect
import math
import operator
import re
from collections.abc import Callable, Mapping
from typing import SupportsIndex, TypeVar

from ..errors import MultilayerError, OptionError, unknown_name

T = TypeVar("T")

MAX_THREADS = 1024
"""Largest number of threads, as in csrc/runtime/machine.h."""

_CALL = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(?:\((.*)\))?\s*")


def choose(what: str, text: str, makers: Mapping[str, Callable[..., T]], *, also: tuple[str, ...] = ()) -> T:
    """Create the option that `text` names, with its constants. `also` are further valid names, for error messages.

    >>> choose("shape", "box(2, depth=3)", {"box": lambda width=1.0, depth=1.0: (width, depth)})
    (2.0, 3.0)
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(f"{what} must be a string such as {next(iter(makers))!r}, got {text!r}")
    match = _CALL.fullmatch(text)
    if match is None or match[1] not in makers:
        raise OptionError(unknown_name(what, text if match is None else match[1], (*makers, *also)))
    name = match[1]
    maker = makers[name]
    takes = inspect.signature(maker).parameters
    several = next((p.name for p in takes.values() if p.kind is p.VAR_POSITIONAL), None)
    named: dict[str, float] = {}
    plain: list[float] = []
    for part in filter(None, (part.strip() for part in (match[2] or "").split(","))):
        key, _, value = part.rpartition("=")
        key = key.strip()
        if key and key not in takes:
            raise OptionError(
                unknown_name(f"constant of {name}", key, takes) if takes else f"{name} takes no constants, got {part}"
            )
        if key in named:
            raise OptionError(f"{key} of {name} is given twice in {text!r}")
        if key and key != several:
            named[key] = _number(value, part, name)
        else:
            plain.append(_number(value, part, name))
    if several is not None:
        return maker(*plain, **named)
    if len(plain) > len(takes):
        raise OptionError(f"{name} takes at most {len(takes)} constants, got {len(plain)} in {text!r}")
    for key, value in zip(takes, plain, strict=False):
        if key in named:
            raise OptionError(f"{key} of {name} is given twice in {text!r}")
        named[key] = value
    missing = [key for key, p in takes.items() if p.default is p.empty and key not in named]
    if missing:
        raise OptionError(f"{name} needs {' and '.join(missing)}: {name}({', '.join(missing)}), got {text!r}")
    return maker(**named)


def _number(value: str, part: str, name: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise OptionError(f"constants of {name} must be finite numbers, got {part!r}")
    return number


def require(name: str, value: float, condition: bool, requirement: str) -> float:
    """Return the constant `value`, or raise an error with the requirement."""
    if not condition:
        raise OptionError(f"{name} must be {requirement}, got {value:g}")
    return value


def whole(
    name: str, value: SupportsIndex, *, least: int = 1, most: int = 2**63, error: type[MultilayerError] = OptionError
) -> int:
    """Return an integer, such as one of numpy, as an int. Raise an error for other values and outside of the limits.

    >>> whole("batch", 32)
    32
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least:
        raise error(f"{name} must be a whole number of at least {least}, got {value!r}")
    if number > most:
        power = most.bit_length() - 1
        limit = f"2^{power}" if most == 1 << power and power > 20 else f"{most:,}"
        raise error(f"{name} must be at most {limit}, got {number if number < 10**20 else 'far more'}")
    return number


def threads(value: SupportsIndex) -> int:
    """Return a number of threads, or raise an error if it is not from 1 to `MAX_THREADS`.

    >>> threads(8)
    8
    """
    return whole("threads", value, most=MAX_THREADS)
