"""Exact cost of a network: what a step takes (`count`), what fits (`inverse`), how long it lasts (`roofline`).

Printed tables belong in `cli`, HTML pages in `pages`, and measurements of the machine in `core`.
"""

from __future__ import annotations

from .count import DTYPES, Cost, Row, cost

__all__ = ["DTYPES", "Cost", "Row", "cost"]
