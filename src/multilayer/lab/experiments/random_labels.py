"""Fitting random labels.

First part. A share of the training labels is replaced by classes drawn at random, all with equal probability. A network
with one hidden ReLU layer and many more parameters than rows is trained on these labels by Adam, with all rows in each
step. The test rows keep their true labels.

    training error   share of the training rows for which the predicted class is not the given label, random or true
    steps to fit     number of steps after which the training error is 0 for the first time, known to within 10 %
    chance           1 − 1/C for C classes: the error of random guessing

Second part: how many parameters are enough? Each training row gets a random bit as its label. Networks with one output
and an increasing number of hidden units are trained on these bits. For comparison, they are also trained on a bit that
can be learned: whether the class is in the upper half of the classes.

Third part, without training. Zhang et al. (2017) prove that 2n + d weights can fit any n numbers at n different points
in d dimensions. All hidden units use the same direction a, so unit j is relu(aᵀx − b_j). The rows are sorted by aᵀx,
and b_j lies between rows j − 1 and j. Then unit j is 0 for the first j − 1 rows, so the output weights follow from a
triangular system of equations, one row after another. The weights are a (d), b (n) and the output weights (n).

The experiment leaves out convolutional networks, regularization, and the optimizers of the original paper.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...drawing.plots import AnyPanel, Line, Panel
from ...spec import Spec
from ..criteria import Criterion
from ..curves import curve, curves
from ..experiment import Experiment, Published, need
from ..rows import Row, Rows
from ..tables import class_count, classification, divided
from ..training import Network, Task, Training, train

GROWTH = 1.1
"""Factor between two numbers of steps at which the training error is measured."""
SHOWN = 3
"""Every `SHOWN`-th of these measurements is a row of the result."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    data: str = "digits"
    rows: int = 500
    width: int = 512
    shares: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    steps: int = 1000
    learning_rate: float = 0.003
    per_row: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
    """Parameters per row in the second part."""
    long_steps: int = 5000
    """Training steps in the second part."""


def parts(settings: Settings) -> Sequence[tuple[str, float]]:
    """Return each kind of measurement, with the share of random labels or the parameters per row."""
    need("shares", settings.shares, includes=(0.0, 1.0))
    need("per_row", settings.per_row, includes=(0.25, 4.0))
    shares = [("share", share) for share in settings.shares]
    return [*shares, *(("capacity", ratio) for ratio in settings.per_row), ("construction", 0.0)]


def measure(settings: Settings, part: tuple[str, float], seed: int) -> Iterator[Row]:
    kind, number = part
    training, test = divided(classification(settings.data), rows=settings.rows, seed=seed)
    generator = np.random.default_rng([seed, 1])
    if kind == "share":
        yield from _fit(settings, number, training, test, seed)
    elif kind == "capacity":
        bits = generator.integers(0, 2, len(training))
        for labels, y in (("random", bits), ("true", training.y >= class_count(training) / 2)):
            yield _memorize(settings, number, Task(x=training.x, y=y, loss="binary_cross_entropy"), seed, labels)
    else:
        x = training.x[np.sort(np.unique(training.x, axis=0, return_index=True)[1])]  # the points must be different
        y = generator.normal(size=len(x))
        found = interpolating(x, y, generator)
        largest = float(np.abs(found.outputs(x)[:, 0] - y).max() / np.abs(y).max())
        yield {"kind": kind, "weights": sum(x.shape) + len(x), "largest": largest}


def _fit(settings: Settings, share: float, training: Task, test: Task, seed: int) -> Iterator[Row]:
    """Train on labels of which a share is random, and yield the training error during training."""
    classes = class_count(classification(settings.data))
    task = Task(x=training.x, y=randomized(training.y, share, classes, seed), loss="cross_entropy")
    at = _times(settings.steps)
    options = Training(steps=settings.steps, learning_rate=settings.learning_rate, at=at, seed=seed)
    trained = train(f"{task.x.shape[1]}-{settings.width}:relu-{classes}", task, options)
    errors = {steps: network.error(task) for steps, network in trained.stored.items()}
    for steps in at[::SHOWN]:
        yield {"kind": "course", "share": share, "steps": steps, "training_error": errors[steps]}
    yield {
        "kind": "fit",
        "share": share,
        "fitted_after": min((steps for steps, error in errors.items() if error == 0), default=float("inf")),
        "training_error": trained.network.error(task),
        "test_error": trained.network.error(test),
        "chance": 1 - 1 / classes,
        "parameters_per_row": trained.network.spec.n_parameters / len(task),
    }


