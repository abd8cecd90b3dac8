"""`MLPClassifier` and `MLPRegressor`: the recipe behind scikit-learn's contract.

model = ml.MLPClassifier().fit(X, y)         any table: missing values, texts, categories, dates
model.predict(X), model.predict_proba(X)     calibrated on rows that the members did not see
ml.MLPRegressor().fit(X, y).predict_interval(X, coverage=0.9)
"""

from __future__ import annotations

from pathlib import Path

from ..models.trained_model import TrainedModel
from .classifier import MLPClassifier
from .regressor import MLPRegressor

__all__ = ["MLPClassifier", "MLPRegressor", "estimator_of"]


def estimator_of(path: str | Path) -> MLPClassifier | MLPRegressor:
    """The estimator that fits a model file."""
    classifies = TrainedModel.load(path).encoding.task.classifies
    return MLPClassifier.load(path) if classifies else MLPRegressor.load(path)
