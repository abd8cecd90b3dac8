"""Planning for a time limit: which options are reduced and by how much, and the warning if the limit is too short."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import multilayer as ml
from multilayer.data import read
from multilayer.errors import OptionError
from multilayer.runs.config import Config
from multilayer.runs.events import EpochEnd
from multilayer.training import time_budget
from multilayer.training.fit import fit, resume
from multilayer.training.plan import chosen_batch
from multilayer.training.recipe import Recipe, complete, options_for
from multilayer.training.setup import Setup, make_engine
from multilayer.training.time_budget import SHARE, Costs, Workload, measured, within_limit
from support.training_rows import prepare

X = np.random.default_rng(0).normal(size=(640, 3))
Y = X[:, 0]


def workload(*, start: float = 0.0, step: float = 0.01, evaluation: float = 0.0, rows: int = 512) -> Workload:
    """Return a workload with two steps of 10 ms per epoch, and two threads."""
    return Workload(costs=Costs(start, step, evaluation), rows=rows, batch=256, threads=2, parted=True)


def planned(
    seconds: float,
    costs: Costs,
    monkeypatch: pytest.MonkeyPatch,
    *,
    elapsed: float = 0.0,
    preparing: float = 0.0,
    fewer: bool = False,
    **how: Any,
) -> Config:
    """Return the options of the recipe for a time limit of which `elapsed` seconds have passed."""
    monkeypatch.setattr(time_budget, "measured", lambda *_, **__: costs)
    monkeypatch.setattr(time_budget, "time", SimpleNamespace(monotonic=lambda: elapsed))
    recipe = Recipe(hidden=(16,))
    options = {**options_for(recipe, read((X, Y))), "threads": 2, "time_limit": seconds, **how}
    ready, config = prepare((X, Y), ensemble=options["ensemble"]), Config(**options)
    spec, config, _ = complete(recipe, ready, config, frozenset())
    return within_limit(spec, ready, config, began=0.0, preparing=preparing, fewer=fewer).config


# The plan


def test_enough_time_changes_nothing() -> None:
    plan = workload().planned(1e6, members=4, epochs=256, fewer=True)
    assert (plan.members, plan.epochs, plan.epoch_rows) == (4, 256, None)


def test_epochs_become_fewer_first() -> None:
    """An epoch has two steps of 10 ms. With two threads, 3 s are enough for 75 epochs of each of four members."""
    plan = workload().planned(3.0, members=4, epochs=256, fewer=True)
    assert (plan.members, plan.epochs, plan.epoch_rows) == (4, 75, None)


def test_members_become_fewer_next() -> None:
    """A fifth of that time is used for 30 epochs of one member, not for 15 of each of four."""
    plan = workload().planned(0.6, members=4, epochs=256, fewer=True)
    assert (plan.members, plan.epochs) == (1, 30)
    kept = workload().planned(0.6, members=4, epochs=256, fewer=False)
    assert (kept.members, kept.epochs) == (4, 15)  # a given number of members is kept
    two = workload().planned(1.1, members=4, epochs=256, fewer=True)
    assert (two.members, two.epochs) == (2, 55)  # with two threads, three take as long as four


def test_starting_members_and_evaluations_count() -> None:
    """2.2 s are enough for four starts, six evaluations of 100 ms, and epochs of 40 ms with an evaluation each."""
    plan = workload(start=0.1, evaluation=0.1).planned(2.2, members=4, epochs=256, fewer=False)
    assert plan.epochs == int((2.2 - 0.4 - 0.6) / (0.04 + 0.1)) == 8
    assert plan.least == pytest.approx(0.4 + 0.6 + 0.02 + 0.1)
    assert plan.enough == pytest.approx(0.4 + 0.6 + 0.04 + 0.1)


def test_preparing_again_counts() -> None:
    """Fewer members hold out other rows. Preparing them takes 0.19 s of the 0.6 s."""
    plan = workload().planned(0.6, members=4, epochs=256, fewer=True, again=0.19)
    assert (plan.members, plan.epochs) == (1, 20)


@pytest.mark.parametrize(("seconds", "epochs", "rows"), [(19.0, 2, 190), (5.0, 1, 100), (0.01, 1, 1), (39.9, 4, 199)])
def test_few_epochs_take_a_share_of_the_rows(seconds: float, epochs: int, rows: int) -> None:
    """An epoch of 200 steps takes 10 s. All of the time is used, and the schedule is complete."""
    plan = workload(step=0.05, rows=200 * 256).planned(seconds, members=1, epochs=32, fewer=False)
    assert (plan.members, plan.epochs) == (1, epochs)
    assert plan.epoch_rows == rows * 256


def test_evaluations_count_if_epochs_use_a_part_of_the_rows() -> None:
    """14 s are enough for two final evaluations of 1 s, and two epochs with 1 s of evaluation and 5 s of training."""
    plan = workload(step=0.05, evaluation=1.0, rows=200 * 256).planned(14.0, members=1, epochs=32, fewer=False)
    assert (plan.epochs, plan.epoch_rows) == (2, 100 * 256)


@pytest.mark.parametrize(("elapsed", "epochs"), [(0.0, 42), (0.75, 26)])
def test_elapsed_time_is_not_planned(elapsed: float, epochs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch of four members takes 40 ms."""
    plan = planned(2.0, Costs(0.0, 0.01, 0.0), monkeypatch, elapsed=elapsed)
    assert plan.epochs == int(SHARE * (2.0 - elapsed) / 0.04) == epochs


