"""Tables in, numbers out: readers, typed columns, the encoding, the task, splits, bundled sets and augmentation.

ready = prepare("people.csv", target="income")
ready.data, ready.train, ready.validation      for an engine
ready.encoding                                 kept with the model: apply, decode, probabilities
"""

from __future__ import annotations

from .encoding import Column, Encoded, Encoding
from .loaders import is_loader, prepare_loader
from .prepare import Prepared, prepare
from .sources import read
from .tables import Table
from .tasks import Task

__all__ = [
    "Column",
    "Encoded",
    "Encoding",
    "Prepared",
    "Table",
    "Task",
    "is_loader",
    "prepare",
    "prepare_loader",
    "read",
]
