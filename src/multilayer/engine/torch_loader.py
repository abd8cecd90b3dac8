"""A user's own DataLoader as a table: read once for its numbers, asked again for every training batch.

    data = from_loader(loader)      x, y (and codes) of one pass; training batches come from the loader

The loader keeps its own order, shuffling and random changes, so what depends on them is not promised: see `notes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import BatchError, OptionError
from .protocol import Batch, Data, Rows

Encode = Callable[[Batch], Batch]


class LoaderBatches:
    """An `Augment` that puts the loader's next batch in the place of the rows asked for.

    An epoch begins the loader anew; a loader that ends before the epoch does begins again. `encode` makes numbers
    that the network takes of what the loader gives.
    """

    notes = (
        "batches come from your own loader: their order is its own, a resumed run or a rollback goes on with other "
        "batches, row numbers in messages are not those of your data, and dropout does not follow the rows",
    )

    def __init__(self, loader: Iterable[Any], encode: Encode = lambda batch: batch) -> None:
        self.loader, self.encode = loader, encode
        self._epoch: int | None = None
        self._batches: Iterator[Any] = iter(())

    def __call__(self, batch: Batch, data: Data, rows: Rows, epoch: int) -> Batch:
        if epoch != self._epoch:
            self._begin(epoch)
        item = next(self._batches, None)
        if item is None:
            self._begin(epoch)
            item = next(self._batches)
        found = self.encode(as_batch(item))
        if len(found.x) != len(rows):
            got = f"the loader gave a batch of {len(found.x)} rows where {len(rows)} were due"
            raise BatchError(f"{got}: train with its own batch size")
        return found

    def _begin(self, epoch: int) -> None:
        self._epoch = epoch
        set_epoch = getattr(getattr(self.loader, "sampler", None), "set_epoch", None)
        if set_epoch is not None:
            set_epoch(epoch)
        self._batches = iter(self.loader)


def from_loader(loader: Iterable[Any], encode: Encode = lambda batch: batch) -> Data:
    """A table of one pass over the loader, whose training batches are the loader's own."""
    read = [encode(as_batch(item)) for item in loader]
    if not read:
        raise OptionError("a loader must give at least one batch, got none")
    codes = [b.codes for b in read if b.codes is not None]
    weight = [b.weight for b in read if b.weight is not None]
    return Data(
        x=np.concatenate([b.x for b in read]),
        y=np.concatenate([b.y for b in read]),
        codes=np.concatenate(codes) if codes else None,
        weight=np.concatenate(weight) if weight else None,
        augment=LoaderBatches(loader, encode),
    )


def as_batch(item: object) -> Batch:
    """What a loader gives, (x, y) or (x, codes, y), as a batch; rows of images and the like become flat."""
    parts: list[Any] = list(cast("tuple[Any, ...]", item)) if isinstance(item, tuple | list) else []
    if len(parts) not in (2, 3):
        got = f"{len(parts)} parts" if parts else type(item).__name__
        raise OptionError(f"a loader must give (x, y) or (x, codes, y), got {got}")
    x, y = _array(parts[0]), _array(parts[-1])
    return Batch(
        x=x.reshape(len(x), -1),
        y=y[:, None] if y.ndim == 1 and y.dtype.kind == "f" else y,
        codes=_array(parts[1]).astype(np.int64) if len(parts) == 3 else None,
    )


def _array(values: Any) -> NDArray[Any]:
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