def test_a_limit_that_is_too_short_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "^time_limit must be enough to prepare, start and evaluate 50 members, got 0.5 s: "
    with pytest.warns(UserWarning, match=text + ".*for an epoch, or set fewer members$"):
        plan = planned(0.5, Costs(0.25, 0.01, 0.05), monkeypatch, elapsed=0.3, ensemble=50)
    assert (plan.ensemble, plan.epochs, plan.epoch_rows) == (50, 1, 256)
    planned(0.5, Costs(0.01, 0.01, 0.0), monkeypatch, elapsed=0.06, preparing=0.02, fewer=True)


def test_the_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_budget, "measured", lambda *_, **__: Costs(5.0, 0.1, 0.1))
    too_short = r"prepare, start and evaluate 1 member, got 2 s: .* more: allow \d\.\d s for an epoch$"
    with pytest.warns(UserWarning, match=too_short), pytest.warns(UserWarning, match="was enough for only 1 step"):
        ml.MLPRegressor(time_limit=2.0, hidden=(4,), ensemble=1, random_state=0).fit(X[:60], Y[:60])


# Measurements


def test_steps_starts_and_evaluations_are_timed() -> None:
    ready = prepare((X, Y))
    spec, config, _ = complete(Recipe(hidden=(16,)), ready, Config(init="data"), frozenset())
    assert chosen_batch(ready, config) == 256
    costs = measured(spec, ready, config, most=0.1)
    assert all(cost > 0 for cost in costs)
    assert measured(spec, ready, config, most=0.1, start=7.0).start == 7.0


def test_the_engine_that_trains_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    original = Setup.make

    def make(*args: Any, **how: Any) -> Setup:
        setup = original(*args, **how)
        made.append(setup.engine.name)
        return setup

    monkeypatch.setattr(Setup, "make", staticmethod(make))
    ml.MLPRegressor(time_limit=60.0, epochs=1, hidden=(4,), ensemble=1, random_state=0).fit(X, Y)
    assert made == ["fused", "fused"]


def test_an_engine_is_chosen_before_it_is_created() -> None:
    with pytest.raises(AssertionError, match="call choose_engine first, got 'auto'"):
        make_engine(ml.Spec.parse("3-1"), prepare((X, Y)), Config())


def test_a_time_limit_needs_no_torch() -> None:
    code = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError(name)
