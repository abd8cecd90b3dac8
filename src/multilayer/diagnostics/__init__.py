"""Find what went wrong in training: measurements of a trained network and its run, findings, and remedies.

A finding is a fault with its place, its numbers, and remedies. A healthy run has none. `display` has the words that all
displays of findings share; the displays themselves belong in `pages`, `training` and `cli`. Training again with a
remedy belongs in `training`.
"""

from __future__ import annotations

from .check import Diagnosis, check, diagnose, findings_of
from .findings import KINDS, TITLES, Finding, Place, Remedy

__all__ = ["KINDS", "TITLES", "Diagnosis", "Finding", "Place", "Remedy", "check", "diagnose", "findings_of"]
