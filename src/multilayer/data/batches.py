"""Encoded tables and training batches, as engines read them.

`Data` is a whole table, and `Batch` is a subset of its rows. An augmentation changes a training batch.

    data = from_loader(loader)      a DataLoader of the user: read once as a table, then iterated in each epoch

A loader determines order, shuffling and random changes itself, so some guarantees do not hold. `LoaderBatches.notes`
lists them. The latest batches of a loader are kept, because the training loop repeats some steps to examine them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from ..core.sparse import Sparse
from ..errors import BatchError, OptionError
from ..nn.layers.base import Array

Rows = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Rows as numbers: x (B, F), codes (B, C) or None, y, weight (B,) or None.

    y is (B,) class numbers, (B, C) class probabilities (after mixup), or (B, targets) numbers.
    """

    x: Array
    y: NDArray[Any]
    codes: NDArray[np.int64] | None = None
    weight: Array | None = None


class Augment(Protocol):
    """Change a training batch. `data` is the whole table, for mixing rows.

    The result must depend on row numbers and epoch only, so that it is the same for all batch sizes and engines.
    """

    def __call__(self, batch: Batch, data: Data, rows: Rows, epoch: int) -> Batch: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Data(Batch):
    """A whole table. Engines get their training batches from `take`, which converts sparse rows to dense ones."""

    x: Array | Sparse  # pyright: ignore[reportIncompatibleVariableOverride]
    augment: Augment | None = None

    def __len__(self) -> int:
        return len(self.x)

    @property
    def made(self) -> bool:
        """Whether training rows have to be computed, by an augmentation or from a sparse matrix."""
        return self.augment is not None or isinstance(self.x, Sparse)

    @property
    def notes(self) -> tuple[str, ...]:
        """Messages for the user about guarantees that do not hold. A plain function as augmentation has no messages."""
        return getattr(self.augment, "notes", ())

    def take(self, rows: Rows, *, epoch: int | None = None) -> Batch:
        """Return the given rows. If an epoch is given, they are augmented for training."""
        rows = row_numbers(rows)
        require_within(rows, len(self))
        batch = Batch(
            x=self.x[rows],
            y=self.y[rows],
            codes=None if self.codes is None else self.codes[rows],
            weight=None if self.weight is None else self.weight[rows],
        )
        if self.augment is None or epoch is None or not len(rows):
            return batch
        return self.augment(batch, self, rows, epoch)


def row_numbers(rows: NDArray[Any]) -> Rows:
    """Return a copy of row numbers. Raise an error for fractions and masks, which would select other rows."""
    given = np.asarray(rows)
    if given.size and given.dtype.kind not in "iu":
        raise OptionError(f"rows must be whole numbers, got {given.dtype}: convert a mask with np.flatnonzero(mask)")
    return np.array(given, dtype=np.int64, order="C")


def require_within(rows: Rows, n: int) -> None:
    """Raise an error for rows outside a table of n rows. numpy would accept negative rows and count from the end."""
    for row in rows[(rows < 0) | (rows >= n)][:1].tolist():
        raise IndexError(f"row {row} is not in a table of {n}")


# A DataLoader of the user


Encode = Callable[[Batch], Batch]

KEPT = 64
"""Number of latest batches that are kept. It exceeds the number of steps that the training loop may repeat."""


class _Given(NamedTuple):
    epoch: int
    rows: Rows
    batch: Batch