sys.meta_path.insert(0, Absent())
import numpy as np, multilayer as ml
x = np.random.default_rng(0).normal(size=(200, 3))
model = ml.MLPRegressor(epochs=2, ensemble=1, hidden=(8,), time_limit=60).fit(x, x[:, 0])
print(len(model.history_["loss"]), "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "False"]


# In a fit


def test_rows_of_an_epoch() -> None:
    """An epoch of 100 rows is four steps of 32. Each epoch and each member draws different rows."""
    for ensemble in (1, 2):
        done = fit("3-4-1", (X, Y), epochs=3, batch_size=32, epoch_rows=100, ensemble=ensemble, quiet=True)
        assert [event["step"] for event in done.events if event["event"] == "epoch"] == [4, 8, 12]
    ready = prepare((X, Y))
    plan = Setup.make("3-4-1", ready, Config(epoch_rows=100, batch_size=32)).plan
    first, second = plan.order(0).rows, plan.order(1).rows
    assert len(first) == len(np.unique(first)) == 100
    assert set(first) != set(second)
    many = Setup.make("3-4-1", ready, Config(epoch_rows=10_000, batch_size=32)).plan
    assert len(many.order(0).rows) == len(ready.train)


def test_a_run_with_epochs_of_part_of_the_rows_is_resumed(folder: Path) -> None:
    options: dict[str, Any] = {"epochs": 3, "batch_size": 32, "epoch_rows": 70, "quiet": True}
    whole = fit("3-4-1", (X, Y), **options)
    cut = fit("3-4-1", (X, Y), run=folder / "run", observers=[Press()], **options)
    assert cut.signal == signal.SIGINT
    again = resume(folder / "run", data=(X, Y), quiet=True)
    assert [e["step"] for e in again.events if e["event"] == "epoch"] == [3, 6, 9]
    assert whole.model is not None
    assert again.model is not None
    for name, value in whole.model.tensors.items():
        np.testing.assert_array_equal(value, again.model.tensors[name])


class Press:
    """Simulates Ctrl-C at the end of the first epoch."""

    def notice(self, event: Any) -> None:
        if isinstance(event, EpochEnd) and event.epoch == 1:
            os.kill(os.getpid(), signal.SIGINT)


def test_the_clock_begins_when_fit_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """If preparation takes longer than the limit, one step is trained. The history still has its keys."""
    late = SimpleNamespace(monotonic=lambda: time.monotonic() - 100)
    monkeypatch.setattr(sys.modules["multilayer.training.fit"], "time", late)
    few = "time_limit of 50 s was enough for only 1 step, so the model has hardly been trained"
    with pytest.warns(UserWarning, match=few):
        done = fit("3-4-1", (X, Y), epochs=1000, time_limit=50.0, quiet=True)
    assert (done.end.step, done.end.reason) == (1, "the time limit of 50 s was reached")
    with pytest.warns(UserWarning, match=few), pytest.warns(UserWarning, match="must be enough to prepare, start"):
        model = ml.MLPRegressor(time_limit=50.0, ensemble=1, hidden=(4,), random_state=0).fit(X, Y)
    assert model.n_iter_ == 1
    assert {"loss", "validation_loss", "seconds", "r2"} <= set(model.history_)
    assert model.history_["loss"] == []


def test_a_warm_start_continues_with_the_existing_members() -> None:
    """Neither a short time limit nor the default of the recipe changes the number of members."""
    options: dict[str, Any] = {"epochs": 1, "hidden": (4,), "random_state": 0, "warm_start": True}
    model = ml.MLPRegressor(**options).fit(X, Y)
    assert len(model.model_.members) == 4
    with (
        pytest.warns(UserWarning, match="time_limit must be enough to prepare, start and evaluate 4 members"),
        pytest.warns(UserWarning, match="time_limit of 0.001 s was enough for only 1 step"),
    ):
        model.set_params(time_limit=1e-3).fit(X, Y)
    assert len(model.model_.members) == 4
    few = ml.MLPRegressor(**options, ensemble=2).fit(X, Y).set_params(ensemble=None)
    assert len(few.fit(X, Y).model_.members) == 2


@pytest.mark.parametrize("bad", [0, -1.0, float("nan")])
def test_invalid_time_limits(bad: float) -> None:
    with pytest.raises(OptionError, match=f"time_limit must be positive, got {bad}"):
        ml.MLPRegressor(time_limit=bad).fit(X, Y)


def test_an_infinite_limit_has_no_effect() -> None:
    assert Config(time_limit=float("inf")).time_limit is None
    model = ml.MLPRegressor(time_limit=float("inf"), epochs=2, ensemble=1, hidden=(4,), random_state=0).fit(X, Y)
    assert model.config_["time_limit"] is None
    assert model.n_iter_ == 2
