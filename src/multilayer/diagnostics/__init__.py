"""Find what went wrong in training: measurements of a trained network and its run, findings, and remedies.

A finding is a fault with its place, its numbers, and remedies. A healthy run has none. How findings are displayed
belongs in `pages` and `cli`; training again with a remedy belongs in `training`.
"""

from __future__ import annotations

from .check import Diagnosis, check, diagnose, findings_of
from .findings import Finding, Place, Remedy

__all__ = ["Diagnosis", "Finding", "Place", "Remedy", "check", "diagnose", "findings_of"]
