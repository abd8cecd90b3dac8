"""Outputs of an ensemble, and its calibration on held-out rows: temperature and prediction intervals.

An ensemble's outputs are those whose link gives the mean of the members' predictions, so that whatever reads raw
outputs reads an ensemble as one network:

    softmax    z = log mean softmax(zₘ/T)
    sigmoid    z = logit mean σ(zₘ/T)
    exp        z = log mean exp(zₘ), or the target of training where it never varies
    none       z = mean zₘ, within the targets of training

The mean is weighted if the members have different weights. T is one number for all outputs, the one that held-out rows
find likeliest (Guo et al. 2017). Intervals come from the errors on held-out rows: of n such rows the
⌈(n + 1)(1 − α)⌉-th smallest error is what a new row exceeds with a chance of at most α (split conformal, Vovk et al.
2005; each row's error is that of the members that did not see it). What an error is, is the loss's:

    mse, mae, huber     y − z; what is added on either side is of |y − z|
    poisson             the same of exp(z), and no end is below 0
    one quantile        y − z; each end has α/2 of its own, since z is off the middle
    several             max(z_lowest − y, y − z_highest), added outside of both (Romano et al. 2019)

Quantiles of the errors are by the same ranks: the q-quantile is the (n + 1)q-th smallest, on the line between two, so
that a new row stays below it with a chance of q on average, and infinite where there is no such rank.

Rows of different weights w are kept as (Σw)²/Σw² rows that count alike (Kish 1965), at the weighted quantiles.

`ensemble_temperature` is the T of several members, of which each row was held out by few. A row that one member did not
see tells how far to trust one member. The mean of several is right more often and less sure of it, so with one member's T it
would be too modest. Where all members judged a row, the T that makes their mean likeliest is found outright. Otherwise
a member's outputs are taken for those of endlessly many and noise of its own:

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

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import FileError, OptionError
from .activations.function import logistic
from .losses import Loss

Floats = NDArray[np.float64]

MAX_ERRORS = 10_000
"""Errors that are kept; of more, as many quantiles."""
MAX_ROWS_NEEDED = 1e300
"""That are told to be needed: beyond, a number of rows has no float."""
MAX_LOG_OUTPUT = 700.0
"""From 0 that an output is kept whose link is exp: beyond it exp leaves float64."""
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.1, 20.0
"""Bounds of T. Networks that were trained on smoothed labels, and are right, want the coldest."""
_LOWEST, _HIGHEST = MIN_TEMPERATURE * (1 - 1e-6), MAX_TEMPERATURE * (1 + 1e-6)
"""The bounds of T, with a tolerance for rounding."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """Plain data. `low`, `high` and `errors` have a place for each output, and are empty for classes."""

    temperature: float = 1.0
    out_of_fold: float | None = None
    """The temperature of what held-out rows were told by the members that did not see them, where it is another."""
    low: Floats = field(default_factory=lambda: np.zeros(0))
    high: Floats = field(default_factory=lambda: np.zeros(0))
    errors: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    """Of held-out rows, sorted (rows, targets), standardised."""

    def to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        judges = {} if self.out_of_fold is None else {"judges": self.out_of_fold}
        arrays = {"low": self.low, "high": self.high, "errors": self.errors}
        return {"temperature": self.temperature, **judges}, arrays

    @staticmethod
    def from_parts(
        data: Any, arrays: Mapping[str, NDArray[Any]], where: str, outputs: tuple[int, int] | None = None
    ) -> Calibration:
        """Read the calibration of a file. `outputs` are the expected number of outputs and number of targets."""
        known = isinstance(data, dict) and {"temperature"} <= set(data) <= {"temperature", "judges"}
        if not known or not all(isinstance(t, float) and _LOWEST <= t <= _HIGHEST for t in data.values()):
            bounds = f"from {MIN_TEMPERATURE:g} to {MAX_TEMPERATURE:g}"
            raise FileError(f"{where}: a calibration must have a temperature {bounds}, got {str(data)[:80]}")
        if set(arrays) != {"low", "high", "errors"} or not all(np.isfinite(a).all() for a in arrays.values()):
            raise FileError(f"{where}: a calibration must have low, high and errors, all finite, got {sorted(arrays)}")
        kept = {name: np.asarray(a, np.float64) for name, a in arrays.items()}
        low, high, errors = kept["low"], kept["high"], kept["errors"]
        if any(a.dtype != np.float64 for a in arrays.values()) or errors.ndim != 2 or low.shape != high.shape:
            raise FileError(f"{where}: low, high and errors of a calibration must be float64, errors with two axes")
        if outputs is not None and (low.shape not in ((0,), outputs[:1]) or errors.shape[1] not in (0, outputs[1])):
            found = f"got {low.shape} and {errors.shape}"
            raise FileError(
                f"{where}: low, high and errors must match the {outputs[0]} outputs of the network, {found}"
            )
        if (low > high).any() or (np.diff(errors, axis=0) < 0).any():
            raise FileError(f"{where}: in a calibration, low must not be above high, and errors must be sorted")
        return Calibration(temperature=data["temperature"], out_of_fold=data.get("judges"), **kept)

    @property
    def for_out_of_fold(self) -> Calibration:
        """For outputs of held-out rows, made by the members that did not see them."""
        return self if self.out_of_fold is None else replace(self, temperature=self.out_of_fold, out_of_fold=None)

    def interval(self, coverage: float, loss: Loss) -> tuple[Floats, Floats]:
        """What to add to the lowest and the highest output of each target so that the given share of new rows lies
        between. → (targets,), (targets,)"""
        if not 0 < coverage < 1:
            raise OptionError(f"coverage must be above 0 and below 1, got {coverage!r}")
        errors = self._known()
        if loss.per_target > 1:
            half = _rank(errors, coverage)
        elif loss.quantiles:
            side = (1 + coverage) / 2
            return -_rank(-errors[::-1], side), _rank(errors, side)
        else:
            half = _rank(np.sort(np.abs(errors), axis=0), coverage)
        return -half, half

    def too_few(self, coverage: float, loss: Loss) -> int | None:
        """How many held-out rows an interval of such coverage needs, where there are fewer."""
        one_level = len(loss.quantiles) == 1
        share, rest = ((1 + coverage) / 2, (1 - coverage) / 2) if one_level else (coverage, 1 - coverage)
        return self._lacking(share, rest)

    def quantile(self, q: float) -> Floats:
        """What to add to an output to get the q-quantile of the target. → (outputs,)"""
        if not 0 < q < 1:
            raise OptionError(f"a quantile must be above 0 and below 1, got {q!r}")
        errors = self._known()
        if self.too_few_for(q) is not None:
            return np.full(errors.shape[1], np.inf if q > 0.5 else -np.inf)
        return np.quantile(errors, q, axis=0, method="weibull")

    def too_few_for(self, q: float) -> int | None:
        """How many held-out rows the q-quantile needs, where there are fewer."""
        return self._lacking(max(q, 1 - q), min(q, 1 - q))

    def _lacking(self, share: float, rest: float) -> int | None:
        """`rest` is 1 − share, which is above 0 where a float has no share below 1 for it."""
        if _place(len(self._known()), share) <= len(self.errors):
            return None
        about = int(min(1 / float(rest), MAX_ROWS_NEEDED))
        return next((n for n in range(about - 1, about + 2) if _place(n, share) <= n), about)

    def _known(self) -> Floats:
        if not len(self.errors):
            raise OptionError("intervals need errors on held-out rows, and the model has none: train with validation")
        return self.errors


def combination(members: int, calibration: Calibration | None) -> str:
    """Describe how the outputs of a model are computed.

    >>> combination(8, Calibration()), combination(1, None)
    ('calibrated average of 8 members', 'one network')
    """
    calibrated = "calibrated " if calibration is not None else ""
    return f"{calibrated}average of {members} members" if members > 1 else f"one {calibrated}network"


def combined(
    loss: Loss,
    members: Sequence[NDArray[Any]],
    calibration: Calibration | None = None,
    *,
    weights: Sequence[float] | None = None,
) -> Floats:
    """Return the outputs (N, C) of an ensemble from those of its members. The default weights are equal."""
    temperature = 1.0 if calibration is None else calibration.temperature
    z = [np.asarray(one, dtype=np.float64) for one in members]
    if loss.gives_probabilities:
        z = [one / temperature for one in z]
    if len(z) == 1:
        together = z[0]
    elif loss.link == "softmax":
        together = _log_mean([one - _log_sum(one) for one in z], weights)
    elif loss.link == "sigmoid":
        yes, no = (_log_mean([-np.logaddexp(0, sign * one) for one in z], weights) for sign in (-1, 1))
        together = yes - no
    else:
        together = _log_mean(z, weights) if loss.link == "exp" else _mean(z, weights)
    if calibration is not None and len(calibration.low):
        together = np.clip(together, calibration.low, calibration.high)
    return together


def calibrated(loss: Loss, z: NDArray[Any], y: NDArray[Any], weight: NDArray[Any] | None, targets: Any) -> Calibration:
    """From the outputs of held-out rows; `targets` (N, outputs) are those of training, for their range."""
    if loss.gives_probabilities:
        return Calibration(temperature=temperature(loss, z, y, weight))
    if loss.link not in (None, "exp") or not len(targets):
        return Calibration()
    y, z = np.asarray(y, dtype=np.float64), np.asarray(z, dtype=np.float64)
    low = high = np.zeros(0)
    if loss.per_target > 1:
        levels = z.reshape(len(z), -1, loss.per_target)
        errors = np.maximum(levels.min(2) - y, y - levels.max(2))
    elif loss.link == "exp":
        same = (targets == targets[0]).all(0)
        if same.any():
            level = np.log(np.maximum(targets[0].astype(np.float64), np.exp(-MAX_LOG_OUTPUT)))
            low, high = np.where(same, level, -MAX_LOG_OUTPUT), np.where(same, level, MAX_LOG_OUTPUT)
            z = np.clip(z, low, high)
        with np.errstate(over="ignore"):
            errors = y - np.exp(z)
    else:
        low, high = targets.min(0).astype(np.float64), targets.max(0).astype(np.float64)
        errors = y - np.clip(z, low, high)  # of what is predicted
    if not np.isfinite(errors).all():  # a network that has left its senses
        return Calibration(low=low, high=high)
    errors = _equally_weighted(errors, weight)
    if len(errors) > MAX_ERRORS:
        errors = np.quantile(errors, np.linspace(0, 1, MAX_ERRORS), axis=0)
    return Calibration(low=low, high=high, errors=errors)


def temperature(loss: Loss, z: NDArray[Any], y: NDArray[Any], weight: NDArray[Any] | None) -> float:
    """The T whose z/T make the targets likeliest; 1 where there are no rows.

    Each target is taken for certain by all but 1/(n + 2) (Platt 1999): some rows that are all right prove no certainty.
    """
    if not len(z):
        return 1.0
    z = np.asarray(z, dtype=np.float64)
    if not np.isfinite(z).all():  # a network that has left its senses
        return 1.0
    weights = np.ones(len(z)) if weight is None else np.asarray(weight, dtype=np.float64)
    doubt = (z[np.arange(len(z)), y] - z.mean(1) if loss.classes else ((y - 0.5) * z).mean(1)) / (len(z) + 2)
    moments = _softmax_moments(z) if loss.link == "softmax" else _sigmoid_moments(z)
    # By 1/T the loss is convex: its slope is E[z], as z/T has it, less what the targets have, and its bend Var[z].
    fixed = float((np.einsum("nc,nc->n", loss.slope(z, y), z) + doubt - moments(1.0)[0]) @ weights)

    def at(cold: float) -> tuple[float, float]:
        expected, bend = moments(cold)
        return float(expected @ weights) + fixed, float(bend @ weights)

    low, high, cold = 1 / MAX_TEMPERATURE, 1 / MIN_TEMPERATURE, 1.0
    ends = {low, high}  # that nothing is known of yet: the answer may lie beyond
    for _ in range(60):  # Newton's steps, and halves where one would leave what is known to hold the answer
        slope, bend = at(cold)
        low, high = (low, cold) if slope > 0 else (cold, high)
        ends.discard(cold)
        if abs(slope) <= 1e-6 * weights.sum() or high - low < 1e-6 * cold:
            break
        step = -slope / bend if bend > 0 else -math.copysign(math.inf, slope)
        nearer = min(max(cold + step, low), high)
        cold = nearer if low < nearer < high or nearer in ends else (low + high) / 2
    return float(1 / cold)


def _softmax_moments(z: Floats) -> Callable[[float], tuple[Floats, Floats]]:
    """Of each row, at z · cold: the mean of z by its probabilities, and its variance."""
    turned = np.ascontiguousarray((z - z.max(1, keepdims=True)).T)  # (C, N): sums over few classes are slow along rows

    def moments(cold: float) -> tuple[Floats, Floats]:
        e = cold * turned
        np.exp(e, out=e)  # one array for all: of many rows, making others would take most of the time
        total = e.sum(0)
        e *= turned
        mean = e.sum(0) / total
        e *= turned
        return mean, e.sum(0) / total - mean**2

    return moments


def _sigmoid_moments(z: Floats) -> Callable[[float], tuple[Floats, Floats]]:
    """The same where each output is a question of its own, as means over them."""
    turned = np.ascontiguousarray(z.T)

    def moments(cold: float) -> tuple[Floats, Floats]:
        p = logistic(cold * turned)
        return (p * turned).mean(0), ((p * turned) * ((1 - p) * turned)).mean(0)

    return moments


def _equally_weighted(errors: Floats, weight: NDArray[Any] | None) -> Floats:
    """Sorted errors (rows, targets) that count alike; where weights differ, as many as these are worth."""
    ordered = np.sort(errors, axis=0)
    if weight is None or not len(weight) or (weight == weight[0]).all():
        return ordered
    w = np.asarray(weight, dtype=np.float64)
    n = max(1, round(w.sum() ** 2 / (w**2).sum()))
    middles = (np.arange(n) + 0.5) / n * w.sum()
    below = w[np.argsort(errors, axis=0)].cumsum(0)  # (rows, targets)
    columns = range(errors.shape[1])
    places = [np.minimum(np.searchsorted(below[:, i], middles), len(w) - 1) for i in columns]
    return np.stack([ordered[places[i], i] for i in columns], 1)


def _place(n: int, coverage: float) -> int:
    """Which of n errors, from 1, a new row stays within with such a chance; n + 1 where none is enough."""
    return int(np.ceil((n + 1) * coverage))


def _rank(ordered: Floats, coverage: float) -> Floats:
    place = _place(len(ordered), coverage)
    return np.full(ordered.shape[1], np.inf) if place > len(ordered) else ordered[place - 1]


def _mean(values: Sequence[NDArray[Any]], weights: Sequence[float] | None = None) -> Floats:
    """In order, so that it does not depend on how many are summed at a time."""
    if weights is not None:
        values = [weight * value for value, weight in zip(values, weights, strict=True)]
    total = values[0].copy()
    for value in values[1:]:
        total += value
    return total / (len(values) if weights is None else sum(weights))


def _log_sum(z: Floats) -> Floats:
    top = z.max(1, keepdims=True)
    return top + np.log(np.exp(z - top).sum(1, keepdims=True))


def _log_mean(z: Sequence[Floats], weights: Sequence[float] | None = None) -> Floats:
    top = np.max(z, axis=0)
    return top + np.log(_mean([np.exp(one - top) for one in z], weights))


MAX_ROWS = 20_000
"""Rows that are looked at; of more, as many evenly apart."""
MAX_PAIRS = 3
"""Pairs of members whose difference is taken for noise."""
MAX_SHARPENING = 2.0
"""The most that 1/T grows by: what is extrapolated from few rows may be anything."""
PRIOR_ROWS = 100
"""As many held-out rows move T half of the way: what few rows say of it is mostly chance."""
MIN_SHARE_OF_BEST = 0.9
"""Of the T at which members' mean and mean output agree best: the least that is taken."""
LOG_TOLERANCE = 1e-4
"""How near log T has to be."""


