"""Training: what decides (policies) and what looks (observers), apart from the loop that calls them."""

from __future__ import annotations

from .protocol import Action, Continue, Observer, Policy, Rollback, Stop, strongest

__all__ = ["Action", "Continue", "Observer", "Policy", "Rollback", "Stop", "strongest"]
