"""Tables in, numbers out: readers, typed columns, the encoding, the task, splits, bundled sets and augmentation.

ready = prepare("people.csv", target="income")
ready.data, ready.train, ready.validation      for an engine
ready.encoding                                 kept with the model: apply, decode, probabilities

Networks belong in `spec`; the engines that read the batches in `engines`.
"""

from __future__ import annotations

from .encoding import Column, Encoded, Encoding
from .loaders import is_loader, prepare_loader
from .readers import read
from .table import Table
from .targets import Task
from .training_data import TrainingData, prepare

__all__ = [
    "Column",
    "Encoded",
    "Encoding",
    "Table",
    "Task",
    "TrainingData",
    "is_loader",
    "prepare",
    "prepare_loader",
    "read",
]