class LoaderBatches:
    """An `Augment` that returns the loader's next batch instead of the requested rows.

    Each epoch starts a new iteration over the loader. If the loader ends before the epoch, it starts again. `encode`
    converts a batch of the loader to the numbers of the network. `size` is the batch size of the loader. It is needed
    for a run that is resumed at the last batch of an epoch, which may be smaller.
    """

    notes = (
        "batches come from your own loader: the loader determines their order, a resumed run or a rollback continues "
        "with other batches, rows are numbered in the order of the epoch, and dropout depends on these numbers",
    )

    def __init__(self, loader: Iterable[Any], encode: Encode = lambda batch: batch, *, size: int | None = None) -> None:
        self.loader, self.encode, self.size = loader, encode, size
        self._epoch: int | None = None
        self._batches: Iterator[Any] = iter(())
        self._given: deque[_Given] = deque(maxlen=KEPT)

    def __call__(self, batch: Batch, data: Data, rows: Rows, epoch: int) -> Batch:
        if self._epoch is not None and epoch < self._epoch:
            self._given.clear()  # after a rollback, the batches after its checkpoint need not be repeated
        again = self._again(rows, epoch)
        if again is not None:
            return again
        first = epoch != self._epoch
        found = self._next(epoch)
        expected = len(rows) if self.size is None else self.size
        if first and len(found.x) != expected:
            got = f"the loader gave a batch of {len(found.x)} rows, expected {expected}"
            raise BatchError(f"{got}: train with the batch size of the loader")
        # After a rollback, the smaller last batch of the loader comes too early. It is skipped.
        for _ in range(2):
            if len(found.x) < len(rows):
                found = self._next(epoch)
        if len(found.x) < len(rows):
            raise BatchError(f"the loader gave no more batches of {len(rows)} rows: its batch size must not change")
        found = _part(found, np.arange(len(rows))) if len(found.x) > len(rows) else found
        self._given.append(_Given(epoch, rows, found))
        return found

    def _again(self, rows: Rows, epoch: int) -> Batch | None:
        """Return the earlier batch for these rows, or its part for a single row."""
        for given in reversed(self._given):
            if given.epoch == epoch and given.rows[0] == rows[0] and np.array_equal(given.rows, rows):
                return given.batch
            if given.epoch == epoch and len(rows) == 1 and rows[0] in given.rows:
                return _part(given.batch, np.flatnonzero(given.rows == rows[0]))
        return None

    def _next(self, epoch: int) -> Batch:
        if epoch != self._epoch:
            self._begin(epoch)
        item = next(self._batches, None)
        if item is None:
            self._begin(epoch)
            item = next(self._batches)
        return self.encode(as_batch(item))

    def _begin(self, epoch: int) -> None:
        self._epoch = epoch
        set_epoch = getattr(getattr(self.loader, "sampler", None), "set_epoch", None)
        if set_epoch is not None:
            set_epoch(epoch)
        self._batches = iter(self.loader)


def from_loader(loader: Iterable[Any], encode: Encode = lambda batch: batch) -> Data:
    """Return the rows of one iteration over the loader as a table. Its training batches come from the loader."""
    return concatenate_batches([encode(batch) for batch in read_batches(loader)], LoaderBatches(loader, encode))


def read_batches(loader: Iterable[Any]) -> list[Batch]:
    """Return all batches of a loader."""
    read = [as_batch(item) for item in loader]
    if not read:
        raise OptionError("a loader must give at least one batch, got none")
    shapes = {batch.x.shape[1] for batch in read}
    if len(shapes) > 1:
        got = " and ".join(map(str, sorted(shapes)))
        raise OptionError(f"all rows of a loader must have the same number of values, got {got}")
    return read


def concatenate_batches(batches: list[Batch], augment: LoaderBatches | None = None) -> Data:
    """Join batches to one table."""
    codes = [b.codes for b in batches if b.codes is not None]
    weight = [b.weight for b in batches if b.weight is not None]
    return Data(
        x=np.concatenate([b.x for b in batches]),
        y=np.concatenate([b.y for b in batches]),
        codes=np.concatenate(codes) if codes else None,
        weight=np.concatenate(weight) if weight else None,
        augment=augment,
    )


def as_batch(item: object) -> Batch:
    """Convert an item of a loader, (x, y) or (x, codes, y), to a batch. Images and other arrays become flat rows."""
    parts: list[Any] = list(cast("tuple[Any, ...]", item)) if isinstance(item, tuple | list) else []
    if len(parts) not in (2, 3):
        got = f"{len(parts)} parts" if parts else type(item).__name__
        raise OptionError(f"a loader must give (x, y) or (x, codes, y), got {got}: change its collate_fn")
    x, y = _array(parts[0]), _array(parts[-1])
    if not x.ndim or not y.ndim or len(x) != len(y):
        raise OptionError(f"x and y of a batch must have the same number of rows, got shapes {x.shape} and {y.shape}")
    return Batch(
        x=x.reshape(len(x), -1),
        y=y[:, None] if y.ndim == 1 and y.dtype.kind == "f" else y,
        codes=_array(parts[1]).astype(np.int64) if len(parts) == 3 else None,
    )


def _array(values: Any) -> NDArray[Any]:
    """Convert an array or a tensor to numpy. The channels of torch's images are moved last."""
    tensor = hasattr(values, "detach")
    array = np.asarray(values.detach().cpu() if tensor else values)
    if array.dtype.kind not in "iufb":
        raise OptionError(f"a loader must give numbers, got {array.dtype}: convert them in its collate_fn")
    return np.moveaxis(array, 1, -1) if tensor and array.ndim == 4 and array.shape[1] in (1, 3, 4) else array


def _part(batch: Batch, places: NDArray[np.int64]) -> Batch:
    return Batch(
        x=batch.x[places],
        y=batch.y[places],
        codes=None if batch.codes is None else batch.codes[places],
        weight=None if batch.weight is None else batch.weight[places],
    )


def is_loader(source: Any) -> bool:
    """Return whether an object is a torch DataLoader, or has the same attributes."""
    return all(hasattr(source, name) for name in ("__iter__", "batch_size", "dataset"))
