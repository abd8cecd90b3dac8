"""Trackers: tools that show a run as it goes, or afterwards.

The run's own log is the truth; a sink is told what it says. `get("tensorboard", folder=…)` makes one of ours, which
starts and ends its own run; `adapt(object)` takes a run, writer or logger that is already there, and never ends it.

    observers=[Tracker(get("wandb", project="digits")), Tracker(adapt(my_writer))]
    replay(events, get("mlflow"))
"""

from __future__ import annotations

from .base import Sink, Tracker, config_of, replay, values_of
from .choice import SINKS, adapt, get

__all__ = ["SINKS", "Sink", "Tracker", "adapt", "config_of", "get", "replay", "values_of"]
