"""Exact confidence interval of a proportion (Clopper & Pearson 1934).

With k of n right, these are the shares p for which P(X ≥ k) and P(X ≤ k) are both at least 1/40. P(X ≥ k) is the
regularised incomplete beta function I_p(k, n − k + 1), which scipy inverts.
"""

from __future__ import annotations

TAIL = 0.025
"""Probability on each side. Intervals cover 95 %."""


def exact_interval(right: int, n: int) -> tuple[float, float]:
    """
    >>> [round(end, 4) for end in exact_interval(9, 10)]
    [0.555, 0.9975]
    >>> exact_interval(0, 0)
    (0.0, 1.0)
    """
    from scipy.special import betaincinv

    low = float(betaincinv(right, n - right + 1, TAIL)) if right else 0.0
    high = float(betaincinv(right + 1, n - right, 1 - TAIL)) if right < n else 1.0
    return low, high
