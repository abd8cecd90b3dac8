"""Universal approximation: largest error by number of units.

The target is a sum of waves cos(w·x + φ) with random directions, frequencies and phases on [−1, 1] or [−1, 1]². The
error is the largest absolute difference on a fine grid, divided by the range of the target. It is measured for

    constructed networks    A function g(t) of t = u·x is approximated by N units. With steep sigmoids, the output is a
                            staircase with N steps: error O(1/N). With ReLU, it is the polygon through N + 1 points of
                            g: error ≤ h²/8 · max|g″| for points at a distance h, so O(1/N²). In two dimensions, every
                            wave is such a function, and gets its share of the units (the sum of ridge functions of
                            Cybenko's and Hornik's proofs).
    trained networks        one hidden layer, Adam on all points of a grid
    polynomial activations  zᵖ: hidden weights are random, output weights are those of least squares. Any number of
                            units gives a polynomial of degree p. The smallest possible error of such a polynomial is
                            computed with a linear program.
    bounded width           The ReLU network above, one unit per layer: the d inputs, the next unit and the sum so far
                            pass from layer to layer, so that width d + 2 is enough for N layers. A network of width 1
                            is monotone. Its smallest possible error in one dimension is max (f(x) − f(y))/2 over x < y,
                            or the same for −f if that is smaller.

The experiment leaves out how many units a given function needs in high dimensions, and other norms of the error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...drawing.plots import AnyPanel, Line, Panel
from ...errors import OptionError
from ...nn import activations
from ...spec import Spec
from ..criteria import Criterion
from ..curves import curve, curves
from ..experiment import Experiment, Published
from ..rows import Row, Rows
from ..training import Network, Task, Training, train

Floats = NDArray[np.float64]
POINTS = {1: 2001, 2: 101}
"""Points of the grid per dimension that measures errors."""
STEEPNESS = 20.0
"""Slope of a sigmoid, times the distance of the steps."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    units: tuple[int, ...] = (4, 16, 64, 256, 1024)
    """Numbers of units of the constructed networks, which are multiples of the number of waves."""
    trained: tuple[int, ...] = (4, 16, 64, 256)
    steps: int = 4000
    waves: int = 4
    powers: tuple[int, ...] = (2, 3)


def parts(settings: Settings) -> Sequence[tuple[str, int, int]]:
    """Return the method, the number of dimensions and the number of units."""
    if min(settings.units) < settings.waves or len(settings.units) < 2:
        raise OptionError(f"units must be two or more numbers from {settings.waves} on, got {settings.units}")
    constructed = [("constructed", d, 0) for d in (1, 2)]
    return [("trained", d, units) for units in reversed(settings.trained) for d in (2, 1)] + constructed


def measure(settings: Settings, part: tuple[str, int, int], seed: int) -> Iterator[Row]:
    """Yield the errors of the networks of one method."""
    method, d, units = part
    target = Target.random(d, settings.waves, seed)
    if method == "trained":
        for activation in ("sigmoid", "relu"):
            network = trained(target, activation, units, steps=settings.steps, seed=seed)
            yield _row(target, "trained", activation, units, network.outputs)
        return
    for units in settings.units:
        steps, corners = staircase(target, units), polygon(target, units)
        yield _row(target, "constructed", "sigmoid", units, shallow(steps, "sigmoid").outputs)
        yield _row(target, "constructed", "relu", units, shallow(corners, "relu").outputs)
        yield _row(target, "narrow", "relu", units, narrow(corners).outputs)
        for p in settings.powers:
            yield _row(target, "polynomial", f"z^{p}", units, _polynomial_fit(target, p, units, seed))
    yield from _limits(settings, target)
    if d == 1:
        yield from _picture(settings, target, seed)


# Targets


