"""Training data with data options given as keywords."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from multilayer.data import DataConfig, DataOptions, TrainingData, make_training_data
from multilayer.training.inputs import in_memory


def prepare(source: Any, **options: Any) -> TrainingData:
    if in_memory(options.get("validation")):
        options["validation_data"] = options.pop("validation")
    names = {field.name for field in fields(DataConfig)}
    config = DataConfig(**{name: value for name, value in options.items() if name in names})
    return make_training_data(
        source, DataOptions(**{name: value for name, value in options.items() if name not in names}), config
    )
