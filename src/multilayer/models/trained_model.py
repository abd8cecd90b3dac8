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
    from .importance import Importance


MAX_ROWS_PER_PASS = 4096
"""Number of rows in one numpy computation."""


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
    """A trained model, from `run.model` after `ml.fit`, or from `ml.load`. It predicts without PyTorch.

    The outputs of the members are averaged. All members predict the same target from the same columns with the same
    loss, but each may have its own network and its own encoding of the columns. Equal encodings are shared, so rows are
    encoded only once for them.

    Attributes
    ----------
    members : tuple of Member
        Networks with their parameters, encodings and weights. A single network is a model with one member.
    calibration : Calibration or None
        Temperature of the probabilities, or correction of the intervals.
    spec : Spec
        The network of the first member.
    encoding : Encoding
        The encoding of the first member: columns, task, classes and loss.

    Examples
    --------
    >>> import multilayer as ml
    >>> model = ml.fit("4-8-3", "iris", epochs=20, quiet=True).model
    >>> model.predict([[5.1, 3.5, 1.4, 0.2]])
    array(['setosa'], dtype='<U10')
    >>> model.predict_proba([[5.1, 3.5, 1.4, 0.2]]).shape
    (1, 3)
    >>> sorted(model.evaluate("iris"))
    ['accuracy', 'auc', 'average_precision', 'balanced_accuracy', 'f1', 'log_loss']
    """

    members: tuple[Member, ...]
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        assert self.members, "a model has at least one member"
        distinct: list[Encoding] = []
        shared: list[Member] = []
        for i, one in enumerate(self.members):
            known = next((equal for equal in distinct if equal is one.encoding or equal == one.encoding), None)
            if known is None:
                different = _difference(self.encoding, one.encoding)
                if different is not None:
                    raise OptionError(f"all members must have the same {different}, but that of member {i + 1} differs")
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
        created = tuple(Member(spec=spec, tensors=one, encoding=encoding) for one in tensors)
        return TrainedModel(members=created, calibration=calibration)

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
        """Parameters and buffers by name. Names of several members begin with `memberN/`."""
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
        """Raise an error if members have different networks or different encodings, unless this is allowed."""
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
        task = self.encoding.task.describe().removeprefix("task: ")
        return (
            f"TrainedModel({self.networks}, {self._of_all(lambda spec: f'{spec.n_parameters:,}')} parameters: {task})"
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
        """Return the raw outputs z (rows, d_out), before the link function."""
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
        """Predict the target.

        Parameters
        ----------
        source
            Rows with the columns of the training data: a table (a file, the name of a bundled data set, a DataFrame) or
            an array. Other columns are ignored.

        Returns
        -------
        ndarray
            Labels for classification, numbers in the units of the target for regression. Models with several targets
            or quantiles have a column for each.

        Raises
        ------
        DataError
            If a column is missing, has an unexpected type, or leads to an output that is not finite.
        """
        return self.encoding.decode(self.forward(self.read(source)))

    def predict_proba(self, source: Any) -> Array:
        """Predict the probability of each class.

        Parameters
        ----------
        source
            Rows, as in `predict`.

        Returns
        -------
        ndarray of shape (rows, classes)
            Probabilities, in the order of the classes of the task. For several labels, the probability of each label.

        Raises
        ------
        DataError
            If the model predicts numbers, or the rows are invalid as in `predict`.
        """
        return self.encoding.probabilities(self.forward(self.read(source)))

    def prediction_table(self, rows: Encoded | Sequence[Encoded], *, probabilities: bool = False) -> Any:
        """Return the predictions for encoded rows as an Arrow table with a column per target.

        With `probabilities`, a column per class is added.
        """
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
        """Compute all metrics of the task.

        Parameters
        ----------
        source
            Rows with the target column, or a pair ``(X, y)``.

        Returns
        -------
        dict of str to float
            Metrics by name. A metric is NaN if it is not defined for the rows, such as ``auc`` for a single class.
        """
        return self.measured(self.read(source, targets=True))

    def measured(self, rows: Encoded | Sequence[Encoded]) -> dict[str, float]:
        """Compute all metrics of the task on encoded rows with their targets."""
        parts, task = self._for_each(rows), self.encoding.task
        z = self.forward(parts).astype(np.float64)
        return metrics.measure(task, cast(Any, parts[0].y), z, loss=self.encoding.loss, names=metrics.names_for(task))

    def importance(self, source: Any, *, metric: str | None = None, rounds: int = 5) -> Importance:
        """Compute the permutation importance of each column on rows with a target.

        Parameters
        ----------
        source
            Rows that the model did not train on: a table with the target column, or ``(X, y)``.
        metric : str, optional
            By default, accuracy for classes and R² for numbers.
        rounds : int
            Number of times that each column is shuffled.

        Returns
        -------
        Importance

        Raises
        ------
        OptionError, DataError
            If the metric does not fit the task, or the rows do not fit the model.

        Examples
        --------
        >>> import multilayer as ml
        >>> found = ml.fit("4-16-3", "iris", epochs=20, quiet=True).model.importance("iris")
        >>> next(iter(found.means))
        'petal width (cm)'
        """
        from .evaluation_rows import given_rows
        from .importance import importance

        return importance(given_rows(self, source), metric, rounds=rounds)

    def save(self, path: str | Path) -> str:
        """Save the model to a ``.safetensors`` file. Equal models have equal files.

        Parameters
        ----------
        path : str or Path
            File to write. An existing file is replaced.

        Returns
        -------
        str
            SHA-256 of the file.
        """
        return tensor_file.save(Path(path), *model_file.to_parts(self))

    def to_onnx(self, path: str | Path) -> None:
        """Export the model to an ONNX file with the encoding, all members and the calibration.

        Its inputs are the columns of the table. Its outputs are those of `predict` and `predict_proba`.
        docs/explanation/export.md describes the file. An existing file at `path` is replaced.
        """
        from ..export.onnx.model import to_onnx

        to_onnx(self, path)

    def to_torch(self, *, member: int | None = None, preprocessing: bool = False) -> TrainedNetwork:
        """Return the trained network as a torch module: the calibrated average of all members, or one member.

        `ml.to_torch` describes the parameters and the result.
        """
        with needed_by("to_torch"):
            from ..export.torch_module import TrainedNetwork
        return TrainedNetwork(self, member=member, preprocessing=preprocessing)

    def to_bytes(self) -> bytes:
        """Return the content of the file that `save` writes."""
        return tensor_file.encode(*model_file.to_parts(self))

    @staticmethod
    def load(path: str | Path, *, root: Path | None = None) -> TrainedModel:
        """Read a model file and check its content.

        `root` is the folder of a run. No symbolic link below it is followed.
        """
        return _of_parts(*tensor_file.load(Path(path), root=root), str(path))

    @staticmethod
    def from_bytes(data: bytes) -> TrainedModel:
        """Return the model for the result of `to_bytes`."""
        return _of_parts(*tensor_file.decode(data), "the model")


def _of_parts(tensors: Mapping[str, Array], meta: Mapping[str, Any], path: str) -> TrainedModel:
    members, calibration = model_file.from_parts(tensors, meta, path)
    try:
        return TrainedModel(members=tuple(Member(**one) for one in members), calibration=calibration)
    except OptionError as error:
        raise FileError(f"{path}: {error}") from None


def notes_of(rows: Sequence[Encoded]) -> tuple[Note, ...]:
    """Return the notes about rows that `TrainedModel.encode` encoded, without duplicates."""
    return tuple(dict.fromkeys(note for part in rows for note in part.notes))


def _difference(first: Encoding, other: Encoding) -> str | None:
    """Return the first property that two encodings of one model must share but do not. None if they share all."""
    for name, ours, theirs in (
        ("task", first.task, other.task),
        ("loss", first.loss, other.loss),
        ("columns", [c.name for c in first.columns], [c.name for c in other.columns]),
        ("kind of input", (first.positional, first.image), (other.positional, other.image)),
    ):
        if ours != theirs:
            return name
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
