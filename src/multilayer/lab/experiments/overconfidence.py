"""Over-confidence and temperature scaling.

A network trains on few rows, for many more steps than it needs. At several points of the training, its predicted
probabilities are compared with the true classes of test rows. The confidence of a row is its largest probability. The
rows are divided by confidence into 15 bins of equal width. With n_b of n rows in bin b, the expected calibration error
is

    ECE = Σ_b n_b/n · |accuracy of bin b − mean confidence of bin b|                          (Guo et al. 2017)

A network is over-confident if its mean confidence is above its accuracy. Temperature scaling divides the raw outputs by
one number T, which minimizes the log loss on validation rows (`nn.calibration`). It never changes the predicted class.

The stopped network is the network with the lowest log loss on the validation rows. The difference between it and the
last network shows the effect of overtraining. All results are computed on the test rows, which are used neither for T
nor for choosing the stopped network. With few test rows, the accuracy of a bin is not exact, so the ECE is above 0 even
for a perfectly calibrated network. Only the largest probability of each row is examined, not those of other classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...drawing.plots import AnyPanel, Line, Panel
from ...nn import losses
from ...nn.calibration import temperature
from ..criteria import Criterion
from ..curves import curve
from ..experiment import Experiment, need
from ..rows import Row, Rows
from ..tables import class_count, classification, divided
from ..training import Floats, Network, Task, Training, train

BINS = 15
STATES = ("before", "after")
"""Before and after temperature scaling."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    data: str = "digits"
    rows: int = 200
    validation: int = 300
    """Rows that choose the temperature, at most a third of the rows that are not for training."""
    width: int = 128
    depth: int = 2
    batch: int = 32
    learning_rate: float = 0.003
    steps: tuple[int, ...] = (25, 50, 100, 200, 400, 800, 1600, 3200, 6400)
    """Numbers of steps after which the network is examined."""
    repeats: int = 4
    """Number of divisions of the table for each seed."""


def parts(settings: Settings) -> Sequence[int]:
    """Return the numbers of the divisions."""
    need("steps", settings.steps)
    return range(settings.repeats)


