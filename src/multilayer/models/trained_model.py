"""A trained model: how a table becomes numbers, the network, and what its outputs mean. Predicts without PyTorch.

    rows → encoding → x, codes → network → z → link → labels, probabilities or numbers in the target's own units

Saved as one file (`files`): the description as canonical JSON, everything else as tensors. Equal models are equal
bytes, and loading one never runs code.

The network runs in compiled code (`engine.fused_predict`) where that has it, and otherwise in numpy.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..core import tensor_file
from ..data import Encoded, Encoding
from ..engines import State
from ..engines.ensemble import member_name
from ..engines.fused_predict import PredictProgram
from ..engines.fused_program import why_not
from ..errors import DataError, FileError, RunError
from ..nn import losses
from ..nn.calibration import Calibration, combined
from ..nn.layers import Pass
from ..nn.layers.base import Array, forward_through
from ..runs import no_model
from ..spec import Spec
from . import metrics

if TYPE_CHECKING:
    from ..export.torch_module import TrainedNetwork

SLAB = 4096
"""Rows that go through the network at a time."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedModel:
    """What `ml.fit` gives as `run.model` and `ml.load` reads."""

    spec: Spec
    encoding: Encoding
    tensors: Mapping[str, Array]
    """Parameters and buffers by name; an ensemble's under `memberN/`."""
    members: int = 1
    calibration: Calibration | None = None

    @staticmethod
    def of(
        spec: Spec,
        encoding: Encoding,
        state: State,
        *,
        averaged: bool,
        members: int = 1,
        calibration: Calibration | None = None,
    ) -> TrainedModel:
        values = state.averages if averaged and state.averages else state.parameters
        tensors = {**values, **state.buffers}
        return TrainedModel(spec=spec, encoding=encoding, tensors=tensors, members=members, calibration=calibration)

    def __repr__(self) -> str:
        said = self.encoding.task.said().removeprefix("task: ")
        times = f"{self.members} × " if self.members > 1 else ""
        return f"TrainedModel({times}{self.spec}, {times}{self.spec.n_parameters:,} parameters: {said})"

    def outputs(self, source: Any) -> Array:
        """Raw outputs z (rows, d_out)."""
        return self.forward(self._read(source))

    def _read(self, source: Any, *, targets: bool = False) -> Encoded:
        """Encode rows. Each kind of difference from the training data gives a warning."""
        found = self.encoding.encode(source, targets=targets)
        found.warn()
        return found

    @cached_property
    def programs(self) -> tuple[PredictProgram, ...]:
        """Each member in compiled code, packed when first asked for; none where numpy runs the network."""
        if why_not(self.spec) is not None or any(value.dtype != np.float32 for value in self.tensors.values()):
            return ()
        return tuple(PredictProgram(self.spec, self.member(i)) for i in range(self.members))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "programs"}

    def forward(self, rows: Encoded) -> Array:
        """Raw outputs z (rows, d_out) of rows that are numbers already; a row's do not depend on those beside it."""
        codes = rows.codes if self.spec.inputs.categories else None
        z = [program.outputs(rows.x, codes) for program in self.programs]
        found = self._together(z) if z else self.forward_in_numpy(rows)
        if not np.isfinite(found).all():
            row = rows.rows[np.flatnonzero(~np.isfinite(found).all(1))[0]]
            raise DataError(
                f"row {row + 1:,}: the network's outputs are not finite: values are too far from the training rows, "
                "or the model is damaged"
            )
        return found

    def forward_in_numpy(self, rows: Encoded) -> Array:
        """The same from the layers' own descriptions, to rounding."""
        return self._together([self._in_numpy(i, rows) for i in range(self.members)])

    def _together(self, z: list[Array]) -> Array:
        if self.members == 1 and self.calibration is None:
            return z[0]
        return combined(losses.get(self.encoding.loss), z, self.calibration)

    def member(self, i: int) -> dict[str, Array]:
        """The parameters and buffers of one member, by name."""
        if self.members == 1:
            return dict(self.tensors)
        prefix = f"{member_name(i)}/"
        return {n.removeprefix(prefix): value for n, value in self.tensors.items() if n.startswith(prefix)}

    def _in_numpy(self, i: int, rows: Encoded) -> Array:
        x, codes = rows.x, rows.codes
        own = self.member(i)
        tensors = {place: own[stored] for place, stored in self.spec.tensor_names.items()}
        tensors |= {name: own[name] for name in self.spec.buffers}
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
        return tensor_file.save(Path(path), *self._parts())

    def to_onnx(self, path: str | Path) -> None:
        """Write an ONNX model with the encoding, all members and the calibration: docs/export.md.

        Its inputs are the columns of the table. Its outputs are those of `predict`.
        """
        from ..export.onnx.model import to_onnx

        to_onnx(self, path)

    def to_torch(self, *, member: int | None = None, preprocessing: bool = False) -> TrainedNetwork:
        """Return the trained network as a torch module: the calibrated average of all members, or one member.

        Parameters and result are those of `ml.to_torch`.
        """
        from ..export.torch_module import TrainedNetwork

        return TrainedNetwork(self, member=member, preprocessing=preprocessing)

    def to_bytes(self) -> bytes:
        """What `save` writes."""
        return tensor_file.encode(*self._parts())

    def _parts(self) -> tuple[dict[str, Array], dict[str, Any]]:
        described, arrays = self.encoding.to_parts()
        meta = {"spec": self.spec.to_dict(), "encoding": described, "loss": self.encoding.loss}
        _check_weights(self.tensors, self.tensors, "the model")
        tensors = {f"network/{name}": value for name, value in self.tensors.items()}
        tensors |= {f"encoding/{name}": value for name, value in arrays.items()}
        if self.calibration is not None:
            meta["calibration"], arrays = self.calibration.to_parts()
            tensors |= {f"calibration/{name}": value for name, value in arrays.items()}
        return tensors, meta

    @staticmethod
    def load(path: str | Path, *, root: Path | None = None) -> TrainedModel:
        """Read a model file and check its content.

        `root` is the folder of a run. No symbolic link below it is followed.
        """
        return TrainedModel._of_parts(*tensor_file.load(Path(path), root=root), str(path))

    @staticmethod
    def from_bytes(data: bytes) -> TrainedModel:
        """The model that `to_bytes` gave."""
        return TrainedModel._of_parts(*tensor_file.decode(data), "the model")

    @staticmethod
    def _of_parts(tensors: Mapping[str, Array], meta: Mapping[str, Any], path: str) -> TrainedModel:
        spec = Spec.from_dict(meta["spec"])
        parts: dict[str, dict[str, Array]] = {"network": {}, "encoding": {}}
        for name, value in tensors.items():
            group, _, rest = name.partition("/")
            parts.setdefault(group, {})[rest] = value
        unexpected = sorted(parts.keys() - {"network", "encoding", *meta})
        if unexpected:
            raise FileError(
                f"{path}: the file has tensors named {unexpected[0]}/…, but its metadata has no {unexpected[0]}"
            )
        network = parts["network"]
        found_members = {name.partition("/")[0] for name in network if "/" in name}
        members = max(len(found_members), 1)
        wanted = spec.parameters | spec.buffers
        if found_members:
            wanted = {f"{member_name(i)}/{name}": p for i in range(members) for name, p in wanted.items()}
        for name, parameter in wanted.items():
            if name not in network or network[name].shape != parameter.shape:
                found = network[name].shape if name in network else "none"
                raise FileError(f"{path}: {name} must have the shape {parameter.shape}, got {found}")
        _check_weights(network, wanted, path)
        try:
            encoding = Encoding.from_parts(meta["encoding"], parts["encoding"])
        except DataError as error:
            raise FileError(f"{path}: {error}") from None
        if encoding.loss != meta["loss"] or encoding.inputs != spec.inputs or encoding.outputs != spec.d_out:
            raise FileError(f"{path}: its network does not belong to its encoding")
        calibration = None
        if "calibration" in meta:
            outputs = spec.d_out, spec.d_out // losses.get(encoding.loss).per_target
            calibration = Calibration.from_parts(meta["calibration"], parts.get("calibration", {}), path, outputs)
        return TrainedModel(spec=spec, encoding=encoding, tensors=network, members=members, calibration=calibration)


