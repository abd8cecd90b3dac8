"""Trackers: tools that show a run during training or afterward.

Trackers receive the events of the run's own log. `get("tensorboard", folder=…)` makes a tracker that starts and ends
its own run. `adapt(object)` wraps an existing run, writer or logger, and never ends it.

    ml.fit(spec, data, trackers=["tensorboard", my_writer, get("wandb", project="digits")])
    replay(events, get("mlflow"))
"""

from __future__ import annotations

from .base import Tracker, TrackerObserver, config_of, replay, values_of
from .selection import TRACKERS, accepted, adapt, for_run, get

__all__ = [
    "TRACKERS",
    "Tracker",
    "TrackerObserver",
    "accepted",
    "adapt",
    "config_of",
    "for_run",
    "get",
    "replay",
    "values_of",
]
