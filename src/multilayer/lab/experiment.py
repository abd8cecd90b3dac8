"""What an experiment declares: its claim, its settings, how it measures, when the claim holds, and its plot.

    parts       independent parts of the measurement of one seed, for example one per width
    measure     (settings, part, seed) → rows. The rows must depend on these three arguments only.
    criteria    conditions on the rows of a seed, written before the measurement

The settings of an experiment are a frozen dataclass with three instances: the default, which takes at most 60 s on two
cores, `full` for a publication, and `tiny` for tests. `running.py` runs an experiment.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from ..errors import OptionError, UnknownArgument, option, unknown_name
from .criteria import Criterion
from .rows import Row, Rows

if TYPE_CHECKING:
    from ..drawing.plots import AnyPanel

Size = Literal["default", "full", "tiny"]


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published number or result, and a function that returns the corresponding result of the rows."""

    what: str
    theirs: str
    source: str
    """Author, year, and the table or figure."""
    ours: Callable[[Rows], str]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The declaration of one experiment."""

    name: str
    title: str
    claim: str
    """What the books say, in one or two sentences."""
    sources: tuple[str, ...]
    """Sources of the claim: author, year, title."""
    settings: Any
    full: Any
    tiny: Any
    seeds: int
    """Number of seeds at the default size."""
    full_seeds: int
    measure: Callable[[Any, Any, int], Iterable[Row]]
    parts: Callable[[Any], Sequence[Any]] = lambda settings: (None,)
    criteria: tuple[Criterion, ...]
    summary: Callable[[Rows], str]
    """One or two sentences with the most important numbers."""
    panels: Callable[[Rows], Sequence[AnyPanel]]
    published: tuple[Published, ...] = ()
    exclusive: bool = False
    """Whether time is measured. Nothing else may then run at the same time."""

    @property
    def method(self) -> str:
        """How the experiment measures: the docstring of its file, without the first line."""
        text = inspect.cleandoc(sys.modules[self.measure.__module__].__doc__ or "")
        return text.partition("\n")[2].strip("\n")

    @property
    def takes_data(self) -> bool:
        """Whether the experiment can use the table of the user."""
        return "data" in self.names or "tables" in self.names

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the settings."""
        return tuple(field.name for field in fields(self.settings))

    def sized(self, size: Size, changes: Mapping[str, Any]) -> Any:
        """Return the settings of a size, with changes. An unknown setting, or a table without use, is an error."""
        base = {"default": self.settings, "full": self.full, "tiny": self.tiny}[size]
        known = dict(changes)
        if "data" in known and not self.takes_data:
            raise OptionError(f"{self.name} cannot use another table: leave out {option('data', str(known['data']))}")
        if "data" in known:
            known["data"] = _table(known["data"])
        if "data" in known and "tables" in self.names:
            known["tables"] = (known.pop("data"),)
        for name in known:
            if name not in self.names:
                raise UnknownArgument(f"{self.name}: {unknown_name('setting', name, self.names)}")
        return replace(base, **known)


def _table(given: object) -> str:
    if not isinstance(given, str | os.PathLike):
        raise OptionError(f"data must be the name of a bundled table or the path of a file, got {type(given).__name__}")
    return str(cast(object, given))


def need(setting: str, given: Sequence[Any], *, includes: Sequence[Any] = (), at_least: int = 1) -> None:
    """Raise an error if a setting lacks values that the criteria need. `parts` calls it before the measurement."""
    missing = [value for value in includes if value not in given]
    if missing:
        raise OptionError(f"{setting} must include {', '.join(map(repr, missing))}, got {tuple(given)}")
    if len(set(given)) < at_least:
        raise OptionError(f"{setting} must have {at_least} or more different values, got {tuple(given)}")
