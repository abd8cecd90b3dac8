"""Training: what decides (policies) and what looks (observers), apart from the loop that calls them."""

from __future__ import annotations

from .loop import Loop
from .plan import Plan
from .protocol import Action, Continue, Found, Observer, Policy, Rollback, Steps, Stop, strongest

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
