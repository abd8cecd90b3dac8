"""Engines made by name, and the protocol that each implements."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch

from multilayer.engines import Engine, Settings
from multilayer.engines.config import ENGINE_NAMES, EngineConfig
from multilayer.engines.make import ENGINES, choose_engine, make_engine, make_ensemble
from multilayer.errors import OptionError
from multilayer.spec import Spec
from support.engines import table

SPEC = Spec.parse("4-6:tanh-2")
ROWS = np.arange(30)
every_engine = pytest.mark.parametrize("name", ENGINES)


def made(name: str, *, members: int = 1, threads: int | None = None) -> Engine:
    data, settings = table(SPEC, 30), Settings(loss="mse", engine=name, threads=threads)
    if members == 1:
        return make_engine(SPEC, data, settings, ROWS)
    return make_ensemble(SPEC, data, settings, [ROWS] * members)


def test_the_option_engine_names_every_engine() -> None:
    assert ("auto", *ENGINES) == ENGINE_NAMES


@every_engine
@pytest.mark.parametrize("members", [1, 2])
def test_engines_implement_the_protocol(name: str, members: int) -> None:
    engine = made(name, members=members, threads=1)
    for member, expected in inspect.getmembers(Engine):
        if not member.startswith("_"):
            assert callable(getattr(engine, member)) == inspect.isfunction(expected), member
    assert (engine.name, engine.networks, engine.notes) == (name, members, ())
    assert engine.places == (None if members == 1 else 30)
    assert sorted(engine.own_rows(ROWS, epoch=1)) == ROWS.tolist()
    engine.stop()
    engine.close()


@every_engine
@pytest.mark.parametrize("members", [1, 2])
def test_member_outputs_have_the_outputs_of_each_network(name: str, members: int) -> None:
    engine = made(name, members=members)
    found = engine.member_outputs(ROWS[:5])  # (networks, rows, d_out)
    assert found.shape == (members, 5, 2)
    np.testing.assert_allclose(found.mean(0), engine.outputs(ROWS[:5]), rtol=1e-6)
    engine.close()


def test_closing_an_ensemble_restores_the_threads_of_torch() -> None:
    before = torch.get_num_threads()
    engine = made("torch", members=2, threads=2 * (before + 1))
    assert torch.get_num_threads() != before
    engine.close()
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ({}, "fused"),
        ({"dtype": "bfloat16"}, "torch"),
        ({"compile": True}, "torch"),
        ({"device": "cuda"}, "torch"),
        ({"engine": "numpy"}, "numpy"),
    ],
)
def test_auto_chooses_the_fused_engine_if_possible(options: dict[str, str], chosen: str) -> None:
    assert choose_engine(SPEC, EngineConfig(**options), loss="mse") == chosen  # type: ignore[arg-type]


def test_auto_chooses_torch_for_layers_without_a_kernel() -> None:
    assert choose_engine(Spec.parse("4-kan(8)-1"), EngineConfig(), loss="mse") == "torch"


def test_the_fused_engine_refuses_other_devices() -> None:
    with pytest.raises(OptionError, match="runs on the CPU only, got device="):
        choose_engine(SPEC, EngineConfig(engine="fused", device="cuda"), loss="mse")
