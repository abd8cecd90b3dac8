"""A table as tensors on one device, and its batches as a model takes them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.sparse import Sparse
from ..data.batches import Batch, Data, Rows
from ..nn.losses import Loss
from ..spec import Spec
from .protocol import check_data

Inputs = tuple[Tensor, ...]


class TensorTable:
    """`take(rows)` gives the model's inputs, the targets and the weights of rows.

    Columns go to the device once; what an augmentation changes, and sparse rows, go batch by batch.
    """

    def __init__(self, spec: Spec, data: Data, loss: Loss, *, dtype: torch.dtype, device: torch.device) -> None:
        self.data, self.loss, self.dtype, self.device = data, loss, dtype, device
        check_data(spec, data, loss)
        self._whole = None if isinstance(data.x, Sparse) else self._tensors(data)

    @property
    def notes(self) -> tuple[str, ...]:
        return getattr(self.data.augment, "notes", ())

    def take(self, rows: Rows, *, epoch: int | None = None) -> tuple[Inputs, Tensor, Tensor | None]:
        if self._whole is None or (self.data.augment is not None and epoch is not None):
            return self._tensors(self.data.take(rows, epoch=epoch))
        index = torch.from_numpy(rows)
        if self.device.type != "cpu":
            index = index.to(self.device)
        inputs, y, weight = self._whole
        taken = tuple(part.index_select(0, index) for part in inputs)
        return taken, y.index_select(0, index), None if weight is None else weight.index_select(0, index)

    def _tensors(self, batch: Batch) -> tuple[Inputs, Tensor, Tensor | None]:
        inputs = [self._tensor(batch.x, self.dtype)]
        if batch.codes is not None:
            inputs.append(self._tensor(batch.codes, torch.int64))
        y = self._tensor(batch.y, torch.int64 if self.loss.classes and batch.y.ndim == 1 else self.dtype)
        return tuple(inputs), y, None if batch.weight is None else self._tensor(batch.weight, self.dtype)

    def _tensor(self, array: NDArray[Any], dtype: torch.dtype) -> Tensor:
        with warnings.catch_warnings():
            # An array that may not be written to (a file mapped into memory) is only read here.
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            return torch.from_numpy(np.ascontiguousarray(array)).to(device=self.device, dtype=dtype)
