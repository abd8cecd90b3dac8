"""The events of a run, in order, as plain data.

An event is a frozen dataclass here, and a line in `events.jsonl`: a JSON object with its fields, and its name as
`event`. Every tracker, plot and page reads the events of this log, so its format is fixed:

- There are no other events than those in this file.
- Numbers that are not finite are written as the strings "nan", "inf" and "-inf".
- Two logs of the same run are equal except for times and speeds. The chunks of the loop have no influence.
- Epochs are counted from 1: after the event of epoch 3, three epochs are done.

A killed run is resumed from a checkpoint. Its `resume` event supersedes the events that were emitted after the
checkpoint.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import cache
from types import UnionType
from typing import Any, ClassVar, Literal, NamedTuple, Union, cast

from ..core.canonical_json import plain
from ..core.formatting import number, short
from ..errors import EventError, unknown_name

CLOCK = frozenset({"time", "seconds", "rows_per_second"})
"""Fields that depend on the time. `same` ignores them."""
NO_MISTAKES = "every training row is classified correctly"
"""Reason of the `End` event of a perceptron that has converged. Its model is that of the last epoch."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base class: the number of steps done so far, and the time in seconds since 1970."""

    event: ClassVar[str]
    step: int
    time: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"event": self.event, **{key: plain(value) for key, value in asdict(self).items()}}


@dataclass(frozen=True, kw_only=True)
class Start(Event):
    """The start of a run: its network, data and configuration."""

    event: ClassVar[str] = "start"
    network: str
    """The network, in the network grammar."""
    parameters: int
    """Number of parameters of one network."""
    rows: int
    """Number of training rows."""
    engine: str
    """Name of the engine that trains."""
    seed: int
    """Seed of the random numbers."""
    config: dict[str, Any]
    """The options, given and chosen."""
    versions: dict[str, str]
    """Versions of the package and of its libraries."""
    task: str = ""
    """Kind of the task, such as binary or regression."""
    metric: str = ""
    """The metric that selects the best epoch."""
    held_out: int = 0
    """Number of held-out rows."""
    dropped: int = 0
    """Number of rows of the source that could not be used."""
    notes: list[str] = field(default_factory=list[str])
    """Decisions about the data."""
    run: str = ""
    """SHA-256 of the run's configuration. Empty for a run in memory, and in logs of versions that did not record it."""


@dataclass(frozen=True, kw_only=True)
class Progress(Event):
    """Progress at a fixed interval of steps. Means are over the steps since the previous `progress` event."""

    event: ClassVar[str] = "progress"
    epoch: int
    """The current epoch."""
    loss: float
    """Mean training loss."""
    gradient_norm: float
    """Mean norm of the gradient."""
    learning_rate: float
    """Learning rate of the last step."""


