"""Activations at equal FLOPs.

An activation that needs more floating-point operations (FLOPs) per unit is compared with a narrower network. A budget
is the FLOPs of one training step (forward, backward, Adam) of a network with two hidden ReLU layers, as counted by
`ml.cost`. For each other activation, the two hidden layers get the largest width whose training step stays within the
budget. GELU, for example, gets slightly fewer units than ReLU. For some units, two linear maps are counted:

    relu, tanh, gelu, silu     a = f(W x + b)
    swiglu                     a = silu(W₁ x + b₁) ⊙ (W₂ x + b₂)     two maps
    maxout                     a = max(W₁ x + b₁, W₂ x + b₂)         two maps

The targets are the classes of a table and three functions of inputs that are uniform in [-1, 1]:

    table       one output per class: 1 for the class of the row, 0 for the others
    smooth      a sum of cosines along random directions
    kinked      a sum of absolute values of linear functions
    products    a sum of products of pairs of inputs

All networks minimize the mean squared error with Adam and a cosine schedule, for the same number of steps on the same
batches. The error is the mean squared error on new rows, divided by the variance of the targets. For each budget and
target, it is divided by the error of the ReLU network. A criterion uses the geometric mean of these ratios.

All activations use the same learning rate. Tuning it for each activation could change ratios that are near 1. Time is
not measured here. A FLOP of GELU takes longer than a FLOP of a matrix product: see the experiment "Cost claims".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...costs import cost
from ...drawing.plots import AnyPanel, Line, Panel
from ...errors import OptionError, unknown_name
from ..criteria import Criterion
from ..curves import curves
from ..experiment import Experiment, need
from ..rows import Row, Rows
from ..tables import class_count, classification, divided
from ..training import Task, Training, train

Floats = NDArray[np.float64]
REFERENCE = "relu"
WIDE = 64
"""Width at which the additional FLOPs of GELU are compared with the published number."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    data: str = "digits"
    targets: tuple[str, ...] = ("table", "smooth", "kinked", "products")
    activations: tuple[str, ...] = ("relu", "tanh", "gelu", "silu", "swiglu", "maxout")
    widths: tuple[int, ...] = (16, 32, 64)
    """Widths of the ReLU networks, which define the budgets."""
    rows: int = 1000
    test_rows: int = 2000
    inputs: int = 8
    steps: int = 1000
    batch: int = 64
    rate: float = 0.003


def parts(settings: Settings) -> Sequence[tuple[str, int]]:
    """Return each target with each budget, which is given as the width of the ReLU network."""
    need("activations", settings.activations, includes=(REFERENCE, "gelu", "swiglu", "maxout"))
    need("targets", settings.targets)
    for target in settings.targets:
        if target not in ("table", *FUNCTIONS):
            raise OptionError(unknown_name("target", target, ("table", *FUNCTIONS)))
    return [(target, width) for target in settings.targets for width in settings.widths]


def measure(settings: Settings, part: tuple[str, int], seed: int) -> Iterator[Row]:
    """Yield the test error of each activation at one budget on one target."""
    target, budget = part
    training, test = tasks(settings, target, seed)
    sizes = training.x.shape[1], training.targets.shape[1]
    allowed = cost(network(REFERENCE, sizes, budget), batch=settings.batch).step
    for name in settings.activations:
        width = widest(name, sizes, allowed, settings.batch)
        options = Training(
            steps=settings.steps,
            learning_rate=settings.rate,
            batch=settings.batch,
            schedule="cosine",
            engine="numpy" if name == "maxout" else "auto",  # the fused engine has no maxout
            seed=seed,
        )
        spec = network(name, sizes, width)
        trained = train(spec, training, options).network
        error = float(np.mean((trained.outputs(test.x) - test.targets) ** 2)) / float(test.targets.var(axis=0).mean())
        yield {
            "target": target,
            "activation": name,
            "budget": budget,
            "width": width,
            "flops": cost(spec, batch=settings.batch).step,
            "error": error,
            "overhead": overhead(name, sizes, WIDE, settings.batch),
        }


def network(name: str, sizes: tuple[int, int], width: int) -> str:
    """Return the description of a network with two hidden layers.

    >>> network("swiglu", (8, 1), 4), network("gelu", (8, 1), 4)
    ('8-swiglu(4)-swiglu(4)-1', '8-4:gelu-4:gelu-1')
    """
    layer = f"{name}({width})" if name in ("swiglu", "maxout") else f"{width}:{name}"
    return f"{sizes[0]}-{layer}-{layer}-{sizes[1]}"


def widest(name: str, sizes: tuple[int, int], allowed: int, batch: int) -> int:
    """Return the largest width whose training step needs at most the allowed FLOPs, at least 1."""
    low, high = 1, 2
    while cost(network(name, sizes, high), batch=batch).step <= allowed:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        fits = cost(network(name, sizes, middle), batch=batch).step <= allowed
        low, high = (middle, high) if fits else (low, middle)
    return low


def overhead(name: str, sizes: tuple[int, int], width: int, batch: int) -> float:
    """Return how many more FLOPs a step needs than with ReLU at the same width, as a share."""
    return (
        cost(network(name, sizes, width), batch=batch).step / cost(network(REFERENCE, sizes, width), batch=batch).step
        - 1
    )


