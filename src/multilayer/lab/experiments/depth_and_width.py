"""Depth against width at equal numbers of parameters.

Constructed networks. The tent function g(x) = 2 relu(x) − 4 relu(x − 1/2) maps [0, 1] to itself. Applied k times, it is
a sawtooth with 2^k linear pieces (Telgarsky 2015). A network with k hidden layers of 2 units computes it exactly. It
classifies the 2^k + 1 points i/2^k correctly, whose labels alternate between 0 and 1. One hidden layer of N ReLU units
has at most N + 1 linear pieces, and each piece crosses the threshold at most once. Of n alternating points, it
therefore gets at least (n − N − 2)/2 wrong. With 2k units, it has as many parameters as the deep network: 6k + 1.

Trained networks. Each task is learned by networks with 1, 2, … hidden ReLU layers. For each depth, the width is the
largest that stays within the same number of parameters. AdamW trains each network with several learning rates. The
learning rate and the number of steps are those with the lowest error on validation rows. The validation rows also
select the number of layers of the deep network. The test error is the root mean square error divided by the standard
deviation of the target. For classes, it is the share of misclassified rows.

    composition   8 inputs; a binary tree of sin(w₁a + w₂b + φ) with random weights
    waves         8 inputs; a sum of cos(w·x + φ), a form that suits one hidden layer
    sawtooth      1 input; the tent function applied 4 times
    parity        10 bits; all rows are used for training, validation and test
    real tables   two thirds of the rows for training and validation, one third for the test

The networks have no normalization and no residual connections. These help networks that are deeper than those here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...drawing.plots import AnyPanel, Line, Panel
from ...errors import OptionError
from ...spec import Spec
from .. import tables
from ..criteria import Criterion
from ..curves import curve, curves
from ..experiment import Experiment, Published
from ..rows import Row, Rows
from ..training import Network, Task, Training, train

GENERATED = ("composition", "waves", "sawtooth", "parity")


@dataclass(frozen=True, kw_only=True)
class Settings:
    folds: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
    """Numbers k of hidden layers of the constructed networks."""
    depths: tuple[int, ...] = (1, 2, 3, 4, 6)
    parameters: int = 2000
    tables: tuple[str, ...] = ("digits", "breast_cancer", "diabetes")
    rows: int = 4000
    """Training rows of generated tasks, except for the sawtooth and parity."""
    steps: int = 4000
    learning_rates: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03)


def parts(settings: Settings) -> Sequence[str]:
    """Return the tasks, and the constructed networks."""
    if len(settings.depths) < 2 or not settings.tables:
        raise OptionError(
            f"give two or more depths and at least one table, got {settings.depths} and {settings.tables}"
        )
    return (*GENERATED, *settings.tables, "constructed")


def measure(settings: Settings, part: str, seed: int) -> Iterator[Row]:
    """Yield the errors of networks of each depth for one task."""
    if part == "constructed":
        yield from (_constructed(k) for k in settings.folds)
        return
    split = generated(part, settings.rows, seed) if part in GENERATED else _table(part, seed)
    for depth in settings.depths:
        yield {"task": Path(part).name, "depth": depth, **_best(split, depth, settings, seed)}


# The sawtooth


def _constructed(k: int) -> Row:
    x = np.arange(2**k + 1)[:, None] / 2**k
    labels = np.arange(2**k + 1) % 2
    wrong = np.mean((deep_sawtooth(k).outputs(x)[:, 0] > 0.5) != labels)
    return {
        "task": "constructed",
        "folds": k,
        "deep_units": 2 * k,
        "deep_wrong": float(wrong),
        "shallow_units": 2**k - 1,  # at least: a unit has one kink
        "shallow_wrong": shallow_wrong(2**k + 1, 2 * k),
    }


def deep_sawtooth(k: int) -> Network:
    """Return the network with k hidden layers of 2 units that is the tent applied k times."""
    tent = np.array([[2.0, -4.0]])
    tensors = {"linear1.weight": np.ones((2, 1)), f"linear{k + 1}.weight": tent, f"linear{k + 1}.bias": np.zeros(1)}
    for i in range(1, k + 1):
        tensors[f"linear{i}.weight"] = np.ones((2, 1)) if i == 1 else np.vstack([tent, tent])
        tensors[f"linear{i}.bias"] = np.array([0.0, -0.5])
    return Network(Spec.parse(f"1-(2:relu)*{k}-1"), tensors)


def shallow_wrong(points: int, units: int) -> float:
    """Return the smallest share of points with alternating labels that one hidden layer of ReLU units has wrong."""
    return max(0, math.ceil((points - units - 2) / 2)) / points


# Tasks


class Split(NamedTuple):
    training: Task
    validation: Task
    test: Task


def generated(name: str, rows: int, seed: int) -> Split:
    """Return the rows of a generated task."""
    rng = np.random.default_rng([seed, GENERATED.index(name)])
    if name == "parity":
        bits = np.arange(1024)[:, None] >> np.arange(10) & 1
        every = Task(x=2.0 * bits - 1, y=bits.sum(axis=1) % 2, loss="cross_entropy")
        return Split(every, every, every)
    d = 1 if name == "sawtooth" else 8
    x = rng.uniform(-1, 1, (rows * 2, d))
    if name == "sawtooth":
        y = deep_sawtooth(4).outputs((x + 1) / 2)[:, 0]
    else:
        y = composition(x, rng) if name == "composition" else waves(x, rng)
    return _split(Task(x=x, y=(y - y.mean()) / y.std()), rows)


def composition(x: NDArray[Any], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the values of a random binary tree whose nodes are sin(w₁a + w₂b + φ)."""
    values = x
    while values.shape[1] > 1:
        n = values.shape[1] // 2
        w = rng.uniform(1, 2, (n, 2)) * rng.choice([-1, 1], (n, 2))
        values = np.sin((values.reshape(len(x), n, 2) * w).sum(axis=2) + rng.uniform(0, 2 * np.pi, n))
    return values[:, 0]


