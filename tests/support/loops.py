"""Small training loops on synthetic rows. Tests run, interrupt and resume them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from multilayer.data.batches import Data
from multilayer.engines import Settings, State
from multilayer.engines.numpy_engine import NumpyEngine
from multilayer.nn import schedules
from multilayer.runs.events import Checkpoint, Event
from multilayer.spec import Spec
from multilayer.training import Loop, Plan
from multilayer.training.loop import position_of


class Recorder:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.saved: list[tuple[State, dict[str, Any], str]] = []

    def notice(self, event: Event) -> None:
        self.events.append(event)

    def save(self, state: State, extra: dict[str, Any], kind: str) -> Checkpoint:
        self.saved.append((state, extra, kind))
        return Checkpoint(step=state.step, kind=kind, path=f"{state.step}", sha256="")  # type: ignore[arg-type]


def table(rows: int = 90, *, seed: int = 0) -> Data:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, 4))
    y = np.sin(x[:, :1]) + 0.3 * x[:, 1:2] * x[:, 2:3]
    return Data(x=x, y=y)


def make_loop(
    make: type,
    data: Data,
    *,
    epochs: int = 6,
    rate: float = 0.01,
    policies: Callable[[], list[Any]] = list,
    text: str = "4-8:relu:dropout(0.1)-6:tanh-1",
    **plan: Any,
) -> tuple[Loop, Recorder]:
    spec = Spec.parse(text)
    settings = Settings(loss="mse", optimizer="adam", average=0.9)
    dtype = {"dtype": np.float64} if make is NumpyEngine else {"dtype": "float64"}
    engine = make(spec, data, settings, **dtype)
    n = len(data)
    recorder = Recorder()
    held_out = np.arange(n - 20, n)

    def evaluate(engine: Any) -> tuple[float | None, dict[str, float]]:
        z = engine.outputs(held_out, averaged=True)
        return float(((z - data.y[held_out]) ** 2).mean()), {"mae": float(np.abs(z - data.y[held_out]).mean())}

    made = Plan(
        **{
            "rows": np.arange(n - 20),
            "batch": 8,
            "epochs": epochs,
            "seed": 0,
            "rate": rate,
            "decay": 0.0,
            "rate_schedule": schedules.get("cosine(warmup=0.1)"),
            "decay_schedule": schedules.get("constant"),
            "dropout_schedule": schedules.get("flat_cosine"),
            "log_every": 5,
            "checkpoint_every": 9,
            "metric": "loss",
            "larger": False,
            **plan,
        }
    )
    loop = Loop(
        plan=made,
        spec=spec,
        engine=engine,
        policies=policies(),
        observers=[recorder],
        evaluate=evaluate,
        save=recorder.save,
    )
    return loop, recorder


def restore(loop: Loop, past: Recorder) -> int:
    """Restore a new loop from the last checkpoint of another loop. Return its step."""
    state, extra, _ = next(saved for saved in reversed(past.saved) if saved[2] == "last")
    loop.engine.load(state)
    loop.position = position_of(extra)
    loop.emitted = extra["told"]
    for policy, kept in zip(loop.policies, extra["policies"], strict=True):
        policy.load(kept)
    best = [saved for saved, _, kind in past.saved if kind == "best" and saved.step == loop.position.best_step]
    loop.best = best[0] if best else None
    return state.step


def cut_to(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Limit chunks to at most `steps` steps, independently of the clock."""
    due = Loop._until_due
    monkeypatch.setattr(Loop, "_until_due", lambda self: min(steps, unhurried(self)))

    def unhurried(self: Loop) -> int:
        self.per_step = 1e-9
        return due(self)
