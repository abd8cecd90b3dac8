"""The options of the data: `DataOptions` describe the user's rows, `DataConfig` is the part of `Config` that they need.

`DataConfig` is stored as JSON in a run folder. `DataOptions` may also be arrays and tables in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, cast, get_args

import numpy as np

from ..core.formatting import listed
from ..core.options import SharedConfig, check_choice, check_positive, check_readable, described
from ..errors import OptionError, option_name
from ..nn import losses
from ..nn.layers import Inputs
from .columns import SCALINGS

TaskKind = Literal["binary", "multiclass", "multilabel", "regression", "multioutput"]
TASKS: tuple[TaskKind, ...] = get_args(TaskKind)


@dataclass(frozen=True, kw_only=True)
class DataConfig(SharedConfig):
    """The options of `Config` that the encoded rows and their split depend on."""

    validation: float | str | None = described(
        "auto",
        "Fraction of rows to hold out, none, or a file of validation rows; auto is 0.2, or none if there are few rows.",
    )
    task: str = described("auto", f"Task: {listed(('auto', *TASKS))}.")
    loss: str = described(
        "auto", "Loss: cross_entropy, mse, mae, huber(delta=1), quantile(0.1, 0.9), …; auto chooses by the task."
    )
    class_weight: str | Mapping[str, float] | None = described(
        None, "Class weights: rare=5,common=1, or balanced, which gives rare classes larger weights."
    )
    scaling: str = described("auto", f"Scaling of numeric columns: {listed(SCALINGS)}.")
    augment: str | None = described(None, "Augmentations, joined by +: noise(0.1)+mask(0.1)+mixup(0.2).")
    ensemble: int = described(1, "Number of ensemble members; each holds out a different part of the rows.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.validation, str) and self.validation == "none":
            object.__setattr__(self, "validation", None)
        if isinstance(self.validation, bool | int):
            raise OptionError(
                f"{option_name('validation')} must be a fraction, None or separate data, got {self.validation!r}"
            )
        if isinstance(self.validation, float) and not 0 < self.validation < 1:
            raise OptionError(
                f"{option_name('validation')} must be a fraction between 0 and 1, got {self.validation!r}"
            )
        object.__setattr__(self, "loss", losses.FAMILIAR.get(self.loss, self.loss))
        if self.loss != "auto":
            check_readable(self, "loss", losses.get)
        check_positive(self, "ensemble")
        check_choice(self, "scaling", SCALINGS)

    @property
    def given_loss(self) -> str | None:
        """The loss, or None if it depends on the task."""
        return None if self.loss == "auto" else self.loss

    @property
    def encoded_dtype(self) -> Any:
        """Type of the encoded numbers."""
        return np.float64 if self.dtype == "float64" else np.float32


class DataKeywords(TypedDict, total=False):
    """The data options that `ml.fit` takes as keywords."""

    target: str | int | Sequence[str] | None
    group: Any
    time_column: Any
    categorical: str | Iterable[str] | None
    sample_weight: Any
    sample_weight_val: Any
    classes: Sequence[Any] | None
    keep_constant: bool | Literal["all"]


@dataclass(frozen=True, kw_only=True, eq=False)
class DataOptions:
    """How to read the target, the split and the columns of a table.

    Parameters
    ----------
    target : str, int or sequence of str, optional
        Target column or columns.
    group, time_column : str or array, optional
        Column, or one value per row. Rows of one group are held out together; with `time_column`, the latest rows are
        held out. A column named here is not an input.
    categorical : str or iterable of str, optional
        Columns to treat as categories, whatever their values are. Columns of arrays are given by number.
    columns : mapping, optional
        Kinds of columns: numeric, categorical, date, datetime, time or drop.
    sample_weight, sample_weight_val : str or array, optional
        Sample weights: the name of a column (`sample_weight` only), or one number per row.
    classes : sequence, optional
        All classes of the target, if the rows may lack some of them.
    validation_data : optional
        Validation rows in memory: a table, a pair (X, y) or a loader. They replace `DataConfig.validation`.
    keep_constant : bool or "all"
        Whether to accept a table in which every column is constant. "all" keeps each constant column.
    inputs : Inputs, optional
        Inputs of the network, if known. Constant columns are kept if exactly this number of inputs includes them.
    outputs : int, optional
        Number of outputs of the network, if known.
    """

    target: str | int | Sequence[str] | None = None
    group: Any = None
    time_column: Any = None
    categorical: str | Iterable[str] | None = ()
    columns: Mapping[str, str] | None = None
    sample_weight: Any = None
    sample_weight_val: Any = None
    classes: Sequence[Any] | None = None
    validation_data: Any = None
    keep_constant: bool | Literal["all"] = False
    inputs: Inputs | None = None
    outputs: int | None = None

    def __post_init__(self) -> None:
        if self.categorical is not None:
            object.__setattr__(self, "categorical", names_of(self.categorical))
        if self.group is not None and self.time_column is not None:
            raise OptionError(
                f"rows are split by {option_name('group')} or by {option_name('time_column')}, got both: remove one"
            )

    def validation(self, config: DataConfig) -> Any:
        """Return what is held out: a fraction, "auto", None, the name of a file, or data in memory."""
        return config.validation if self.validation_data is None else self.validation_data


def is_separate(validation: Any) -> bool:
    """Return whether the validation rows are separate data, not a part of the table."""
    share = validation is None or isinstance(validation, float)
    return not share and not (isinstance(validation, str) and validation == "auto")


def names_of(given: Any) -> list[str]:
    """Return the names of one or several columns. Columns of arrays may be given as numbers.

    >>> names_of("zip"), names_of([0, 2])
    (['zip'], ['0', '2'])
    """
    several = isinstance(given, Iterable) and not isinstance(given, str)
    return [str(name) for name in cast("Iterable[Any]", given)] if several else [str(given)]
