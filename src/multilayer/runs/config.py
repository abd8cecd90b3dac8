"""The training options of a run: `Config`, with the default, the type and the help text of each option.

The options of `mlp train`, TOML files and the keywords of `ml.fit` become a `Config`, which a run folder saves. The
command line and the documentation are derived from it. Options such as arrays, which are not stored as JSON, are in
`data.DataOptions`.
"""

from __future__ import annotations

import functools
import math
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypedDict, cast

import numpy as np

from ..core import atomic_files
from ..core.formatting import listed, percent
from ..core.options import check_choice, check_not_negative, check_positive, check_readable, described
from ..data import Encoding
from ..data.options import DataConfig
from ..engines.config import EngineConfig
from ..errors import OptionError, option_name, unknown_name
from ..nn import losses, schedules
from ..nn.layers import Parameter
from ..spec import Spec

OnSpike = Literal["rollback", "stop", "ignore"]
ON_SPIKE: tuple[OnSpike, ...] = typing.get_args(OnSpike)

# Constants of the rules in `training.plan`, which choose values for options left at None. They were chosen on
# generated tables: docs/decisions/0050-default-options.md.
RATE = 0.01
WIDE = 64
"""A layer with more inputs lowers the learning rate."""
BATCH, SMALLEST_BATCH = 256, 16
STEPS_PER_EPOCH = 40
"""Fewest steps of an epoch with a batch of `BATCH` rows."""
STEPS = 8000
FEWEST_EPOCHS, MOST_EPOCHS = 20, 1500
PATIENCE, LEAST_PATIENCE = 0.3, 10
"""Fraction of the epochs, and number of epochs."""
RECIPE_RATE = {"classes": 0.04, "numbers": 0.2, "counts": 0.02}
"""Learning rates of the tabular recipe (`training.recipe`), whose layers are scaled by 1/√inputs."""
CHECKPOINT_STEPS = 500
CHECKPOINTS = 25
"""Once the interval between checkpoints grows, it is at most 1 / CHECKPOINTS of the steps so far."""


MAX_TOML = 1 << 20
"""Largest size of an option file, in bytes."""


@dataclass(frozen=True, kw_only=True)
class Config(EngineConfig, DataConfig):  # the checks call each other in this order, engines before data
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

    learning_rate: float | None = described(
        None, f"Peak learning rate; auto is {RATE}, or lower if a layer has more than {WIDE} inputs.", auto=True
    )
    schedule: str = described("cosine(warmup=0.05)", "Learning rate schedule: constant, cosine, one_cycle, coslog, …")
    weight_decay: float = described(0.1, "Decoupled weight decay on weight matrices.")
    decay_schedule: str = described("constant", "Weight decay schedule.")
    dropout_schedule: str = described("constant", "Dropout schedule.")
    batch_size: int | None = described(
        None,
        f"Rows per step; auto is {BATCH}, or fewer (at least {SMALLEST_BATCH}) if an epoch would have fewer than "
        f"{STEPS_PER_EPOCH} steps.",
        auto=True,
    )
    epochs: int | None = described(
        None, f"Passes over the training rows; auto chooses about {STEPS:,} steps.", auto=True
    )
    epoch_rows: int | None = described(None, "Rows per epoch, sampled for each epoch; none uses all rows.")
    metric: str = described(
        "loss",
        "Validation metric that selects the best epoch: loss, accuracy, r2, …; auto uses the default of the task.",
    )
    patience: int | None = described(
        None,
        f"Epochs without improvement before training stops; auto is {percent(PATIENCE)} of the epochs, or no limit "
        "if epochs is set.",
        auto=True,
    )
    time_limit: float | None = described(None, "Stop this many seconds after the start.")
    on_spike: str = described("rollback", f"What to do if the loss spikes: {listed(ON_SPIKE)}.")
    rollbacks: int = described(3, "Maximum number of rollbacks.")
    calibrate: bool | None = described(
        None, "Calibrate probabilities and intervals on held-out rows; auto calibrates only probabilities.", auto=True
    )
    rates: str | None = described(
        None, "Factors of the learning rate for groups of parameters: bias=0.1, scale=6, columns.weight=0.1."
    )
    checkpoint_every: int | None = described(
        None,
        f"Steps between checkpoints; auto is a number of epochs with at least {CHECKPOINT_STEPS} steps, and grows to "
        f"{100 // CHECKPOINTS} % of the steps so far.",
        auto=True,
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
            if spec.name == "time_limit" and value == math.inf:
                value = None
            object.__setattr__(self, spec.name, value)
            if not _fits(value, hints()[spec.name]):
                raise OptionError(f"{option_name(spec.name)} must be {_words(spec.name)}, got {value!r}")
        super().__post_init__()
        check_positive(self, "learning_rate", "batch_size", "epochs", "epoch_rows", "patience", "time_limit")
        check_positive(self, "checkpoint_every")
        check_not_negative(self, "weight_decay", "rollbacks")
        if self.learning_rate is not None and not math.isfinite(self.learning_rate):
            raise OptionError(f"{option_name('learning_rate')} must be finite, got {self.learning_rate!r}")
        for name in ("schedule", "decay_schedule", "dropout_schedule"):
            check_readable(self, name, schedules.get)
        self.rate_factors({})
        check_choice(self, "on_spike", ON_SPIKE)

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


def learning_rate(spec: Spec) -> float:
    """Return the default of the peak learning rate.

    >>> from multilayer import Spec
    >>> learning_rate(Spec.parse("4-16-3")), learning_rate(Spec.parse("256-64-1"))
    (0.01, 0.005)
    """
    widest = max((entry.width_in for entry in spec.entries), default=1)
    return RATE * min(1.0, math.sqrt(WIDE / max(widest, 1)))


def kind_of(encoding: Encoding) -> Literal["classes", "numbers", "counts"]:
    """Return what is predicted, for the choices of the recipe. Counts are numbers with an exponential link."""
    if encoding.task.classifies:
        return "classes"
    return "counts" if losses.get(encoding.loss).link == "exp" else "numbers"
