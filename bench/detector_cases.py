"""The cases of bench/detectors.py: a network, a table and options of `ml.fit`, healthy or with one seeded fault.

The name of a case, KIND/SET/NUMBER such as "dead_units/choose/3", determines everything. The sets have other seeds,
other tables (detector_tables) and other depths. A fault is seeded as users make it: a rate that is too high, a wrong
initialization, a column that tells the target. Whether it is really there is measured afterwards (detector_truth).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from detector_tables import BUNDLED, CLASSES, NONLINEAR, NUMBERS, Loaded, TableSpec, load

SETS = ("choose", "earlier", "report")
"""Thresholds are chosen on the first two. The second was the set of an earlier report."""
DEPTHS = {"choose": (1, 3, 5, 7), "earlier": (2, 4, 6, 8), "report": (2, 3, 6, 9)}
WIDTHS = {"choose": (16, 24, 32, 48), "earlier": (16, 24, 32, 48), "report": (20, 28, 36, 56)}
"""Widths of hidden layers. Networks of more than four do not have the last."""
HEALTHY = "healthy"
STEPS = (400, 800, 1500, 2500)
Random = np.random.Generator


@dataclass(frozen=True, kw_only=True)
class Case:
    """A network, a table and options, by the name from which they are rebuilt.

    `hidden` is the part of the network between inputs and outputs, such as "16:relu-16:relu". None is the tabular
    recipe.
    """

    name: str
    table: TableSpec
    hidden: str | None
    options: Mapping[str, Any] = field(default_factory=dict)
    spec: str | None = None
    """A whole network, from a remedy. It replaces `hidden`."""
    dropped_columns: tuple[str, ...] = ()
    dropped_rows: tuple[int, ...] = ()
    """Columns and training rows that a remedy leaves out."""

    @property
    def kind(self) -> str:
        return self.name.split("/")[0]

    @property
    def part(self) -> str:
        return self.name.split("/")[1]

    @property
    def loaded(self) -> Loaded:
        """The table and its test rows."""
        return load(self.table).without(self.dropped_columns, self.dropped_rows)

    @property
    def network(self) -> str | None:
        """The network, with the inputs and outputs of the table."""
        if self.spec is not None or self.hidden is None:
            return self.spec
        table = self.loaded
        sizes = ", ".join(map(str, table.categories))
        inputs = f"{table.numbers}+cat({sizes})-columns" if sizes else str(table.numbers)
        regression = self.options.get("task") == "regression" or table.classes <= 2
        return "-".join(part for part in (inputs, self.hidden, str(1 if regression else table.classes)) if part)

    def with_changes(self, changes: Mapping[str, Any]) -> Case:
        """Return the case with the changes of a remedy (`Remedy.changes`)."""
        rest = dict(changes)
        columns, rows = rest.pop("drop_columns", ()), rest.pop("drop_rows", ())
        changed = replace(
            self,
            spec=rest.pop("spec", self.spec),
            dropped_columns=(*self.dropped_columns, *columns),
            dropped_rows=(*self.dropped_rows, *rows),
        )
        return changed.with_options(**rest)

    def with_options(self, **options: Any) -> Case:
        """Return the case with other options. An option of None is left out."""
        merged = {**self.options, **options}
        return replace(self, options={name: value for name, value in merged.items() if value is not None})

    def describe(self) -> dict[str, Any]:
        """Return the whole case as JSON values."""
        usual = asdict(TableSpec(family="", seed=0))
        table = {name: value for name, value in asdict(self.table).items() if value != usual[name]}
        return {"name": self.name, "network": self.network, "table": table, "options": dict(self.options)}


def case(name: str) -> Case:
    """Return the case with a name.

    >>> case("symmetric_units/choose/0") == case("symmetric_units/choose/0")
    True
    """
    kind, part, number = name.split("/")
    random = np.random.default_rng([zlib.crc32(kind.encode()), SETS.index(part), int(number)])
    made = MAKERS[kind](random, part)
    options = {"seed": int(random.integers(1000)), "threads": 1, **made.options}
    return replace(made, name=name, options=options)


# Tables


def table_of(random: Random, part: str, *, kind: str = "any", families: tuple[str, ...] = ()) -> TableSpec:
    """Return a random table of a set. `kind` is "classes", "numbers" or "any"."""
    listed = {"classes": CLASSES[part], "numbers": NUMBERS[part], "any": CLASSES[part] + NUMBERS[part]}[kind]
    family = _pick(random, families or listed)
    return TableSpec(
        family=family,
        seed=int(random.integers(1 << 30)),
        rows=int(np.exp(random.uniform(np.log(250), np.log(900)))),
        columns=int(random.integers(5, 13)),
        noise=float(np.round(random.uniform(0.05, 0.3), 3)),
        mixed=bool(random.random() < 0.3),
        tails=bool(random.random() < 0.15) and family not in BUNDLED,
        categories=int(random.integers(1, 3)) if random.random() < 0.2 and family not in BUNDLED else 0,
        decades=float(_pick(random, (0.0, 0.0, 3.0))) if family not in BUNDLED else 0.0,
    )


def _pick(random: Random, choices: Any) -> Any:
    return choices[int(random.integers(len(choices)))]


def _log_uniform(random: Random, low: float, high: float) -> float:
    return float(f"{np.exp(random.uniform(np.log(low), np.log(high))):.2g}")


# Networks and options without a fault


def layers(depth: int, width: int, activation: str, *, norm: str = "", dropout: float = 0.0) -> str:
    """Return hidden layers of one width."""
    one = ":".join(
        part
        for part in (str(width), norm, activation, f"dropout({dropout:g})" if dropout else "")
        if part  # ReLU is the default, but norms and dropout do not add it
    )
    return "-".join([one] * depth)


def depth_of(random: Random, part: str, *, least: int = 1) -> int:
    return int(_pick(random, [depth for depth in DEPTHS[part] if depth >= least]))


def width_of(random: Random, part: str, depth: int) -> int:
    return int(_pick(random, WIDTHS[part][: 4 if depth <= 4 else 3]))


def steps(table: TableSpec, wanted: int, batch: int, share: float = 0.2) -> int:
    """Return the number of epochs that gives about `wanted` steps."""
    rows = len(load(table).train) * (1 - share)
    return max(5, round(wanted / max(1, -(-rows // batch))))


def own_options(random: Random, table: TableSpec, depth: int, *, wanted: int | None = None) -> dict[str, Any]:
    """Return reasonable options that a user sets: optimizer, rate, batch size and epochs."""
    batch = int(_pick(random, (16, 32, 64)))
    optimizer, low, high = _pick(
        random, (("adamw", 0.003, 0.01), ("adam", 0.003, 0.01), ("momentum", 0.02, 0.1), ("nesterov", 0.02, 0.1))
    )
    rate = _log_uniform(random, low, high) / (1 if depth <= 4 else 3)
    return {
        "optimizer": optimizer,
        "learning_rate": float(f"{rate:.2g}"),
        "batch_size": batch,
        "epochs": steps(table, wanted or int(_pick(random, STEPS[1:])), batch),
        "weight_decay": float(_pick(random, (0.0, 0.01, 0.1))) if optimizer == "adamw" else 0.0,
        "schedule": str(_pick(random, ("cosine(warmup=0.05)", "cosine", "one_cycle"))),
    }


def healthy(random: Random, part: str) -> Case:
    """Return a network that is expected to train well: with default options, own options, or the recipe."""
    table = replace(table_of(random, part), rows=int(random.integers(350, 1000)))
    style = random.random()
    if style < 0.12:
        options: dict[str, Any] = {"hidden": [int(_pick(random, (64, 128)))] * int(random.integers(1, 3))}
        options |= {"epochs": int(_pick(random, (64, 96))), "ensemble": int(_pick(random, (1, 2)))}
        return Case(name="", table=table, hidden=None, options=options)
    depth = depth_of(random, part)
    names = ("relu", "gelu", "silu", "tanh", "leaky_relu", "elu", "mish", "selu")
    if depth <= 2:
        names += ("sigmoid", "softplus")
    norm = str(_pick(random, ("", "", "", "layernorm", "batchnorm")))
    dropout = float(_pick(random, (0.0, 0.0, 0.1))) if depth <= 3 else 0.0
    hidden = layers(depth, width_of(random, part, depth), _pick(random, names), norm=norm, dropout=dropout)
    if depth >= 4 and random.random() < 0.25:
        width = width_of(random, part, depth)
        hidden = f"{width}:none-[layernorm-{width}:gelu-{width}]*{depth // 2}"
    options = {}
    if style < 0.55:
        options = own_options(random, table, depth)
        if norm == "batchnorm":
            options["batch_size"] = max(32, options["batch_size"])
        if random.random() < 0.5:
            options["patience"] = max(10, options["epochs"] // 4)
        if random.random() < 0.15:
            engine = str(_pick(random, ("numpy", "torch")))
            options |= {"engine": engine, "epochs": min(options["epochs"], 20)}
    return Case(name="", table=table, hidden=hidden, options=options)


# Faults


def dead_units(random: Random, part: str) -> Case:
    """ReLU units that die in the first steps: a high rate without warmup, or columns with a large mean."""
    table, depth = table_of(random, part), depth_of(random, part)
    hidden = layers(depth, width_of(random, part, depth), "relu")
    batch = int(_pick(random, (16, 32, 64)))
    options: dict[str, Any] = {"batch_size": batch, "epochs": steps(table, int(_pick(random, STEPS)), batch)}
    cause = _pick(random, ("adam", "adam", "sgd", "offset"))
    if cause == "adam":
        rate = _log_uniform(random, 0.15, 2) / (1 if depth <= 2 else 4)
        options |= {"optimizer": str(_pick(random, ("adam", "adamw"))), "learning_rate": float(f"{rate:.2g}")}
    elif cause == "sgd":
        name = str(_pick(random, ("sgd", "momentum")))
        rate = _log_uniform(random, 1, 8) if name == "sgd" else _log_uniform(random, 0.3, 2)
        options |= {"optimizer": name, "learning_rate": rate, "weight_decay": 0.0}
    else:
        table = replace(table, offset=True, decades=0.0, tails=False)
        options |= {"scaling": "none", "optimizer": "adam", "learning_rate": _log_uniform(random, 0.003, 0.05)}
    options |= {"schedule": str(_pick(random, ("cosine", "constant"))), "on_spike": _spikes(random)}
    return Case(name="", table=table, hidden=hidden, options=options)


def _spikes(random: Random) -> str:
    return str(_pick(random, ("rollback", "ignore")))


def saturated_units(random: Random, part: str) -> Case:
    """Sigmoid and tanh units far from zero: large initial weights, or columns that are not scaled."""
    table, depth = table_of(random, part), depth_of(random, part)
    width = width_of(random, part, depth)
    hidden = layers(depth, width, _pick(random, ("sigmoid", "tanh", "tanh", "hard_tanh")))
    options = own_options(random, table, depth)
    if random.random() < 0.5:
        options["init"] = f"normal({_log_uniform(random, 100, 10_000):g})"
    else:
        table = replace(table, decades=float(_pick(random, (3.0, 4.0, 6.0))), tails=False, offset=True)
        table = replace(table, family=_pick(random, tuple(f for f in FAMILIES_OF[part] if f not in BUNDLED)))
        options |= {"scaling": "none"}
    return Case(name="", table=table, hidden=hidden, options=options)


def vanishing_gradients(random: Random, part: str) -> Case:
    """Deep stacks of sigmoids, or initial weights that are too small."""
    table, depth = table_of(random, part), depth_of(random, part, least=3)
    width = width_of(random, part, depth)
    options = own_options(random, table, depth)
    name = str(_pick(random, ("sgd", "sgd", "momentum", "momentum", "adam", "adamw")))
    options |= {
        "optimizer": name,
        "learning_rate": {"sgd": 0.1, "momentum": 0.05}.get(name, 0.003),
        "weight_decay": 0.0,
    }
    if random.random() < 0.5:
        activation = "sigmoid"
        options["init"] = str(_pick(random, ("lecun", "xavier", "torch", "normal(0.01)")))
    else:
        activation = str(_pick(random, ("relu", "tanh", "gelu", "silu")))
        options["init"] = f"normal({_log_uniform(random, 1e-6, 3e-3) / (width / 16):.2g})"
    return Case(name="", table=table, hidden=layers(depth, width, activation), options=options)


def exploding_gradients(random: Random, part: str) -> Case:
    """Deep networks with too large initial weights and no norm."""
    table, depth = table_of(random, part), depth_of(random, part, least=3)
    width = width_of(random, part, depth)
    options = own_options(random, table, depth)
    options |= {
        "on_spike": _spikes(random),
        "init": f"normal({_log_uniform(random, 0.6, 4) * (1 if depth > 4 else 2):g})",
    }
    activation = str(_pick(random, ("relu", "leaky_relu", "gelu", "silu", "elu")))
    return Case(name="", table=table, hidden=layers(depth, width, activation), options=options)


def symmetric_units(random: Random, part: str) -> Case:
    """All weights of a layer start equal."""
    table, depth = table_of(random, part), depth_of(random, part)
    options = own_options(random, table, depth)
    options["init"] = str(_pick(random, ("zeros", "constant(0.1)", "constant(0.01)", "constant(0.5)")))
    activation = str(_pick(random, ("relu", "tanh", "sigmoid", "gelu", "silu")))
    return Case(name="", table=table, hidden=layers(depth, width_of(random, part, depth), activation), options=options)


def rate_too_high(random: Random, part: str) -> Case:
    """A rate far above the best one."""
    made = _other_rate(random, part, _log_uniform(random, 50, 1000))
    return made.with_options(schedule=str(_pick(random, ("constant", "constant", "cosine"))))


def rate_too_low(random: Random, part: str) -> Case:
    """A rate far below the best one."""
    return _other_rate(random, part, 1 / _log_uniform(random, 100, 3000))


def _other_rate(random: Random, part: str, factor: float) -> Case:
    table, depth = table_of(random, part), depth_of(random, part)
    options = own_options(random, table, depth)
    options["learning_rate"] = float(f"{factor * options['learning_rate']:.2g}")
    if factor > 1:
        options["on_spike"] = _spikes(random)
    activation = str(_pick(random, ("relu", "gelu", "tanh", "silu", "leaky_relu", "elu")))
    norm = "layernorm" if random.random() < 0.2 else ""
    hidden = layers(depth, width_of(random, part, depth), activation, norm=norm)
    return Case(name="", table=table, hidden=hidden, options=options)


def overfitting(random: Random, part: str) -> Case:
    """A large network, a small noisy table, no regularization, many epochs and no patience."""
    table, depth = table_of(random, part), int(_pick(random, DEPTHS[part][:2]))
    if table.family in BUNDLED and table.family != "diabetes":  # these have little noise
        table = replace(table, family={"choose": "moons", "earlier": "shells"}[part])
    table = replace(table, rows=int(random.integers(60, 200)), noise=float(np.round(random.uniform(0.5, 1.0), 2)))
    if random.random() < 0.4:
        table = replace(table, columns=int(random.integers(20, 60)))
    activation = str(_pick(random, ("relu", "gelu", "tanh", "silu")))
    options: dict[str, Any] = {
        "optimizer": str(_pick(random, ("adam", "adamw"))),
        "learning_rate": _log_uniform(random, 0.002, 0.008),
        "weight_decay": 0.0,
        "batch_size": int(_pick(random, (16, 32))),
        "schedule": str(_pick(random, ("constant", "cosine"))),
    }
    options["epochs"] = steps(table, 2000, options["batch_size"])
    hidden = layers(depth, int(_pick(random, (48, 64, 96))), activation)
    return Case(name="", table=table, hidden=hidden, options=options)


def underfitting(random: Random, part: str) -> Case:
    """A linear, narrow or too strongly regularized network for a nonlinear target."""
    table = table_of(random, part, families=NONLINEAR[part])
    table = replace(table, rows=int(random.integers(400, 900)), tails=False)
    cause, depth = _pick(random, ("linear", "narrow", "decay", "dropout", "l2")), depth_of(random, part)
    activation = str(_pick(random, ("relu", "gelu", "tanh", "silu")))
    options = own_options(random, table, depth) if random.random() < 0.5 else {}
    if cause == "linear":
        hidden = "" if random.random() < 0.6 else layers(depth, 16, "none")
    elif cause == "narrow":
        hidden = layers(depth, int(_pick(random, (1, 2))), activation)
    elif cause == "dropout":
        hidden = layers(depth, 24, activation, dropout=float(_pick(random, (0.7, 0.8, 0.9))))
    else:
        hidden = layers(depth, 24, activation)
        if cause == "decay":
            options |= {"optimizer": "adamw", "weight_decay": _log_uniform(random, 5, 50)}
            options |= {"learning_rate": 0.005} if "learning_rate" in options else {}
        else:
            options["l2"] = _log_uniform(random, 0.05, 1)
    return Case(name="", table=table, hidden=hidden, options=options)


def unscaled_inputs(random: Random, part: str) -> Case:
    """Columns of very different size, and scaling="none"."""
    table = table_of(random, part, families=tuple(f for f in FAMILIES_OF[part] if f not in BUNDLED))
    table = replace(table, decades=float(_pick(random, (4.0, 5.0, 6.0))), offset=bool(random.random() < 0.4))
    natural = {"choose": "breast_cancer", "earlier": "wine"}  # these have columns of different sizes by nature
    if random.random() < 0.3 and part in natural:
        table = replace(table, family=natural[part], decades=0.0)
        table = replace(table, offset=False, tails=False, categories=0)
    depth = depth_of(random, part)
    options = {**(own_options(random, table, depth) if random.random() < 0.5 else {}), "scaling": "none"}
    activation = str(_pick(random, ("relu", "gelu", "tanh", "silu", "sigmoid" if depth <= 3 else "elu")))
    return Case(name="", table=table, hidden=layers(depth, width_of(random, part, depth), activation), options=options)


def label_noise(random: Random, part: str) -> Case:
    """20 to 40 % of the labels are replaced by another class."""
    table = table_of(random, part, kind="classes")
    least = 300 if table.family in BUNDLED else 500
    table = replace(table, flipped=float(np.round(random.uniform(0.2, 0.35), 3)), noise=0.05, tails=False)
    return _usual(random, part, replace(table, rows=int(random.integers(least, 1000))))


def leakage(random: Random, part: str) -> Case:
    """A column that is the target with little noise, or a code of it."""
    table = table_of(random, part)
    table = replace(table, leak=str(_pick(random, ("number", "code", "text", "bins"))))
    return _usual(random, part, replace(table, noise=float(np.round(random.uniform(0.3, 0.8), 2))))


def wrong_loss(random: Random, part: str) -> Case:
    """Classes as numbers, counts with mse, or outliers with mse."""
    cause = _pick(random, ("codes", "many", "counts", "outliers"))
    if cause in ("codes", "many"):
        table = table_of(random, part, families=UNORDERED[part])
        if cause == "many":
            table = replace(table, family="many", tails=False, rows=int(random.integers(600, 1000)))
            return _usual(random, part, table)
        made = _usual(random, part, table)
        return made.with_options(task="regression")
    families = tuple(family for family in NUMBERS[part] if family not in BUNDLED)
    table = replace(table_of(random, part, families=families), target=cause, tails=False)
    made = _usual(random, part, replace(table, rows=int(random.integers(400, 1000))))
    return made.with_options(task="regression", loss="mse")


def batch_norm_small_batch(random: Random, part: str) -> Case:
    """Batch norm with batches of 2 to 4 rows."""
    table, depth = table_of(random, part), depth_of(random, part)
    table = replace(table, rows=2 * int(random.integers(100, 250)))
    sizes: list[int] = []
    while not sizes:
        table = replace(table, rows=len(load(table).train) - 1)
        rows = table.rows - round(0.2 * table.rows)
        sizes = [size for size in (2, 3, 4) if rows % size != 1]  # a batch of one row is an error
    batch = int(_pick(random, sizes))
    options: dict[str, Any] = {
        "optimizer": str(_pick(random, ("adam", "adamw", "momentum"))),
        "batch_size": batch,
        "epochs": max(8, steps(table, 2500, batch)),
    }
    options["learning_rate"] = _log_uniform(random, 0.001, 0.01)
    activation = str(_pick(random, ("relu", "gelu", "tanh", "silu")))
    hidden = layers(depth, width_of(random, part, depth), activation, norm="batchnorm")
    return Case(name="", table=table, hidden=hidden, options=options)


def _usual(random: Random, part: str, table: TableSpec) -> Case:
    """Return a sound network for a table that has a fault."""
    depth = depth_of(random, part)
    activation = str(_pick(random, ("relu", "gelu", "tanh", "silu", "elu")))
    options = own_options(random, table, depth) if random.random() < 0.4 else {}
    return Case(name="", table=table, hidden=layers(depth, width_of(random, part, depth), activation), options=options)


UNORDERED = {
    "choose": ("blobs", "clusters", "network"),
    "earlier": ("spirals", "digits", "wine"),
    "report": ("covariances", "tree", "islands"),
}
"""Families with several classes whose numbers have no order."""
FAMILIES_OF = {part: CLASSES[part] + NUMBERS[part] for part in SETS}
FAULTS: dict[str, Callable[[Random, str], Case]] = {
    made.__name__: made
    for made in (
        dead_units,
        saturated_units,
        vanishing_gradients,
        exploding_gradients,
        symmetric_units,
        rate_too_high,
        rate_too_low,
        overfitting,
        underfitting,
        unscaled_inputs,
        label_noise,
        leakage,
        wrong_loss,
        batch_norm_small_batch,
    )
}
MAKERS: dict[str, Callable[[Random, str], Case]] = {**FAULTS, HEALTHY: healthy}
