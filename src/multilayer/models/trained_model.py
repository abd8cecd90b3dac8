"""A trained model: its members, the average of their outputs, and its predictions. PyTorch is not needed.

    rows → encoding → x, codes → members → z₁ … z_M → weighted, calibrated average → z
         → link → labels, probabilities or numbers in the target's own units

A member runs in compiled code (`engines.fused_engine`) if all of its layers have a kernel, otherwise in numpy.

A model is saved as one file (`core.tensor_file`): the description as canonical JSON, everything else as tensors. Equal
models have equal bytes. Loading a file never runs code from it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..core import tensor_file
from ..data import Encoded, Encoding
from ..engines import State
from ..engines.ensemble import member_name
from ..engines.fused_engine import PredictProgram
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


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedModel:
    """A trained model, as in `run.model` after `ml.fit`, or from `ml.load`. It predicts without PyTorch.

    All members have the same network architecture and the same encoding. Rows are encoded once, and a file stores both
    once.
    """

    members: tuple[Member, ...]
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        assert self.members, "a model has at least one member"
        assert all(
            one.spec == self.spec and (one.encoding is self.encoding or one.encoding == self.encoding)
            for one in self.members[1:]
        ), "members share their network and their encoding"

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
        made = _members(spec, encoding, {**values, **state.buffers}, members)
        return TrainedModel(members=made, calibration=calibration)

    @property
    def spec(self) -> Spec:
        return self.members[0].spec

    @property
    def encoding(self) -> Encoding:
        return self.members[0].encoding

    @property
    def tensors(self) -> dict[str, Array]:
        """Parameters and buffers by name; an ensemble's under `memberN/`."""
        if len(self.members) == 1:
            return dict(self.members[0].tensors)
        return {f"{member_name(i)}/{name}": v for i, one in enumerate(self.members) for name, v in one.tensors.items()}

    @property
    def weights(self) -> tuple[float, ...] | None:
        """Weights of the members in the average. None if they are equal."""
        found = tuple(one.weight for one in self.members)
        return None if len(set(found)) == 1 else found

    def with_encoding(self, encoding: Encoding) -> TrainedModel:
        """Return the same networks with another encoding."""
        return replace(self, members=tuple(replace(one, encoding=encoding) for one in self.members))

    def __repr__(self) -> str:
        said = self.encoding.task.said().removeprefix("task: ")
        times = f"{len(self.members)} × " if len(self.members) > 1 else ""
        return f"TrainedModel({times}{self.spec}, {times}{self.spec.n_parameters:,} parameters: {said})"

    def outputs(self, source: Any) -> Array:
        """Raw outputs z (rows, d_out)."""
        return self.forward(self._read(source))

    def _read(self, source: Any, *, targets: bool = False) -> Encoded:
        """Encode rows. Each kind of difference from the training data gives a warning."""
        found = self.encoding.encode(source, targets=targets)
        found.warn()
        return found

    def forward(self, rows: Encoded) -> Array:
        """Compute raw outputs z (rows, d_out) of encoded rows. The outputs of a row do not depend on other rows."""
        found = self._together([one.outputs(rows) for one in self.members])
        if not np.isfinite(found).all():
            row = rows.rows[np.flatnonzero(~np.isfinite(found).all(1))[0]]
            raise DataError(
                f"row {row + 1:,}: the network's outputs are not finite: values are too far from the training rows, "
                "or the model is damaged"
            )
        return found

    def forward_in_numpy(self, rows: Encoded) -> Array:
        """Compute the raw outputs with the numpy layers. The results differ only by rounding."""
        return self._together([one.outputs_in_numpy(rows) for one in self.members])

    def _together(self, z: list[Array]) -> Array:
        if len(z) == 1 and self.calibration is None:
            return z[0]
        return combined(losses.get(self.encoding.loss), z, self.calibration, weights=self.weights)

    def predict(self, source: Any) -> np.ndarray:
        """Labels for classification, numbers in the target's own units for regression."""
        return self.encoding.decode(self.forward(self._read(source)))

    def predict_proba(self, source: Any) -> Array:
        """Probabilities by class (rows, classes)."""
        return self.encoding.probabilities(self.forward(self._read(source)))

    def prediction_table(self, rows: Encoded, *, probabilities: bool = False) -> Any:
        """Return an Arrow table with a column per target. With `probabilities`, a column per class is added."""
        import pyarrow as pa

        task, z = self.encoding.task, self.forward(rows)
        values = self.encoding.decode(z)
        flat = values.reshape(len(values), -1)
        each = flat.shape[1] // len(task.names)
        names = list(task.names) if each == 1 else [f"{name} {i + 1}" for name in task.names for i in range(each)]
        columns: dict[str, Any] = {name: flat[:, i].tolist() for i, name in enumerate(names)}
        if probabilities:
            several = task.kind == "multilabel"
            heads = [f"p({n})" for n in task.names] if several else [f"{task.names[0]}={c}" for c in task.classes[0]]
            p = self.encoding.probabilities(z)
            columns |= {head: p[:, i] for i, head in enumerate(heads)}
        return pa.table(columns)

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
        meta: dict[str, Any] = {"spec": self.spec.to_dict(), "encoding": described, "loss": self.encoding.loss}
        if self.weights is not None:
            meta["weights"] = list(self.weights)
        network = self.tensors
        _check_tensors(network, network, "the model")
        tensors = {f"network/{name}": value for name, value in network.items()}
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
        if members > 1:
            wanted = {f"{member_name(i)}/{name}": p for i in range(members) for name, p in wanted.items()}
        for name, parameter in wanted.items():
            if name not in network or network[name].shape != parameter.shape:
                found = network[name].shape if name in network else "none"
                raise FileError(f"{path}: {name} must have the shape {parameter.shape}, got {found}")
        _check_tensors(network, wanted, path)
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
        weights = _weights(meta.get("weights", [1.0] * members), members, path)
        made = _members(spec, encoding, network, members, weights)
        return TrainedModel(members=made, calibration=calibration)


def _members(
    spec: Spec, encoding: Encoding, tensors: Mapping[str, Array], members: int, weights: Sequence[float] | None = None
) -> tuple[Member, ...]:
    """Return the members, from tensors with the names of `TrainedModel.tensors`."""
    prefixes = [f"{member_name(i)}/" for i in range(members)] if members > 1 else [""]
    return tuple(
        Member(
            spec=spec,
            tensors={name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)},
            encoding=encoding,
            weight=weight,
        )
        for start, weight in zip(prefixes, weights or [1.0] * members, strict=True)
    )


def _weights(found: Any, members: int, path: str) -> list[float]:
    """Check the member weights of a file."""
    numbers = isinstance(found, list) and all(type(one) is float and 0 < one < float("inf") for one in found)
    if not numbers or len(found) != members:
        raise FileError(
            f"{path}: the weights of a model must be {members} positive numbers, one for each member, got "
            f"{str(found)[:80]}"
        )
    return found


def _check_tensors(network: Mapping[str, Array], wanted: Mapping[str, Any], path: str) -> None:
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
