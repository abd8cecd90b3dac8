"""The few exceptions users meet.

    MultilayerError
    ├── SpecError        a network that cannot be described, and where in its text or JSON
    ├── BatchError       a training batch a layer cannot use
    ├── OptionError      a value outside what an option takes
    ├── DataError        a table that cannot be used as it is: which file, row and column, and by which rule
    ├── EventError       a line of a run's log that is not an event
    ├── StateError       a state that does not belong to this network or optimiser
    ├── StorageError     a file that cannot be read or written, and what to do about the disk
    ├── FileError        a model file or checkpoint whose content is not what it must be
    ├── RunError         a run folder that is none, is in use, or has no checkpoint that is whole
    ├── MissingExtra     a library that an optional feature needs
    └── BudgetExceeded   a limit the user set, and what went over it

A message says what was required, what was received and where, then what to do. The command line prints it without a
traceback and exits with `exit_code`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class MultilayerError(ValueError):
    """Base of every error this package raises on purpose."""

    exit_code = 2


class SpecError(MultilayerError):
    """A network description that cannot be read or does not fit together."""


class BatchError(MultilayerError):
    """A training batch that a layer cannot use."""


class OptionError(MultilayerError):
    """An option's value is outside what it takes."""


class DataError(MultilayerError):
    """A table that cannot be read, or does not fit what was trained."""


class EventError(MultilayerError):
    """A line of a run's log that is not an event."""


class StateError(MultilayerError):
    """A training state that does not belong to this network, optimiser or version."""


class StorageError(MultilayerError):
    """A file could not be read or written; what was there before is untouched."""


class FileError(MultilayerError):
    """The content of a model file or checkpoint is malformed, damaged, or newer than this version."""


class RunError(MultilayerError):
    """A run folder that is none, is in use by another process, or has no checkpoint that is whole."""


class MissingExtra(MultilayerError):
    """An optional library is not installed."""

    def __init__(self, library: str, *, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {library}, which is not installed: pip install 'multilayer[{extra}]'")


class BudgetExceeded(MultilayerError):
    """A cost is over the limit the user set."""

    exit_code = 1


def unknown_name(what: str, name: str, valid: Iterable[str]) -> str:
    """The message for a name that is not in a closed set: the nearest name first, then all of them.

    >>> unknown_name("optimizer", "adm", ["sgd", "adam"])
    "unknown optimizer 'adm': did you mean 'adam'? valid: adam, sgd"
    """
    names = sorted(valid)
    nearest = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    return f"unknown {what} {name!r}: {hint}valid: {', '.join(names)}"


def printable(text: str, *, lines: bool = False) -> str:
    """The text with nothing in it that could steer a terminal: names come from data. `lines` keeps its line ends.

    >>> printable("a\\x1b[31mb\\n")
    'a\\\\x1b[31mb\\\\n'
    """
    return "".join(c if c.isprintable() or (lines and c == "\n") else repr(c)[1:-1] for c in text)
