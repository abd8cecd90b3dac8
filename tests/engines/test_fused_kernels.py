"""The vectorized kernels on random networks and unusual sizes.

The tests compare float with the double reference loops, and instruction sets with each other. `SOAK=1` draws more and
new random networks.
"""

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
from support.long_tests import FULL
from support.rounding import EPS, Results, bounds, largest
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


# Comparison with the double reference from equal states. Differences are due to rounding (see rounding.py).

NEGLIGIBLE = 1e-9
"""Gradients below this value are 0 except for rounding: of a bias that a norm removes, or of dead units."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Results of the kernels, exact results, and the bounds on their differences."""

    fast: FusedEngine
    exact: FusedEngine
    state: State
    found: Results
    expected: Results
    bounds: Mapping[str, float]

    def wrong(self, **instead: np.ndarray) -> list[str]:
        """Return descriptions of the results that exceed their bound. `instead` replaces results of the kernels."""
        found = self.found.named() | instead
        errors = {name: (largest(found[name] - value), largest(value)) for name, value in self.expected.named().items()}
        return [
            f"{name}: {error:.3g} from one of {size:.3g}, bound {self.bounds[name]:.3g}"
            for name, (error, size) in errors.items()
            if not error <= self.bounds[name]
        ]

    def undetected(self, by: float = 1e-3) -> tuple[list[str], int]:
        """Return the names of gradients for which a relative error of `by` stays within the bounds, and how many are
        not 0."""
        exact, found = self.expected.named(), self.found.named()
        there = [name for name, g in exact.items() if name.startswith("gradient") and largest(g) > NEGLIGIBLE]
        return [name for name in there if not self.wrong(**{name: found[name] * (1 + by)})], len(there)


def results(engine: FusedEngine, rows: np.ndarray, dropout: float) -> Results:
    return Results(step=engine.gradients(rows, epoch=2, dropout=dropout), outputs=engine.outputs(rows))


def measure(
    spec: Spec, data: Data, rows: np.ndarray, how: Settings, *, dropout: float, threads: int, core: str = "auto"
) -> Compared:
    generator = np.random.default_rng(4)
    exact = FusedEngine(spec, data, how, dtype=np.float64)
    fast = FusedEngine(spec, data, how, core=core)
    if core != "reference":
        on_all_threads(fast, threads, "" if core == "auto" else core)
    state = fast.state()
    for name, value in state.parameters.items():
        state.parameters[name] = value + (0.1 * generator.normal(size=value.shape)).astype(np.float32)
    # Both engines start from the same values, already rounded to float.
    for engine in (fast, exact):
        engine.load(state)
    expected = results(exact, rows, dropout)
    return Compared(
        fast=fast,
        exact=exact,
        state=state,
        found=results(fast, rows, dropout),
        expected=expected,
        bounds=bounds(expected, spec, data, how, state, rows=rows, dropout=dropout),
    )


def agree(done: Compared, rows: np.ndarray, *, threads: int, core: str = "auto") -> None:
    """Compare loss, gradients, buffers, outputs and updates up to rounding, and the prediction program bit for bit."""
    assert done.wrong() == []
    if core != "reference":
        spec, data, kernels = done.fast.spec, done.fast.data, None if core == "auto" else core
        tensors = {**done.state.parameters, **done.state.buffers}
        program = PredictProgram(spec, tensors, threads=threads, kernels=kernels)
        codes = data.codes[rows] if data.codes is not None and spec.inputs.categories else None
        np.testing.assert_array_equal(program.outputs(data.x[rows], codes), done.found.outputs)
    update(done.fast, done.exact, done.state, done.found.step)


