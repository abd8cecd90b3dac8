"""The landscape of the loss: a slice, paths between solutions, and the critical points of a small network.

A solution is a network after training. Its weights form one vector w.

    slice    The loss at w + xd + ye, where w is a solution and d and e are two random directions. The directions are
             normalized per unit, as Li et al. (2018) do per filter: the part of d for the weights of one unit has the
             same norm as these weights. Slices of different networks can then be compared. Biases do not change.
    paths    Two solutions A and B are trained on the same rows from different initial weights. The barrier of a path
             w(t) from A to B is the largest value of L(w(t)) − (1 − t) L(A) − t L(B) for t from 0 to 1.
                 straight   w(t) = (1 − t) A + t B
                 matched    the straight path, after the hidden units of B are reordered to be as similar as possible to
                            those of A. The order of the units does not change the function of B. With one hidden
                            layer, the best order is the exact solution of an assignment problem.
                 bent       w(t) = (1 − t)² A + 2t (1 − t) M + t² B. The point M is trained to minimize the mean loss of
                            the path (Garipov et al. 2018).
    XOR      A network with two inputs, two hidden units and one output learns XOR. All units are sigmoid. The targets
             are 0.1 and 0.9 with the squared error, so that finite weights can reach an error of 0. A critical point
             has the gradient 0. To find one, the method of Levenberg and Marquardt minimizes ‖∇L‖², which leads to
             saddles as well as minima. It starts from random weights and from the ends of gradient descent runs. A
             critical point is a saddle if its Hessian has a negative eigenvalue. If it has none, the box of ±0.25
             around the point is searched for a lower loss. If a lower loss is found, the point is a "flat saddle". All
             others are minima.

Sprinkhuizen-Kuyper and Boers prove that from every finite point of the XOR network, a strictly decreasing path leads to
error 0. So no critical point with an error above 0 is a strict minimum. Training can still fail to reach error 0: far
from the origin, the sigmoids are saturated and the gradient is almost 0. For this reason, points with a weight above 20
or an output within 1e-4 of 0 or 1 do not count as critical. The experiment leaves out deep networks, and matching by
the activations of the units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...drawing.plots import AnyPanel, Line, Map, Panel
from ..criteria import Criterion
from ..curvature import Surface, flat, with_weights
from ..curves import curves
from ..experiment import Experiment, Published, need
from ..rows import Row, Rows
from ..tables import class_count, classification, divided
from ..training import Network, Task, Training, train

Floats = NDArray[np.float64]
Path = Callable[[float], Floats]

XOR = Task(x=np.array([[0.0, 0], [0, 1], [1, 0], [1, 1]]), y=np.array([0.1, 0.9, 0.9, 0.1]))
XOR_SPEC = "2-2:sigmoid-1:sigmoid"
BOX = 0.25
"""Half of the width of the box around a critical point that is searched for a lower loss."""
FARTHEST = 20.0
"""Largest weight of a critical point that counts as finite."""
SATURATED = 1e-4
"""Distance of an output from 0 or 1 below which the gradient is small because of saturation."""
POINTS = 21
"""Number of points of a path, and of each side of the slice."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    data: str = "digits"
    rows: int = 500
    widths: tuple[int, ...] = (8, 32, 128)
    steps: int = 500
    """Steps of the training of a solution."""
    bend_steps: int = 300
    """Steps of the training of a bent path."""
    starts: int = 24
    """Starts of the search for critical points of the XOR network."""
    trainings: int = 20
    """Trainings of the XOR network."""


def parts(settings: Settings) -> Sequence[tuple[str, int]]:
    """Return each kind of measurement with its width."""
    need("widths", settings.widths)
    return [("slice", max(settings.widths)), *(("path", width) for width in settings.widths), ("xor", 0)]


def measure(settings: Settings, part: tuple[str, int], seed: int) -> Iterator[Row]:
    kind, width = part
    if kind == "xor":
        yield from _critical_points(settings, seed)
        return
    table = classification(settings.data)
    task, _ = divided(table, rows=settings.rows, seed=seed)
    spec = f"{task.x.shape[1]}-{width}:relu-{class_count(table)}"
    first, second = (
        train(spec, task, Training(steps=settings.steps, learning_rate=0.01, seed=2 * seed + i)).network for i in (0, 1)
    )
    if kind == "slice":
        yield from _slice(first, task, seed)
    else:
        for name, path in _paths(first, second, task, settings, seed).items():
            yield from _along(path, Surface(first, task), name, width)


# The slice


