"""Promises R4, R5, R6 and R14: runs stopped in every phase, signals, non-finite values, reruns, and chunk lengths.

The short form tests a part of each table with every engine, optimizer, network and phase. `SOAK=1` tests all of it.
"""

from __future__ import annotations

import itertools
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from multilayer.data.batches import Data
from multilayer.engines import Settings
from multilayer.engines.fused_engine import FusedEngine
from multilayer.engines.numpy_engine import NumpyEngine
from multilayer.engines.torch_engine import TorchEngine
from multilayer.nn.schedules import get as schedule
from multilayer.runs import RunFolder
from multilayer.runs.events import Checkpoint, End, EpochEnd, Event, NonFinite, RolledBack, same
from multilayer.spec import Spec
from multilayer.training import Loop, Plan, setup
from multilayer.training.fit import fit, resume
from support.cases import OPTIMIZER_ROWS
from support.long_tests import FULL, memory_folder

Tried = Callable[[str, int], None]

ENGINES = ("fused", "numpy", "torch")
OPTIMIZERS = tuple(name for name, row in OPTIMIZER_ROWS.items() if row.kernel == "yes")
NETWORKS = {
    "plain": "3-6:tanh-1",
    "dropout": "3-6:tanh:dropout(0.2)-5:relu:dropout(0.1)-1",
    "batch norm": "3-6:batchnorm:tanh-1",
    "layer norm and dropout": "3-6:layernorm:gelu:dropout(0.3)-1",
}
ROWS, BATCH, PER_EPOCH, EPOCHS = 60, 8, 6, 3  # 48 training rows
STEPS = PER_EPOCH * EPOCHS


def data() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(ROWS, 3))
    return x, np.sin(x[:, 0]) + x[:, 1] * x[:, 2]


def train(path: Path, engine: str, optimizer: str, network: str, **options: Any) -> Any:
    chosen: dict[str, Any] = {
        "epochs": EPOCHS,
        "batch_size": BATCH,
        "learning_rate": 0.02,
        "schedule": "cosine(warmup=0.25)",
        "weight_decay": 0.01,
        "clip_norm": 1.0,
        "average": 0.9,
        "patience": 20,
        "checkpoint_every": 5,
        "threads": 1,
        **options,
    }
    return fit(NETWORKS[network], data(), run=path, engine=engine, optimizer=optimizer, quiet=True, **chosen)


def equal(cut: Path, whole: Path) -> None:
    """Check that model, log and all checkpoints are equal. Models and checkpoints are compared byte by byte."""
    one, other = RunFolder.open(cut), RunFolder.open(whole)
    assert one.model.read_bytes() == other.model.read_bytes(), "the model differs"
    assert same(one.events(), other.events()), "the log differs"
    kept = [{path.name: path.read_bytes() for path in folder.checkpoints.iterdir()} for folder in (one, other)]
    assert kept[0] == kept[1], "the checkpoints differ"


def part(cases: list[Any], count: int) -> list[Any]:
    """Return all cases, or about `count` of them at a stride that shares no factor with the sizes of the table."""
    if FULL or len(cases) <= count:
        return cases
    stride = len(cases) // count
    while any(stride % n == 0 for n in (2, 3, 5, 7)):
        stride += 1
    return [cases[(i * stride) % len(cases)] for i in range(count)]


# R4: exact resume


class Killed(BaseException):
    """Raised instead of killing the process: nothing is saved afterward."""


@contextmanager
def at_step(step: int, act: Callable[[], None]) -> Iterator[None]:
    """Call `act` once, after `step` steps of a run. Each chunk has one step."""
    until, advance = Loop._until_due, Loop._advance
    done: list[bool] = []

    def advancing(self: Loop, *args: Any) -> None:
        advance(self, *args)
        if self.position.step == step and not done:
            done.append(True)
            act()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loop, "_until_due", lambda self: min(1, until(self)))
        patch.setattr(Loop, "_advance", advancing)
        yield


def kill() -> None:
    raise Killed


class KillingAt:
    """An observer that raises `Killed` at the n-th event of a kind. Earlier observers have received the event."""

    def __init__(self, kind: type[Event], number: int) -> None:
        self.kind, self.left = kind, number

    def notice(self, event: Event) -> None:
        self.left -= isinstance(event, self.kind)
        if not self.left and isinstance(event, self.kind):
            raise Killed


class Cut(NamedTuple):
    name: str
    step: int | None = None
    event: tuple[type[Event], int] | None = None
    signal: signal.Signals | None = None


