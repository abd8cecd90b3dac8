"""Dead and saturated units in the events of a run do not depend on chunks, interruptions and rollbacks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import multilayer as ml
from multilayer.engines import UnitCounts
from multilayer.engines.fused_engine import FusedEngine
from multilayer.engines.numpy_engine import NumpyEngine
from multilayer.engines.torch_engine import TorchEngine
from multilayer.runs.events import EpochEnd, Event, RolledBack, from_dict, same
from multilayer.spec import Spec
from multilayer.training import Loop, Plan
from multilayer.training.loop import extra_of, position_of
from multilayer.training.policies import Action, Continue, Found, Rollback, Spikes, Steps
from multilayer.training.trackers import values_of
from multilayer.training.unit_summary import MOST_UNITS, summary
from support.loops import Recorder, cut_to, make_loop, restore, table

both = pytest.mark.parametrize("make", [NumpyEngine, TorchEngine, FusedEngine], ids=["numpy", "torch", "fused"])
TEXT = "4-8:relu:dropout(0.1)-[layernorm-9:hard_tanh-8]-6:tanh-1"
STEPS = 9
"""Steps of an epoch of `make_loop`: 70 rows in batches of 8."""


def units_of(log: Recorder) -> dict[int, dict[str, Any]]:
    return {event.epoch: event.units for event in log.events if isinstance(event, EpochEnd)}


def with_dead_units(loop: Loop) -> Loop:
    """Make the units 1 and 3 of the first layer dead, and saturate unit 2 of the last."""
    state = loop.engine.state()
    weight, bias = state.parameters["linear1.weight"], state.parameters["linear1.bias"]
    weight[[1, 3]], bias[[1, 3]] = 0, -1
    state.parameters["linear2.bias"][2] = 40
    loop.engine.load(state)
    return loop


# Which epochs


@pytest.mark.parametrize("epochs", [1, 2, 3, 8, 9, 20, 100, 1500])
def test_the_first_and_the_last_epoch_and_some_between_are_counted(epochs: int) -> None:
    loop, _ = make_loop(NumpyEngine, table(), epochs=epochs)
    counted = [epoch for epoch in range(epochs) if loop.plan.counts_units(epoch)]
    assert counted[0] == 0
    assert counted[-1] == epochs - 1
    assert min(epochs, 5) <= len(counted) <= 10
    assert np.diff(counted).max(initial=1) <= -(-epochs // 8)


@both
def test_only_counted_epochs_have_units(make: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "counts_units", lambda plan, epoch: epoch in (1, 3))
    loop, log = make_loop(make, table(), epochs=5, text=TEXT)
    loop.run()
    assert {epoch: bool(units) for epoch, units in units_of(log).items()} == {
        1: False,
        2: True,
        3: False,
        4: True,
        5: False,
    }
    assert all(list(units) == ["relu1", "residual1.hard_tanh1", "tanh1"] for units in units_of(log).values() if units)


# What is reported


@both
def test_dead_and_saturated_units_are_reported(make: type) -> None:
    loop, log = make_loop(make, table(), epochs=2, text="4-8:relu:dropout(0.1)-6:tanh-1")
    with_dead_units(loop).run()
    for units in units_of(log).values():
        relu, tanh = units["relu1"], units["tanh1"]
        assert relu["rows"] == tanh["rows"] == 70
        assert (relu["dead"], relu["dead_count"], relu["saturated"]) == ([1, 3], 2, [])
        assert (tanh["dead"], tanh["saturated"], tanh["saturated_count"], tanh["inactive"]) == ([], [2], 1, 0)
        assert 2 / 8 < relu["inactive"] < 1


def counts(rows: int, inactive: list[int], flat: list[int]) -> UnitCounts:
    return UnitCounts(rows, np.array(inactive), np.array(flat))


def test_the_rules_of_the_summary() -> None:
    spec = Spec.parse("4-4:relu-4:hard_tanh-[4:sigmoid]-1")
    found = summary(
        {
            "member2/relu1": counts(100, [100, 99, 0, 100], [100, 95, 0, 100]),
            "member2/hard_tanh1": counts(100, [100, 95, 94, 0], [95, 94, 96, 0]),
            "residual1.sigmoid1": counts(20, [0, 0, 0, 0], [19, 18, 20, 0]),
        },
        spec,
    )
    assert found["member2/relu1"] == {
        "rows": 100,
        "dead": [0, 3],
        "dead_count": 2,
        "saturated": [],  # ReLU dies and does not vanish
        "saturated_count": 0,
        "inactive": 299 / 400,
    }
    assert found["member2/hard_tanh1"]["dead"] == [0]
    assert found["member2/hard_tanh1"]["saturated"] == [0, 2]
    assert found["residual1.sigmoid1"]["saturated"] == [0, 2]


def test_long_lists_are_cut_and_their_length_is_exact() -> None:
    n = MOST_UNITS + 7
    found = summary({"step1": counts(5, [5] * n, [0] * n)}, Spec.parse(f"4-{n}:step-1"))["step1"]
    assert found["dead"] == list(range(MOST_UNITS))
    assert (found["dead_count"], found["saturated_count"], found["inactive"]) == (n, 0, 1)


def test_an_event_with_units_is_json_and_is_read_again() -> None:
    loop, log = make_loop(FusedEngine, table(), epochs=1, text=TEXT)
    loop.run()
    (event,) = [event for event in log.events if isinstance(event, EpochEnd)]
    line = json.loads(json.dumps(event.to_dict(), allow_nan=False))
    assert from_dict(line) == event
    del line["units"]  # as in logs of earlier versions
    old = from_dict(line)
    assert isinstance(old, EpochEnd)
    assert old.units == {}


def test_trackers_get_numbers() -> None:
    loop, log = make_loop(FusedEngine, table(), epochs=1, text="4-8:relu:dropout(0.1)-6:tanh-1")
    with_dead_units(loop).run()
    (event,) = [event for event in log.events if isinstance(event, EpochEnd)]
    values = values_of(event)
    assert {name: values[name] for name in ("relu1/dead", "relu1/saturated", "tanh1/dead", "tanh1/saturated")} == {
        "relu1/dead": 2,
        "relu1/saturated": 0,
        "tanh1/dead": 0,
        "tanh1/saturated": 1,
    }
    assert values["relu1/inactive"] == event.units["relu1"]["inactive"]


# Chunks, interruptions, rollbacks


@both
@pytest.mark.parametrize("steps", [1, 4, 1000])
def test_chunks_do_not_change_the_units(make: type, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, log = make_loop(make, table(), text=TEXT)
    whole.run()
    cut_to(monkeypatch, steps)
    other, other_log = make_loop(make, table(), text=TEXT)
    other.run()
    assert units_of(log) == units_of(other_log)
    assert all(one["rows"] == 70 for units in units_of(log).values() for one in units.values())


@both
@pytest.mark.parametrize("every", [2, 7])
@pytest.mark.parametrize("at", [3, 11, 25])
def test_a_run_resumed_within_an_epoch_has_the_same_units(make: type, at: int, every: int) -> None:
    def loop_of() -> tuple[Loop, Recorder]:
        return make_loop(make, table(), epochs=4, checkpoint_every=every, text=TEXT)

    whole, expected = loop_of()
    whole.run()
    first, log = loop_of()

    class Killed(Exception):
        pass

    save = first.save

    def killing(state: Any, extra: dict[str, Any], kind: Any) -> Any:
        found = save(state, json.loads(json.dumps(extra)), kind)
        if kind == "last" and state.step >= at:
            raise Killed
        return found

    first.save = killing
    with pytest.raises(Killed):
        first.run()
    again, rest = loop_of()
    assert restore(again, log) % STEPS  # within an epoch
    assert again.position.units["relu1"].rows
    again.run()
    found = units_of(log) | units_of(rest)
    assert found == units_of(expected)


class RollsBackOnce:
    """Roll back at step 16, within the second epoch."""

    def __init__(self) -> None:
        self.done = False

    def watch(self, steps: Steps) -> Found | None:
        place = 16 - steps.first
        if self.done or not 0 <= place < len(steps.loss):
            return None
        return Found(place=place, action=Rollback(rate_factor=1.0, reason="a test"))

    def decide(self, event: Event) -> Action:
        return Continue()

    def on_non_finite(self, what: str) -> Action:
        return Continue()

    def state(self) -> dict[str, Any]:
        return {"done": self.done}

    def load(self, state: dict[str, Any]) -> None:
        self.done = state["done"]

    def kept_on_rollback(self) -> dict[str, Any]:
        return {"done": True}


@both
@pytest.mark.parametrize("steps", [1, 5, 1000])
def test_a_rollback_within_an_epoch_undoes_its_counts(make: type, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, expected = make_loop(make, table(), epochs=3, checkpoint_every=12, text=TEXT)
    plain.run()
    cut_to(monkeypatch, steps)
    loop, log = make_loop(
        make, table(), epochs=3, checkpoint_every=12, text=TEXT, policies=lambda: [RollsBackOnce(), Spikes(window=16)]
    )
    loop.run()
    assert sum(isinstance(event, RolledBack) for event in log.events) == 1
    assert units_of(log) == units_of(expected)


def test_a_checkpoint_of_an_earlier_version_has_no_counts() -> None:
    loop, _ = make_loop(NumpyEngine, table(), epochs=1, text=TEXT)
    loop.run()
    extra = json.loads(json.dumps(extra_of(loop.good)))
    del extra["position"]["units"]
    assert position_of(extra).units == {}


# Whole runs


@pytest.mark.parametrize("engine", ["fused", "torch", "numpy"])
def test_counting_changes_no_bit_of_a_fit(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fitted() -> Any:
        return ml.fit("4-16:relu:dropout(0.2)-9:gelu-3", "iris", engine=engine, epochs=4, quiet=True)

    counted = fitted()
    monkeypatch.setattr(Plan, "counts_units", lambda plan, epoch: False)
    plain = fitted()
    epochs = [event for event in counted.log if isinstance(event, EpochEnd)]
    assert all(event.units for event in epochs)
    cleared = [from_dict(event.to_dict() | ({"units": {}} if event.event == "epoch" else {})) for event in counted.log]
    assert same(cleared, plain.log)
    for name, value in counted.model.members[0].tensors.items():
        np.testing.assert_array_equal(value, plain.model.members[0].tensors[name])


def test_the_log_of_an_ensemble_names_the_members(tmp_path: Path) -> None:
    run = ml.fit("4-8:relu-3", "iris", ensemble=2, epochs=3, run=tmp_path / "run", quiet=True, report=False)
    lines = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    units = [line["units"] for line in lines if line["event"] == "epoch"]
    assert len(units) == 3
    assert all(list(one) == ["member1/relu1", "member2/relu1"] for one in units)
    assert units == [event.units for event in run.log if isinstance(event, EpochEnd)]
