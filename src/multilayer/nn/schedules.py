"""Schedules: a factor on the learning rate, weight decay or dropout, as a pure function of the step.

t = step/steps is the share of the run before a step. During a warm-up of the share w of the run, the factor rises
linearly to 1; a `warmup` above 1 is a number of steps, w·steps. After it, u = (t − w)/(1 − w) goes from 0 to 1:

    constant      1
    linear        1 − u
    cosine        ½(1 + cos πu)                          Loshchilov & Hutter 2017, one cycle
    step          factorⁿ,  n = ⌊t/every⌋                 He et al. 2016
    one_cycle     cosine up, then cosine down to almost 0  Smith & Topin 2018, as in PyTorch's OneCycleLR
    flat_cosine   1 until t = flat, then cosine to 0
    coslog        ½(1 − cos(2π log₂(1 + (2ⁿ − 1)t)))      n cycles, each twice as long as the one before:
                                                          Holzmüller et al. 2024 (RealMLP), with n = 4

`floor` is the last value of linear and cosine. Shares refer to the whole run, so the shape does not depend on the
number of epochs. Each value is computed separately, so its bits do not depend on the number of values in a call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from ..core.named_options import choose, require
from ..errors import OptionError


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """`schedule(step, steps)` is the factor, from 0 to 1, for a step from 0 to steps − 1, or for an array of steps."""

    name: str
    formula: str
    constants: tuple[tuple[str, float], ...] = ()
    at: Callable[[int, int], float]
    flat: bool = False
    """Whether the factor is always 1."""

    @overload
    def __call__(self, step: int, steps: int) -> float: ...
    @overload
    def __call__(self, step: NDArray[np.integer[Any]], steps: int) -> NDArray[np.float64]: ...
    def __call__(self, step: int | NDArray[np.integer[Any]], steps: int) -> float | NDArray[np.float64]:
        at = self.at
        numbers: list[int] = step.ravel().tolist() if isinstance(step, np.ndarray) else [step]
        for outside in (s for s in numbers if not 0 <= s < steps):
            raise OptionError(f"step must be from 0 to {steps - 1} in a run of {steps} steps, got {outside}")
        if not isinstance(step, np.ndarray):
            return at(step, steps)
        if self.flat:
            return np.ones(step.shape)
        return np.array([at(s, steps) for s in numbers], dtype=np.float64).reshape(step.shape)


def constant(warmup: float = 0.0) -> Schedule:
    return Schedule(
        name="constant",
        formula="1",
        constants=(("warmup", warmup),),
        at=_after(warmup, lambda step, steps: 1.0),
        flat=not warmup,
    )


def linear(warmup: float = 0.0, floor: float = 0.0) -> Schedule:
    return Schedule(
        name="linear",
        formula="1 − u",
        constants=(("warmup", warmup), ("floor", _floor(floor))),
        at=_after(warmup, lambda step, steps: floor + (1 - floor) * (1 - step / steps)),
    )


def cosine(warmup: float = 0.05, floor: float = 0.0) -> Schedule:
    return Schedule(
        name="cosine",
        formula="½(1 + cos πu)",
        constants=(("warmup", warmup), ("floor", _floor(floor))),
        at=_after(warmup, lambda step, steps: floor + (1 - floor) * _fall(step / steps)),
    )


def step(every: float = 0.3, factor: float = 0.1, warmup: float = 0.0) -> Schedule:
    require("every", every, 0 < every <= 1, "above 0 and at most 1, a share of the run")
    require("factor", factor, 0 <= factor <= 1, "from 0 to 1")
    rise = _after(warmup, lambda step, steps: 1.0)
    return Schedule(
        name="step",
        formula="factorⁿ,  n = ⌊t/every⌋",
        constants=(("every", every), ("factor", factor), ("warmup", warmup)),
        at=lambda step, steps: rise(step, steps) * factor ** _whole(step / (every * steps)),
    )


def one_cycle(warmup: float = 0.3, div: float = 25.0, final_div: float = 1e4) -> Schedule:
    """Rise from 1/div to 1 during the share `warmup`, then fall to 1/(div · final_div) at the last step."""
    _warmup(warmup)
    require("div", div, div >= 1, "at least 1")
    require("final_div", final_div, final_div >= 1, "at least 1")

    def at(step: int, steps: int) -> float:
        peak = max(_warmup_steps(warmup, steps) - 1, 0.0)
        if step < peak:
            return _between(1 / div, 1.0, step / peak)
        end = max(steps - 1 - peak, 1.0)
        return _between(1.0, 1 / div / final_div, (step - peak) / end)

    return Schedule(
        name="one_cycle",
        formula="cosine from 1/div to 1, then to 1/(div·final_div)",
        constants=(("warmup", warmup), ("div", div), ("final_div", final_div)),
        at=at,
    )


def flat_cosine(flat: float = 0.5) -> Schedule:
    _share("flat", flat)
    return Schedule(
        name="flat_cosine",
        formula="1 until t = flat, then ½(1 + cos π(t − flat)/(1 − flat))",
        constants=(("flat", flat),),
        at=lambda step, steps: _fall(max(step / steps - flat, 0.0) / (1 - flat)),
    )


def coslog(cycles: float = 4.0) -> Schedule:
    require("cycles", cycles, cycles >= 1 and cycles == int(cycles) and cycles <= 50, "a whole number from 1 to 50")
    return Schedule(
        name="coslog",
        formula="½(1 − cos(2π·log₂(1 + (2ⁿ − 1)·t)))",
        constants=(("cycles", cycles),),
        at=lambda step, steps: (1 - math.cos(2 * math.pi * math.log2(1 + (2**cycles - 1) * (step / steps)))) / 2,
    )


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "constant": constant,
    "linear": linear,
    "cosine": cosine,
    "step": step,
    "one_cycle": one_cycle,
    "flat_cosine": flat_cosine,
    "coslog": coslog,
}


def get(text: str) -> Schedule:
    """Return the schedule for a string.

    >>> get("cosine(warmup=0)")(50, 100)
    0.5
    """
    return choose("schedule", text, SCHEDULES)


def _after(warmup: float, then: Callable[[int, int], float]) -> Callable[[int, int], float]:
    """Return a schedule with a linear rise, 1/(w + 1) … w/(w + 1), and then `then` for the rest of the run."""
    _warmup(warmup)
    if not warmup:
        return then

    def at(step: int, steps: int) -> float:
        rising = _whole(_warmup_steps(warmup, steps))
        return (step + 1) / (rising + 1) if step < rising else then(step - rising, steps - rising)

    return at


def _whole(value: float) -> int:
    """Round down with a tolerance: 0.29 · 100 is 28.999999999999996 and gives 29 steps."""
    return math.floor(value + 1e-9)


def _fall(t: float) -> float:
    return (1 + math.cos(math.pi * t)) / 2


def _between(start: float, end: float, t: float) -> float:
    return end + (start - end) * _fall(t)


def _share(name: str, value: float) -> float:
    return require(name, value, 0 <= value < 1, "at least 0 and below 1, a share of the run")


def _warmup(value: float) -> float:
    valid = 0 <= value < 1 or (value > 1 and value == int(value))
    return require("warmup", value, valid, "at least 0 and below 1, a share of the run, or a number of steps above 1")


def _warmup_steps(warmup: float, steps: int) -> float:
    """Return the number of steps of a warm-up, which is given as a fraction of the run or in steps."""
    return warmup * steps if warmup < 1 else warmup


def _floor(value: float) -> float:
    return require("floor", value, 0 <= value <= 1, "from 0 to 1")