class Target(NamedTuple):
    """The function Σ cos(w·x + φ), with a wave per row of w (M, d), divided by `scale`."""

    w: Floats
    phase: Floats
    scale: float

    @staticmethod
    def random(d: int, waves: int, seed: int) -> Target:
        draw = np.random.default_rng([seed, d])
        w = draw.normal(size=(waves, d))
        w *= draw.uniform(3, 9, (waves, 1)) / np.linalg.norm(w, axis=1, keepdims=True) / d
        raw = Target(w, draw.uniform(0, 2 * np.pi, waves), 1.0)
        return raw._replace(scale=float(np.ptp(raw(grid(d)))))

    @property
    def d(self) -> int:
        return self.w.shape[1]

    def __call__(self, x: Floats) -> Floats:
        """Return the values (B,) at x (B, d). Their range on the grid is 1."""
        return np.cos(x @ self.w.T + self.phase).sum(axis=1) / self.scale

    def ridges(self) -> list[tuple[Floats, float, Callable[[Floats], Floats]]]:
        """Return functions of one variable t = u·x that add up to the target: u, the largest |t|, and the function."""
        if self.d == 1:
            return [(np.ones(1), 1.0, lambda t: self(t[:, None]))]
        return [
            (w, float(np.abs(w).sum()), lambda t, phase=phase: np.cos(t + phase) / self.scale)
            for w, phase in zip(self.w, self.phase, strict=True)
        ]


def grid(d: int, points: int | None = None) -> Floats:
    """Return the points of a regular grid on [−1, 1]ᵈ, (points^d, d)."""
    axis = np.linspace(-1, 1, points or POINTS[d])
    return np.stack(np.meshgrid(*[axis] * d, indexing="ij"), axis=-1).reshape(-1, d)


def error(target: Target, function: Callable[[Floats], Any]) -> float:
    """Return the largest error on the grid, relative to the range of the target."""
    x = grid(target.d)
    return float(np.abs(np.asarray(function(x)).ravel() - target(x)).max())


def _row(target: Target, method: str, activation: str, units: int, function: Callable[[Floats], Any]) -> Row:
    return {
        "method": method,
        "inputs": target.d,
        "activation": activation,
        "units": units,
        "error": error(target, function),
    }


# Constructed networks


class Units(NamedTuple):
    """Hidden units activation(u·x + b) with an output weight each, and the output bias."""

    u: Floats
    b: Floats
    out: Floats
    bias: float


