"""Suggest a learning rate from a few short runs, or say why the data gives no evidence for one.

    range test    one short run with a learning rate that grows exponentially (Smith 2017). It shows where the loss
                  falls and where it diverges: higher rates are not tried
    first round   nine rates around the default, two per decade, run for 0.3 % of the steps of the training
    second round  the best four of them, for 1.1 % of the steps (successive halving, Jamieson and Talwalkar 2016)
    choice        the lowest score on held-out rows:
                  (loss − lowest) / (start − lowest) + caution · (decades from the default)²

A short run uses the schedules of the training, shortened to its steps. The caution keeps the default unless another
rate is clearly better, because a short run favors rates that are too high or too low for the whole training. It is
almost zero for optimizers without the update of Adam, for which the default is not measured.

The steepest slope and a tenth of the minimum of the range test are worse rules: they depend on the batch size, on the
smoothing and on the range. bench/learning_rate.py compares the rules. The constants were chosen on generated tables.
"""

from __future__ import annotations

import html
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack, cast

import numpy as np

from ..core.formatting import count
from ..data import is_loader
from ..errors import MissingExtra, OptionError, option, option_name, warn
from ..models.trained_model import TrainedModel
from ..nn import optimizers
from ..spec import Spec
from .fit import FitOptions, given_options, read_and_choose
from .inputs import check_order
from .rate_trials import Floats, RangeTest, ShortRuns
from .recipe import Recipe
from .setup import Setup

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARE = 0.1
"""Largest fraction of the steps of the training for all short runs and evaluations."""
RANGE_SHARE, FIRST_SHARE, SECOND_SHARE = 0.13, 0.03, 0.11
"""Fractions of the allowed steps: the range test, a run of the first round, and a run of the second round."""
FEWEST_STEPS = 200
"""Number of allowed steps below which the short runs are too short."""
FEWEST_RANGE_STEPS = 40
FEWEST_ROWS = 10
"""Number of held-out rows below which their loss is too noisy."""
FEWEST_EVALUATED = 512
"""An evaluation uses as many held-out rows as half of the rows that the run trained on, and at least this many."""
DECADES = 2.0
"""The nine rates span this many powers of ten on both sides of the default."""
PER_DECADE = 2
RANGE_DECADES = 2.5
KEPT = 4
"""Number of rates in the second round."""
CAUTION, OTHER_CAUTION = 0.3, 0.02
"""Penalty on a rate one decade away from the default, for optimizers with the update of Adam and for others."""
WORST = 2.0
"""Largest score of a loss. One run that nearly diverged must not hide the differences between the others."""
FLAT = 1e-6
"""Change of the smoothed loss, relative to the loss, below which the loss does not depend on the parameters."""
EVIDENCE = 2.0
"""Number of standard errors by which the held-out loss must fall."""
SHOWN_AFTER = 2.0
"""Seconds after which a terminal shows a progress bar."""


@dataclass(frozen=True, kw_only=True)
class RateTrial:
    """A short run with one learning rate: its number of steps, and the held-out loss after it. `inf`: it diverged."""

    learning_rate: float
    steps: int
    loss: float


