"""Search: trials, pruning, time limits, continued searches, and the plot."""

from __future__ import annotations

import json
import math
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multilayer.data import read
from multilayer.drawing.plots import Point, search_figure
from multilayer.errors import DataError, OptionError
from multilayer.estimators import tuning
from multilayer.estimators.tuning import SPACE, Search, Trial, best_of, recipe_of, search
from multilayer.runs.events import EpochEnd
from multilayer.training.fit import fit

OPTIONS: dict[str, Any] = {"epochs": 24, "threads": 1}
DEFAULT = {name: dimension.default for name, dimension in SPACE.items()}

pytestmark = pytest.mark.usefixtures("narrow")


def table(rows: int = 120) -> Any:
    x = np.random.default_rng(0).normal(size=(rows, 3))
    return read((x, np.sin(2 * x[:, 0]) + x[:, 1]))


def run(folder: Path, trials: int, **how: Any) -> Search:
    return search(table(), folder, source={}, options=OPTIONS, trials=trials, **how)


def test_trials_differ_and_the_first_is_the_recipe(folder: Path) -> None:
    reported: list[tuple[Trial, Trial | None]] = []
    found = run(folder, 7, on_trial=lambda trial, best: reported.append((trial, best)))
    assert [trial.number for trial in found.trials] == list(range(1, 8))
    assert found.trials[0].values == {**DEFAULT, "width": 16}
    assert len({json.dumps(trial.values) for trial in found.trials}) == 7
    for trial in found.trials:
        assert set(trial.values) == set(SPACE)
        assert 8 <= trial.values["width"] <= 32
        assert trial.value is not None
        assert math.isfinite(trial.value)
    assert found.best.value == min(t.value for t in found.trials if t.value is not None and not t.pruned)
    assert [trial.number for trial, _ in reported] == list(range(1, 8))
    assert reported[-1][1] == found.best


def test_a_search_is_continued(folder: Path) -> None:
    whole = run(folder / "whole", 6)
    run(folder / "cut", 2)
    again = run(folder / "cut", 6)
    assert [(t.values, t.value) for t in again.trials] == [(t.values, t.value) for t in whole.trials]
    with pytest.raises(OptionError, match="contains a search with seed 0, got 1: use another folder, or the same seed"):
        run(folder / "cut", 6, seed=1)


def test_an_interrupted_trial_runs_again(folder: Path) -> None:
    whole = run(folder / "whole", 3)

    # An observer of the run simulates Ctrl-C in the second trial.
    pressed = Press(at=2)
    original = tuning._Reporter.notice
    try:
        tuning._Reporter.notice = pressed.wrap(original)  # type: ignore[method-assign]
        cut = run(folder / "cut", 3)
    finally:
        tuning._Reporter.notice = original  # type: ignore[method-assign]
    assert cut.signal == signal.SIGINT
    assert len(cut.trials) == 1
    again = run(folder / "cut", 3)
    assert again.signal is None
    assert [(t.values, t.value) for t in again.trials] == [(t.values, t.value) for t in whole.trials]


class Press:
    """Simulates Ctrl-C in the first epoch of one trial."""

    def __init__(self, at: int) -> None:
        self.at, self.trials = at, 0

    def wrap(self, notice: Any) -> Any:
        def watched(watch: Any, event: Any) -> None:
            if isinstance(event, EpochEnd) and event.epoch == 1:
                self.trials += 1
                if self.trials == self.at:
                    os.kill(os.getpid(), signal.SIGINT)
            notice(watch, event)

        return watched


