"""The training options of a run: `Config`, with the default, the type and the help text of each option.

The options of `mlp train`, TOML files and the keywords of `ml.fit` become a `Config`, which a run folder saves. The
command line and the documentation are derived from it. The options of the data are in `data.DataOptions`.
"""

from __future__ import annotations

import functools
import math
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypedDict, cast

import numpy as np

from ..core import atomic_files
from ..core.dtypes import TRAINED
from ..core.formatting import listed, percent
from ..data.columns import SCALINGS
from ..engines.make import ENGINES
from ..errors import OptionError, option_name, unknown_name
from ..nn import losses, optimizers, schedules
from ..nn.layers import Parameter
from ..spec.initialization import scheme

OnSpike = Literal["rollback", "stop", "ignore"]
ON_SPIKE: tuple[OnSpike, ...] = typing.get_args(OnSpike)
ENGINE_NAMES = ("auto", *ENGINES)

# Constants of the rules in `training.plan`, which choose the values of options that are None. They were chosen on
# generated tables: docs/decisions/0050-default-options.md.
RATE = 0.01
WIDE = 64
"""Largest number of inputs of a layer that does not lower the learning rate."""
BATCH, SMALLEST_BATCH = 256, 16
STEPS_PER_EPOCH = 40
"""Fewest steps of an epoch with a batch of `BATCH` rows."""
STEPS = 8000
FEWEST_EPOCHS, MOST_EPOCHS = 20, 1500
PATIENCE, LEAST_PATIENCE = 0.3, 10
"""Fraction of the epochs, and number of epochs."""
AVERAGE = 0.99
"""An average over about 100 steps. With few steps, which `epochs` can set, it would contain the initial weights."""
CHECKPOINT_STEPS = 500
CHECKPOINTS = 25
"""Once the interval between checkpoints grows, it is at most 1 / CHECKPOINTS of the steps so far."""


def _option(default: Any, text: str, *, auto: bool = False) -> Any:
    """Describe an option. `auto` says that None lets the program choose the value."""
    return field(default=default, metadata={"help": text, "auto": auto})


