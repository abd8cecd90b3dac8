"""What the loop calls without knowing names: policies that decide, observers that look.

Policies see every step once (`watch`), in order and however the loop cut its work, and every event (`decide`). The loop
does the strongest thing asked for: stop over rollback over going on; the first of equals. Observers get every event,
those that follow from an action included; what they measure they answer with, as further events. A
policy's state is part of a checkpoint, so a resumed run decides as the
unbroken one would have; a rollback restores it as well, except what `survives` says (how often it has rolled back).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..runs.events import Event


@dataclass(frozen=True, kw_only=True)
class Continue:
    """Go on; `notice` is something a person should know, and its remedy."""

    notice: tuple[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Rollback:
    """Return to the last good checkpoint, with averages, best and patience, and multiply the rate from there on."""

    reason: str
    rate_factor: float = 0.1


@dataclass(frozen=True, kw_only=True)
class Stop:
    """End the run."""

    reason: str


Action = Continue | Rollback | Stop
_STRENGTH: dict[type[Any], int] = {Continue: 0, Rollback: 1, Stop: 2}


def strongest(actions: Iterable[Action]) -> Action:
    """What the loop does when several policies answer.

    >>> strongest([Continue(), Rollback(reason="spike"), Stop(reason="time")])
    Stop(reason='time')
    """
    chosen: Action = Continue()
    for action in actions:
        if _STRENGTH[type(action)] > _STRENGTH[type(chosen)]:
            chosen = action
    return chosen


@dataclass(frozen=True, kw_only=True, eq=False)
class Steps:
    """Steps just taken: the number of the first (from 1), and each one's loss and gradient norm."""

    first: int
    loss: NDArray[np.float64]
    gradient_norm: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Found:
    """A step among those watched after which to act: its place, what to do, and the limit that its loss went over."""

    place: int
    action: Action
    limit: float | None = None


class Policy(Protocol):
    """Decides. Early stopping, spikes, plateaus and time limits are policies."""

    def watch(self, steps: Steps) -> Found | None:
        """The first step that calls for action; what it has seen up to there, and not beyond, is remembered."""
        ...

    def decide(self, event: Event) -> Action: ...

    def broken(self, what: str) -> Action:
        """What to do about a value that is not finite; where no policy has an answer, the run stops."""
        ...

    def state(self) -> dict[str, Any]:
        """What must be saved, as JSON."""
        ...

    def load(self, state: dict[str, Any]) -> None: ...

    def survives(self) -> dict[str, Any]:
        """The part of the state that a rollback does not take back."""
        ...


class Observer(Protocol):
    """Looks and changes nothing: logs, progress bars, trackers, diagnostics."""

    def notice(self, event: Event) -> Iterable[Event] | None:
        """Hears of an event, and may answer with others (`Measured`, `Notice`), which every observer then hears of.

        Answers are part of the log, so they must follow from the event and the engine's state alone: a resumed run
        emits the same ones. What is answered to an answer, or to a resume, is ignored. One that looks at the engine
        has `measures = True`: only then does the engine stand at the step of a line of progress.
        """
        ...