def update(fast: FusedEngine, exact: FusedEngine, state: State, gradients: Gradients) -> None:
    """Compare three updates with the same gradients from the same state.

    All terms have the same sign, so a sum is as accurate as its terms. The three steps have about a dozen roundings,
    plus those of the parameter.
    """
    empty = replace(state, averages={name: np.zeros_like(value) for name, value in state.averages.items()})
    for engine in (fast, exact):
        engine.load(empty)
        for size in (1.0, 0.5, 0.25):
            smaller = {name: np.float32(size) * g for name, g in gradients.gradients.items()}
            engine.apply(replace(gradients, gradients=smaller), rate=0.01, decay=0.1)
    found, expected = fast.state(), exact.state()
    for slot, tensors in expected.optimizer.items():
        for name, value in tensors.items():
            np.testing.assert_allclose(found.optimizer[slot][name], value, rtol=16 * EPS, atol=1e-37, err_msg=name)
    for name, value in expected.parameters.items():
        before = state.parameters[name]
        # The square of a gradient below 1e-19 underflows in float. The ε of Adam is larger than its root.
        bound = 8 * EPS * np.maximum(np.abs(before), np.abs(value)) + 40 * EPS * np.abs(value - before) + 1e-12
        assert (np.abs(found.parameters[name] - value) <= bound).all(), name
        if state.averages:
            most = (1 - exact.settings.average) * 3 * (bound + 16 * EPS * np.abs(value))
            assert (np.abs(found.averages[name] - expected.averages[name]) <= most).all(), name


ROWS = 300


def splits_batches(spec: Spec, batch: int) -> bool:
    """Return whether gradients are computed for two halves of a batch, as in csrc/fused/parameter_updates.cpp."""
    plain = [
        isinstance(layer, Linear | Dropout)
        or (isinstance(layer, Activation) and not (layer.blend or layer.function.learned))
        for layer in spec.layers
    ]
    return all(plain) and spec.n_parameters <= 16_000 and batch >= 128


