"""Cost claims, measured on this machine.

All times are processor times of one thread, in float32, with batches of 64 rows. The variants run alternately, many
times each. Only the smallest time of each variant is used, because other work on the machine can only increase a time.
Before each timed call, the same call runs once without timing, so that the data of every variant are in the cache.
A seed is a repetition of the whole measurement.

Training steps. The fused engine trains a network with three hidden layers of equal width. The plain step uses ReLU and
Adam without regularization. One thing is changed at a time: GELU instead of ReLU, dropout with p = 0.1 after each
hidden layer, or an L2 penalty. The time of the changed step is divided by the time of the plain step. The forward pass
is also timed alone, for as many rows as the steps and, like the steps, in one call of the engine. It needs 2 FLOPs per
weight and row, and the backward pass needs 4, so a step should take three times as long as a forward pass. The time of
a step includes the update of Adam.

Fused layers. Four layers relu(W x + b) are computed in two ways: in one call of the fused engine, and with separate
calls of numpy (product, addition of the bias in place, maximum in place). The speedup contains every difference between
the two: the speed of the matrix products, the number of calls, and the memory traffic that fusion avoids. The matrix
products alone are therefore timed with numpy as well. The time of separate calls divided by the time of the products
alone is the largest speedup that fusion could reach with numpy's products.

The published numbers are for graphics processors and transformers. Here they are tested on the hardware and sizes that
users of this package have: a processor, and widths that are common for tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from ...costs import cost
from ...data.batches import Data
from ...drawing.plots import AnyPanel, Panel
from ...engines import Engine, Order
from ...engines import Settings as EngineSettings
from ...engines.config import EngineConfig
from ...engines.make import make_engine
from ...spec import Spec
from ..criteria import Criterion
from ..curves import curve, curves
from ..experiment import Experiment, Published
from ..rows import Row, Rows

WORK = 1e8
"""Approximate FLOPs of one timed call: several steps of a small network, or one step of a large network."""
BOOK = "784-256-128-10"
"""The network whose FLOPs per parameter are compared with the published number."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    widths: tuple[int, ...] = (64, 128, 256, 512)
    rounds: int = 80
    rows: int = 64


def parts(settings: Settings) -> Sequence[tuple[str, int]]:
    """Return what is timed, and the width."""
    return [(what, width) for what in ("step", "layers") for width in settings.widths]


def measure(settings: Settings, part: tuple[str, int], seed: int) -> Iterator[Row]:
    """Yield a row per ratio of times."""
    what, width = part
    found = (step_ratios if what == "step" else layer_ratios)(settings, width, seed)
    for name, ratio in found.items():
        yield {"width": width, "ratio": name, "value": ratio}


def step_ratios(settings: Settings, width: int, seed: int) -> dict[str, float]:
    """Return the time of each changed training step, divided by the time of the plain step."""
    plain = network(width, "relu")
    engines = {
        "plain": engine(plain, settings.rows, seed),
        "GELU": engine(network(width, "gelu"), settings.rows, seed),
        "dropout": engine(network(width, "relu:dropout(0.1)"), settings.rows, seed),
        "L2": engine(plain, settings.rows, seed, l2=1e-4),
    }
    count = max(1, round(WORK / cost(plain, batch=settings.rows).step))
    calls: dict[str, Callable[[], object]] = {
        name: partial(run, own, settings.rows, count) for name, own in engines.items()
    }
    rows = np.tile(np.arange(settings.rows), count)  # as many as in the steps, and in one call as well
    calls["forward"] = lambda: engines["plain"].outputs(rows)
    try:
        times = smallest(calls, settings.rounds)
    finally:
        for own in engines.values():
            own.close()
    ratios = {name: times[name] / times["plain"] for name in ("GELU", "dropout", "L2")}
    return ratios | {"step / forward": times["plain"] / times["forward"]}


def layer_ratios(settings: Settings, width: int, seed: int) -> dict[str, float]:
    """Return the times of layers with separate calls, divided by those of the fused engine and of the products."""
    own = engine(f"{width}-({width}:relu)*4-1", settings.rows, seed)
    x = np.asarray(own.data.x)
    layers = [(own.state().parameters[f"linear{i}.weight"], np.zeros(width, np.float32)) for i in range(1, 5)]
    last = own.state().parameters["linear5.weight"]
    rows = np.arange(settings.rows)

    def separate() -> Any:
        a = x[rows]
        for weight, bias in layers:
            a = a @ weight.T
            a += bias
            np.maximum(a, 0, out=a)
        return a @ last.T

    def products() -> Any:
        a = x[rows]
        for weight, _ in layers:
            a = a @ weight.T
        return a @ last.T

    count = max(1, round(WORK / (8 * settings.rows * width**2)))
    variants: dict[str, Callable[[], Any]] = {
        "fused": lambda: own.outputs(rows),
        "separate": separate,
        "products": products,
    }
    calls = {name: partial(repeat, call, count) for name, call in variants.items()}
    try:
        with threadpool_limits(1):
            times = smallest(calls, settings.rounds)
    finally:
        own.close()
    return {
        "separate / fused": times["separate"] / times["fused"],
        "separate / products": times["separate"] / times["products"],
    }


def network(width: int, layer: str) -> str:
    """Return a network with three hidden layers."""
    return f"{width}-({width}:{layer})*3-{width}"


