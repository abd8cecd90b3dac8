"""Statistics of every tensor at a given interval are the same on every engine and for any chunk length."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import multilayer as ml
from multilayer.cli.main import app
from multilayer.data.batches import Data
from multilayer.engines import Chunk, Order, Settings
from multilayer.engines.fused_engine import FusedEngine
from multilayer.engines.numpy_engine import NumpyEngine
from multilayer.engines.torch_engine import TorchEngine
from multilayer.errors import OptionError
from multilayer.spec import Spec
from support.engines import on_all_threads

TEXT = "4-9:prelu:dropout(0.2)-layernorm-[glu(9)]-2"
ENGINES: dict[str, dict[str, Any]] = {
    "numpy": {"make": NumpyEngine, "dtype": np.float64},
    "torch": {"make": TorchEngine, "dtype": "float64"},
    "reference": {"make": FusedEngine, "dtype": "float64"},
    "fused": {"make": FusedEngine},
    "fused, 3 threads": {"make": lambda *given, **how: on_all_threads(FusedEngine(*given, **how), 3)},
}


def engine(make: Any, *, statistics_every: int | None = 3, clip_norm: float | None = 0.1, **options: Any) -> Any:
    x = np.random.default_rng(0).normal(size=(60, 4))
    data = Data(x=x, y=(x[:, 0] > 0).astype(np.int64))
    settings = Settings(loss="cross_entropy", optimizer="adamw", clip_norm=clip_norm, statistics_every=statistics_every)
    return make(Spec.parse(TEXT), data, settings, **options)


def steps(of: Any, rows: slice) -> Chunk:
    taken = np.arange(60)[rows]
    one = np.ones(-(-len(taken) // 6))
    return of.run(Order(epoch=0, rows=taken, batch=6), rate=0.01 * one, decay=0.1 * one, dropout=one)


@pytest.mark.parametrize("name", ENGINES)
def test_statistics_are_the_norms_at_their_step(name: str) -> None:
    reported = steps(engine(**ENGINES[name]), slice(None)).statistics
    assert [one.place for one in reported] == [2, 5, 8]
    single = engine(**{**ENGINES[name], "statistics_every": None})
    for place in range(9):
        rows = np.arange(6 * place, 6 * place + 6)
        found = single.gradients(rows, epoch=0).gradients
        single.run(Order(epoch=0, rows=rows, batch=6), rate=np.full(1, 0.01), decay=np.full(1, 0.1), dropout=np.ones(1))
        one = next((one for one in reported if one.place == place), None)
        if one is None:
            continue
        values = single.state().parameters
        assert list(one.gradients) == list(one.parameters) == list(found)
        for key, g in found.items():
            assert one.gradients[key] == pytest.approx(np.linalg.norm(g.astype(np.float64)), rel=1e-6, abs=1e-12)
            assert one.parameters[key] == pytest.approx(np.linalg.norm(values[key].astype(np.float64)), rel=1e-6)


@pytest.mark.parametrize("name", ENGINES)
def test_the_chunk_length_does_not_change_the_statistics(name: str) -> None:
    whole = steps(engine(**ENGINES[name]), slice(None)).statistics
    cut = engine(**ENGINES[name])
    again = [
        (start // 6 + one.place, one.gradients, one.parameters)
        for start, end in ((0, 6), (6, 30), (30, 60))
        for one in steps(cut, slice(start, end)).statistics
    ]
    assert again == [(one.place, one.gradients, one.parameters) for one in whole]


def test_the_norms_of_all_tensors_combine_to_that_of_the_step() -> None:
    chunk = steps(engine(FusedEngine), slice(None))
    for one in chunk.statistics:
        assert np.hypot.reduce(list(one.gradients.values())) == pytest.approx(chunk.gradient_norm[one.place], rel=1e-12)


def test_events_contain_the_statistics_of_every_member() -> None:
    x = np.random.default_rng(0).normal(size=(120, 3))
    run = ml.fit("3-5-1", (x, x[:, 0]), epochs=4, batch_size=16, ensemble=2, statistics_every=5, quiet=True)
    reported = [event for event in run.events if event["event"] == "measured"]
    assert [event["name"] for event in reported] == ["gradient_norm", "parameter_norm"] * (len(reported) // 2)
    assert [event["step"] for event in reported[::2]] == list(range(5, 5 * (len(reported) // 2) + 1, 5))
    names = [f"member{i}/linear{j}.{part}" for i in (1, 2) for j in (1, 2) for part in ("weight", "bias")]
    assert all(sorted(event["values"]) == sorted(names) for event in reported)
    assert [event["step"] for event in run.events if event["event"] != "start"] == sorted(
        event["step"] for event in run.events if event["event"] != "start"
    )


def test_the_command_line_writes_statistics(tmp_path: Path) -> None:
    run = tmp_path / "run"
    arguments = ["train", "iris", "--arch", "4-8-3", "--epochs", "3", "--statistics-every", "4", "--quiet", "--run"]
    assert CliRunner().invoke(app, [*arguments, str(run)]).exit_code == 0
    reported = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert {event["step"] for event in reported if event["event"] == "measured"} >= {4, 8}


def test_the_interval_must_be_at_least_1() -> None:
    with pytest.raises(OptionError, match="statistics_every must be positive, got 0"):
        engine(NumpyEngine, statistics_every=0)
    with pytest.raises(OptionError, match="statistics_every must be positive"):
        ml.fit("3-1", (np.ones((9, 3)), np.arange(9.0)), statistics_every=0, quiet=True)
