"""Outputs of an ensemble, and its calibration on held-out rows: temperature and prediction intervals.

The outputs z of an ensemble are chosen such that their link gives the mean of the members' predictions. Code that reads
raw outputs can then treat an ensemble like one network:

    softmax    z = log mean softmax(zₘ/T)
    sigmoid    z = logit mean σ(zₘ/T)
    exp        z = log mean exp(zₘ); the log of the training target if that is constant
    none       z = mean zₘ, clipped to the range of the training targets

The mean is weighted if the members have different weights. The temperature T is one number for all outputs, fitted by
maximum likelihood on held-out rows (Guo et al. 2017).

Prediction intervals use the errors on n held-out rows (split conformal prediction, Vovk et al. 2005). A new error is
larger than the ⌈(n + 1)(1 − α)⌉-th smallest one with a probability of at most α. In an ensemble, the error of a row is
that of its out-of-fold prediction, by the members that did not train on it. The loss defines the error:

    mse, mae, huber      y − z; the interval is z ± a quantile of |y − z|
    poisson              the same with exp(z) instead of z; the lower end is at least 0
    one quantile         y − z; each side has probability α/2, since z is not in the middle
    several quantiles    max(z_lowest − y, y − z_highest), added outside both ends (Romano et al. 2019)

The q-quantile of the errors is the (n + 1)q-th smallest, with linear interpolation between two. On average, a new error
is below it with probability q. It is infinite if there is no such rank.

Errors with different weights w are replaced by (Σw)²/Σw² equally weighted errors at the weighted quantiles (Kish 1965).

`ensemble_temperature` fits T of the averaged ensemble. The average is more accurate and less confident than one member,
so with the T of one member it would be underconfident. If all members predict all rows out-of-fold, T is fitted
directly. Otherwise few members predict each row. Then the output of a member is modeled as the mean output of
infinitely many members plus noise, and T is extrapolated to less noise:

    1. Add noise with once and twice the variance of a member's noise to the out-of-fold outputs. The noise is the
       difference of two members that both trained on the row, divided by √2. Fit 1/T for each. It decreases with noise.
    2. Fit a parabola of 1/T over the noise. Extrapolate to the noise of the mean output of M members, 1/M of that of
       one member (simulation extrapolation, Cook and Stefanski 1994).
    3. The ensemble averages probabilities instead of outputs, which reduces its confidence further. Choose T such that
       this average is as confident on these rows as the mean output with the T of step 2. If the members contradict
       each other on some rows, this T would be too low or would not exist. So T is at least 0.9 times the T at which
       the cross-entropy between the two is lowest.
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
"""Largest number of stored errors. More errors are replaced by this number of quantiles."""
MAX_ROWS_NEEDED = 1e300
"""Largest number of rows in a message. A float cannot hold much larger ones."""
MAX_LOG_OUTPUT = 700.0
"""Largest absolute output for the link exp. Beyond it, exp is not finite in float64."""
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.1, 20.0
"""Bounds of T. Accurate networks that were trained with label smoothing need the lowest."""
_LOWEST, _HIGHEST = MIN_TEMPERATURE * (1 - 1e-6), MAX_TEMPERATURE * (1 + 1e-6)
"""The bounds of T, with a tolerance for rounding."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """Temperature, and for regression the range of the outputs and the errors on held-out rows.

    `low` and `high` have one value per output. `low`, `high` and `errors` are empty for classification.
    """

    temperature: float = 1.0
    out_of_fold: float | None = None
    """Temperature of out-of-fold predictions, if it differs from that of the ensemble."""
    low: Floats = field(default_factory=lambda: np.zeros(0))
    high: Floats = field(default_factory=lambda: np.zeros(0))
    errors: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    """Sorted errors on held-out rows (rows, targets), in units of the standardized targets."""

    def to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the numbers and the arrays that a model file stores."""
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
        """The calibration of out-of-fold predictions."""
        return self if self.out_of_fold is None else replace(self, temperature=self.out_of_fold, out_of_fold=None)

    def interval(self, coverage: float, loss: Loss) -> tuple[Floats, Floats]:
        """Return two offsets for each target: for its lowest and for its highest output. Both are (targets,).

        A fraction `coverage` of new rows lies between the two sums.
        """
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
        """Return the number of held-out rows that an interval needs, or None if there are enough."""
        one_level = len(loss.quantiles) == 1
        share, rest = ((1 + coverage) / 2, (1 - coverage) / 2) if one_level else (coverage, 1 - coverage)
        return self._lacking(share, rest)

    def quantile(self, q: float) -> Floats:
        """Return what to add to each output to get the q-quantile of the target, (outputs,)."""
        if not 0 < q < 1:
            raise OptionError(f"a quantile must be above 0 and below 1, got {q!r}")
        errors = self._known()
        if self.too_few_for(q) is not None:
            return np.full(errors.shape[1], np.inf if q > 0.5 else -np.inf)
        return np.quantile(errors, q, axis=0, method="weibull")

    def too_few_for(self, q: float) -> int | None:
        """Return the number of held-out rows that the q-quantile needs, or None if there are enough."""
        return self._lacking(max(q, 1 - q), min(q, 1 - q))

    def _lacking(self, share: float, rest: float) -> int | None:
        """Return the number of rows needed for a share. `rest` is 1 − share, above 0 even if share rounds to 1."""
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
    """Return the calibration from the outputs of held-out rows. `targets` (N, outputs) are the training targets."""
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
        errors = y - np.clip(z, low, high)  # predictions are clipped as well
    if not np.isfinite(errors).all():  # training diverged
        return Calibration(low=low, high=high)
    errors = _equally_weighted(errors, weight)
    if len(errors) > MAX_ERRORS:
        errors = np.quantile(errors, np.linspace(0, 1, MAX_ERRORS), axis=0)
    return Calibration(low=low, high=high, errors=errors)


