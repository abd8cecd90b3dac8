"""Dead units by learning rate.

A ReLU unit passes no gradient where its value z before the activation is 0 or less. If z ≤ 0 on every row, no gradient
reaches its weights. The unit is then dead, unless other layers change its inputs. A step that is too long can make many
units of a hidden layer dead at once. The reason is that the inputs of the layer are outputs of ReLU, so they are not
negative, and one step can change z = w · x + b in the same direction on all rows.

Networks with several hidden layers are trained with Adam on a table with classes. Each step uses all rows, and the
number of steps is fixed. There is one run per learning rate and activation, and all runs use the same random numbers.
The state of a unit is determined on all rows:

    dead     f′(z) is exactly 0 on every row. Only functions such as ReLU have regions where this is possible.
    died     dead after training, but not before: in deep layers, a few units are dead at initialization
    flat     |f′(z)| ≤ 0.001 on every row: the unit learns very slowly, whatever its activation is

A learning rate "still trains" if its training error is within ten percentage points of the lowest training error. The
criteria use the largest such rate of the ReLU network. At this rate, the training error alone does not show that units
died. Leaky ReLU has the slope 0.01 below 0, so its units are never flat by this definition. GELU units can be flat: the
slope of GELU falls below 0.001 in size at z ≈ −3.9.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...drawing.plots import AnyPanel, Panel
from ...nn import activations
from ...nn.activations.properties import dead
from ..criteria import Criterion
from ..curves import curve, curves
from ..experiment import Experiment, Published, need
from ..rows import Row, Rows
from ..tables import class_count, classification
from ..training import Training, train

FLAT = 1e-3
"""Largest slope of a flat unit."""
LOSS_OF_ERROR = 0.1
"""A learning rate still trains if its training error is at most this much above the lowest one."""
DEFAULT_RATE = 0.001
"""The default learning rate of Adam in PyTorch."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    data: str = "digits"
    activations: tuple[str, ...] = ("relu", "leaky_relu", "gelu")
    rates: tuple[float, ...] = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128)
    width: int = 64
    depth: int = 3
    steps: int = 1500
    batch: int = 64
    at: tuple[int, ...] = (0, 10, 100, 500)


def parts(settings: Settings) -> Sequence[tuple[str, float]]:
    """Return activation and learning rate of each network."""
    need("activations", settings.activations, includes=("relu", "leaky_relu", "gelu"))
    need("rates", settings.rates, includes=(DEFAULT_RATE,))
    return [(name, rate) for name in settings.activations for rate in settings.rates]


def measure(settings: Settings, part: tuple[str, float], seed: int) -> Iterator[Row]:
    """Yield a row per hidden layer after some numbers of steps. The last has the training error as well."""
    name, rate = part
    task = classification(settings.data)
    spec = "-".join([str(task.x.shape[1]), *[f"{settings.width}:{name}"] * settings.depth, str(class_count(task))])
    options = Training(
        steps=settings.steps, learning_rate=rate, batch=settings.batch, init="he", seed=seed, at=settings.at
    )
    trained = train(spec, task, options)
    before: list[States] = []
    for step, network in (trained.stored | {settings.steps: trained.network}).items():
        values, outputs = network.values(task.x)
        now = [unit_states(name, values[f"{name}{i}"].x) for i in range(1, settings.depth + 1)]
        before = before or now
        error = float((outputs.argmax(axis=1) != task.y).mean())
        for i, (state, first) in enumerate(zip(now, before, strict=True), start=1):
            yield {
                "activation": name,
                "rate": rate,
                "step": step,
                "last": step == settings.steps,
                "layer": i,
                "dead": float(state.dead.mean()),
                "died": float((state.dead & ~first.dead).mean()),
                "flat": float(state.flat.mean()),
                "error": error,
            }


class States(NamedTuple):
    """Which units of a layer are dead, and which are flat."""

    dead: NDArray[np.bool_]
    flat: NDArray[np.bool_]


def unit_states(name: str, z: NDArray[np.float64]) -> States:
    """Return which units are dead and which are flat, for z (rows, units).

    >>> [state.tolist() for state in unit_states("gelu", np.array([[-5.0, 1.0], [-6.0, -7.0]]))]
    [[False, False], [True, False]]
    """
    function = activations.get(name)
    return States(dead(function, z), np.all(np.abs(function.df(z)) <= FLAT, axis=0))


def large_rate(rows: Rows) -> float:
    """Return the largest rate at which the ReLU network still trains."""
    own = rows.where(activation="relu", last=True)
    errors = {rate: at.mean("error") for (rate,), at in own.by("rate")}
    return max(rate for rate, error in errors.items() if error <= min(errors.values()) + LOSS_OF_ERROR)


