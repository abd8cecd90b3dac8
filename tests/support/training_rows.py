"""Training data with data options given as keywords."""

from __future__ import annotations

from typing import Any

from multilayer.data import DataOptions, TrainingData, make_training_data


def prepare(source: Any, **options: Any) -> TrainingData:
    return make_training_data(source, DataOptions(**options))