def _slice(network: Network, task: Task, seed: int) -> Iterator[Row]:
    generator = np.random.default_rng([seed, 1])
    d, e = (filter_normalized(network, generator) for _ in range(2))
    surface = Surface(network, task)
    for x in np.linspace(-1, 1, POINTS):
        for y in np.linspace(-1, 1, POINTS):
            loss = surface.loss(surface.weights + x * d + y * e)
            yield {"kind": "slice", "x": float(x), "y": float(y), "loss": loss}


def filter_normalized(network: Network, generator: np.random.Generator) -> Floats:
    """Return a random direction in which the part of each unit has the norm of its weights, and 0 for biases."""
    found: dict[str, Floats] = {}
    for name in network.spec.parameters:
        own = network.tensors[name]
        draw = generator.normal(size=own.shape)
        norms = [np.linalg.norm(one, axis=-1, keepdims=True) for one in (own, draw)] if own.ndim > 1 else [0.0, 1.0]
        found[name] = draw * norms[0] / norms[1]
    return flat(Network(network.spec, {**network.tensors, **found}))


# Paths


def _paths(first: Network, second: Network, task: Task, settings: Settings, seed: int) -> dict[str, Path]:
    a, b, same = flat(first), flat(second), flat(matched(first, second))
    bend = _bend(Surface(first, task), a, b, settings, seed)
    return {
        "straight": lambda t: (1 - t) * a + t * b,
        "matched": lambda t: (1 - t) * a + t * same,
        "bent": lambda t: (1 - t) ** 2 * a + 2 * t * (1 - t) * bend + t**2 * b,
    }


def matched(first: Network, second: Network) -> Network:
    """Return the second network with its hidden units in the order that makes it most similar to the first one."""
    from scipy.optimize import linear_sum_assignment

    one, two = (
        np.column_stack([net.tensors["linear1.weight"], net.tensors["linear1.bias"], net.tensors["linear2.weight"].T])
        for net in (first, second)
    )  # (unit, its weights)
    order: Any = linear_sum_assignment(one @ two.T, maximize=True)[1]
    tensors = {f"linear1.{name}": second.tensors[f"linear1.{name}"][order] for name in ("weight", "bias")}
    output = second.tensors["linear2.weight"][:, order]
    return Network(second.spec, {**second.tensors, **tensors, "linear2.weight": output})


def _bend(surface: Surface, a: Floats, b: Floats, settings: Settings, seed: int) -> Floats:
    """Return the middle point M of the bent path, trained by Adam on points of the path drawn at random."""
    generator = np.random.default_rng([seed, 2])
    middle = (a + b) / 2
    mean, square = np.zeros_like(middle), np.zeros_like(middle)
    for step in range(1, settings.bend_steps + 1):
        t = generator.random()
        point = (1 - t) ** 2 * a + 2 * t * (1 - t) * middle + t**2 * b
        gradient = 2 * t * (1 - t) * surface.gradient(point)
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.99 * square + 0.01 * gradient**2
        rate = 0.02 * (1 - (step - 1) / settings.bend_steps)
        middle = middle - rate * mean / (1 - 0.9**step) / (np.sqrt(square / (1 - 0.99**step)) + 1e-8)
    return middle


def _along(path: Path, surface: Surface, name: str, width: int) -> Iterator[Row]:
    times = np.linspace(0, 1, POINTS)
    networks = [with_weights(surface.network, path(t)) for t in times]
    values = np.array([network.loss(surface.task) for network in networks])
    for t, network, loss in zip(times, networks, values, strict=True):
        known = {"path": name, "width": width, "t": float(t)}
        yield {"kind": "path", **known, "loss": float(loss), "training_error": network.error(surface.task)}
    barrier = float((values - (1 - times) * values[0] - times * values[-1]).max())
    yield {"kind": "barrier", "path": name, "width": width, "barrier": barrier}


# Critical points


def _critical_points(settings: Settings, seed: int) -> Iterator[Row]:
    """Yield the critical points that are found from random starts and from the ends of training runs."""
    surface = Surface(Network.initial(XOR_SPEC, seed=seed), XOR)
    generator = np.random.default_rng([seed, 3])
    ends = [_trained_xor(1000 * seed + i) for i in range(settings.trainings)]
    size = len(surface.weights)
    starts = [generator.normal(size=size) * generator.choice([0.5, 1.0, 2.0]) for _ in range(settings.starts)]
    for origin, start in [*(("random", one) for one in starts), *(("training", flat(one)) for one in ends)]:
        weights = stationary(surface, start)
        if weights is not None:
            sizes = surface.eigenvalues(weights)
            row = {"kind": "critical", "origin": origin, "type": classified(surface, weights, generator)}
            yield row | {"loss": surface.loss(weights), "negative": int((sizes < -_zero(sizes)).sum())}
    yield {"kind": "training", "fitted": float(np.mean([_fits(network) for network in ends]))}


