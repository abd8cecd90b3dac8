"""Vanishing gradients by activation and depth.

A network with `depth` hidden layers of equal width gets standard normal inputs and targets. He's initialization is used
for ReLU and GELU, and Xavier's for sigmoid and tanh. The network is not trained. For each hidden layer, the root mean
square of ∂L/∂z over rows and units is measured, where z are the values before the activation. The value of the first
hidden layer divided by that of the last one, to the power 1 / (depth − 1), is the factor per layer.

    bound for sigmoid     σ′(z) ≤ 1/4. With weights that keep the norm, a layer passes at most 1/4 of the gradient.
    ReLU                  The slope of an active unit is exactly 1. Half of the units are inactive, and the variance 2/n
                          of He's initialization compensates for them.

The measured factor includes the effect of the weights. Multiplication by weights with Xavier's initialization keeps the
root mean square of a vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...drawing.plots import AnyPanel, Panel
from ...errors import OptionError
from ...spec import Spec
from ..criteria import Criterion
from ..curves import curves
from ..experiment import Experiment, Published, need
from ..rows import Row, Rows
from ..training import Network, Task

INITIALIZATIONS = {"sigmoid": "xavier", "tanh": "xavier"}


@dataclass(frozen=True, kw_only=True)
class Settings:
    activations: tuple[str, ...] = ("sigmoid", "tanh", "relu", "gelu")
    depths: tuple[int, ...] = (2, 5, 10, 20)
    width: int = 64
    rows: int = 256


def parts(settings: Settings) -> Sequence[tuple[str, int]]:
    """Return activation and depth of each network."""
    need("activations", settings.activations, includes=("sigmoid", "relu"))
    need("depths", settings.depths)
    if min(settings.depths) < 2:
        raise OptionError(f"depths must be at least 2, got {settings.depths}")
    return [(name, depth) for name in settings.activations for depth in settings.depths]


def measure(settings: Settings, part: tuple[str, int], seed: int) -> Iterator[Row]:
    """Yield a row per hidden layer of one network."""
    name, depth = part
    spec = Spec.parse("-".join([str(settings.width), *[f"{settings.width}:{name}"] * depth, "1"]))
    generator = np.random.default_rng([seed, depth])
    task = Task(x=generator.normal(size=(settings.rows, settings.width)), y=generator.normal(size=(settings.rows, 1)))
    network = Network.initial(spec, INITIALIZATIONS.get(name, "he"), seed=seed)
    gradients = network.gradients(task)
    layers = sorted((one for one in gradients if one.startswith(name)), key=lambda one: int(one.removeprefix(name)))
    sizes = [float(np.sqrt(np.mean(gradients[layer].dx ** 2))) for layer in layers]
    for i, size in enumerate(sizes, start=1):
        yield {"activation": name, "depth": depth, "layer": i, "gradient": size, "relative": size / sizes[-1]}


def factor(rows: Rows, activation: str) -> float:
    """Return the factor per layer in the deepest network. Below 1, the gradient vanishes toward the input."""
    own = rows.where(activation=activation)
    depth = max(own.values("depth"))
    return own.where(depth=depth, layer=1).mean("relative") ** (1 / (depth - 1))


def summary(rows: Rows) -> str:
    factors = ", ".join(f"{factor(rows, name):.2f} for {name}" for name in rows.distinct("activation"))
    depth = max(rows.values("depth"))
    share = rows.where(activation="sigmoid", depth=depth, layer=1).mean("relative")
    return (
        f"Per layer toward the input, the gradient is multiplied by {factors}. "
        f"After {depth} sigmoid layers, a share of {share:.1e} is left."
    )


def panels(rows: Rows) -> Sequence[AnyPanel]:
    depth = max(rows.values("depth"))
    first = rows.where(layer=1)
    return [
        Panel(
            title=f"gradient by layer, {depth} hidden layers",
            lines=curves(rows.where(depth=depth), "layer", "relative", "activation", log=True),
            x_label="hidden layer",
            y_label="relative to the last",
            log_y=True,
        ),
        Panel(
            title="gradient of the first layer by depth",
            lines=curves(first, "depth", "relative", "activation", log=True),
            x_label="number of hidden layers",
            log_y=True,
        ),
    ]


EXPERIMENT = Experiment(
    name="vanishing_gradients",
    title="Vanishing gradients",
    claim="The gradient of a sigmoid network shrinks by a factor of at most 0.25 per layer, so that about 0.25^L is "
    "left after L layers. With ReLU, an active unit passes the gradient unchanged, and the gradient does not vanish.",
    sources=(
        "Hochreiter 1991, Untersuchungen zu dynamischen neuronalen Netzen",
        "Glorot and Bengio 2010, Understanding the difficulty of training deep feedforward neural networks",
    ),
    settings=Settings(),
    full=Settings(depths=(2, 5, 10, 20, 40), width=256, rows=1024),
    tiny=Settings(activations=("sigmoid", "relu"), depths=(2, 6), width=16, rows=64),
    seeds=10,
    full_seeds=50,
    parts=parts,
    measure=measure,
    criteria=(
        Criterion(
            statement="A sigmoid layer multiplies the gradient by 0.3 or less.",
            value=lambda rows: factor(rows, "sigmoid"),
            at_most=0.3,
        ),
        Criterion(
            statement="A ReLU layer multiplies the gradient by at least 0.8.",
            value=lambda rows: factor(rows, "relu"),
            at_least=0.8,
        ),
        Criterion(
            statement="A ReLU layer multiplies the gradient by 1.25 or less.",
            value=lambda rows: factor(rows, "relu"),
            at_most=1.25,
        ),
    ),
    summary=summary,
    panels=panels,
    published=(
        Published(
            what="Gradient of the first of 10 sigmoid layers, relative to the last layer",
            theirs="at most 0.25⁹ ≈ 3.8e-6",
            source="σ′(z) ≤ 1/4, with weights that keep the norm",
            ours=lambda rows: (
                f"{rows.where(activation='sigmoid', depth=10, layer=1).mean('relative'):.1e}"
                if rows.where(depth=10)
                else "not measured at this size"
            ),
        ),
    ),
)