def after(rows: Rows, activation: str, rate: float, what: str) -> float:
    """Return a share of all hidden units after training."""
    return rows.where(activation=activation, rate=rate, last=True).mean(what)


def summary(rows: Rows) -> str:
    per_seed = [(own, large_rate(own)) for _, own in rows.by("seed")]
    died, flat_gelu = (
        float(np.mean([after(own, name, rate, what) for own, rate in per_seed]))
        for name, what in (("relu", "died"), ("gelu", "flat"))
    )
    rates = [rate for _, rate in per_seed]
    default = after(rows, "relu", DEFAULT_RATE, "died")
    return (
        f"At the largest rate that still trains ({min(rates):g} to {max(rates):g}), {died:.0%} of the ReLU units died, "
        f"and {flat_gelu:.0%} of the GELU units are flat. At the default rate of {DEFAULT_RATE:g}, {default:.1%} of "
        "the ReLU units died."
    )


def panels(rows: Rows) -> Sequence[AnyPanel]:
    last = rows.where(last=True)
    relu = rows.where(activation="relu")
    rates = sorted(relu.distinct("rate"))
    return [
        Panel(
            title=f"units with a slope ≤ {FLAT:g} on every row",
            lines=curves(last, "rate", "flat", "activation"),
            x_label="learning rate",
            y_label="share of hidden units",
            log_x=True,
        ),
        Panel(
            title="training error",
            lines=curves(last, "rate", "error", "activation"),
            x_label="learning rate",
            log_x=True,
        ),
        Panel(
            title="dead ReLU units during training",
            lines=[
                curve(relu.where(rate=rate).having(lambda row: row["step"] > 0), "step", "dead", name=f"rate {rate:g}")
                for rate in rates[-4:]
            ],
            x_label="step",
            y_label="share of hidden units",
            log_x=True,
        ),
        Panel(
            title="dead ReLU units by layer",
            lines=curves(relu.where(last=True), "rate", "dead", "layer", name=lambda layer: f"layer {layer}"),
            x_label="learning rate",
            log_x=True,
        ),
    ]


def at_large_rate(activation: str, what: str) -> Any:
    """Return the function from rows to a share at the largest rate that still trains."""
    return lambda rows: after(rows, activation, large_rate(rows), what)


EXPERIMENT = Experiment(
    name="dead_units",
    title="Dead units",
    claim="If the learning rate is too large, 10 to 40 % of the ReLU units die during training and never learn again. "
    "A smaller learning rate, leaky ReLU or GELU avoids this.",
    sources=(
        "Karpathy 2015, CS231n: Convolutional Neural Networks for Visual Recognition, Neural Networks Part 1",
        "Maas, Hannun and Ng 2013, Rectifier Nonlinearities Improve Neural Network Acoustic Models",
        "Hendrycks and Gimpel 2016, Gaussian Error Linear Units (GELUs)",
    ),
    settings=Settings(),
    full=Settings(width=256, steps=10_000),
    tiny=Settings(rates=(0.001, 0.004, 0.064), width=16, depth=2, steps=150, at=(0, 10)),
    seeds=10,
    full_seeds=20,
    parts=parts,
    measure=measure,
    criteria=(
        Criterion(
            statement="At the largest rate that still trains, at least 10 % of the ReLU units die.",
            value=at_large_rate("relu", "died"),
            at_least=0.1,
        ),
        Criterion(
            statement="At the largest rate that still trains, at most 40 % of the ReLU units die.",
            value=at_large_rate("relu", "died"),
            at_most=0.4,
        ),
        Criterion(
            statement=f"At the default rate of Adam, {DEFAULT_RATE:g}, at most 1 % of the ReLU units die.",
            value=lambda rows: after(rows, "relu", DEFAULT_RATE, "died"),
            at_most=0.01,
        ),
        Criterion(
            statement="At the largest rate that still trains, at most 1 % of the leaky ReLU units are flat.",
            value=at_large_rate("leaky_relu", "flat"),
            at_most=0.01,
        ),
        Criterion(
            statement="At the largest rate that still trains, at most 1 % of the GELU units are flat.",
            value=at_large_rate("gelu", "flat"),
            at_most=0.01,
        ),
    ),
    summary=summary,
    panels=panels,
    published=(
        Published(
            what="Share of ReLU units that are inactive on all rows if the learning rate is too high",
            theirs="as much as 40 %",
            source="Karpathy 2015, CS231n, Neural Networks Part 1, section Commonly used activation functions",
            ours=lambda rows: ", ".join(
                f"{after(rows, 'relu', rate, 'dead'):.0%} at {rate:g}"
                for rate in sorted(rows.distinct("rate"))
                if rate >= 10 * DEFAULT_RATE
            ),
        ),
    ),
)
