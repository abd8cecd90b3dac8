"""A trained model: predictions in the target's own units, and files. PyTorch is not needed.

    rows → `Members` → z → link → labels, probabilities or numbers in the target's own units

`members` computes the outputs. `model_file` describes the file of a model.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import tensor_file
from ..data import Encoded, Encoding
from ..engines import State
from ..errors import FileError, OptionError, RunError, needed_by
from ..nn.calibration import Calibration
from ..nn.layers.base import Array
from ..runs import no_model
from ..spec import Spec
from . import model_file
from .members import Member, Members

if TYPE_CHECKING:
    from ..export.torch_module import TrainedNetwork
    from .importance import Importance


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TrainedModel(Members):
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
        """Return the model of a training state: members with one network and one encoding.

        Parameters
        ----------
        spec, encoding
            The network and the encoding of every member.
        state : State
            Parameters and buffers of all members.
        averaged : bool
            Whether to use the running average of the parameters, if the state has one.
        members, calibration
            Number of members, and the calibration of their averaged outputs.
        """
        values = state.averages if averaged and state.averages else state.parameters
        tensors = model_file.split({**values, **state.buffers}, members)
        created = tuple(Member(spec=spec, tensors=one, encoding=encoding) for one in tensors)
        return TrainedModel(members=created, calibration=calibration)

    def outputs(self, source: Any) -> Array:
        """Return the raw outputs, before the link function.

        Parameters
        ----------
        source
            Rows, as in `predict`.

        Returns
        -------
        ndarray of shape (rows, d_out)
            Averaged and calibrated outputs of the members: logits for classes, standardized numbers for regression.

        Raises
        ------
        DataError
            If the rows are invalid as in `predict`.

        Examples
        --------
        >>> import multilayer as ml
        >>> ml.fit("4-8-3", "iris", epochs=2, quiet=True).model.outputs("iris").shape
        (150, 3)
        """
        return self.forward(self.read(source))

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

        Examples
        --------
        >>> import multilayer as ml
        >>> ml.fit("4-8-3", "iris", epochs=20, quiet=True).model.predict([[5.1, 3.5, 1.4, 0.2]])
        array(['setosa'], dtype='<U10')
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

        Examples
        --------
        >>> import multilayer as ml
        >>> p = ml.fit("4-8-3", "iris", epochs=2, quiet=True).model.predict_proba("iris")
        >>> p.shape, bool(abs(p.sum(axis=1) - 1).max() < 1e-6)
        ((150, 3), True)
        """
        return self.encoding.probabilities(self.forward(self.read(source)))

    def prediction_table(self, rows: Encoded | Sequence[Encoded], *, probabilities: bool = False) -> Any:
        """Return the predictions for encoded rows as a table.

        Parameters
        ----------
        rows : Encoded or sequence of Encoded
            The result of `read` or `encode`, or rows of the encoding that all members share.
        probabilities : bool
            Whether to add a column for each class.

        Returns
        -------
        pyarrow.Table
            A column for each target, or for each quantile of each target.

        Raises
        ------
        DataError
            If an output is not finite, or probabilities are requested from a model that predicts numbers.

        Examples
        --------
        >>> import multilayer as ml
        >>> model = ml.fit("4-8-3", "iris", epochs=2, quiet=True).model
        >>> model.prediction_table(model.read("iris"), probabilities=True).column_names
        ['species', 'species=setosa', 'species=versicolor', 'species=virginica']
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

        Raises
        ------
        DataError
            If the target is missing or has a new class, or the rows are invalid as in `predict`.

        Examples
        --------
        >>> import multilayer as ml
        >>> sorted(ml.fit("10-8-1", "diabetes", epochs=2, quiet=True).model.evaluate("diabetes"))
        ['mae', 'r2', 'rmse']
        """
        return self.measured(self.read(source, targets=True))

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
            How much worse the metric is with each column shuffled, the most important column first.

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

        Raises
        ------
        StorageError
            If the file cannot be written. An existing file is then unchanged.

        Examples
        --------
        >>> import tempfile
        >>> import multilayer as ml
        >>> model = ml.fit("4-8-3", "iris", epochs=2, quiet=True).model
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     len(model.save(f"{folder}/iris.safetensors"))
        64
        """
        return tensor_file.save(Path(path), *model_file.to_parts(self))

    def to_onnx(self, path: str | Path) -> None:
        """Export the model to an ONNX file with the encoding, all members and the calibration.

        Its inputs are the columns of the table. Its outputs are those of `predict` and `predict_proba`.
        docs/explanation/export.md describes the file.

        Parameters
        ----------
        path : str or Path
            The file to write. An existing file is replaced only when the new one is complete.

        Raises
        ------
        OptionError
            If the model is too large for the format.
        DataError
            If ONNX cannot express a column.
        MissingExtra
            If the package onnx is not installed.

        Examples
        --------
        >>> import tempfile
        >>> import multilayer as ml
        >>> model = ml.fit("4-8-3", "iris", epochs=2, quiet=True).model
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.to_onnx(f"{folder}/iris.onnx")
        """
        from ..export.onnx.model import to_onnx

        to_onnx(self, path)

    def to_torch(self, *, member: int | None = None, preprocessing: bool = False) -> TrainedNetwork:
        """Return the trained network as a torch module with copies of its weights.

        Parameters
        ----------
        member : int, optional
            Ensemble member to convert, counted from 0, without calibration. By default, the calibrated average of all
            members.
        preprocessing : bool
            Whether the module scales its inputs. By default, it takes scaled numbers.

        Returns
        -------
        TrainedNetwork
            A module in evaluation mode.

        Raises
        ------
        OptionError
            If `member` does not exist.
        MissingExtra
            If torch is not installed.

        Examples
        --------
        >>> import multilayer as ml
        >>> net = ml.fit("4-8-3", "iris", epochs=2, quiet=True).model.to_torch()
        >>> net(*net.encode("iris")).shape
        torch.Size([150, 3])
        """
        with needed_by("to_torch"):
            from ..export.torch_module import TrainedNetwork
        return TrainedNetwork(self, member=member, preprocessing=preprocessing)

    def to_bytes(self) -> bytes:
        """Return the content of the file that `save` writes.

        Returns
        -------
        bytes
            A safetensors file. Equal models have equal bytes.

        Examples
        --------
        >>> import multilayer as ml
        >>> model = ml.fit("4-8-3", "iris", epochs=2, quiet=True).model
        >>> type(model).from_bytes(model.to_bytes())
        TrainedModel(4-8-3, 67 parameters: classification of 'species' into 3 classes)
        """
        return tensor_file.encode(*model_file.to_parts(self))

    @staticmethod
    def load(path: str | Path, *, root: Path | None = None) -> TrainedModel:
        """Read a model file and check its content. `ml.load` also accepts the folder of a run.

        Parameters
        ----------
        path : str or Path
            A ``.safetensors`` file.
        root : Path, optional
            The folder of a run that contains the file. No symbolic link below it is followed.

        Returns
        -------
        TrainedModel

        Raises
        ------
        FileError
            If the file is damaged or is not a model.
        StorageError
            If the file cannot be read.

        Examples
        --------
        >>> import tempfile
        >>> import multilayer as ml
        >>> model = ml.fit("4-8-3", "iris", epochs=2, quiet=True).model
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = model.save(f"{folder}/iris.safetensors")
        ...     type(model).load(f"{folder}/iris.safetensors")
        TrainedModel(4-8-3, 67 parameters: classification of 'species' into 3 classes)
        """
        return _of_parts(*tensor_file.load(Path(path), root=root), str(path))

    @staticmethod
    def from_bytes(data: bytes) -> TrainedModel:
        """Return the model for the result of `to_bytes`.

        Parameters
        ----------
        data : bytes
            The content of a model file.

        Returns
        -------
        TrainedModel

        Raises
        ------
        FileError
            If the content is damaged or is not a model.

        Examples
        --------
        >>> import multilayer as ml
        >>> model = ml.fit("4-8-3", "iris", epochs=2, quiet=True).model
        >>> type(model).from_bytes(model.to_bytes()).encoding == model.encoding
        True
        """
        return _of_parts(*tensor_file.decode(data), "the model")


def _of_parts(tensors: Mapping[str, Array], meta: Mapping[str, Any], path: str) -> TrainedModel:
    members, calibration = model_file.from_parts(tensors, meta, path)
    try:
        return TrainedModel(members=tuple(Member(**one) for one in members), calibration=calibration)
    except OptionError as error:
        raise FileError(f"{path}: {error}") from None


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
