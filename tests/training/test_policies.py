"""Policies: plateaus, early stopping, spikes, and which of two epochs is better."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np
import pytest

import multilayer as ml
from multilayer.nn import schedules
from multilayer.runs.events import EpochEnd
from multilayer.training.policies import (
    Continue,
    EarlyStopping,
    Plateau,
    Rollback,
    Spikes,
    Steps,
    Stop,
    TimeLimit,
    better,
)


def rates(text: str, epochs: int) -> list[float]:
    return schedules.get(text)(np.arange(1, epochs + 1) - 1, epochs).tolist()


def reported(policy: Plateau, losses: Sequence[float], *, first: int = 1) -> list[tuple[int, str]]:
    """Return the epochs and messages of a policy for epochs with these losses."""
    found: list[tuple[int, str]] = []
    for epoch, loss in enumerate(losses, first):
        event = EpochEnd(step=epoch, epoch=epoch, loss=loss, seconds=1.0, rows_per_second=1.0, metrics={})
        action = policy.decide(event)
        assert isinstance(action, Continue)
        found += [] if action.notice is None else [(epoch, action.notice[0])]
    return found


def falls(over: int) -> str:
    return f"the training loss has fallen by less than 1% over {over} epochs"


@pytest.mark.parametrize("text", ["constant", "cosine(warmup=0)", "linear", "step", "flat_cosine"])
def test_a_flat_loss_is_reported_once(text: str) -> None:
    assert reported(Plateau(rates(text, 40)), [1.0] * 40) == [(11, falls(10))]
    assert reported(Plateau(rates(text, 40)), [0.99**epoch for epoch in range(40)]) == []


@pytest.mark.parametrize("text", ["constant(warmup=0.5)", "one_cycle(warmup=0.5)"])
def test_nothing_is_reported_while_the_rate_rises(text: str) -> None:
    planned = rates(text, 40)
    highest = 1 + planned.index(max(planned))
    assert 20 <= highest <= 21
    assert reported(Plateau(planned), [1.0] * 40) == [(highest + 10, falls(10))]


def test_a_loss_that_follows_the_cycles_of_its_rate_is_no_plateau() -> None:
    planned = rates("coslog(4)", 256)
    losses = [0.99 ** (epoch / 10) + rate for epoch, rate in enumerate(planned)]
    assert reported(Plateau(planned), losses) == []
    assert reported(Plateau(), losses)[0][0] < 30  # without the schedule, ten epochs look like a plateau


def test_a_cycle_without_improvement_is_reported_at_its_end() -> None:
    planned = rates("coslog(4)", 256)
    assert reported(Plateau(planned), [1.0] * 256) == [(18, falls(17))]
    better_at_first = [1.0] * 5 + [0.5] * 251
    assert reported(Plateau(planned), better_at_first) == [(52, falls(34))]


def test_short_cycles_are_taken_together() -> None:
    assert reported(Plateau(rates("coslog(4)", 60)), [1.0] * 60) == [(13, falls(12))]
    assert reported(Plateau(rates("coslog(4)", 10)), [1.0] * 10) == []


@pytest.mark.parametrize("at", [1, 17, 18, 40])
def test_a_cycle_continues_after_a_resume(at: int) -> None:
    planned, losses = rates("coslog(4)", 256), [1.0] * 5 + [0.5] * 251
    before, after = Plateau(planned), Plateau(planned)
    assert reported(before, losses[:at]) == []
    after.load(json.loads(json.dumps(before.state())))
    assert reported(after, losses[at:], first=at + 1) == [(52, falls(34))]


@pytest.mark.parametrize(("schedule", "at"), [("constant", 11), ("coslog(cycles=2)", 12)])
def test_a_run_uses_its_own_schedule_for_plateaus(schedule: str, at: int) -> None:
    x = np.random.default_rng(0).normal(size=(64, 3))
    run = ml.fit("3-1", (x, x[:, 0]), learning_rate=1e-12, schedule=schedule, epochs=36, engine="numpy", quiet=True)
    notices = [event for event in run.events if event["event"] == "notice"]
    ends = [event["step"] for event in run.events if event["event"] == "epoch"]
    assert [(event["step"], event["message"]) for event in notices] == [(ends[at - 1], falls(at - 1))]
    assert notices[0]["remedy"].startswith("training has converged at this learning rate")


def test_the_remedy_of_a_plateau_depends_on_how_the_loss_moves() -> None:
    def remedy(losses: Sequence[float]) -> str:
        policy = Plateau()
        for epoch, loss in enumerate(losses, 1):
            event = EpochEnd(step=epoch, epoch=epoch, loss=loss, seconds=1.0, rows_per_second=1.0, metrics={})
            action = policy.decide(event)
            if isinstance(action, Continue) and action.notice is not None:
                return action.notice[1]
        raise AssertionError("no plateau was reported")

    assert remedy([1.0] * 12).startswith("training has converged")
    assert remedy([1.0, 1.3] * 6).startswith("it goes up and down, so lower the learning rate")
    assert remedy([4.0, 9.0, *([8.9] * 10)]) == "it has risen, so lower the learning rate"


def test_a_flat_loss_at_the_end_of_the_schedule_is_not_a_plateau() -> None:
    assert reported(Plateau([1.0] * 11 + [0.05] * 29), [1 / epoch for epoch in range(1, 12)] + [0.09] * 29) == []


def test_of_equal_metrics_the_lower_loss_is_better() -> None:
    assert better(0.9, 0.9, larger=True, losses=(0.2, 0.3))
    assert not better(0.9, 0.9, larger=True, losses=(0.3, 0.2))
    assert not better(0.9, 0.9, larger=True, losses=(0.2, 0.2))
    assert better(0.91, 0.9, larger=True, losses=(0.3, 0.2))
    assert not better(math.nan, 0.9, larger=True, losses=(0.1, 0.2))
    assert not better(math.nan, None, larger=False)


def early(policy: EarlyStopping, values: Sequence[float]) -> int | None:
    """Return the epoch after which early stopping ends the run."""
    for epoch, value in enumerate(values, 1):
        event = EpochEnd(
            step=epoch, epoch=epoch, loss=1.0, seconds=1.0, rows_per_second=1.0, metrics={"accuracy": value}
        )
        if isinstance(policy.decide(event), Stop):
            return epoch
    return None


def test_early_stopping_counts_epochs_without_improvement() -> None:
    def policy() -> EarlyStopping:
        return EarlyStopping("accuracy", larger=True, patience=3)

    assert early(policy(), [0.5, 0.4, 0.4, 0.4]) == 4
    assert early(policy(), [0.5, 0.5, 0.5, 0.5]) == 4  # an equal value is no improvement
    assert early(policy(), [0.5, 0.4, 0.4, 0.6, 0.5, 0.5, 0.5]) == 7  # an improvement starts the count again
    assert early(policy(), [0.5, 0.4, 0.4, 0.6]) is None


def losses_with_spike(*, norm: float) -> Steps:
    """Return forty normal steps, then three with twenty times the loss and a gradient norm of `norm`."""
    ordinary = [1.0, 1.1, 0.9, 1.05] * 10
    return Steps(first=1, loss=np.array(ordinary + [20.0] * 3), gradient_norm=np.array([1.0] * 40 + [norm] * 3))


def test_a_high_loss_is_a_spike_only_if_the_gradient_grew() -> None:
    assert Spikes().watch(losses_with_spike(norm=1.0)) is None
    found = Spikes().watch(losses_with_spike(norm=5.0))
    assert found is not None
    assert found.place == 40  # at least ten times the first losses: a spike at once
    assert isinstance(found.action, Rollback)


def test_the_limit_of_a_spike_follows_the_spread_of_the_losses() -> None:
    policy = Spikes(width=100.0)
    policy.watch(Steps(first=1, loss=np.array([1.0, 1.2, 0.8, 1.0] * 10), gradient_norm=np.ones(40)))
    spread = 1.4826 * np.median(np.abs(np.array([1.0, 1.2, 0.8, 1.0]) - 1.0))
    assert policy._limit() == pytest.approx(1.0 + 100.0 * spread)


def test_spikes_must_follow_each_other() -> None:
    loss = np.array([1.0] * 40 + [5.0, 5.0, 1.0, 5.0, 5.0])
    norm = np.where(loss > 1, 9.0, 1.0)
    assert Spikes().watch(Steps(first=1, loss=loss, gradient_norm=norm)) is None
    found = Spikes().watch(Steps(first=1, loss=np.append(loss, 5.0), gradient_norm=np.append(norm, 9.0)))
    assert found is not None
    assert found.place == 45


def test_a_resumed_run_keeps_its_count_of_rollbacks() -> None:
    first = Spikes(most=2)
    assert [type(first.on_non_finite("x")) for _ in range(3)] == [Rollback, Rollback, Stop]
    resumed = Spikes(most=2)
    resumed.load(json.loads(json.dumps(first.state())))
    assert isinstance(resumed.on_non_finite("x"), Stop)


def test_a_resumed_run_does_not_repeat_its_plateau_notice() -> None:
    policy = Plateau(rates("constant", 40))
    assert len(reported(policy, [1.0] * 12)) == 1
    resumed = Plateau(rates("constant", 40))
    resumed.load(json.loads(json.dumps(policy.state())))
    assert reported(resumed, [1.0] * 28, first=13) == []


def test_a_plateau_is_measured_relative_to_the_loss() -> None:
    assert reported(Plateau(rates("constant", 40)), [100.0 - 0.05 * epoch for epoch in range(12)]) == [(11, falls(10))]
    assert reported(Plateau(rates("constant", 40)), [1e-3 * 0.99**epoch for epoch in range(12)]) == []


def test_a_loss_that_is_nearly_zero_is_not_a_plateau() -> None:
    falling = [2.0 * 0.5**epoch for epoch in range(8)]
    assert reported(Plateau(rates("constant", 40)), [*falling, *[0.019, 0.0191] * 16]) == []
    assert reported(Plateau(rates("constant", 40)), [*falling, *[0.021, 0.0211] * 16]) != []


def test_a_time_limit_ends_at_the_last_step_taken() -> None:
    found = TimeLimit(1.0, began=-1e9).watch(Steps(first=1, loss=np.ones(7), gradient_norm=np.ones(7)))
    assert found is not None
    assert found.place == 6
