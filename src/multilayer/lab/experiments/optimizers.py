"""Optimizers, gradient clipping and warm-up by learning rate.

A network with `depth` hidden ReLU layers learns to classify the rows of a table, with `batch` rows per step. Each
optimizer trains at each learning rate of a grid. Each rate is twice the one before. There are four variants: without
clipping and warm-up, with one of them, and with both. All runs of a seed have the same initial parameters and the same
batches.

    clipping    a gradient g with a norm above 1 is replaced by g/‖g‖
    warm-up     the learning rate rises linearly during the first tenth of the steps, and is then constant
    AdamW       Adam with a weight decay of 0.1

A run fails if a value is not finite, or if the mean loss over the last tenth of the steps is above half of the loss of
a constant prediction. The latter is the entropy of the classes. A run fails at a high rate because it diverges or its
units die. A run fails at a low rate because it needs more steps. The best rate of an optimizer is the rate that reaches
the target in the fewest steps, for each seed. The largest stable rate is then the largest one for which no rate between
it and the best rate fails.

The target is reached when the mean loss of the last 16 batches is below it. The learning rate does not decay. Other
constants, such as the momentum of 0.9, are not tuned. Time per step is not measured: Adam computes more per step than
SGD.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...drawing.plots import AnyPanel, Line, Panel
from ..criteria import Criterion
from ..curves import curve
from ..experiment import Experiment
from ..rows import Row, Rows
from ..tables import class_count, classification, divided
from ..training import Floats, Task, Training, train

OPTIMIZERS = {"sgd": "SGD", "momentum": "momentum", "nesterov": "Nesterov", "adam": "Adam", "adamw": "AdamW"}
DECAYS = {"adamw": 0.1}
ADAPTIVE = ("adam", "adamw")
SMALLEST = {"sgd": -7, "momentum": -10, "nesterov": -10, "adam": -13, "adamw": -13}
"""Exponent of the smallest learning rate, which is a power of 2."""
CLIPPED = {"none": False, "clipping": True, "warm-up": False, "both": True}
WARMED = {"none": 0.0, "clipping": 0.0, "warm-up": 0.1, "both": 0.1}
WINDOW = 16
"""Number of batches over which the loss is averaged before it is compared with the target."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    data: str = "digits"
    depth: int = 6
    width: int = 32
    rows: int = 1024
    batch: int = 128
    steps: int = 300
    rates: int = 12
    """Number of learning rates of each optimizer."""
    target: float = 0.2
    """Training loss that a run must reach."""


class Part(NamedTuple):
    optimizer: str
    remedy: str


def parts(settings: Settings) -> Sequence[Part]:
    """Return each optimizer with each remedy: none, clipping, warm-up or both."""
    return [Part(optimizer, remedy) for optimizer in OPTIMIZERS for remedy in CLIPPED]


