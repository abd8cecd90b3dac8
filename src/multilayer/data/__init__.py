"""Read tables and convert them to numbers: readers, columns, encoding, task, splits, bundled sets and augmentation.

    made = make_training_data("people.csv", DataOptions(target="income"))
    made.data, made.train, made.validation      for an engine
    made.encoding                               stored with the model: apply, decode, probabilities

Networks belong in `spec`, and engines that train on the batches belong in `engines`.
"""

from __future__ import annotations

from .encoding import Column, Encoded, Encoding
from .loaders import is_loader, read_loader
from .options import DataConfig, DataOptions
from .readers import read
from .table import Table
from .targets import Task
from .training_data import TrainingData, make_training_data

__all__ = [
    "Column",
    "DataConfig",
    "DataOptions",
    "Encoded",
    "Encoding",
    "Table",
    "Task",
    "TrainingData",
    "is_loader",
    "make_training_data",
    "read",
    "read_loader",
]