MAX_TOML = 1 << 20
"""Largest size of an option file, in bytes."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of training, with their defaults. Each is a keyword of `ml.fit` and an option of `mlp train`.

    Raises
    ------
    OptionError
        If an option has a wrong type, is out of range, or is an unknown name.

    Examples
    --------
    >>> Config(epochs=20, learning_rate=0.01).schedule
    'cosine(warmup=0.05)'
    """

    engine: str = _option("auto", f"Engine that runs the steps: {listed(ENGINE_NAMES)}.")
    optimizer: str = _option(
        "adamw", "Optimizer: sgd, momentum, nesterov, adam or adamw. Constants in parentheses: adam(beta2=0.95)."
    )
    loss: str = _option(
        "auto", "Loss: cross_entropy, mse, mae, huber(delta=1), quantile(0.1, 0.9), …; auto chooses by the task."
    )
    learning_rate: float | None = _option(
        None, f"Peak learning rate; auto is {RATE}, lower for layers with more than {WIDE} inputs.", auto=True
    )
    schedule: str = _option("cosine(warmup=0.05)", "Learning rate schedule: constant, cosine, one_cycle, coslog, …")
    weight_decay: float = _option(0.1, "Decoupled weight decay on weight matrices.")
    decay_schedule: str = _option("constant", "Weight decay schedule.")
    dropout_schedule: str = _option("constant", "Dropout schedule.")
    l2: float = _option(0.0, "L2 penalty on weight matrices.")
    clip_norm: float | None = _option(None, "Clip the gradient to this norm.")
    clip_value: float | None = _option(None, "Clip each value of the gradient to ± this number.")
    average: float | None = _option(
        None,
        f"Decay β of the exponential moving average of the weights; auto is {AVERAGE}, no average if epochs is set.",
        auto=True,
    )
    batch_size: int | None = _option(
        None,
        f"Rows per step; auto is {BATCH}, less if an epoch would have fewer than {STEPS_PER_EPOCH} steps, at least "
        f"{SMALLEST_BATCH}.",
        auto=True,
    )
    epochs: int | None = _option(
        None, f"Passes over the training rows; auto is the number for about {STEPS:,} steps.", auto=True
    )
    epoch_rows: int | None = _option(None, "Rows per epoch; each epoch draws different rows. By default, all rows.")
    validation: float | str | None = _option(
        "auto",
        "Fraction of rows to hold out, none, or a file of validation rows; auto is 0.2, none if there are few rows.",
    )
    metric: str = _option(
        "loss",
        "Validation metric that selects the best epoch: loss, accuracy, r2, …; auto uses the default of the task.",
    )
    patience: int | None = _option(
        None,
        f"Epochs without improvement before training stops; auto is {percent(PATIENCE)} of the epochs, no limit if "
        "epochs is set.",
        auto=True,
    )
    time_limit: float | None = _option(None, "Stop this many seconds after the start.")
    on_spike: str = _option("rollback", f"What to do if the loss spikes: {listed(ON_SPIKE)}.")
    rollbacks: int = _option(3, "Largest number of rollbacks.")
    augment: str | None = _option(None, "Augmentations, joined with +: noise(0.1)+mask(0.1)+mixup(0.2).")
    task: str = _option("auto", "Task: auto, binary, multiclass, multilabel, regression or multioutput.")
    class_weight: str | Mapping[str, float] | None = _option(
        None, "Class weights; balanced gives rare classes larger weights."
    )
    init: str = _option("auto", "Initialization: auto, he, xavier, orthogonal, …; data adapts the weights to the rows.")
    scaling: str = _option("auto", f"Scaling of numeric columns: {listed(SCALINGS)}.")
    ensemble: int = _option(1, "Number of ensemble members; each holds out a different part of the rows.")
    calibrate: bool | None = _option(
        None, "Calibrate probabilities and intervals on held-out rows; auto calibrates only probabilities.", auto=True
    )
    rates: str | None = _option(
        None, "Factors on the learning rate for groups of parameters: bias=0.1, scale=6, columns.weight=0.1."
    )
    seed: int = _option(0, "Seed of the random numbers.")
    dtype: str = _option("float32", f"Number format: {listed(TRAINED)}.")
    device: str = _option("auto", "Device: auto, cpu or cuda.")
    compile: bool = _option(False, "Use torch.compile.")
    threads: int | None = _option(
        None, "Number of threads; auto is 1 if steps are small, otherwise one per core.", auto=True
    )
    checkpoint_every: int | None = _option(
        None,
        f"Steps between checkpoints; auto is whole epochs of at least {CHECKPOINT_STEPS} steps, growing to "
        f"{100 // CHECKPOINTS} % of the steps so far.",
        auto=True,
    )
    statistics_every: int | None = _option(
        None, "Steps between events with the norm of every parameter and its gradient. By default, none."
    )

    def __post_init__(self) -> None:
        if isinstance(self.class_weight, Mapping):  # JSON and TOML have only strings as keys
            items = cast("Mapping[Any, Any]", self.class_weight).items()
            named = {str(name): value.item() if isinstance(value, np.generic) else value for name, value in items}
            object.__setattr__(self, "class_weight", named)
        for spec in fields(self):
            value = getattr(self, spec.name)
            if isinstance(value, np.generic):
                value = value.item()
            if (spec.name == "validation" and value == "none") or (spec.name == "time_limit" and value == math.inf):
                value = None
            if spec.name == "loss":
                value = losses.FAMILIAR.get(cast(str, value), value)
            object.__setattr__(self, spec.name, value)
            if not _fits(value, hints()[spec.name]):
                raise OptionError(f"{option_name(spec.name)} must be {_words(spec.name)}, got {value!r}")
        for name in (
            "learning_rate",
            "batch_size",
            "epochs",
            "epoch_rows",
            "ensemble",
            "clip_norm",
            "clip_value",
            "patience",
            "time_limit",
            "threads",
            "checkpoint_every",
            "statistics_every",
        ):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise OptionError(f"{option_name(name)} must be positive, got {value!r}")
        for name in ("weight_decay", "l2", "rollbacks", "seed"):
            if not 0 <= getattr(self, name) < math.inf:
                raise OptionError(f"{option_name(name)} must be at least 0, got {getattr(self, name)!r}")
        if self.learning_rate is not None and not math.isfinite(self.learning_rate):
            raise OptionError(f"{option_name('learning_rate')} must be finite, got {self.learning_rate!r}")
        if self.average is not None and not 0 <= self.average < 1:
            raise OptionError(f"{option_name('average')} must be at least 0 and below 1, got {self.average!r}")
        if isinstance(self.validation, float) and not 0 < self.validation < 1:
            raise OptionError(
                f"{option_name('validation')} must be a fraction between 0 and 1, got {self.validation!r}"
            )
        for name, get, other in (
            ("optimizer", optimizers.get, None),
            ("loss", losses.get, "auto"),
            ("schedule", schedules.get, None),
            ("decay_schedule", schedules.get, None),
            ("dropout_schedule", schedules.get, None),
            ("init", scheme, "data"),
        ):
            try:
                if getattr(self, name) != other:
                    get(getattr(self, name))
            except OptionError as error:
                raise OptionError(f"{option_name(name)}: {error}") from None
        self.rate_factors({})
        for name, valid in (
            ("engine", ENGINE_NAMES),
            ("on_spike", ON_SPIKE),
            ("dtype", TRAINED),
            ("scaling", SCALINGS),
        ):
            if getattr(self, name) not in valid:
                raise OptionError(unknown_name(option_name(name), getattr(self, name), valid))

    def rate_factors(self, parameters: Mapping[str, Parameter]) -> dict[str, float]:
        """Return the learning rate factor of each parameter in `rates`: by name, by kind of layer, or by role.

        >>> from multilayer import Spec
        >>> Config(rates="bias=0.1, columns.bias=1").rate_factors(Spec.parse("2-1").parameters)
        {'linear1.bias': 0.1}
        """
        given: dict[str, float] = {}
        for part in (self.rates or "").split(",") if self.rates else ():
            name, equals, value = (text.strip() for text in part.partition("="))
            try:
                given[name] = float(value)
            except ValueError:
                equals = ""
            if not (name and equals and 0 <= given.get(name, -1) < math.inf):
                expected = "names with factors, such as 'bias=0.1, scale=6'"
                raise OptionError(f"{option_name('rates')} must be {expected}, got {part.strip()!r}")
        found: dict[str, float] = {}
        for name, parameter in parameters.items():
            layer, _, tensor = name.rpartition(".")
            kind = layer.rpartition(".")[2].rstrip("0123456789")
            for key in (name, f"{kind}.{tensor}", parameter.role):
                if key in given:
                    found[name] = given[key]
                    break
        return found

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(values: Mapping[str, Any], *, where: str = "the configuration") -> Config:
        known = {spec.name for spec in fields(Config)}
        for key in values:
            if key not in known:
                raise OptionError(f"{where}: {unknown_name('option', key, known)}")
        return Config(**values)

    @staticmethod
    def from_toml(path: Path) -> dict[str, Any]:
        """Read the options of a TOML file, without checking them."""
        data = atomic_files.read(path, limit=MAX_TOML)
        try:
            return tomllib.loads(data.decode())
        except RecursionError:
            raise OptionError(f"{path} is not a valid option file: its brackets are nested too deeply") from None
        except ValueError as error:  # also raised for a whole number with thousands of digits
            raise OptionError(f"{path} is not TOML: {error}") from None


