"""Trackers: tools that show a run as it goes, or afterwards.

The run's own log is the truth; a tracker is told what it says. `get("tensorboard", folder=…)` makes one of ours, which
starts and ends its own run; `adapt(object)` takes a run, writer or logger that is already there, and never ends it.

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
