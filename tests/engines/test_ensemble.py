"""Ensembles as one engine: states, rows, and bits that depend on neither threads nor chunks nor interruptions."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import multilayer as ml
from multilayer.core import random
from multilayer.engines import Order
from multilayer.engines.ensemble import Ensemble, join_states, split_states
from multilayer.errors import OptionError, StateError
from multilayer.nn import losses
from multilayer.nn.calibration import combined
from multilayer.runs import RunFolder
from multilayer.runs.config import Config
from multilayer.runs.events import same
from multilayer.spec import Spec
from multilayer.training.fit import fit, resume
from multilayer.training.recipe import Recipe
from multilayer.training.setup import make_engine
from support import kill_runs
from support.engines import run
from support.long_tests import FULL, memory_folder
from support.training_rows import prepare

ROWS = 90
SMALL: dict[str, Any] = {"ensemble": 3, "epochs": 4, "batch_size": 16, "learning_rate": 0.02, "quiet": True}
SPEC = Spec.parse("3-8:tanh:dropout(0.2)-1")


def data(rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(rows, 3))
    return x, np.sin(x[:, 0]) + x[:, 1] * x[:, 2]


def ensemble(threads: int = 1, members: int = 3, engine: str = "fused", **options: Any) -> Ensemble:
    ready = prepare(data(), ensemble=members)
    made = make_engine(SPEC, ready, Config(ensemble=members, engine=engine, threads=threads, **options))
    assert isinstance(made, Ensemble)
    return made


def order(made: Ensemble, epoch: int = 0) -> Order:
    return Order(epoch=epoch, rows=np.arange(made.places), batch=16)


# States


@pytest.mark.parametrize("average", [None, 0.9])
def test_joined_states_can_be_separated_again(average: float | None) -> None:
    made = ensemble(average=average)
    run(made, order(made))
    whole = made.state()
    assert {name.partition("/")[0] for name in whole.parameters} == {"member1", "member2", "member3"}
    for one, member in zip(split_states(whole, 3), made.members, strict=True):
        assert one.equals(member.engine.state())
    assert join_states(split_states(whole, 3)).equals(whole)
    first, second = (part.parameters["linear1.weight"] for part in split_states(whole, 3)[:2])
    assert not np.array_equal(first, second)  # each member has its own seed
    assert whole.step == made.members[0].engine.state().step == order(made).steps


def test_a_state_with_another_number_of_members_is_refused() -> None:
    with pytest.raises(StateError, match=r"unknown tensor parameters/member3/linear1\.bias"):
        ensemble(members=2).load(ensemble(members=3).state())
    with pytest.raises(StateError, match="misses tensor"):
        ensemble(members=3).load(ensemble(members=2).state())


# Rows


def test_each_member_trains_on_rows_it_does_not_hold_out() -> None:
    ready = prepare(data(), ensemble=5)
    made = ensemble(members=5)
    for member, part in zip(made.members, ready.folds, strict=True):
        assert not set(member.rows) & set(part)
        assert len(member.rows) + len(part) == ROWS
    assert sorted(np.concatenate(ready.folds)) == list(range(ROWS))


def test_outputs_for_training_rows_are_out_of_fold() -> None:
    made = ensemble(members=5)
    run(made, order(made))
    rows = np.random.default_rng(1).permutation(ROWS)[:40]
    found = made.outputs(rows)
    for row, z in zip(rows, found, strict=True):
        z_held_out = [m.engine.outputs(np.array([row])) for m in made.members if row not in m.rows]
        assert len(z_held_out) == 1
        np.testing.assert_array_equal(z, z_held_out[0][0])
    # Without held-out rows, the outputs are the mean of all members.
    everything = prepare(data(), validation=None)
    both = make_engine(SPEC, everything, Config(ensemble=2, engine="fused", threads=1))
    z = [member.engine.outputs(rows) for member in both.members]  # type: ignore[attr-defined]
    np.testing.assert_array_equal(both.outputs(rows), combined(losses.get("mse"), z))
    assert both.outputs(rows[:0]).shape == (0, 1)


def test_members_share_folds_if_there_are_more_members_than_folds() -> None:
    """With ten members and five folds, two members hold out each row. Their predictions are averaged."""
    ready = prepare(data(), ensemble=5)
    made = make_engine(SPEC, ready, Config(ensemble=10, engine="fused", threads=1))
    assert isinstance(made, Ensemble)
    rows = np.arange(ROWS)
    held_out_by = np.array([[row not in member.rows for row in rows] for member in made.members])
    assert (held_out_by.sum(0) == 2).all()
    z = np.stack([member.engine.outputs(rows) for member in made.members]).astype(np.float64)
    expected = np.stack([z[held_out_by[:, row], row].mean(0) for row in rows])
    np.testing.assert_allclose(made.outputs(rows), expected, rtol=1e-12)


def test_each_member_shuffles_its_training_rows_with_its_seed() -> None:
    made = ensemble()
    for epoch in (0, 1):
        seen = made.own_rows(np.arange(made.places), epoch)
        assert seen.tolist() == list(range(ROWS))
        for member, got in zip(made.members, made._orders_of(epoch), strict=True):
            places = random.permutation(len(member.rows), seed=member.seed, epoch=epoch)
            assert got[: len(member.rows)].tolist() == member.rows[places].tolist()
            assert len(got) == made.places


# Bits


@pytest.mark.parametrize("engine", ["fused", "numpy"])
def test_threads_and_chunk_length_do_not_change_the_bits(engine: str, tried: Any) -> None:
    whole = ensemble(engine=engine)
    for epoch in range(2):
        taken = run(whole, order(whole, epoch))
    expected, last = whole.state(), taken.loss
    cuts = [(threads, size) for threads in (1, 2, 3) for size in (1, 2, 3)]
    for threads, size in cuts:
        made = ensemble(threads, engine=engine)
        for epoch in range(2):
            full = order(made, epoch)
            chunks = [
                run(made, Order(epoch=epoch, rows=full.rows[i : i + 16 * size], batch=16))
                for i in range(0, len(full.rows), 16 * size)
            ]
        assert made.state().equals(expected), (threads, size)
        np.testing.assert_array_equal(np.concatenate([chunk.loss for chunk in chunks]), last)
        made.close()
    tried("ensemble: threads and chunk lengths", len(cuts))


def test_gradients_and_apply_equal_run() -> None:
    rows = np.arange(16)
    stepped, applied = ensemble(), ensemble()
    for member in stepped.members:
        member.engine.run(
            Order(epoch=0, rows=rows, batch=16), rate=np.array([0.01]), decay=np.zeros(1), dropout=np.ones(1)
        )
    found = applied.gradients(rows, epoch=0)
    applied.apply(found, rate=0.01, decay=0.0)
    assert applied.state().equals(stepped.state())
    losses_of = [member.engine.gradients(rows, epoch=0).loss for member in ensemble().members]
    assert found.loss == pytest.approx(np.mean(losses_of), rel=1e-12)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_runs_have_the_same_bits_on_any_number_of_threads(threads: int) -> None:
    made = fit(Recipe(hidden=(8,)), data(), threads=threads, calibrate=True, **SMALL)
    again = fit(Recipe(hidden=(8,)), data(), threads=1, calibrate=True, **SMALL)
    assert made.model is not None
    assert again.model is not None
    assert made.model.to_bytes() == again.model.to_bytes()


def test_runs_resumed_at_any_step_have_the_same_bits(folder: Path, tried: Any) -> None:
    """Stop runs after each of their checkpoints, resume them, and compare them with an uninterrupted run."""
    whole = folder / "whole"
    fit(Recipe(hidden=(8,)), data(), run=whole, checkpoint_every=1, **SMALL)
    steps = RunFolder.open(whole).events()[-1].step
    expected = RunFolder.open(whole)
    for stop in range(1, steps, 1 if FULL else 4):
        path = folder / f"at{stop}"
        fit(Recipe(hidden=(8,)), data(), run=path, checkpoint_every=1, observers=[_Stop(stop)], **SMALL)
        done = resume(path, data=data(), quiet=True)
        assert done.end.step == steps
        assert RunFolder.open(path).model.read_bytes() == expected.model.read_bytes(), stop
        assert same(RunFolder.open(path).events(effective=True), expected.events(effective=True)), stop
        tried("ensemble: resumed after a step", 1)


class _Stop:
    """Send SIGINT once, after the checkpoint of a step."""

    def __init__(self, step: int) -> None:
        self.step: int | None = step

    def notice(self, event: Any) -> None:
        import os
        import signal

        if event.to_dict()["event"] == "checkpoint" and event.step == self.step:
            self.step = None  # a second signal would stop at once, and a step may write two checkpoints
            os.kill(os.getpid(), signal.SIGINT)


def test_stop_requests_are_repeated_until_every_member_has_ended() -> None:
    """A stop request has no effect if it comes before a member has started its call."""
    made = ensemble(threads=3)
    engines: list[Any] = [member.engine for member in made.members]
    waiting, stopped, requests = threading.Event(), threading.Event(), []

    def stop() -> None:
        requests.append(1)
        if len(requests) == 2:
            stopped.set()

    def waits(rows: np.ndarray, averaged: bool) -> None:
        waiting.set()
        stopped.wait(20)

    def fails(rows: np.ndarray, averaged: bool) -> None:
        waiting.wait(20)
        raise RuntimeError("one member fails")

    engines[0].outputs, engines[1].outputs, engines[1].stop = fails, waits, stop
    with pytest.raises(RuntimeError, match="one member fails"):
        made.outputs(np.arange(9))
    assert stopped.is_set()


def test_a_killed_ensemble_resumes_to_the_same_result(tried: Any) -> None:
    """Run the kill test of single networks with the ensemble, folds, common best epoch and calibration of the
    recipe."""
    points, times = (200, 100) if FULL else (12, 6)
    with memory_folder() as folder:
        script = Path(kill_runs.__file__)
        command = [sys.executable, script, folder, str(points), str(times), "recipe"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["at points of saves"] >= 10
    assert found["resumed"] >= 5
    for name, count in found.items():
        tried(f"R1: ensembles killed {name}" if name != "resumed" else "R1: ensembles resumed", count)


# Refused options


def test_options_that_an_ensemble_refuses() -> None:
    with pytest.raises(OptionError, match="mixup would use rows that a member holds out"):
        fit("3-4-1", data(), augment="mixup(0.2)", **SMALL)
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    x, y = (torch.from_numpy(one).float() for one in data())
    with pytest.raises(OptionError, match="a loader trains one network, got ensemble=3: give its dataset"):
        fit("3-4-1", DataLoader(TensorDataset(x, y), batch_size=16), **{**SMALL, "batch_size": None})
    with pytest.raises(OptionError, match="ensemble must be positive, got 0"):
        Config(ensemble=0)


def test_a_diverged_member_is_detected() -> None:
    made = ml.fit(SPEC, data(), **{**SMALL, "learning_rate": 1e30, "optimizer": "sgd", "on_spike": "ignore"})
    assert made.end.status != "completed"
    assert made.model is not None
    assert np.isfinite(made.model.predict(data()[0])).all()
