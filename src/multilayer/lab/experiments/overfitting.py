"""Overfitting, what reduces it, and the size of the table.

A share of the rows of a table gets a random class. Then the rows are divided into training, validation and test rows.
A network with two hidden layers, which is much larger than necessary for the training rows, trains with `ml.fit` for a
fixed number of epochs. It trains once without regularization, and once with each of these methods:

    dropout            units of the hidden layers are dropped with probability p               Srivastava et al. 2014
    weight decay       W ← (1 − η λ) W in each step
    early stopping     the epoch with the lowest validation loss is kept                       Prechelt 1998
    noise              normal noise is added to the scaled inputs in each step                 Bishop 1995
    mixup              rows and targets are averaged in pairs                                  Zhang et al. 2018
    label smoothing    the target is (1 − ε) y + ε/C instead of y, for C classes               Szegedy et al. 2016

Early stopping needs no strength. Each other method trains with three strengths, and the strength with the lowest loss
on the validation rows is used. So every method uses the same training and validation rows. The gap is the loss of the
test rows minus the loss of the training rows. Both losses are computed without dropout, noise, mixup and smoothing.
Some test rows have a random class too, so the test error cannot fall below `noise` · (1 − 1/C).

The learning curve shows the test error without regularization by the number of training rows. All runs of a seed use
the same test rows. Methods are not combined.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...drawing.plots import AnyPanel, Line, Panel
from ...models.trained_model import TrainedModel
from ...training.fit import fit
from ...training.signals import reraise_signal
from ..criteria import Criterion
from ..curves import curve
from ..experiment import Experiment, need
from ..rows import Row, Rows
from ..tables import class_count, classification
from ..training import Floats, Task

STRENGTHS: dict[str, tuple[float, ...]] = {
    "none": (0.0,),
    "dropout": (0.2, 0.5, 0.8),
    "weight decay": (1.0, 5.0, 20.0),
    "early stopping": (0.0,),
    "noise": (0.3, 1.0, 2.0),
    "mixup": (0.2, 1.0, 4.0),
    "label smoothing": (0.05, 0.1, 0.3),
}
METHODS = tuple(name for name in STRENGTHS if name != "none")


@dataclass(frozen=True, kw_only=True)
class Settings:
    data: str = "digits"
    rows: int = 200
    """Training rows of the comparison."""
    validation: int = 200
    """Validation rows, at most an eighth of the table."""
    sizes: tuple[int, ...] = (50, 100, 200, 400, 800)
    """Numbers of training rows of the learning curve, at most half of the table."""
    noise: float = 0.2
    """Share of rows that get a random class."""
    width: int = 128
    epochs: int = 100
    repeats: int = 2
    """Number of divisions of the table for each seed."""


class Part(NamedTuple):
    method: str
    repeat: int


class Divided(NamedTuple):
    training: Task
    validation: Task
    test: Task

    def of(self, rows: int) -> Divided:
        """Return fewer training rows. The others stay the same."""
        return self._replace(training=self.training.rows(slice(rows)))


def parts(settings: Settings) -> Sequence[Part]:
    """Return each method and the learning curve, for each division."""
    need("sizes", settings.sizes)
    names = (*STRENGTHS, "learning curve")
    return [Part(name, repeat) for repeat in range(settings.repeats) for name in names]


def measure(settings: Settings, part: Part, seed: int) -> Iterator[Row]:
    """Yield one row per method, or one per size of the training rows."""
    own = settings.repeats * seed + part.repeat
    rows = divide(settings, noisy(classification(settings.data), settings.noise, own), own)
    if part.method == "learning curve":
        for size in dict.fromkeys(min(size, len(rows.training)) for size in settings.sizes):
            model = trained(settings, rows.of(size), "none", 0.0, own)
            yield {"kind": "curve", "repeat": part.repeat, "rows": size, "test_error": error(model, rows.test)}
        return
    rows = rows.of(settings.rows)
    models = [(trained(settings, rows, part.method, strength, own), strength) for strength in STRENGTHS[part.method]]
    model, strength = min(models, key=lambda one: log_loss(one[0], rows.validation))
    yield {
        "kind": "method",
        "repeat": part.repeat,
        "method": part.method,
        "strength": strength,
        "training_error": error(model, rows.training),
        "test_error": error(model, rows.test),
        "training_loss": log_loss(model, rows.training),
        "test_loss": log_loss(model, rows.test),
    }


def noisy(task: Task, share: float, seed: int) -> Task:
    """Return the rows with a random class for a share of them."""
    generator = np.random.default_rng([seed, 1])
    chosen = generator.random(len(task)) < share
    random = generator.integers(class_count(task), size=len(task))
    return Task(x=task.x, y=np.where(chosen, random, task.y), loss=task.loss)


def divide(settings: Settings, task: Task, seed: int) -> Divided:
    """Return as many training rows as any run needs, validation rows, and all others as test rows."""
    largest = min(max(settings.rows, *settings.sizes), len(task) // 2)
    held = min(settings.validation, len(task) // 8)
    order = np.random.default_rng([seed, 2]).permutation(len(task))
    ends = (0, largest, largest + held, len(task))
    return Divided(*(task.rows(order[first:last]) for first, last in pairwise(ends)))


def trained(settings: Settings, rows: Divided, method: str, strength: float, seed: int) -> TrainedModel:
    """Return a model that was trained with one method."""
    classes, width = class_count_of(rows), settings.width
    dropped = f"-dropout({strength})" if method == "dropout" else ""
    hidden = f"{width}:relu{dropped}"
    stopping = method == "early stopping"
    run = fit(
        f"{rows.training.x.shape[1]}-{hidden}-{hidden}-{classes}",
        (rows.training.x, rows.training.y),
        classes=list(range(classes)),
        validation=(rows.validation.x, rows.validation.y) if stopping else None,
        patience=20 if stopping else None,
        loss=f"cross_entropy(label_smoothing={strength})" if method == "label smoothing" else "cross_entropy",
        augment=f"{method}({strength})" if method in ("noise", "mixup") else None,
        weight_decay=strength if method == "weight decay" else 0.0,
        learning_rate=0.003,
        schedule="constant",
        batch_size=32,
        epochs=settings.epochs,
        calibrate=False,
        threads=1,
        seed=seed,
        quiet=True,
        report=False,
    )
    reraise_signal(run.signal)  # a model that Ctrl-C stopped is not a measurement
    assert run.model is not None, "training was not stopped"
    return run.model


def class_count_of(rows: Divided) -> int:
    """Return the number of classes of all parts together."""
    return max(class_count(part) for part in rows)


def probabilities(model: TrainedModel, task: Task) -> Floats:
    """Return the probability of each class (rows, classes)."""
    with warnings.catch_warnings():  # with few training rows, many test rows are outside their range
        warnings.simplefilter("ignore", UserWarning)
        return np.asarray(model.predict_proba(task.x), np.float64)


def error(model: TrainedModel, task: Task) -> float:
    """Return the share of rows whose class is wrong."""
    return float((probabilities(model, task).argmax(axis=1) != task.y).mean())


def log_loss(model: TrainedModel, task: Task) -> float:
    """Return the mean of −log p of the classes."""
    p = probabilities(model, task)[np.arange(len(task)), task.y]
    return float(-np.log(np.maximum(p, 1e-12)).mean())


def gap(rows: Rows, method: str) -> float:
    """Return the loss of the test rows minus that of the training rows."""
    own = rows.where(method=method)
    return own.mean("test_loss") - own.mean("training_loss")


def largest_gap(rows: Rows) -> float:
    """Return the largest gap of a method, relative to that without regularization."""
    return max(gap(rows, method) for method in METHODS) / gap(rows, "none")


def change(rows: Rows, method: str) -> float:
    """Return the test error with a method, relative to that without regularization."""
    return rows.where(method=method).mean("test_error") / rows.where(method="none").mean("test_error")


def gain_of_rows(rows: Rows) -> float:
    """Return the test error with the most rows, relative to that with the fewest."""
    own = rows.where(kind="curve")
    few, many = min(own.values("rows")), max(own.values("rows"))
    return own.where(rows=many).mean("test_error") / own.where(rows=few).mean("test_error")


def summary(rows: Rows) -> str:
    changes = ", ".join(f"{100 * (change(rows, method) - 1):+.0f} % with {method}" for method in METHODS)
    own = rows.where(kind="curve")
    few, many = min(own.values("rows")), max(own.values("rows"))
    ends = [own.where(rows=size).mean("test_error") for size in (few, many)]
    return (
        f"Without regularization, the training error is {100 * rows.where(method='none').mean('training_error'):.0f} % "
        f"and the test error {100 * rows.where(method='none').mean('test_error'):.0f} %. The test error changes by "
        f"{changes}. Without regularization, it falls from {100 * ends[0]:.0f} % with {few} training rows to "
        f"{100 * ends[1]:.0f} % with {many}."
    )


def panels(rows: Rows) -> Sequence[AnyPanel]:
    own = Rows({**row, "place": 1 + list(STRENGTHS).index(row["method"])} for row in rows.where(kind="method"))
    names = ("none", "dropout", "decay", "stop", "noise", "mixup", "smooth")

    def lines(what: str) -> list[Line]:
        found = (curve(own, "place", f"{part}_{what}", name=part) for part in ("test", "training"))
        return [replace(line, joined=False) for line in found]

    return [
        Panel(title="error by method", lines=lines("error"), ticks=names),
        Panel(title="loss by method (gap: test − training)", lines=lines("loss"), ticks=names),
        Panel(
            title="test error by size of the table",
            lines=[curve(rows.where(kind="curve"), "rows", "test_error", name="")],
            x_label="training rows",
            log_x=True,
        ),
    ]


EXPERIMENT = Experiment(
    name="overfitting",
    title="Overfitting and regularization",
    claim="A network that is too large for its table fits the training rows, but predicts new rows badly. Dropout, "
    "weight decay, early stopping, augmentation (noise, mixup) and label smoothing each reduce the gap between "
    "training and test loss, and the test error. More rows reduce the test error too.",
    sources=(
        "Srivastava et al. 2014, Dropout: a simple way to prevent neural networks from overfitting",
        "Prechelt 1998, Early stopping, but when?",
        "Bishop 1995, Training with noise is equivalent to Tikhonov regularization",
        "Zhang et al. 2018, mixup: Beyond empirical risk minimization",
        "Szegedy et al. 2016, Rethinking the Inception architecture for computer vision",
    ),
    settings=Settings(),
    full=Settings(width=512, epochs=300, repeats=4),
    tiny=Settings(data="wine", rows=40, validation=20, sizes=(10, 40, 80), width=32, epochs=30, repeats=1),
    seeds=8,
    full_seeds=25,
    parts=parts,
    measure=measure,
    criteria=(
        Criterion(
            statement="With every method, the gap is at most 0.9 times the gap without regularization.",
            value=largest_gap,
            at_most=0.9,
        ),
        Criterion(
            statement="Dropout lowers the test error (ratio to no regularization).",
            value=lambda rows: change(rows, "dropout"),
            at_most=1.0,
        ),
        Criterion(
            statement="Weight decay lowers the test error (ratio to no regularization).",
            value=lambda rows: change(rows, "weight decay"),
            at_most=1.0,
        ),
        Criterion(
            statement="Early stopping lowers the test error (ratio to no regularization).",
            value=lambda rows: change(rows, "early stopping"),
            at_most=1.0,
        ),
        Criterion(
            statement="Noise on the inputs lowers the test error (ratio to no regularization).",
            value=lambda rows: change(rows, "noise"),
            at_most=1.0,
        ),
        Criterion(
            statement="Mixup lowers the test error (ratio to no regularization).",
            value=lambda rows: change(rows, "mixup"),
            at_most=1.0,
        ),
        Criterion(
            statement="Label smoothing lowers the test error (ratio to no regularization).",
            value=lambda rows: change(rows, "label smoothing"),
            at_most=1.0,
        ),
        Criterion(
            statement="With the most training rows, the test error is at most 0.7 times that with the fewest.",
            value=gain_of_rows,
            at_most=0.7,
        ),
    ),
    summary=summary,
    panels=panels,
)
