"""The task: what is predicted, its classes, and the conversion of targets to numbers and of outputs to predictions.

    kind          target                                    y of the engine            network outputs
    binary        two values                                (N, 1) 0 or 1              1, or 2 with cross_entropy
    multiclass    more than two values                      (N,) class numbers         one per class
    multilabel    several columns of two values each        (N, T) 0 or 1              T
    regression    one column of numbers                     (N, 1) standardized        1
    multioutput   several columns of numbers                (N, T) standardized        T

The task is inferred as follows:

- Text, booleans and categories are classes.
- Whole numbers are classes if there are two different values, or up to 20 with at least five rows per value on average.
- Other numbers are a regression.

Classes are sorted. The second of two classes is the positive one. With more than two classes and a loss other than
cross_entropy, each class has an output with the target 0 or 1.

Targets of a regression are standardized with the training rows: (y − mean)/std. For a loss with the link exp (poisson),
where y must not be negative, they are y/mean, so that an output of 0 is the mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..core.formatting import short
from ..errors import DataError, OptionError, option, unknown_name
from ..nn import losses
from ..nn.activations.function import logistic
from . import columns
from .options import TASKS, TaskKind
from .preprocessing import Codes, Standardise
from .table import NOT_UNICODE, Rows, Table, from_numpy, from_texts, is_unicode, where

Class = str | int | float | bool
MAX_CLASSES, ROWS_PER_CLASS = 20, 5
TINIEST = 1e-100
"""Smallest range of a regression target."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is predicted.

    Parameters
    ----------
    kind : str
        binary, multiclass, multilabel, regression or multioutput.
    names : tuple of str
        Target columns.
    classes : tuple of tuples
        Sorted classes of each target of a classification.
    mean, std : tuple of float
        Mean and standard deviation of each target of a regression, in the training rows.

    Examples
    --------
    >>> task = Task(kind="binary", names=("income",), classes=(("high", "low"),))
    >>> task.describe(), task.outputs("binary_cross_entropy")
    ("task: binary classification of 'income': 'high' or 'low'", 1)
    """

    kind: TaskKind
    names: tuple[str, ...]
    classes: tuple[tuple[Class, ...], ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    @property
    def classifies(self) -> bool:
        return bool(self.classes)

    def usual_loss(self, outputs: int | None = None) -> str:
        """Return the default loss for a network with this number of outputs, if known."""
        if self.kind == "multiclass" or (self.kind == "binary" and outputs == 2):
            return "cross_entropy"
        return "binary_cross_entropy" if self.classifies else "mse"

    @property
    def metric(self) -> str:
        """The default metric."""
        return "accuracy" if self.classifies else "rmse"

    @property
    def units(self) -> Standardise:
        """The step that standardizes regression targets for the engine. `invert` undoes it."""
        return Standardise(center=np.asarray(self.mean), scale=np.asarray(self.std))

    def outputs(self, loss: str) -> int:
        """Return the number of network outputs for this task and loss."""
        chosen = losses.get(loss)
        if self.kind == "multiclass" or (self.kind == "binary" and chosen.classes):
            return len(self.classes[0])
        return len(self.names) * chosen.per_target

    def describe(self) -> str:
        """Describe the task in one line."""
        words = ", ".join(repr(name) for name in self.names[:5]) + (", …" if len(self.names) > 5 else "")
        if self.kind == "binary":
            return f"task: binary classification of {words}: {self.classes[0][0]!r} or {self.classes[0][1]!r}"
        if self.kind == "multiclass":
            return f"task: classification of {words} into {len(self.classes[0])} classes"
        if self.kind == "multilabel":
            return f"task: {len(self.names)} yes-or-no labels: {words}"
        return f"task: {'multi-output ' if len(self.names) > 1 else ''}regression of {words}"


# Inference


def infer(table: Table, names: Sequence[str], task: str, classes: Sequence[Class] | None = None) -> Task:
    """Return the task of the target columns, which have no missing values. `task` is the option of the user.

    `classes` are all classes of every target, if the caller knows them. The rows may lack some of them.
    """
    if task not in ("auto", "classification", *TASKS):
        raise OptionError(unknown_name("task", task, ("auto", "classification", *TASKS)))
    if task in ("binary", "multiclass") and len(names) > 1:
        raise DataError(f"{table.name}: a {task} task must have one target, got {len(names)}: {', '.join(names)}")
    if task == "auto" and classes is not None:
        kind = "classification"
    elif task == "auto":
        inferred = [looks_like_classes(table, name) for name in names]
        if len(names) == 1:
            kind = "classification" if inferred[0] is not None else "regression"
        elif all(one is not None and len(one) == 2 for one in inferred):
            kind = "multilabel"
        else:
            bad = next((n for n in names if columns.family_of(table.column(n), where(table, n)) == "text"), None)
            if bad is not None:
                raise DataError(
                    f"{where(table, bad)}: several targets must be numbers or have two values each: name one target"
                )
            kind = "multioutput"
    else:
        kind = task
    if kind in ("regression", "multioutput"):
        return Task(kind="regression" if len(names) == 1 else "multioutput", names=tuple(names))
    for name in classes or ():
        if isinstance(name, str) and not is_unicode(name):
            raise OptionError(f"classes: {NOT_UNICODE}, got {name!r}: correct it")
    values = tuple(classes_of(table, name) if classes is None else tuple(classes) for name in names)
    if kind == "classification":
        kind = "multilabel" if len(names) > 1 else "binary" if len(values[0]) == 2 else "multiclass"
    if kind == "multilabel":  # a label may be the same in every row
        values = tuple((type(found[0])(0), type(found[0])(1)) if _one_of_two(found) else found for found in values)
    for name, found in zip(names, values, strict=True):
        if len(found) < 2:
            rows = " and two rows" if len(table) < 2 else ""
            got = f"{short(found)} in one row" if len(table) == 1 else short(found)
            raise DataError(f"{where(table, name)}: a classification needs at least two classes{rows}, got {got}")
        if kind in ("binary", "multilabel") and len(found) != 2:
            raise DataError(f"{where(table, name)}: a {kind} task needs two classes, got {len(found)}: {short(found)}")
    return Task(kind=cast(TaskKind, kind), names=tuple(names), classes=values)


def _one_of_two(found: tuple[Class, ...]) -> bool:
    """Return whether a label has a single value and the other is known: 0 or 1, false or true."""
    return len(found) == 1 and not isinstance(found[0], str) and found[0] in (0, 1)


def check_loss(table: Table, task: Task, loss: str) -> None:
    """Raise an error if numbers were inferred to be classes, but the user set a loss for numbers."""
    if not task.classifies or losses.get(loss).link not in (None, "exp"):
        return
    for name, found in zip(task.names, task.classes, strict=True):
        column = table.column(name)
        if columns.family_of(column, where(table, name)) == "number" and not columns.is_category(column):
            raise OptionError(
                f"{where(table, name)}: {losses.get(loss).name} is a loss for numbers, but the target has "
                f"{len(found)} values, like classes: set {option('task', 'regression')} or "
                f"{option('task', 'classification')}"
            )


def looks_like_classes(table: Table, name: str) -> tuple[Class, ...] | None:
    """Return the classes of a target, or None if its values are numbers for a regression."""
    column = table.column(name)
    family = columns.family_of(column, where(table, name))
    if family in ("date", "datetime", "time"):
        got = columns.FAMILY_NAMES[family]
        raise DataError(f"{where(table, name)}: a target must be numbers, text or booleans, got {got}: convert it")
    if family != "number" or columns.is_category(column):
        return classes_of(table, name)
    values = np.unique(columns.check_finite(columns.floats(columns.plain(column)), table, name))
    if len(values) > MAX_CLASSES or (values != np.floor(values)).any():
        return None
    return classes_of(table, name) if len(values) <= 2 or len(values) * ROWS_PER_CLASS <= len(table) else None


def classes_of(table: Table, name: str) -> tuple[Class, ...]:
    """Return the different values of a target, sorted. Whole numbers become int, also if they are floats."""
    keys = columns.keys_of(table.column(name), table, name)
    found = columns.vocabulary(keys)
    if pa.types.is_large_string(found.type):
        columns.check_not_numbers(table, name, found, keys)
        if not columns.reads_as_categories(len(found), len(table)):
            raise DataError(
                f"{where(table, name)}: a target must have few different values, got {len(found):,} different strings "
                f"in {len(table):,} rows: name another column"
            )
    values: list[Class] = found.to_pylist()
    if pa.types.is_floating(found.type) and all(float(value).is_integer() for value in values):
        values = [int(value) for value in values]
    if len(values) > columns.MAX_CATEGORIES:
        raise DataError(
            f"{where(table, name)}: a classification target must have at most {columns.MAX_CATEGORIES:,} classes, "
            f"got {len(values):,}: choose another target or task"
        )
    return tuple(values)


# Targets as numbers


def class_numbers(table: Table, name: str, classes: tuple[Class, ...]) -> NDArray[np.int64]:
    """Return the class number of each row. Raise an error for a class that is not in `classes`.   → (N,)"""
    keys = columns.keys_of(table.column(name), table, name)
    known = _arrow(classes)
    if keys.type != known.type and not {str(keys.type), str(known.type)} <= {"int64", "double"}:
        raise DataError(f"{where(table, name)}: classes must be {known.type} as in training, got {keys.type}")
    place, _ = Codes(vocabulary=known).apply(keys)
    if not place.all():
        row = int(np.flatnonzero(place == 0)[0])
        value = keys[row].as_py()
        raise DataError(f"{where(table, name, row)}: must be one of {short(list(classes))}, got {value!r}")
    return place - 1


def _arrow(classes: tuple[Class, ...]) -> Any:
    return from_texts(str(value) for value in classes) if isinstance(classes[0], str) else from_numpy(np.array(classes))


def target_numbers(table: Table, name: str) -> NDArray[np.float64]:
    """Return the numbers of a regression target.   → (N,)"""
    column = columns.plain(table.column(name))
    family = columns.family_of(column, where(table, name))
    if family not in ("number", "boolean"):
        row = 0
        if family == "text":
            row = columns.first_invalid(column, pa.float64()) or 0
        value = short(column[row].as_py())
        raise DataError(f"{where(table, name, row)}: the target of a regression must be numbers, got {value}")
    return columns.check_finite(columns.floats(column), table, name)


def standardise(task: Task, table: Table, train: Rows, loss: str) -> tuple[Task, list[str]]:
    """Return the task with mean and standard deviation of its targets in the training rows, and notes."""
    if task.classifies:
        return task, []
    for name in task.names:
        _check_range(table, name, target_numbers(table, name)[train])
    if losses.get(loss).link == "exp":
        means = [float(target_numbers(table, name)[train].mean()) for name in task.names]
        return replace(task, mean=(0.0,) * len(means), std=tuple(mean if mean > 0 else 1.0 for mean in means)), []
    notes: list[str] = []
    means: list[float] = []
    stds: list[float] = []
    for name in task.names:
        y = target_numbers(table, name)[train]
        std = float(y.std())
        if not std > 0 or y.min() == y.max():
            notes.append(f"target {name!r} is the same in every training row")
            std = 1.0
        means.append(float(y.mean()))
        stds.append(std)
    return replace(task, mean=tuple(means), std=tuple(stds)), notes


def _check_range(table: Table, name: str, y: NDArray[np.float64]) -> None:
    """Raise an error for a target whose squared differences underflow in float64: its standard deviation would be 0."""
    spread = float(y.max() - y.min())
    if 0 < spread < TINIEST:
        raise DataError(
            f"{where(table, name)}: the values of a target must differ by at least {TINIEST:g}, got a range of "
            f"{spread:.3g}: multiply it, for example by {10.0 ** min(300, -math.floor(math.log10(spread))):.0e}"
        )


def encode(task: Task, table: Table, loss: str, dtype: Any) -> NDArray[Any]:
    """Return y as the engine needs it for this loss."""
    chosen = losses.get(loss)
    if task.classifies:
        place = [class_numbers(table, name, found) for name, found in zip(task.names, task.classes, strict=True)]
        if chosen.classes:
            if len(place) > 1:
                raise OptionError(
                    f"{chosen.name} needs one class per row, got several labels: use the loss binary_cross_entropy"
                )
            return place[0]
        if chosen.targets == "numbers":
            raise OptionError(
                f"{chosen.name} is a loss for numbers, but the task is {task.kind} classification: try cross_entropy"
            )
        if task.kind == "multiclass":
            return np.eye(len(task.classes[0]), dtype=dtype)[place[0]]  # (N, C)
        return np.stack(place, 1).astype(dtype)  # (N, T)
    if chosen.link == "step":
        raise OptionError(
            f"a step output and the loss perceptron need two classes, but the task is {task.kind}: remove the step "
            "from the network, or use the loss mse"
        )
    if chosen.targets == "classes":
        raise OptionError(f"{chosen.name} is a loss for classes, but the task is {task.kind}: try mse, mae or huber")
    y = np.stack([target_numbers(table, name) for name in task.names], 1)  # (N, T)
    if chosen.link == "exp" and (y < 0).any():
        row, place = (int(i) for i in np.argwhere(y < 0)[0])
        raise DataError(
            f"{where(table, task.names[place], row)}: {chosen.name} needs numbers of 0 or more, got {y[row, place]:g}"
        )
    return task.units.apply(y).astype(dtype)


def classes_in(y: NDArray[Any]) -> NDArray[np.int64]:
    """Return the class numbers of y from `encode`, for a task with one class per row.

    >>> classes_in(np.eye(3)[[2, 0]]), classes_in(np.array([[1.0], [0.0]]))
    (array([2, 0]), array([1, 0]))
    """
    if y.ndim == 1:
        return y
    return y[:, 0].astype(np.int64) if y.shape[1] == 1 else y.argmax(1)


# Outputs as predictions


def probabilities(task: Task, z: Any, loss: str) -> NDArray[np.float64]:
    """Return the probabilities of the classes (N, C), or of the second value of each label (N, T)."""
    if not task.classifies:
        raise DataError(f"a {task.kind} has no probabilities: use predict")
    z = np.asarray(z, dtype=np.float64)
    chosen = losses.get(loss)
    if chosen.link == "softmax":
        p = np.exp(z - z.max(1, keepdims=True))
        return p / p.sum(1, keepdims=True)
    if task.kind == "multiclass" and chosen.link != "sigmoid":  # scores without a link: their positive parts
        p = np.maximum(z, 0)
        p = np.where(p.any(1, keepdims=True), p, np.arange(p.shape[1]) == z.argmax(1)[:, None])
    elif chosen.link == "sigmoid":
        p = np.asarray(logistic(z), dtype=np.float64)
    elif chosen.link == "step":
        p = (z > 0).astype(np.float64)
    else:
        p = np.clip(z, 0, 1)  # the network was trained with outputs 0 and 1
    if task.kind == "multilabel":
        return p
    if task.kind == "binary":
        return np.concatenate([1 - p, p], 1)
    return p / p.sum(1, keepdims=True)


def decode(task: Task, z: Any, loss: str) -> NDArray[Any]:
    """Return predictions: classes or numbers (N,), (N, T) for several targets, with another axis for quantiles."""
    z = np.asarray(z, dtype=np.float64)
    if task.kind == "multilabel":
        yes = probabilities(task, z, loss) > 0.5
        pairs = [values_of(found)[yes[:, i].astype(np.int64)] for i, found in enumerate(task.classes)]
        return np.stack(pairs, 1)
    if task.classifies:
        chosen = losses.get(loss)
        best = z.argmax(1) if z.shape[1] > 1 else (z[:, 0] > (0.5 if chosen.link is None else 0.0)).astype(np.int64)
        return values_of(task.classes[0])[best]
    chosen = losses.get(loss)
    if chosen.link == "exp":
        z = np.exp(z)
    z = z.reshape(len(z), len(task.names), chosen.per_target)  # (N, T, Q)
    z = np.sort(z, axis=2)  # quantiles are learned independently, so they may cross: Chernozhukov et al. 2010
    z = task.units.invert(z.swapaxes(1, 2)).swapaxes(1, 2)  # (N, T, Q)
    z = z[:, :, 0] if chosen.per_target == 1 else z
    return z[:, 0] if len(task.names) == 1 else z


def levels(loss: str) -> tuple[float, ...]:
    """Return the levels of a quantile loss, in increasing order.

    >>> levels("quantile(0.1, 0.9)")
    (0.1, 0.9)
    """
    return tuple(float(q) for q in losses.get(loss).constant("q"))


def middle(values: NDArray[np.float64], loss: str) -> NDArray[np.float64]:
    """Return one number per target from the result of `decode`. For quantiles (…, Q), this is the median.

    If the median is not a level, it is interpolated between the levels around it, or the nearest level is used.

    >>> middle(np.array([[1.0, 3.0, 7.0]]), "quantile(0.2, 0.4, 0.8)")
    array([4.])
    """
    if losses.get(loss).per_target == 1:
        return values
    trained = levels(loss)
    place = float(np.interp(0.5, trained, np.arange(len(trained))))
    low, share = values[..., int(place)], place - int(place)
    return low + share * (values[..., int(place) + 1] - low) if share else low


def values_of(classes: tuple[Class, ...]) -> NDArray[Any]:
    """Return classes as an array of their type.

    >>> values_of(("no", "yes"))[[1, 0]]
    array(['yes', 'no'], dtype='<U3')
    """
    return np.array(classes)


# As data


def to_dict(task: Task) -> dict[str, Any]:
    return {
        "kind": task.kind,
        "names": list(task.names),
        "classes": [list(found) for found in task.classes],
        "mean": list(task.mean),
        "std": list(task.std),
    }


def from_dict(data: dict[str, Any]) -> Task:
    if not isinstance(data, dict) or set(data) != {"kind", "names", "classes", "mean", "std"}:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DataError(f"a task must have kind, names, classes, mean and std, got {short(data)}")
    if data["kind"] not in TASKS:
        raise DataError(unknown_name("task", str(data["kind"]), TASKS))
    mean, std = tuple(float(v) for v in data["mean"]), tuple(float(v) for v in data["std"])
    if not all(math.isfinite(v) for v in (*mean, *std)):
        raise DataError("mean and std of a task must be finite")
    if not all(v > 0 for v in std) or len(mean) != len(std):
        raise DataError(f"std of a task must be positive, one for each mean, got {short(std)} for {len(mean)}")
    lists = [data["names"], data["classes"], *(data["classes"] if isinstance(data["classes"], list) else ())]
    if not all(isinstance(one, list) for one in lists):
        raise DataError(f"names and classes of a task must be lists, got {short(data)}")
    names, classes = tuple(data["names"]), tuple(tuple(found) for found in data["classes"])
    if not names or not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise DataError(f"the targets of a task must have distinct names, got {short(names)}")
    if mean and len(mean) != len(names):
        raise DataError(f"a task must have one mean for each of {len(names)} targets, got {len(mean)}")
    _check_classes(data["kind"], names, classes)
    for found in classes:
        # In Python, 1, 1.0 and True are equal, so a file with two of them would confuse the classes.
        if len({str(one) for one in found}) != len(found) or len(set(found)) != len(found):
            raise DataError(f"the classes of a task must be distinct, got {short(found)}")
        kinds = {bool if isinstance(one, bool) else str if isinstance(one, str) else float for one in found}
        if not all(isinstance(one, str | int | float) for one in found) or len(kinds) != 1:
            raise DataError(f"classes must be strings, numbers or booleans, all of one type, got {short(found)}")
    return Task(kind=data["kind"], names=names, classes=classes, mean=mean, std=std)


def _check_classes(kind: TaskKind, names: tuple[str, ...], classes: tuple[tuple[Any, ...], ...]) -> None:
    """Raise an error if the number of classes in a file does not match the kind of the task."""
    several = kind == "multilabel"
    expected = 0 if kind in ("regression", "multioutput") else len(names) if several else 1
    if len(classes) != expected or (kind in ("binary", "multiclass", "regression") and len(names) != 1):
        raise DataError(f"a {kind} task cannot have {len(names)} targets and {len(classes)} lists of classes")
    for found in classes:
        if len(found) < 2 or (kind != "multiclass" and len(found) != 2):
            raise DataError(f"a {kind} task needs {'at least two classes' if kind == 'multiclass' else 'two classes'}")
