"""Plan training within a time limit: measure one member, then choose the number of epochs and members.

    elapsed    time since `fit` was called: reading and preparing the data
    start      initialization of each member from the data, one member after the other
    epochs     training steps, with one member per thread in parallel, and an evaluation of the held-out rows
    end        loading the best epoch, calibration, metrics

A schedule that stops in the middle of a cycle gives a worse network than a shorter schedule that runs to its end. If
even a few epochs take too long, each epoch uses only a part of the rows, so that the schedule still ends in time. If
the machine becomes slower after the measurement, training still stops at the limit. If the time is too short for one
step of every member, the plan has only this step, and a warning is raised.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import NamedTuple, cast

import numpy as np

from ..core import machine
from ..core.formatting import count
from ..data import TrainingData
from ..errors import option_name, warn
from ..runs.config import Config
from ..spec import Spec
from .plan import chosen_batch
from .setup import Setup

MAX_TIMED_STEPS, MAX_TIMED_EVALUATIONS = 32, 2
"""Largest number of steps and of evaluations that are timed."""
MAX_TIMED_ROWS = 4096
"""Largest number of held-out rows in a timed evaluation."""
MEASURING_SHARE = 0.03
"""Fraction of the limit for timing steps, and for timing evaluations. At least one of each is timed."""
SHARE = 0.85
"""Fraction of the remaining time that the plan may use. The rest is a reserve for a busy machine."""
FEWEST_EPOCHS = 32
"""Number of epochs below which the plan uses fewer members instead."""
WHOLE_EPOCHS = 4
"""Number of epochs below which each epoch uses a part of the rows, so that all the time is used."""
FINAL_EVALUATIONS = 2
"""Evaluations of the held-out rows after the last epoch: one for calibration, one for metrics."""


class Costs(NamedTuple):
    """Seconds for the start of a member, a step of all members that run in parallel, and an evaluation."""

    start: float
    step: float
    evaluation: float


class Planned(NamedTuple):
    """The plan for the limit.

    `epoch_rows` is set if an epoch uses only a part of the rows. `least` and `enough` are the seconds for one step and
    for one epoch, with start and end.
    """

    members: int
    epochs: int
    epoch_rows: int | None
    least: float
    enough: float


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The work to plan, and its costs."""

    costs: Costs
    rows: int
    """Rows that a member trains on in an epoch."""
    batch: int
    threads: int
    parted: bool
    """Whether each held-out row is evaluated by one member only."""

    @property
    def steps(self) -> int:
        return -(-self.rows // self.batch)

    def fixed(self, members: int) -> float:
        """Return the seconds for starting the members and for the evaluations at the end."""
        every = members * self.costs.evaluation if self.parted else self.evaluating(members)
        return (
            members * self.costs.start + FINAL_EVALUATIONS * self.evaluating(members) + (every if members > 1 else 0.0)
        )

    def rounds(self, members: int) -> int:
        """Return the number of rounds that the threads need for one step of every member."""
        return -(-members // max(1, min(self.threads, members)))

    def evaluating(self, members: int) -> float:
        """Return the seconds for one evaluation of the held-out rows."""
        return self.costs.evaluation * (1 if self.parted else self.rounds(members))

    def training(self, members: int) -> float:
        """Return the seconds for one step of every member."""
        return self.costs.step * self.rounds(members)

    def epoch(self, members: int) -> float:
        return self.steps * self.training(members) + self.evaluating(members)

    def affordable(self, members: int, seconds: float) -> float:
        """Return the number of epochs that fit, as a fraction."""
        return max(0.0, seconds - self.fixed(members)) / self.epoch(members)

    def planned(self, seconds: float, *, members: int, epochs: int, fewer: bool, again: float = 0.0) -> Planned:
        """Return the plan for `seconds`. `fewer` allows fewer members, which costs `again` seconds of preparation."""
        enough = min(FEWEST_EPOCHS, epochs)
        if fewer and self.affordable(members, seconds) < enough:
            most, seconds = members - 1, seconds - again
            members = next((m for m in range(most, 1, -1) if self.affordable(m, seconds) >= enough), 1)
        overhead = self.fixed(members) + self.evaluating(members)
        needed = (overhead + self.training(members), overhead + self.steps * self.training(members))
        affordable = self.affordable(members, seconds)
        if affordable >= epochs:
            return Planned(members, epochs, None, *needed)
        if affordable >= WHOLE_EPOCHS:
            return Planned(members, int(affordable), None, *needed)
        epochs = max(1, math.ceil(affordable))
        share = affordable * self.epoch(members) / epochs - self.epoch(members) + self.steps * self.training(members)
        steps = max(1, int(share / self.training(members)))
        return Planned(members, epochs, None if steps >= self.steps else steps * self.batch, *needed)


class Limited(NamedTuple):
    """The configuration that fits into the time limit, and whether it shortens training.

    `start` is the startup time of a member in seconds.
    """

    config: Config
    shortened: bool
    start: float


def within_limit(
    spec: Spec,
    prepared: TrainingData,
    config: Config,
    *,
    began: float,
    preparing: float,
    fewer: bool,
    start: float | None = None,
) -> Limited:
    """Choose epochs, rows of an epoch and ensemble members to fit into `config.time_limit`.

    `began` is the time at which the limit started, by `time.monotonic`. `fewer` allows fewer members. Then the data
    must be prepared again, which takes `preparing` seconds. `start` is the startup time of a member in seconds, if
    known. A warning is raised if the limit is too short.
    """
    seconds = cast(float, config.time_limit)
    costs = measured(spec, prepared, config, most=MEASURING_SHARE * seconds, start=start)
    elapsed = time.monotonic() - began
    rows = len(prepared.train) - min(map(len, prepared.folds), default=0)
    workload = Workload(
        costs=costs,
        rows=min(rows, config.epoch_rows or rows),
        batch=chosen_batch(prepared, config),
        threads=machine.threads() if config.threads is None else config.threads,
        parted=bool(prepared.folds),
    )
    members, left = config.ensemble, SHARE * (seconds - elapsed)
    plan = workload.planned(
        left, members=members, epochs=cast(int, config.epochs), fewer=fewer and members > 1, again=preparing
    )
    if plan.members == members and elapsed + plan.least > seconds:
        warn(_too_little(plan, seconds, elapsed))
    epoch_rows = config.epoch_rows if plan.epoch_rows is None else plan.epoch_rows
    return Limited(
        config=replace(config, ensemble=plan.members, epochs=plan.epochs, epoch_rows=epoch_rows),
        shortened=(plan.epochs, epoch_rows) != (config.epochs, config.epoch_rows),
        start=costs.start,
    )


def _too_little(plan: Planned, seconds: float, elapsed: float) -> str:
    fewer = ", or set fewer members" if plan.members > 1 else ""
    return (
        f"{option_name('time_limit')} must be enough to prepare, start and evaluate {count(plan.members, 'member')}, "
        f"got {seconds:g} s: {elapsed:.2g} s have passed, and one step takes "
        f"{plan.least:.2g} s more: allow {elapsed + plan.enough / SHARE:.2g} s for an epoch{fewer}"
    )


def measured(spec: Spec, prepared: TrainingData, config: Config, *, most: float, start: float | None = None) -> Costs:
    """Measure the costs on the engine that will train, with as many members in parallel as there will be.

    The time of a step is the mean over some steps after a first one. Timing ends after `most` seconds. `start` is the
    startup time of a member in seconds, if known.
    """
    threads = machine.threads() if config.threads is None else config.threads
    parallel = max(1, min(threads, config.ensemble))
    folds = prepared.folds[:parallel] if parallel > 1 else ()
    held_out = np.concatenate(folds) if folds else prepared.validation
    timed_rows = np.sort(held_out)[:: max(1, -(-len(held_out) // MAX_TIMED_ROWS))]
    share = len(timed_rows) / max(1, len(prepared.validation))
    prepared = replace(prepared, validation=timed_rows, folds=folds)
    began = time.perf_counter()
    setup = Setup.make(spec, prepared, replace(config, ensemble=1, init=config.init if start is None else "auto"))
    start = time.perf_counter() - began if start is None else start
    if parallel > 1:
        setup.engine.close()
        setup = Setup.make(spec, prepared, replace(config, ensemble=parallel, init="auto"))
    order = setup.plan.order(0)
    order = replace(order, rows=order.rows[: order.batch])
    try:
        once = partial(setup.engine.run, order, rate=np.array([1e-6]), decay=np.zeros(1), dropout=np.ones(1))
        steps = _timed(once, MAX_TIMED_STEPS, most)
        evaluate = lambda: setup.evaluate(setup.engine)  # noqa: E731
        evaluations = _timed(evaluate, MAX_TIMED_EVALUATIONS, most) if len(timed_rows) else [0.0]
    finally:
        setup.engine.close()
    return Costs(start=start, step=fmean(steps[1:] or steps), evaluation=min(evaluations) / (share or 1.0))


def _timed(work: Callable[[], object], times: int, most: float) -> list[float]:
    """Return the seconds of each call of `work`: `times` + 1 calls, or fewer after `most` seconds, but at least two."""
    taken: list[float] = []
    while len(taken) < 2 or (len(taken) <= times and sum(taken) < most):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return taken
