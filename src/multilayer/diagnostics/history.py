"""What the events of a run say about its training: losses, learning rates, spikes, and how it ended.

losses, validation     one value per epoch
rates, norms           learning rate and gradient norm of each `Progress` event
fall                   decrease of the training loss / its initial value
late_fall              share of this decrease in the second half of the epochs; 0 if the loss did not fall
rises                  share of the epochs in which the training loss rose, before the rate fell to a half
best_epoch             epoch with the lowest validation loss, from 1; best_share is its share of the epochs
rebound                increase of the validation loss after its minimum / decrease before it
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

from ..runs.events import End, EpochEnd, Event, NonFinite, Progress, RolledBack, Spike, Start
from ..runs.events import effective as without_superseded

HIGH_RATE = 0.5
"""The learning rate is near its peak if it is above this fraction of the peak."""
WINDOW = 3
"""Number of epochs whose mean loss is compared."""


@dataclass(frozen=True, kw_only=True)
class History:
    """The events of a run as sequences of numbers."""

    config: Mapping[str, Any]
    rows: int
    held_out: int
    engine: str
    losses: tuple[float, ...]
    validation: tuple[float, ...]
    rates: tuple[float, ...]
    norms: tuple[float, ...]
    steps: int
    spikes: int
    rollbacks: int
    non_finite: int
    status: str
    reason: str
    units: Mapping[int, Mapping[str, Any]] = field(default_factory=dict[int, Mapping[str, Any]])
    """`EpochEnd.units` of the counted epochs, by epoch."""

    @staticmethod
    def of(events: Iterable[Event]) -> History | None:
        """Return the history of a run, or None if its log has no start."""
        found = without_superseded(events)
        start = next((event for event in found if isinstance(event, Start)), None)
        if start is None:
            return None
        epochs = [event for event in found if isinstance(event, EpochEnd)]
        progress = [event for event in found if isinstance(event, Progress)]
        end = next((event for event in reversed(found) if isinstance(event, End)), None)
        validation = [event.validation_loss for event in epochs if event.validation_loss is not None]
        return History(
            config=start.config,
            rows=start.rows,
            held_out=start.held_out,
            engine=start.engine,
            losses=tuple(event.loss for event in epochs),
            validation=tuple(validation) if len(validation) == len(epochs) else (),
            rates=tuple(event.learning_rate for event in progress),
            norms=tuple(event.gradient_norm for event in progress),
            steps=max((event.step for event in found), default=0),
            spikes=sum(isinstance(event, Spike) for event in found),
            rollbacks=sum(isinstance(event, RolledBack) for event in found),
            non_finite=sum(isinstance(event, NonFinite) for event in found),
            status="running" if end is None else end.status,
            reason="" if end is None else end.reason,
            units={event.epoch: event.units for event in epochs if event.units},
        )

    @property
    def adaptive(self) -> bool:
        """Whether the optimizer divides by the size of the gradient, as Adam does."""
        return str(self.config.get("optimizer", "")).startswith("adam")

    @property
    def diverged(self) -> bool:
        """Whether values were not finite, or training was rolled back several times."""
        return self.non_finite > 0 or self.rollbacks >= 3 or any(not math.isfinite(loss) for loss in self.losses)

    def life_of(self, layer: str, what: str, units: Collection[int]) -> tuple[int | None, int]:
        """Return since which counted epoch most of these units were dead or saturated, and how many others recovered.

        `layer` is the name in the events, with the ensemble member, and `what` is "dead" or "saturated".
        """
        found = {epoch: set(counted[layer][what]) for epoch, counted in self.units.items() if layer in counted}
        since: int | None = None
        for epoch in sorted(found, reverse=True):
            if 2 * len(found[epoch] & set(units)) < len(units):
                break
            since = epoch
        return since, len(set[int]().union(*found.values()) - set(units))

    def batch_size(self) -> int:
        """Return the number of rows per step: the option, or the one that the number of steps implies."""
        given = self.config.get("batch_size")
        if given is not None or not self.losses:
            return int(given or 1)
        return max(1, round(self.rows * len(self.losses) / max(self.steps, 1)))

    @cached_property
    def facts(self) -> Mapping[str, float]:
        """Facts about the curves, as numbers by name."""
        found: dict[str, float] = {
            "epochs": len(self.losses),
            "steps": self.steps,
            "spikes": self.spikes,
            "rollbacks": self.rollbacks,
            "non_finite": self.non_finite,
        }
        if self.losses:
            first, half = self.losses[0], len(self.losses) // 2
            middle, end = _mean(self.losses[max(0, half - 1) : half + 2]), _mean(self.losses[-WINDOW:])
            found |= {"first_loss": first, "last_loss": self.losses[-1], "lowest_loss": min(self.losses)}
            found["fall"] = (first - end) / max(abs(first), 1e-12)
            found["late_fall"] = (middle - end) / (first - end) if first > end else 0.0
            found["rises"] = self._rises()
            found["best_epoch"] = 1 + self.validation.index(min(self.validation)) if self.validation else 0
            found["best_share"] = found["best_epoch"] / len(self.losses)
        if self.validation:
            first, last, lowest = self.validation[0], self.validation[-1], min(self.validation)
            rebound = math.inf if last > lowest else 0.0
            found["rebound"] = (last - lowest) / (first - lowest) if first > lowest else rebound
            found |= {"last_validation": last, "lowest_validation": lowest}
        if self.rates:
            found["peak_rate"] = max(self.rates)
        if self.norms:
            found |= {"first_gradient_norm": self.norms[0], "largest_gradient_norm": max(self.norms)}
        return found

    def _rises(self) -> float:
        """Return how often the training loss rose while the learning rate was near its peak."""
        near_peak = len(self.losses)
        if self.rates:
            high = [i for i, rate in enumerate(self.rates) if rate > HIGH_RATE * max(self.rates)]
            near_peak = max(2, round(len(self.losses) * (high[-1] + 1) / len(self.rates)))
        pairs = list(pairwise(self.losses[:near_peak]))
        return sum(after > before for before, after in pairs) / max(len(pairs), 1)


def _mean(values: tuple[float, ...]) -> float:
    return sum(values) / max(len(values), 1)
