"""A network without activations is one linear map, and equal units stay equal.

Three facts that have a mathematical proof are checked with numbers.

    depth without activations    W₃(W₂(W₁x + b₁) + b₂) + b₃ = Wx + b with W = W₃W₂W₁. The outputs of deep linear
                                 networks with random weights are compared with the outputs of this single map.
    XOR                          An affine function f of two bits has f(0,0) + f(1,1) = f(0,1) + f(1,0). If f were
                                 correct on all 4 rows, it would be below the threshold at (0,0) and (1,1) and above it
                                 at (0,1) and (1,0), so these sums would differ. So at most 3 of the 4 rows are correct.
                                 The experiment searches for a counterexample among random weights of a linear network
                                 with one hidden layer. Trained with the squared error, such a network predicts 1/2 for
                                 every row. The same network is also trained with an activation.
    equal units                  If the units of a layer start with equal weights, they get equal gradients and stay
                                 equal. A layer of H equal units then computes the same as one unit whose outgoing
                                 weight is the sum of their outgoing weights. A sigmoid network for digits is trained on
                                 half of the rows, from zero weights and from random weights. Each trained network is
                                 then reduced to one unit per layer, and the outputs before and after are compared.

With ReLU or tanh, zero weights are worse than with the sigmoid: every hidden output is 0, so only the biases of the
outputs are trained. The experiment leaves out the training dynamics of deep linear networks. These depend on the depth,
because the outputs are not linear in the weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...data import bundled
from ...drawing.plots import AnyPanel, Line, Panel
from ...spec import Spec
from ...spec.networks import collapse
from ..criteria import Criterion
from ..curves import curve, curves
from ..experiment import Experiment
from ..rows import Row, Rows
from ..training import Network, Task, Training, train

BITS = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
XOR = Task(x=BITS, y=np.array([0.0, 1.0, 1.0, 0.0]))
TICKS = ("0, 0", "0, 1", "1, 0", "1, 1")


@dataclass(frozen=True, kw_only=True)
class Settings:
    depths: tuple[int, ...] = (2, 5, 10, 20, 50, 100)
    width: int = 64
    trials: int = 20_000
    """Number of random linear networks in the search for one that classifies all 4 rows of XOR correctly."""
    xor_width: int = 8
    xor_steps: int = 2000
    hidden: tuple[int, ...] = (16, 16)
    steps: int = 1000


def parts(settings: Settings) -> Sequence[str]:
    """Return the three facts."""
    return ("depth", "xor", "units")


def measure(settings: Settings, part: str, seed: int) -> Iterator[Row]:
    """Yield the rows of one fact."""
    yield from {"depth": _depth, "xor": _xor, "units": _units}[part](settings, seed)


# Depth without activations


def _depth(settings: Settings, seed: int) -> Iterator[Row]:
    d = settings.width
    draw = np.random.default_rng([seed, 0]).normal
    x = draw(size=(100, d))
    for depth in settings.depths:
        spec = Spec.parse("-".join([str(d), *[f"{d}:none"] * (depth - 1), str(d)]))
        weights = Network.initial(spec, "lecun", seed=seed).tensors  # outputs stay as large as the inputs at any depth
        tensors = {
            name: draw(0, 0.1, value.shape) if name.endswith("bias") else value for name, value in weights.items()
        }
        W, b = collapse(spec, tensors)
        difference = relative(Network(spec, tensors).outputs(x), x @ W.T + b)
        yield {"fact": "depth", "depth": depth, "difference": difference}


def relative(found: NDArray[Any], expected: NDArray[Any]) -> float:
    """Return the largest difference, relative to the largest value."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())


# XOR


def _xor(settings: Settings, seed: int) -> Iterator[Row]:
    yield {"fact": "xor", "network": "any weights", "right": most_right(settings.xor_width, settings.trials, seed)}
    for name, hidden in (("linear", "none"), ("tanh", "tanh")):
        spec = f"2-{settings.xor_width}:{hidden}-1"
        options = Training(steps=settings.xor_steps, learning_rate=0.02, dtype="float64", seed=seed)
        outputs = train(spec, XOR, options).network.outputs(BITS)[:, 0]
        right = int(((outputs > 0.5) == (XOR.y > 0.5)).sum())
        for i, output in enumerate(outputs, start=1):
            yield {"fact": "xor", "network": name, "row": i, "output": float(output), "right": right}


