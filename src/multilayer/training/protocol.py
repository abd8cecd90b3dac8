"""What the loop calls without knowing names: policies that decide, observers that look.

The loop hands every event to every policy, in the order they were given, and does the strongest thing asked for: stop
over rollback over going on; the first of equals. Then every observer gets the event, and the events that follow from
the action. A policy's state is part of a checkpoint, so a resumed run decides as the unbroken one would have; a
rollback restores it as well, except what a policy says survives (how often it has rolled back).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from ..events import Event


@dataclass(frozen=True, kw_only=True)
class Continue:
    """Go on."""


@dataclass(frozen=True, kw_only=True)
class Rollback:
    """Return to the last good checkpoint, with averages, best and patience, and multiply the rate from there on."""

    reason: str
    rate_factor: float = 0.1


@dataclass(frozen=True, kw_only=True)
class Stop:
    """End the run; with `restore_best` the best parameters so far become the result."""

    reason: str
    restore_best: bool = False


Action = Continue | Rollback | Stop
_STRENGTH: dict[type[Any], int] = {Continue: 0, Rollback: 1, Stop: 2}


def strongest(actions: Iterable[Action]) -> Action:
    """What the loop does when several policies answer.

    >>> strongest([Continue(), Rollback(reason="spike"), Stop(reason="time")])
    Stop(reason='time', restore_best=False)
    """
    chosen: Action = Continue()
    for action in actions:
        if _STRENGTH[type(action)] > _STRENGTH[type(chosen)]:
            chosen = action
    return chosen


class Policy(Protocol):
    """Decides. Early stopping, spikes, plateaus and time limits are policies."""

    def due(self, step: int) -> int | None:
        """The next step after `step` at which it must be asked, where a chunk then ends; None for epoch ends alone."""
        ...

    def decide(self, event: Event) -> Action: ...

    def state(self) -> dict[str, Any]:
        """What must be saved, as JSON."""
        ...

    def load(self, state: dict[str, Any]) -> None: ...


class Observer(Protocol):
    """Looks and changes nothing: logs, progress bars, trackers, diagnostics."""

    def notice(self, event: Event) -> None: ...
