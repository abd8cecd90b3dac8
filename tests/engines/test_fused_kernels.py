"""The vectorised kernels over random networks and awkward sizes: float against the double reference, one instruction
set against another. `SOAK=1` draws more networks, and new ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from multilayer.core import _core
from multilayer.data.batches import Data
from multilayer.engines import Gradients, Settings, State
from multilayer.engines.fused_engine import CORES, FusedEngine, PredictProgram
from multilayer.engines.fused_program import why_not
from multilayer.nn import losses
from multilayer.nn.layers import Activation, Dropout, Linear
from multilayer.spec import Spec
from support.cases import ALL, Case
from support.engines import FUSED_LOSSES, on_all_threads, orders, run, table
from support.rounding import EPS, Results, bounds, largest
from support.soak import FULL
from support.strategies import has_batch_norm, plain_specs, specs

pytestmark = pytest.mark.usefixtures("one_thread")

KERNELS = [case for case in ALL if case.kernel == "yes" and case.name != "worked example"]
WIDE = [name for name in _core.fused_kernels() if name != "baseline"]


if len(WIDE) > 1:  # the processor has several sets of multiply-add instructions

    @pytest.mark.parametrize("case", KERNELS, ids=lambda case: case.name)
    def test_instruction_sets_agree_bit_for_bit(case: Case) -> None:
        """Compare the instruction sets whose multiply-add rounds once, over two epochs with a smaller last batch."""
        states = []
        for core in WIDE:
            engine = FusedEngine(
                case.spec, table(case.spec, 37), Settings(loss="mse", seed=3, average=0.9), threads=2, core=core
            )
            for order in orders(37, 17, 2):
                run(engine, order)
            states.append(engine.state())
        assert all(state.equals(states[0]) for state in states[1:])


# Against the double reference, from equal states: what may differ is what rounding does (see rounding.py).

NOTHING = 1e-9
"""Gradients below it are 0 but for rounding: of a bias that a norm takes away again, of units that are dead."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What a network's kernels gave, what is exact, and how far apart the two may be."""

    quick: FusedEngine
    exact: FusedEngine
    state: State
    found: Results
    expected: Results
    bounds: Mapping[str, float]

    def wrong(self, **instead: np.ndarray) -> list[str]:
        """Names of the results that are beyond their bound; `instead` of some that were found."""
        found = self.found.named() | instead
        errors = {name: (largest(found[name] - value), largest(value)) for name, value in self.expected.named().items()}
        return [
            f"{name}: {error:.3g} from one of {size:.3g}, bound {self.bounds[name]:.3g}"
            for name, (error, size) in errors.items()
            if not error <= self.bounds[name]
        ]

    def unnoticed(self, by: float = 1e-3) -> tuple[list[str], int]:
        """Of its gradients that are not 0, those that might be wrong by so much of themselves; and how many are."""
        exact, found = self.expected.named(), self.found.named()
        there = [name for name, g in exact.items() if name.startswith("gradient") and largest(g) > NOTHING]
        return [name for name in there if not self.wrong(**{name: found[name] * (1 + by)})], len(there)


def results(engine: FusedEngine, rows: np.ndarray, dropout: float) -> Results:
    return Results(step=engine.gradients(rows, epoch=2, dropout=dropout), outputs=engine.outputs(rows))


def measure(
    spec: Spec, data: Data, rows: np.ndarray, how: Settings, *, dropout: float, threads: int, core: str = "auto"
) -> Compared:
    generator = np.random.default_rng(4)
    exact = FusedEngine(spec, data, how, dtype=np.float64)
    quick = FusedEngine(spec, data, how, core=core)
    if core != "reference":
        on_all_threads(quick, threads, "" if core == "auto" else core)
    state = quick.state()
    for name, value in state.parameters.items():
        state.parameters[name] = value + (0.1 * generator.normal(size=value.shape)).astype(np.float32)
    # The same numbers in double: what float rounded away from them is gone on both sides.
    for engine in (quick, exact):
        engine.load(state)
    expected = results(exact, rows, dropout)
    return Compared(
        quick=quick,
        exact=exact,
        state=state,
        found=results(quick, rows, dropout),
        expected=expected,
        bounds=bounds(expected, spec, data, how, state, rows=rows, dropout=dropout),
    )


