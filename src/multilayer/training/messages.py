"""Events in words: what a person should hear of, for the line above a progress bar and for a tracker's alert alike."""

from __future__ import annotations

from typing import Literal, NamedTuple

from ..core.formatting import number
from ..runs.events import Event, NonFinite, Notice, Resume, RolledBack, Spike

Level = Literal["info", "warn", "error"]


class Message(NamedTuple):
    """How much it matters, what it is called, and what happened."""

    level: Level
    title: str
    text: str


def message_for(event: Event) -> Message | None:
    """The words for an event, or None where its numbers say it all.

    >>> message_for(Notice(step=5, message="the loss is flat", remedy="raise the rate"))
    Message(level='info', title='notice', text='the loss is flat: raise the rate')
    """
    match event:
        case Spike():
            text = (
                f"the loss {number(event.loss)} is over its limit {number(event.limit)}; "
                f"gradient norm {number(event.gradient_norm)}, largest in {event.layer}; {_rows(event.rows)}"
            )
            return Message("warn", "spike", text)
        case RolledBack():
            text = f"back to step {event.to_step:,}, rate × {event.rate_factor:g}: {event.reason}"
            return Message("warn", "rollback", text)
        case NonFinite():
            unit = "" if event.unit is None else f", unit {event.unit}"
            text = f"first in the {event.where} of {event.layer}{unit}; {_rows(event.rows)}"
            return Message("error", "not finite", text)
        case Notice():
            return Message("info", "notice", f"{event.message}: {event.remedy}" if event.remedy else event.message)
        case Resume():
            where = f"from {event.checkpoint}" if event.checkpoint else "from the start"
            level: Level = "warn" if event.notes else "info"
            return Message(level, "resume", "; ".join([f"goes on {where}", *event.notes]))
        case _:
            return None


def _rows(rows: list[int], most: int = 5) -> str:
    named = ", ".join(str(row) for row in rows[:most])
    more = f" and {len(rows) - most:,} more" if len(rows) > most else ""
    return f"rows {named}{more}" if rows else "no rows"
