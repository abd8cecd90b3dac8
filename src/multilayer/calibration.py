"""Several members as one, and what rows that none of them trained on tell of how far to trust it.

An ensemble's outputs are those whose link gives the mean of the members' predictions, so that whatever reads raw
outputs reads an ensemble as one network:

    softmax    z = log mean softmax(zₘ/T)
    sigmoid    z = logit mean σ(zₘ/T)
    exp        z = log mean exp(zₘ)
    none       z = mean zₘ, within the targets of training

T is one number for all outputs, the one that held-out rows find likeliest (Guo et al. 2017); `pooling` has that of
several members, of which a row was held out by few. Intervals come from the errors on held-out rows: of n such rows the
⌈(n + 1)(1 − α)⌉-th smallest error is what a new row exceeds with a chance of at most α (split conformal, Vovk et al.
2005; each row's error is that of the members that did not see it).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import FileError, OptionError
from .losses import Loss

Floats = NDArray[np.float64]

MOST_ERRORS = 10_000
"""Errors that are kept; of more, as many quantiles."""
COLDEST, HOTTEST = 0.5, 20.0
"""Bounds of T. Where all held-out rows are right any colder one is likelier still, which few rows do not prove."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """Plain data. `low`, `high` and `errors` have a place for each output, and are empty for classes."""

    temperature: float = 1.0
    judges: float | None = None
    """The temperature of what held-out rows were told by the members that did not see them, where it is another."""
    low: Floats = field(default_factory=lambda: np.zeros(0))
    high: Floats = field(default_factory=lambda: np.zeros(0))
    errors: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    """y − z of held-out rows, sorted (rows, outputs), both standardised."""

    def to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        judges = {} if self.judges is None else {"judges": self.judges}
        arrays = {"low": self.low, "high": self.high, "errors": self.errors}
        return {"temperature": self.temperature, **judges}, arrays

    @staticmethod
    def from_parts(data: Any, arrays: Mapping[str, NDArray[Any]], where: str) -> Calibration:
        known = isinstance(data, dict) and {"temperature"} <= set(data) <= {"temperature", "judges"}
        if not known or not all(isinstance(t, float) and 0 < t < np.inf for t in data.values()):
            raise FileError(f"{where}: a calibration has a temperature above 0, got {str(data)[:80]}")
        if set(arrays) != {"low", "high", "errors"} or not all(np.isfinite(a).all() for a in arrays.values()):
            raise FileError(f"{where}: a calibration has low, high and errors, all finite, got {sorted(arrays)}")
        kept = {name: np.asarray(a, np.float64) for name, a in arrays.items()}
        return Calibration(temperature=data["temperature"], judges=data.get("judges"), **kept)

    @property
    def of_judges(self) -> Calibration:
        """For outputs of held-out rows, made by the members that did not see them."""
        return self if self.judges is None else replace(self, temperature=self.judges, judges=None)

    def interval(self, coverage: float) -> Floats:
        """What to add on either side of an output so that the given share of new rows lies between. → (outputs,)"""
        if not 0 < coverage < 1:
            raise OptionError(f"coverage must be above 0 and below 1, got {coverage!r}")
        return _rank(np.sort(np.abs(self._known()), axis=0), coverage)

    def quantile(self, q: float) -> Floats:
        """What to add to an output to get the q-quantile of the target. → (outputs,)"""
        if not 0 < q < 1:
            raise OptionError(f"a quantile must be above 0 and below 1, got {q!r}")
        return np.quantile(self._known(), q, axis=0)

    def _known(self) -> Floats:
        if not len(self.errors):
            raise OptionError("intervals need errors on held-out rows, and the model has none: train with validation")
        return self.errors


def combined(loss: Loss, members: Sequence[NDArray[Any]], calibration: Calibration | None = None) -> Floats:
    """The outputs (N, C) of an ensemble from those of its members."""
    temperature = 1.0 if calibration is None else calibration.temperature
    z = [np.asarray(one, dtype=np.float64) for one in members]
    if loss.link in ("softmax", "sigmoid"):
        z = [one / temperature for one in z]
    if len(z) == 1:
        together = z[0]
    elif loss.link == "softmax":
        together = _log_mean([one - _log_sum(one) for one in z])
    elif loss.link == "sigmoid":
        yes, no = (_log_mean([-np.logaddexp(0, sign * one) for one in z]) for sign in (-1, 1))
        together = yes - no
    else:
        together = _log_mean(z) if loss.link == "exp" else _mean(z)
    if calibration is not None and len(calibration.low):
        together = np.clip(together, calibration.low, calibration.high)
    return together


def calibrated(loss: Loss, z: NDArray[Any], y: NDArray[Any], weight: NDArray[Any] | None, targets: Any) -> Calibration:
    """From the outputs of held-out rows; `targets` (N, outputs) are those of training, for their range."""
    if loss.link in ("softmax", "sigmoid"):
        return Calibration(temperature=temperature(loss, z, y, weight))
    if loss.link is not None or loss.per_target > 1 or not len(targets):
        return Calibration()
    low, high = targets.min(0).astype(np.float64), targets.max(0).astype(np.float64)
    errors = np.sort(np.asarray(y, dtype=np.float64) - np.clip(z, low, high), axis=0)  # of what is predicted
    if len(errors) > MOST_ERRORS:
        errors = np.quantile(errors, np.linspace(0, 1, MOST_ERRORS), axis=0)
    return Calibration(low=low, high=high, errors=errors)


def temperature(loss: Loss, z: NDArray[Any], y: NDArray[Any], weight: NDArray[Any] | None) -> float:
    """The T whose z/T make the targets likeliest; 1 where there are no rows.

    Each target is taken for certain by all but 1/(n + 2) (Platt 1999): some rows that are all right prove no certainty.
    """
    if not len(z):
        return 1.0
    z = np.asarray(z, dtype=np.float64)
    weights = np.ones(len(z)) if weight is None else np.asarray(weight, dtype=np.float64)
    doubt = (z[np.arange(len(z)), y] - z.mean(1) if loss.classes else ((y - 0.5) * z).mean(1)) / (len(z) + 2)

    def slope(cold: float) -> float:
        """Of the loss by 1/T, in which it is convex."""
        return float((((loss.slope(cold * z, y) * z).sum(1) + doubt) * weights).sum())

    low, high = 1 / HOTTEST, 1 / COLDEST
    at_low, at_high = slope(low), slope(high)
    if at_low >= 0 or at_high <= 0:
        return float(HOTTEST if at_low >= 0 else COLDEST)
    cold = 1.0
    for _ in range(60):  # the Illinois form of regula falsi
        cold = (low * at_high - high * at_low) / (at_high - at_low)
        at = slope(cold)
        if abs(at) < 1e-6 * weights.sum() or high - low < 1e-6 * cold:
            break
        if at > 0:
            high, at_high, at_low = cold, at, at_low / 2
        else:
            low, at_low, at_high = cold, at, at_high / 2
    return float(1 / cold)


def _rank(ordered: Floats, coverage: float) -> Floats:
    n = len(ordered)
    place = int(np.ceil((n + 1) * coverage))
    return np.full(ordered.shape[1], np.inf) if place > n else ordered[place - 1]


def _mean(values: Sequence[NDArray[Any]]) -> Floats:
    """In order, so that it does not depend on how many are summed at a time."""
    total = values[0].copy()
    for value in values[1:]:
        total += value
    return total / len(values)


def _log_sum(z: Floats) -> Floats:
    top = z.max(1, keepdims=True)
    return top + np.log(np.exp(z - top).sum(1, keepdims=True))


def _log_mean(z: Sequence[Floats]) -> Floats:
    top = np.max(z, axis=0)
    return top + np.log(_mean([np.exp(one - top) for one in z]))