def most_right(width: int, trials: int, seed: int) -> int:
    """Return how many rows of XOR the best of many random linear networks gets right, with the threshold 1/2."""
    draw = np.random.default_rng([seed, 1]).normal
    h = np.einsum("ri,thi->trh", BITS, draw(size=(trials, width, 2))) + draw(size=(trials, 1, width))
    z = np.einsum("trh,th->tr", h, draw(size=(trials, width))) + draw(size=(trials, 1))  # (trials, rows)
    return int(((z > 0.5) == (XOR.y > 0.5)).sum(axis=1).max())


# Equal units


def _units(settings: Settings, seed: int) -> Iterator[Row]:
    task = _digits(seed)
    spec = Spec.parse("-".join(["64", *[f"{width}:sigmoid" for width in settings.hidden], "10"]))
    at = sorted({round(settings.steps * share) for share in (0, 0.05, 0.1, 0.2, 0.4, 0.7, 1)})
    for start, init in (("zero", "zeros"), ("random", "xavier")):
        trained = train(spec, task, Training(steps=settings.steps, learning_rate=0.02, init=init, seed=seed, at=at))
        for step, network in trained.stored.items():
            units = spread(network, len(settings.hidden))
            accuracy = 1 - network.error(task)
            yield {"fact": "units", "start": start, "step": step, "spread": units, "accuracy": accuracy}
        single = one_unit(trained.network, len(settings.hidden))
        difference = relative(single.outputs(task.x), trained.network.outputs(task.x))
        yield {"fact": "one unit", "start": start, "difference": difference}


def _digits(seed: int) -> Task:
    """Return a random half of the rows of the bundled digits, with inputs from 0 to 1."""
    table = bundled.load("digits")
    x, y = np.asarray(table.matrix, np.float64) / 16, np.asarray(table.column("digit"))
    return Task(x=x, y=y, loss="cross_entropy").rows(np.random.default_rng([seed, 2]).permutation(len(x))[::2])


def spread(network: Network, hidden: int) -> float:
    """Return the largest standard deviation of a weight over the units of a hidden layer."""
    return max(float(network.tensors[f"linear{i}.weight"].std(axis=0).max()) for i in range(1, hidden + 1))


def one_unit(network: Network, hidden: int) -> Network:
    """Return a network with the first unit of each hidden layer, whose outgoing weight is the sum of all."""
    tensors = dict(network.tensors)
    d_in, d_out = tensors["linear1.weight"].shape[1], tensors[f"linear{hidden + 1}.weight"].shape[0]
    spec = Spec.parse("-".join([str(d_in), *["1:sigmoid"] * hidden, str(d_out)]))
    for i in range(1, hidden + 2):
        W, b = tensors[f"linear{i}.weight"], tensors[f"linear{i}.bias"]
        W = W.sum(axis=1, keepdims=True) if i > 1 else W
        kept = slice(None) if i > hidden else slice(1)
        tensors[f"linear{i}.weight"], tensors[f"linear{i}.bias"] = W[kept], b[kept]
    return Network(spec, tensors)


# Results


def last(rows: Rows, start: str) -> Rows:
    """Return the rows of the last step of a start."""
    own = rows.where(fact="units", start=start)
    return own.where(step=max(own.values("step")))


def _right(rows: Rows, network: str) -> float:
    return rows.where(network=network).mean("right")


def _gap(rows: Rows) -> float:
    own = rows.where(network="linear").numbers("output")
    return float(own.max() - own.min())