def engine(spec: str, rows: int, seed: int, *, l2: float = 0.0) -> Engine:
    """Return the fused engine for a network, with random rows and one thread."""
    own = Spec.parse(spec)
    generator = np.random.default_rng(seed)
    data = Data(
        x=generator.normal(size=(rows, own.inputs.numeric)).astype(np.float32),
        y=generator.normal(size=(rows, own.d_out)).astype(np.float32),
    )
    config = EngineConfig(engine="fused", optimizer="adam", l2=l2, seed=seed, threads=1)
    settings = EngineSettings.of(config, loss="mse", loss_function=None, rate_factors={})
    return make_engine(own, data, settings, np.arange(rows))


def run(own: Engine, rows: int, steps: int) -> None:
    """Run training steps with a learning rate so small that the parameters hardly change."""
    order = Order(epoch=0, rows=np.tile(np.arange(rows), steps), batch=rows)
    own.run(order, rate=np.full(steps, 1e-9), decay=np.zeros(steps), dropout=np.ones(steps))


def repeat(call: Callable[[], object], count: int) -> None:
    """Call a function several times."""
    for _ in range(count):
        call()


def smallest(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the smallest processor time of each call in seconds, from alternating calls."""
    found = dict.fromkeys(calls, np.inf)
    for _ in range(rounds):
        for name, call in calls.items():
            call()
            began = time.process_time()
            call()
            found[name] = min(found[name], time.process_time() - began)
    return found


def mean_ratio(rows: Rows, name: str) -> float:
    """Return the geometric mean over the widths of a ratio."""
    return float(np.exp(np.mean(np.log(rows.where(ratio=name).numbers("value")))))


def flops_per_parameter(spec: str, rows: int = 64) -> float:
    """Return the FLOPs of forward and backward pass per parameter and row, without products that no layer needs.

    >>> round(flops_per_parameter("784-256-128-10"), 1)
    4.3
    """
    counted = cost(spec, batch=rows)
    return (counted.forward + counted.backward) / counted.parameters / rows


def summary(rows: Rows) -> str:
    extra = ", ".join(f"{mean_ratio(rows, name) - 1:+.1%} with {name}" for name in ("GELU", "dropout", "L2"))
    forward, fused, products = (
        mean_ratio(rows, name) for name in ("step / forward", "separate / fused", "separate / products")
    )
    return (
        f"Averaged over the widths, the time of a training step changes by {extra}. A step takes {forward:.1f} times "
        f"as long as a forward pass. Fused layers are {fused:.1f} times as fast as separate calls of numpy. Without "
        f"bias and activation, numpy would be {products:.2f} times as fast as with them."
    )


def panels(rows: Rows) -> Sequence[AnyPanel]:
    steps = rows.having(lambda row: row["ratio"] in ("GELU", "dropout", "L2"))
    layers = rows.having(lambda row: row["ratio"].startswith("separate"))
    return [
        Panel(
            title="time of a step relative to plain ReLU",
            lines=curves(steps, "width", "value", "ratio"),
            x_label="width",
            log_x=True,
        ),
        Panel(
            title="four linear layers with ReLU",
            lines=curves(layers, "width", "value", "ratio"),
            x_label="width",
            y_label="ratio of times",
            log_x=True,
        ),
        Panel(
            title="training step / forward pass",
            lines=[curve(rows.where(ratio="step / forward"), "width", "value", name="measured")],
            x_label="width",
            y_label="ratio of times",
            log_x=True,
        ),
    ]


EXPERIMENT = Experiment(
    name="cost_claims",
    title="Cost claims",
    claim="A linear layer fused with its activation is 1.3 to 1.5 times as fast as separate calls. GELU instead of "
    "ReLU adds 1 to 2 % to the training time, dropout 4 to 5 %, and L2 regularization nothing. A training step needs "
    "6 FLOPs per parameter and row: 2 in the forward pass and 4 in the backward pass.",
    sources=(
        "Goodfellow, Bengio and Courville 2016, Deep Learning, chapter 6",
        "Kaplan et al. 2020, Scaling Laws for Neural Language Models",
    ),
    settings=Settings(),
    full=Settings(widths=(32, 64, 128, 256, 512, 1024, 2048), rounds=200),
    tiny=Settings(widths=(32, 64), rounds=5),
    seeds=6,
    full_seeds=10,
    parts=parts,
    measure=measure,
    criteria=(
        Criterion(
            statement="Fused layers are at least 1.3 times as fast as separate calls.",
            value=lambda rows: mean_ratio(rows, "separate / fused"),
            at_least=1.3,
        ),
        Criterion(
            statement="GELU adds at most 2 % to the time of a training step.",
            value=lambda rows: mean_ratio(rows, "GELU") - 1,
            at_most=0.02,
        ),
        Criterion(
            statement="Dropout adds at most 5 % to the time of a training step.",
            value=lambda rows: mean_ratio(rows, "dropout") - 1,
            at_most=0.05,
        ),
        Criterion(
            statement="L2 regularization adds at most 1 % to the time of a training step.",
            value=lambda rows: mean_ratio(rows, "L2") - 1,
            at_most=0.01,
        ),
        Criterion(
            statement="Training step / forward pass: the ratio of times differs from 3 by at most 0.5.",
            value=lambda rows: abs(mean_ratio(rows, "step / forward") - 3),
            at_most=0.5,
        ),
    ),
    summary=summary,
    panels=panels,
    exclusive=True,
    published=(
        Published(
            what=f"FLOPs of forward and backward pass per parameter and row of {BOOK}",
            theirs="6, including the gradient with respect to the network's inputs, which training does not need",
            source="Kaplan et al. 2020, section 2.1: 2 forward and twice as many backward",
            ours=lambda rows: f"{flops_per_parameter(BOOK):.2f} (counted, not timed)",
        ),
    ),
)