def agree(done: Compared, rows: np.ndarray, *, threads: int, core: str = "auto") -> None:
    """Loss, every gradient and buffer, outputs; the packed program's bits; and what updates make of the gradients."""
    assert done.wrong() == []
    if core != "reference":
        spec, data, kernels = done.quick.spec, done.quick.data, None if core == "auto" else core
        tensors = {**done.state.parameters, **done.state.buffers}
        program = PredictProgram(spec, tensors, threads=threads, kernels=kernels)
        codes = data.codes[rows] if data.codes is not None and spec.inputs.categories else None
        np.testing.assert_array_equal(program.outputs(data.x[rows], codes), done.found.outputs)
    update(done.quick, done.exact, done.state, done.found.step)


def update(quick: FusedEngine, exact: FusedEngine, state: State, gradients: Gradients) -> None:
    """The same gradients from the same state. Terms have one sign, so every sum is as exact as its terms: about a dozen
    roundings in the three steps, besides those of the parameter itself."""
    empty = replace(state, averages={name: np.zeros_like(value) for name, value in state.averages.items()})
    for engine in (quick, exact):
        engine.load(empty)
        for size in (1.0, 0.5, 0.25):
            smaller = {name: np.float32(size) * g for name, g in gradients.gradients.items()}
            engine.apply(replace(gradients, gradients=smaller), rate=0.01, decay=0.1)
    found, expected = quick.state(), exact.state()
    for slot, tensors in expected.optimizer.items():
        for name, value in tensors.items():
            np.testing.assert_allclose(found.optimizer[slot][name], value, rtol=16 * EPS, atol=1e-37, err_msg=name)
    for name, value in expected.parameters.items():
        before = state.parameters[name]
        # A gradient below 1e-19 has no square in float; Adam's own ε is larger than its root.
        bound = 8 * EPS * np.maximum(np.abs(before), np.abs(value)) + 40 * EPS * np.abs(value - before) + 1e-12
        assert (np.abs(found.parameters[name] - value) <= bound).all(), name
        if state.averages:
            most = (1 - exact.settings.average) * 3 * (bound + 16 * EPS * np.abs(value))
            assert (np.abs(found.averages[name] - expected.averages[name]) <= most).all(), name


ROWS = 300


def learns_in_halves(spec: Spec, batch: int) -> bool:
    """As csrc/fused/parameter_updates.cpp does where threads are several."""
    plain = [
        isinstance(layer, Linear | Dropout)
        or (isinstance(layer, Activation) and not (layer.blend or layer.function.learned))
        for layer in spec.layers
    ]
    return all(plain) and spec.n_parameters <= 16_000 and batch >= 128


