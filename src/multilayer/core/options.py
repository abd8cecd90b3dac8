"""Options as fields of dataclasses: help text, checks, and the options that the data and the engines share.

`runs.config.Config` consists of `data.DataConfig`, `engines.EngineConfig` and the options of training. Each option is a
field of one of these classes, which also checks it. A function that needs some of the options takes the class that has
them, and gets the whole `Config`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from ..errors import OptionError, option_name, unknown_name
from .dtypes import TRAINED
from .formatting import listed


def described(default: Any, text: str, *, auto: bool = False) -> Any:
    """Describe an option. With `auto`, None means that the program chooses the value."""
    return field(default=default, metadata={"help": text, "auto": auto})


def check_positive(options: object, *names: str) -> None:
    """Raise OptionError for an option that is neither None nor above 0."""
    for name in names:
        value = getattr(options, name)
        if value is not None and not value > 0:
            raise OptionError(f"{option_name(name)} must be positive, got {value!r}")


def check_not_negative(options: object, *names: str) -> None:
    """Raise OptionError for an option that is negative or not finite."""
    for name in names:
        value = getattr(options, name)
        if not 0 <= value < math.inf:
            raise OptionError(f"{option_name(name)} must be finite and at least 0, got {value!r}")


def check_choice(options: object, name: str, valid: tuple[str, ...]) -> None:
    """Raise OptionError if the value of an option is not one of the valid names."""
    if getattr(options, name) not in valid:
        raise OptionError(unknown_name(option_name(name), getattr(options, name), valid))


def check_readable(options: object, name: str, read: Any) -> None:
    """Raise OptionError, with the name of the option, if `read` raises it for the value."""
    try:
        read(getattr(options, name))
    except OptionError as error:
        raise OptionError(f"{option_name(name)}: {error}") from None


@dataclass(frozen=True, kw_only=True)
class SharedConfig:
    """The options that both the preparation of the data and the engines use."""

    seed: int = described(0, "Seed of the random numbers.")
    dtype: str = described("float32", f"Number format: {listed(TRAINED)}.")

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**64:
            raise OptionError(f"{option_name('seed')} must be from 0 to 2**64 - 1, got {self.seed!r}")
        check_choice(self, "dtype", TRAINED)
