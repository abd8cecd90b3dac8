"""Convex models have one optimum, networks have many.

Linear models and networks with one hidden layer are trained several times on the same rows. These repetitions are
called restarts. Every step uses all rows, so restarts of a network differ only in their initial weights. Each model
minimizes a mean loss plus λ/2 times the sum of the squared weights:

    logistic regression       Strictly convex in the weights. The solver starts from random weights.
    support vector machine    Convex. The solver, coordinate descent in the dual, visits the rows in random order.
    network                   Not convex. It starts from random parameters. Adam trains it, with a learning rate that
                              falls to 0.

For each pair of restarts, two differences are computed: the share of test rows with different predicted classes, and
the relative distance of the weights, ‖w − v‖ / √(‖w‖ ‖v‖). The order of the hidden units of a network does not change
its function. Each unit of one network is therefore first matched with a unit of the other network, so that the sum of
squared distances is as small as possible. The objective is the minimized quantity. Its spread is its standard deviation
over the restarts, divided by its mean.

The second table is XOR, with four rows and two inputs. A restart fails if one of the four rows is wrong at the end. Two
hidden ReLU units can represent XOR, but training with two units often does not find the weights. The experiment does
not show whether the networks end at exact minima: their gradient at the end is small, but not zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...drawing.plots import AnyPanel, Line, Panel
from ...errors import OptionError
from ..criteria import Criterion
from ..curves import curve
from ..experiment import Experiment, need
from ..rows import Row, Rows
from ..tables import class_count, classification, divided
from ..training import Floats, Network, Task, Training, train

CONVEX = ("logistic regression", "support vector machine")


@dataclass(frozen=True, kw_only=True)
class Settings:
    data: str = "digits"
    rows: int = 300
    widths: tuple[int, ...] = (4, 8, 16, 32, 64)
    """Numbers of hidden units for the table."""
    restarts: int = 10
    steps: int = 1000
    penalty: float = 0.001
    """λ, the weight of the squared weights."""
    xor_widths: tuple[int, ...] = (2, 3, 4, 8, 16)
    xor_restarts: int = 20
    xor_steps: int = 1500


class Part(NamedTuple):
    kind: str
    """A convex model, "network" or "xor"."""
    width: int


class Ending(NamedTuple):
    """What one restart found."""

    objective: float
    weights: Floats
    """One row per unit that may be renamed (units, weights)."""
    classes: NDArray[np.int64]
    """Predicted class of each test row."""


def parts(settings: Settings) -> Sequence[Part]:
    """Return each model with its width, which is 0 for convex models."""
    if settings.restarts < 2:
        raise OptionError(f"restarts must be at least 2, got {settings.restarts!r}")
    need("widths", settings.widths)
    need("xor_widths", settings.xor_widths)
    networks = [Part("network", width) for width in settings.widths]
    return [*(Part(name, 0) for name in CONVEX), *networks, *(Part("xor", width) for width in settings.xor_widths)]


def measure(settings: Settings, part: Part, seed: int) -> Iterator[Row]:
    """Yield a row per restart, and one that compares them."""
    if part.kind == "xor":
        yield {"kind": "xor", "width": part.width, "fails": xor_failures(settings, part.width, seed)}
        return
    training, test = divided(classification(settings.data), rows=settings.rows, seed=seed)
    endings: list[Ending] = []
    for restart in range(settings.restarts):
        own = settings.restarts * seed + restart
        if part.kind == "network":
            endings.append(network_ending(settings, training, test, part.width, own))
        else:
            endings.append(CONVEX_ENDINGS[part.kind](settings, training, test, own))
    errors = [float((one.classes != test.y).mean()) for one in endings]
    objectives = np.array([one.objective for one in endings])
    for rank, objective in enumerate(np.sort(objectives), start=1):
        common = {"model": part.kind, "width": part.width}
        yield {"kind": "restart", **common, "rank": rank, "relative": float(objective / objectives.min())}
    pairs = list(combinations(endings, 2))
    yield {
        "kind": "model",
        "model": part.kind,
        "width": part.width,
        "objective": float(objectives.mean()),
        "spread": float(objectives.std(ddof=1) / objectives.mean()),
        "distance": float(np.mean([distance(one.weights, other.weights) for one, other in pairs])),
        "disagreement": float(np.mean([(one.classes != other.classes).mean() for one, other in pairs])),
        "test_error": float(np.mean(errors)),
        "test_spread": float(np.std(errors, ddof=1)),
    }


def network_ending(settings: Settings, training: Task, test: Task, width: int, seed: int) -> Ending:
    """Train a network with one hidden layer."""
    options = Training(
        steps=settings.steps, learning_rate=0.02, schedule="cosine(warmup=0)", l2=settings.penalty, seed=seed
    )
    spec = f"{training.x.shape[1]}-{width}:relu-{class_count_of(training, test)}"
    network = train(spec, training, options).network
    return Ending(
        objective=network.loss(training) + settings.penalty / 2 * squared_weights(network),
        weights=units(network),
        classes=network.outputs(test.x).argmax(axis=1),
    )


def class_count_of(training: Task, test: Task) -> int:
    """Return the number of classes of both parts together."""
    return max(class_count(training), class_count(test))


def squared_weights(network: Network) -> float:
    """Return the sum of the squares of the weight matrices."""
    return float(sum(np.square(one).sum() for name, one in network.tensors.items() if name.endswith(".weight")))


def units(network: Network) -> Floats:
    """Return the weights into and out of each hidden unit, with its bias (units, inputs + 1 + outputs)."""
    first, second = (network.tensors[f"linear{i}.weight"] for i in (1, 2))
    return np.hstack([first, network.tensors["linear1.bias"][:, None], second.T])


def logistic_ending(settings: Settings, training: Task, test: Task, seed: int) -> Ending:
    """Fit logistic regression from random weights."""
    from sklearn.linear_model import LogisticRegression

    generator = np.random.default_rng([seed, 3])
    classes = np.unique(training.y)
    count = len(classes) if len(classes) > 2 else 1
    strength = 1 / (settings.penalty * len(training))
    model: Any = LogisticRegression(C=strength, tol=1e-8, max_iter=10_000, warm_start=True)
    model.classes_ = classes
    model.coef_ = generator.normal(size=(count, training.x.shape[1]))
    model.intercept_ = generator.normal(size=count)
    model.fit(training.x, training.y)
    p = model.predict_proba(training.x)[np.arange(len(training)), np.searchsorted(classes, training.y)]
    objective = float(-np.log(p).mean()) + settings.penalty / 2 * float(np.square(model.coef_).sum())
    return Ending(objective, model.coef_.ravel()[None], model.predict(test.x))


def machine_ending(settings: Settings, training: Task, test: Task, seed: int) -> Ending:
    """Fit a linear support vector machine per class, with rows in random order."""
    from sklearn.svm import LinearSVC

    strength = 1 / (settings.penalty * len(training))
    model: Any = LinearSVC(C=strength, loss="hinge", tol=1e-6, max_iter=1_000_000, random_state=seed)
    model.fit(training.x, training.y)
    weights = np.hstack([model.coef_, model.intercept_[:, None]])
    z = model.decision_function(training.x).reshape(len(training), -1)  # (B, classes), or (B, 1) for two classes
    positive = model.classes_ if z.shape[1] > 1 else model.classes_[1:]
    signs = np.where(training.y[:, None] == positive, 1, -1)
    hinge = np.maximum(0, 1 - signs * z).mean(axis=0).sum()
    return Ending(
        float(hinge + settings.penalty / 2 * np.square(weights).sum()), weights.ravel()[None], model.predict(test.x)
    )


CONVEX_ENDINGS: dict[str, Callable[[Settings, Task, Task, int], Ending]] = dict(
    zip(CONVEX, (logistic_ending, machine_ending), strict=True)
)


def distance(one: Floats, other: Floats) -> float:
    """Return the relative distance of the weights of two models, after the best matching of their units."""
    from scipy.optimize import linear_sum_assignment

    squares = np.square(one[:, None] - other[None]).sum(axis=2)  # (units, units)
    norms = float(np.linalg.norm(one) * np.linalg.norm(other))
    return math.sqrt(float(squares[linear_sum_assignment(squares)].sum()) / norms)


def xor_failures(settings: Settings, width: int, seed: int) -> float:
    """Return the share of restarts that get a row of XOR wrong."""
    x = np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
    task = Task(x=x, y=np.array([0, 1, 1, 0]), loss="cross_entropy")
    base = Training(steps=settings.xor_steps, learning_rate=0.03)
    seeds = range(settings.xor_restarts * seed, settings.xor_restarts * (seed + 1))
    networks = (train(f"2-{width}:relu-2", task, replace(base, seed=own)).network for own in seeds)
    return float(np.mean([network.error(task) > 0 for network in networks]))


def convex(rows: Rows, what: str) -> float:
    """Return the largest value of a measure over the convex models."""
    return max(rows.where(kind="model", model=name).mean(what) for name in CONVEX)


def networks(rows: Rows) -> Rows:
    """Return the rows that compare the restarts of a network."""
    return rows.where(kind="model", model="network")


def ratio(rows: Rows, what: str) -> float:
    """Return a measure of the widest network, relative to that of the narrowest."""
    own = networks(rows)
    few, many = min(own.values("width")), max(own.values("width"))
    return own.where(width=many).mean(what) / own.where(width=few).mean(what)


def failures(rows: Rows, choose: Callable[[Iterable[int]], int]) -> float:
    """Return the share of failures on XOR at the smallest or largest width."""
    own = rows.where(kind="xor")
    return own.where(width=choose(own.values("width"))).mean("fails")


def summary(rows: Rows) -> str:
    own = networks(rows)
    return (
        "For restarts of convex models, the relative distance of the weights is at most "
        f"{convex(rows, 'distance'):.0e}, and at most {100 * convex(rows, 'disagreement'):.1f} % of the test rows are "
        f"predicted differently. For networks, the distance is {own.mean('distance'):.2f}, and "
        f"{100 * own.mean('disagreement'):.1f} % are predicted differently. The test error of networks is "
        f"{100 * own.mean('test_error'):.1f} % with a standard deviation of {100 * own.mean('test_spread'):.1f} "
        f"percentage points over the restarts. On XOR, {100 * failures(rows, min):.0f} % of the smallest networks "
        f"fail, and {100 * failures(rows, max):.0f} % of the largest."
    )


def panels(rows: Rows) -> Sequence[AnyPanel]:
    own, restarts = networks(rows), rows.where(kind="restart")
    widths = sorted(own.distinct("width"))
    shown = list(dict.fromkeys((widths[0], widths[len(widths) // 2], widths[-1])))
    percents = Rows({**row, **{name: 100 * row[name] for name in ("disagreement", "test_error")}} for row in own)
    return [
        Panel(
            title="objective by restart, relative to the best",
            lines=[
                curve(restarts.where(model=CONVEX[0]), "rank", "relative", name="logistic", dashed=True),
                *(
                    curve(restarts.where(model="network", width=width), "rank", "relative", name=f"{width} units")
                    for width in shown
                ),
            ],
            x_label="restart, from the best to the worst",
            log_y=True,
        ),
        Panel(
            title="relative distance of the weights",
            lines=[
                curve(own, "width", "distance", name="network"),
                *(
                    _level(rows, name, label, widths)
                    for name, label in zip(CONVEX, ("logistic", "linear SVM"), strict=True)
                ),
            ],
            x_label="hidden units",
            log_x=True,
            log_y=True,
        ),
        Panel(
            title="test rows predicted differently",
            lines=[
                curve(percents, "width", "disagreement", name="differ"),
                curve(percents, "width", "test_error", name="wrong"),
            ],
            x_label="hidden units",
            y_label="%",
            log_x=True,
        ),
        Panel(
            title="restarts that fail on XOR",
            lines=[curve(rows.where(kind="xor"), "width", "fails", name="")],
            x_label="hidden units",
            log_x=True,
        ),
    ]


def _level(rows: Rows, model: str, name: str, widths: Sequence[int]) -> Line:
    """Return the distance of a convex model, which has no width, as a horizontal line."""
    mean = rows.where(kind="model", model=model).mean("distance")
    return Line(name=name, x=widths, y=[mean] * len(widths), dashed=True)


EXPERIMENT = Experiment(
    name="restarts",
    title="One optimum or many",
    claim="A convex model, such as a linear support vector machine, ends at the same optimum from every start. A "
    "network ends at different optima that are almost equally good. The larger the network is, the less the quality "
    "of its optima differs. Small networks sometimes fail completely.",
    sources=(
        "Boyd and Vandenberghe 2004, Convex optimization",
        "Choromanska et al. 2015, The loss surfaces of multilayer networks",
        "Dauphin et al. 2014, Identifying and attacking the saddle point problem",
    ),
    settings=Settings(),
    full=Settings(widths=(4, 8, 16, 32, 64, 128), restarts=50, steps=10_000, xor_restarts=200),
    tiny=Settings(
        data="iris",
        rows=60,
        widths=(2, 16),
        restarts=4,
        steps=200,
        penalty=0.01,
        xor_widths=(2, 16),
        xor_restarts=10,
        xor_steps=600,
    ),
    seeds=8,
    full_seeds=20,
    parts=parts,
    measure=measure,
    criteria=(
        Criterion(
            statement="Convex models: the relative distance of the weights of two restarts is at most 0.01.",
            value=lambda rows: convex(rows, "distance"),
            at_most=0.01,
        ),
        Criterion(
            statement="Networks: the relative distance of the weights is at least 0.3 after matching the units.",
            value=lambda rows: networks(rows).mean("distance"),
            at_least=0.3,
        ),
        Criterion(
            statement="Largest networks: the standard deviation of the test error over the restarts is at most 0.01.",
            value=lambda rows: networks(rows).where(width=max(networks(rows).values("width"))).mean("test_spread"),
            at_most=0.01,
        ),
        Criterion(
            statement="The spread of the objective of the largest networks is at most half of that of the smallest.",
            value=lambda rows: ratio(rows, "spread"),
            at_most=0.5,
        ),
        Criterion(
            statement="With 2 hidden units, at least 10 % of the restarts fail on XOR.",
            value=lambda rows: failures(rows, min),
            at_least=0.1,
        ),
        Criterion(
            statement="With 16 hidden units, at most 2 % of the restarts fail on XOR.",
            value=lambda rows: failures(rows, max),
            at_most=0.02,
        ),
    ),
    summary=summary,
    panels=panels,
)
