"""Prediction in compiled code: a network and its tensors packed once, then one row or many, without torch.

Outputs are the bits that a `FusedEngine` with the same parameters gives, one row by itself or among others. Several
threads of Python may call one program at once; the GIL is released. An ensemble is a list of programs.

Left to numpy (`predictor`): networks with a layer that has no kernel, and float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _core, choices, machine
from ..errors import DataError, OptionError, SpecError, unknown_name
from ..layers.base import Array
from ..layers.columns import code_refused
from ..sparse import Sparse, pieces
from ..spec import Spec
from .fused_engine import beside, whole
from .fused_program import operations_of, why_not


class PredictProgram:
    """Raw outputs of a network whose tensors, parameters and buffers by name, are in float32."""

    def __init__(
        self, spec: Spec, tensors: Mapping[str, Array], *, threads: int | None = None, kernels: str | None = None
    ) -> None:
        reason = why_not(spec)
        if reason is not None:
            raise SpecError(f"{reason}: predict with {spec} in numpy or PyTorch")
        if kernels not in (None, *_core.fused_kernels()):
            raise OptionError(unknown_name("kernels", kernels, _core.fused_kernels()))
        self.spec = spec
        self.threads = machine.threads() if threads is None else choices.whole("threads", threads)
        parameters, buffers = (
            [np.require(tensors[name], np.float32, ["C", "A"]).reshape(-1) for name in names]
            for names in (spec.parameters, spec.buffers)
        )
        self.core = _core.Predicting(operations_of(spec), parameters, buffers, self.threads, kernels or "")

    @property
    def bytes(self) -> int:
        """What the program holds, and what each thread that calls it takes."""
        return self.core.bytes

    def outputs(self, x: Array | Sparse, codes: NDArray[Any] | None = None) -> Array:
        """Raw outputs z (rows, d_out) of numbers x (rows, F) and codes (rows, categories)."""
        if isinstance(x, Sparse):
            parts = pieces(*x.shape)
            return np.concatenate([self.outputs(x[part], None if codes is None else codes[part]) for part in parts])
        numbers = beside(x, _FLOAT)
        try:
            return self.core.outputs(numbers, None if codes is None else whole(codes))
        except IndexError:
            assert codes is not None, "nothing else is looked up"
            for row, column in np.argwhere((codes < 0) | (codes > np.array(self.spec.inputs.categories)))[:1].tolist():
                n = self.spec.inputs.categories[column]
                raise DataError(code_refused(column, n, codes[row, column].item(), row)) from None
            raise


_FLOAT = np.dtype(np.float32)
