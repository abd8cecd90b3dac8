"""The state of a run for a display: curves, best epoch, remaining time and speed."""

from __future__ import annotations

import math

import pytest

from multilayer.core.formatting import clock
from multilayer.runs.events import Checkpoint, Resume, RolledBack
from multilayer.training.progress import ProgressDisplay as Bar
from multilayer.training.run_state import BLOCKS, MOST_POINTS, RunState, columns, limits, sparkline, thinned
from support.terminals import START, Clock, epoch, plain, step


def test_columns_are_means_or_the_next_value() -> None:
    assert columns([], steps=10, width=5) == []
    assert columns([(1, 1.0), (2, 3.0)], steps=4, width=2) == [2.0]
    assert columns([(4, 7.0)], steps=4, width=4) == [7.0, 7.0, 7.0, 7.0]
    assert columns([(4, 7.0)], steps=4, width=4, origin=2) == [None, None, 7.0, 7.0]
    assert columns([(1, 1.0)], steps=1, width=1) == [1.0]
    assert columns([(1, 1.0), (9, 2.0)], steps=3, width=2) == [1.0, 2.0]
    assert columns([(1, 1.0)], steps=10, width=0) == []


def test_columns_never_exceed_the_bar() -> None:
    for width in (1, 7, 28):
        for at in range(1, 101):
            bar = math.ceil(at * width / 100)
            assert len(columns([(at, 1.0)], steps=100, width=width)) == bar


def test_sparklines() -> None:
    assert sparkline(range(8), within=(0, 7)) == BLOCKS
    assert sparkline([1.0, 1.0], within=(1.0, 1.0)) == "▁▁"
    assert sparkline([math.nan, 1.0, math.inf], within=limits([math.nan, 1.0, math.inf])) == "×▁×"
    assert sparkline([math.nan], within=limits([math.nan])) == "×"
    assert sparkline([], within=None) == ""
    assert sparkline([-1.0, 1.0], within=(-1.0, 1.0), log=True) == "▁█"
    assert sparkline([1e-8, 1e-4, 1.0], within=(1e-8, 1.0), log=True) == "▁▅█"
    assert sparkline([0.0, 5.0, math.nan], within=(1.0, 2.0), blocks="_#") == "_#x"


def test_points_are_thinned_so_that_a_long_run_draws_as_fast_as_a_short_one() -> None:
    state = RunState(steps=100_000, epochs=1, steps_per_epoch=100_000)
    for i in range(1, 3 * MOST_POINTS):
        state.take(step(i, loss=float(i)))
    assert len(state.train) <= MOST_POINTS + 1
    assert state.train[-1] == (3 * MOST_POINTS - 1, 3 * MOST_POINTS - 1)
    assert state.train == sorted(state.train)
    assert thinned([(1, 1.0)]) == [(1, 1.0)]


def test_time_left_and_speed(clock: Clock) -> None:
    state = RunState(steps=50, epochs=5, steps_per_epoch=10)
    assert (state.left, state.speed, state.epoch) == (None, None, 1)
    state.take(START)
    clock.now += 2
    state.take(step(5))
    assert state.left == pytest.approx(18)
    assert state.speed == pytest.approx(25)  # 5 steps of 10 rows in 2 s
    state.take(epoch(0))
    assert state.speed == 12345.6
    assert (state.epoch, state.share) == (2, 0.2)


def test_steps_that_were_rolled_back_count_as_time_spent(clock: Clock) -> None:
    state = RunState(steps=40, epochs=4, steps_per_epoch=10)
    for event in (step(10), step(15), RolledBack(step=10, to_step=10, rate_factor=0.1, reason="so")):
        state.take(event)
    clock.now += 15
    assert state.left == pytest.approx(30)
    assert state.train == [(10, 0.5)]


def test_the_checkpoint_of_an_earlier_best_epoch_does_not_move_the_run_back() -> None:
    state = RunState(steps=40, epochs=4, steps_per_epoch=10)
    for event in (epoch(0), epoch(1), Checkpoint(step=10, kind="best", path="", sha256=""), epoch(2)):
        state.take(event)
    assert (state.step, state.taken) == (30, 30)


def test_a_rollback_restores_the_best_epoch() -> None:
    state = RunState(steps=50, epochs=5, steps_per_epoch=10, metric="accuracy", larger=True)
    for event in (epoch(0, accuracy=0.7), epoch(1, accuracy=0.9)):
        state.take(event)
    assert state.best == (0.9, 2)
    state.take(RolledBack(step=10, to_step=10, rate_factor=0.1, reason="so"))
    assert state.best == (0.7, 1)
    state.take(epoch(1, accuracy=math.nan))
    assert state.best == (0.7, 1)


def test_without_validation_the_training_loss_decides() -> None:
    state = RunState(steps=20, epochs=2, steps_per_epoch=10)
    for event in (epoch(0, loss=0.5, validation=None), epoch(1, loss=0.7, validation=None)):
        state.take(event)
    assert state.best == (0.5, 1)


def test_a_resumed_run_counts_its_own_time(clock: Clock) -> None:
    console, stream = plain()
    bar = Bar(50, 5, 10, console=console, past=[START, epoch(0), epoch(1)])
    assert bar.state.best == (0.6, 1)
    clock.now += 1000
    bar.notice(Resume(step=20, checkpoint="c/20", kept=3, notes=[]))
    clock.now += 1
    bar.notice(epoch(2))
    assert bar.state.left == pytest.approx(2)
    assert [at for at, _ in bar.state.validation] == [10, 20, 30]
    assert stream.getvalue().startswith("step 20 resume: resumes from c/20\n")


def test_durations() -> None:
    assert [clock(s) for s in (0, 0.6, 59.6, 3600)] == ["0:00", "0:01", "1:00", "1:00:00"]