def summary(rows: Rows) -> str:
    depth = rows.where(fact="depth")
    return (
        f"Up to {max(depth.values('depth'))} linear layers equal one map up to a relative difference of "
        f"{max(depth.values('difference')):.0e}. Linear networks with random weights get at most "
        f"{_right(rows, 'any weights'):.0f} rows of XOR right, and a trained network with tanh gets "
        f"{_right(rows, 'tanh'):.3g} right. From zero weights, the units of a layer differ by "
        f"{max(last(rows, 'zero').values('spread')):.1g} after training, and "
        f"{last(rows, 'zero').mean('accuracy'):.0%} of the digits are right. From random weights, "
        f"{last(rows, 'random').mean('accuracy'):.0%} are right."
    )


def panels(rows: Rows) -> Sequence[AnyPanel]:
    units = rows.where(fact="units")
    target = Line(name="target", x=range(1, 5), y=[float(y) for y in XOR.y], dashed=True)
    return [
        Panel(
            title="outputs of a deep linear network and of the single map",
            lines=[curve(rows.where(fact="depth"), "depth", "difference", name="difference")],
            x_label="linear layers",
            y_label="relative difference",
            log_x=True,
            log_y=True,
        ),
        Panel(
            title="XOR after training",
            lines=[
                *curves(rows.where(fact="xor").having(lambda row: "row" in row), "row", "output", "network"),
                target,
            ],
            x_label="input bits",
            y_label="output",
            ticks=TICKS,
        ),
        Panel(
            title="difference between the units of a layer",
            lines=curves(units, "step", "spread", "start"),
            x_label="step",
            y_label="standard deviation",
        ),
        Panel(
            title="digits from zero and from random weights",
            lines=curves(units, "step", "accuracy", "start"),
            x_label="step",
            y_label="accuracy",
            limits=(0.0, 1.05),
        ),
    ]


EXPERIMENT = Experiment(
    name="linear_collapse",
    title="Without activations, depth adds nothing",
    claim="Without activations, a network of any depth equals one linear map. It gets at most 3 of the 4 rows of XOR "
    "right, and after training it predicts the same value for every row. With an activation in a hidden layer, all 4 "
    "rows are right. If all weights start at zero, all units of a layer stay identical. Only random weights let them "
    "learn different features.",
    sources=(
        "Minsky and Papert 1969, Perceptrons",
        "Rumelhart, Hinton and Williams 1986, Learning internal representations by error propagation",
        "Goodfellow, Bengio and Courville 2016, Deep Learning, sections 6.1 (XOR) and 8.4 (symmetry of the units)",
    ),
    settings=Settings(),
    full=Settings(depths=(2, 5, 10, 20, 50, 100, 200), width=256, trials=200_000, hidden=(64, 64), steps=5000),
    tiny=Settings(depths=(2, 20), width=8, trials=2000, xor_steps=1000, steps=200),
    seeds=10,
    full_seeds=30,
    parts=parts,
    measure=measure,
    criteria=(
        Criterion(
            statement="The outputs of deep linear networks and of one map have a relative difference of at most 1e-12.",
            value=lambda rows: max(rows.where(fact="depth").values("difference")),
            at_most=1e-12,
        ),
        Criterion(
            statement="Without an activation, at most 3 rows of XOR are right with any of the random weights.",
            value=lambda rows: _right(rows, "any weights"),
            at_most=3,
        ),
        Criterion(
            statement="Without an activation, the predictions for the 4 rows after training differ by at most 0.01.",
            value=_gap,
            at_most=0.01,
        ),
        Criterion(
            statement="With tanh in the hidden layer, all 4 rows of XOR are right after training.",
            value=lambda rows: _right(rows, "tanh"),
            at_least=4,
        ),
        Criterion(
            statement="After training from zero weights, a network reduced to one unit per layer has the same outputs "
            "up to a relative difference of 1e-6.",
            value=lambda rows: rows.where(fact="one unit", start="zero").mean("difference"),
            at_most=1e-6,
        ),
        Criterion(
            statement="From random weights, the accuracy on digits is at least 30 percentage points higher than from "
            "zero weights.",
            value=lambda rows: last(rows, "random").mean("accuracy") - last(rows, "zero").mean("accuracy"),
            at_least=0.3,
        ),
    ),
    summary=summary,
    panels=panels,
)