def test_random_networks_agree_with_double_up_to_rounding(tried: Any) -> None:
    """Cover every core, small and large batches, and various numbers of threads."""
    compared: set[Any] = set()
    batches_split, undetected, gradients = 0, 0, 0

    @settings(
        max_examples=3000 if FULL else 1400,  # some are drawn twice
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
        nonlocal batches_split, undetected, gradients
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
        # Adam squares gradients, and larger squares overflow in float. They occur with poisson, which uses exp.
        assume(all(largest(value) < 1e18 for value in done.expected.named().values()))
        agree(done, rows, threads=threads, core=core)
        compared.add((spec, loss, batch, dropout, weighted, threads, core))
        batches_split += splits_batches(spec, batch) and threads > 1 and core != "reference"
        names, there = done.undetected()
        undetected, gradients = undetected + len(names), gradients + there

    check()
    tried("random networks on the kernels", len(compared))
    assert len(compared) >= 1000
    assert batches_split >= 50
    # The other networks amplify rounding to this size, for example norms of norms, or norms over two rows or one unit.
    assert undetected <= 0.03 * gradients, f"{undetected} of {gradients}"


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("case", KERNELS, ids=lambda case: case.name)
def test_the_bounds_detect_a_gradient_error_of_a_thousandth(case: Case, core: str) -> None:
    """Test the bounds for every gradient of every kind of layer."""
    data = table(case.spec, 150)
    data = replace(data, x=data.x.astype(np.float32))
    done = measure(case.spec, data, np.arange(150), Settings(loss="mse"), dropout=1.0, threads=2, core=core)
    assert done.wrong() == []
    names, there = done.undetected()
    assert names == []
    assert there or case.text.endswith("step")  # the slope of a step is 0


@pytest.mark.parametrize("batch", [1, 2, 15, 16, 17, 63, 64, 65, 130])
@pytest.mark.parametrize("widths", [(1, 1, 1), (2, 15, 17), (16, 33, 1), (63, 64, 65), (65, 130, 12), (129, 7, 127)])
def test_sizes_around_those_of_vectors_tiles_strips_and_panels(widths: tuple[int, int, int], batch: int) -> None:
    """Test one row, one column, and one more or less than a vector, a tile, a strip and a panel."""
    d_in, d, d_out = widths
    spec = Spec(d_in, [Linear(d), Activation("tanh"), Linear(d_out)])
    data = table(spec, batch)
    data = replace(data, x=data.x.astype(np.float32))
    rows = np.arange(batch)
    agree(measure(spec, data, rows, Settings(loss="mse", optimizer="sgd"), dropout=1.0, threads=2), rows, threads=2)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("core", ["reference", *_core.fused_kernels()])
def test_a_non_finite_input_affects_only_the_outputs_of_its_row(value: float, core: str) -> None:
    spec = Spec.parse("6-9:gelu-[layernorm-12:silu-9]-4")
    data = table(spec, 40)
    data.x[21, 3] = value
    z = FusedEngine(spec, data, Settings(loss="mse"), core=core).outputs(np.arange(40))
    assert not np.isfinite(z[21]).any()
    assert np.isfinite(np.delete(z, 21, axis=0)).all()


EXTREMES = [20.0, 88.5, 100.0, 1e4, 1e5, 1.1e5, 6e6, 7e6, 1e10, 1e30, 3e38, np.inf]
"""Values whose exponentials or squares are close to overflow or beyond it, and large angles."""
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


def at_extremes(function: str, **how: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return f and f′ at extreme values, at 0 and at NaN.

    f is the output of a network with identity weights. f′ is the gradient of the bias before f, with the absolute error
    as loss.
    """
    z = np.array([*(-x for x in reversed(EXTREMES)), -0.0, 0.0, *EXTREMES, np.nan])
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
        for i in rows:  # a single row is computed by other code than a panel
            np.testing.assert_array_equal(program.outputs(engine.data.x[i : i + 1]), engine.outputs(rows)[i : i + 1])
    return engine.outputs(rows)[:, 0].astype(np.float32), np.array(slopes, dtype=np.float32)


@np.errstate(over="ignore", invalid="ignore")
@pytest.mark.parametrize("core", ["reference", _core.fused_kernels()[-1], "baseline"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_activations_of_extreme_values_are_accurate(function: str, core: str) -> None:
    exact, exact_slope = at_extremes(function, dtype=np.float64)
    found, slope = at_extremes(function, core=core, threads=1)
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-6)
    finite = np.isfinite(exact_slope)  # ∞ may become NaN: padding rows of a panel are multiplied by 0
    assert (np.isfinite(slope) == finite).all()
    np.testing.assert_allclose(slope[finite], exact_slope[finite], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("numeric", ["plr", "pbld"])
@pytest.mark.parametrize("core", _core.fused_kernels())
def test_periodic_features_of_large_values_stay_bounded(core: str, numeric: str) -> None:
    """The angles of large values are inaccurate, but sine and cosine are at most 1."""
    spec = Spec.parse(f"1+cat(2)-columns({numeric})-1")
    x = np.array([*EXTREMES[:-1], *(-x for x in EXTREMES[:-1])], dtype=np.float32)[:, None] / 1e3
    data = Data(x=x, y=np.zeros((len(x), 1)), codes=np.ones((len(x), 1), dtype=np.int64))
    engine = FusedEngine(spec, data, Settings(loss="mse"), core=core)
    state = engine.state()
    most = sum(float(np.abs(value).sum()) for name, value in state.parameters.items() if name.startswith("columns"))
    state.parameters["linear1.weight"][:] = 1.0
    state.parameters["linear1.weight"][:, 0] = numeric != "pbld"  # pbld also outputs the value itself
    engine.load(state)
    rows = np.arange(len(x))
    z = engine.outputs(rows)
    assert np.abs(z).max() <= most + 10
    program = PredictProgram(spec, {**state.parameters, **state.buffers}, threads=1, kernels=core)
    for some in (rows, rows[3:4], rows[:7]):
        np.testing.assert_array_equal(program.outputs(x[some], data.codes[some]), z[some])


@pytest.mark.parametrize("core", _core.fused_kernels())
def test_denormals_are_flushed_to_zero(core: str) -> None:
    """Inputs, weights and products below 1.2e-38 become 0. Larger values do not change."""
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


def test_gradients_of_denormal_inputs_are_finite() -> None:
    spec = Spec.parse("4-8:tanh-2")
    data: Any = replace(table(spec, 32), x=np.full((32, 4), 1e-42, dtype=np.float32))
    chunk = run(FusedEngine(spec, data, Settings(loss="mse", optimizer="adam")), orders(32, 8, 1)[0])
    assert chunk.bad is None
    assert np.isfinite(chunk.loss).all()