PHASES = [
    Cut("killed in the warm-up", 2),
    Cut("killed inside an epoch", 9),
    Cut("killed before the last batch", 2 * PER_EPOCH - 1),
    Cut("killed after the last batch", 2 * PER_EPOCH),
    Cut("killed after an evaluation", event=(EpochEnd, 2)),
    Cut("killed after a checkpoint", event=(Checkpoint, 2)),
    Cut("killed after the last step", STEPS),
    Cut("killed at the end", event=(End, 1)),
    Cut("SIGTERM in the warm-up", 3, signal=signal.SIGTERM),
    Cut("SIGINT inside an epoch", 10, signal=signal.SIGINT),
    Cut("SIGHUP before the last batch", PER_EPOCH - 1, signal=signal.SIGHUP),
    Cut("SIGTERM at a boundary", PER_EPOCH, signal=signal.SIGTERM),
    Cut("SIGTERM at a checkpoint", 5, signal=signal.SIGTERM),
]


def interrupt(path: Path, cut: Cut, *case: str) -> None:
    """Train until the cut, and leave the folder as it is."""
    if cut.event is not None:
        with pytest.raises(Killed):
            train(path, *case, observers=[KillingAt(*cut.event)])
    elif cut.signal is None:
        with at_step(cut.step or 0, kill), pytest.raises(Killed):
            train(path, *case)
    else:
        number = cut.signal
        with at_step(cut.step or 0, lambda: os.kill(os.getpid(), number)):
            run = train(path, *case)
        assert (run.signal, run.end.status) == (number, "interrupted")
        saved = RunFolder.open(path).latest()
        assert saved is not None
        assert saved.step == cut.step  # R5: within a step


@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_stopped_in_any_phase_equals_an_uninterrupted_one(
    engine: str, tried: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, "LOG_EVERY", 4)
    cases = part(list(itertools.product(OPTIMIZERS, NETWORKS, PHASES)), 26)
    with memory_folder() as folder:
        whole: dict[tuple[str, str], Path] = {}
        assert {cut for _, _, cut in cases} == set(PHASES)
        assert {name for name, _, _ in cases} == set(OPTIMIZERS)
        assert {name for _, name, _ in cases} == set(NETWORKS)
        for i, (optimizer, network, cut) in enumerate(cases):
            case = (engine, optimizer, network)
            if case[1:] not in whole:
                whole[case[1:]] = folder / f"whole{i}"
                train(whole[case[1:]], *case)
            path = folder / f"cut{i}"
            interrupt(path, cut, *case)
            assert resume(path, data=data(), quiet=True).end.status == "finished", (case, cut.name)
            equal(path, whole[case[1:]])
    tried("R4: runs cut and resumed (optimizer × network × phase)", len(cases))
    tried("R5: signals inside a run, saved within a step", sum(cut.signal is not None for _, _, cut in cases))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_stopped_at_every_step_equals_an_uninterrupted_one(engine: str, tried: Tried) -> None:
    """The run is stopped and resumed at every step."""
    case = (engine, "adam", "layer norm and dropout")
    with memory_folder() as folder:
        train(folder / "whole", *case)
        path = folder / "cut"
        with at_step(1, lambda: os.kill(os.getpid(), signal.SIGTERM)):
            train(path, *case)
        for step in range(2, STEPS):
            with at_step(step, lambda: os.kill(os.getpid(), signal.SIGTERM)):
                assert resume(path, data=data(), quiet=True).signal == signal.SIGTERM
        assert resume(path, data=data(), quiet=True).end.status == "finished"
        one, other = RunFolder.open(path), RunFolder.open(folder / "whole")
        assert one.model.read_bytes() == other.model.read_bytes()
        assert same(one.events(), other.events())
    tried("R4: cuts of one run, one after another", STEPS - 1)


# R5: signals at any time, from outside

CHILD = """
import sys
import numpy as np
from multilayer.cli.main import main
sys.argv = ["mlp", "train", "moons", "--engine", "fused", "--epochs", "100000", "--run", sys.argv[1], "--quiet"]
main()
"""