def temperature(loss: Loss, z: NDArray[Any], y: NDArray[Any], weight: NDArray[Any] | None) -> float:
    """Return T such that z/T maximizes the likelihood of the targets; 1 without rows.

    Targets have probability 1 − 1/(n + 2) instead of 1 (Platt 1999), so that few correct rows do not give full
    confidence.
    """
    if not len(z):
        return 1.0
    z = np.asarray(z, dtype=np.float64)
    if not np.isfinite(z).all():  # training diverged
        return 1.0
    weights = np.ones(len(z)) if weight is None else np.asarray(weight, dtype=np.float64)
    doubt = (z[np.arange(len(z)), y] - z.mean(1) if loss.classes else ((y - 0.5) * z).mean(1)) / (len(z) + 2)
    moments = _softmax_moments(z) if loss.link == "softmax" else _sigmoid_moments(z)
    # The loss is convex in 1/T. Its derivative is E[z] at z/T minus z at the targets, its second derivative is Var[z].
    fixed = float((np.einsum("nc,nc->n", loss.slope(z, y), z) + doubt - moments(1.0)[0]) @ weights)

    def at(cold: float) -> tuple[float, float]:
        expected, bend = moments(cold)
        return float(expected @ weights) + fixed, float(bend @ weights)

    low, high, cold = 1 / MAX_TEMPERATURE, 1 / MIN_TEMPERATURE, 1.0
    ends = {low, high}  # ends of the interval that were not evaluated yet
    for _ in range(60):  # Newton steps; bisection if a step would leave the interval
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
    """Return a function of 1/T: the mean and variance of z in each row, under the probabilities softmax(z/T)."""
    turned = np.ascontiguousarray((z - z.max(1, keepdims=True)).T)  # (C, N): sums over the first axis are faster

    def moments(cold: float) -> tuple[Floats, Floats]:
        e = cold * turned
        np.exp(e, out=e)  # in place: allocating arrays would take most of the time
        total = e.sum(0)
        e *= turned
        mean = e.sum(0) / total
        e *= turned
        return mean, e.sum(0) / total - mean**2

    return moments


def _sigmoid_moments(z: Floats) -> Callable[[float], tuple[Floats, Floats]]:
    """Return the same for independent binary outputs, averaged over the outputs."""
    turned = np.ascontiguousarray(z.T)

    def moments(cold: float) -> tuple[Floats, Floats]:
        p = logistic(cold * turned)
        return (p * turned).mean(0), ((p * turned) * ((1 - p) * turned)).mean(0)

    return moments


def _equally_weighted(errors: Floats, weight: NDArray[Any] | None) -> Floats:
    """Return sorted errors (rows, targets) with equal weights: for different weights, the effective number of them."""
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
    """Return the rank, from 1, of the error that covers a new row with this probability, or n + 1."""
    return int(np.ceil((n + 1) * coverage))


