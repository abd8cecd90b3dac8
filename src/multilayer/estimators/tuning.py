"""A search over what matters most in the recipe, with Optuna: for those who want more than the defaults.

    dimensions   width and depth of the network, dropout, learning rate, weight decay, embedding of numbers
    a trial      one network, a quarter of the epochs, judged by its best loss, or metric, on a fifth of the rows
    pruning      a trial whose best so far is worse than the median of the others' at that epoch is cut short
    first        the recipe as it is, so that the search never ends worse than where it began, on those rows

Everything is checked before anything is written. The study is a journal in the folder: a search that is killed goes on
where it was, and a trial that was cut off, by a signal or because the time was up, is run again. What is proposed next
depends on the seed, the trial's number and the trials before it alone.
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
from ..training.inputs import with_config
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
"""Trials before any is pruned, and before proposals look at those that were made."""
STUDY, SETTINGS = "study.log", "tune.json"
NAMED = 5
"""Columns that a message names."""
TRIALS_SHARE = 0.5
"""Of a time limit that trials may take where the best is to be trained within it too."""


@dataclass(frozen=True, kw_only=True)
class Dimension:
    """A range of numbers, or a choice among names. `default` is the recipe's own."""

    low: float = 0.0
    high: float = 0.0
    default: Any
    log: bool = False
    whole: bool = False
    choices: tuple[str, ...] = ()

    def suggest(self, trial: Any, name: str) -> Any:
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
    """Return one point of the space as a recipe; `trial` makes it cheap enough to try many."""
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
    """One that has ended. `value` is its best of `metric` on the rows held out; None where it failed."""

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
    """`signal` is what ended it early, if a signal did; `out_of_time` whether the time limit did."""

    trials: tuple[Trial, ...]
    signal: int | None = None
    out_of_time: bool = False

    @property
    def best(self) -> Trial | None:
        """None where the time was up before any trial came to its end: the recipe as it is will have to do."""
        found = best_of(self.trials)
        if found is None and not self.out_of_time:
            lacks = {trial.metric for trial in self.trials if trial.metric in metrics.MAY_LACK}
            said = "".join(f" or have no {metric} on the rows held out" for metric in lacks)
            raise OptionError(
                f"a trial that came to its end is needed, got {len(self.trials)} that diverged{said}: allow more trials"
            )
        return found

    @property
    def values(self) -> dict[str, Any]:
        """The point to train in full."""
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
    begins: Callable[[Sequence[Trial]], None] = lambda trials: None,
    told: Callable[[Trial, Trial | None], None] = lambda trial, best: None,
    clock: Callable[[], float] = time.monotonic,
) -> Search:
    """Runs trials until there are so many or the time is up: each gets what is left of it. `begins` is called once all
    is checked, with the trials that are there already; `told` hears of each trial, and of the best so far."""
    began, signal, out_of_time = clock(), None, False
    optuna = _optuna()
    time_limit, metric = _check(table, source=source, options={**options, "seed": seed, "time_limit": time_limit})
    about = {"seed": seed, "rows": len(table), "columns": table.names, "metric": metric}
    _settle(folder, {"source": source, "options": options, **about})
    study = _study(optuna, folder / STUDY, metric)
    states = optuna.trial.TrialState
    if not study.trials:
        study.enqueue_trial(defaults())
    for cut in study.get_trials(states=(states.RUNNING,)):  # killed in the middle
        study.tell(cut.number, state=states.FAIL)
        study.enqueue_trial(cut.params)
    cheap = {name: value for name, value in options.items() if name != "ensemble"}
    begins(ended(study, metric))
    while len(ended(study, metric)) < trials:
        left = None if time_limit is None else time_limit - (clock() - began)
        if left is not None and left <= 0:
            out_of_time = True
            break
        number = len(ended(study, metric))
        study.sampler = optuna.samplers.TPESampler(seed=random.derive(seed, number) % 2**32, n_startup_trials=STARTUP)
        trial = study.ask()
        values = {name: dimension.suggest(trial, name) for name, dimension in SPACE.items()}
        watch = _Watch(trial, metric)
        try:
            recipe = recipe_of(values, trial=True)
            run = fit(recipe, table, observers=[watch], quiet=True, seed=seed, time_limit=left, **source, **cheap)
            signal, out_of_time = run.signal, run.end.status == "stopped" and not run.failed
        except _Pruned:
            study.tell(trial, state=states.PRUNED)
        else:
            if signal is not None or out_of_time:
                study.tell(trial, state=states.FAIL)
                study.enqueue_trial(values)
                break
            finite = math.isfinite(watch.best)
            trial.set_user_attr("ended", True)  # a trial that diverged has failed, and counts
            study.tell(trial, watch.best if finite else None, state=states.COMPLETE if finite else states.FAIL)
        found = ended(study, metric)
        told(found[-1], best_of(found))
    return Search(trials=tuple(ended(study, metric)), signal=signal, out_of_time=out_of_time)


