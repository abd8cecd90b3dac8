"""Double descent: the test error peaks at the model size that is just large enough to fit every training row.

Three kinds of models are trained on n rows with noise in their targets. The targets of the test rows have no noise, so
a perfect model has the error 0. All errors are mean squared errors.

    weak features     Linear regression on p of D normal features, y = xᵀβ + noise. With more features than rows, least
                      squares has many solutions, and the one with the smallest norm is used. For n rows and noise of
                      variance σ², the expected error is known exactly (Belkin, Hsu and Xu 2020). Below, β∈ holds the
                      coefficients of the p features that are used, and β∉ those of the others.
                          p ≤ n − 2    (‖β∉‖² + σ²)(1 + p/(n − p − 1)) − σ²
                          p ≥ n + 2    ‖β∈‖² (1 − n/p) + (‖β∉‖² + σ²)(1 + n/(p − n − 1)) − σ²
    random features   One hidden layer of N ReLU units with random weights that are not trained. Only the output weights
                      are fitted, by least squares with the smallest norm. From N = n on, every row can be fitted.
    network           One hidden ReLU layer. Adam trains all weights, with all rows in each step. The number of
                      parameters is divided by the number of values to fit, which is rows × outputs. There is one
                      output here, so this is the number of parameters per row.

For each seed, random features and networks are trained on several training sets, each with other initial weights. f is
the mean prediction of these models. The mean error is the sum of two parts:

    bias²       mean over the test rows of (f − true value)², corrected for the finite number of training sets
    variance    mean over the test rows of the variance of the predictions

The error of the networks is also measured during training, because the double descent can appear over epochs too. The
experiment leaves out networks with several hidden layers, classification, early stopping and weight decay. Early
stopping and weight decay lower the peak.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...drawing.plots import AnyPanel, Line, Map, Panel
from ..criteria import Criterion
from ..curves import curve
from ..experiment import Experiment, Published, need
from ..rows import Row, Rows
from ..training import Task, Training, train

Floats = NDArray[np.float64]
TEST_ROWS = 500


@dataclass(frozen=True, kw_only=True)
class Settings:
    rows: int = 60
    inputs: int = 10
    noise: float = 0.3
    """Standard deviation of the noise in the targets of the training rows."""
    ratios: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0, 8.0, 16.0, 32.0)
    """Numbers of weak and of random features per row."""
    widths: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 48, 100, 200)
    steps: int = 10000
    learning_rate: float = 0.02
    sets: int = 12
    """Training sets of each network. There are 5 times as many for the other two models."""


def parts(settings: Settings) -> Sequence[tuple[str, int]]:
    """Return each model with its width. The width is 0 for models without one."""
    need("ratios", settings.ratios, at_least=2)
    need("widths", settings.widths, at_least=2)
    return [("weak", 0), ("random", 0), *(("network", width) for width in settings.widths)]


def measure(settings: Settings, part: tuple[str, int], seed: int) -> Iterator[Row]:
    model, width = part
    if model == "network":
        yield from _network(settings, width, seed)
    else:
        for ratio in settings.ratios:
            yield from (_weak if model == "weak" else _random)(settings, ratio, seed)


def target(x: Floats) -> Floats:
    """Return the true value of each row: a wave along one direction."""
    return np.sin(1.5 * x.sum(axis=1) / math.sqrt(x.shape[1]))


def _sample(settings: Settings, seed: int, number: int) -> Task:
    """Return training set `number` of a seed."""
    generator = np.random.default_rng([seed, 1, number])
    x = generator.normal(size=(settings.rows, settings.inputs))
    return Task(x=x, y=target(x) + settings.noise * generator.normal(size=settings.rows))


def _test_inputs(settings: Settings, seed: int) -> Floats:
    return np.random.default_rng([seed, 2]).normal(size=(TEST_ROWS, settings.inputs))


def _weak(settings: Settings, ratio: float, seed: int) -> Iterator[Row]:
    n, p = settings.rows, round(ratio * settings.rows)
    count = round(max(settings.ratios) * n)
    beta = np.full(count, 1 / math.sqrt(count))
    errors: list[float] = []
    for number in range(5 * settings.sets):
        generator = np.random.default_rng([seed, 3, p, number])
        x = generator.normal(size=(n, count))
        y = x @ beta + settings.noise * generator.normal(size=n)
        found = least_squares(x[:, :p], y)
        errors.append(float(np.square(found - beta[:p]).sum() + np.square(beta[p:]).sum()))
    expected = weak_error(n, p, float(np.square(beta[:p]).sum()), float(np.square(beta[p:]).sum()), settings.noise**2)
    row = {"model": "weak", "ratio": p / n, "test_error": float(np.mean(errors))}
    yield row | ({} if expected is None else {"expected": expected})


def weak_error(n: int, p: int, used: float, unused: float, variance: float) -> float | None:
    """Return the expected error of least squares on p of the features, or None where it is infinite.

    `used` and `unused` are the squared norms of the coefficients of the features that are used, and of the others.
    """
    if p <= n - 2:
        return (unused + variance) * (1 + p / (n - p - 1)) - variance
    if p >= n + 2:
        return used * (1 - n / p) + (unused + variance) * (1 + n / (p - n - 1)) - variance
    return None


def least_squares(x: Floats, y: Floats) -> Floats:
    """Return the coefficients of smallest norm among those of smallest squared error."""
    return np.asarray(np.linalg.lstsq(x, y)[0], np.float64)


def _random(settings: Settings, ratio: float, seed: int) -> Iterator[Row]:
    units, x_test = round(ratio * settings.rows), _test_inputs(settings, seed)
    predictions: list[Floats] = []
    errors: list[float] = []
    for number in range(5 * settings.sets):
        task = _sample(settings, seed, number)
        generator = np.random.default_rng([seed, 4, units, number])
        weight = generator.normal(size=(settings.inputs + 1, units)) / math.sqrt(settings.inputs)
        hidden = np.maximum(_with_one(task.x) @ weight, 0)
        output = least_squares(hidden, task.y)
        errors.append(float(np.square(hidden @ output - task.y).mean()))
        predictions.append(np.maximum(_with_one(x_test) @ weight, 0) @ output)
    yield {
        "model": "random",
        "ratio": units / settings.rows,
        "training_error": float(np.mean(errors)),
        **decomposition(np.stack(predictions), target(x_test)),
    }


def _with_one(x: Floats) -> Floats:
    return np.column_stack([x, np.ones(len(x))])


def _network(settings: Settings, width: int, seed: int) -> Iterator[Row]:
    x_test = _test_inputs(settings, seed)
    true = Task(x=x_test, y=target(x_test))
    at = _times(settings.steps)
    options = Training(steps=settings.steps, learning_rate=settings.learning_rate, at=at)
    spec = f"{settings.inputs}-{width}:relu-1"
    errors = np.zeros((settings.sets, len(at), 2))
    predictions: list[Floats] = []
    for number in range(settings.sets):
        task = _sample(settings, seed, number)
        stored = train(spec, task, _seeded(options, [seed, number])).stored
        errors[number] = [(stored[steps].loss(task), stored[steps].loss(true)) for steps in at]
        predictions.append(stored[settings.steps].outputs(x_test)[:, 0])
    parameters = width * (settings.inputs + 2) + 1
    known = {"width": width, "ratio": parameters / settings.rows}
    training, test = errors.mean(axis=0).T
    for i, steps in enumerate(at):
        yield {"model": "course", **known, "steps": steps, "training_error": training[i], "test_error": test[i]}
    parts = decomposition(np.stack(predictions), true.y)
    yield {"model": "network", **known, "training_error": training[-1], **parts}


def _seeded(options: Training, key: list[int]) -> Training:
    return replace(options, seed=int(np.random.default_rng(key).integers(1 << 31)))


def _times(steps: int) -> tuple[int, ...]:
    """Return about four numbers of steps per factor of ten."""
    return tuple(sorted({round(10 ** (k / 4)) for k in range(int(4 * math.log10(steps)) + 1)} | {steps}))


def decomposition(predictions: Floats, true: Floats) -> dict[str, float]:
    """Return error, squared bias and variance of predictions (training set, row). The last two add up to the first."""
    sets = len(predictions)
    variance = float(predictions.var(axis=0, ddof=1).mean())
    bias = float(np.square(predictions.mean(axis=0) - true).mean()) - variance / sets
    return {"test_error": bias + variance, "bias": bias, "variance": variance}


class Descent:
    """The curve of the test error of one model: first minimum, peak and last value."""

    def __init__(self, rows: Rows, model: str) -> None:
        groups = sorted((ratio, own.numbers("test_error")) for (ratio,), own in rows.where(model=model).by("ratio"))
        self.ratios = np.array([ratio for ratio, _ in groups])
        self.errors = np.exp([np.log(errors).mean() for _, errors in groups])  # geometric means over the seeds
        self.top = int(self.errors[:-1].argmax())

    @property
    def peak_at(self) -> float:
        """Parameters per value to fit at the peak."""
        return float(self.ratios[self.top])

    @property
    def off(self) -> float:
        """Factor between the model size at the peak and one parameter per value, at least 1."""
        return math.exp(abs(math.log(self.peak_at)))

    @property
    def rise(self) -> float:
        """Error at the peak, relative to the smallest error before it."""
        return float(self.errors[self.top] / self.errors[: self.top + 1].min())

    @property
    def fall(self) -> float:
        """Error of the largest model, relative to that at the peak."""
        return float(self.errors[-1] / self.errors[self.top])

    @property
    def gain(self) -> float:
        """Smallest error beyond the peak, relative to the smallest error before it."""
        return float(self.errors[self.top :].min() / self.errors[: self.top + 1].min())


def _late(rows: Rows) -> float:
    """Return how clearly the test error of the widest network has a peak after it has learned most of the rows.

    In the first steps, Adam overshoots, which is no double descent. A peak counts only where the training error is at
    most a tenth of that after the first step.
    """
    course = rows.where(model="course")
    own = course.where(width=max(course.values("width")))
    training, test = (np.array([part.mean(f"{name}_error") for _, part in own.by("steps")])
                      for name in ("training", "test"))  # fmt: skip
    learned = np.flatnonzero(training <= training[0] / 10)
    return clearest_peak(test, int(learned[0])) if len(learned) else 1.0


def clearest_peak(errors: Floats, first: int) -> float:
    """Return the larger of two ratios at the clearest peak: smallest error before it, and last error, to the peak.

    >>> clearest_peak(np.array([4.0, 1.0, 2.0, 0.5]), 1)
    0.5
    >>> clearest_peak(np.array([4.0, 2.0, 1.0]), 0), clearest_peak(np.array([4.0, 1.0, 2.0, 0.5]), 3)
    (1.0, 1.0)
    """
    before = np.minimum.accumulate(errors)
    return float(np.maximum(before / errors, errors[-1] / errors)[first:].min())


def summary(rows: Rows) -> str:
    random, network = Descent(rows, "random"), Descent(rows, "network")
    return (
        f"The test error of random features peaks at {random.peak_at:.2g} features per row, at {random.rise:.0f} times "
        f"its first minimum. The test error of trained networks peaks at {network.peak_at:.2g} parameters per row, at "
        f"{network.rise:.0f} times its first minimum. Beyond the peak, the smallest error is {random.gain:.2f} times "
        f"the first minimum for random features, and {network.gain:.2f} times for networks."
    )


def panels(rows: Rows) -> Sequence[AnyPanel]:
    weak, random, network = (rows.where(model=model) for model in ("weak", "random", "network"))
    theory = weak.having(lambda row: "expected" in row)
    split = [theory.having(lambda row: row["ratio"] < 1), theory.having(lambda row: row["ratio"] > 1)]
    threshold = {"threshold": 1.0}
    return [
        Panel(
            title="weak features: error and exact formula",
            lines=[
                curve(weak, "ratio", "test_error", name="measured", log=True),
                *(
                    Line(name="formula" if i else "", x=one.x, y=one.y, dashed=True, colour=1)
                    for i, one in enumerate(curve(own, "ratio", "expected", name="") for own in split if own)
                ),
            ],
            x_label="features per row",
            y_label="test error",
            log_x=True,
            log_y=True,
            marks=threshold,
        ),
        Panel(
            title="random features: error, bias and variance",
            lines=_parts(random),
            x_label="features per row",
            log_x=True,
            log_y=True,
            marks=threshold,
        ),
        Panel(
            title="trained networks: error, bias and variance",
            lines=[*_parts(network), _training(network)],
            x_label="parameters per row",
            y_label="error",
            log_x=True,
            log_y=True,
            limits=(1e-3, 3.0),
            marks=threshold,
        ),
        _map(rows.where(model="course")),
    ]


def _parts(rows: Rows) -> list[Line]:
    names = {"test_error": "test", "bias": "bias²", "variance": "variance"}
    return [curve(rows, "ratio", column, name=name) for column, name in names.items()]


def _training(rows: Rows) -> Line:
    line = curve(rows, "ratio", "training_error", name="training")
    return Line(name=line.name, x=line.x, y=line.y, dashed=True)


def _map(rows: Rows) -> Map:
    """Return the error by number of steps and network. The columns are the networks in the order of their width."""
    widths, steps = sorted(rows.distinct("width")), sorted(rows.distinct("steps"))
    ratios = [rows.where(width=width).mean("ratio") for width in widths]
    cells = {key: own.mean("test_error") for key, own in rows.by("steps", "width")}
    ends = (math.log10(steps[0]), math.log10(steps[-1]))
    threshold = float(np.interp(0, np.log(ratios), np.arange(1, len(ratios) + 1)))
    return Map(
        title="networks: test error during training",
        values=np.array([[cells[at, width] for width in widths] for at in steps]),
        x=(1, len(widths)),
        y=ends,
        x_label=f"networks, from {widths[0]} to {widths[-1]} units",
        y_label="log₁₀ of the steps",
        label="error",
        log=True,
        points=[("threshold", threshold, ends[0])],
        path=[(threshold, end) for end in ends],
    )


EXPERIMENT = Experiment(
    name="double_descent",
    title="Double descent",
    claim="As the model grows, the test error first falls, then rises to a peak, and then falls again below its first "
    "minimum. The peak is where the model can just fit every training row: it has as many parameters as there are "
    "values to fit. The same happens over the epochs of one training run.",
    sources=(
        "Belkin, Hsu, Ma and Mandal 2019, Reconciling modern machine-learning practice and the classical bias-variance "
        "trade-off",
        "Belkin, Hsu and Xu 2020, Two models of double descent for weak features",
        "Nakkiran et al. 2020, Deep double descent: where bigger models and more data hurt",
        "Hastie, Montanari, Rosset and Tibshirani 2022, Surprises in high-dimensional ridgeless least squares "
        "interpolation",
    ),
    settings=Settings(),
    full=Settings(steps=40000, sets=40, widths=(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 24, 48, 100, 200, 400)),
    tiny=Settings(rows=24, inputs=6, ratios=(0.25, 1.0, 8.0), widths=(1, 3, 40), steps=2000, sets=4),
    seeds=5,
    full_seeds=20,
    parts=parts,
    measure=measure,
    criteria=(
        Criterion(
            statement="The peak of random features differs from one feature per row by at most a factor of 1.25.",
            value=lambda rows: Descent(rows, "random").off,
            at_most=1.25,
        ),
        Criterion(
            statement="The peak of trained networks differs from one parameter per row by at most a factor of 2.",
            value=lambda rows: Descent(rows, "network").off,
            at_most=2.0,
        ),
        Criterion(
            statement="At its peak, the error of trained networks is at least 3 times its first minimum.",
            value=lambda rows: Descent(rows, "network").rise,
            at_least=3.0,
        ),
        Criterion(
            statement="The error of the widest network is at most half of the error at the peak.",
            value=lambda rows: Descent(rows, "network").fall,
            at_most=0.5,
        ),
        Criterion(
            statement="Random features: the ratio smallest error beyond the peak / first minimum is at most 1.",
            value=lambda rows: Descent(rows, "random").gain,
            at_most=1.0,
        ),
        Criterion(
            statement="Trained networks: the ratio smallest error beyond the peak / first minimum is at most 1.",
            value=lambda rows: Descent(rows, "network").gain,
            at_most=1.0,
        ),
        Criterion(
            statement="During training of the widest network, the test error has a peak: it is at least 10 % lower "
            "before the peak, and at the end.",
            value=_late,
            at_most=0.9,
        ),
    ),
    summary=summary,
    panels=panels,
    published=(
        Published(
            what="Error of weak features at two features per row, relative to the formula",
            theirs="1",
            source="Belkin, Hsu and Xu 2020, theorem 1",
            ours=lambda rows: _against_formula(rows.where(model="weak", ratio=2.0)),
        ),
    ),
)


def _against_formula(rows: Rows) -> str:
    return f"{rows.mean('test_error') / rows.mean('expected'):.3f}" if rows else "not measured at this size"