def stationary(surface: Surface, start: Floats) -> Floats | None:
    """Return a point with a gradient of 0 that is found from a start, or None."""
    from scipy.optimize import least_squares

    solve: Any = least_squares
    ends = dict.fromkeys(("xtol", "ftol", "gtol"), 1e-15)
    found = solve(surface.gradient, start, jac=surface.hessian, method="lm", max_nfev=150, **ends)
    weights = np.asarray(found.x, np.float64)
    if float(np.abs(weights).max()) > FARTHEST or float(np.linalg.norm(surface.gradient(weights))) > 1e-12:
        return None
    outputs = surface.at(weights).outputs(XOR.x)
    return weights if bool((np.abs(outputs - 0.5) < 0.5 - SATURATED).all()) else None


def classified(surface: Surface, weights: Floats, generator: np.random.Generator) -> str:
    """Return "solution" for an error of 0, else "saddle", "flat saddle" (no negative eigenvalue) or "minimum"."""
    loss = surface.loss(weights)
    if loss < 1e-10:
        return "solution"
    sizes = surface.eigenvalues(weights)
    if sizes[0] < -_zero(sizes):
        return "saddle"
    return "flat saddle" if lowest_near(surface, weights, generator) < loss - 1e-9 else "minimum"


def _zero(sizes: Floats) -> float:
    """Return the size below which an eigenvalue counts as 0: far above the error of differences of gradients."""
    return 1e-6 * max(float(np.abs(sizes).max()), 1e-3)


def lowest_near(surface: Surface, weights: Floats, generator: np.random.Generator) -> float:
    """Return the lowest loss that is found in the box around a point."""
    from scipy.optimize import minimize

    found: list[float] = []
    for _ in range(8):
        start = weights + generator.uniform(-BOX, BOX, size=len(weights))
        result: Any = minimize(
            surface.loss,
            start,
            jac=surface.gradient,
            method="L-BFGS-B",
            bounds=[(w - BOX, w + BOX) for w in weights],
            options={"ftol": 1e-15, "gtol": 1e-12},
        )
        found.append(float(result.fun))
    return min(found)


def _trained_xor(seed: int) -> Network:
    options = Training(steps=20000, optimizer="sgd", learning_rate=2.0, dtype="float64", seed=seed, init="xavier")
    return train(XOR_SPEC, XOR, options).network


def _fits(network: Network) -> bool:
    """Return whether all outputs are on the right side of 0.5."""
    return bool(((network.outputs(XOR.x)[:, 0] > 0.5) == (XOR.y > 0.5)).all())


# Results


def _barrier(rows: Rows, path: str) -> float:
    """Return the barrier of the widest network."""
    own = rows.where(kind="barrier")
    return own.where(width=max(own.values("width")), path=path).mean("barrier")


def _height(rows: Rows) -> float:
    """Return the largest loss on the straight line of the widest network, relative to the loss of its ends."""
    own = rows.where(kind="path", path="straight", width=max(rows.where(kind="path").values("width")))
    heights = [
        part.numbers("loss").max() / part.having(lambda row: row["t"] in (0.0, 1.0)).mean("loss")
        for _, part in own.by("seed")
    ]
    return float(np.exp(np.log(heights).mean()))


def _minima(rows: Rows) -> int:
    return len(rows.where(kind="critical", type="minimum"))


def summary(rows: Rows) -> str:
    counts = {kind: len(own) for (kind,), own in rows.where(kind="critical").by("type")}
    saddles = counts.get("saddle", 0) + counts.get("flat saddle", 0)
    straight, same, bent = (_barrier(rows, path) for path in ("straight", "matched", "bent"))
    return (
        f"On the straight path between two solutions, the loss rises to {_height(rows):.0f} times that of the ends. "
        f"After matching the hidden units, {same / straight:.1%} of the barrier is left. On a bent path, "
        f"{bent / straight:.1%} is left. Of the critical points with an error above 0 that were found for the XOR "
        f"network, {saddles} are saddles and {_minima(rows)} are minima. "
        f"{rows.where(kind='training').mean('fitted'):.0%} of its training runs fit XOR."
    )