def _check_weights(network: Mapping[str, Array], wanted: Mapping[str, Any], path: str) -> None:
    """Raise an error for tensors that do not belong to the network or are not finite."""
    for name, value in network.items():
        if name not in wanted:
            raise FileError(
                f"{path}: unknown tensor {name!r}: none of the {len(wanted)} tensors of the network has that name"
            )
        if str(value.dtype) not in ("float32", "float64"):
            raise FileError(f"{path}: {name} must be float32 or float64, got {value.dtype}")
        bad = np.flatnonzero(~np.isfinite(value))
        if len(bad):
            raise FileError(
                f"{path}: {name} must be finite, got {value.flat[bad[0]]} among {value.size:,} values "
                f"({len(bad):,} are not finite): train again, or use another copy"
            )
        if name.endswith("running_var") and (value < 0).any():
            raise FileError(f"{path}: {name} must not be negative, got {value.min()}")


def load(path: str | Path) -> TrainedModel:
    """Load a trained model from a file or a run folder.

    Parameters
    ----------
    path : str or Path
        A ``.safetensors`` file, or the folder of a run.

    Returns
    -------
    TrainedModel
        The trained model, with its encoding, all members and their calibration.

    Raises
    ------
    FileError
        If the file is damaged or is not a model.
    RunError
        If the run has no model yet.
    StorageError
        If the file cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> import multilayer as ml
    >>> model = ml.fit("4-8-3", "iris", epochs=2, quiet=True).model
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = model.save(f"{folder}/iris.safetensors")
    ...     again = ml.load(f"{folder}/iris.safetensors")
    >>> again
    TrainedModel(4-8-3, 67 parameters: classification of 'species' into 3 classes)
    """
    path = Path(path)
    if not path.is_dir():
        return TrainedModel.load(path)
    model = path / "model.safetensors"
    if not os.path.lexists(model) and (path / "config.json").exists():
        raise RunError(no_model(path))
    return TrainedModel.load(model, root=path)
