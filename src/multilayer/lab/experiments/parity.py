"""Parity of n bits: which widths can represent it, and how often training finds it.

The parity is 1 if the number s of ones among the bits is odd, and 0 otherwise. If any single bit changes, the parity
changes too. So the most similar rows have different targets. Networks that compute it exactly can be constructed:

    n threshold units          one hidden layer, in which unit i is 1 if s ≥ i. The output weights are +1, −1, +1, …
                               (Rumelhart, Hinton and Williams 1986)
    ⌊n/2⌋ + 1 sigmoid units    one hidden layer. One flat sigmoid is nearly linear in s. The other sigmoids are steep,
                               and each subtracts 2 at an even s. So the output is 0, 1, 0, 1, … for s = 0, 1, 2, 3, …
                               (the number of units is that of Setiono 1997)
    2(n − 1) ReLU units        log₂ n layers. relu(a + b) − 2 relu(a + b − 1) is the parity of two bits. It is applied
                               to pairs of bits, then to pairs of the results, and so on: a tree.

For 2 and 3 bits, all combinations of threshold functions of the bits are tried, to find the smallest number of
threshold units.

Networks with tanh units are then trained with Adam on all 2ⁿ rows, from several random initial weights for each seed.
A run succeeds if all rows are classified correctly at the end. The experiment leaves out whether networks predict the
parity of rows that are not in the training set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...drawing.plots import AnyPanel, Panel
from ...spec import Spec
from ..criteria import Criterion
from ..curves import curve, curves
from ..experiment import Experiment, Published, need
from ..rows import Row, Rows
from ..training import Network, Task, Training, train

Floats = NDArray[Any]
SHAPES = {
    "n/2 + 1 units": lambda n: [n // 2 + 1],
    "n units": lambda n: [n],
    "2n units": lambda n: [2 * n],
    "4n units": lambda n: [4 * n],
    "2 layers of n": lambda n: [n, n],
    "3 layers of n": lambda n: [n, n, n],
}
"""Widths of the hidden layers of the trained networks."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    constructed: tuple[int, ...] = (2, 4, 8, 12)
    """Numbers of bits for the constructed networks."""
    bits: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8)
    """Numbers of bits for the trained networks."""
    runs: int = 10
    """Random initial weights for each seed."""
    steps: int = 4000
    learning_rate: float = 0.02


def parts(settings: Settings) -> Sequence[int]:
    """Return the numbers of bits of the trained networks, and 0 for the constructed ones."""
    need("constructed", settings.constructed)
    need("bits", settings.bits)
    return (*sorted(settings.bits, reverse=True), 0)


def measure(settings: Settings, part: int, seed: int) -> Iterator[Row]:
    """Yield the share of successful runs of each shape, or the constructed networks."""
    if part:
        yield from _trained(settings, part, seed)
        return
    for n in settings.constructed:
        task = parity(n)
        for name, network in (("threshold", thresholds(n)), ("sigmoid", sigmoids(n)), ("relu tree", tree(n))):
            units = sum(len(value) for key, value in network.tensors.items() if key.endswith("bias")) - 1
            outputs = network.outputs(task.x)[:, 0]
            wrong = float(((outputs > 0.5) != task.y).mean())
            yield {"kind": "constructed", "network": name, "bits": n, "units": units, "wrong": wrong}
    for n in (2, 3):
        yield {"kind": "fewest", "bits": n, "units": fewest_thresholds(n)}


def parity(n: int, *, ends: tuple[float, float] = (0.0, 1.0)) -> Task:
    """Return all rows of n bits."""
    bits = np.arange(2**n)[:, None] >> np.arange(n) & 1
    return Task(x=np.asarray(ends)[bits], y=bits.sum(axis=1) % 2, loss="binary_cross_entropy")


# Constructed networks


def thresholds(n: int) -> Network:
    """Return n threshold units, with unit i at s = i − 1/2."""
    return _shallow(n, "step", np.ones(n), 0.5 - np.arange(1, n + 1), -((-1.0) ** np.arange(1, n + 1)), 0.0)


