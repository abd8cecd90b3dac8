"""Create an engine by name, for one network or for an ensemble whose members train on different rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ..core import machine, random
from ..core.sparse import rows_of
from ..data.batches import Data, Rows
from ..errors import OptionError, needed_by, option
from ..nn import losses
from ..spec import Spec, initialization
from .config import EngineConfig
from .ensemble import Ensemble, Member
from .fused_engine import FusedEngine
from .fused_program import why_not
from .protocol import Engine, Settings


def choose_engine(spec: Spec, config: EngineConfig, *, loss: str) -> str:
    """Return the name of the engine. "auto" means fused if it supports the network and options, otherwise torch."""
    if config.engine == "fused" and (config.device == "cuda" or config.compile):
        given = option("device", "cuda") if config.device == "cuda" else option("compile", "True")
        raise OptionError(f"the fused engine runs on the CPU only, got {given}: use {option('engine', 'torch')} for it")
    if config.engine != "auto":
        return config.engine
    plain = config.device in ("auto", "cpu") and config.dtype != "bfloat16" and not config.compile
    return "fused" if plain and why_not(spec, loss, config.optimizer) is None else "torch"


def make_engine(spec: Spec, data: Data, settings: Settings, rows: Rows) -> Engine:
    """Return an engine for one network. `rows` are the training rows; with init="data", the initial parameters are
    fitted to them."""
    assert settings.engine in ENGINES, f"call choose_engine first, got {settings.engine!r}"
    if settings.init != "data":
        return ENGINES[settings.engine](spec, data, settings)
    engine = ENGINES[settings.engine](spec, data, replace(settings, init="auto"))
    _fit_to_rows(engine, spec, settings, rows)
    return engine


def make_ensemble(spec: Spec, data: Data, settings: Settings, rows: Sequence[Rows]) -> Ensemble:
    """Return an ensemble with one member per element of `rows`. Each member has a different seed."""
    threads = machine.threads() if settings.threads is None else settings.threads
    members: list[Member] = []
    for i, own_rows in enumerate(rows):
        own = replace(settings, seed=random.derive(settings.seed, i), threads=max(1, threads // len(rows)))
        engine = make_engine(spec, data, own, own_rows)
        members.append(Member(engine=engine, rows=own_rows, seed=own.seed))
    return Ensemble(members, losses.get(settings.loss), threads=threads)


def _fit_to_rows(engine: Engine, spec: Spec, settings: Settings, rows: Rows) -> None:
    """Replace the initial parameters by parameters that are fitted to the rows."""
    data, state = engine.data, engine.state()
    codes = None if data.codes is None else data.codes[rows]
    values = initialization.from_rows(spec, rows_of(data.x, rows), codes, seed=settings.seed)
    first = {
        name: value.astype(state.parameters[name].dtype) for name, value in values.items() if name in state.parameters
    }
    averages = {name: value.copy() for name, value in first.items()} if state.averages else {}
    engine.load(replace(state, parameters=first, averages=averages))


def _numpy(spec: Spec, data: Data, settings: Settings) -> Engine:
    from .numpy_engine import NumpyEngine

    dtype = {"float32": np.float32, "float64": np.float64}.get(settings.dtype, np.float32)
    return NumpyEngine(spec, data, settings, init=settings.init, dtype=dtype)


def _fused(spec: Spec, data: Data, settings: Settings) -> Engine:
    return FusedEngine(spec, data, settings, init=settings.init, dtype=settings.dtype, threads=settings.threads)


def _torch(spec: Spec, data: Data, settings: Settings) -> Engine:
    why = why_not(spec, settings.loss, settings.optimizer)
    with needed_by("the torch engine" if why is None else f"this network ({why})"):
        from .torch_engine import TorchEngine

    return TorchEngine(
        spec,
        data,
        settings,
        init=settings.init,
        dtype=settings.dtype,
        device=settings.device,
        compile=settings.compile,
        threads=settings.threads,
    )


ENGINES: dict[str, Callable[[Spec, Data, Settings], Engine]] = {
    "fused": _fused,
    "numpy": _numpy,
    "torch": _torch,
}