@dataclass(frozen=True, kw_only=True)
class EpochEnd(Event):
    """The end of an epoch. Means are over the steps of the epoch."""

    event: ClassVar[str] = "epoch"
    epoch: int
    """The completed epoch."""
    loss: float
    """Mean training loss of the epoch."""
    seconds: float
    """Training time, without the evaluation."""
    rows_per_second: float
    """Training rows per second."""
    gradient_norm: float | None = None
    """Mean norm of the gradient. Old logs do not have it."""
    validation_loss: float | None = None
    """Loss on the held-out rows, or None without held-out rows."""
    metrics: dict[str, float]
    """Metrics on the held-out rows, by name."""
    units: dict[str, Any] = field(default_factory=dict[str, Any])
    """The units of each activation layer, by its name, in about 8 epochs of a run and in the last. Empty in the other
    epochs. `rows` is the number of training rows; `dead` lists the units with slope 0 on all of them, and `saturated`
    the units with a slope below 1 % of the maximum on at least 95 % of them, at most 1,000 each; `dead_count` and
    `saturated_count` are their numbers; `inactive` is the mean share of rows on which the slope of a unit is 0."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint(Event):
    """A saved checkpoint. Path and hash are empty for a run in memory."""

    event: ClassVar[str] = "checkpoint"
    kind: Literal["last", "best"]
    """`last`: the current state; `best`: the state of the best epoch."""
    path: str
    """Path of the file in the run folder."""
    sha256: str
    """SHA-256 of the file."""


@dataclass(frozen=True, kw_only=True)
class Spike(Event):
    """A loss above its limit, with the layer that has the largest gradient and the rows of the step."""

    event: ClassVar[str] = "spike"
    loss: float
    """Loss of the step."""
    limit: float
    """The limit that the loss exceeds."""
    gradient_norm: float
    """Norm of the gradient of the step."""
    layer: str
    """The layer with the largest gradient."""
    rows: list[int]
    """Numbers of the rows of the step."""


@dataclass(frozen=True, kw_only=True)
class RolledBack(Event):
    """A return to an earlier checkpoint, with a lower learning rate."""

    event: ClassVar[str] = "rollback"
    to_step: int
    """Step of the checkpoint."""
    rate_factor: float
    """New factor of the learning rate."""
    reason: str
    """Why the run was rolled back."""


@dataclass(frozen=True, kw_only=True)
class NonFinite(Event):
    """The first value that is not finite, and where it is."""

    event: ClassVar[str] = "non_finite"
    where: Literal["input", "target", "loss", "gradient", "parameter"]
    """The kind of value."""
    layer: str
    """The layer, or the column for an input or a target."""
    unit: int | None
    """The unit or column, if it is known."""
    rows: list[int]
    """Numbers of the rows that cause it, or of all rows of the batch."""


@dataclass(frozen=True, kw_only=True)
class Measured(Event):
    """A measurement of an observer."""

    event: ClassVar[str] = "measured"
    name: str
    """Name of the measurement, such as gradient_norm."""
    values: dict[str, float | list[float]]
    """Numbers, or lists with a number per unit or bin, by name."""


@dataclass(frozen=True, kw_only=True)
class Notice(Event):
    """A message for the user, and what to do."""

    event: ClassVar[str] = "notice"
    message: str
    """What happened."""
    remedy: str
    """What to do."""


@dataclass(frozen=True, kw_only=True)
class FindingEvent(Event):
    """A fault that was found in training, emitted before `end`."""

    event: ClassVar[str] = "finding"
    finding: dict[str, Any]
    """Its keys are `kind`, `severity` (info, warning or error), `message`, `where` (layer, units, epoch, member, column
    or rows; only what applies), `evidence` (numbers by name), `remedy` (text and command of the best one, or null) and
    `remedies` (all of them, the best first)."""


@dataclass(frozen=True, kw_only=True)
class Resume(Event):
    """The run was resumed from a checkpoint. The events after the first `kept` ones are superseded."""

    event: ClassVar[str] = "resume"
    checkpoint: str
    """Path of the checkpoint. Empty if the run starts again."""
    kept: int
    """Number of events at the start of the log that remain valid."""
    notes: list[str]
    """Reasons why newer checkpoints were skipped."""


@dataclass(frozen=True, kw_only=True)
class End(Event):
    """The end of a run."""

    event: ClassVar[str] = "end"
    status: Literal["finished", "stopped", "interrupted", "failed"]
    """`finished`: all epochs are done; `stopped`: ended earlier; `interrupted`: by a signal; `failed`: diverged."""
    reason: str
    """Why the run ended."""
    epoch: int
    """Number of completed epochs."""
    seconds: float
    """Time since the run was started or resumed."""
    metrics: dict[str, float]
    """Metrics of the model on the held-out rows, by name."""


EVENTS: dict[str, type[Event]] = {
    cls.event: cls
    for cls in (
        Start,
        Progress,
        EpochEnd,
        Checkpoint,
        Spike,
        RolledBack,
        NonFinite,
        Measured,
        Notice,
        FindingEvent,
        Resume,
        End,
    )
}

FINDING: dict[str, Any] = {
    "kind": str,
    "severity": Literal["info", "warning", "error"],
    "message": str,
    "where": dict[str, Any],
    "evidence": dict[str, float],
    "remedies": list[dict[str, Any]],
}
"""Required keys of a finding, and their types."""


OLD_KEYS = {("progress", "rate"): "learning_rate"}
"""The current names of keys that earlier versions wrote."""


def from_dict(data: Mapping[str, Any]) -> Event:
    """Return the event of a JSON object of the log. Unknown names and keys, and wrong types, are errors."""
    if not isinstance(data, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise EventError(f"an event must be an object, got {short(data)}")
    name = data.get("event")
    if not isinstance(name, str) or name not in EVENTS:
        raise EventError(unknown_name("event", str(name), EVENTS))
    cls = EVENTS[name]
    hints = _types(cls)
    known = {one.name: one for one in fields(cls)}
    values = {OLD_KEYS.get((name, key), key): value for key, value in data.items() if key != "event"}
    for key in values:
        if key not in known:
            raise EventError(f"event {name!r}: {unknown_name('key', key, known)}")
    for key, one in known.items():
        if key not in values and one.default is MISSING and one.default_factory is MISSING:
            raise EventError(f"event {name!r} needs the key {key!r}, got {', '.join(values) or 'none'}")
    read = {key: _read(value, hints[key], f"event {name!r}: {key}") for key, value in values.items()}
    if cls is FindingEvent:
        read["finding"] = _read_finding(read["finding"], f"event {name!r}: finding")
    return cls(**read)


@cache
def _types(cls: type[Event]) -> dict[str, Any]:
    """Return the types of an event's fields. Cached, because resolving takes 1 ms and a log has thousands of events."""
    return typing.get_type_hints(cls)


def effective(events: Iterable[Event]) -> list[Event]:
    """Return the events without superseded ones. A resume supersedes the events after its checkpoint."""
    kept: list[Event] = []
    for event in events:
        if isinstance(event, Resume):
            kept = kept[: event.kept]
        else:
            kept.append(event)
    return kept


def same(a: Iterable[Event], b: Iterable[Event]) -> bool:
    """Return whether two logs are equal, except for times, resumes and the location of the run."""
    return _timeless(a) == _timeless(b)