def ensemble_temperature(
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
    places = places[:: -(-len(places) // MAX_ROWS)]
    rows = HeldOutRows(
        loss=loss,
        members=np.asarray(members[:, places], dtype=np.float64),
        seen=seen[:, places],
        y=y[places],
        weight=np.ones(len(places)) if weight is None else np.asarray(weight[places], dtype=np.float64),
    )
    if everyone:
        return rows.best_temperature(rows.y)
    t = 1 / rows.inverse_temperature_of_mean() if len(members) > 2 else alone
    mean = rows.members.mean(0)
    found = max(
        rows.temperature_for(rows.confidence([mean], t)),
        MIN_SHARE_OF_BEST * rows.best_temperature(rows.probabilities(mean, t)),
    )
    return float(alone * (found / alone) ** (len(places) / (len(places) + PRIOR_ROWS)))


@dataclass(frozen=True, kw_only=True, eq=False)
class HeldOutRows:
    """Held-out rows that are looked at, each of weight above 0 for some."""

    loss: Loss
    members: Floats
    seen: NDArray[np.bool_]
    y: NDArray[Any]
    weight: Floats

    def inverse_temperature_of_mean(self) -> float:
        """1/T of the mean output of all members."""
        rows = np.arange(self.members.shape[1])
        order = np.argsort(~self.seen, axis=0, kind="stable")  # those that saw a row, and a judge at the end
        judged = self.members[order[-1], rows]
        both = range(int(self.seen.sum(0).min()))
        some = [(i, j) for j in both for i in range(j)][:MAX_PAIRS]
        noise = [(self.members[order[i], rows] - self.members[order[j], rows]) / np.sqrt(2) for i, j in some]

        def cold(times: float) -> float:
            changed = [judged + sign * np.sqrt(times) * one for one in noise for sign in (-1, 1)]
            return float(np.mean([1 / temperature(self.loss, z, self.y, self.weight) for z in changed]))

        none, once, twice = 1 / temperature(self.loss, judged, self.y, self.weight), cold(1), cold(2)
        less = 1 - 1 / len(self.members)
        found = none * (less + 1) * (less + 2) / 2 - once * less * (less + 2) + twice * less * (less + 1) / 2
        return float(np.clip(found, none, MAX_SHARPENING * none))

    def probabilities(self, z: Floats, t: float) -> Floats:
        together = combined(self.loss, [z], Calibration(temperature=t))
        return np.exp(-np.logaddexp(0, -together)) if self.loss.link == "sigmoid" else np.exp(together)

    def best_temperature(self, y: NDArray[Any]) -> float:
        """The T at which the members' mean makes these targets likeliest: classes, or probabilities."""

        def cost(log_t: float) -> float:
            z = combined(self.loss, list(self.members), Calibration(temperature=float(np.exp(log_t))))
            return float((self.loss.rows(z, y) * self.weight).sum())

        ratio = (np.sqrt(5) - 1) / 2  # the golden section
        low, high = np.log(MIN_TEMPERATURE), np.log(MAX_TEMPERATURE)
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        at_left, at_right = cost(left), cost(right)
        while high - low > LOG_TOLERANCE:
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

    def temperature_for(self, wanted: float) -> float:
        """The T at which the members' mean is."""
        low, high = np.log(MIN_TEMPERATURE), np.log(MAX_TEMPERATURE)
        while high - low > LOG_TOLERANCE:
            middle = (low + high) / 2
            if self.confidence(self.members, float(np.exp(middle))) > wanted:
                low = middle
            else:
                high = middle
        return float(np.exp((low + high) / 2))
