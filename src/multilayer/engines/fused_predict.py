"""Prediction in compiled code: a network and its tensors packed once, then one row or many, without torch.

Outputs are the bits that a `FusedEngine` with the same parameters gives, one row by itself or among others. Several
threads of Python may call one program at once; the GIL is released. Codes are copied, and the copy is checked: another
thread may write to what was given while the core looks weights up by it. An ensemble is a list of programs.

Left to numpy (`models.member`): networks with a layer that has no kernel, and float64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core import _core, machine, named_options
from ..core.sparse import Sparse, pieces
from ..errors import OptionError, SpecError, unknown_name
from ..nn.layers.base import Array
from ..spec import Spec
from .fused_program import operations_of, why_not
from .fused_table import Codes, are_whole, beside, check_codes, copied


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
        self.threads = machine.threads() if threads is None else named_options.threads(threads)
        parameters, buffers = (
            [np.require(tensors[name], np.float32, ["C", "A"]).reshape(-1) for name in names]
            for names in (spec.parameters, spec.buffers)
        )
        self.core = _core.PredictionCore(operations_of(spec), parameters, buffers, self.threads, kernels or "")

    @property
    def bytes(self) -> int:
        """What the program holds, and what each thread that calls it takes."""
        return self.core.bytes

    def outputs(self, x: Array | Sparse, codes: NDArray[Any] | None = None) -> Array:
        """Raw outputs z (rows, d_out) of numbers x (rows, F) and codes (rows, categories)."""
        if isinstance(x, Sparse):
            parts = pieces(*x.shape)
            return np.concatenate([self.outputs(x[part], None if codes is None else codes[part]) for part in parts])
        own = None if codes is None else self._copied(codes)
        try:
            return self.core.outputs(beside(x, _FLOAT), own)
        except IndexError:
            if codes is not None and own is not None:  # nothing else is looked up
                check_codes(own, codes, self.spec.inputs.categories)
            raise

    def _copied(self, codes: NDArray[Any]) -> Codes:
        """A copy, of whole numbers; the core checks the rest."""
        own, categories = copied(codes), self.spec.inputs.categories
        if not are_whole(codes) and codes.shape[1:] == (len(categories),):
            check_codes(own, codes, categories)
        return own


_FLOAT = np.dtype(np.float32)
