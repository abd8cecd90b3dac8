"""Batch size: gradient noise, steps to a target, and generalization.

Gradient noise. The gradient of every single row is computed at four points of one training run. G is the mean gradient
of all rows, and g is the mean gradient of a batch of B rows, drawn with replacement. They differ by

    E ‖g − G‖² = tr Σ / B,    Σ = the covariance of the gradients of single rows

so the root mean square of ‖g − G‖ falls as 1/√B. The noise scale tr Σ / ‖G‖² is the batch size at which noise and
gradient are equally large (McCandlish et al. 2018). The result is its geometric mean over the four points.

Steps. Plain SGD trains the same network with each batch size and each learning rate. Each learning rate is twice the
one before. The steps of a run are counted until the loss of all training rows is below a target. For each batch size,
the learning rate with the fewest steps is used. The loss is computed after 2, 2.3, 2.6, … steps, always with a factor
of 1.15. The formula S(B) = S_min (1 + B_c/B) is then fitted to the logarithms of the steps. B_c is the critical batch
size: well below it, a batch of twice the size needs about half of the steps.

Generalization. Adam trains a larger network on few rows in three ways: with a small batch, with a large batch for the
same number of epochs, and with a large batch for the same number of steps. All three use the same learning rate and fit
their training rows. The test error is that after the last step, averaged over `repeats` random divisions of the table.

On real machines, a step with a small batch takes more time per row. This experiment does not measure time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...drawing.plots import AnyPanel, Line, Panel
from ..criteria import Criterion
from ..curves import curve
from ..experiment import Experiment, Published, need
from ..rows import Row, Rows
from ..tables import class_count, classification, divided
from ..training import Floats, Network, Task, Training, train

POINTS = (0.0, 0.25, 0.5, 1.0)
"""Points of the training run at which the noise is measured, as shares of the steps to the target."""
FACTOR = 1.15
"""Factor between two numbers of steps at which the training loss is computed."""
REGIMES = ("small batch", "large, equal epochs", "large, equal steps")


@dataclass(frozen=True, kw_only=True)
class Settings:
    data: str = "digits"
    rows: int = 1024
    width: int = 32
    batches: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
    exponents: tuple[int, ...] = (-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2)
    """Exponents of the learning rates, which are powers of 2."""
    rows_seen: int = 32768
    """Number of rows that a run uses, over all epochs. A run has at least 300 steps."""
    target: float = 0.1
    draws: int = 64
    """Number of random batches for the deviation of the gradient."""
    few: int = 400
    """Training rows for the measurement of generalization."""
    small: int = 8
    large: int = 200
    epochs: int = 50
    repeats: int = 8
    """Number of divisions of the table into training and test rows."""


def parts(settings: Settings) -> Sequence[str | int]:
    """Return the batch sizes, and the names of the other two measurements."""
    need("batches", settings.batches, at_least=2)
    return [*settings.batches, "noise", "generalization"]


def measure(settings: Settings, part: str | int, seed: int) -> Iterator[Row]:
    """Yield a row per batch size, point of the training, or regime."""
    task = classification(settings.data)
    if part == "generalization":
        yield from generalization(settings, task, seed)
        return
    training, _ = divided(task, rows=settings.rows, seed=seed)
    if part == "noise":
        yield from noise(settings, training, seed)
    elif int(part) <= len(training):
        batch = int(part)
        runs = [(steps_to(settings, training, batch, 2.0**k, seed)[0], 2.0**k) for k in settings.exponents]
        steps, rate = min(runs)
        yield {"kind": "steps", "batch": batch, "steps": steps, "rate": rate}


def steps_to(settings: Settings, task: Task, batch: int, rate: float, seed: int) -> tuple[float, dict[int, Network]]:
    """Return the number of steps until the training loss is below the target, and the stored networks."""
    steps = max(300, settings.rows_seen // batch)
    count = int(math.log(steps / 2, FACTOR)) + 1
    at = tuple(dict.fromkeys(min(round(2 * FACTOR**i), steps) for i in range(count)))
    options = Training(steps=steps, batch=batch, learning_rate=rate, optimizer="sgd", seed=seed, at=(0, *at))
    stored = train(spec(task, settings.width), task, options).stored
    found = next((step for step in stored if stored[step].loss(task) < settings.target), math.inf)
    return float(found), {step: network for step, network in stored.items() if step <= found}


def spec(task: Task, *widths: int) -> str:
    """Return a network with hidden ReLU layers of these widths."""
    return "-".join([str(task.x.shape[1]), *(f"{width}:relu" for width in widths), str(class_count(task))])


def noise(settings: Settings, task: Task, seed: int) -> Iterator[Row]:
    """Yield the noise scale at each point, and the deviation of the gradient by batch size at the middle one."""
    _, networks = steps_to(settings, task, 64, 2.0**-2, seed)
    last = max(networks)
    for point in POINTS:
        nearest = min(networks, key=lambda step: abs(step - point * last))
        each = row_gradients(networks[nearest], task)
        yield {"kind": "scale", "point": point, "step": nearest, "scale": noise_scale(each)}
        if point == 0.5:
            for batch in settings.batches:
                yield {"kind": "noise", "batch": batch, "deviation": deviation(each, batch, settings.draws, seed)}


def row_gradients(network: Network, task: Task) -> Floats:
    """Return the gradient of the loss of each row (rows, parameters)."""
    found = [network.gradients(task.rows(slice(i, i + 1))) for i in range(len(task))]
    rows = [np.concatenate([one.ravel() for layer in g.values() for one in layer.parameters.values()]) for g in found]
    return np.stack(rows).astype(np.float64)


def noise_scale(each: Floats) -> float:
    """Return tr Σ / ‖G‖² of the gradients of all rows."""
    whole = float(np.square(each.mean(0)).sum())
    return float(np.square(each).sum(1).mean() - whole) / whole


def deviation(each: Floats, batch: int, draws: int, seed: int) -> float:
    """Return the root mean square of ‖g − G‖/‖G‖ over random batches."""
    generator, whole = np.random.default_rng([seed, batch]), each.mean(0)
    squares = [np.square(each[generator.integers(len(each), size=batch)].mean(0) - whole).sum() for _ in range(draws)]
    return float(np.sqrt(np.mean(squares) / np.square(whole).sum()))


def generalization(settings: Settings, task: Task, seed: int) -> Iterator[Row]:
    """Yield errors after training with a small batch and with a large one."""
    for repeat in range(settings.repeats):
        own = settings.repeats * seed + repeat
        training, test = divided(task, rows=settings.few, seed=own)
        small, large = settings.small, min(settings.large, len(training))
        per_epoch = [-(-len(training) // batch) * settings.epochs for batch in (small, large)]
        runs = ((small, per_epoch[0]), (large, per_epoch[1]), (large, per_epoch[0]))
        for regime, (batch, steps) in zip(REGIMES, runs, strict=True):
            options = Training(steps=steps, batch=batch, learning_rate=0.005, seed=own)
            network = train(spec(task, 2 * settings.width, 2 * settings.width), training, options).network
            yield {
                "kind": "error",
                "repeat": repeat,
                "regime": regime,
                "batch": batch,
                "steps": steps,
                "training_error": network.error(training),
                "test_error": network.error(test),
            }


def noise_slope(rows: Rows) -> float:
    """Return the exponent of B in the deviation of the gradient."""
    own = rows.where(kind="noise")
    return float(np.polyfit(np.log(own.numbers("batch")), np.log(own.numbers("deviation")), 1)[0])


def steps_at(rows: Rows, batch: int) -> float:
    """Return the steps of a batch size: the geometric mean over the seeds."""
    return math.exp(np.log(rows.where(kind="steps", batch=batch).numbers("steps")).mean())


def per_doubling(rows: Rows, first: int, last: int) -> float:
    """Return the factor by which a doubled batch divides the steps, from one batch size to another."""
    return (steps_at(rows, first) / steps_at(rows, last)) ** (1 / math.log2(last / first))


def for_small(rows: Rows) -> float:
    """Return the factor per doubling from the smallest batch to one at least 8 times as large."""
    batches = rows.where(kind="steps").values("batch")
    first = min(batches)
    return per_doubling(rows, first, min((one for one in batches if one >= 8 * first), default=max(batches)))


def for_large(rows: Rows) -> float:
    """Return the factor per doubling from a quarter of the largest batch, or less, to the largest."""
    batches = rows.where(kind="steps").values("batch")
    last = max(batches)
    return per_doubling(rows, max((one for one in batches if 4 * one <= last), default=min(batches)), last)


def critical(rows: Rows) -> tuple[float, float]:
    """Return S_min and B_c of S(B) = S_min (1 + B_c/B), fitted to the logarithms of the steps.

    Both are NaN if a batch size does not reach the target.
    """
    batches = np.array(sorted(rows.where(kind="steps").distinct("batch")), dtype=np.float64)
    steps = np.log([steps_at(rows, int(batch)) for batch in batches])
    if not np.isfinite(steps).all():
        return math.nan, math.nan
    candidates = np.geomspace(batches[0] / 10, batches[-1] * 10, 400)
    left = steps - np.log1p(candidates[:, None] / batches)  # (candidates, batches); log S_min if the form is exact
    best = int(left.var(axis=1).argmin())
    return math.exp(left[best].mean()), float(candidates[best])


def scale(rows: Rows) -> float:
    """Return the geometric mean of the noise scale over the training."""
    return math.exp(np.log(rows.where(kind="scale").numbers("scale")).mean())


def apart(rows: Rows) -> float:
    """Return the factor between critical batch size and noise scale, at least 1."""
    return math.exp(abs(math.log(critical(rows)[1] / scale(rows))))


def loss_of_large(rows: Rows, regime: str) -> float:
    """Return how much larger the test error of a large batch is."""
    return rows.where(regime=regime).mean("test_error") - rows.where(regime=REGIMES[0]).mean("test_error")


def summary(rows: Rows) -> str:
    errors = [f"{100 * rows.where(regime=regime).mean('test_error'):.1f} %" for regime in REGIMES]
    return (
        f"The noise of the gradient falls as B^{noise_slope(rows):.2f}. A doubled batch divides the steps by "
        f"{for_small(rows):.2f} for the smallest batches and by {for_large(rows):.2f} for the largest. The critical "
        f"batch size is {critical(rows)[1]:.0f}, and the noise scale is {scale(rows):.0f}. The test error is "
        f"{errors[0]} with a small batch, {errors[1]} with a large batch for equal epochs, and {errors[2]} for equal "
        "steps."
    )


def panels(rows: Rows) -> Sequence[AnyPanel]:
    smallest, found = critical(rows)
    noise_rows, step_rows = rows.where(kind="noise"), rows.where(kind="steps")
    batches = sorted(step_rows.distinct("batch"))
    first = noise_rows.where(batch=batches[0]).mean("deviation")
    fit = [smallest * (1 + found / batch) for batch in batches]
    perfect = [batch for batch in batches if smallest * found / batch >= smallest / 4]
    return [
        Panel(
            title="deviation of the gradient of a batch",
            lines=[
                curve(noise_rows, "batch", "deviation", name="measured"),
                Line(name="1/√B", x=batches, y=[first / math.sqrt(b / batches[0]) for b in batches], dashed=True),
            ],
            x_label="batch size",
            y_label="‖g − G‖ / ‖G‖",
            log_x=True,
            log_y=True,
        ),
        Panel(
            title="steps to the target",
            lines=[
                curve(step_rows, "batch", "steps", name="measured"),
                Line(name="fit", x=batches, y=fit, dashed=True),
                Line(name="perfect", x=perfect, y=[smallest * found / batch for batch in perfect], dashed=True),
            ],
            x_label="batch size",
            log_x=True,
            log_y=True,
            marks={"noise scale": scale(rows)},
        ),
        Panel(
            title="best learning rate",
            lines=[curve(step_rows, "batch", "rate", name="SGD")],
            x_label="batch size",
            log_x=True,
            log_y=True,
        ),
        Panel(
            title="test error",
            lines=[
                curve(
                    Rows({**row, "place": 1 + REGIMES.index(row["regime"])} for row in rows.where(kind="error")),
                    "place",
                    "test_error",
                    name="",
                )
            ],
            ticks=REGIMES,
        ),
    ]


EXPERIMENT = Experiment(
    name="batch_size",
    title="Batch size",
    claim="The noise of the gradient of a batch of B rows falls as 1/√B. Up to the noise scale, doubling the batch "
    "halves the steps to a given loss. Beyond it, the gain is small. Large batches generalize worse than small ones "
    "after equally many epochs, and equally well after equally many steps.",
    sources=(
        "McCandlish et al. 2018, An empirical model of large-batch training",
        "Shallue et al. 2019, Measuring the effects of data parallelism on neural network training",
        "Keskar et al. 2017, On large-batch training for deep learning: generalization gap and sharp minima",
        "Hoffer et al. 2017, Train longer, generalize better",
    ),
    settings=Settings(),
    full=Settings(width=128, rows_seen=131072, target=0.02),
    tiny=Settings(
        rows=256,
        width=16,
        batches=(1, 8, 64, 256),
        exponents=(-5, -3, -1),
        rows_seen=2048,
        target=0.4,
        draws=32,
        few=200,
        epochs=10,
        repeats=1,
    ),
    seeds=10,
    full_seeds=30,
    parts=parts,
    measure=measure,
    criteria=(
        Criterion(
            statement="The exponent of B in the gradient noise differs from −1/2 by at most 0.05.",
            value=lambda rows: abs(noise_slope(rows) + 0.5),
            at_most=0.05,
        ),
        Criterion(
            statement="For the smallest batches, a doubled batch divides the steps by at least 1.7.",
            value=for_small,
            at_least=1.7,
        ),
        Criterion(
            statement="For the largest batches, a doubled batch divides the steps by at most 1.2.",
            value=for_large,
            at_most=1.2,
        ),
        Criterion(
            statement="The critical batch size and the noise scale differ by at most a factor of 10.",
            value=apart,
            log=True,
            at_most=10.0,
        ),
        Criterion(
            statement="After equally many epochs, the test error of the large batch is higher.",
            value=lambda rows: loss_of_large(rows, REGIMES[1]),
            at_least=0.0,
        ),
        Criterion(
            statement="After equally many steps, the test error of the large batch is at most 0.5 percentage points "
            "higher.",
            value=lambda rows: loss_of_large(rows, REGIMES[2]),
            at_most=0.005,
        ),
    ),
    summary=summary,
    panels=panels,
    published=(
        Published(
            what="Exponent of B in the deviation of the gradient",
            theirs="−1/2",
            source="variance of a mean of B independent rows",
            ours=lambda rows: f"{noise_slope(rows):.3f}",
        ),
    ),
)
