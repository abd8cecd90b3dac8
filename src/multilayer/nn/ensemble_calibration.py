"""How sure several members may be together, from rows that each was held out by few of them.

A row that one member did not see tells how far to trust one member. The mean of several is right more often and less
sure of it, so with one member's T it would be too modest. Where all members judged a row, the T that makes their mean
likeliest is found outright. Otherwise a member's outputs are taken for those of endlessly many and noise of its own:

    1. Noise once and twice as strong is added to the judge's outputs: differences of two members that both saw the row,
       over √2. Each makes another 1/T likeliest, which falls with the noise.
    2. Where 1/T, as a parabola of the noise, would be if only 1/M of it were left is that of the mean output of M
       members (simulation and extrapolation, Cook and Stefanski 1994).
    3. Members are averaged as probabilities, not as outputs, which is less sure again: T is the one at which their mean
       is as sure, over these rows, as the mean output is at its own. Where members contradict each other on some rows
       no T may do that, and ever colder ones make these rows certain and wrong: T is at least nearly the one at which
       the two agree best, by cross-entropy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .calibration import COLDEST, HOTTEST, Calibration, Floats, combined, temperature
from .losses import Loss

MOST_ROWS = 20_000
"""Rows that are looked at; of more, as many evenly apart."""
MOST_PAIRS = 3
"""Pairs of members whose difference is taken for noise."""
STRONGEST = 2.0
"""The most that 1/T grows by: what is extrapolated from few rows may be anything."""
FEW_ROWS = 100
"""As many held-out rows move T half of the way: what few rows say of it is mostly chance."""
NEARLY = 0.9
"""Of the T at which members' mean and mean output agree best: the least that is taken."""
CLOSE = 1e-4
"""How near log T has to be."""


def pooled(
    loss: Loss,
    members: NDArray[Any],
    seen: NDArray[np.bool_],
    y: NDArray[Any],
    weight: NDArray[Any] | None,
    alone: float,
) -> float:
    """T of the members (M, N, C) together; `seen` (M, N) are rows they trained on, `alone` is the T of judges."""
    usable = np.isfinite(members).all((0, 2)) & ~seen.all(0)
    everyone = not seen.any()
    if not everyone and len(members) > 2:
        usable &= seen.sum(0) > 1
    places = np.flatnonzero(usable)
    if not len(places):
        return alone
    places = places[:: -(-len(places) // MOST_ROWS)]
    rows = Rows(
        loss=loss,
        members=np.asarray(members[:, places], dtype=np.float64),
        seen=seen[:, places],
        y=y[places],
        weight=np.ones(len(places)) if weight is None else np.asarray(weight[places], dtype=np.float64),
    )
    if everyone:
        return rows.likeliest(rows.y)
    t = 1 / rows.with_less_noise() if len(members) > 2 else alone
    mean = rows.members.mean(0)
    found = max(rows.as_sure_as(rows.confidence([mean], t)), NEARLY * rows.likeliest(rows.probabilities(mean, t)))
    return float(alone * (found / alone) ** (len(places) / (len(places) + FEW_ROWS)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Held-out rows that are looked at, each of weight above 0 for some."""

    loss: Loss
    members: Floats
    seen: NDArray[np.bool_]
    y: NDArray[Any]
    weight: Floats

    def with_less_noise(self) -> float:
        """1/T of the mean output of all members."""
        rows = np.arange(self.members.shape[1])
        order = np.argsort(~self.seen, axis=0, kind="stable")  # those that saw a row, and a judge at the end
        judged = self.members[order[-1], rows]
        both = range(int(self.seen.sum(0).min()))
        some = [(i, j) for j in both for i in range(j)][:MOST_PAIRS]
        noise = [(self.members[order[i], rows] - self.members[order[j], rows]) / np.sqrt(2) for i, j in some]

        def cold(times: float) -> float:
            changed = [judged + sign * np.sqrt(times) * one for one in noise for sign in (-1, 1)]
            return float(np.mean([1 / temperature(self.loss, z, self.y, self.weight) for z in changed]))

        none, once, twice = 1 / temperature(self.loss, judged, self.y, self.weight), cold(1), cold(2)
        less = 1 - 1 / len(self.members)
        found = none * (less + 1) * (less + 2) / 2 - once * less * (less + 2) + twice * less * (less + 1) / 2
        return float(np.clip(found, none, STRONGEST * none))

    def probabilities(self, z: Floats, t: float) -> Floats:
        together = combined(self.loss, [z], Calibration(temperature=t))
        return np.exp(-np.logaddexp(0, -together)) if self.loss.link == "sigmoid" else np.exp(together)

    def likeliest(self, y: NDArray[Any]) -> float:
        """The T at which the members' mean makes these targets likeliest: classes, or probabilities."""

        def cost(log_t: float) -> float:
            z = combined(self.loss, list(self.members), Calibration(temperature=float(np.exp(log_t))))
            return float((self.loss.rows(z, y) * self.weight).sum())

        ratio = (np.sqrt(5) - 1) / 2  # the golden section
        low, high = np.log(COLDEST), np.log(HOTTEST)
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        at_left, at_right = cost(left), cost(right)
        while high - low > CLOSE:
            if at_left <= at_right:
                high, right, at_right = right, left, at_left
                left = high - ratio * (high - low)
                at_left = cost(left)
            else:
                low, left, at_left = left, right, at_right
                right = low + ratio * (high - low)
                at_right = cost(right)
        return float(np.exp((low + high) / 2))

    def confidence(self, members: Sequence[Floats] | Floats, t: float) -> float:
        """The mean probability of the likelier answer."""
        z = combined(self.loss, list(members), Calibration(temperature=t))
        if self.loss.link == "sigmoid":
            sure = (1 / (1 + np.exp(-np.abs(z)))).mean(1)
        else:
            sure = 1 / np.exp(z - z.max(1, keepdims=True)).sum(1)
        return float((sure * self.weight).sum() / self.weight.sum())

    def as_sure_as(self, wanted: float) -> float:
        """The T at which the members' mean is."""
        low, high = np.log(COLDEST), np.log(HOTTEST)
        while high - low > CLOSE:
            middle = (low + high) / 2
            if self.confidence(self.members, float(np.exp(middle))) > wanted:
                low = middle
            else:
                high = middle
        return float(np.exp((low + high) / 2))
