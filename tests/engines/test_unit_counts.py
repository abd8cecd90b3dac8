"""Counts of inactive and flat rows equal a brute-force pass on every engine, and change no bit of training."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, cast

import numpy as np
import pytest
import scipy.sparse
from pandas import DataFrame

from multilayer.core import _core, random
from multilayer.core.random import Purpose
from multilayer.core.sparse import Sparse
from multilayer.data import TrainingData
from multilayer.data.batches import Data
from multilayer.engines import Chunk, Engine, Order, Settings, UnitCounts, fused_engine
from multilayer.engines.ensemble import Ensemble
from multilayer.engines.fused_engine import FusedEngine
from multilayer.engines.numpy_engine import NumpyEngine
from multilayer.engines.torch_engine import TorchEngine
from multilayer.engines.unit_counts import counted_layers, counted_range
from multilayer.nn import activations
from multilayer.nn.activations.properties import dead_range, saturates
from multilayer.nn.layers import Activation, Layer, Pass, Residual, named
from multilayer.runs.config import Config
from multilayer.spec import Spec
from multilayer.training.fit import given_options, read_and_choose
from multilayer.training.recipe import Recipe
from multilayer.training.setup import make_engine
from support.cases import ACTIVATIONS, Case
from support.engines import on_all_threads, orders, table
from support.training_rows import prepare

pytestmark = pytest.mark.usefixtures("one_thread")

RATE = 0.01
ROWS, BATCH, EPOCHS = 37, 17, 2
"""Several batches, of which the last is smaller, and none fills its last panel of 16 rows."""
MARGIN = 1e-5
"""Smallest distance of z from a bound, so that rounding cannot move it to the other side. z = bound is allowed."""

NETWORKS = {
    "widths": "5-33:relu-1:hard_tanh-65:tanh-3",
    "dropout": "5-40:relu:dropout(0.5)-19:gelu:dropout(0.2)-3",
    "dropout before": "5-dropout(0.3)-relu-9:dropout(0.4):hard_tanh-3",
    "residual": "5-16:relu-[layernorm-33:relu:dropout(0.3)-16:hard_tanh]-[[16:elu]:relu]-3",
    "norms": "6-batchnorm-20:batchnorm:relu-18:rmsnorm:sigmoid-groupnorm(3)-18:layernorm:hard_tanh-3",
    "at the end": "5-9:silu-3:hard_tanh",
    "columns": "3+cat(2, 9)-columns(d_category=3)-17:relu-4",
    "gates are not counted": "5-reglu(8)-4:relu-3",
    "two after each other": "5-8:relu:tanh:relu-3",
}
KERNELS = {core: {"core": core} for core in (*_core.fused_kernels(), "reference")}
FUSED: dict[str, dict[str, Any]] = {"double": {"dtype": "float64"}, **KERNELS}
COUNTED = [
    case
    for cases in ACTIVATIONS.values()
    for case in cases
    if any(isinstance(e.layer, Activation) and e.layer.function.elementwise for e in case.spec.entries)
]


saturation_points = cache(saturates)


@dataclass
class BruteForce:
    """Counts of every value z by the definitions, in float64 and without arrays of bounds."""

    counts: dict[str, UnitCounts] = field(default_factory=dict[str, UnitCounts])
    nearest: float = np.inf
    """Smallest distance of a z from a bound that it does not equal."""

    def step(self, engine: NumpyEngine, order: Order) -> None:
        """Count the values of the first forward pass of an order with one batch."""
        spec, state, masks = engine.spec, engine.state(), itertools.count()

        def keep(d: int, p: float) -> np.ndarray:
            kept = random.keep(
                engine.settings.seed,
                Purpose.DROPOUT,
                rows=order.rows,
                units=d,
                p=p,
                epoch=order.epoch,
                part=next(masks),
            )
            return kept / (1 - p)

        tensors = {place: state.parameters[name] for place, name in spec.tensor_names.items()} | state.buffers
        batch = engine.data.take(order.rows)
        x = batch.x if batch.codes is None else (batch.x, batch.codes)
        run = Pass(training=True, keep=keep, categories=spec.inputs.categories)
        self._layers(spec.layers, x, tensors, "", run)

    def _layers(self, layers: Iterable[Layer], x: Any, tensors: Mapping[str, np.ndarray], path: str, run: Pass) -> Any:
        for name, layer in named(layers):
            place = f"{path}{name}"
            if isinstance(layer, Residual):
                x = x + self._layers(layer.layers, x, tensors, f"{place}.", run)
                continue
            if isinstance(layer, Activation) and layer.function.elementwise:
                self._count(place, layer.function, x)
            own = {key.removeprefix(f"{place}."): v for key, v in tensors.items() if key.startswith(f"{place}.")}
            x, _ = layer.forward(x, own, run)
        return x

    def _count(self, name: str, fn: activations.ActivationFunction, z: np.ndarray) -> None:
        low, high = saturation_points(fn)
        if not fn.dies and low is None and high is None:
            return
        inactive, flat = np.zeros(z.shape[1], np.int64), np.zeros(z.shape[1], np.int64)
        for row in z:
            inactive += (fn.df(row) == 0) & fn.dies
            flat += ((row < (-np.inf if low is None else low)) | (row > (np.inf if high is None else high))) & (
                fn.vanishes or not fn.dies
            )
        for bound in (low, high, *dead_range(fn)):
            away = np.abs(z - bound) if bound is not None and np.isfinite(bound) else np.full(1, np.inf)
            self.nearest = min(self.nearest, away[away > 1e-12].min(initial=np.inf))
        found = UnitCounts(len(z), inactive, flat)
        self.counts[name] = self.counts[name] + found if name in self.counts else found


def settings() -> Settings:
    """Return settings without Adam, which turns roundings of a gradient that is 0 into steps."""
    return Settings(loss="mse", optimizer="momentum", seed=3, average=0.9)


def run(engine: Engine, order: Order, *, count_units: bool = True) -> Chunk:
    one = np.ones(order.steps)
    return engine.run(order, rate=RATE * one, decay=0.1 * one, dropout=one, count_units=count_units)


def total(engine: Engine, some: Iterable[Order]) -> dict[str, UnitCounts]:
    found: dict[str, UnitCounts] = {}
    for order in some:
        for name, units in run(engine, order).units.items():
            found[name] = found[name] + units if name in found else units
    return found


def brute_force(spec: Spec, rows: int = ROWS, batch: int = BATCH) -> tuple[Data, dict[str, UnitCounts]]:
    """Return a table, and the counts over its epochs. No value of the table is close to a bound."""
    for seed in range(40):
        data, found = table(spec, rows, seed=seed), BruteForce()
        engine = NumpyEngine(spec, data, settings())
        for order in orders(rows, batch, EPOCHS):
            for part in order.batches():
                single = Order(epoch=order.epoch, rows=part, batch=len(part))
                found.step(engine, single)
                run(engine, single, count_units=False)
        if found.nearest > MARGIN:
            return data, found.counts
    raise AssertionError("every table has a value close to a bound")


def assert_equal(found: Mapping[str, UnitCounts], expected: Mapping[str, UnitCounts]) -> None:
    assert list(found) == list(expected)
    for name, counts in expected.items():
        assert found[name].rows == counts.rows, name
        for kind in ("inactive", "flat"):
            one, other = getattr(found[name], kind), getattr(counts, kind)
            assert one.dtype == np.int64
            np.testing.assert_array_equal(one, other, err_msg=f"{name} {kind}")


def engines(spec: Spec, data: Data) -> dict[str, Engine]:
    found: dict[str, Engine] = {"numpy": NumpyEngine(spec, data, settings())}
    found["numpy, float32"] = NumpyEngine(spec, data, settings(), dtype=np.float32)
    found["torch"] = TorchEngine(spec, data, settings(), dtype="float32")
    found["torch, double"] = TorchEngine(spec, data, settings(), dtype="float64")
    if fused_engine.why_not(spec) is None:
        found |= {name: FusedEngine(spec, data, settings(), **how) for name, how in FUSED.items()}
        for kernels, threads in itertools.product(_core.fused_kernels(), (1, 2, 3)):
            name = f"{kernels}, {threads} threads"
            found[name] = on_all_threads(FusedEngine(spec, data, settings()), threads, kernels)
    return found


@pytest.mark.parametrize("text", NETWORKS.values(), ids=NETWORKS)
def test_counts_equal_a_brute_force_pass(text: str) -> None:
    spec = Spec.parse(text)
    data, expected = brute_force(spec)
    assert expected
    assert any(counts.inactive.any() and (counts.inactive < counts.rows).any() for counts in expected.values())
    for engine in engines(spec, data).values():
        assert_equal(total(engine, orders(ROWS, BATCH, EPOCHS)), expected)


@pytest.mark.parametrize("case", COUNTED, ids=lambda case: case.name)
def test_counts_of_every_activation(case: Case) -> None:
    data, expected = brute_force(case.spec)
    for engine in engines(case.spec, data).values():
        assert_equal(total(engine, orders(ROWS, BATCH, EPOCHS)), expected)


@pytest.mark.parametrize(("rows", "batch"), [(1, 1), (3, 1), (16, 16), (20, 7), (200, 160)])
def test_counts_for_batches_of_any_size(rows: int, batch: int) -> None:
    spec = Spec.parse("5-18:relu-[layernorm-17:hard_tanh-18]-3")
    data, expected = brute_force(spec, rows, batch)
    for engine in engines(spec, data).values():
        assert_equal(total(engine, orders(rows, batch, EPOCHS)), expected)


def test_values_at_the_bounds() -> None:
    """f′ is 0 at the bound itself, which is not beyond the saturation point. −0 equals 0."""
    one = np.float32(1)
    z = np.array([[-1e6, -1.5, -1, -np.nextafter(one, one / 2), -0.0, 0.0, 1e-30, 1, np.nextafter(one, 2 * one), 2]])
    for name, inactive, flat in (
        ("relu", [1, 1, 1, 1, 1, 1, 0, 0, 0, 0], [0] * 10),  # a sparse unit is not saturated
        ("hard_tanh", [1, 1, 1, 0, 0, 0, 0, 1, 1, 1], [1, 1, 0, 0, 0, 0, 0, 0, 1, 1]),
    ):
        spec = Spec.parse(f"10-{name}-1")
        data = Data(x=z, y=np.zeros((1, 1)))
        for engine in engines(spec, data).values():
            (found,) = total(engine, [Order(epoch=0, rows=np.zeros(3, np.int64), batch=2)]).values()
            np.testing.assert_array_equal(found.inactive, 3 * np.array(inactive))
            np.testing.assert_array_equal(found.flat, 3 * np.array(flat))


@pytest.mark.parametrize("text", NETWORKS.values(), ids=NETWORKS)
def test_counting_changes_no_bit(text: str) -> None:
    spec = Spec.parse(text)
    data = table(spec, ROWS)
    for plain, counted in zip(engines(spec, data).values(), engines(spec, data).values(), strict=True):
        for order in orders(ROWS, BATCH, EPOCHS):
            expected, found = run(plain, order, count_units=False), run(counted, order)
            assert not expected.units
            assert found.units
            np.testing.assert_array_equal(found.loss, expected.loss)
            np.testing.assert_array_equal(found.gradient_norm, expected.gradient_norm)
        assert counted.state().equals(plain.state())


def test_counts_do_not_depend_on_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = Spec.parse(NETWORKS["residual"])
    data = table(spec, 100)
    (order,) = orders(100, 8, 1)
    parts = [Order(epoch=0, rows=order.rows[i : i + 24], batch=8) for i in range(0, 100, 24)]
    for whole, cut in zip(engines(spec, data).values(), engines(spec, data).values(), strict=True):
        assert_equal(total(cut, parts), run(whole, order).units)


def test_counts_of_rows_that_are_computed_in_several_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = Spec.parse("30-9:relu-17:hard_tanh-2")
    data = table(spec, 50)
    assert isinstance(data.x, np.ndarray)
    x = np.where(np.abs(data.x) > 1, data.x, 0).astype(np.float32)
    sparse = Data(x=Sparse.of_scipy(scipy.sparse.csr_matrix(x)), y=data.y)
    dense = run(FusedEngine(spec, Data(x=x, y=data.y), settings()), orders(50, 8, 1)[0]).units
    monkeypatch.setattr(fused_engine, "MAX_ROWS_PER_CALL", 16)
    assert_equal(run(FusedEngine(spec, sparse, settings()), orders(50, 8, 1)[0]).units, dense)


# Ensembles: each member has its own rows, row order, dropout masks and initial weights


def _plain_members(loss: str, seed: int) -> tuple[Spec, TrainingData, Config]:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(53, 3))
    ready = prepare((x, x[:, 0] * x[:, 1]), ensemble=3)
    spec = Spec.parse("3-21:relu:dropout(0.2)-[layernorm-9:hard_tanh-21]-1")
    return spec, ready, Config(ensemble=3, loss=loss, optimizer="momentum", batch_size=17)


def _recipe_members(activation: str, seed: int) -> tuple[Spec, TrainingData, Config]:
    generator = np.random.default_rng(seed)
    table = {"a": generator.normal(size=60), "b": generator.choice(list("stuvwxyzpqr"), 60)}
    table["c"] = np.where(generator.random(60) < 0.2, np.nan, generator.normal(size=60))
    table["y"] = np.array(["no", "yes"])[(table["a"] > 0).astype(int)]
    given = given_options("fit", [], {"target": "y", "ensemble": 4, "optimizer": "momentum", "batch_size": 17})
    shape = Recipe(hidden=(24, 9), activation=activation)
    _, made = read_and_choose(None, DataFrame(table), recipe=None, shape=shape, given=given, began=0.0)
    return made.spec, made.prepared, made.config


ENSEMBLES: dict[str, Callable[[int], tuple[Spec, TrainingData, Config]]] = {
    "plain": partial(_plain_members, "mse"),
    "recipe with tanh": partial(_recipe_members, "tanh"),
    "recipe with relu": partial(_recipe_members, "relu"),
}


def brute_force_members(name: str) -> tuple[tuple[Spec, TrainingData, Config], dict[str, UnitCounts]]:
    """Return an ensemble, and the counts of each member over its own rows. No value is close to a bound."""
    for seed in range(40):
        spec, ready, config = ENSEMBLES[name](seed)
        made = make_engine(spec, ready, replace(config, engine="numpy", dtype="float64"))
        assert isinstance(made, Ensemble)
        rows = max(len(member.rows) for member in made.members)
        counts, nearest = dict[str, UnitCounts](), np.inf
        for i, member in enumerate(made.members, 1):
            assert isinstance(member.engine, NumpyEngine)
            found = BruteForce()
            for epoch in range(EPOCHS):
                own = member.rows[random.permutation(len(member.rows), seed=member.seed, epoch=epoch)]
                for part in Order(epoch=epoch, rows=np.resize(own, rows), batch=BATCH).batches():
                    single = Order(epoch=epoch, rows=part, batch=len(part))
                    found.step(member.engine, single)
                    run(member.engine, single, count_units=False)
            counts |= {f"member{i}/{layer}": one for layer, one in found.counts.items()}
            nearest = min(nearest, found.nearest)
        made.close()
        if nearest > MARGIN:
            return (spec, ready, config), counts
    raise AssertionError("every table has a value close to a bound")


def ensembles(spec: Spec, ready: TrainingData, config: Config) -> Iterator[Engine]:
    for engine, dtype in itertools.product(("numpy", "torch", "fused"), ("float32", "float64")):
        yield make_engine(spec, ready, replace(config, engine=engine, dtype=dtype))
    for threads in (1, 4, 9):  # members one after another, in parallel, and in parallel with several threads each
        yield make_engine(spec, ready, replace(config, engine="fused", threads=threads))
    made = make_engine(spec, ready, replace(config, engine="fused"))
    assert isinstance(made, Ensemble)
    shared = [replace(member, engine=on_all_threads(cast(FusedEngine, member.engine), 2)) for member in made.members]
    yield Ensemble(shared, made.loss, threads=4)


@pytest.mark.parametrize("name", ENSEMBLES)
def test_counts_of_an_ensemble_equal_a_brute_force_pass(name: str) -> None:
    made, expected = brute_force_members(name)
    members = len({layer.partition("/")[0] for layer in expected})
    assert members == made[2].ensemble
    assert any(counts.flat.any() or counts.inactive.any() for counts in expected.values())
    for engine in ensembles(*made):
        places = engine.places
        assert places is not None
        found = total(engine, [Order(epoch=e, rows=np.arange(places), batch=BATCH) for e in range(EPOCHS)])
        assert_equal(found, expected)
        engine.close()


@pytest.mark.filterwarnings("ignore")  # torch warns while it loads its compiler
def test_a_compiled_torch_engine_says_that_it_counts_nothing() -> None:
    spec = Spec.parse("5-8:relu-2")
    engine = TorchEngine(spec, table(spec, 10), settings(), compile=True)
    assert any("units are not counted" in note for note in engine.notes)
    with engine._counting() as counts:
        assert counts == {}


def test_a_network_without_counted_layers() -> None:
    spec = Spec.parse("4-8:leaky_relu-3:sin-2")
    assert counted_layers(spec) == {}
    for engine in engines(spec, table(spec, 10)).values():
        assert run(engine, orders(10, 4, 1)[0]).units == {}


def test_hooks_are_removed_after_a_run() -> None:
    spec = Spec.parse("5-8:relu-2")
    engine = TorchEngine(spec, table(spec, 10), settings())
    run(engine, orders(10, 4, 1)[0])
    assert all(not module._forward_pre_hooks for module in engine.model.modules())


# The counted ranges


@pytest.mark.parametrize("case", [case for case in COUNTED if case.name.endswith("first")], ids=lambda c: c.name)
def test_bounds_are_float32_and_at_least_as_far_as_the_exact_ones(case: Case) -> None:
    layer = case.spec.entries[0].layer
    assert isinstance(layer, Activation)
    fn = layer.function
    counted = counted_range(fn)
    flat = saturates(fn) if fn.vanishes or not fn.dies else (None, None)
    for exact, name, sign in zip(
        (*dead_range(fn), *flat),
        ("inactive_low", "inactive_high", "flat_low", "flat_high"),
        (-1, 1, -1, 1),
        strict=True,
    ):
        bound = np.nan if counted is None else getattr(counted, name)
        assert np.isnan(bound) == (exact is None), name
        if exact is not None:
            assert float(np.float32(bound)) == bound
            assert sign * bound >= sign * exact
            assert bound == pytest.approx(exact, rel=1e-6, abs=1e-40)
