"""Hyperparameter search with Optuna, for `mlp tune`.

    dimensions   width and depth of the network, dropout, learning rate, weight decay, embedding of numbers
    trial        one network, a quarter of the epochs; its value is its best loss or metric on a fifth of the rows
    pruning      a trial stops early if its best value is worse than the median of the other trials at that epoch
    first trial  the recipe itself, so the result is at least as good as the recipe on the held-out rows

All options and the data are checked before anything is written. Optuna's journal in the folder stores the study, so a
killed search can be continued. A trial that a signal or the time limit interrupted runs again. The next proposal
depends only on the seed, the number of the trial and the earlier trials.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from ..core import atomic_files, random
from ..data import DataOptions, make_training_data
from ..data.table import Table
from ..errors import DataError, OptionError, needed_by, option_name
from ..models import metrics
from ..runs.config import Config
from ..runs.events import EpochEnd, Event
from ..training.fit import fit
from ..training.policies import better, value_of
from ..training.recipe import (
    DROPOUT,
    EMBEDDING,
    FEWEST_TRIAL_EPOCHS,
    HIDDEN,
    OPTIONS,
    Recipe,
    complete,
    options_for,
)
from ..training.setup import Setup

STARTUP = 5
"""Number of trials before trials are pruned and before proposals depend on earlier trials."""
STUDY, SETTINGS = "study.log", "tune.json"
NAMED = 5
"""Largest number of columns that a message names."""
TRIALS_SHARE = 0.5
"""Fraction of a time limit for the trials. The rest is for the final training."""


@dataclass(frozen=True, kw_only=True)
class Dimension:
    """A range of numbers, or a choice among names. `default` is the value of the recipe."""

    low: float = 0.0
    high: float = 0.0
    default: Any
    log: bool = False
    whole: bool = False
    choices: tuple[str, ...] = ()

    def suggest(self, trial: Any, name: str) -> Any:
        """Return the value that Optuna proposes for a trial."""
        if self.choices:
            return trial.suggest_categorical(name, self.choices)
        if self.whole:
            return trial.suggest_int(name, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)


SPACE: dict[str, Dimension] = {
    "width": Dimension(low=32, high=512, log=True, whole=True, default=HIDDEN[0]),
    "depth": Dimension(low=1, high=5, whole=True, default=len(HIDDEN)),
    "dropout": Dimension(low=0.0, high=0.5, default=DROPOUT),
    "rate": Dimension(low=0.1, high=3.0, log=True, default=1.0),
    "weight_decay": Dimension(low=1e-3, high=0.3, log=True, default=OPTIONS.get("weight_decay", 0.02)),
    "embedding": Dimension(choices=("pbld", "plr", "none"), default=EMBEDDING),
}
"""`rate` multiplies the recipe's learning rate, which depends on the task."""