def defaults() -> dict[str, Any]:
    """The recipe as it is, as a point of the space."""
    return {name: dimension.default for name, dimension in SPACE.items()}


def ended(study: Any, metric: str) -> list[Trial]:
    """The trials of a study that ran to an end of their own, by number from 1."""
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
    """The best by its metric among those that were not cut short; the first of equals."""
    whole = [trial for trial in trials if trial.value is not None and not trial.pruned]
    return _best(whole[0].metric)(whole, key=lambda trial: cast(float, trial.value)) if whole else None


def _best(metric: str) -> Any:
    return max if metrics.larger(metric) else min


class _Pruned(Exception):
    """Ends a trial from inside its run."""


class _Watch:
    """An observer that tells the study of the best so far after each epoch."""

    def __init__(self, trial: Any, metric: str) -> None:
        self.trial, self.metric, self.larger = trial, metric, metrics.larger(metric)
        self.best = -math.inf if self.larger else math.inf

    def notice(self, event: Event) -> None:
        if not isinstance(event, EpochEnd):
            return
        value = value_of(event, self.metric)
        assert value is not None, "a trial holds out a fifth of the rows"
        if math.isfinite(value) and better(value, self.best, larger=self.larger):
            self.best = value
        self.trial.report(self.best, event.epoch)
        if self.trial.should_prune():
            raise _Pruned


def _check(table: Table, *, source: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[float | None, str]:
    """Refuses what a trial or the training in full would refuse; gives the time limit, None where it is infinite, and
    the metric to judge by."""
    if table.image is not None:
        raise DataError(f"{table.name}: the search is over recipes for tables, got pictures: use mlp train")
    first, asked = recipe_of(defaults(), trial=True), Config.from_dict(options, where="tune")
    config = replace(Config.from_dict({**options_for(first, table), **options}, where="tune"), ensemble=1, init="auto")
    prepared = make_training_data(table, with_config(DataOptions(**source), config))
    setup = Setup.make(complete(first, prepared, config, options.keys())[0], prepared, config)
    setup.engine.close()
    return asked.time_limit, setup.metric


def _settle(folder: Path, settings: Mapping[str, Any]) -> None:
    """Keeps what the search is about, or refuses to go on with one that is about something else."""
    path = folder / SETTINGS
    atomic_files.refuse_links([path, folder / STUDY])
    wanted = json.loads(json.dumps(settings))
    if folder.exists() and not folder.is_dir():
        raise OptionError(f"{option_name('run')} must be a folder, got {folder}, which is a file: name another")
    if path.exists():
        try:
            there, here = _flat(json.loads(atomic_files.read(path, limit=1 << 24, root=folder))), _flat(wanted)
        except (ValueError, LookupError, TypeError):
            raise OptionError(
                f"{path} must hold the settings of a search, got something else: name another folder"
            ) from None
        for name in {**there, **here}:
            if there.get(name) != here.get(name):
                said = name if name in ("rows", "columns") else option_name(name)
                raise OptionError(
                    f"{folder} is a search with {said} {_words(there.get(name))}, got {_words(here.get(name))}: "
                    f"name another folder, or the same {said}"
                )
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        atomic_files.write(path, json.dumps(wanted, indent=1).encode())
    except OSError as error:
        raise OptionError(f"cannot write {folder}: {error.strerror or error}: name another folder") from None


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
        raise OptionError(f"{path} must hold the trials of a search, got something else: name another folder") from None


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """One name for each setting. Searches that do not say by what they judge are old ones, which did by the loss, and
    had no word on categories."""
    about = {name: settings[name] for name in ("seed", "rows", "columns")}
    source = {"categorical": [], **settings["source"]}
    return {**source, **settings["options"], **about, "metric": settings.get("metric", "loss")}


def _words(value: Any) -> str:
    if isinstance(value, list):
        names = cast("list[Any]", value)
        return ", ".join(map(str, names[:NAMED])) + (f", … ({len(names):,})" if len(names) > NAMED else "")
    return "none" if value is None else str(value)


def _optuna() -> Any:
    with needed_by("mlp tune"):
        import optuna
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