def test_signals_at_random_times(tried: Tried) -> None:
    """The exit codes are 143, 130 and 129, a checkpoint to resume from exists, and no process remains."""
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    count = 40 if FULL else 1
    chance = np.random.default_rng(3)
    with memory_folder() as folder:
        for i, number in enumerate(signals * count):
            path = folder / str(i)
            child = subprocess.Popen([sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, text=True)
            log = path / "events.jsonl"
            while child.poll() is None and not (log.exists() and log.stat().st_size):
                time.sleep(0.01)
            time.sleep(chance.random() * 0.5)
            child.send_signal(number)
            out, _ = child.communicate(timeout=60)
            assert child.returncode == 128 + number
            assert "to continue: mlp resume" in out
            kept = RunFolder.open(path)
            saved, end = kept.latest(), kept.events()[-1]
            assert saved is not None
            assert isinstance(end, End)
            assert (end.status, saved.step) == ("interrupted", end.step)
            with pytest.raises(ProcessLookupError):
                os.killpg(child.pid, 0)
    tried("R5: signals at random times", len(signals) * count)


# R6: non-finite values


class Made(NamedTuple):
    make: Callable[..., Any]
    square_overflows: float = 1e200
    product_overflows: float = 1.5e308


BAD = {
    "fused": Made(FusedEngine, 1e30, 3e38),
    "fused, float64": Made(partial(FusedEngine, dtype="float64")),
    "numpy": Made(partial(NumpyEngine, dtype=np.float64)),
    "torch": Made(partial(TorchEngine, dtype="float64")),
}


def looped(
    name: str, made: Data, *, rows: int | None = None, text: str = "3-4:tanh-4:tanh-1"
) -> tuple[Loop, list[Event]]:
    spec = Spec.parse(text)
    engine = BAD[name].make(spec, made, Settings(loss="mse", optimizer="momentum", average=0.9))
    events: list[Event] = []

    class Log:
        def notice(self, event: Event) -> None:
            events.append(event)

    always = schedule("constant")
    plan = Plan(
        rows=np.arange(rows or len(made)),
        batch=BATCH,
        epochs=2,
        seed=0,
        rate=0.01,
        decay=0.0,
        rate_schedule=always,
        decay_schedule=always,
        dropout_schedule=always,
        log_every=7,
        checkpoint_every=1000,
        metric="loss",
        larger=False,
    )
    loop = Loop(
        plan=plan,
        spec=spec,
        engine=engine,
        policies=[],
        observers=[Log()],
        evaluate=lambda _: (None, {}),
        save=lambda *_: None,
    )
    return loop, events


@contextmanager
def chunks_of(steps: int) -> Iterator[None]:
    until = Loop._until_due

    def cut(self: Loop) -> int:
        self.per_step = 1e-9
        return min(steps, until(self))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loop, "_until_due", cut)
        yield


PLACES = {"the first step": 0, "inside the epoch": 3, "its last batch": 6, "the second epoch": 10}
"""Steps from 0; an epoch of 52 rows has 7, the last of 4 rows."""


