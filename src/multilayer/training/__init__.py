"""Training: `fit` and `resume`, the loop, policies that control it, observers that only read events, and trackers.

The engines that run the steps belong in `engines`, run folders in `runs`, and estimators in `estimators`.
"""

from __future__ import annotations

from .loop import Loop
from .plan import Plan
from .policies import Action, Continue, Found, Observer, Policy, Rollback, Steps, Stop, strongest

__all__ = [
    "Action",
    "Continue",
    "Found",
    "Loop",
    "Observer",
    "Plan",
    "Policy",
    "Rollback",
    "Steps",
    "Stop",
    "strongest",
]