def test_bad_trials_are_pruned(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the sixth trial on, trials with a much higher loss stop at the first epoch at which pruning is allowed."""
    original = tuning._Reporter.notice
    seen: dict[int, int] = {}

    def worse(watch: Any, event: Any) -> None:
        if isinstance(event, EpochEnd):
            number = watch.trial.number
            seen[number] = event.epoch
            event = replace(event, validation_loss=1.0 if number < 5 else 50.0)
        original(watch, event)

    monkeypatch.setattr(tuning._Reporter, "notice", worse)
    found = run(folder, 7)
    assert [trial.pruned for trial in found.trials] == [False] * 5 + [True] * 2
    assert seen[0] == 6  # a quarter of 24 epochs
    assert seen[5] < 6
    assert found.best.number == 1


class Clock:
    """A clock that advances by `trial` seconds with every trial."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, trial: float) -> None:
        self.now, self.limits = 0.0, list[float | None]()
        original = tuning.fit

        def fitted(*args: Any, **how: Any) -> Any:
            self.limits.append(how["time_limit"])
            done = original(*args, **how)
            self.now += trial
            return done

        monkeypatch.setattr(tuning, "fit", fitted)

    def __call__(self) -> float:
        return self.now


def test_time_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of a trial is the remaining time. No trial starts after the limit."""
    clock = Clock(monkeypatch, trial=400.0)
    found = run(folder, 1000, time_limit=1000.0, clock=clock)
    assert len(found.trials) == 3
    assert clock.limits == [1000.0, 600.0, 200.0]
    assert found.out_of_time
    clock.limits.clear()
    without = run(folder, 4, clock=clock)
    assert clock.limits == [None]
    assert not without.out_of_time


def test_a_trial_interrupted_by_the_time_limit_runs_again(folder: Path) -> None:
    """An interrupted trial has no value, so it does not count."""
    whole = run(folder / "whole", 2)
    with pytest.warns(UserWarning, match="was enough for only 1 step"):
        cut = run(folder / "cut", 2, time_limit=1e-9, clock=lambda: 0.0)
    assert (cut.trials, cut.out_of_time, cut.signal) == ((), True, None)
    again = run(folder / "cut", 2)
    assert [(t.values, t.value) for t in again.trials] == [(t.values, t.value) for t in whole.trials]


@pytest.mark.parametrize("bad", [0, -1.0, math.nan])
def test_invalid_limits(bad: float, folder: Path) -> None:
    with pytest.raises(OptionError, match=f"time_limit must be positive, got {bad}"):
        run(folder / "new", 1, time_limit=bad)
    assert not (folder / "new").exists()
    assert len(run(folder, 1, time_limit=math.inf).trials) == 1


@pytest.mark.parametrize(
    ("options", "source", "match"),
    [
        ({"ensemble": 0}, {}, "ensemble must be positive, got 0"),
        ({"epochs": 0}, {}, "epochs must be positive, got 0"),
        ({"threads": 0}, {}, "threads must be positive, got 0"),
        ({"loss": "mze"}, {}, "unknown loss 'mze'"),
        ({"loss": "cross_entropy"}, {}, "cross_entropy"),
        ({}, {"group": "nobody"}, "nobody"),
        ({}, {"sample_weight": "nothing"}, "nothing"),
    ],
)
def test_everything_is_checked_before_anything_is_written(
    options: dict[str, Any], source: dict[str, Any], match: str, folder: Path
) -> None:
    begun: list[bool] = []
    with pytest.raises((DataError, OptionError), match=match):
        search(table(), folder / "new", source=source, options=options, trials=1, on_begin=lambda _: begun.append(True))
    assert not (folder / "new").exists()
    assert begun == []


def test_folders_without_a_search_are_refused(folder: Path) -> None:
    (folder / "file").write_text("a,b")
    with pytest.raises(OptionError, match=r"run must be a folder, got the file .*file: use another name"):
        run(folder / "file", 1)
    with pytest.raises(OptionError, match=r"cannot write .*: use another folder"):
        run(folder / "file" / "below", 1)
    (folder / "odd").mkdir()
    (folder / "odd" / tuning.SETTINGS).write_text("{}")
    with pytest.raises(OptionError, match=r"tune\.json is not a settings file of a search: use another folder"):
        run(folder / "odd", 1)


def test_differences_of_searches_are_reported(folder: Path) -> None:
    run(folder, 1)
    source: dict[str, Any] = {}
    with pytest.raises(
        OptionError, match="contains a search with epochs 24, got none: use another folder, or the same ep"
    ):
        search(table(), folder, source=source, options={"threads": 1}, trials=1)
    with pytest.raises(
        OptionError, match="contains a search with rows 120, got 90: use another folder, or the same rows"
    ):
        search(table(90), folder, source=source, options=OPTIONS, trials=1)
    wide = read((np.random.default_rng(0).normal(size=(120, 9)), np.arange(120.0)))
    with pytest.raises(OptionError, match=r"contains a search with columns .*, got .*, … \(10\): use another"):
        search(wide, folder, source=source, options=OPTIONS, trials=1)


def test_no_complete_trial() -> None:
    bad = Trial(number=1, values=DEFAULT, value=None, pruned=False, seconds=1.0)
    assert best_of([bad]) is None
    with pytest.raises(OptionError, match="1 of 1 trials diverged: allow more trials"):
        _ = Search(trials=(bad,)).best
    late = Search(trials=(), out_of_time=True)
    assert late.best is None
    assert late.values == {**DEFAULT, "width": 16}


def test_a_candidate_is_a_recipe(folder: Path) -> None:
    values = {**DEFAULT, "width": 24, "depth": 2, "dropout": 0.0, "rate": 0.5, "weight_decay": 0.1, "embedding": "plr"}
    done = fit(recipe_of(values), table(), epochs=2, ensemble=2, quiet=True)
    assert done.model is not None
    text = str(done.model.spec)
    assert "columns(plr)" in text
    assert "24" in text
    config = done.events[0]["config"]
    assert (config["weight_decay"], config["learning_rate"], config["ensemble"]) == (0.1, 0.1, 2)
    pictures = np.zeros((60, 4, 4), dtype=np.uint8)
    with pytest.raises(DataError, match="recipes for tables, got images: use mlp train"):
        search(read((pictures, np.arange(60) % 2)), folder, source={}, options=OPTIONS, trials=1)
    assert not list(folder.iterdir())


def test_figure() -> None:
    points = [
        Point(number=i + 1, values={"width": 16 * (i + 1), "embedding": "ab"[i % 2]}, value=1 / (i + 1), pruned=i == 2)
        for i in range(5)
    ]
    figure = search_figure(points, {"width": True, "embedding": False}, title="Search")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["trial", "width", "embedding"]
    assert figure.axes[1].get_xscale() == "log"
    assert [label.get_text() for label in figure.axes[2].get_xticklabels()] == ["a", "b"]
    assert "the best is trial 5" in "".join(text.get_text() for text in figure.texts)


def test_trials_are_pruned_by_the_metric(folder: Path, looks: dict[int, tuple[float, float]]) -> None:
    """The sixth trial has the lowest accuracy and is pruned, although its loss is the lowest."""
    options = {**OPTIONS, "metric": "accuracy"}
    first = search(labels(), folder, source={}, options=options, trials=5)
    assert not any(trial.pruned for trial in first.trials)
    looks[2] = (0.01, 0.4)
    found = search(labels(), folder, source={}, options=options, trials=6)
    assert (found.trials[5].pruned, found.trials[5].value) == (True, 0.4)
    assert found.best is not None
    assert found.best.number == 2


def labels() -> Any:
    x = np.random.default_rng(0).normal(size=(120, 3))
    return read((x, np.where(x[:, 0] > 0, "yes", "no")))


def test_a_search_by_another_metric_is_not_continued(folder: Path) -> None:
    options = {**OPTIONS, "metric": "accuracy"}
    search(labels(), folder, source={}, options=OPTIONS, trials=1)
    with pytest.raises(
        OptionError, match="contains a search with metric loss, got accuracy: use another folder, or the s"
    ):
        search(labels(), folder, source={}, options=options, trials=1)
    assert len(search(labels(), folder, source={}, options={**OPTIONS, "metric": "loss"}, trials=1).trials) == 1

    # Old searches used the loss even if a metric was given, and did not store the metric.
    search(labels(), folder / "old", source={}, options=options, trials=1)
    path = folder / "old" / tuning.SETTINGS
    settings = json.loads(path.read_text())
    del settings["metric"]
    path.write_text(json.dumps(settings))
    with pytest.raises(OptionError, match="contains a search with metric loss, got accuracy"):
        search(labels(), folder / "old", source={}, options=options, trials=1)


def test_a_metric_that_is_undefined_on_the_held_out_rows() -> None:
    bad = Trial(number=1, values=DEFAULT, value=None, pruned=False, seconds=1.0, metric="auc")
    with pytest.raises(
        OptionError, match="1 of 1 trials diverged or had no auc on the held-out rows: allow more trials"
    ):
        _ = Search(trials=(bad,)).best


def test_figure_of_a_metric_to_maximize() -> None:
    points = [Point(number=i + 1, values={}, value=v) for i, v in enumerate((0.6, 0.9, 0.8, -40.0))]
    figure = search_figure(points, {}, title="Search", metric="r2", larger=True)
    assert "the best is trial 2, with a validation r2 of 0.9" in "".join(text.get_text() for text in figure.texts)
    axes = figure.axes[0]
    assert axes.get_ylabel() == "validation r2"
    assert axes.lines[0].get_ydata().tolist() == [0.6, 0.9, 0.9, 0.9]
    assert -40 < axes.get_ylim()[0] < 0.6 < 0.9 < axes.get_ylim()[1] < 1