def _memorize(settings: Settings, ratio: float, task: Task, seed: int, labels: str) -> Row:
    """Train the network with the given number of parameters per row on one bit per row."""
    inputs = task.x.shape[1]
    width = max(1, round((ratio * len(task) - 1) / (inputs + 2)))
    options = Training(steps=settings.long_steps, learning_rate=0.01, schedule="cosine", seed=seed)
    network = train(f"{inputs}-{width}:relu-1", task, options).network
    return {
        "kind": "capacity",
        "labels": labels,
        "per_row": ratio,
        "parameters_per_row": network.spec.n_parameters / len(task),
        "training_error": network.error(task),
    }


def _times(steps: int) -> tuple[int, ...]:
    """Return the numbers of steps at which the training error is measured."""
    count = int(np.log(steps) / np.log(GROWTH))
    return tuple(sorted({round(GROWTH**k) for k in range(count + 1)} | {steps}))


def randomized(y: NDArray[np.int64], share: float, classes: int, seed: int) -> NDArray[np.int64]:
    """Return labels of which a share, chosen at random, is drawn from all classes with equal probability."""
    generator = np.random.default_rng([seed, 2])
    chosen = generator.permutation(len(y))[: round(share * len(y))]
    found = y.copy()
    found[chosen] = generator.integers(0, classes, len(chosen))
    return found


def interpolating(x: NDArray[np.float64], y: NDArray[np.float64], generator: np.random.Generator) -> Network:
    """Return the network of Zhang et al. with one hidden unit per row, whose outputs are exactly `y`."""
    n, inputs = x.shape
    direction = generator.normal(size=inputs) / np.sqrt(inputs)
    z = np.sort(x @ direction)
    between = np.concatenate([[z[0] - 1], (z[1:] + z[:-1]) / 2])  # b_j, (n,)
    triangle = np.maximum(z[:, None] - between, 0)  # (row, unit)
    output = np.asarray(np.linalg.solve(triangle, y[np.argsort(x @ direction)]), np.float64)
    tensors: dict[str, NDArray[np.float64]] = {
        "linear1.weight": np.tile(direction, (n, 1)),
        "linear1.bias": -between,
        "linear2.weight": output[None],
        "linear2.bias": np.zeros(1),
    }
    return Network(Spec.parse(f"{inputs}-{n}:relu-1"), tensors)


def _slower(rows: Rows) -> float:
    """Return how many times as many steps random labels need as true ones."""
    random, true = (_at(rows, share).mean("fitted_after") for share in (1.0, 0.0))
    return random / true


def _at(rows: Rows, share: float) -> Rows:
    return rows.where(kind="fit", share=share)


def _capacity(rows: Rows, ratio: float) -> float:
    return rows.where(kind="capacity", labels="random", per_row=ratio).mean("training_error")


def summary(rows: Rows) -> str:
    random = _at(rows, 1.0)
    needed = [ratio for ratio in rows.where(kind="capacity").distinct("per_row") if _capacity(rows, ratio) == 0]
    enough = f"{min(needed):g} parameters per row are enough for one random bit per row. " if needed else ""
    return (
        f"With {random.mean('parameters_per_row'):.0f} parameters per row, the training error on random labels is "
        f"{random.mean('training_error'):.1%}, and the test error is {random.mean('test_error'):.1%} (random guessing: "
        f"{random.mean('chance'):.1%}). The training error reaches 0 after {random.mean('fitted_after'):.0f} steps. "
        f"With true labels, this takes {_at(rows, 0.0).mean('fitted_after'):.0f} steps. {enough}The construction with "
        f"2n + d weights fits random numbers with a largest relative error of {_largest(rows):.0e}."
    )