def measure(settings: Settings, part: Part, seed: int) -> Iterator[Row]:
    """Yield a row per learning rate."""
    task, _ = divided(classification(settings.data), rows=settings.rows, seed=seed)
    classes = class_count(task)
    spec = "-".join([str(task.x.shape[1]), *[f"{settings.width}:relu"] * settings.depth, str(classes)])
    for i in range(settings.rates):
        rate = 2.0 ** (SMALLEST[part.optimizer] + i)
        options = Training(
            steps=settings.steps,
            batch=settings.batch,
            learning_rate=rate,
            optimizer=part.optimizer,
            weight_decay=DECAYS.get(part.optimizer, 0.0),
            clip_norm=1.0 if CLIPPED[part.remedy] else None,
            schedule=f"constant(warmup={WARMED[part.remedy]})",
            seed=seed,
        )
        trained = train(spec, task, options)
        last = trained.losses[-settings.steps // 10 :].mean()
        yield {
            "optimizer": part.optimizer,
            "remedy": part.remedy,
            "rate": rate,
            "fails": bool(trained.diverged_at is not None or not last <= entropy(task) / 2),
            "steps": steps_to(trained.losses, settings.target),
        }


def entropy(task: Task) -> float:
    """Return the loss of the best constant prediction."""
    shares = np.bincount(task.y) / len(task)
    shares = shares[shares > 0]
    return float(-(shares * np.log(shares)).sum())


def steps_to(losses: Floats, target: float) -> float:
    """Return the number of steps until the mean loss of the last `WINDOW` batches is below the target."""
    if len(losses) < WINDOW:
        return math.inf
    means = np.convolve(losses, np.full(WINDOW, 1 / WINDOW), "valid")
    below = np.flatnonzero(means < target)
    return float(below[0] + WINDOW) if len(below) else math.inf


def fewest(rows: Rows, optimizer: str) -> float:
    """Return the mean over the seeds of the steps at the best rate."""
    own = rows.where(optimizer=optimizer, remedy="none")
    return float(np.mean([one.numbers("steps").min() for _, one in own.by("seed")]))


def share_of_sgd(rows: Rows, optimizer: str) -> float:
    """Return the steps of an optimizer relative to those of SGD, each at its best rate. Infinity if it never ended."""
    steps = fewest(rows, optimizer)
    return steps / fewest(rows, "sgd") if math.isfinite(steps) else math.inf


def largest_rate(rows: Rows, optimizer: str, remedy: str) -> float:
    """Return the largest stable rate: the geometric mean over the seeds."""
    own = rows.where(optimizer=optimizer, remedy=remedy)
    return math.exp(np.mean([math.log(_stable(one)) for _, one in own.by("seed")]))


def _stable(rows: Rows) -> float:
    """Return the largest rate of one seed such that no rate from the best one up to it fails."""
    ordered = sorted(rows, key=lambda row: row["rate"])
    best = min(range(len(ordered)), key=lambda i: ordered[i]["steps"])
    stable = best
    while stable + 1 < len(ordered) and not ordered[stable + 1]["fails"]:
        stable += 1
    return float(ordered[stable]["rate"])


def gain(rows: Rows, remedy: str, optimizers: Sequence[str]) -> float:
    """Return the factor by which a remedy raises the largest rate: the geometric mean over the optimizers."""
    factors = [largest_rate(rows, one, remedy) / largest_rate(rows, one, "none") for one in optimizers]
    return math.exp(float(np.mean(np.log(factors))))


PLAIN = tuple(name for name in OPTIMIZERS if name not in ADAPTIVE)


def summary(rows: Rows) -> str:
    steps = ", ".join(f"{fewest(rows, name):.0f} with {OPTIMIZERS[name]}" for name in OPTIMIZERS)
    gains = [f"{gain(rows, remedy, group):.1f}" for remedy in ("clipping", "warm-up") for group in (PLAIN, ADAPTIVE)]
    return (
        f"Steps to the target at the best rate: {steps}. Clipping multiplies the largest stable rate by {gains[0]} for "
        f"SGD, momentum and Nesterov, and by {gains[1]} for Adam and AdamW. Warm-up multiplies it by {gains[2]} and by "
        f"{gains[3]} for the same two groups."
    )


def panels(rows: Rows) -> Sequence[AnyPanel]:
    steps = [
        curve(_reached(own), "rate", "steps", name=OPTIMIZERS[optimizer])
        for (optimizer,), own in rows.where(remedy="none").by("optimizer")
    ]
    return [
        Panel(title="steps to the target", lines=steps, x_label="learning rate", log_x=True, log_y=True),
        *(
            Panel(
                title=f"share of {OPTIMIZERS[name]} runs that fail",
                lines=[_failed(rows.where(optimizer=name), remedy) for remedy in ("none", "clipping", "warm-up")],
                x_label="learning rate",
                log_x=True,
                limits=(-0.05, 1.05),
            )
            for name in ("sgd", "momentum", "adamw")
        ),
    ]


def _reached(rows: Rows) -> Rows:
    """Return the rows of the rates at which all seeds reached the target."""
    everywhere = {rate for (rate,), own in rows.by("rate") if np.isfinite(own.numbers("steps")).all()}
    return rows.having(lambda row: row["rate"] in everywhere)


def _failed(rows: Rows, remedy: str) -> Line:
    shares = [(rate, own.mean("fails")) for (rate,), own in rows.where(remedy=remedy).by("rate")]
    x, y = zip(*shares, strict=True)
    return Line(name=remedy if remedy != "none" else "alone", x=x, y=y, points=True, dashed=remedy == "warm-up")


EXPERIMENT = Experiment(
    name="optimizers",
    title="Optimizers, clipping and warm-up",
    claim="Momentum and Adam need fewer steps than SGD to reach a given loss, each at its best learning rate. Clipping "
    "the gradient to norm 1 or warm-up makes larger learning rates stable. Adam and AdamW gain less from clipping "
    "than the other optimizers.",
    sources=(
        "Polyak 1964, Some methods of speeding up the convergence of iteration methods",
        "Sutskever et al. 2013, On the importance of initialization and momentum in deep learning",
        "Kingma and Ba 2015, Adam: A method for stochastic optimization",
        "Loshchilov and Hutter 2019, Decoupled weight decay regularization",
        "Pascanu et al. 2013, On the difficulty of training recurrent neural networks",
        "Goyal et al. 2017, Accurate, large minibatch SGD: training ImageNet in 1 hour",
    ),
    settings=Settings(),
    full=Settings(depth=8, width=128, steps=2000, target=0.05),
    tiny=Settings(depth=2, width=16, rows=256, batch=64, steps=64, rates=12, target=0.5),
    seeds=10,
    full_seeds=20,
    parts=parts,
    measure=measure,
    criteria=(
        Criterion(
            statement="Momentum needs at most 0.9 times the steps of SGD.",
            value=lambda rows: share_of_sgd(rows, "momentum"),
            at_most=0.9,
        ),
        Criterion(
            statement="Adam needs at most 0.9 times the steps of SGD.",
            value=lambda rows: share_of_sgd(rows, "adam"),
            at_most=0.9,
        ),
        Criterion(
            statement="Clipping multiplies the largest stable rate of SGD, momentum and Nesterov by at least 2.",
            value=lambda rows: gain(rows, "clipping", PLAIN),
            at_least=2.0,
            log=True,
        ),
        Criterion(
            statement="Warm-up multiplies the largest stable rate by at least 1.5, averaged over all optimizers.",
            value=lambda rows: gain(rows, "warm-up", tuple(OPTIMIZERS)),
            at_least=1.5,
            log=True,
        ),
        Criterion(
            statement="Clipping multiplies the largest stable rate of Adam and AdamW by at most 1.5.",
            value=lambda rows: gain(rows, "clipping", ADAPTIVE),
            at_most=1.5,
            log=True,
        ),
    ),
    summary=summary,
    panels=panels,
)