@pytest.mark.parametrize("engine", BAD)
def test_a_value_that_is_not_finite_is_reported_and_its_step_is_undone(engine: str, tried: Tried) -> None:
    generator = np.random.default_rng(1)
    plain = Data(x=generator.normal(size=(52, 3)), y=generator.normal(size=(52, 1)))
    values, absurd_target = (math.nan, math.inf, -math.inf), BAD[engine].square_overflows
    cases = list(itertools.product(("input", "target", "loss"), values, PLACES.values(), (1, 7, 1000)))
    cases = part(cases, 36)
    for where, value, place, steps in cases:
        loop, _ = looped(engine, plain)
        order = loop.plan.order(place // 7)
        row = int(order.batches()[place % 7][2])

        def spoil(batch: Any, whole: Any, rows: Any, epoch: int, row: int = row, at: int = place // 7) -> Any:
            hit = (rows == row) & (epoch == at)
            if where == "input":  # noqa: B023
                return replace(batch, x=np.where(hit[:, None] & (np.arange(3) == 1), value, batch.x))  # noqa: B023
            absurd = absurd_target if where == "loss" else value  # noqa: B023
            return replace(batch, y=np.where(hit[:, None], absurd, batch.y))

        # One row in one epoch is bad, as from an error in an augmentation.
        clean, _ = looped(engine, plain)
        states = _states(clean, place)
        loop, events = looped(engine, replace(plain, augment=spoil))
        with chunks_of(steps):
            outcome = loop.run()
        bad = next(event for event in events if isinstance(event, NonFinite))
        assert outcome.status == "stopped"
        assert (bad.step, bad.where, bad.rows) == (place + 1, where, [row])
        assert bad.unit == {"input": 1, "target": 0, "loss": None}[where]
        assert loop.engine.state().equals(states)
    tried("R6: non-finite values in input, target, loss × step × chunk", len(cases))


def _states(loop: Loop, steps: int) -> Any:
    """Return the state after `steps` steps without bad values."""
    for epoch in range(loop.plan.epochs):
        for rows in loop.plan.order(epoch).batches():
            if loop.engine.state().step == steps:
                return loop.engine.state()
            ones = np.ones(1)
            order = replace(loop.plan.order(epoch), rows=rows)
            loop.engine.run(order, rate=0.01 * ones, decay=0 * ones, dropout=ones)
    return loop.engine.state()


@pytest.mark.parametrize("engine", BAD)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_weights_and_gradients_that_are_not_finite_are_reported(engine: str, value: float, tried: Tried) -> None:
    plain = Data(x=np.zeros((16, 3)), y=np.full((16, 1), 10.0))
    names = ("linear1.weight", "linear2.bias", "linear3.weight")
    for name in names:
        loop, events = looped(engine, plain)
        state = loop.engine.state()
        state.parameters[name].flat[-1] = value
        loop.engine.load(state)
        assert loop.run().status == "stopped"
        bad = next(event for event in events if isinstance(event, NonFinite))
        assert (bad.step, bad.where, bad.layer) == (1, "parameter", name.partition(".")[0])
        assert bad.unit == len(state.parameters[name]) - 1
        assert loop.engine.state().equals(state)
    # The outputs for rows of zeros are zero, and the gradient overflows in the backward pass through huge weights.
    loop, events = looped(engine, plain)
    state = loop.engine.state()
    state.parameters["linear3.weight"][:] = BAD[engine].product_overflows
    loop.engine.load(state)
    assert loop.run().status == "stopped"
    bad = next(event for event in events if isinstance(event, NonFinite))
    assert (bad.step, bad.where, bad.layer) == (1, "gradient", "linear2")
    assert loop.engine.state().equals(state)
    tried("R6: non-finite weights and gradients", len(names) + 1)


# R14 and chunks


RERUNS = 20


@pytest.mark.parametrize(
    ("engine", "threads"), [("fused", None), ("numpy", None), ("torch", 1), ("torch", 2)], ids=lambda value: str(value)
)
def test_reruns_are_bit_identical(engine: str, threads: int | None, tried: Tried) -> None:
    cases = list(itertools.product(OPTIMIZERS, NETWORKS)) if FULL else [("adamw", "layer norm and dropout")]
    reruns = RERUNS if FULL or threads != 2 else 5  # slow on a busy machine
    with memory_folder() as folder:
        for optimizer, network in cases:
            first = folder / f"{optimizer} {network}"
            train(first, engine, optimizer, network, threads=threads, epochs=2)
            for again in range(1, reruns):
                path = folder / f"{optimizer} {network} {again}"
                train(path, engine, optimizer, network, threads=threads, epochs=2)
                equal(path, first)
    tried("R14: reruns compared", len(cases) * reruns)


@pytest.mark.parametrize("engine", ["fused", "torch"])
def test_reruns_with_steps_large_enough_for_two_threads(engine: str, tried: Tried) -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(1024, 64)).astype(np.float32)
    rows = (x, x[:, :10].argmax(1))
    runs = []
    for _ in range(RERUNS if FULL else 3):
        run = fit("64-256:relu-256:relu-10", rows, epochs=2, batch_size=256, engine=engine, threads=2, quiet=True)
        assert run.model is not None
        runs.append(run)
    for run in runs[1:]:
        assert same(run.log, runs[0].log)
        assert all(np.array_equal(run.model.tensors[name], t) for name, t in runs[0].model.tensors.items())
    tried("R14: reruns compared", len(runs))


SCENARIOS: dict[str, dict[str, Any]] = {
    "to the end": {},
    "early stopping": {"patience": 1, "learning_rate": 0.2, "epochs": 12},
    "non-finite values, rolled back": {"learning_rate": 1e160, "epochs": 2},
    "stopped at a spike": {"learning_rate": 1e160, "on_spike": "stop"},
}


@pytest.mark.parametrize("engine", ENGINES)
def test_chunks_of_1_7_and_1000_steps_give_equal_runs(
    engine: str, tried: Tried, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, "LOG_EVERY", 1000)  # so that only `chunks_of` limits a chunk
    seen: dict[str, set[str]] = {}
    count = 0
    cases = part(list(itertools.product(OPTIMIZERS, NETWORKS)), 3)
    with memory_folder() as folder:
        for i, ((optimizer, network), name) in enumerate(itertools.product(cases, SCENARIOS)):
            options = {"dtype": "float64", "checkpoint_every": 1000, **SCENARIOS[name]}
            for steps in (1, 7, 1000):
                path = folder / f"{i} {steps}"
                with chunks_of(steps):
                    run = train(path, engine, optimizer, network, **options)
                equal(path, folder / f"{i} 1")
                count += 1
            seen.setdefault(name, set()).add(run.end.status)
            seen[name] |= {type(event).__name__ for event in run.log}
            # Stop a run with one chunk length, and resume it with another.
            for steps, later in ((1, 1000), (7, 1), (1000, 7)) if name in ("to the end", "early stopping") else ():
                path = folder / f"{i} {steps} {later}"
                with chunks_of(steps), pytest.raises(Killed):
                    train(path, engine, optimizer, network, observers=[KillingAt(EpochEnd, 2)], **options)
                with chunks_of(later):
                    resume(path, data=data(), quiet=True)
                equal(path, folder / f"{i} 1")
                count += 1
    assert "stopped" in seen["early stopping"]
    assert NonFinite.__name__ in seen["stopped at a spike"]
    assert RolledBack.__name__ in seen["non-finite values, rolled back"]
    tried("chunks of 1, 7 and 1000 steps compared", count)