def _largest(rows: Rows) -> float:
    return float(rows.where(kind="construction").numbers("largest").max())


def panels(rows: Rows) -> Sequence[AnyPanel]:
    fits, capacity = rows.where(kind="fit"), rows.where(kind="capacity")
    shares = fits.distinct("share")
    chance = fits.mean("chance")
    return [
        Panel(
            title="training error by share of random labels",
            lines=curves(rows.where(kind="course"), "steps", "training_error", "share", name=lambda v: f"{v:.0%}"),
            x_label="steps",
            log_x=True,
        ),
        Panel(
            title="errors after training",
            lines=[
                curve(fits, "share", "test_error", name="test"),
                curve(fits, "share", "training_error", name="training"),
                Line(name="chance", x=shares, y=[chance] * len(shares), dashed=True),
            ],
            x_label="share of random labels",
            limits=(-0.04, 1.0),
        ),
        Panel(
            title="steps until the training error is 0",
            lines=[curve(fits.having(lambda row: row["fitted_after"] < np.inf), "share", "fitted_after", name="")],
            x_label="share of random labels",
            y_label="steps",
        ),
        Panel(
            title="training error, one bit per row",
            lines=curves(capacity, "per_row", "training_error", "labels", name=lambda v: f"{v} labels"),
            x_label="parameters per row",
            log_x=True,
        ),
    ]


EXPERIMENT = Experiment(
    name="random_labels",
    title="Fitting random labels",
    claim="A network with more parameters than rows can memorize the training set perfectly, even if the labels are "
    "random. It reaches a training error of 0 in only a few times as many steps as with true labels. Its test error "
    "is then that of random guessing.",
    sources=(
        "Zhang, Bengio, Hardt, Recht and Vinyals 2017, Understanding deep learning requires rethinking generalization",
        "Arpit et al. 2017, A closer look at memorization in deep networks",
    ),
    settings=Settings(),
    full=Settings(rows=1200, width=2048, steps=5000, long_steps=30000, per_row=(0.25, 0.35, 0.5, 0.7, 1, 1.4, 2, 4, 8)),
    tiny=Settings(rows=60, width=64, shares=(0.0, 1.0), steps=400, per_row=(0.25, 4.0), long_steps=1500),
    seeds=10,
    full_seeds=30,
    parts=parts,
    measure=measure,
    criteria=(
        Criterion(
            statement="The training error on random labels is 0 after the last step.",
            value=lambda rows: _at(rows, 1.0).mean("training_error"),
            at_most=0.0,
        ),
        Criterion(
            statement="After training on random labels, the test error is at least 0.95 times that of random guessing.",
            value=lambda rows: _at(rows, 1.0).mean("test_error") / _at(rows, 1.0).mean("chance"),
            at_least=0.95,
        ),
        Criterion(
            statement="Random labels need at least 1.5 times as many steps as true labels.",
            value=_slower,
            at_least=1.5,
        ),
        Criterion(
            statement="Random labels need at most 5 times as many steps as true labels.", value=_slower, at_most=5.0
        ),
        Criterion(
            statement="With 4 parameters per row, the training error on random bits is 0.",
            value=lambda rows: _capacity(rows, 4.0),
            at_most=0.0,
        ),
        Criterion(
            statement="With 0.25 parameters per row, the training error on random bits is at least 5 %.",
            value=lambda rows: _capacity(rows, 0.25),
            at_least=0.05,
        ),
    ),
    summary=summary,
    panels=panels,
    published=(
        Published(
            what="Weights that fit any n numbers at n points in d dimensions",
            theirs="2n + d, exactly",
            source="Zhang et al. 2017, theorem 1",
            ours=lambda rows: (
                f"{rows.where(kind='construction').mean('weights'):.0f} weights; largest error {_largest(rows):.0e}"
            ),
        ),
    ),
)
