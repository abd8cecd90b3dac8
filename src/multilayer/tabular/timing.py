"""A time limit kept by planning: a few steps are timed, then epochs and members are made few enough.

A schedule that is cut off in the middle of a wave leaves a worse network than a shorter one that is run to its end.
Should the machine be slower than it was when the steps were timed, training still stops at the limit.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import machine
from ..data import Prepared
from ..data.tables import Table
from ..engine import Order
from ..spec import Spec
from ..training.config import Config
from ..training.session import Chooser, chosen_batch, make_engine

STEPS = 4
SHARE = 0.75
"""Of the limit that steps may take; the rest is for reading, looking at held-out rows and the end."""
FEWEST_EPOCHS = 32
"""Below so many epochs there are rather fewer members."""


@dataclass(frozen=True)
class Within:
    """What a recipe chooses, made to fit into so many seconds."""

    recipe: Chooser
    seconds: float

    def before(self, table: Table) -> Mapping[str, Any]:
        return self.recipe.before(table)

    def network(self, prepared: Prepared, config: Config, asked: Set[str]) -> tuple[Spec, Config]:
        spec, config = self.recipe.network(prepared, config, asked)
        steps = -(-len(prepared.train) // chosen_batch(prepared, config))
        member = steps * seconds_of_step(spec, prepared, config)  # of one epoch
        threads = machine.threads() if config.threads is None else config.threads
        affordable = SHARE * self.seconds * max(1, min(threads, config.ensemble)) / member  # epochs of members
        epochs = int(affordable / config.ensemble)
        if epochs >= config.epochs:
            return spec, config
        members = config.ensemble
        if epochs < FEWEST_EPOCHS and "ensemble" not in asked:
            members = max(1, min(members, int(affordable / FEWEST_EPOCHS)))
            epochs = min(config.epochs, int(affordable / members))
        return spec, replace(config, ensemble=members, epochs=max(1, epochs))


def seconds_of_step(spec: Spec, prepared: Prepared, config: Config) -> float:
    """The time of one step of one member, the best of a few after a first."""
    engine = make_engine(spec, prepared, replace(config, ensemble=1, threads=1, init="auto"))
    rows = prepared.train[: chosen_batch(prepared, config)]
    taken: list[float] = []
    for _ in range(1 + STEPS):
        start = time.perf_counter()
        engine.run(
            Order(epoch=0, rows=rows, batch=len(rows)), rate=np.array([1e-6]), decay=np.zeros(1), dropout=np.ones(1)
        )
        taken.append(time.perf_counter() - start)
    getattr(engine, "close", lambda: None)()
    return min(taken[1:])