@dataclass(frozen=True, kw_only=True)
class LearningRateSuggestion:
    """The result of `find_learning_rate`. A notebook shows it with its plot.

    Attributes
    ----------
    learning_rate : float or None
        The suggested peak learning rate. None if there is no evidence for one.
    reason : str
        How the rate was chosen, or why no rate is suggested.
    default : float or None
        The learning rate that training uses without a suggestion, if known.
    rates, losses, smoothed : tuple of float
        The range test: the learning rate of each step, the loss of its batch, and the smoothed loss.
    diverged_at : float or None
        The learning rate at which the range test diverged. None if it did not.
    start_loss : float or None
        The held-out loss before training.
    trials : tuple of RateTrial
        The short runs in their order: all rates of the first round, then those of the second round.

    Examples
    --------
    >>> import multilayer as ml
    >>> found = ml.find_learning_rate("2-16:tanh-1", "moons", optimizer="momentum", quiet=True)
    >>> len(found.rates) == len(found.losses) == len(found.smoothed) > 10
    True
    """

    learning_rate: float | None
    reason: str
    default: float | None = None
    rates: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()
    smoothed: tuple[float, ...] = ()
    diverged_at: float | None = None
    start_loss: float | None = None
    trials: tuple[RateTrial, ...] = ()

    def __repr__(self) -> str:
        rate = f"{self.learning_rate:g}" if self.learning_rate is not None else "no suggestion"
        return f"LearningRateSuggestion({rate}: {self.reason})"

    def plot(self, path: str | Path | None = None) -> Figure:
        """Plot the range test and the short runs.

        Parameters
        ----------
        path : str or Path, optional
            File to write: .svg, .png or .pdf. Without it, the plot is only returned.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        OptionError
            If there is nothing to plot because no step was run, or if the file has another suffix.
        MissingExtra
            If matplotlib is not installed.

        Examples
        --------
        >>> import tempfile
        >>> import multilayer as ml
        >>> found = ml.find_learning_rate("2-16:tanh-1", "moons", optimizer="momentum", quiet=True)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     figure = found.plot(f"{folder}/rates.svg")
        """
        from ..drawing.plots import check_path, learning_rate_figure, save

        if path is not None:
            check_path(path)
        if not self.rates:
            raise OptionError(f"there is nothing to plot: no short run was made, because {self.reason}")
        rounds = {steps: [one for one in self.trials if one.steps == steps] for steps in self._rounds}
        figure = learning_rate_figure(
            range_test=(self.rates, self.losses, self.smoothed),
            rounds={steps: ([t.learning_rate for t in kept], [t.loss for t in kept]) for steps, kept in rounds.items()},
            chosen=self.learning_rate,
            start_loss=self.start_loss,
            subtitle=self.reason.partition(";")[0],
        )
        if path is not None:
            save(figure, path, title="Learning rates")
        return figure

    @property
    def _rounds(self) -> list[int]:
        return sorted({one.steps for one in self.trials})

    def to_dict(self) -> dict[str, Any]:
        """Return the suggestion as plain data. `strict_json` writes numbers that are not finite as strings.

        Returns
        -------
        dict
            The attributes, with the short runs as dictionaries.

        Examples
        --------
        >>> import multilayer as ml
        >>> ml.find_learning_rate("2-1:step", "moons", quiet=True).to_dict()["learning_rate"] is None
        True
        """
        return asdict(self)

    def _repr_html_(self) -> str:
        """Return the suggestion with its plot for a notebook. Without matplotlib, only the text."""
        rate = f"learning rate {self.learning_rate:g}" if self.learning_rate is not None else "no suggestion"
        text = f"<p><strong>{rate}</strong>: {html.escape(self.reason)}</p>"
        if not self.rates:
            return text
        try:
            from ..drawing.plots.style import encoded

            svg = encoded(self.plot(), ".svg", title="Learning rates").decode()
        except MissingExtra:
            return text
        return text + svg[svg.index("<svg") :]


def find_learning_rate(
    spec: Spec | str | Recipe | None,
    data: Any = None,
    *,
    recipe: str | None = None,
    hidden: int | Sequence[int] | None = None,
    activation: str | Sequence[str] | None = None,
    dropout: float | None = None,
    start: TrainedModel | None = None,
    share: float = SHARE,
    quiet: bool = False,
    **options: Unpack[FitOptions],
) -> LearningRateSuggestion:
    """Suggest a learning rate for a network and a table, from short runs that take a tenth of the training.

    The arguments are those of `fit`: pass what you would pass there. For an ensemble, one of its networks is run.
    The result depends only on the arguments, the data and the seed.

    Parameters
    ----------
    spec : Spec, str or None
        The network. If None, the network that `fit` would choose.
    data
        A table or a pair ``(X, y)``. For a DataLoader there is no suggestion, because its batches cannot be repeated.
    recipe, hidden, activation, dropout, start
        As in `fit`.
    share : float
        Largest number of steps of all short runs, as a fraction of the steps of the training.
    quiet : bool
        Whether to show no progress bar. It appears only on a terminal, after two seconds.
    **options
        As in `fit`: options for the data, and fields of `Config`, such as ``epochs=20``.

    Returns
    -------
    LearningRateSuggestion
        The learning rate in `learning_rate`, or None with the reason in `reason`.

    Raises
    ------
    OptionError
        If an option is invalid, or `learning_rate` is given.
    SpecError
        If the network is invalid, or does not fit the data.
    DataError
        If the data cannot be used for training.

    Examples
    --------
    >>> import multilayer as ml
    >>> found = ml.find_learning_rate("2-16:tanh-1", "moons", optimizer="momentum", threads=1)
    >>> 0.001 < found.learning_rate <= 1
    True
    >>> ml.find_learning_rate("2-1:step", "moons").reason
    'the perceptron rule learns from mistakes, and its result does not depend on the learning rate'
    """
    began = time.monotonic()
    check_order(spec, data)
    given = given_options("find_learning_rate", _PARAMETERS, options)
    if given.training.get("learning_rate") is not None:
        name = option_name("learning_rate")
        raise OptionError(f"find_learning_rate chooses {name}, got {given.training['learning_rate']!r}: omit it")
    if not 0 < share <= 1:
        raise OptionError(f"{option_name('share')} must be above 0 and at most 1, got {share!r}")
    if is_loader(data):
        return _declined("the batches of a DataLoader cannot be repeated: pass the rows as (X, y)")
    shape = Recipe(hidden=hidden, activation=activation, dropout=dropout)
    _, made = read_and_choose(spec, data, recipe=recipe, shape=shape, given=given, began=began, single=True)
    for note in made.prepared.warnings:
        warn(note)
    setup = Setup.make(made.spec, made.prepared, made.config, loss_function=given.loss_function)
    try:
        if start is not None:
            setup.load_start(start)
        return suggest(setup, share=share, networks=made.members, quiet=quiet)
    finally:
        setup.engine.close()