def _rank(ordered: Floats, coverage: float) -> Floats:
    place = _place(len(ordered), coverage)
    return np.full(ordered.shape[1], np.inf) if place > len(ordered) else ordered[place - 1]


def _mean(values: Sequence[NDArray[Any]], weights: Sequence[float] | None = None) -> Floats:
    """Return the weighted mean, summed in order, so that the number of rows does not change the bits."""
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
"""Largest number of rows for fitting T. More rows are sampled at equal distances."""
MAX_PAIRS = 3
"""Largest number of pairs of members whose difference is used as noise."""
MAX_SHARPENING = 2.0
"""Largest factor by which extrapolation may increase 1/T. It is unreliable for few rows."""
PRIOR_ROWS = 100
"""Number of held-out rows with which log T moves half of the way from the T of a member to the fitted T."""
MIN_SHARE_OF_BEST = 0.9
"""Smallest T, as a share of the T at which the average and the mean output agree best."""
LOG_TOLERANCE = 1e-4
"""Tolerance of log T."""


def ensemble_temperature(
    loss: Loss,
    members: NDArray[Any],
    seen: NDArray[np.bool_],
    y: NDArray[Any],
    weight: NDArray[Any] | None,
    alone: float,
) -> float:
    """Return T of the averaged ensemble, for the outputs of its members (M, N, C) on held-out rows.

    `seen` (M, N) marks the rows that a member trained on. `alone` is the T of out-of-fold predictions.
    """
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
    """Outputs of the members (M, N, C) on held-out rows. At least one row has a positive weight."""

    loss: Loss
    members: Floats
    seen: NDArray[np.bool_]
    y: NDArray[Any]
    weight: Floats

    def inverse_temperature_of_mean(self) -> float:
        """Return 1/T of the mean output of all members, by extrapolation."""
        rows = np.arange(self.members.shape[1])
        order = np.argsort(~self.seen, axis=0, kind="stable")  # training members first
        out_of_fold = self.members[order[-1], rows]
        both = range(int(self.seen.sum(0).min()))
        pairs = [(i, j) for j in both for i in range(j)][:MAX_PAIRS]
        noise = [(self.members[order[i], rows] - self.members[order[j], rows]) / np.sqrt(2) for i, j in pairs]

        def cold(times: float) -> float:
            changed = [out_of_fold + sign * np.sqrt(times) * one for one in noise for sign in (-1, 1)]
            return float(np.mean([1 / temperature(self.loss, z, self.y, self.weight) for z in changed]))

        none, once, twice = 1 / temperature(self.loss, out_of_fold, self.y, self.weight), cold(1), cold(2)
        less = 1 - 1 / len(self.members)
        found = none * (less + 1) * (less + 2) / 2 - once * less * (less + 2) + twice * less * (less + 1) / 2
        return float(np.clip(found, none, MAX_SHARPENING * none))

    def probabilities(self, z: Floats, t: float) -> Floats:
        """Return the probabilities of outputs z at temperature t."""
        together = combined(self.loss, [z], Calibration(temperature=t))
        return np.exp(-np.logaddexp(0, -together)) if self.loss.link == "sigmoid" else np.exp(together)

    def best_temperature(self, y: NDArray[Any]) -> float:
        """Return T that maximizes the likelihood of targets y under the average: classes or probabilities."""

        def cost(log_t: float) -> float:
            z = combined(self.loss, list(self.members), Calibration(temperature=float(np.exp(log_t))))
            return float((self.loss.rows(z, y) * self.weight).sum())

        ratio = (np.sqrt(5) - 1) / 2  # golden-section search
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
        """Return the mean probability of the predicted class."""
        z = combined(self.loss, list(members), Calibration(temperature=t))
        if self.loss.link == "sigmoid":
            sure = (1 / (1 + np.exp(-np.abs(z)))).mean(1)
        else:
            sure = 1 / np.exp(z - z.max(1, keepdims=True)).sum(1)
        return float((sure * self.weight).sum() / self.weight.sum())

    def temperature_for(self, confidence: float) -> float:
        """Return T at which the average has this confidence."""
        low, high = np.log(MIN_TEMPERATURE), np.log(MAX_TEMPERATURE)
        while high - low > LOG_TOLERANCE:
            middle = (low + high) / 2
            if self.confidence(self.members, float(np.exp(middle))) > confidence:
                low = middle
            else:
                high = middle
        return float(np.exp((low + high) / 2))
