"""One member of a trained model: a network with its weights, and the encoding of its input rows.

    rows → encoding → x, codes → network → z

The network runs in compiled code (`engines.fused_engine`) if all of its layers have a kernel, otherwise in numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..data import Encoded, Encoding
from ..engines.fused_engine import PredictProgram
from ..engines.fused_program import why_not
from ..nn.layers import Pass
from ..nn.layers.base import Array, forward_through
from ..spec import Spec

SLAB = 4096
"""Rows that go through the network in numpy at a time."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Member:
    """A network, its parameters and buffers by name, its encoding, and its weight in the average."""

    spec: Spec
    tensors: Mapping[str, Array]
    encoding: Encoding
    weight: float = 1.0

    @cached_property
    def program(self) -> PredictProgram | None:
        """The network in compiled code, packed at first use. None if numpy runs it."""
        if why_not(self.spec) is not None or any(value.dtype != np.float32 for value in self.tensors.values()):
            return None
        return PredictProgram(self.spec, self.tensors)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "program"}

    def outputs(self, rows: Encoded) -> Array:
        """Compute raw outputs z (rows, d_out). The outputs of a row do not depend on the other rows."""
        if self.program is None:
            return self.outputs_in_numpy(rows)
        return self.program.outputs(rows.x, rows.codes if self.spec.inputs.categories else None)

    def outputs_in_numpy(self, rows: Encoded) -> Array:
        """Compute the raw outputs with the numpy layers. The results differ only by rounding."""
        x, codes = rows.x, rows.codes
        tensors = {place: self.tensors[stored] for place, stored in self.spec.tensor_names.items()}
        tensors |= {name: self.tensors[name] for name in self.spec.buffers}
        dtype = next(iter(tensors.values())).dtype if tensors else np.dtype(np.float32)
        found: list[Array] = []
        for start in range(0, len(x), SLAB):
            part = slice(start, start + SLAB)
            numbers = x[part].astype(dtype, copy=False)
            inputs: Any = numbers if codes is None else (numbers, codes[part])
            run = Pass(categories=self.spec.inputs.categories)
            found.append(forward_through(self.spec.layers, inputs, tensors, run)[0])
        return np.concatenate(found) if found else np.zeros((0, self.spec.d_out), dtype)
