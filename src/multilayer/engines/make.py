"""Create an engine by name, for one network or for an ensemble whose members train on different rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..core import machine, random
from ..core.sparse import rows_of
from ..data.batches import Data, Rows
from ..errors import OptionError, needed_by, option
from ..nn import losses
from ..spec import Spec, initialization
from .ensemble import Ensemble, Member
from .fused_engine import FusedEngine
from .fused_program import why_not
from .protocol import Engine, Settings


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Options of an engine. `init` is an initialization scheme; "data" fits the initial parameters to the rows."""

    name: str
    init: str = "auto"
    dtype: str = "float32"
    device: str = "auto"
    compile: bool = False
    threads: int | None = None


def choose_engine(spec: Spec, options: EngineOptions, *, loss: str, optimizer: str) -> str:
    """Return the name of the engine. "auto" means fused if it supports the network and options, otherwise torch."""
    if options.name == "fused" and (options.device == "cuda" or options.compile):
        given = option("device", "cuda") if options.device == "cuda" else option("compile", "True")
        raise OptionError(f"the fused engine runs on the CPU only, got {given}: use {option('engine', 'torch')} for it")
    if options.name != "auto":
        return options.name
    plain = options.device in ("auto", "cpu") and options.dtype != "bfloat16" and not options.compile
    return "fused" if plain and why_not(spec, loss, optimizer) is None else "torch"


def make_engine(spec: Spec, data: Data, settings: Settings, options: EngineOptions, rows: Rows) -> Engine:
    """Return an engine for one network. `rows` are the training rows."""
    assert options.name in ENGINES, f"call choose_engine first, got {options.name!r}"
    by_scheme = replace(options, init="auto") if options.init == "data" else options
    engine = ENGINES[options.name](spec, data, settings, by_scheme)
    if options.init == "data":
        _fit_to_rows(engine, spec, settings, rows)
    return engine


def make_ensemble(spec: Spec, data: Data, settings: Settings, options: EngineOptions, rows: Sequence[Rows]) -> Ensemble:
    """Return an ensemble with one member per element of `rows`. Each member has a different seed."""
    threads = machine.threads() if options.threads is None else options.threads
    shared = replace(options, threads=max(1, threads // len(rows)))
    members: list[Member] = []
    for i, own_rows in enumerate(rows):
        own = replace(settings, seed=random.derive(settings.seed, i))
        engine = make_engine(spec, data, own, shared, own_rows)
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


def _numpy(spec: Spec, data: Data, settings: Settings, options: EngineOptions) -> Engine:
    from .numpy_engine import NumpyEngine

    dtype = {"float32": np.float32, "float64": np.float64}.get(options.dtype, np.float32)
    return NumpyEngine(spec, data, settings, init=options.init, dtype=dtype)


def _fused(spec: Spec, data: Data, settings: Settings, options: EngineOptions) -> Engine:
    return FusedEngine(spec, data, settings, init=options.init, dtype=options.dtype, threads=options.threads)


def _torch(spec: Spec, data: Data, settings: Settings, options: EngineOptions) -> Engine:
    why = why_not(spec, settings.loss, settings.optimizer)
    with needed_by("the torch engine" if why is None else f"this network ({why})"):
        from .torch_engine import TorchEngine

    return TorchEngine(
        spec,
        data,
        settings,
        init=options.init,
        dtype=options.dtype,
        device=options.device,
        compile=options.compile,
        threads=options.threads,
    )


ENGINES: dict[str, Callable[[Spec, Data, Settings, EngineOptions], Engine]] = {
    "fused": _fused,
    "numpy": _numpy,
    "torch": _torch,
}