def sigmoids(n: int) -> Network:
    """Return a flat sigmoid 4/ε (σ(εs) − 1/2) ≈ s, and steep ones that subtract 2 at s = 2, 4, …"""
    flat, steep, half = 0.01, 40.0, n // 2
    slopes = np.concatenate([[flat], np.full(half, steep)])
    return _shallow(
        n,
        "sigmoid",
        slopes,
        -slopes * np.concatenate([[0.0], 2.0 * np.arange(1, half + 1) - 0.5]),
        np.concatenate([[4 / flat], np.full(half, -2.0)]),
        -2 / flat,
    )


def _shallow(n: int, activation: str, slopes: Floats, b: Floats, out: Floats, bias: float) -> Network:
    """Return a network of units activation(slope·s + b) of the sum s of n bits."""
    tensors = {"linear1.weight": np.outer(slopes, np.ones(n)), "linear1.bias": b}
    tensors |= {"linear2.weight": out[None], "linear2.bias": np.array([bias])}
    return Network(Spec.parse(f"{n}-{len(slopes)}:{activation}-1"), tensors)


def tree(n: int) -> Network:
    """Return the tree of ReLU layers. A bit or a result without a partner is paired with 0."""
    tensors: dict[str, Floats] = {}
    pair, out = np.ones((2, 2)), np.array([[1.0, -2.0]])
    widths, count, previous = list[int](), n, np.eye(n)
    while count > 1:
        pairs = -(-count // 2)
        gather = np.kron(np.eye(pairs), pair)[:, :count]  # (2 pairs, count); the last one may be alone
        widths.append(2 * pairs)
        tensors[f"linear{len(widths)}.weight"] = gather @ previous
        tensors[f"linear{len(widths)}.bias"] = np.tile([0.0, -1.0], pairs)
        previous, count = np.kron(np.eye(pairs), out), pairs
    tensors |= {f"linear{len(widths) + 1}.weight": previous, f"linear{len(widths) + 1}.bias": np.zeros(1)}
    return Network(Spec.parse("-".join([str(n), *[f"{width}:relu" for width in widths], "1"])), tensors)


def fewest_thresholds(n: int) -> int:
    """Return the smallest number of threshold units in a hidden layer that compute the parity of 2 or 3 bits."""
    hidden, target = threshold_functions(n), parity(n).y.astype(bool)
    for count in range(1, n):
        outputs = threshold_functions(count)  # (functions, 2^count)
        for chosen in combinations_with_replacement(hidden, count):
            codes = (np.stack(chosen, axis=1) << np.arange(count)).sum(axis=1)  # the hidden outputs of each row
            if (outputs[:, codes] == target).all(axis=1).any():
                return count
    return n  # `thresholds(n)` has it


def threshold_functions(n: int) -> NDArray[np.bool_]:
    """Return all functions of up to 3 bits that a threshold unit can compute, as rows of 2ⁿ values."""
    x = parity(n).x
    weights = np.array(list(product((-2, -1, 0, 1, 2), repeat=n)))
    limits = np.arange(-2 * n, 2 * n + 1) - 0.5
    found = (x @ weights.T)[:, :, None] > limits  # (rows, weights, limits)
    return np.unique(found.reshape(len(x), -1).T, axis=0)


# Trained networks


def _trained(settings: Settings, n: int, seed: int) -> Iterator[Row]:
    task = parity(n, ends=(-1.0, 1.0))
    for shape, widths in SHAPES.items():
        spec = Spec.parse("-".join([str(n), *[f"{width}:tanh" for width in widths(n)], "1"]))
        errors: list[float] = []
        for run in range(1000 * seed, 1000 * seed + settings.runs):
            options = Training(steps=settings.steps, learning_rate=settings.learning_rate, init="torch", seed=run)
            errors.append(train(spec, task, options).network.error(task))
        yield {
            "kind": "trained",
            "shape": shape,
            "bits": n,
            "success": float(np.mean([error == 0 for error in errors])),
            "wrong": float(np.mean(errors)),
        }


# Results


def success(rows: Rows, shape: str, bits: int | None = None) -> float:
    """Return the share of successful runs with a shape, for the most bits or over all numbers of bits."""
    own = rows.where(kind="trained", shape=shape)
    return (own.where(bits=bits) if bits else own).mean("success")


def most_bits(rows: Rows) -> int:
    """Return the largest number of bits of the trained networks."""
    return max(rows.where(kind="trained").values("bits"))


def summary(rows: Rows) -> str:
    n = most_bits(rows)
    shares = ", ".join(f"{success(rows, shape, n):.0%} with {shape}" for shape in SHAPES)
    return (
        f"Constructed networks with n threshold units and with n/2 + 1 sigmoid units compute the parity of up to "
        f"{max(rows.where(kind='constructed').values('bits'))} bits correctly. Share of the training runs that find "
        f"the parity of {n} bits: {shares}."
    )


def panels(rows: Rows) -> Sequence[AnyPanel]:
    own = rows.where(kind="trained")
    wide = own.having(lambda row: "layers" not in row["shape"])
    deep = own.having(lambda row: row["shape"] == "n units" or "layers" in row["shape"])
    constructed = rows.where(kind="constructed")
    axes: dict[str, Any] = {"x_label": "bits", "limits": (-0.04, 1.04)}
    return [
        Panel(
            title="units of the constructed networks",
            lines=curves(constructed, "bits", "units", "network"),
            x_label="bits",
            y_label="hidden units",
        ),
        Panel(
            title="successful runs, one hidden layer",
            lines=curves(wide, "bits", "success", "shape"),
            y_label="share of the runs",
            **axes,
        ),
        Panel(
            title="successful runs, more hidden layers",
            lines=curves(
                deep, "bits", "success", "shape", name=lambda shape: str(shape).replace("n units", "1 layer of n")
            ),
            y_label="share of the runs",
            **axes,
        ),
        Panel(
            title="rows that are wrong after training",
            lines=[curve(wide.where(shape=shape), "bits", "wrong", name=shape) for shape in wide.distinct("shape")],
            x_label="bits",
            y_label="share of the rows",
        ),
    ]


EXPERIMENT = Experiment(
    name="parity",
    title="Parity of n bits",
    claim="n hidden units are enough for the parity of n bits, and training by back-propagation finds their weights. "
    "It succeeds more often with more units than necessary, and with more layers.",
    sources=(
        "Minsky and Papert 1969, Perceptrons",
        "Rumelhart, Hinton and Williams 1986, Learning internal representations by error propagation",
        "Setiono 1997, On the solution of the parity problem by a single hidden layer feedforward neural network",
        "Fung and Li 2001, Minimal feedforward parity networks using threshold gates",
    ),
    settings=Settings(),
    full=Settings(constructed=(2, 4, 8, 12, 16), bits=(2, 3, 4, 5, 6, 7, 8, 9, 10), runs=30, steps=20_000),
    tiny=Settings(constructed=(2, 4), bits=(2, 5), runs=3, steps=400),
    seeds=6,
    full_seeds=20,
    parts=parts,
    measure=measure,
    criteria=(
        Criterion(
            statement="Constructed networks with n threshold units and n/2 + 1 sigmoid units get no row wrong.",
            value=lambda rows: max(rows.where(kind="constructed").values("wrong")),
            at_most=0.0,
        ),
        Criterion(
            statement="With n units, at least half of the runs find the parity of the most bits.",
            value=lambda rows: success(rows, "n units", most_bits(rows)),
            at_least=0.5,
        ),
        Criterion(
            statement="With 4n units, at least 90 % of the runs find the parity of the most bits.",
            value=lambda rows: success(rows, "4n units", most_bits(rows)),
            at_least=0.9,
        ),
        Criterion(
            statement="Over all numbers of bits, two layers of n units succeed at least 10 percentage points more "
            "often than one layer.",
            value=lambda rows: success(rows, "2 layers of n") - success(rows, "n units"),
            at_least=0.1,
        ),
    ),
    summary=summary,
    panels=panels,
    published=(
        Published(
            what="Smallest number of threshold units in one hidden layer",
            theirs="n for n ≤ 4",
            source="Fung and Li 2001, abstract",
            ours=lambda rows: ", ".join(
                f"{own.mean('units'):.0f} for n = {n} (all were tried)"
                for (n,), own in rows.where(kind="fewest").by("bits")
            ),
        ),
        Published(
            what="Number of sigmoid units in one hidden layer that is enough",
            theirs="n/2 + 1 for even n, (n + 1)/2 for odd n",
            source="Setiono 1997, abstract",
            ours=lambda rows: ", ".join(
                f"{own.mean('units'):.0f} for n = {n}"
                for (n,), own in rows.where(kind="constructed", network="sigmoid").by("bits")
            ),
        ),
    ),
)