def recipe_of(values: Mapping[str, Any], *, trial: bool = False) -> Recipe:
    """Return a point of the search space as a recipe. With `trial`, it has fewer epochs."""
    return Recipe(
        hidden=(values["width"],) * values["depth"],
        dropout=values["dropout"],
        embedding=values["embedding"],
        weight_decay=values["weight_decay"],
        rate_factor=values["rate"],
        trial=trial,
    )


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A trial that has ended. `value` is its best `metric` on the held-out rows, or None if training diverged."""

    number: int
    values: dict[str, Any]
    value: float | None
    pruned: bool
    seconds: float
    metric: str = "loss"

    def to_dict(self) -> dict[str, Any]:
        judged = {self.metric: self.value, "pruned": self.pruned, "seconds": self.seconds}
        return {"trial": self.number, **self.values, **judged}


@dataclass(frozen=True, kw_only=True)
class Search:
    """The result of a search. `signal` and `out_of_time` report why it ended early."""

    trials: tuple[Trial, ...]
    signal: int | None = None
    out_of_time: bool = False

    @property
    def best(self) -> Trial | None:
        """The best trial. None if the time limit ended the search before any trial was complete."""
        found = best_of(self.trials)
        if found is None and not self.out_of_time:
            lacks = {trial.metric for trial in self.trials if trial.metric in metrics.MAY_LACK}
            reasons = "".join(f" or had no {metric} on the held-out rows" for metric in lacks)
            n = len(self.trials)
            raise OptionError(f"{n} of {n} trials diverged{reasons}: allow more trials")
        return found

    @property
    def values(self) -> dict[str, Any]:
        """The values for the final training: those of the best trial, or the defaults."""
        return defaults() if self.best is None else self.best.values


def search(
    table: Table,
    folder: Path,
    *,
    source: Mapping[str, Any],
    options: Mapping[str, Any],
    trials: int,
    time_limit: float | None = None,
    seed: int = 0,
    on_begin: Callable[[Sequence[Trial]], None] = lambda trials: None,
    on_trial: Callable[[Trial, Trial | None], None] = lambda trial, best: None,
    clock: Callable[[], float] = time.monotonic,
) -> Search:
    """Run trials until their number or the time limit is reached.

    `on_begin` is called with the trials of an earlier search after all checks, and `on_trial` after each trial with
    this trial and the best one.
    """
    began, signal, out_of_time = clock(), None, False
    optuna = _optuna()
    time_limit, metric = _check(table, source=source, options={**options, "seed": seed, "time_limit": time_limit})
    about = {"seed": seed, "rows": len(table), "columns": table.names, "metric": metric}
    _save_settings(folder, {"source": source, "options": options, **about})
    study = _study(optuna, folder / STUDY, metric)
    states = optuna.trial.TrialState
    if not study.trials:
        study.enqueue_trial(defaults())
    for cut in study.get_trials(states=(states.RUNNING,)):  # the search was killed during this trial
        study.tell(cut.number, state=states.FAIL)
        study.enqueue_trial(cut.params)
    cheap = {name: value for name, value in options.items() if name != "ensemble"}
    on_begin(ended(study, metric))
    while len(ended(study, metric)) < trials:
        remaining = None if time_limit is None else time_limit - (clock() - began)
        if remaining is not None and remaining <= 0:
            out_of_time = True
            break
        number = len(ended(study, metric))
        study.sampler = optuna.samplers.TPESampler(seed=random.derive(seed, number) % 2**32, n_startup_trials=STARTUP)
        trial = study.ask()
        values = {name: dimension.suggest(trial, name) for name, dimension in SPACE.items()}
        reporter = _Reporter(trial, metric)
        try:
            recipe = recipe_of(values, trial=True)
            run = fit(
                recipe, table, observers=[reporter], quiet=True, seed=seed, time_limit=remaining, **source, **cheap
            )
            signal, out_of_time = run.signal, run.end.status == "stopped" and not run.failed
        except _Pruned:
            study.tell(trial, state=states.PRUNED)
        else:
            if signal is not None or out_of_time:
                study.tell(trial, state=states.FAIL)
                study.enqueue_trial(values)
                break
            finite = math.isfinite(reporter.best)
            trial.set_user_attr("ended", True)  # a trial that diverged counts, but has no value
            study.tell(trial, reporter.best if finite else None, state=states.COMPLETE if finite else states.FAIL)
        found = ended(study, metric)
        on_trial(found[-1], best_of(found))
    return Search(trials=tuple(ended(study, metric)), signal=signal, out_of_time=out_of_time)


def defaults() -> dict[str, Any]:
    """Return the recipe as a point of the search space."""
    return {name: dimension.default for name, dimension in SPACE.items()}


def ended(study: Any, metric: str) -> list[Trial]:
    """Return the complete and the pruned trials of a study, numbered from 1."""
    found: list[Trial] = []
    for trial in study.trials:
        state = trial.state.name
        if state != "PRUNED" and not (trial.state.is_finished() and trial.user_attrs.get("ended")):
            continue
        values = [value for value in trial.intermediate_values.values() if math.isfinite(value)]
        value = trial.value if state == "COMPLETE" else _best(metric)(values, default=None)
        seconds = trial.duration.total_seconds() if trial.duration is not None else 0.0
        found.append(
            Trial(
                number=len(found) + 1,
                values=dict(trial.params),
                value=value,
                pruned=state == "PRUNED",
                seconds=seconds,
                metric=metric,
            )
        )
    return found


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """Return the best of the trials that were not pruned; of equal trials, the first."""
    complete_trials = [trial for trial in trials if trial.value is not None and not trial.pruned]
    return (
        _best(complete_trials[0].metric)(complete_trials, key=lambda trial: cast(float, trial.value))
        if complete_trials
        else None
    )


def _best(metric: str) -> Any:
    """Return `max` or `min`, whichever is better for a metric."""
    return max if metrics.larger(metric) else min


class _Pruned(Exception):
    """Raised by an observer to end a trial early."""


class _Reporter:
    """An observer that reports the best value to the study after each epoch."""

    def __init__(self, trial: Any, metric: str) -> None:
        self.trial, self.metric, self.larger = trial, metric, metrics.larger(metric)
        self.best = -math.inf if self.larger else math.inf

    def notice(self, event: Event) -> None:
        if not isinstance(event, EpochEnd):
            return
        value = value_of(event, self.metric)
        assert value is not None, "every trial holds out a fifth of the rows"
        if math.isfinite(value) and better(value, self.best, larger=self.larger):
            self.best = value
        self.trial.report(self.best, event.epoch)
        if self.trial.should_prune():
            raise _Pruned


def _check(table: Table, *, source: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[float | None, str]:
    """Raise the errors that a trial or the final training would raise. Return the time limit (None if it is infinite)
    and the metric that selects the best trial."""
    if table.image is not None:
        raise DataError(f"{table.name}: mlp tune searches over recipes for tables, got images: use mlp train")
    first, given = recipe_of(defaults(), trial=True), Config.from_dict(options, where="tune")
    config = replace(Config.from_dict({**options_for(first, table), **options}, where="tune"), ensemble=1, init="auto")
    prepared = make_training_data(table, DataOptions(**source), config)
    setup = Setup.make(complete(first, prepared, config, options.keys())[0], prepared, config)
    setup.engine.close()
    return given.time_limit, setup.metric


def _save_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Save the settings of a new search, or check that those of an earlier search are equal."""
    path = folder / SETTINGS
    atomic_files.refuse_links([path, folder / STUDY])
    settings = json.loads(json.dumps(settings))
    if folder.exists() and not folder.is_dir():
        raise OptionError(f"{option_name('run')} must be a folder, got the file {folder}: use another name")
    if path.exists():
        try:
            earlier, current = _flat(json.loads(atomic_files.read(path, limit=1 << 24, root=folder))), _flat(settings)
        except (ValueError, LookupError, TypeError):
            raise OptionError(f"{path} is not a settings file of a search: use another folder") from None
        for name in {**earlier, **current}:
            if earlier.get(name) != current.get(name):
                setting = name if name in ("rows", "columns") else option_name(name)
                raise OptionError(
                    f"{folder} contains a search with {setting} {_words(earlier.get(name))}, "
                    f"got {_words(current.get(name))}: use another folder, or the same {setting}"
                )
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        atomic_files.write(path, json.dumps(settings, indent=1).encode())
    except OSError as error:
        raise OptionError(f"cannot write {folder}: {error.strerror or error}: use another folder") from None


