"""Tables: the default recipe, and the estimators that follow scikit-learn's contract."""

from __future__ import annotations

from .estimators import MLPClassifier, MLPRegressor
from .recipe import Recipe

__all__ = ["MLPClassifier", "MLPRegressor", "Recipe"]