_PARAMETERS = ("recipe", "hidden", "activation", "dropout", "start", "share", "quiet")


def suggest(setup: Setup, *, share: float = SHARE, networks: int = 1, quiet: bool = False) -> LearningRateSuggestion:
    """Suggest a learning rate for a run that is set up. The state of its engine is the same before and after.

    `networks` is the number of networks that the training will train with the rate.
    """
    default, runs = setup.plan.rate, ShortRuns.of(setup)
    steps = networks * setup.plan.steps
    budget = min(int(share * steps), setup.plan.steps)
    why = _why_not(setup, runs, steps, share)
    if why is not None:
        return _declined(why, default=default)
    caution = CAUTION if optimizers.get(setup.config.optimizer).rule == "adam" else OTHER_CAUTION
    with _Progress(quiet=quiet) as progress, runs:
        runs.advance = progress.advance
        return _Search(runs, default, budget, caution, progress).run()


def _why_not(setup: Setup, runs: ShortRuns, steps: int, share: float) -> str | None:
    """Return why short runs cannot give a suggestion. None if they can."""
    if setup.loss.name == "perceptron":
        return "the perceptron rule learns from mistakes, and its result does not depend on the learning rate"
    if len(runs.held_out) < FEWEST_ROWS:
        got, least = count(len(runs.held_out), "held-out row"), FEWEST_ROWS
        return f"there are too few rows: comparing rates needs at least {least} held-out rows, got {got}"
    y = setup.prepared.data.y[setup.prepared.train]
    if (y == y[:1]).all():
        return "the target is the same in every training row, so there is nothing to learn"
    if share * steps < FEWEST_STEPS:
        enough = math.ceil(100 * FEWEST_STEPS / steps) / 100
        larger = f", or allow more of them, {option('share', f'{enough:g}')}" if enough <= 1 else ""
        return (
            f"the training is too short: a search within {100 * share:g} % of its steps needs at least "
            f"{math.ceil(FEWEST_STEPS / share):,} steps, got {count(steps, 'step')}: set more {option_name('epochs')}"
            f"{larger}"
        )
    return None


def _declined(reason: str, **known: Any) -> LearningRateSuggestion:
    return LearningRateSuggestion(learning_rate=None, reason=reason, **known)


class _Round(NamedTuple):
    """The trials of a round, and the losses of the held-out rows after the best of them."""

    trials: list[RateTrial]
    scores: list[float]
    fall: Floats
    """For each evaluated row, by how much the loss of the lowest trial is below that at the start."""


