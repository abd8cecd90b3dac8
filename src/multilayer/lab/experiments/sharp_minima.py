"""Sharp and flat minima.

The sharpness of a solution is the largest eigenvalue λ of the Hessian of its training loss. At the distance ε in the
steepest direction, the loss is higher by λε²/2. The loss is the squared error with one output per class. The Hessian
of the cross-entropy would vanish where all training rows are fitted, but that of the squared error does not.

    batches      Networks start from the same weights. They are trained by gradient descent with batches of different
                 sizes and one learning rate, until the training loss falls below a bound, which is the same for all.
                 Then λ and the test error are measured. The increase of the loss is also measured if every weight w
                 becomes w(1 + rξ) with normal random numbers ξ, averaged over several draws.
    rescaling    ReLU has relu(αz) = α relu(z) for α > 0. If a hidden layer is multiplied by α and the next layer is
                 divided by α, the network computes the same function, but its sharpness changes (Dinh et al. 2017).
                 The increase of the loss under relative changes of the weights, as above, stays the same.
    edge         A step of gradient descent with the learning rate η in a direction of curvature λ multiplies the
                 distance from the minimum by 1 − ηλ. It is stable while λ < 2/η. The networks are trained with all rows
                 in each step, and λ is measured during training. Cohen et al. (2021) find that λ rises to about 2/η and
                 stays there. If the initial λ is above 2/η, the first steps overshoot until λ is below 2/η.

The experiment leaves out adaptive optimizers, learning rates tuned for each batch size, and convolutional networks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...drawing.plots import AnyPanel, Line, Panel
from ..criteria import Criterion
from ..curvature import Surface, flat, with_weights
from ..curves import curve
from ..experiment import Experiment, Published, need
from ..rows import Row, Rows
from ..tables import class_count, classification, divided
from ..training import Network, Task, Training, train

POINTS = 15
"""Number of measurements during one training run."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    data: str = "digits"
    rows: int = 500
    width: int = 64
    learning_rate: float = 0.2
    batches: tuple[int, ...] = (4, 16, 64, 500)
    loss: float = 0.003
    """Training loss at which the networks are compared."""
    steps: int = 20000
    """Largest number of steps."""
    change: float = 0.2
    """Relative size r of the changes of the weights."""
    draws: int = 20
    factors: tuple[float, ...] = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
    """Factors α of the rescaling."""
    rates: tuple[float, ...] = (0.2, 0.25, 0.3)
    """Learning rates η of the third part."""


def parts(settings: Settings) -> Sequence[tuple[str, float]]:
    """Return each kind of measurement, with its batch size, number or learning rate."""
    need("batches", settings.batches, at_least=2)
    need("factors", settings.factors)
    need("rates", settings.rates)
    return [
        *(("batch", batch) for batch in settings.batches),
        ("rescaling", 1.0),
        *(("edge", rate) for rate in settings.rates),
    ]


def measure(settings: Settings, part: tuple[str, float], seed: int) -> Iterator[Row]:
    kind, number = part
    table = classification(settings.data)
    training, test = divided(table, rows=settings.rows, seed=seed)
    task = Task(x=training.x, y=np.eye(class_count(table))[training.y])
    if kind == "batch":
        yield _of_batch(settings, round(number), task, test, seed)
    elif kind == "rescaling":
        yield from _rescalings(settings, task, seed)
    else:
        yield from _edge(settings, number, task, seed)


def _spec(settings: Settings, task: Task, activation: str) -> str:
    return f"{task.x.shape[1]}-{settings.width}:{activation}-{task.y.shape[1]}"


def _of_batch(settings: Settings, batch: int, task: Task, test: Task, seed: int) -> Row:
    """Train with one batch size, and measure the first network whose loss is below the bound."""
    network, steps = _solution(settings, min(batch, len(task)), task, seed)
    return {
        "kind": "batch",
        "batch": batch,
        "steps": steps,
        "loss": network.loss(task),
        "sharpness": Surface(network, task).sharpness(),
        "rise": _rise(network, task, settings, seed),
        "test_error": network.error(test),
    }


