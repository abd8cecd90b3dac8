"""Variance through depth by initialization.

An untrained network with `depth` hidden layers of equal width n gets standard normal inputs, and standard normal
gradients at its outputs. `ml.variance` measures the mean square of the activations a and of the gradients ∂L/∂a of each
hidden layer. It also predicts both for wide networks. For each seed, the geometric mean of several networks is used,
because products of many random matrices vary strongly from network to network (Hanin 2018). With weights of variance V,
a layer changes the mean square as follows:

    z = W a      multiplied by n V
    a = f(z)     multiplied by exactly 1/2 for ReLU, because z is symmetric, and by less than 1 for tanh, which
                 saturates

So the mean square is steady with V = 2/n (He) for ReLU, and with V = 1/n (Xavier, at equal widths) for small z of tanh.
A variance that does not depend on n is steady at one width only. At n = 64, a ReLU layer multiplies the mean square by
32 with V = 1, and by 0.32 with V = 0.01. PyTorch's default for linear layers is V = 1/(3n), with random biases of the
same variance. The activations of its deep layers come from the biases, and are the same for every row.

The first and the last hidden layer are compared. As in the rest of the package, a change by at most a factor of 10 is
called steady, and a change by a factor of more than 1000 is called vanishing or exploding. The networks are not
trained. A network with vanishing activations can still learn if it has a norm: see "Residual connections".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...drawing.plots import AnyPanel, Line, Panel
from ...spec import Spec
from ...spec.propagation import EXTREME, STEADY, variance
from ..criteria import Criterion
from ..curves import curve
from ..experiment import Experiment, Published, need
from ..rows import Row, Rows

NAMES = {"he": "He", "xavier": "Xavier", "torch": "PyTorch", "normal(1)": "V = 1", "normal(0.01)": "V = 0.01"}


@dataclass(frozen=True, kw_only=True)
class Settings:
    activations: tuple[str, ...] = ("relu", "tanh")
    schemes: tuple[str, ...] = tuple(NAMES)
    depth: int = 20
    width: int = 64
    networks: int = 6
    """Number of networks of one seed."""
    rows: int = 256


def parts(settings: Settings) -> Sequence[tuple[str, str]]:
    """Return activation and initialization of each network."""
    need("activations", settings.activations, includes=("relu", "tanh"))
    need("schemes", settings.schemes, includes=tuple(NAMES))
    return [(name, scheme) for name in settings.activations for scheme in settings.schemes]


def measure(settings: Settings, part: tuple[str, str], seed: int) -> Iterator[Row]:
    """Yield a row per hidden layer: geometric means over the networks, and the predictions."""
    name, scheme = part
    n = settings.width
    spec = Spec.parse("-".join([str(n), *[f"{n}:{name}"] * settings.depth, str(n)]))
    found = [
        {layer.name: layer for layer in variance(spec, scheme, seed=own, rows=settings.rows).layers}
        for own in range(seed * settings.networks, (seed + 1) * settings.networks)
    ]
    for i in range(1, settings.depth + 1):
        z, a = ([layers[f"{kind}{i}"] for layers in found] for kind in ("linear", name))
        forward = [layer.measured_forward for layer in a]
        yield {
            "activation": name,
            "scheme": scheme,
            "layer": i,
            "forward": geometric_mean(forward),
            "backward": geometric_mean([layer.measured_backward for layer in a]),
            "predicted_forward": a[0].predicted_forward,
            "predicted_backward": a[0].predicted_backward,
            "passed": geometric_mean(
                [after / before.measured_forward for after, before in zip(forward, z, strict=True)]
            ),
        }


def label(scheme: str) -> str:
    """Return the name of an initialization in plots and texts."""
    return NAMES.get(scheme, scheme)


def geometric_mean(values: Sequence[float]) -> float:
    """Return exp of the mean logarithm."""
    return float(np.exp(np.mean(np.log(values))))


def change(rows: Rows, activation: str, scheme: str, what: str) -> float:
    """Return the factor between the first and the last hidden layer, in the direction of the pass."""
    own = rows.where(activation=activation, scheme=scheme)
    first, last = (own.where(layer=at).mean(what) for at in (1, max(own.values("layer"))))
    return first / last if what.endswith("backward") else last / first


def size(factor: float) -> float:
    """Return a growth or a decrease as a factor of at least 1."""
    return max(factor, 1 / factor)


def largest_change(rows: Rows, activation: str, scheme: str) -> float:
    """Return the larger change of activations and gradients, as a factor of at least 1."""
    return max(size(change(rows, activation, scheme, what)) for what in ("forward", "backward"))


def summary(rows: Rows) -> str:
    depth = max(rows.values("layer"))
    he, xavier = (largest_change(rows, *pair) for pair in (("relu", "he"), ("tanh", "xavier")))
    large, small = (change(rows, "relu", scheme, "forward") for scheme in ("normal(1)", "normal(0.01)"))
    default = change(rows, "relu", "torch", "backward")
    return (
        f"Between the first and the last of {depth} layers, the mean square changes by a factor of {he:.1f} with He "
        f"and ReLU, and {xavier:.1f} with Xavier and tanh. With ReLU, the mean square of the activations is multiplied "
        f"by {large:.0e} at variance 1 and by {small:.0e} at variance 0.01. With PyTorch's default, the mean square of "
        f"the gradients is multiplied by {default:.0e}."
    )


def panels(rows: Rows) -> Sequence[AnyPanel]:
    titles = {"forward": "activations", "backward": "gradients"}
    return [
        Panel(
            title=f"{titles[what]}, {name} (dashed: predicted)",
            lines=[
                line
                for i, ((scheme,), own) in enumerate(rows.where(activation=name).by("scheme"))
                for line in lines(own, what, label(scheme), i)
            ],
            x_label="hidden layer",
            y_label="mean square",
            log_y=True,
        )
        for name in rows.distinct("activation")
        for what in titles
    ]


def lines(rows: Rows, what: str, name: str, colour: int) -> Sequence[Line]:
    """Return the measured line with its name, and the predicted one."""
    return (
        curve(rows, "layer", what, name=name, colour=colour),
        curve(rows, "layer", f"predicted_{what}", name="", dashed=True, colour=colour),
    )


def factors(rows: Rows) -> str:
    """Return the factor per ReLU layer of each initialization as text."""
    steps = max(rows.values("layer")) - 1
    return ", ".join(
        f"{label(scheme)}: {change(rows, 'relu', scheme, 'backward') ** (1 / steps):.2f}"
        for scheme in rows.distinct("scheme")
    )


EXPERIMENT = Experiment(
    name="variance_through_depth",
    title="Variance through depth",
    claim="Weights of variance 2/n (He) keep the size of activations and gradients through ReLU layers, and 2/(n_in + "
    "n_out) (Xavier) keeps it through tanh layers. Variance 1 makes the activations explode. "
    "Variance 0.01 makes the activations vanish, and PyTorch's default makes the gradients vanish. Each ReLU halves "
    "the mean square.",
    sources=(
        "Glorot and Bengio 2010, Understanding the difficulty of training deep feedforward neural networks",
        "He, Zhang, Ren and Sun 2015, Delving Deep into Rectifiers",
        "Hanin 2018, Which neural net architectures give rise to exploding and vanishing gradients?",
    ),
    settings=Settings(),
    full=Settings(depth=50, networks=20, rows=1024),
    tiny=Settings(
        schemes=("he", "xavier", "torch", "normal(1)", "normal(0.01)"), depth=8, width=32, networks=2, rows=64
    ),
    seeds=10,
    full_seeds=20,
    parts=parts,
    measure=measure,
    criteria=(
        Criterion(
            statement=f"With He and ReLU, both mean squares change by at most a factor of {STEADY:g}.",
            value=lambda rows: largest_change(rows, "relu", "he"),
            at_most=STEADY,
            log=True,
        ),
        Criterion(
            statement=f"With Xavier and tanh, both mean squares change by at most a factor of {STEADY:g}.",
            value=lambda rows: largest_change(rows, "tanh", "xavier"),
            at_most=STEADY,
            log=True,
        ),
        Criterion(
            statement=f"With ReLU, the mean square of the activations grows by a factor of at least {EXTREME:g} at "
            "variance 1, and shrinks as much at variance 0.01.",
            value=lambda rows: min(
                change(rows, "relu", "normal(1)", "forward"), 1 / change(rows, "relu", "normal(0.01)", "forward")
            ),
            at_least=EXTREME,
            log=True,
        ),
        Criterion(
            statement=f"With PyTorch's default and ReLU, the mean square of the gradients shrinks by a factor of at "
            f"least {EXTREME:g}.",
            value=lambda rows: 1 / change(rows, "relu", "torch", "backward"),
            at_least=EXTREME,
            log=True,
        ),
        Criterion(
            statement="The factor of a ReLU on the mean square differs from 0.5 by at most 0.03.",
            value=lambda rows: abs(rows.where(activation="relu", scheme="he").mean("passed") - 0.5),
            at_most=0.03,
        ),
    ),
    summary=summary,
    panels=panels,
    published=(
        Published(
            what="Factor on the mean square of the gradient per ReLU layer of width 64",
            theirs="n V / 2 (He: 1, Xavier: 0.5, PyTorch: 0.17, V = 1: 32, V = 0.01: 0.32)",
            source="He et al. 2015, section 2.2, backward propagation case",
            ours=factors,
        ),
    ),
)