def measure(settings: Settings, part: int, seed: int) -> Iterator[Row]:
    """Yield a row per number of steps before and after scaling, and the bins of the last network."""
    own = settings.repeats * seed + part
    task = classification(settings.data)
    training, others = divided(task, rows=settings.rows, seed=own)
    held = min(settings.validation, len(others) // 3)
    validation, test = others.rows(slice(held)), others.rows(slice(held, None))
    hidden = [f"{settings.width}:relu"] * settings.depth
    spec = "-".join([str(task.x.shape[1]), *hidden, str(class_count(task))])
    options = Training(
        steps=settings.steps[-1],
        batch=settings.batch,
        learning_rate=settings.learning_rate,
        seed=own,
        at=settings.steps,
    )
    trained = train(spec, training, options)
    networks = {**trained.stored, settings.steps[-1]: trained.network}
    stopped = min(networks, key=lambda step: networks[step].loss(validation))
    for step, network in networks.items():
        found = temperature(losses.get("cross_entropy"), network.outputs(validation.x), validation.targets, None)
        for state, divisor in zip(STATES, (1.0, found), strict=True):
            p = probabilities(network, test, divisor)
            common = {"repeat": part, "steps": step, "state": state}
            yield {
                "kind": "network",
                **common,
                "stopped": step == stopped,
                "temperature": divisor,
                **quality(p, test.y),
            }
            if step == settings.steps[-1]:
                yield from ({"kind": "bin", **common, **one} for one in bins(p, test.y))


def probabilities(network: Network, task: Task, divisor: float) -> Floats:
    """Return softmax(z/T) (rows, classes)."""
    z = network.outputs(task.x) / divisor
    p = np.exp(z - z.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def quality(p: Floats, y: NDArray[np.int64]) -> Row:
    """Return error, mean confidence, ECE and log loss."""
    chosen = p[np.arange(len(y)), y]
    return {
        "error": float((p.argmax(axis=1) != y).mean()),
        "confidence": float(p.max(axis=1).mean()),
        "ece": calibration_error(p, y),
        "log_loss": float(-np.log(np.maximum(chosen, 1e-12)).mean()),
    }


def bins(p: Floats, y: NDArray[np.int64]) -> list[Row]:
    """Return the number of rows, the mean confidence and the accuracy of each bin that is not empty."""
    confidence, right = p.max(axis=1), p.argmax(axis=1) == y
    places = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    return [
        {
            "bin": place,
            "rows": int((places == place).sum()),
            "confidence": float(confidence[places == place].mean()),
            "accuracy": float(right[places == place].mean()),
        }
        for place in np.unique(places).tolist()
    ]


def calibration_error(p: Floats, y: NDArray[np.int64]) -> float:
    """Return the expected calibration error."""
    return sum(one["rows"] * abs(one["accuracy"] - one["confidence"]) for one in bins(p, y)) / len(y)


def last(rows: Rows, state: str) -> Rows:
    """Return the rows of the last network."""
    own = rows.where(kind="network", state=state)
    return own.where(steps=max(own.values("steps")))


def excess(rows: Rows) -> float:
    """Return by how much the mean confidence of the last network is above its accuracy."""
    own = last(rows, "before")
    return own.mean("confidence") - (1 - own.mean("error"))


def scaled(rows: Rows, what: str) -> float:
    """Return a measure of the last network after scaling, relative to that before it."""
    return last(rows, "after").mean(what) / last(rows, "before").mean(what)


def stopped(rows: Rows) -> Rows:
    """Return the rows of the stopped networks."""
    return rows.where(kind="network", state="before", stopped=True)


def summary(rows: Rows) -> str:
    before, after = last(rows, "before"), last(rows, "after")
    return (
        f"After the last step, the mean confidence is {100 * before.mean('confidence'):.1f} % and the accuracy is "
        f"{100 * (1 - before.mean('error')):.1f} %. Temperature scaling with T = {after.mean('temperature'):.1f} "
        f"changes the expected calibration error from {100 * before.mean('ece'):.1f} % to "
        f"{100 * after.mean('ece'):.1f} % and the log loss from {before.mean('log_loss'):.3f} to "
        f"{after.mean('log_loss'):.3f}."
    )


def panels(rows: Rows) -> Sequence[AnyPanel]:
    networks = Rows({**row, "accuracy": 1 - row["error"]} for row in rows.where(kind="network"))
    before, after = (networks.where(state=state) for state in STATES)

    def pair(what: str) -> list[Line]:
        return [curve(before, "steps", what, name="before"), curve(after, "steps", what, name="after")]

    return [
        Panel(
            title="reliability of the last network",
            lines=[
                *(_reliability(rows.where(kind="bin", state=state), state) for state in STATES),
                Line(name="calibrated", x=(0, 1), y=(0, 1), dashed=True),
            ],
            x_label="confidence",
            y_label="accuracy",
        ),
        Panel(
            title="confidence and accuracy before scaling",
            lines=[
                curve(before, "steps", "confidence", name="confidence"),
                curve(before, "steps", "accuracy", name="accuracy"),
            ],
            x_label="steps",
            log_x=True,
        ),
        Panel(title="expected calibration error", lines=pair("ece"), x_label="steps", log_x=True),
        Panel(title="log loss", lines=pair("log_loss"), x_label="steps", log_x=True),
    ]


def _reliability(rows: Rows, name: str) -> Line:
    """Return accuracy by confidence, over the rows of all seeds. Bins with fewer than 20 rows are left out."""
    groups = sorted((place, own) for (place,), own in rows.by("bin") if own.numbers("rows").sum() >= 20)
    weights = [own.numbers("rows") for _, own in groups]
    x, y = (
        [float(np.average(own.numbers(what), weights=n)) for (_, own), n in zip(groups, weights, strict=True)]
        for what in ("confidence", "accuracy")
    )
    return Line(name=name, x=x, y=y, points=True)


EXPERIMENT = Experiment(
    name="overconfidence",
    title="Over-confidence",
    claim="Networks are over-confident without calibration. If they train for too long, their log loss on new rows "
    "rises, although their accuracy does not fall. Temperature scaling corrects most of the over-confidence with one "
    "number.",
    sources=(
        "Guo et al. 2017, On calibration of modern neural networks",
        "Platt 1999, Probabilistic outputs for support vector machines",
    ),
    settings=Settings(),
    full=Settings(width=512, depth=3, steps=(25, 100, 400, 1600, 6400, 25600), repeats=10),
    tiny=Settings(rows=100, width=32, steps=(50, 400, 1600), repeats=1),
    seeds=10,
    full_seeds=30,
    parts=parts,
    measure=measure,
    criteria=(
        Criterion(
            statement="After the last step, the mean confidence is at least 2 percentage points above the accuracy.",
            value=excess,
            at_least=0.02,
        ),
        Criterion(
            statement="The log loss after the last step is at least 1.2 times that of the stopped network.",
            value=lambda rows: last(rows, "before").mean("log_loss") / stopped(rows).mean("log_loss"),
            at_least=1.2,
        ),
        Criterion(
            statement="From the stopped network to the last step, the error rises by at most 0.5 percentage points.",
            value=lambda rows: last(rows, "before").mean("error") - stopped(rows).mean("error"),
            at_most=0.005,
        ),
        Criterion(
            statement="Temperature scaling multiplies the expected calibration error by at most 0.5.",
            value=lambda rows: scaled(rows, "ece"),
            at_most=0.5,
        ),
        Criterion(
            statement="Temperature scaling multiplies the log loss by at most 0.9.",
            value=lambda rows: scaled(rows, "log_loss"),
            at_most=0.9,
        ),
    ),
    summary=summary,
    panels=panels,
)