def waves(x: NDArray[Any], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the values of a sum of 4 waves cos(w·x + φ) with random directions and |w| from 2 to 4."""
    w = rng.normal(size=(4, x.shape[1]))
    w *= rng.uniform(2, 4, (4, 1)) / np.linalg.norm(w, axis=1, keepdims=True)
    return np.cos(x @ w.T + rng.uniform(0, 2 * np.pi, 4)).sum(axis=1)


def _table(name: str, seed: int) -> Split:
    task = tables.of(name)
    order = np.random.default_rng([seed, 9]).permutation(len(task))
    return _split(task.rows(order), len(task) // 2)


def _split(task: Task, training: int) -> Split:
    """Return the first rows for training, and a third and two thirds of the others for validation and test."""
    tested = training + (len(task) - training) // 3
    rows = np.arange(len(task))
    return Split(task.rows(rows[:training]), task.rows(rows[training:tested]), task.rows(rows[tested:]))


# Training


def width(inputs: int, outputs: int, depth: int, parameters: int) -> int:
    """Return the largest width of `depth` hidden layers within a number of parameters.

    >>> width(1, 1, 1, 100), width(8, 1, 3, 2000)
    (33, 28)
    """
    # outputs + b·w + a·w² parameters
    a, b = depth - 1, inputs + depth + outputs
    free = parameters - outputs
    return max(1, int(free / b if not a else (math.sqrt(b * b + 4 * a * free) - b) / (2 * a)))


def _best(split: Split, depth: int, settings: Settings, seed: int) -> Row:
    """Return the test error with the learning rate and the number of steps that have the lowest validation error."""
    task = split.training
    outputs = tables.class_count(task) if task.loss == "cross_entropy" else 1
    units = width(task.x.shape[1], outputs, depth, settings.parameters)
    spec = Spec.parse("-".join([str(task.x.shape[1]), *[f"{units}:relu"] * depth, str(outputs)]))
    found: list[tuple[float, float, float]] = []
    at = [math.ceil(settings.steps * share) for share in (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)]
    for rate in settings.learning_rates:
        options = Training(
            steps=settings.steps, learning_rate=rate, batch=64, schedule="cosine", optimizer="adamw", init="torch",
            weight_decay=0.01, seed=seed, at=at,
        )  # fmt: skip
        for network in train(spec, task, options).stored.values():
            found.append((error(network, split.validation), error(network, split.test), rate))
    validated, tested, rate = min(found)
    return {
        "width": units,
        "parameters": spec.n_parameters,
        "validation": validated,
        "error": tested,
        "learning_rate": rate,
    }


def error(network: Network, task: Task) -> float:
    """Return the root mean square error relative to the standard deviation, or the share of wrong rows.

    Half a row is added to the wrong ones, so that errors have a ratio.
    """
    if task.loss == "cross_entropy":
        return (network.error(task) * len(task) + 0.5) / (len(task) + 1)
    y = task.targets
    return float(np.sqrt(np.mean((network.outputs(task.x) - y) ** 2)) / y.std())


# Results


def ratio(rows: Rows, task: str) -> float:
    """Return the mean error of the deep network with the lowest validation error, relative to one hidden layer."""
    own = rows.where(task=task)
    first = min(own.values("depth"))
    deep = [
        min(one.having(lambda row: row["depth"] > first), key=lambda row: row["validation"])["error"]
        for _, one in own.by("seed")
    ]
    return float(np.mean(deep)) / own.where(depth=first).mean("error")


def _tables(rows: Rows) -> list[str]:
    return [name for name in rows.distinct("task") if name not in (*GENERATED, "constructed")]


def real_ratio(rows: Rows) -> float:
    """Return the geometric mean over the real tables of the ratio."""
    found = [math.log(ratio(rows, name)) for name in _tables(rows)]
    return math.exp(sum(found) / len(found))


def _deepest(rows: Rows) -> Rows:
    own = rows.where(task="constructed")
    return own.where(folds=max(own.values("folds")))


def _alternating(row: Row) -> str:
    return (
        f"k = {row['folds']}: {row['shallow_wrong']:.2f} or more with one hidden layer of {row['deep_units']} units; "
        f"{row['deep_wrong']:.2f} with 2 units in each of {row['folds']} hidden layers"
    )


def summary(rows: Rows) -> str:
    last = _deepest(rows)[0]
    changes = ", ".join(f"{ratio(rows, name):.2f} for {name}" for name in GENERATED)
    return (
        f"{last['deep_units']} units in {last['folds']} layers compute {last['shallow_units'] + 1} linear pieces. One "
        f"hidden layer needs at least {last['shallow_units']} units for them. With equal numbers of parameters, the "
        f"test error of deep networks divided by that of one hidden layer is {changes}, and {real_ratio(rows):.2f} "
        "for real tables."
    )


def _lines(rows: Rows, names: Sequence[str]) -> list[Line]:
    chosen = rows.having(lambda row: row["task"] in names)
    return list(curves(chosen, "depth", "error", "task"))


def panels(rows: Rows) -> Sequence[AnyPanel]:
    own = rows.where(task="constructed")
    return [
        Panel(
            title="units for a sawtooth with 2ᵏ pieces",
            lines=[
                curve(own, "folds", "shallow_units", name="one layer, at least"),
                curve(own, "folds", "deep_units", name="k hidden layers"),
            ],
            x_label="k",
            log_y=True,
        ),
        Panel(
            title="2ᵏ + 1 alternating points, 6k + 1 parameters",
            lines=[
                curve(own, "folds", "shallow_wrong", name="one hidden layer"),
                curve(own, "folds", "deep_wrong", name="k hidden layers"),
            ],
            x_label="k",
            y_label="share of points wrong",
            limits=(-0.03, 0.53),
        ),
        Panel(
            title="generated tasks, equal numbers of parameters",
            lines=_lines(rows, GENERATED),
            x_label="hidden layers",
            y_label="test error",
            limits=(-0.03, 1.0),
        ),
        Panel(
            title="real tables, equal numbers of parameters",
            lines=_lines(rows, _tables(rows)),
            x_label="hidden layers",
            y_label="test error",
            log_y=True,
        ),
    ]


EXPERIMENT = Experiment(
    name="depth_and_width",
    title="Depth against width",
    claim="Deep networks build complex features from simple ones. Some functions need exponentially many units in one "
    "hidden layer, but few units in many layers. With the same number of parameters, deep narrow networks generalize "
    "much better than shallow wide ones.",
    sources=(
        "Telgarsky 2015, Representation benefits of deep feedforward networks",
        "Telgarsky 2016, Benefits of depth in neural networks",
        "Poggio, Mhaskar, Rosasco, Miranda and Liao 2017, Why and when can deep-but not shallow-networks avoid the "
        "curse of dimensionality: a review",
    ),
    settings=Settings(),
    full=Settings(depths=(1, 2, 3, 4, 6, 8), parameters=10_000, rows=20_000, steps=30_000),
    tiny=Settings(
        folds=(1, 6), depths=(1, 3), parameters=500, tables=("wine",), rows=1000, steps=1000, learning_rates=(0.01,)
    ),
    seeds=6,
    full_seeds=20,
    parts=parts,
    measure=measure,
    criteria=(
        Criterion(
            statement="Networks with k hidden layers of 2 units get no alternating point wrong, for every k.",
            value=lambda rows: max(rows.where(task="constructed").values("deep_wrong")),
            at_most=0.0,
        ),
        Criterion(
            statement="One hidden layer with as many parameters gets at least 1/6 of the points wrong (largest k).",
            value=lambda rows: _deepest(rows).mean("shallow_wrong"),
            at_least=1 / 6,
        ),
        Criterion(
            statement="Composition: the test error of deep networks is at most 0.5 times that of one hidden layer.",
            value=lambda rows: ratio(rows, "composition"),
            at_most=0.5,
            log=True,
        ),
        Criterion(
            statement="Real tables: the test error of deep networks is at most 0.8 times that of one hidden layer.",
            value=real_ratio,
            at_most=0.8,
            log=True,
        ),
    ),
    summary=summary,
    panels=panels,
    published=(
        Published(
            what="Share of 2^k alternating points that l layers of width 2^((k−3)/l − 1) or less get wrong",
            theirs="1/6 or more; a deep network with 2 units in each of 2k layers gets none wrong",
            source="Telgarsky 2015, theorem 1.1",
            ours=lambda rows: _alternating(_deepest(rows)[0]),
        ),
    ),
)
