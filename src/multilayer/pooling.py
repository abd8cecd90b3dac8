"""How sure several members may be together, from rows that each was held out by few of them.

A row that one member did not see tells how far to trust one member. The mean of several is right more often and less
sure of it, so with one member's T it would be too modest. Where all members judged a row, the T that makes their mean
likeliest is found outright. Otherwise a member's outputs are taken for those of endlessly many and noise of its own:

    1. Noise once and twice as strong is added to the judge's outputs: differences of two members that both saw the row,
       over √2. Each makes another 1/T likeliest, which falls with the noise.
    2. Where 1/T, as a parabola of the noise, would be if only 1/M of it were left is that of the mean output of M
       members (simulation and extrapolation, Cook and Stefanski 1994).
    3. Members are averaged as probabilities, not as outputs, which is less sure again: T is the one at which their mean
       is as sure, over these rows, as the mean output is at its own.
"""

from __future__ import annotations

from collections.abc import Sequence
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


def pooled(
    loss: Loss,
    members: NDArray[Any],
    seen: NDArray[np.bool_],
    y: NDArray[Any],
    weight: NDArray[Any] | None,
    alone: float,
) -> float:
    """T of the members (M, N, C) together; `seen` (M, N) are rows they trained on, `alone` is the T of judges."""
    everyone = ~seen.any(0)
    if everyone.all():
        return _likeliest(loss, list(members), y, weight)
    places = np.flatnonzero((~seen).sum(0) == 1)
    if not len(places):
        return alone
    places = places[:: -(-len(places) // MOST_ROWS)]
    outputs = [np.asarray(one, dtype=np.float64) for one in members[:, places]]
    share = None if weight is None else weight[places]
    cold = 1 / alone
    if len(members) > 2:
        cold = _with_less_noise(loss, np.stack(outputs), seen[:, places], y[places], share)
    mean = np.mean(outputs, axis=0)
    return _as_sure_as(loss, outputs, _confidence(loss, [mean], 1 / cold))


def _with_less_noise(
    loss: Loss, members: Floats, seen: NDArray[np.bool_], y: NDArray[Any], weight: NDArray[Any] | None
) -> float:
    """1/T of the mean output of all members."""
    rows = np.arange(members.shape[1])
    order = np.argsort(~seen, axis=0, kind="stable")  # those that saw the row, and its judge at the end
    judged = members[order[-1], rows]
    some = [(i, j) for j in range(len(members) - 1) for i in range(j)][:MOST_PAIRS]
    noise = [(members[order[i], rows] - members[order[j], rows]) / np.sqrt(2) for i, j in some]

    def cold(times: float) -> float:
        changed = [judged + sign * np.sqrt(times) * one for one in noise for sign in (-1, 1)]
        return float(np.mean([1 / temperature(loss, z, y, weight) for z in changed]))

    none, once, twice = 1 / temperature(loss, judged, y, weight), cold(1), cold(2)
    less = 1 - 1 / len(members)
    found = none * (less + 1) * (less + 2) / 2 - once * less * (less + 2) + twice * less * (less + 1) / 2
    return float(np.clip(found, none, STRONGEST * none))


def _likeliest(loss: Loss, members: Sequence[NDArray[Any]], y: NDArray[Any], weight: NDArray[Any] | None) -> float:
    """The T at which the members' mean makes the targets likeliest."""
    weights = np.ones(len(y)) if weight is None else weight

    def cost(t: float) -> float:
        rows = loss.rows(combined(loss, members, Calibration(temperature=t)), y)
        return float((rows * weights).sum())

    ratio = (np.sqrt(5) - 1) / 2
    low, high = np.log(COLDEST), np.log(HOTTEST)
    for _ in range(40):  # the golden section
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if cost(np.exp(left)) <= cost(np.exp(right)):
            high = right
        else:
            low = left
    return float(np.exp((low + high) / 2))


def _confidence(loss: Loss, members: Sequence[Floats], t: float) -> float:
    """The mean probability of the likelier answer."""
    z = combined(loss, members, Calibration(temperature=t))
    if loss.link == "sigmoid":
        return float((1 / (1 + np.exp(-np.abs(z)))).mean())
    return float((1 / np.exp(z - z.max(1, keepdims=True)).sum(1)).mean())


def _as_sure_as(loss: Loss, members: Sequence[Floats], wanted: float) -> float:
    low, high = np.log(COLDEST), np.log(HOTTEST)
    for _ in range(40):
        middle = (low + high) / 2
        if _confidence(loss, members, float(np.exp(middle))) > wanted:
            low = middle
        else:
            high = middle
    return float(np.exp((low + high) / 2))