def _timeless(events: Iterable[Event]) -> list[dict[str, Any]]:
    left_out = CLOCK | {"run"}
    return [
        {key: value for key, value in event.to_dict().items() if key not in left_out} for event in effective(events)
    ]


def _read(value: Any, hint: Any, place: str) -> Any:
    """Check a value of the log and return it for its field. "nan", "inf" and "-inf" become numbers."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, UnionType):
        return None if value is None and type(None) in inner else _read(value, _option(value, inner), place)
    if origin is dict and isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {key: _read(item, inner[1], f"{place}[{key!r}]") for key, item in items}
    if origin is list and isinstance(value, list):
        return [_read(item, inner[0], f"{place}[{i}]") for i, item in enumerate(cast("list[Any]", value))]
    if hint is float and value in ("nan", "inf", "-inf"):
        return float(value)
    if value in inner if origin is Literal else isinstance(value, _TAKES.get(hint, ())) and not isinstance(value, bool):
        return value
    expected = " or ".join(map(repr, inner)) if origin is Literal else _WORDS[origin or hint]
    raise EventError(f"{place} must be {expected}, got {short(value)}")


def _read_finding(value: dict[str, Any], place: str) -> dict[str, Any]:
    """Check the keys of a finding. Other keys are kept."""
    missing = [key for key in FINDING if key not in value]
    if missing:
        raise EventError(f"{place} needs the key {missing[0]!r}, got {', '.join(value) or 'none'}")
    read = {key: _read(value[key], hint, f"{place}[{key!r}]") for key, hint in FINDING.items()}
    for i, remedy in enumerate(read["remedies"]):
        for key in ("text", "command"):
            _read(remedy.get(key), str, f"{place}['remedies'][{i}][{key!r}]")
    return {**value, **read}


_TAKES: dict[Any, Any] = {int: int, float: int | float, str: str}
_WORDS: dict[Any, str] = {int: "a whole number", float: "a number", str: "a string", list: "a list", dict: "an object"}


def _option(value: Any, options: tuple[Any, ...]) -> Any:
    """Return the type of a union to check a value against: a list type for a list, else the first one."""
    lists = [option for option in options if typing.get_origin(option) is list]
    return lists[0] if lists and isinstance(value, list) else options[0]


# Messages for the user

Level = Literal["info", "warn", "error"]


class Message(NamedTuple):
    """A message with its level and title."""

    level: Level
    title: str
    text: str


def message_for(event: Event) -> Message | None:
    """Return the message for an event. None if the event has only numbers.

    >>> message_for(Notice(step=5, message="the loss is flat", remedy="raise the rate"))
    Message(level='info', title='notice', text='the loss is flat: raise the rate')
    """
    level: Level
    match event:
        case Spike():
            text = (
                f"the loss {number(event.loss)} exceeds its limit {number(event.limit)}; "
                f"gradient norm {number(event.gradient_norm)}, largest in {event.layer}; {_rows(event.rows)}"
            )
            return Message("warn", "spike", text)
        case RolledBack():
            text = f"back to step {event.to_step:,}, rate × {event.rate_factor:g}: {event.reason}"
            return Message("warn", "rollback", text)
        case NonFinite():
            unit = f", unit {event.unit}" if event.unit is not None else ""
            text = f"first in the {event.where} of {event.layer}{unit}; {_rows(event.rows)}"
            return Message("error", "not finite", text)
        case Notice():
            return Message("info", "notice", f"{event.message}: {event.remedy}" if event.remedy else event.message)
        case FindingEvent(finding=finding):
            level = "error" if finding["severity"] == "error" else "warn"
            return Message(level, _finding_title(finding), " ".join([finding["message"], *first_remedy(finding)]))
        case Resume():
            where = f"from {event.checkpoint}" if event.checkpoint else "from the start"
            level = "warn" if event.notes else "info"
            return Message(level, "resume", "; ".join([f"resumes {where}", *event.notes]))
        case _:
            return None


def first_remedy(finding: Mapping[str, Any]) -> list[str]:
    """Return the text of the best remedy of a finding in a list, or an empty list."""
    return [remedy["text"] for remedy in finding["remedies"][:1]]


def _finding_title(finding: Mapping[str, Any]) -> str:
    """Return the kind and the place of a finding, which differ between all findings of a run.

    >>> _finding_title({"kind": "dead_units", "where": {"layer": "relu1", "member": 2}})
    'dead units: relu1, member 2'
    """
    where = finding["where"]
    place = [str(where[key]) for key in ("layer", "column") if key in where]
    place += [f"member {where['member']}"] if "member" in where else []
    kind = finding["kind"].replace("_", " ")
    return f"{kind}: {', '.join(place)}" if place else kind


def _rows(rows: list[int], most: int = 5) -> str:
    first = ", ".join(str(row) for row in rows[:most])
    more = f" and {len(rows) - most:,} more" if len(rows) > most else ""
    return f"rows {first}{more}" if rows else "no rows"
