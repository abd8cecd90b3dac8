"""Universal approximation: largest error by number of units.

The target is a sum of waves cos(w·x + φ) with random directions, frequencies and phases on [−1, 1] or [−1, 1]². The
error is the largest absolute difference between network and target on a fine grid, divided by the range of the target.
It is measured for four kinds of networks:

    constructed networks    N units approximate a function g(t) of one variable t = u·x. With steep sigmoids, the output
                            is a staircase with N steps: error O(1/N). With ReLU, the output is the piecewise linear
                            function through N + 1 points of g. If the distance of the points is h, the error is at
                            most h²/8 · max|g″|, so O(1/N²). In one dimension, g is the target. In two dimensions, each
                            wave is such a function, and the units are divided among the waves (as in the proof of
                            Hornik, Stinchcombe and White).
    trained networks        One hidden layer, trained by Adam on all points of a grid.
    polynomial activations  The activation is zᵖ. The hidden weights are random, and the output weights are fitted by
                            least squares. With any number of units, the network is a polynomial of degree p. A linear
                            program computes the smallest possible error of such a polynomial.
    bounded width           The ReLU network above is rewritten with one of its units per layer. Each layer passes on
                            the d inputs, the next unit and the sum so far. So width d + 2 and N layers are enough. A
                            network of width 1 is monotone, so in one dimension its error is at least
                            max (f(x) − f(y))/2 over x < y, or the same for −f if that is smaller.

The experiment leaves out how many units a given function needs in high dimensions, and other measures of the error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...drawing.plots import AnyPanel, Line, Panel
from ...errors import OptionError
from ...nn import activations
from ..constructions import (
    Floats,
    Target,
    best_monotone,
    best_polynomial,
    error,
    grid,
    narrow,
    polygon,
    shallow,
    staircase,
)
from ..criteria import Criterion
from ..curves import curve, curves
from ..experiment import Experiment, Published, need
from ..rows import Row, Rows
from ..training import Network, Task, Training, train


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
    need("trained", settings.trained)
    need("powers", settings.powers, includes=(2,))
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


def _row(target: Target, method: str, activation: str, units: int, function: Callable[[Floats], Any]) -> Row:
    return {
        "method": method,
        "inputs": target.d,
        "activation": activation,
        "units": units,
        "error": error(target, function),
    }


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


# Results


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


def smallest_of_polynomials(rows: Rows) -> float:
    """Return the smallest error that any number of units with a polynomial activation can have."""
    limits = rows.where(method="limit").having(lambda row: row["activation"] != "width 1")
    return float(limits.numbers("error").min())


def summary(rows: Rows) -> str:
    most = max(rows.where(method="constructed").values("units"))
    found = at_most_units(rows, method="constructed", inputs=1)
    learned = at_most_units(rows, method="trained")
    sigmoid, relu = (learned.where(activation=name).mean("error") for name in ("sigmoid", "relu"))
    return (
        f"In one dimension, constructed networks with {most} units have a largest error of "
        f"{found.where(activation='sigmoid').mean('error'):.1e} of the range with sigmoids and "
        f"{found.where(activation='relu').mean('error'):.1e} with ReLU. Trained networks with "
        f"{learned[0]['units']} units reach {sigmoid:.2f} and {relu:.2f}. With the activation z², the error "
        f"stays at {at_most_units(rows, method='polynomial', activation='z^2').mean('error'):.2f}."
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
    claim="One hidden layer with enough units approximates any continuous function on a bounded region to any "
    "accuracy, if the activation is not a polynomial. Deep networks that are only slightly wider than the number of "
    "inputs can do the same. Training finds such networks.",
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
    seeds=8,
    full_seeds=20,
    parts=parts,
    measure=measure,
    criteria=(
        Criterion(
            statement="Constructed networks with the most units: the errors are at most 1 % of the range, with sigmoid "
            "and ReLU, in one and two dimensions.",
            value=lambda rows: _worst(rows, "constructed"),
            at_most=0.01,
        ),
        Criterion(
            statement="ReLU networks of width d + 2 with the most layers: the errors are at most 1 % of the range.",
            value=lambda rows: _worst(rows, "narrow"),
            at_most=0.01,
        ),
        Criterion(
            statement="Trained ReLU networks with the most units: the errors are at most 5 % of the range.",
            value=lambda rows: at_most_units(rows, method="trained", activation="relu").mean("error"),
            at_most=0.05,
        ),
        Criterion(
            statement="Trained sigmoid networks with the most units: the errors are at most 5 % of the range.",
            value=lambda rows: at_most_units(rows, method="trained", activation="sigmoid").mean("error"),
            at_most=0.05,
        ),
        Criterion(
            statement="With polynomial activations, the error is at least 10 % of the range with any number of units.",
            value=smallest_of_polynomials,
            at_least=0.1,
        ),
    ),
    summary=summary,
    panels=panels,
    published=(
        Published(
            what="Exponent of the number of units in the error of ReLU in one dimension",
            theirs="−2: error ≤ h²/8 · max|f″| of piecewise linear interpolation",
            source="de Boor 1978, A Practical Guide to Splines, chapter III",
            ours=lambda rows: f"{rate(rows, 'relu'):.2f}",
        ),
        Published(
            what="Smallest width of ReLU networks that approximate every continuous function of d inputs",
            theirs="d + 4 is enough for the mean error; for the largest error, d + 1 is enough and d is not",
            source="Lu et al. 2017, theorem 1; Hanin and Sellke 2017, theorem 1",
            ours=lambda rows: (
                f"width 3 for one input: error {at_most_units(rows, method='narrow', inputs=1).mean('error'):.1e}; "
                f"width 1: {rows.where(method='limit', activation='width 1').mean('error'):.2f} or more"
            ),
        ),
    ),
)
