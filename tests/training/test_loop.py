"""The training loop: chunk lengths do not change results, even with spikes, bad values, early stopping and resume."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from multilayer.data.batches import Batch, Data
from multilayer.engines.fused_engine import FusedEngine
from multilayer.engines.numpy_engine import NumpyEngine
from multilayer.engines.torch_engine import TorchEngine
from multilayer.runs.events import (
    Checkpoint,
    EpochEnd,
    Event,
    Measured,
    NonFinite,
    Progress,
    Resume,
    RolledBack,
    Spike,
    same,
)
from multilayer.training import Loop
from multilayer.training import loop as module
from multilayer.training.loop import Outcome, position_of
from multilayer.training.policies import EarlyStopping, Found, Plateau, Spikes, Steps, Stop, TimeLimit
from support.loops import Recorder, cut_to, make_loop, restore, table

ENGINES = [NumpyEngine, TorchEngine, FusedEngine]
both = pytest.mark.parametrize("make", ENGINES, ids=["numpy", "torch", "fused"])


@both
@pytest.mark.parametrize("steps", [1, 7, 1000])
def test_the_length_of_chunks_changes_nothing(make: type, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, log = make_loop(make, table())
    whole.run()
    cut_to(monkeypatch, steps)
    other, other_log = make_loop(make, table())
    other.run()
    assert same(log.events, other_log.events)
    assert whole.engine.state().equals(other.engine.state())
    assert whole.position == other.position


ABSURD = 33


def spiky(epoch: int = 3) -> Data:
    """Give one row an extreme target, from an epoch on."""
    plain = table()

    def augment(batch: Batch, data: Data, rows: np.ndarray, at: int) -> Batch:
        return replace(batch, y=np.where((rows == ABSURD)[:, None] & (at >= epoch), 1e4, batch.y))

    return Data(x=plain.x, y=plain.y, augment=augment)


def spikes() -> list[Any]:
    return [Spikes(most=2, window=16), Plateau(epochs=2)]


@both
def test_a_spike_is_reported_rolled_back_and_finally_stops_the_run(make: type) -> None:
    loop, log = make_loop(make, spiky(), epochs=8, policies=spikes, text="4-8:tanh-1")
    outcome = loop.run()
    found = [event for event in log.events if isinstance(event, Spike)]
    backs = [event for event in log.events if isinstance(event, RolledBack)]
    assert len(found) == 3
    assert all(ABSURD in event.rows for event in found)
    assert all(event.loss > event.limit for event in found)
    assert all(event.layer.startswith("linear") for event in found)
    assert [event.rate_factor for event in backs] == pytest.approx([0.1, 0.01])
    assert [event.to_step for event in backs] == [27, 27]
    assert outcome == Outcome("stopped", "the loss exceeded its limit after 2 rollbacks")


@both
def test_a_rollback_keeps_the_number_of_rollbacks(make: type) -> None:
    loop, _ = make_loop(make, spiky(), epochs=8, policies=spikes, text="4-8:tanh-1")
    loop.run()
    assert loop.policies[0].state()["rollbacks"] == 2
    assert loop.engine.state().rate_factor == pytest.approx(0.01)


@both
@pytest.mark.parametrize("steps", [1, 7, 1000])
def test_the_length_of_chunks_changes_nothing_in_a_run_with_rollbacks(
    make: type, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained() -> tuple[Loop, Recorder, Outcome]:
        loop, log = make_loop(make, spiky(), epochs=6, policies=spikes, text="4-8:tanh-1")
        outcome = loop.run()
        return loop, log, outcome

    whole, log, ended = trained()
    cut_to(monkeypatch, steps)
    other, other_log, ended_too = trained()
    assert any(isinstance(event, RolledBack) for event in log.events)
    assert ended == ended_too
    assert same(log.events, other_log.events)
    assert whole.engine.state().equals(other.engine.state())


@both
def test_stopping_at_a_spike_stops_at_its_step(make: type, monkeypatch: pytest.MonkeyPatch) -> None:
    def trained() -> tuple[Loop, Recorder, Outcome]:
        stop = lambda: [Spikes(on_spike="stop", window=16)]  # noqa: E731
        loop, log = make_loop(make, spiky(), policies=stop, text="4-8:tanh-1")
        return loop, log, loop.run()

    whole, log, outcome = trained()
    assert outcome == Outcome("stopped", "the loss exceeded its limit")
    cut_to(monkeypatch, 1)
    other, other_log, _ = trained()
    assert whole.engine.state().equals(other.engine.state())
    assert same(log.events, other_log.events)


def test_a_healthy_run_near_the_end_of_its_learning_has_no_spikes() -> None:
    loop, log = make_loop(NumpyEngine, table(), epochs=60, rate=0.02, policies=spikes, text="4-32:tanh-1")
    loop.run()
    assert not [event for event in log.events if isinstance(event, Spike)]


def test_one_hard_batch_near_the_end_of_learning_is_no_spike() -> None:
    policy = Spikes(window=16)
    losses = np.array([2.3] * 8 + [0.01] * 40 + [0.3])  # far above its limit, far below the initial loss
    steps = Steps(first=1, loss=losses, gradient_norm=10 * losses)
    assert policy.watch(steps) is None


def test_a_spike_is_very_large_or_lasts_for_several_steps() -> None:
    policy = Spikes(window=16)

    def watch(*losses: float) -> Any:
        return policy.watch(Steps(first=1, loss=np.array(losses), gradient_norm=10 * np.array(losses)))

    assert watch(*[2.3] * 8, *[0.1] * 40) is None
    assert watch(2.0, 0.1, 2.0, 2.0, 0.1) is None  # single batches with outliers
    found = watch(0.1, 2.0, 2.0, 2.0)
    assert (found.place, found.limit) == (3, pytest.approx(1.15))
    assert watch(24.0).place == 0


@both
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("steps", [1, 7, 1000])
def test_a_bad_value_is_reported_and_its_step_is_undone(
    make: type, value: float, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_to(monkeypatch, steps)
    data = table()
    loop, log = make_loop(make, data, epochs=1)
    row = int(loop.plan.order(0).rows[43])  # in the sixth batch of eight
    data.x[row, 2] = value
    fresh, log = make_loop(make, data, epochs=1)
    outcome = fresh.run()
    assert outcome.status == "stopped"
    bad = next(event for event in log.events if isinstance(event, NonFinite))
    assert (bad.step, bad.where, bad.unit, bad.rows) == (6, "input", 2, [row])
    state = fresh.engine.state()
    assert state.step == 5
    assert all(np.isfinite(p).all() for p in state.parameters.values())


@both
def test_a_learning_rate_that_diverges_is_lowered_by_rollbacks(make: type) -> None:
    data = table()
    loop, log = make_loop(make, data, rate=1e155, policies=spikes, epochs=2, text="4-8:relu-1", checkpoint_every=3)
    outcome = loop.run()
    kinds = [type(event).__name__ for event in log.events]
    assert "NonFinite" in kinds or "Spike" in kinds
    assert outcome.status == "stopped"
    assert "after 2 rollbacks" in outcome.reason
    assert all(np.isfinite(p).all() for p in loop.engine.state().parameters.values())


@both
def test_early_stopping_keeps_the_best_epoch(make: type) -> None:
    loop, log = make_loop(
        make,
        table(60),
        epochs=60,
        rate=0.05,
        policies=lambda: [EarlyStopping("loss", larger=False, patience=3)],
        text="4-32:tanh-32:tanh-1",
    )
    outcome = loop.run()
    values = [event.validation_loss for event in log.events if isinstance(event, EpochEnd)]
    assert outcome.status == "stopped"
    assert outcome.reason == "loss has not improved for 3 epochs"
    assert loop.position.best == min(values)  # type: ignore[type-var]
    assert values.index(min(values)) == len(values) - 4  # type: ignore[type-var]
    assert loop.best is not None
    assert loop.best.step == loop.position.best_step


@both
@pytest.mark.parametrize("at", [1, 4, 9, 13, 18, 27, 40])
def test_a_resumed_run_equals_an_uninterrupted_one(make: type, at: int) -> None:
    """The run is stopped by a signal after `at` steps, and resumed from its checkpoint."""
    policies = lambda: [EarlyStopping("loss", larger=False, patience=50), Spikes(window=16), Plateau(epochs=2)]  # noqa: E731
    whole, log = make_loop(make, table(), policies=policies)
    whole.run()

    first, before = make_loop(make, table(), policies=policies)
    first.interrupted = lambda: 15 if first.position.step >= at else None
    assert first.run().status == "interrupted"
    assert before.saved[-1][2] == "last"
    again, after = make_loop(make, table(), policies=policies)
    step = restore(again, before)
    if before.saved[-1][1]["scheduled"]:  # also due in an uninterrupted run, so emitted again
        again.emit(Checkpoint(step=step, kind="last", path=f"{step}", sha256=""))
    again.run()
    assert again.engine.state().equals(whole.engine.state())
    assert again.position == whole.position
    assert same([*before.events[: before.saved[-1][1]["told"]], *after.events], log.events)
    assert (again.best is None) == (whole.best is None)
    assert again.best is None or again.best.equals(whole.best)  # type: ignore[arg-type]


@both
@pytest.mark.parametrize("at", [20, 29, 31, 44])
def test_the_log_of_a_killed_run_with_rollbacks_equals_an_uninterrupted_one(make: type, at: int) -> None:
    """The run is killed after `at` events, before or after the rollbacks. The effective events of the resumed run are
    those of an uninterrupted run."""

    class Killed(Exception):
        pass

    def loop_of() -> tuple[Loop, Recorder]:
        return make_loop(make, spiky(), epochs=6, policies=spikes, text="4-8:tanh-1")

    whole, expected = loop_of()
    whole.run()
    assert any(isinstance(event, RolledBack) for event in expected.events)

    first, log = loop_of()
    at = min(at, len(expected.events) - 1)

    def killing(event: Event) -> None:
        log.events.append(event)
        if len(log.events) == at:
            raise Killed

    log.notice = killing  # type: ignore[method-assign]
    with pytest.raises(Killed):
        first.run()
    again, rest = loop_of()
    step = restore(again, log)
    again.emit(Resume(step=step, checkpoint="x", kept=again.emitted, notes=[]), counted=False)
    again.emit(Checkpoint(step=step, kind="last", path=f"{step}", sha256=""))
    again.run()
    both_logs = [*log.events, *rest.events]
    assert same(both_logs, expected.events)
    assert again.emitted == whole.emitted == len(expected.events)
    assert again.engine.state().equals(whole.engine.state())


class Measuring:
    """An observer that returns an event for every event, including returned ones."""

    measures = True

    def __init__(self, engine: Any) -> None:
        self.engine = engine

    def notice(self, event: Event) -> list[Event]:
        largest = max(float(np.abs(p).max()) for p in self.engine.state().parameters.values())
        return [Measured(step=event.step, name="parameters", values={"largest": largest})]


def test_events_returned_by_observers_are_emitted_once_and_counted() -> None:
    loop, log = make_loop(NumpyEngine, table(), epochs=2)
    plain, expected = make_loop(NumpyEngine, table(), epochs=2)
    loop.observers = [Measuring(loop.engine), log]
    loop.run()
    plain.run()
    assert same([event for event in log.events if not isinstance(event, Measured)], expected.events)
    assert [isinstance(event, Measured) for event in log.events] == [False, True] * len(expected.events)
    assert loop.emitted == len(log.events)
    # A resume is not counted, so events that observers return for it are dropped.
    loop.emit(Resume(step=1, checkpoint="x", kept=1, notes=[]), counted=False)
    assert isinstance(log.events[-1], Resume)
    assert loop.emitted == len(log.events) - 1


@both
def test_a_run_with_measurements_resumes_to_the_same_log(make: type) -> None:
    def measured() -> tuple[Loop, Recorder]:
        loop, log = make_loop(make, table(), epochs=3)
        loop.observers = [log, Measuring(loop.engine)]
        return loop, log

    whole, log = measured()
    whole.run()
    first, before = measured()
    first.interrupted = lambda: 15 if first.position.step >= 13 else None
    first.run()
    state, extra, _ = before.saved[-1]
    again, after = measured()
    again.engine.load(state)
    again.position, again.emitted = position_of(extra), extra["told"]
    again.best = next(saved for saved, _, kind in before.saved if kind == "best")
    again.emit(Resume(step=state.step, checkpoint="x", kept=again.emitted, notes=[]), counted=False)
    again.run()
    assert same([*before.events, *after.events], log.events)


@both
def test_a_bad_loss_with_batch_norm_is_reported_with_all_rows(make: type) -> None:
    data = table()
    plain = Data(x=data.x, y=np.where(np.arange(90)[:, None] == ABSURD, 1e200, data.y))
    loop, log = make_loop(make, plain, epochs=1, text="4-8:batchnorm:tanh-1")
    assert loop.run().status == "stopped"
    bad = next(event for event in log.events if isinstance(event, NonFinite))
    assert bad.where == "loss"
    assert ABSURD in bad.rows


@both
def test_a_time_limit_stops(make: type) -> None:
    loop, log = make_loop(make, table(), epochs=100_000, policies=lambda: [TimeLimit(0.2)])
    outcome = loop.run()
    assert outcome == Outcome("stopped", "the time limit of 0.2 s was reached", timed_out=True)
    assert not any(isinstance(event, Spike) for event in log.events)


def test_the_step_of_each_event() -> None:
    loop, log = make_loop(NumpyEngine, table(), epochs=2)
    assert loop.plan.steps_per_epoch == 9
    loop.run()
    assert [event.step for event in log.events if isinstance(event, Progress)] == [5, 10, 15]
    assert [event.step for event in log.events if isinstance(event, EpochEnd)] == [9, 18]
    assert [event.step for event in log.events if isinstance(event, Checkpoint) and event.kind == "last"] == [9, 18]
    assert module.CHUNK_SECONDS <= 0.05


def test_the_loss_of_an_epoch_weights_each_batch_by_its_rows() -> None:
    loop, recorder = make_loop(NumpyEngine, table(), epochs=2, log_every=1)
    loop.run()
    steps = [event.loss for event in recorder.events if isinstance(event, Progress)]
    epochs = [event.loss for event in recorder.events if isinstance(event, EpochEnd)]
    rows = [8] * 8 + [6]  # 70 rows in batches of 8
    assert len(steps) == 2 * len(rows)
    for epoch, mean in enumerate(epochs):
        epoch_losses = steps[epoch * len(rows) : (epoch + 1) * len(rows)]
        assert mean == pytest.approx(np.average(epoch_losses, weights=rows), rel=1e-12)
        assert mean != pytest.approx(np.mean(epoch_losses), rel=1e-6)


def test_of_epochs_with_equal_metrics_the_one_with_the_lowest_loss_is_kept() -> None:
    loop, recorder = make_loop(NumpyEngine, table(), epochs=4, metric="accuracy", larger=True)
    losses = iter([0.5, 0.3, 0.2, 0.4])
    loop.evaluate = lambda engine: (next(losses), {"accuracy": 0.9})
    loop.run()
    assert loop.position.best_step == 3 * loop.plan.steps_per_epoch
    assert loop.position.best_loss == 0.2
    assert [state.step for state, _, kind in recorder.saved if kind == "best"] == [9, 18, 27]


def test_progress_reports_the_rate_and_the_gradient_norm_of_its_steps() -> None:
    loop, recorder = make_loop(NumpyEngine, table(), epochs=2, log_every=1)
    loop.run()
    steps = [event for event in recorder.events if isinstance(event, Progress)]
    assert [event.learning_rate for event in steps] == pytest.approx(
        loop.plan.schedules(0, loop.plan.steps)["rate"].tolist()
    )
    first = next(event for event in recorder.events if isinstance(event, EpochEnd))
    assert first.gradient_norm == pytest.approx(np.mean([event.gradient_norm for event in steps[:9]]))


def test_after_a_rollback_progress_reports_the_lower_rate() -> None:
    loop, recorder = make_loop(NumpyEngine, spiky(), epochs=8, policies=spikes, text="4-8:tanh-1", log_every=1)
    loop.run()
    back = next(i for i, event in enumerate(recorder.events) if isinstance(event, RolledBack))
    after = next(event for event in recorder.events[back:] if isinstance(event, Progress))
    planned = loop.plan.schedules(after.step - 1, 1)["rate"][0]
    assert after.learning_rate == pytest.approx(0.1 * planned)


def test_a_rollback_returns_to_the_last_checkpoint_and_not_to_the_best() -> None:
    loop, recorder = make_loop(NumpyEngine, spiky(), policies=spikes, text="4-8:tanh-1", checkpoint_every=1000)
    loop.run()
    assert any(kind == "best" for _, _, kind in recorder.saved)
    assert [event.to_step for event in recorder.events if isinstance(event, RolledBack)] == [0, 0]


def test_the_policy_that_acts_at_the_earliest_step_decides() -> None:
    def at(place: int) -> SimpleNamespace:
        return SimpleNamespace(watch=lambda steps: Found(place=place, action=Stop(reason=f"at {place}")))

    loop, _ = make_loop(NumpyEngine, table(), policies=lambda: [at(5), at(2), at(4)])
    found = loop._watch(Steps(first=1, loss=np.ones(8), gradient_norm=np.ones(8)))
    assert found is not None
    assert found.place == 2


def test_an_epoch_uses_exactly_epoch_rows() -> None:
    loop, _ = make_loop(NumpyEngine, table(), seen=20)
    orders = [loop.plan.order(epoch).rows for epoch in (0, 1)]
    assert [len(set(rows.tolist())) for rows in orders] == [20, 20]
    assert set(orders[0].tolist()) != set(orders[1].tolist())
    assert loop.plan.steps_per_epoch == 3