def _solution(
    settings: Settings, batch: int, task: Task, seed: int, *, activation: str = "tanh"
) -> tuple[Network, int]:
    """Return the first network whose training loss is below the bound, or else the last one, and its steps."""
    per_epoch = -(-len(task) // batch)
    every = max(per_epoch, settings.steps // 200)
    options = Training(
        steps=settings.steps,
        batch=batch,
        optimizer="sgd",
        learning_rate=settings.learning_rate,
        at=tuple(range(every, settings.steps + 1, every)),
        seed=seed,
    )
    trained = train(_spec(settings, task, activation), task, options)
    below = (steps for steps, network in trained.stored.items() if network.loss(task) <= settings.loss)
    steps = next(below, None)
    return (trained.network, settings.steps) if steps is None else (trained.stored[steps], steps)


def _rise(network: Network, task: Task, settings: Settings, seed: int) -> float:
    """Return the mean increase of the loss if every weight changes by a random share of itself."""
    generator, weights, before = np.random.default_rng([seed, 1]), flat(network), network.loss(task)
    draws = generator.normal(size=(settings.draws, len(weights)))
    after = [with_weights(network, weights * (1 + settings.change * draw)).loss(task) for draw in draws]
    return float(np.mean(after)) - before


def _rescalings(settings: Settings, task: Task, seed: int) -> Iterator[Row]:
    network, _ = _solution(settings, min(64, len(task)), task, seed, activation="relu")
    outputs, sharpness = network.outputs(task.x), Surface(network, task).sharpness()
    for factor in settings.factors:
        scaled = rescaled(network, factor)
        yield {
            "kind": "rescaling",
            "factor": factor,
            "sharpness": Surface(scaled, task).sharpness() / sharpness,
            "difference": _largest(scaled.outputs(task.x) - outputs) / _largest(outputs),
            "rise": _rise(scaled, task, settings, seed) / _rise(network, task, settings, seed),
        }


def _largest(values: NDArray[np.float64]) -> float:
    return float(np.abs(values).max())


def rescaled(network: Network, factor: float) -> Network:
    """Return the network with its hidden layer multiplied by a factor, and its output weights divided by it."""
    changed = {name: network.tensors[f"linear1.{name}"] * factor for name in ("weight", "bias")}
    tensors = {f"linear1.{name}": value for name, value in changed.items()}
    return Network(
        network.spec, {**network.tensors, **tensors, "linear2.weight": network.tensors["linear2.weight"] / factor}
    )


def _edge(settings: Settings, rate: float, task: Task, seed: int) -> Iterator[Row]:
    """Measure the sharpness during gradient descent with all rows in each step."""
    at = tuple(sorted({round(settings.steps * i / POINTS) for i in range(POINTS + 1)}))
    options = Training(steps=settings.steps, optimizer="sgd", learning_rate=rate, at=at, seed=seed)
    trained = train(_spec(settings, task, "tanh"), task, options)
    for steps, network in trained.stored.items():
        sharpness = Surface(network, task).sharpness()
        yield {
            "kind": "edge",
            "rate": rate,
            "steps": steps,
            "loss": network.loss(task),
            "sharpness": sharpness,
            "stability": sharpness * rate / 2,
        }


def _by_batch(rows: Rows, column: str) -> tuple[float, float]:
    """Return a measurement of the smallest and of the largest batch."""
    own = rows.where(kind="batch")
    small, large = min(own.values("batch")), max(own.values("batch"))
    return own.where(batch=small).mean(column), own.where(batch=large).mean(column)


def _ratio(rows: Rows, column: str) -> float:
    small, large = _by_batch(rows, column)
    return large / small if _comparable(rows) else math.nan


def _comparable(rows: Rows) -> bool:
    """Return whether the networks of all batch sizes have about the same loss, as they have if they reach the bound."""
    losses = rows.where(kind="batch").numbers("loss")
    return bool(losses.max() <= 1.5 * losses.min())


def _advantage(rows: Rows) -> float:
    """Return by how much the test error of the largest batch is above that of the smallest one."""
    small, large = _by_batch(rows, "test_error")
    return large - small if _comparable(rows) else math.nan


def _stability(rows: Rows) -> float:
    """Return λη/2 at the end of the training runs: the mean over the last third of the measurements."""
    own = rows.where(kind="edge")
    last = max(own.values("steps"))
    return own.having(lambda row: row["steps"] >= 2 / 3 * last).mean("stability")


def _rescaled_sharpness(rows: Rows) -> float:
    """Return the largest sharpness among the rescaled networks, relative to the one that is not rescaled."""
    largest = [own.numbers("sharpness").max() for _, own in rows.where(kind="rescaling").by("seed")]
    return float(np.exp(np.log(largest).mean()))


def summary(rows: Rows) -> str:
    own = rows.where(kind="batch")
    small, large = _by_batch(own, "test_error")
    scaled = rows.where(kind="rescaling")
    return (
        f"Solutions of batches of {max(own.values('batch'))} rows are {_ratio(own, 'sharpness'):.2f} times as sharp as "
        f"those of batches of {min(own.values('batch'))} rows. The test error is {large:.2%} with the largest batch "
        f"and {small:.2%} with the smallest. Rescaling the layers by up to {max(scaled.values('factor')):g} makes a "
        f"solution {_rescaled_sharpness(rows):.0f} times as sharp without changing its function. Gradient descent with "
        f"all rows ends at a sharpness of {_stability(rows):.2f} times 2/η."
    )


def panels(rows: Rows) -> Sequence[AnyPanel]:
    batch, scaled, edge = (rows.where(kind=kind) for kind in ("batch", "rescaling", "edge"))
    return [
        Panel(
            title="sharpness at equal training loss",
            lines=[curve(batch, "batch", "sharpness", name="")],
            x_label="rows per batch",
            y_label="largest eigenvalue",
            log_x=True,
        ),
        Panel(
            title="test error of the same networks",
            lines=[curve(batch, "batch", "test_error", name="")],
            x_label="rows per batch",
            log_x=True,
        ),
        Panel(
            title="one function, rescaled layers",
            lines=[
                curve(scaled, "factor", "sharpness", name="sharpness", log=True),
                curve(scaled, "factor", "rise", name="rise of loss"),
            ],
            x_label="factor α of the first layer",
            y_label="relative to α = 1",
            log_x=True,
            log_y=True,
        ),
        Panel(
            title="sharpness / (2/η) during training",
            lines=[
                *(curve(own, "steps", "stability", name=f"η = {rate:g}") for (rate,), own in edge.by("rate")),
                Line(name="edge", x=[0, max(edge.values("steps"))], y=[1, 1], dashed=True),
            ],
            x_label="steps with all rows",
        ),
    ]


EXPERIMENT = Experiment(
    name="sharp_minima",
    title="Sharp and flat minima",
    claim="Small batches lead to flat minima, which generalize well, and large batches to sharp minima, which "
    "generalize poorly. Gradient descent with all rows ends at 2/η, the largest sharpness that is stable with the "
    "learning rate η. Sharpness alone does not explain generalization: rescaling the layers of a ReLU network changes "
    "the sharpness, but not the function.",
    sources=(
        "Hochreiter and Schmidhuber 1997, Flat minima",
        "Keskar et al. 2017, On large-batch training for deep learning: generalization gap and sharp minima",
        "Dinh, Pascanu, Bengio and Bengio 2017, Sharp minima can generalize for deep nets",
        "Cohen, Kaur, Li, Kolter and Talwalkar 2021, Gradient descent on neural networks typically occurs at the edge "
        "of stability",
    ),
    settings=Settings(),
    full=Settings(rows=1000, width=256, batches=(2, 4, 8, 16, 32, 64, 128, 1000), steps=100000, draws=100),
    tiny=Settings(rows=60, width=12, batches=(2, 60), loss=0.02, steps=1200, draws=4, factors=(1.0, 4.0), rates=(0.3,)),
    seeds=10,
    full_seeds=30,
    parts=parts,
    measure=measure,
    criteria=(
        Criterion(
            statement="The sharpness with the largest batch is at least 1.2 times that with the smallest batch.",
            value=lambda rows: _ratio(rows, "sharpness"),
            at_least=1.2,
        ),
        Criterion(
            statement="With the largest batch, random changes of the weights raise the loss at least 1.2 times as much "
            "as with the smallest batch.",
            value=lambda rows: _ratio(rows, "rise"),
            at_least=1.2,
        ),
        Criterion(
            statement="The test error is at least 0.25 percentage points higher with the largest batch than with the "
            "smallest.",
            value=_advantage,
            at_least=0.0025,
        ),
        Criterion(
            statement="Gradient descent with all rows ends at a sharpness of at least 0.9 times 2/η.",
            value=_stability,
            at_least=0.9,
        ),
        Criterion(
            statement="Gradient descent with all rows ends at a sharpness of at most 1.2 times 2/η.",
            value=_stability,
            at_most=1.2,
        ),
        Criterion(
            statement="Rescaling the layers makes a ReLU network at least 10 times as sharp.",
            value=_rescaled_sharpness,
            log=True,
            at_least=10.0,
        ),
        Criterion(
            statement="The rescaling changes no output by more than 1e-12 of the largest output.",
            value=lambda rows: float(rows.where(kind="rescaling").numbers("difference").max()),
            at_most=1e-12,
        ),
    ),
    summary=summary,
    panels=panels,
    published=(
        Published(
            what="Sharpness / (2/η) of gradient descent with all rows",
            theirs="just above 1",
            source="Cohen et al. 2021",
            ours=lambda rows: f"{_stability(rows):.3f}",
        ),
        Published(
            what="Batch size and generalization",
            theirs="large batches end in sharper minima with a lower test accuracy",
            source="Keskar et al. 2017",
            ours=lambda rows: (
                f"{_ratio(rows, 'sharpness'):.2f} times as sharp; the test error changes by "
                f"{100 * _advantage(rows):+.2f} percentage points"
            ),
        ),
    ),
)
