"""Read a DataLoader of the user once, for task, classes and shapes. The loader then provides the training batches.

The inputs of the network are the values of the loader: they are not scaled, so the loader must scale them. Targets are
encoded as those of a table, so metrics and predictions are in the units of the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.formatting import count, short
from ..core.sparse import joined
from ..errors import DataError, OptionError, option
from . import targets
from .batches import Batch, LoaderBatches, concatenate_batches, is_loader, read_batches
from .encoding import Column, Encoding
from .options import DataConfig, DataKeywords, DataOptions
from .readers import target_columns
from .table import Table
from .training_data import TrainingData

NAME = "the loader"
LARGE = 100.0
"""Larger inputs are probably not scaled."""


def read_loader(loader: Any, options: DataOptions, config: DataConfig) -> TrainingData:
    """Read a DataLoader once, as training data.

    Parameters
    ----------
    loader : torch.utils.data.DataLoader
        Must give batches (x, y) of the same size; only the last may be smaller.
    options : DataOptions
        `validation_data` is a second loader, or data with a target such as (X, y). Options for tables, such as
        `target`, are not allowed.
    config : DataConfig
        `validation` is "auto", None, or a file of validation rows.

    Returns
    -------
    TrainingData
        Its training batches come from the loader.

    Raises
    ------
    OptionError
        If an option is for tables only, or an item of the loader is not (x, y).
    DataError
        If batch sizes differ, or an input is not finite.
    """
    _check_options(options)
    validation, dtype = options.validation(config), config.encoded_dtype
    if isinstance(validation, int | float):
        raise OptionError(
            f"with a loader, validation must be a second loader, (X, y) or None, got {validation!r}: split the dataset"
        )
    batches = read_batches(loader)
    batch = _batch_size(batches)
    x, columns = _columns(batches)
    table = Table(name=NAME, columns=columns, matrix=x, matrix_names=tuple(f"x{i}" for i in range(x.shape[1])))
    found = targets.infer(table, tuple(columns), config.task)
    if config.task == "auto" and config.given_loss is not None:
        targets.check_loss(table, found, config.given_loss)
    loss = config.given_loss or found.usual_loss(options.outputs)
    every = np.arange(len(table), dtype=np.int64)
    found, notes = targets.standardise(found, table, every, loss)
    encoding = _encoding(x.shape[1], found, loss)

    def encode(given: Batch) -> Batch:
        made = Table(name=NAME, columns=target_columns(given.y, n=len(given.x), name=NAME))
        return replace(given, x=given.x.astype(dtype, copy=False), y=targets.encode(found, made, loss, dtype))

    data = concatenate_batches([encode(given) for given in batches], LoaderBatches(loader, encode, size=batch))
    notes = [
        f"{count(len(x), 'row')} of {x.shape[1]:,} numbers in batches of {batch} from the loader",
        *notes,
    ]
    if config.task == "auto":
        notes.append(f"{found.describe()} (inferred; {option('task')} overrides)")
    largest = float(np.abs(data.x[:]).max())
    if largest > LARGE:
        notes.append(f"numbers up to {largest:,.0f} are not scaled: scale them in the dataset for better results")
    held_out = np.zeros(0, dtype=np.int64)
    if validation == "auto":
        notes.append(f"no rows held out: set {option('validation')} to a second loader or (X, y)")
    elif validation is not None:
        own = _held_out(validation, encoding, encode, dtype)
        held_out = np.arange(len(x), len(x) + len(own.x), dtype=np.int64)
        data = replace(data, x=joined(data.x, own.x), y=np.concatenate([data.y, own.y]))
        notes.append(f"{count(len(held_out), 'row')} for validation")
    origin = np.arange(len(data), dtype=np.int64)
    return TrainingData(
        data=data,
        train=every,
        validation=held_out,
        encoding=encoding,
        notes=tuple(notes),
        origin=origin,
        loader_batch=batch,
    )


def _check_options(options: DataOptions) -> None:
    """Raise an error for options that apply to tables only."""
    for name in DataKeywords.__annotations__:
        value = getattr(options, name)
        if value is not None and value is not False and not (isinstance(value, list) and not value):
            raise OptionError(f"{name} is for tables, got {name}={short(value)}: remove it, or pass a table")


def _batch_size(batches: Sequence[Batch]) -> int:
    size = len(batches[0].x)
    for place, batch in enumerate(batches, 1):
        if batch.codes is not None:
            raise DataError("a loader must give (x, y): for categories pass its dataset, or a table with their columns")
        rows = len(batch.x)
        if rows > size or (rows < size and place < len(batches)):
            got = f"got {rows} rows in batch {place} of {len(batches)} after {size}"
            raise DataError(f"batches of a loader must have the same size, only the last may be smaller, {got}")
    return size


def _columns(batches: Sequence[Batch]) -> tuple[Any, dict[str, Any]]:
    x = np.concatenate([batch.x for batch in batches])
    bad = ~np.isfinite(x)
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        got = f"{x[row, column]:g}"
        raise DataError(f"{NAME}: row {row + 1:,}, column {column}: must be finite, got {got}: fill it in the dataset")
    y = np.concatenate([batch.y for batch in batches])
    return x, target_columns(y, n=len(x), name=NAME)


def _encoding(width: int, task: targets.Task, loss: str) -> Encoding:
    """Return an encoding without scaling, with columns by position."""
    return Encoding(
        columns=tuple(Column(name=f"x{i}", family="number", kind="numeric", parts=(0,)) for i in range(width)),
        task=task,
        loss=loss,
        scaling="none",
        center=np.zeros(width),
        scale=np.ones(width),
        fill=np.zeros(width),
        positional=True,
    )


def _held_out(source: Any, encoding: Encoding, encode: Any, dtype: Any) -> Any:
    """Return x and y of the validation rows."""
    if not is_loader(source):
        return encoding.encode(source, targets=True, dtype=dtype)
    read = concatenate_batches([encode(batch) for batch in read_batches(source)])
    if read.x.shape[1] != len(encoding.columns):
        expected = f"{len(encoding.columns)} numbers per row as in training"
        raise DataError(f"the validation loader must give {expected}, got {read.x.shape[1]}")
    return read
