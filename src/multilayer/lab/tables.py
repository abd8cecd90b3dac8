"""Tables as tasks for experiments: a bundled table, or a file of the user.

    task = classification("digits")
    training, test = divided(task, rows=300, seed=0)

Inputs are scaled to mean 0 and standard deviation 1 over all rows. A categorical column becomes one input per category.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..data import DataConfig, make_training_data, read
from ..errors import DataError
from .training import Task

SMALLEST = 20
"""Smallest number of rows of a table."""


def classification(source: str) -> Task:
    """Return all rows of a table with the loss "cross_entropy". The classes are 0, 1, …

    >>> task = classification("iris")
    >>> task.x.shape, class_count(task)
    ((150, 4), 3)
    """
    task, described = _read(source)
    if task.loss != "cross_entropy":
        raise DataError(f"this experiment needs a target with classes, got {described}")
    return task


def of(source: str) -> Task:
    """Return all rows of a table, with the loss "cross_entropy" for classes and "mse" for one number.

    A target that is a number is scaled to mean 0 and standard deviation 1 over all rows.

    >>> of("diabetes").loss
    'mse'
    """
    return _read(source)[0]


def _read(source: str) -> tuple[Task, str]:
    """Return all rows of a table, and a description of its target."""
    return _read_once(source, _changed(source))


def _changed(source: str) -> int | None:
    """Return when a file or folder was changed, so that it is read again, or None for a bundled table."""
    return Path(source).stat().st_mtime_ns if Path(source).exists() else None


@lru_cache(maxsize=4)
def _read_once(source: str, changed: int | None) -> tuple[Task, str]:
    made = make_training_data(source, config=DataConfig(validation=None))
    kind, described, data = made.encoding.task.kind, made.encoding.task.describe(), made.data
    if kind not in ("binary", "multiclass", "regression"):
        raise DataError(f"this experiment needs one target of classes or numbers, got {described}")
    dense = np.asarray(data.x if isinstance(data.x, np.ndarray) else data.take(np.arange(len(data))).x, np.float64)
    parts = [dense] if data.codes is None else [dense, *map(_one_hot, data.codes.T)]
    y = np.asarray(data.y).ravel()
    if kind == "regression":
        return Task(x=np.hstack(parts), y=(y - y.mean()) / y.std()), described
    return Task(x=np.hstack(parts), y=y.astype(np.int64), loss="cross_entropy"), described


def class_count(task: Task) -> int:
    """Return the number of classes."""
    return int(task.y.max()) + 1


def images(source: str) -> tuple[Task, tuple[int, int]]:
    """Return images with their classes, and their height and width.

    The mean image is subtracted, and one factor scales all pixels to standard deviation 1. Colors are averaged.

    >>> task, size = images("digits")
    >>> task.x.shape, size
    ((1797, 64), (8, 8))
    """
    return _images_once(source, _changed(source))


@lru_cache(maxsize=2)
def _images_once(source: str, changed: int | None) -> tuple[Task, tuple[int, int]]:
    table = read(source)
    if table.image is None or not isinstance(table.matrix, np.ndarray) or len(table.targets) != 1:
        raise DataError(
            "this experiment needs images with classes, such as digits, an IDX file or a folder of images, "
            f"got {table.name}"
        )
    height, width, colors = table.image
    pixels = table.matrix.reshape(len(table), height * width, colors).mean(axis=2)
    x = pixels - pixels.mean(axis=0)
    _, y = np.unique(np.asarray(table.column(table.targets[0])), return_inverse=True)
    return Task(x=x / x.std(), y=y, loss="cross_entropy"), (height, width)


def divided(task: Task, *, rows: int, seed: int, test_rows: int | None = None) -> tuple[Task, Task]:
    """Return `rows` training rows and test rows of a task, both chosen at random.

    The training rows are at most three quarters of the table. The test rows are all others, or `test_rows` of them.
    """
    if len(task) < SMALLEST:
        raise DataError(f"this experiment needs a table of {SMALLEST} or more rows, got {len(task)}")
    rows = min(rows, 3 * len(task) // 4)
    order = np.random.default_rng([seed, rows]).permutation(len(task))
    return task.rows(order[:rows]), task.rows(order[rows:][:test_rows])


def _one_hot(codes: NDArray[np.int64]) -> NDArray[np.float64]:
    return (codes[:, None] == np.unique(codes)).astype(np.float64)
