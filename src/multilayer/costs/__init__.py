"""Exact cost of a network: what a step takes (`count`), what fits (`inverse`), how long it lasts (`roofline`).

Tables and pages for people belong in `cli` and `pages`; timing of the compiled core in `core`.
"""

from __future__ import annotations

from .count import DTYPES, Cost, Row, cost

__all__ = ["DTYPES", "Cost", "Row", "cost"]