@dataclass(eq=False)
class _Search:
    """The range test and the two rounds."""

    runs: ShortRuns
    default: float
    budget: int
    caution: float
    progress: _Progress

    def run(self) -> LearningRateSuggestion:
        steps = [max(1, int(part * self.budget)) for part in (FIRST_SHARE, SECOND_SHARE)]
        tested = max(FEWEST_RANGE_STEPS, int(RANGE_SHARE * self.budget))
        candidates = self._around(DECADES, int(2 * DECADES * PER_DECADE) + 1)
        self.progress.begin(tested + len(candidates) * steps[0] + KEPT * steps[1])
        test = self.runs.range_test(self._around(RANGE_DECADES, tested))
        known: dict[str, Any] = {"default": self.default, "diverged_at": test.diverged_at}
        known |= {name: tuple(getattr(test, name).tolist()) for name in ("rates", "losses", "smoothed")}
        why = _unusable(test)
        if why is not None:
            return _declined(why, **known)
        stable = [rate for rate in candidates.tolist() if test.diverged_at is None or rate < test.diverged_at]
        if not stable:
            return _declined(f"training diverges even at a learning rate of {test.diverged_at:.2g}", **known)
        first = self._round(stable, steps[0])
        best = [t.learning_rate for _, t in sorted(zip(first.scores, first.trials, strict=True), key=lambda p: p[0])]
        second = self._round(sorted(best[:KEPT]), steps[1])
        known |= {"trials": (*first.trials, *second.trials), "start_loss": self._start(steps[1])}
        return self._choose(second, known)

    def _around(self, decades: float, number: int) -> Floats:
        """Return learning rates at equal ratios around the default, to three significant digits except the default."""
        exponents = np.linspace(-decades, decades, number).tolist()
        return np.array([float(f"{self.default * 10**e:.3g}") if e else self.default for e in exponents])

    def _evaluated(self, steps: int) -> int:
        return max(FEWEST_EVALUATED, steps * self.runs.plan.batch // 2)

    def _start(self, steps: int) -> float:
        return float(self.runs.start_losses(self._evaluated(steps)).mean())

    def _round(self, rates: Sequence[float], steps: int) -> _Round:
        """Run one trial per rate, and score them."""
        evaluated = self._evaluated(steps)
        start = self.runs.start_losses(evaluated)
        after = [self.runs.trial(rate, steps, evaluated) for rate in rates]
        means = np.array([np.inf if rows is None else float(rows.mean()) for rows in after])
        lowest = int(np.argmin(means))
        rows = after[lowest]
        distance = np.log10(np.array(rates) / self.default)
        with np.errstate(invalid="ignore"):
            missed = (means - means[lowest]) / max(float(start.mean()) - means[lowest], 1e-12)
        scores = np.where(np.isfinite(means), np.minimum(missed, WORST) + self.caution * distance**2, np.inf)
        trials = [RateTrial(learning_rate=r, steps=steps, loss=float(m)) for r, m in zip(rates, means, strict=True)]
        return _Round(trials, scores.tolist(), np.zeros(1) if rows is None else start - rows)

    def _choose(self, found: _Round, known: dict[str, Any]) -> LearningRateSuggestion:
        """Return the rate with the lowest score, unless the held-out loss does not clearly fall at any rate."""
        trials, fall, steps = found.trials, found.fall, found.trials[0].steps
        error = float(fall.std()) / math.sqrt(len(fall))
        if fall.mean() <= EVIDENCE * error:
            lowest, start = min(one.loss for one in trials), known["start_loss"]
            ends = (
                "it diverges"
                if lowest == math.inf
                else f"it is {start:.4g} before training and {lowest:.4g} at best after"
            )
            return _declined(
                f"the held-out loss does not clearly fall at any learning rate: {ends} {steps} steps", **known
            )
        chosen = trials[int(np.argmin(found.scores))]
        lowest = min(trials, key=lambda one: one.loss)
        rates = [one.learning_rate for one in known["trials"]]
        reason = (
            f"after {steps} steps, the held-out loss is {chosen.loss:.4g}, from {known['start_loss']:.4g} before "
            f"training; {len(set(rates))} rates from {min(rates):g} to {max(rates):g} were tried"
        )
        if lowest is not chosen:
            reason += f"; {lowest.learning_rate:g} gave {lowest.loss:.4g}, but short runs favor rates far from the "
            reason += f"default, {self.default:.3g}"
        elif chosen.learning_rate in (min(rates), max(rates)):
            reason += "; it is the last of them, so a rate beyond it may be better"
        return LearningRateSuggestion(learning_rate=chosen.learning_rate, reason=reason, **known)


def _unusable(test: RangeTest) -> str | None:
    """Return why the range test shows no rate at which training works. None if it may work."""
    if not np.isfinite(test.losses[0]):
        return "the loss is not finite before training"
    if test.diverged_at is None and np.ptp(test.smoothed) <= FLAT * abs(float(test.smoothed[0])):
        low, high = test.rates[0], test.rates[-1]
        return (
            f"the loss is the same at all learning rates from {low:.2g} to {high:.2g}: the gradient is zero, so check "
            "the initialization and the activations"
        )
    return None


class _Progress:
    """A progress bar on a terminal, for a search that takes longer than two seconds. It is removed at the end."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet, self.done, self.total, self.bar = quiet, 0, 1, cast(Any, None)
        self.began = time.monotonic()

    def begin(self, total: int) -> None:
        self.total = total

    def advance(self, steps: int) -> None:
        self.done += steps
        if self.quiet or time.monotonic() - self.began < SHOWN_AFTER:
            return
        if self.bar is None:
            self.bar = self._bar()
        self.bar.update(self.bar.task_ids[0], completed=self.done, total=max(self.total, self.done))

    def _bar(self) -> Any:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        terminal = Console(stderr=True)
        columns = (TextColumn("learning rates"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        bar = Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal)
        bar.add_task("", total=self.total)
        bar.start()
        return bar

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()