class Options(TypedDict, total=False):
    """The fields of `Config` as keywords; a test compares the two. `validation` may also be separate data."""

    engine: str
    optimizer: str
    loss: Any
    learning_rate: float | None
    schedule: str
    weight_decay: float
    decay_schedule: str
    dropout_schedule: str
    l2: float
    clip_norm: float | None
    clip_value: float | None
    average: float | None
    batch_size: int | None
    epochs: int | None
    epoch_rows: int | None
    validation: Any
    metric: str
    patience: int | None
    time_limit: float | None
    on_spike: str
    rollbacks: int
    augment: str | None
    task: str
    class_weight: str | Mapping[Any, float] | None
    init: str
    scaling: str
    ensemble: int
    calibrate: bool | None
    rates: str | None
    seed: int
    dtype: str
    device: str
    compile: bool
    threads: int | None
    checkpoint_every: int | None
    statistics_every: int | None


@functools.cache
def hints() -> dict[str, Any]:
    """Return the type of each field. Cached, because resolving the types is slow."""
    return typing.get_type_hints(Config)


def _fits(value: object, hint: Any) -> bool:
    if isinstance(hint, types.UnionType):
        return any(_fits(value, option) for option in typing.get_args(hint))
    if typing.get_origin(hint) is Mapping:
        return isinstance(value, dict) and all(_fits(one, float) for one in cast("dict[str, Any]", value).values())
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return value is None if hint is type(None) else isinstance(value, hint)


def _words(name: str) -> str:
    hint = hints()[name]
    names = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
    options = [option for option in typing.get_args(hint) or (hint,) if option is not type(None)]
    return " or ".join(names.get(option, "a number for each class") for option in options)