def _of_ridges(target: Target, n: int, one: Callable[[Floats, float, Any, int], Units]) -> Units:
    """Give each ridge its share of the units, and add the ridges."""
    ridges = target.ridges()
    found = [one(u, reach, g, n // len(ridges)) for u, reach, g in ridges]
    u, b, out = (np.concatenate(parts) for parts in list(zip(*found, strict=True))[:3])
    return Units(u, b, out, sum(units.bias for units in found))


def staircase(target: Target, n: int) -> Units:
    """Return sigmoids whose sum is a staircase with the value of the target in the middle of each stair."""

    def one(u: Floats, reach: float, g: Any, n: int) -> Units:
        h = 2 * reach / (n + 1)  # n steps are between n + 1 stairs
        heights = g(-reach + h * (np.arange(n + 1) + 0.5))
        edges = -reach + h * np.arange(1, n + 1)
        slope = STEEPNESS / h
        return Units(np.outer(np.full(n, slope), u), -slope * edges, np.diff(heights), float(heights[0]))

    return _of_ridges(target, n, one)


def polygon(target: Target, n: int) -> Units:
    """Return ReLU units whose sum is the polygon through n + 1 points of the target."""

    def one(u: Floats, reach: float, g: Any, n: int) -> Units:
        corners = np.linspace(-reach, reach, n + 1)
        values = g(corners)
        slopes = np.diff(values) / np.diff(corners)
        return Units(np.tile(u, (n, 1)), -corners[:-1], np.diff(slopes, prepend=0.0), float(values[0]))

    return _of_ridges(target, n, one)


def shallow(units: Units, activation: str) -> Network:
    """Return the units as a network with one hidden layer."""
    n, d = units.u.shape
    tensors = {"linear1.weight": units.u, "linear1.bias": units.b, "linear2.weight": units.out[None]}
    return Network(Spec.parse(f"{d}-{n}:{activation}-1"), tensors | {"linear2.bias": np.array([units.bias])})


def narrow(units: Units) -> Network:
    """Return the sum of ReLU units as a network with one of them per layer, and width d + 2.

    A layer holds x + 1, which is not negative, the next unit, and the sum so far plus an offset that keeps it positive.
    """
    n, d = units.u.shape
    offset = float(np.abs(units.out) @ (np.abs(units.u).sum(axis=1) + np.abs(units.b)))
    tensors: dict[str, Floats] = {}
    for i in range(n):
        W, b = np.zeros((d + 2, d + 2 if i else d)), np.zeros(d + 2)
        W[:d, :d] = np.eye(d)
        W[d, :d] = units.u[i]
        b[:d], b[d] = (0.0 if i else 1.0), units.b[i] - (units.u[i].sum() if i else 0.0)
        if i:
            W[d + 1, d:] = units.out[i - 1], 1.0
        else:
            b[d + 1] = offset
        tensors[f"linear{i + 1}.weight"], tensors[f"linear{i + 1}.bias"] = W, b
    last = np.zeros((1, d + 2))
    last[0, d:] = units.out[-1], 1.0
    tensors[f"linear{n + 1}.weight"], tensors[f"linear{n + 1}.bias"] = last, np.array([units.bias - offset])
    return Network(Spec.parse(f"{d}-({d + 2}:relu)*{n}-1"), tensors)


# Trained networks and polynomials


def trained(target: Target, activation: str, units: int, *, steps: int, seed: int) -> Network:
    """Return a network with one hidden layer, trained on a grid."""
    x = grid(target.d, {1: 257, 2: 33}[target.d])
    options = Training(steps=steps, learning_rate=0.02, schedule="cosine", init="torch", seed=seed)
    return train(f"{target.d}-{units}:{activation}-1", Task(x=x, y=target(x)), options).network


def _polynomial_fit(target: Target, p: int, units: int, seed: int) -> Callable[[Floats], Floats]:
    """Return the network with the activation zᵖ and random hidden weights that has the least squared error."""
    draw = np.random.default_rng([seed, p, units]).normal
    W, b = draw(size=(target.d, units)), draw(size=units)
    activation = activations.get("polynomial", p=p)

    def hidden(x: Floats) -> Floats:
        return np.column_stack([np.asarray(activation.f(x @ W + b)), np.ones(len(x))])

    x = grid(target.d, {1: 257, 2: 33}[target.d])
    out = np.linalg.lstsq(hidden(x), target(x), rcond=None)[0]
    return lambda x: hidden(x) @ out


def best_polynomial(target: Target, p: int) -> float:
    """Return the smallest largest error of a polynomial of degree p, on a grid: min e with |f − Σ c_k x^k| ≤ e."""
    from scipy.optimize import linprog

    x = grid(target.d, {1: 257, 2: 21}[target.d])
    powers = [k for k in np.ndindex(*[p + 1] * target.d) if sum(k) <= p]
    terms = np.stack([np.prod(x ** np.array(k), axis=1) for k in powers], axis=1)
    one, y = np.ones((len(x), 1)), target(x)
    upper = np.block([[terms, -one], [-terms, -one]])
    cost = np.append(np.zeros(len(powers)), 1.0)
    found: Any = linprog(cost, A_ub=upper, b_ub=np.concatenate([y, -y]), bounds=(None, None))
    return float(found.fun)


def best_monotone(target: Target) -> float:
    """Return the smallest largest error of a monotone function, in one dimension."""
    y = target(grid(1))
    rising = np.max(np.maximum.accumulate(y) - y) / 2
    falling = np.max(y - np.minimum.accumulate(y)) / 2
    return float(min(rising, falling))


def _limits(settings: Settings, target: Target) -> Iterator[Row]:
    for p in settings.powers:
        limit = best_polynomial(target, p)
        yield {"method": "limit", "inputs": target.d, "activation": f"z^{p}", "error": limit}
    if target.d == 1:
        yield {"method": "limit", "inputs": 1, "activation": "width 1", "error": best_monotone(target)}


def _picture(settings: Settings, target: Target, seed: int) -> Iterator[Row]:
    """Yield the target and networks with few units at some points."""
    x, units = grid(1, 201), settings.units[1]
    functions: dict[str, Callable[[Floats], Any]] = {
        "target": target,
        "sigmoid": shallow(staircase(target, units), "sigmoid").outputs,
        "relu": shallow(polygon(target, units), "relu").outputs,
        "z^2": _polynomial_fit(target, 2, units, seed),
    }
    for name, function in functions.items():
        for at, y in zip(x[:, 0], np.asarray(function(x)).ravel(), strict=True):
            yield {"method": "picture", "activation": name, "x": float(at), "y": float(y), "units": units}


# Readings


def at_most_units(rows: Rows, **chosen: Any) -> Rows:
    """Return the rows of the networks with the most units."""
    own = rows.where(**chosen)
    return own.where(units=max(own.values("units")))


def _worst(rows: Rows, method: str) -> float:
    return max(float(at_most_units(own, method=method).numbers("error").max()) for _, own in rows.by("inputs"))


def rate(rows: Rows, activation: str) -> float:
    """Return the power of the number of units with which the constructed error falls at last, in one dimension."""
    own = rows.where(method="constructed", inputs=1, activation=activation)
    few, most = sorted(own.distinct("units"))[-2:]
    errors = [own.where(units=units).mean("error") for units in (few, most)]
    return math.log(errors[1] / errors[0]) / math.log(most / few)


def summary(rows: Rows) -> str:
    most = max(rows.where(method="constructed").values("units"))
    found = at_most_units(rows, method="constructed", inputs=1)
    learned = at_most_units(rows, method="trained")
    sigmoid, relu = (learned.where(activation=name).mean("error") for name in ("sigmoid", "relu"))
    return (
        f"In one dimension, {most} units have a largest error of {found.where(activation='sigmoid').mean('error'):.1e} "
        f"of the range with sigmoids and {found.where(activation='relu').mean('error'):.1e} with ReLU. Trained "
        f"networks with {learned[0]['units']} units reach {sigmoid:.2f} and {relu:.2f}. With z² as activation, the "
        f"error stays at {at_most_units(rows, method='polynomial', activation='z^2').mean('error'):.2f}."
    )


def _shown(activation: object) -> str:
    return str(activation).replace("z^2", "z²").replace("z^3", "z³").replace("z^5", "z⁵")


def _errors(rows: Rows, d: int) -> list[Line]:
    own = rows.where(inputs=d)
    lines = [
        curve(own.where(method=method, activation=name), "units", "error", name=f"{name}, {method}", dashed=dashed,
              colour=colour)
        for colour, name in enumerate(("sigmoid", "relu"))
        for method, dashed in (("constructed", False), ("trained", True))
    ]  # fmt: skip
    polynomials = curves(own.where(method="polynomial"), "units", "error", "activation", name=_shown)
    return [*lines, *polynomials]


def panels(rows: Rows) -> Sequence[AnyPanel]:
    first = rows.where(method="picture", seed=rows[0]["seed"])
    narrow = [
        curve(rows.where(method="narrow", inputs=d), "units", "error", name=f"{d} input{'s' * (d > 1)}, width {d + 2}")
        for d in (1, 2)
    ]
    depths = sorted(rows.where(method="narrow").distinct("units"))
    limit = rows.where(method="limit", activation="width 1").mean("error")
    floor = Line(name="1 input, width 1: limit", x=depths, y=[limit] * len(depths), dashed=True)
    axes: dict[str, Any] = {"y_label": "largest error / range", "log_x": True, "log_y": True}
    return [
        Panel(title="error by hidden units, one input", lines=_errors(rows, 1), x_label="hidden units", **axes),
        Panel(title="error by hidden units, two inputs", lines=_errors(rows, 2), x_label="hidden units", **axes),
        Panel(title="narrow ReLU networks: error by depth", lines=[*narrow, floor], x_label="hidden layers", **axes),
        Panel(
            title=f"a target and networks with {first[0]['units']} units",
            lines=curves(first, "x", "y", "activation", name=_shown),
            x_label="x",
        ),
    ]


EXPERIMENT = Experiment(
    name="universal_approximation",
    title="Universal approximation",
    claim="One hidden layer with enough units approximates any continuous function on a bounded region with any "
    "accuracy, if the activation is not a polynomial. Deep networks with a width a little above the number of inputs "
    "can do the same. Training finds such networks.",
    sources=(
        "Cybenko 1989, Approximation by superpositions of a sigmoidal function",
        "Hornik, Stinchcombe and White 1989, Multilayer feedforward networks are universal approximators",
        "Leshno, Lin, Pinkus and Schocken 1993, Multilayer feedforward networks with a nonpolynomial activation "
        "function can approximate any function",
        "Lu, Pu, Wang, Hu and Wang 2017, The expressive power of neural networks: a view from the width",
        "Hanin and Sellke 2017, Approximating continuous functions by ReLU nets of minimal width",
    ),
    settings=Settings(),
    full=Settings(units=(4, 16, 64, 256, 1024, 4096), trained=(4, 16, 64, 256, 1024), steps=40_000, powers=(2, 3, 5)),
    tiny=Settings(units=(4, 64), trained=(4, 32), steps=300, powers=(2,)),
    seeds=5,
    full_seeds=20,
    parts=parts,
    measure=measure,
    criteria=(
        Criterion(
            statement="The constructed networks with the most units have errors of 1 % of the range or less, with "
            "sigmoid and ReLU, in one and two dimensions.",
            value=lambda rows: _worst(rows, "constructed"),
            at_most=0.01,
        ),
        Criterion(
            statement="The ReLU networks of width d + 2 with the most layers have errors of 1 % or less.",
            value=lambda rows: _worst(rows, "narrow"),
            at_most=0.01,
        ),
        Criterion(
            statement="The trained ReLU networks with the most units have errors of 5 % or less.",
            value=lambda rows: at_most_units(rows, method="trained", activation="relu").mean("error"),
            at_most=0.05,
        ),
        Criterion(
            statement="The trained sigmoid networks with the most units have errors of 5 % or less.",
            value=lambda rows: at_most_units(rows, method="trained", activation="sigmoid").mean("error"),
            at_most=0.05,
        ),
        Criterion(
            statement="With polynomial activations, the error is 10 % or more with any number of units.",
            value=lambda rows: float(rows.where(method="polynomial").numbers("error").min()),
            at_least=0.1,
        ),
    ),
    summary=summary,
    panels=panels,
    published=(
        Published(
            what="Power of the number of units with which the error of ReLU falls in one dimension",
            theirs="−2: error ≤ h²/8 · max|f″| of a polygon",
            source="de Boor 1978, A Practical Guide to Splines, chapter III",
            ours=lambda rows: f"{rate(rows, 'relu'):.2f}",
        ),
        Published(
            what="Smallest width of ReLU networks that approximate every continuous function of d inputs",
            theirs="d + 4 is enough (in the mean), d + 1 is enough and d is not (largest error)",
            source="Lu et al. 2017, theorem 1; Hanin and Sellke 2017, theorem 1",
            ours=lambda rows: (
                f"width 3 for one input: error {at_most_units(rows, method='narrow', inputs=1).mean('error'):.1e}; "
                f"width 1: {rows.where(method='limit', activation='width 1').mean('error'):.2f} or more"
            ),
        ),
    ),
)