def tasks(settings: Settings, target: str, seed: int) -> tuple[Task, Task]:
    """Return training rows and test rows of a target."""
    if target == "table":
        table = classification(settings.data)
        one_hot = Task(x=table.x, y=np.eye(class_count(table))[table.y])
        return divided(one_hot, rows=settings.rows, seed=seed)
    generator = np.random.default_rng([seed, list(FUNCTIONS).index(target)])
    x = generator.uniform(-1, 1, size=(settings.rows + settings.test_rows, settings.inputs))
    y = FUNCTIONS[target](x, generator)
    whole = Task(x=x, y=((y - y.mean()) / y.std())[:, None])
    return whole.rows(slice(settings.rows)), whole.rows(slice(settings.rows, None))


def smooth(x: Floats, generator: np.random.Generator) -> Floats:
    """Return a sum of cosines of random directions."""
    w = generator.normal(size=(x.shape[1], 8))
    return np.cos(x @ w + generator.uniform(0, 2 * np.pi, 8)).sum(axis=1)


def kinked(x: Floats, generator: np.random.Generator) -> Floats:
    """Return a sum of absolute values of linear functions, half of them negative."""
    w = generator.normal(size=(x.shape[1], 8))
    return np.abs(x @ w + generator.normal(size=8)) @ np.repeat([1.0, -1.0], 4)


def products(x: Floats, generator: np.random.Generator) -> Floats:
    """Return a sum of products of disjoint pairs of inputs, with random weights."""
    pairs = x.shape[1] // 2
    return (x[:, :pairs] * x[:, pairs : 2 * pairs]) @ generator.normal(size=pairs)


FUNCTIONS: Mapping[str, Callable[[Floats, np.random.Generator], Floats]] = {
    "smooth": smooth,
    "kinked": kinked,
    "products": products,
}


def ratio(rows: Rows, activation: str, **chosen: Any) -> float:
    """Return the geometric mean over budgets and targets of the error, divided by that of ReLU."""
    own, reference = (rows.where(activation=name, **chosen).numbers("error") for name in (activation, REFERENCE))
    return float(np.exp(np.mean(np.log(own / reference))))


def summary(rows: Rows) -> str:
    others = [name for name in rows.distinct("activation") if name != REFERENCE]
    ratios = ", ".join(f"{ratio(rows, name):.2f} with {name}" for name in others)
    by_target = ", ".join(f"{ratio(rows, 'gelu', target=target):.2f} on {target}" for target in rows.distinct("target"))
    extra = rows.where(activation="gelu").mean("overhead")
    return (
        f"At equal FLOPs, the test error divided by that of ReLU is {ratios}. For gelu, it is {by_target}. "
        f"At equal width {WIDE}, a step with gelu needs {extra:.1%} more FLOPs than with ReLU."
    )


def panels(rows: Rows) -> Sequence[AnyPanel]:
    names = rows.distinct("activation")
    return [
        Panel(
            title="test error relative to ReLU at equal FLOPs",
            lines=[
                Line(
                    name=target,
                    x=list(range(1, len(names) + 1)),
                    y=[ratio(rows, name, target=target) for name in names],
                    joined=False,
                )
                for target in rows.distinct("target")
            ],
            ticks=names,
            y_label="error / error of ReLU",
            log_y=True,
        ),
        *[
            Panel(
                title=f"test error by budget: {target}",
                lines=curves(rows.where(target=target), "budget", "error", "activation"),
                x_label="width of the ReLU network of equal FLOPs",
                y_label="error / variance of the target",
                log_x=True,
                log_y=True,
            )
            for target in rows.distinct("target")
            if target != "smooth"
        ],
    ]


EXPERIMENT = Experiment(
    name="activation_functions",
    title="Activations at equal FLOPs",
    claim="GELU needs 1 to 2 % more FLOPs than ReLU and reaches a lower error, although its network is narrower "
    "at equal FLOPs. Units with two linear maps (SwiGLU and maxout) also reach a lower error at equal FLOPs. Other "
    "functions of one input rarely change the error much compared with ReLU.",
    sources=(
        "Hendrycks and Gimpel 2016, Gaussian Error Linear Units (GELUs)",
        "Shazeer 2020, GLU Variants Improve Transformer",
        "Goodfellow, Warde-Farley, Mirza, Courville and Bengio 2013, Maxout Networks",
    ),
    settings=Settings(),
    full=Settings(widths=(8, 16, 32, 64, 128, 256), rows=4000, steps=20_000),
    tiny=Settings(
        targets=("kinked", "products"),
        activations=("relu", "gelu", "swiglu", "maxout"),
        widths=(16,),
        rows=300,
        test_rows=300,
        inputs=4,
        steps=400,
        rate=0.01,
    ),
    seeds=8,
    full_seeds=10,
    parts=parts,
    measure=measure,
    criteria=(
        Criterion(
            statement=f"At width {WIDE}, a training step with GELU needs at most 2 % more FLOPs than with ReLU.",
            value=lambda rows: rows.where(activation="gelu").mean("overhead"),
            at_most=0.02,
        ),
        Criterion(
            statement="At equal FLOPs, the error with GELU is not larger than with ReLU.",
            value=lambda rows: ratio(rows, "gelu"),
            at_most=1.0,
            log=True,
        ),
        Criterion(
            statement="At equal FLOPs, the error with SwiGLU is not larger than with ReLU.",
            value=lambda rows: ratio(rows, "swiglu"),
            at_most=1.0,
            log=True,
        ),
        Criterion(
            statement="At equal FLOPs, the error with maxout is not larger than with ReLU.",
            value=lambda rows: ratio(rows, "maxout"),
            at_most=1.0,
            log=True,
        ),
        Criterion(
            statement="At equal FLOPs, the error with GELU is at least 0.9 times the error with ReLU.",
            value=lambda rows: ratio(rows, "gelu"),
            at_least=0.9,
            log=True,
        ),
    ),
    summary=summary,
    panels=panels,
)
