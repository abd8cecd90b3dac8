"""When checkpoints are written: the best state with the next checkpoint, and longer intervals in longer runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from multilayer.engines.numpy_engine import NumpyEngine
from multilayer.runs.events import Checkpoint
from multilayer.training import Loop
from multilayer.training.loop import position_of
from support.loops import Recorder, cut_to, make_loop, table


def improving(**plan: Any) -> tuple[Loop, Recorder]:
    """A loop of 9 steps in which every epoch is the best so far."""
    loop, log = make_loop(NumpyEngine, table(), **plan)
    loop.evaluate = lambda _: (-float(loop.position.epoch), {})
    return loop, log


def test_the_best_state_is_saved_just_before_the_next_checkpoint_and_at_the_end() -> None:
    loop, log = improving(epochs=8, checkpoint_every=27)
    loop.run()
    found = [(event.kind, event.step) for event in log.events if isinstance(event, Checkpoint)]
    assert found == [("best", 27), ("last", 27), ("best", 54), ("last", 54), ("best", 72)]
    assert [kind for _, _, kind in log.saved] == [kind for kind, _ in found]


def test_the_best_state_of_an_earlier_epoch_is_saved_before_a_checkpoint_inside_an_epoch() -> None:
    loop, log = improving(epochs=3, checkpoint_every=20)
    loop.run()
    found = [(event.kind, event.step) for event in log.events if isinstance(event, Checkpoint)]
    assert found == [("best", 18), ("last", 20), ("best", 27)]


def test_an_interrupted_run_saves_its_best_state_and_a_resumed_one_saves_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cut_to(monkeypatch, 1)
    loop, log = improving(epochs=3, checkpoint_every=1000)
    loop.interrupted = lambda: 15 if loop.position.step >= 13 else None
    assert loop.run().status == "interrupted"
    (best, _, _), (_, extra, _) = log.saved
    assert (best.step, extra["scheduled"], extra["told"]) == (9, False, len(log.events) - 2)
    assert position_of(extra).unsaved_best


def test_a_checkpoint_of_an_older_version_had_saved_its_best_state() -> None:
    loop, log = improving(epochs=1, checkpoint_every=4)
    loop.run()
    _, extra, _ = log.saved[0]
    del extra["position"]["unsaved_best"]
    assert not position_of(extra).unsaved_best


def test_the_interval_between_checkpoints_grows_with_the_run() -> None:
    plan = replace(make_loop(NumpyEngine, table())[0].plan, checkpoint_every=504, checkpoints_thin_out=True)
    steps = [0]
    while steps[-1] < 1_000_000:
        steps.append(plan.next_checkpoint(steps[-1]))
    assert steps[1:4] == [504, 1008, 1512]
    gaps = np.diff(steps)
    assert all(gap == 504 or gap <= start / 25 for gap, start in zip(gaps, steps, strict=False))
    assert np.unique(gaps).tolist() == [504 * 2**k for k in range(7)]
    assert all(plan.next_checkpoint(step - 1) == step for step in steps[1:])
    assert len(steps) < 200
