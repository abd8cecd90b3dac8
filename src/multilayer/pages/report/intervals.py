"""The exact interval of a share, without SciPy, whose import takes longer than most reports.

Clopper & Pearson 1934: with k of n right, the shares p for which P(X ≥ k) and P(X ≤ k) are both at least 1/40.
P(X ≥ k) = I_p(k, n − k + 1), the regularised incomplete beta function, by its continued fraction (Lentz 1976).
"""

from __future__ import annotations

import math

TAIL = 0.025
"""On either side: intervals cover 95 %."""
_TINY, _CLOSE, _MOST = 1e-300, 1e-15, 2000


def exact_interval(right: int, n: int) -> tuple[float, float]:
    """
    >>> [round(end, 4) for end in exact_interval(9, 10)]
    [0.555, 0.9975]
    >>> exact_interval(0, 0)
    (0.0, 1.0)
    """
    low = _quantile(right, n - right + 1, TAIL) if right else 0.0
    high = _quantile(right + 1, n - right, 1 - TAIL) if right < n else 1.0
    return low, high


def _quantile(a: int, b: int, share: float) -> float:
    """The x with I_x(a, b) = share, by halving."""
    low, high = 0.0, 1.0
    while high - low > 1e-13:
        middle = (low + high) / 2
        if _beta(middle, a, b) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _beta(x: float, a: int, b: int) -> float:
    """I_x(a, b); the fraction converges fast below the mean, and beyond it I_x(a, b) = 1 − I_{1−x}(b, a)."""
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(1 - x, b, a)
    if x <= 0:
        return 0.0
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(front) * _fraction(x, a, b) / a


def _fraction(x: float, a: int, b: int) -> float:
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    found = d
    for m in range(1, _MOST):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _apart(1 + term * d)
            c = _apart(1 + term / c)
            found *= c * d
        if abs(c * d - 1) < _CLOSE:
            break
    return found


def _apart(value: float) -> float:
    """Kept from being 0, by which it is about to be divided."""
    return value if abs(value) > _TINY else _TINY