def test_random_networks_are_the_double_reference_to_rounding(tried: Any) -> None:
    """On every core, few rows and many, few threads and many."""
    compared: set[Any] = set()
    halved, unnoticed, gradients = 0, 0, 0

    @settings(
        max_examples=3000 if FULL else 1400,  # of which some are drawn twice
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
    @given(
        spec=(specs() | specs() | plain_specs()).filter(lambda spec: why_not(spec) is None),
        loss=st.sampled_from(["mse", "mse", *FUSED_LOSSES]),
        batch=st.sampled_from([1, 2, 3, 8, 16, 17, 33, 70, 128, 129, 150, 200, 256, ROWS]),
        dropout=st.sampled_from([0.0, 0.5, 1.0]),
        weighted=st.booleans(),
        threads=st.sampled_from([1, 2, 3, 4, 8]),
        core=st.sampled_from(CORES),
        optimizer=st.sampled_from(["sgd", "nesterov", "adam", "adam(beta2=0.99999)"]),
        average=st.sampled_from([None, 0.9, 0.9999]),
    )
    def check(
        spec: Spec,
        loss: str,
        batch: int,
        dropout: float,
        weighted: bool,
        threads: int,
        core: str,
        optimizer: str,
        average: float | None,
    ) -> None:
        nonlocal halved, unnoticed, gradients
        assume(batch > 1 or not has_batch_norm(spec.layers))
        assume(spec.d_out % losses.get(loss).per_target == 0)
        data = table(spec, ROWS, loss)
        generator = np.random.default_rng(4)
        data = replace(data, x=data.x.astype(np.float32))
        if weighted:
            data = replace(data, weight=generator.uniform(0.1, 3, size=ROWS).astype(np.float32))
        rows = generator.permutation(ROWS)[:batch]
        how = Settings(loss=loss, optimizer=optimizer, average=average, seed=7)
        done = measure(spec, data, rows, how, dropout=dropout, threads=threads, core=core)
        # Adam squares gradients, and float holds no square of more: poisson takes exponentials of outputs.
        assume(all(largest(value) < 1e18 for value in done.expected.named().values()))
        agree(done, rows, threads=threads, core=core)
        compared.add((spec, loss, batch, dropout, weighted, threads, core))
        halved += learns_in_halves(spec, batch) and threads > 1 and core != "reference"
        names, there = done.unnoticed()
        unnoticed, gradients = unnoticed + len(names), gradients + there

    check()
    tried("random networks on the kernels", len(compared))
    assert len(compared) >= 1000
    assert halved >= 50
    # The others are steep: norms of norms, of two rows or one unit, that rounding alone moves by so much.
    assert unnoticed <= 0.03 * gradients, f"{unnoticed} of {gradients}"


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("case", KERNELS, ids=lambda case: case.name)
def test_a_gradient_wrong_by_a_thousandth_is_noticed(case: Case, core: str) -> None:
    """Each of every kind of layer: the bounds are no wider than that."""
    data = table(case.spec, 150)
    data = replace(data, x=data.x.astype(np.float32))
    done = measure(case.spec, data, np.arange(150), Settings(loss="mse"), dropout=1.0, threads=2, core=core)
    assert done.wrong() == []
    names, there = done.unnoticed()
    assert names == []
    assert there or case.text.endswith("step")  # whose slope is 0


@pytest.mark.parametrize("batch", [1, 2, 15, 16, 17, 63, 64, 65, 130])
@pytest.mark.parametrize("widths", [(1, 1, 1), (2, 15, 17), (16, 33, 1), (63, 64, 65), (65, 130, 12), (129, 7, 127)])
def test_awkward_sizes(widths: tuple[int, int, int], batch: int) -> None:
    """One row, one column, one more or less than a vector, a tile, a strip and a panel."""
    d_in, d, d_out = widths
    spec = Spec(d_in, [Linear(d), Activation("tanh"), Linear(d_out)])
    data = table(spec, batch)
    data = replace(data, x=data.x.astype(np.float32))
    rows = np.arange(batch)
    agree(measure(spec, data, rows, Settings(loss="mse", optimizer="sgd"), dropout=1.0, threads=2), rows, threads=2)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("core", ["reference", *_core.fused_kernels()])
def test_what_is_not_finite_reaches_the_outputs_of_its_row_alone(value: float, core: str) -> None:
    spec = Spec.parse("6-9:gelu-[layernorm-12:silu-9]-4")
    data = table(spec, 40)
    data.x[21, 3] = value
    z = FusedEngine(spec, data, Settings(loss="mse"), core=core).outputs(np.arange(40))
    assert not np.isfinite(z[21]).any()
    assert np.isfinite(np.delete(z, 21, axis=0)).all()


FAR = [20.0, 88.5, 100.0, 1e4, 1e5, 1.1e5, 6e6, 7e6, 1e10, 1e30, 3e38, np.inf]
"""Numbers whose exponentials, squares and angles are at the ends of what float holds, or beyond."""
FUNCTIONS = (
    "step",
    "polynomial(3)",
    "sqrt",
    "sigmoid",
    "tanh",
    "hard_tanh",
    "sin",
    "relu",
    "leaky_relu",
    "prelu",
    "elu",
)
FUNCTIONS += ("selu", "softplus", "gelu", "gelu_tanh", "silu", "swish(1.7)", "learned_swish", "mish")


def at_ends(function: str, **how: Any) -> tuple[np.ndarray, np.ndarray]:
    """f and f′ at numbers far out, at 0 and at NaN: what a network gives that only bends its input, and the gradient
    of a shift of it under the absolute error."""
    z = np.array([*(-x for x in reversed(FAR)), -0.0, 0.0, *FAR, np.nan])
    spec = Spec.parse(f"1-1:{function}-1")
    low = np.full((len(z), 1), -3.4e38, dtype=np.float32)
    engine = FusedEngine(spec, Data(x=z[:, None].astype(np.float32), y=low), Settings(loss="mae"), **how)
    state = engine.state()
    for name, value in state.parameters.items():
        if name.startswith("linear"):
            value[:] = name.endswith("weight")
    engine.load(state)
    rows = np.arange(len(z))
    slopes = [engine.gradients(rows[i : i + 1], epoch=0).gradients["linear1.bias"][0] for i in rows]
    if how.get("core") in _core.fused_kernels():
        program = PredictProgram(spec, {**state.parameters, **state.buffers}, threads=1, kernels=how["core"])
        for i in rows:  # as panels, rows, and a row alone
            np.testing.assert_array_equal(program.outputs(engine.data.x[i : i + 1]), engine.outputs(rows)[i : i + 1])
    return engine.outputs(rows)[:, 0].astype(np.float32), np.array(slopes, dtype=np.float32)


@np.errstate(over="ignore", invalid="ignore")
@pytest.mark.parametrize("core", ["reference", _core.fused_kernels()[-1], "baseline"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_far_out_are_the_exact_ones(function: str, core: str) -> None:
    exact, exact_slope = at_ends(function, dtype=np.float64)
    found, slope = at_ends(function, core=core, threads=1)
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-6)
    finite = np.isfinite(exact_slope)  # ∞ may be NaN: the rows that fill a panel up have no share, and 0 · ∞ is none
    assert (np.isfinite(slope) == finite).all()
    np.testing.assert_allclose(slope[finite], exact_slope[finite], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("numeric", ["plr", "pbld"])
@pytest.mark.parametrize("core", _core.fused_kernels())
def test_waves_of_numbers_far_out_stay_waves(core: str, numeric: str) -> None:
    """Their angles mean little there, but a wave is never above 1."""
    spec = Spec.parse(f"1+cat(2)-columns({numeric})-1")
    x = np.array([*FAR[:-1], *(-x for x in FAR[:-1])], dtype=np.float32)[:, None] / 1e3
    data = Data(x=x, y=np.zeros((len(x), 1)), codes=np.ones((len(x), 1), dtype=np.int64))
    engine = FusedEngine(spec, data, Settings(loss="mse"), core=core)
    state = engine.state()
    most = sum(float(np.abs(value).sum()) for name, value in state.parameters.items() if name.startswith("columns"))
    state.parameters["linear1.weight"][:] = 1.0
    state.parameters["linear1.weight"][:, 0] = numeric != "pbld"  # which gives the number itself beside its waves
    engine.load(state)
    rows = np.arange(len(x))
    z = engine.outputs(rows)
    assert np.abs(z).max() <= most + 10
    program = PredictProgram(spec, {**state.parameters, **state.buffers}, threads=1, kernels=core)
    for some in (rows, rows[3:4], rows[:7]):
        np.testing.assert_array_equal(program.outputs(x[some], data.codes[some]), z[some])


@pytest.mark.parametrize("core", _core.fused_kernels())
def test_denormals_count_as_nothing(core: str) -> None:
    """Inputs, weights and products below 1.2e-38 are 0; numbers above are not touched."""
    spec = Spec.parse("3-2")
    data = Data(x=np.array([[1e-40, 0, 0], [1.0, 0, 0], [1e-30, 0, 0]], dtype=np.float32), y=np.zeros((3, 2)))
    engine = FusedEngine(spec, data, Settings(loss="mse"), core=core)
    state = engine.state()
    state.parameters["linear1.weight"][:] = [[1, 0, 0], [1e-20, 0, 0]]
    state.parameters["linear1.bias"][:] = 0
    engine.load(state)
    z = engine.outputs(np.arange(3))
    assert z.tolist()[0] == [0, 0]
    np.testing.assert_allclose(z[1], [1, 1e-20], rtol=1e-6)
    np.testing.assert_allclose(z[2], [1e-30, 0], rtol=1e-6)


def test_gradients_of_tiny_numbers_are_finite_and_no_step_is_flagged() -> None:
    spec = Spec.parse("4-8:tanh-2")
    data: Any = replace(table(spec, 32), x=np.full((32, 4), 1e-42, dtype=np.float32))
    chunk = run(FusedEngine(spec, data, Settings(loss="mse", optimizer="adam")), orders(32, 8, 1)[0])
    assert chunk.bad is None
    assert np.isfinite(chunk.loss).all()
