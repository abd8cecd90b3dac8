"""A trained model: its members, the average of their outputs, and its predictions. PyTorch is not needed.

    rows → encoding of each member → x, codes → members → z₁ … z_M → weighted, calibrated average → z
         → link → labels, probabilities or numbers in the target's own units

A member runs in compiled code (`engines.fused_engine`) if all of its layers have a kernel, otherwise in numpy.

`model_file` describes the file of a model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..core import tensor_file
from ..data import Encoded, Encoding
from ..data.encoding import Note
from ..engines import State
from ..engines.fused_engine import PredictProgram
from ..engines.fused_program import why_not
from ..errors import DataError, FileError, OptionError, RunError, needed_by
from ..nn import losses
from ..nn.calibration import Calibration, combined
from ..nn.layers import Pass
from ..nn.layers.base import Array, forward_through
from ..runs import no_model
from ..spec import Spec
from . import metrics, model_file

if TYPE_CHECKING:
    from ..export.torch_module import TrainedNetwork


MAX_ROWS_PER_PASS = 4096
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
        for start in range(0, len(x), MAX_ROWS_PER_PASS):
            part = slice(start, start + MAX_ROWS_PER_PASS)
            numbers = x[part].astype(dtype, copy=False)
            inputs: Any = numbers if codes is None else (numbers, codes[part])
            run = Pass(categories=self.spec.inputs.categories)
            found.append(forward_through(self.spec.layers, inputs, tensors, run)[0])
        return np.concatenate(found) if found else np.zeros((0, self.spec.d_out), dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedModel:
    """A trained model, as in `run.model` after `ml.fit`, or from `ml.load`. It predicts without PyTorch.

    Members predict the same target from the same columns, with the same loss. Each may have its own network and its own
    encoding. Members with equal encodings share one: rows are encoded once for all of them, and a file stores it once.
    """

    members: tuple[Member, ...]
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        assert self.members, "a model has at least one member"
        distinct: list[Encoding] = []
        shared: list[Member] = []
        for i, one in enumerate(self.members):
            known = next((own for own in distinct if own is one.encoding or own == one.encoding), None)
            if known is None:
                wrong = _difference(self.encoding, one.encoding)
                if wrong is not None:
                    raise OptionError(f"all members must have the same {wrong}, but that of member {i + 1} differs")
                distinct.append(one.encoding)
            shared.append(one if known is None or known is one.encoding else replace(one, encoding=known))
        object.__setattr__(self, "members", tuple(shared))

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
        """Return the model of a training state: members with one network and one encoding."""
        values = state.averages if averaged and state.averages else state.parameters
        tensors = model_file.split({**values, **state.buffers}, members)
        made = tuple(Member(spec=spec, tensors=own, encoding=encoding) for own in tensors)
        return TrainedModel(members=made, calibration=calibration)

    @property
    def spec(self) -> Spec:
        """The network of the first member."""
        return self.members[0].spec

    @property
    def encoding(self) -> Encoding:
        """The encoding of the first member. Its task, loss and column names are those of all members."""
        return self.members[0].encoding

    @property
    def encodings(self) -> list[Encoding]:
        """The different encodings of the members, that of the first member first."""
        return list({id(one.encoding): one.encoding for one in self.members}.values())

    @property
    def tensors(self) -> dict[str, Array]:
        """Parameters and buffers by name; an ensemble's under `memberN/`."""
        return model_file.joined([one.tensors for one in self.members])

    @property
    def weights(self) -> tuple[float, ...] | None:
        """Weights of the members in the average. None if they are equal."""
        found = tuple(one.weight for one in self.members)
        return None if len(set(found)) == 1 else found

    @property
    def networks(self) -> str:
        """The networks of all members, such as "2 × 4-8-3"."""
        return self._of_all(str)

    def check_alike(self, purpose: str, *, networks: bool = True, encodings: bool = True) -> None:
        """Raise an error if members have different networks or encodings, as asked for."""
        for i, one in enumerate(self.members):
            other_encoding = encodings and one.encoding is not self.encoding
            for what, differs in (("network", networks and one.spec != self.spec), ("encoding", other_encoding)):
                if differs:
                    raise OptionError(
                        f"{purpose} needs members with the same {what}, but that of member {i + 1} differs from that "
                        "of member 1: pass a model of one member"
                    )

    def with_encodings(self, change: Callable[[Encoding], Encoding]) -> TrainedModel:
        """Return the same networks, with `change(encoding)` in place of each encoding."""
        changed = self._by_encoding(change)
        return replace(
            self, members=tuple(replace(one, encoding=new) for one, new in zip(self.members, changed, strict=True))
        )

    def __repr__(self) -> str:
        said = self.encoding.task.describe().removeprefix("task: ")
        return (
            f"TrainedModel({self.networks}, {self._of_all(lambda spec: f'{spec.n_parameters:,}')} parameters: {said})"
        )

    def _of_all(self, describe: Callable[[Spec], str]) -> str:
        """Describe the network of each member. Equal networks in a row are described once."""
        parts: list[str] = []
        for spec, group in groupby(self.members, lambda one: one.spec):
            n = len(list(group))
            parts.append(f"{n} × {describe(spec)}" if n > 1 else describe(spec))
        return " + ".join(parts)

    def _by_encoding(self, function: Callable[[Encoding], Any]) -> tuple[Any, ...]:
        """Return the function's value for each member's encoding. It is called once for a shared encoding."""
        values = {id(one.encoding): one.encoding for one in self.members}
        found = {key: function(encoding) for key, encoding in values.items()}
        return tuple(found[id(one.encoding)] for one in self.members)

    def encode(self, source: Any, *, targets: bool = False, dtype: Any = np.float32) -> tuple[Encoded, ...]:
        """Encode rows for each member. Members that share an encoding share the result."""
        return self._by_encoding(lambda encoding: encoding.encode(source, targets=targets, dtype=dtype))

    def read(self, source: Any, *, targets: bool = False, dtype: Any = np.float32) -> tuple[Encoded, ...]:
        """Encode rows for each member. Each kind of difference from the training data gives a warning."""
        found = self.encode(source, targets=targets, dtype=dtype)
        replace(found[0], notes=notes_of(found)).warn()
        return found

    def outputs(self, source: Any) -> Array:
        """Raw outputs z (rows, d_out)."""
        return self.forward(self.read(source))

    def forward(self, rows: Encoded | Sequence[Encoded]) -> Array:
        """Compute raw outputs z (rows, d_out) of encoded rows. The outputs of a row do not depend on other rows.

        `rows` is the result of `encode`, or rows of the encoding that all members share.
        """
        parts = self._for_each(rows)
        found = self._together([one.outputs(part) for one, part in zip(self.members, parts, strict=True)])
        if not np.isfinite(found).all():
            row = parts[0].rows[np.flatnonzero(~np.isfinite(found).all(1))[0]]
            raise DataError(
                f"row {row + 1:,}: the network's outputs are not finite: values are too far from the training rows, "
                "or the model is damaged"
            )
        return found

    def forward_in_numpy(self, rows: Encoded | Sequence[Encoded]) -> Array:
        """Compute the raw outputs with the numpy layers. The results differ only by rounding."""
        parts = self._for_each(rows)
        return self._together([one.outputs_in_numpy(part) for one, part in zip(self.members, parts, strict=True)])

    def _for_each(self, rows: Encoded | Sequence[Encoded]) -> Sequence[Encoded]:
        if not isinstance(rows, Encoded):
            return rows
        self.check_alike("a prediction of rows with one encoding", networks=False)
        return [rows] * len(self.members)

    def _together(self, z: list[Array]) -> Array:
        if len(z) == 1 and self.calibration is None:
            return z[0]
        return combined(losses.get(self.encoding.loss), z, self.calibration, weights=self.weights)

    def predict(self, source: Any) -> np.ndarray:
        """Labels for classification, numbers in the target's own units for regression."""
        return self.encoding.decode(self.forward(self.read(source)))

    def predict_proba(self, source: Any) -> Array:
        """Probabilities by class (rows, classes)."""
        return self.encoding.probabilities(self.forward(self.read(source)))

    def prediction_table(self, rows: Encoded | Sequence[Encoded], *, probabilities: bool = False) -> Any:
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
        return self.measured(self.read(source, targets=True))

    def measured(self, rows: Encoded | Sequence[Encoded]) -> dict[str, float]:
        """Every metric of the task, on encoded rows with their targets."""
        parts, task = self._for_each(rows), self.encoding.task
        z = self.forward(parts).astype(np.float64)
        return metrics.measure(task, cast(Any, parts[0].y), z, loss=self.encoding.loss, names=metrics.names_for(task))

    def save(self, path: str | Path) -> str:
        """Writes the model file and gives its SHA-256."""
        return tensor_file.save(Path(path), *model_file.to_parts(self))

    def to_onnx(self, path: str | Path) -> None:
        """Write an ONNX model with the encoding, all members and the calibration: docs/explanation/export.md.

        Its inputs are the columns of the table. Its outputs are those of `predict`.
        """
        from ..export.onnx.model import to_onnx

        to_onnx(self, path)

    def to_torch(self, *, member: int | None = None, preprocessing: bool = False) -> TrainedNetwork:
        """Return the trained network as a torch module: the calibrated average of all members, or one member.

        Parameters and result are those of `ml.to_torch`.
        """
        with needed_by("to_torch"):
            from ..export.torch_module import TrainedNetwork
        return TrainedNetwork(self, member=member, preprocessing=preprocessing)

    def to_bytes(self) -> bytes:
        """What `save` writes."""
        return tensor_file.encode(*model_file.to_parts(self))

    @staticmethod
    def load(path: str | Path, *, root: Path | None = None) -> TrainedModel:
        """Read a model file and check its content.

        `root` is the folder of a run. No symbolic link below it is followed.
        """
        return _of_parts(*tensor_file.load(Path(path), root=root), str(path))

    @staticmethod
    def from_bytes(data: bytes) -> TrainedModel:
        """The model that `to_bytes` gave."""
        return _of_parts(*tensor_file.decode(data), "the model")


def _of_parts(tensors: Mapping[str, Array], meta: Mapping[str, Any], path: str) -> TrainedModel:
    members, calibration = model_file.from_parts(tensors, meta, path)
    try:
        return TrainedModel(members=tuple(Member(**one) for one in members), calibration=calibration)
    except OptionError as error:
        raise FileError(f"{path}: {error}") from None


def notes_of(rows: Sequence[Encoded]) -> tuple[Note, ...]:
    """Return every note of rows that `TrainedModel.encode` made, each once."""
    return tuple(dict.fromkeys(note for part in rows for note in part.notes))


def _difference(first: Encoding, other: Encoding) -> str | None:
    """Return in what two encodings of one model differ although members must agree in it. None if they agree."""
    for what, mine, theirs in (
        ("task", first.task, other.task),
        ("loss", first.loss, other.loss),
        ("columns", [c.name for c in first.columns], [c.name for c in other.columns]),
        ("kind of input", (first.positional, first.image), (other.positional, other.image)),
    ):
        if mine != theirs:
            return what
    return None


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
