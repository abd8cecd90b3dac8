"""Options that say how a table becomes training data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, cast

import numpy as np

from ..errors import OptionError, called
from .batches import Augment


class DataKeywords(TypedDict, total=False):
    """The data options that `ml.fit` takes as keywords. `fit` sets the others from the training options."""

    target: str | int | Sequence[str] | None
    group: Any
    time_column: Any
    categorical: str | Iterable[str] | None
    sample_weight: Any
    validation_weight: Any
    classes: Sequence[Any] | None
    keep_constant: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class DataOptions:
    """How to read the target, split the rows and encode the columns of a table.

    Parameters
    ----------
    target : str, int or sequence of str, optional
        Target column or columns.
    group, time_column : str or array, optional
        Column, or one value per row. Rows of one group are held out together; with `time_column`, the latest rows are
        held out. A column named here is not an input.
    categorical : str or iterable of str, optional
        Columns to treat as categories, whatever their values are. Columns of arrays are given by number. If None,
        messages do not recommend this option.
    columns : mapping, optional
        Kinds of columns: numeric, categorical, date, datetime, time or drop.
    sample_weight, validation_weight : str or array, optional
        Sample weights: the name of a column (`sample_weight` only), or one number per row.
    class_weight : "balanced" or mapping, optional
        Factor on the weights of the rows of each class, in training and validation.
    classes : sequence, optional
        All classes of the target, if the rows may lack some of them.
    validation
        Fraction of rows to hold out, "auto", None, or separate data. "auto" is 20 %, but no rows if there are fewer
        than 10 rows and neither `group` nor `time_column`.
    ensemble : int
        Number of ensemble members. If it is above 1, `validation` is "auto" and there is no `time_column`, the rows are
        divided into parts, and each member holds out a different one.
    keep_constant : bool or "all"
        Whether to accept a table in which every column is constant. "all" keeps each constant column.
    augment : str, sequence of str or function, optional
        Augmentations of `data.augmentation`, such as ``"noise(0.1)"``.
    task, loss, scaling, seed
        As in `Config`. If `loss` is None, it depends on the task and on `outputs`.
    outputs : int, optional
        Number of outputs of the network, if known.
    dtype
        Type of the encoded numbers.
    """

    target: str | int | Sequence[str] | None = None
    group: Any = None
    time_column: Any = None
    categorical: str | Iterable[str] | None = ()
    columns: Mapping[str, str] | None = None
    sample_weight: Any = None
    validation_weight: Any = None
    class_weight: str | Mapping[Any, float] | None = None
    classes: Sequence[Any] | None = None
    validation: Any = "auto"
    ensemble: int = 1
    keep_constant: bool | Literal["all"] = False
    augment: str | Sequence[str] | Augment | None = None
    task: str = "auto"
    loss: str | None = None
    scaling: str = "auto"
    seed: int = 0
    outputs: int | None = None
    dtype: Any = np.float32

    def __post_init__(self) -> None:
        if self.categorical is not None:
            object.__setattr__(self, "categorical", names_of(self.categorical))
        if isinstance(self.validation, bool | int):
            raise OptionError(
                f"{called('validation')} must be a share, None or data of its own, got {self.validation!r}"
            )
        if self.group is not None and self.time_column is not None:
            raise OptionError("a split is by group or by time, got both")


def is_separate(validation: Any) -> bool:
    """Return whether the validation rows are separate data, not a part of the table."""
    share = validation is None or isinstance(validation, float)
    return not share and not (isinstance(validation, str) and validation == "auto")


def names_of(given: Any) -> list[str]:
    """Return the names of one column or several; those of arrays may be numbers.

    >>> names_of("zip"), names_of([0, 2])
    (['zip'], ['0', '2'])
    """
    several = isinstance(given, Iterable) and not isinstance(given, str)
    return [str(name) for name in cast("Iterable[Any]", given)] if several else [str(given)]