def panels(rows: Rows) -> Sequence[AnyPanel]:
    paths, barriers = rows.where(kind="path"), rows.where(kind="barrier")
    widest = max(paths.values("width"))
    return [
        _map(rows.where(kind="slice", seed=rows.distinct("seed")[0])),
        Panel(
            title=f"loss between two solutions, {widest} hidden units",
            lines=curves(paths.where(width=widest), "t", "loss", "path", log=True),
            x_label="position t on the path",
            log_y=True,
        ),
        Panel(
            title="barrier by width",
            lines=curves(barriers, "width", "barrier", "path"),
            x_label="hidden units",
            y_label="barrier",
            log_x=True,
            log_y=True,
        ),
        _counts(rows),
    ]


def _map(rows: Rows) -> Map:
    size = len(rows.distinct("x"))
    return Map(
        title="slice around a solution",
        values=rows.numbers("loss").reshape(size, size).T,
        x=(-1, 1),
        y=(-1, 1),
        x_label="first direction",
        y_label="second direction",
        label="loss",
        log=True,
        levels=(0.03, 0.1, 0.3, 1.0),
        points=[("solution", 0.0, 0.0)],
    )


def _counts(rows: Rows) -> Panel:
    """Return the critical points of the XOR network by the number of negative eigenvalues."""
    seeds = len(rows.distinct("seed"))
    lines: list[Line] = []
    for (kind,), own in rows.where(kind="critical").by("type"):
        found = sorted((count, len(part)) for (count,), part in own.by("negative"))
        counts, sizes = zip(*found, strict=True)
        lines.append(Line(name=kind, x=counts, y=[size / seeds for size in sizes], points=True))
    return Panel(
        title="critical points of the XOR network",
        lines=lines,
        x_label="negative eigenvalues of the Hessian",
        y_label="points found per seed",
    )


EXPERIMENT = Experiment(
    name="loss_landscape",
    title="The landscape of the loss",
    claim="The loss is not convex: it has saddle points, and on the straight path between two solutions it rises to a "
    "barrier. But other paths connect the solutions. The barrier almost vanishes if the hidden units are first put in "
    "matching order, and also on a bent path. The critical points of the XOR network with an error above 0 are "
    "saddles, not minima.",
    sources=(
        "Li, Xu, Taylor, Studer and Goldstein 2018, Visualizing the loss landscape of neural nets",
        "Garipov et al. 2018, Loss surfaces, mode connectivity, and fast ensembling of DNNs",
        "Draxler et al. 2018, Essentially no barriers in neural network energy landscape",
        "Entezari et al. 2022, The role of permutation invariance in linear mode connectivity of neural networks",
        "Ainsworth, Hayase and Srinivasa 2023, Git Re-Basin: merging models modulo permutation symmetries",
        "Sprinkhuizen-Kuyper and Boers 1999, The local minima of the error surface of the 2-2-1 XOR network",
    ),
    settings=Settings(),
    full=Settings(rows=1200, widths=(8, 32, 128, 512, 2048), steps=2000, bend_steps=2000, starts=200, trainings=400),
    tiny=Settings(rows=60, widths=(16,), steps=100, bend_steps=60, starts=2, trainings=1),
    seeds=8,
    full_seeds=20,
    parts=parts,
    measure=measure,
    criteria=(
        Criterion(
            statement="On the straight path, the loss rises to at least 10 times that of the two solutions.",
            value=_height,
            log=True,
            at_least=10.0,
        ),
        Criterion(
            statement="The barrier after matching the hidden units is at most 0.5 times that of the straight path.",
            value=lambda rows: _barrier(rows, "matched") / _barrier(rows, "straight"),
            at_most=0.5,
        ),
        Criterion(
            statement="The barrier of the bent path is at most 0.1 times that of the straight path.",
            value=lambda rows: _barrier(rows, "bent") / _barrier(rows, "straight"),
            at_most=0.1,
        ),
        Criterion(
            statement="No critical point of the XOR network with an error above 0 is a minimum.",
            value=lambda rows: float(_minima(rows)),
            at_most=0.0,
        ),
    ),
    summary=summary,
    panels=panels,
    published=(
        Published(
            what="Minima among the finite critical points of the 2-2-1 XOR network with an error above 0",
            theirs="none",
            source="Sprinkhuizen-Kuyper and Boers 1999",
            ours=lambda rows: (
                f"{_minima(rows)} of "
                f"{len(rows.where(kind='critical').having(lambda row: row['type'] != 'solution'))} that were found"
            ),
        ),
    ),
)
