"""A trained model: how a table becomes numbers, the network, and what its outputs mean. Predicts without PyTorch.

    rows → encoding → x, codes → network → z → link → labels, probabilities or numbers in the target's own units

Saved as one file (`files`): the description as canonical JSON, everything else as tensors. Equal models are equal
bytes, and loading one never runs code.

The network runs in compiled code (`engine.fused_predict`) where that has it, and otherwise in numpy.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np

from . import files, metrics
from .data import Encoded, Encoding
from .engine import State
from .engine.fused_predict import PredictProgram
from .engine.fused_program import why_not
from .errors import FileError
from .layers import Pass
from .layers.base import Array, forward_through
from .spec import Spec

SLAB = 4096
"""Rows that go through the network at a time."""
TOLD = 5
"""Notes of a kind that its warning tells."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictor:
    """What `ml.fit` gives as `run.model` and `ml.load` reads."""

    spec: Spec
    encoding: Encoding
    tensors: Mapping[str, Array]
    """Parameters and buffers by name."""

    @staticmethod
    def of(spec: Spec, encoding: Encoding, state: State, *, averaged: bool) -> Predictor:
        values = state.averages if averaged and state.averages else state.parameters
        return Predictor(spec=spec, encoding=encoding, tensors={**values, **state.buffers})

    def outputs(self, source: Any) -> Array:
        """Raw outputs z (rows, d_out)."""
        return self.forward(self._read(source))

    def _read(self, source: Any, *, targets: bool = False) -> Encoded:
        """The rows as numbers. How they differ from training is a warning of each kind, at the caller's caller."""
        found = self.encoding.encode(source, targets=targets)
        for kind in dict.fromkeys(note.kind for note in found.notes):
            alike = [note for note in found.notes if note.kind == kind]
            more = f"; and {len(alike) - TOLD:,} more" if len(alike) > TOLD else ""
            warnings.warn("; ".join(alike[:TOLD]) + more, UserWarning, stacklevel=3)
        return found

    @cached_property
    def program(self) -> PredictProgram | None:
        """The network in compiled code, packed when it is first asked for; None where numpy runs it."""
        plain = all(value.dtype == np.float32 for value in self.tensors.values())
        return PredictProgram(self.spec, self.tensors) if plain and why_not(self.spec) is None else None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "program"}

    def forward(self, rows: Encoded) -> Array:
        """Raw outputs z (rows, d_out) of rows that are numbers already."""
        if self.program is None:
            return self.forward_in_numpy(rows)
        return self.program.outputs(rows.x, rows.codes if self.spec.inputs.categories else None)

    def forward_in_numpy(self, rows: Encoded) -> Array:
        """The same from the layers' own descriptions, to rounding."""
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

    def predict(self, source: Any) -> np.ndarray:
        """Labels for classification, numbers in the target's own units for regression."""
        return self.encoding.decode(self.forward(self._read(source)))

    def predict_proba(self, source: Any) -> Array:
        """Probabilities by class (rows, classes)."""
        return self.encoding.probabilities(self.forward(self._read(source)))

    def evaluate(self, source: Any) -> dict[str, float]:
        """Every metric of the task, on rows that have their target."""
        return self.measured(self._read(source, targets=True))

    def measured(self, rows: Encoded) -> dict[str, float]:
        """Every metric of the task, on rows that are numbers already, with their targets."""
        z = self.forward(rows).astype(np.float64)
        task = self.encoding.task
        return metrics.measure(task, cast(Any, rows.y), z, loss=self.encoding.loss, names=metrics.names_for(task))

    def save(self, path: str | Path) -> str:
        """Writes the model file and gives its SHA-256."""
        described, arrays = self.encoding.to_parts()
        meta = {"spec": self.spec.to_dict(), "encoding": described, "loss": self.encoding.loss}
        tensors = {f"network/{name}": value for name, value in self.tensors.items()}
        tensors |= {f"encoding/{name}": value for name, value in arrays.items()}
        return files.save(Path(path), tensors, meta)

    @staticmethod
    def load(path: str | Path) -> Predictor:
        """Reads a model file; what does not belong together is refused."""
        tensors, meta = files.load(Path(path))
        spec = Spec.from_dict(meta["spec"])
        parts: dict[str, dict[str, Array]] = {"network": {}, "encoding": {}}
        for name, value in tensors.items():
            group, _, rest = name.partition("/")
            parts.setdefault(group, {})[rest] = value
        network = parts["network"]
        for name, parameter in (spec.parameters | spec.buffers).items():
            if name not in network or network[name].shape != parameter.shape:
                found = network[name].shape if name in network else "none"
                raise FileError(f"{path}: {name} must have the shape {parameter.shape}, got {found}")
        encoding = Encoding.from_parts(meta["encoding"], parts["encoding"])
        if encoding.loss != meta["loss"] or encoding.inputs != spec.inputs or encoding.outputs != spec.d_out:
            raise FileError(f"{path}: its network does not belong to its encoding")
        return Predictor(spec=spec, encoding=encoding, tensors=network)


def load(path: str | Path) -> Predictor:
    """The model of a file, or of a run's folder."""
    path = Path(path)
    return Predictor.load(path / "model.safetensors" if path.is_dir() else path)