def _study(optuna: Any, path: Path, metric: str) -> Any:
    """Open or create the study of a search. Links and pipes are refused, because Optuna appends to the file."""
    with atomic_files.reported("open", path):
        os.close(atomic_files.open_in_place(path))
    try:
        return optuna.create_study(
            study_name="tune",
            storage=optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path))),
            direction="maximize" if metrics.larger(metric) else "minimize",
            pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP, n_warmup_steps=FEWEST_TRIAL_EPOCHS),
            load_if_exists=True,
        )
    except (ValueError, LookupError, TypeError, AttributeError, AssertionError):
        raise OptionError(f"{path} is not a trials file of a search: use another folder") from None


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings as one dictionary. Old searches have neither a metric (it was the loss) nor categories."""
    about = {name: settings[name] for name in ("seed", "rows", "columns")}
    source = {"categorical": [], **settings["source"]}
    return {**source, **settings["options"], **about, "metric": settings.get("metric", "loss")}


def _words(value: Any) -> str:
    """Describe the value of a setting in a message."""
    if isinstance(value, list):
        names = cast("list[Any]", value)
        return ", ".join(map(str, names[:NAMED])) + (f", … ({len(names):,})" if len(names) > NAMED else "")
    return "none" if value is None else str(value)


def _optuna() -> Any:
    """Import Optuna, without its own messages."""
    with needed_by("mlp tune"):
        import optuna
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
