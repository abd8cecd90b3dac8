"""The vectorised kernels over random networks and awkward sizes: float against the double reference, one instruction
set against another. `SOAK=1` draws more networks."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cases import ALL, Case
from engines import LOSSES, on_all_threads, orders, run, table
from multilayer import _core, losses
from multilayer.engine import Data, Gradients, Settings, State
from multilayer.engine.fused_engine import FusedEngine
from multilayer.engine.fused_predict import PredictProgram
from multilayer.engine.fused_program import why_not
from multilayer.engine.numpy_engine import NumpyEngine
from multilayer.layers import Activation, Linear
from multilayer.spec import Spec
from soak import FULL
from strategies import has_batch_norm, specs
from test_fused_engine import gradients_and_scale

pytestmark = pytest.mark.usefixtures("one_thread")

KERNELS = [case for case in ALL if case.kernel == "yes" and case.name != "worked example"]
WIDE = [name for name in _core.fused_kernels() if name != "baseline"]
EPS = 2.0**-24


@pytest.mark.skipif(len(WIDE) < 2, reason="the processor runs one set of multiply-add kernels alone")
@pytest.mark.parametrize("case", KERNELS, ids=lambda case: case.name)
def test_instruction_sets_agree_bit_for_bit(case: Case) -> None:
    """Those whose multiply-add rounds once. Two epochs, the last batch of each smaller."""
    states = []
    for core in WIDE:
        engine = FusedEngine(
            case.spec, table(case.spec, 37), Settings(loss="mse", seed=3, average=0.9), threads=2, core=core
        )
        for order in orders(37, 17, 2):
            run(engine, order)
        states.append(engine.state())
    assert all(state.equals(states[0]) for state in states[1:])


# Against the double reference, from equal states. A bound is what rounding does: a few dozen roundings deep, each sum
# of K terms √K of them, all as large as the largest number on the way and what norms divide by; plus how far the exact
# result moves when inputs and parameters do by 1e-5 of themselves, some roundings: that is where kinks are.

DEPTH, TERMS, MOVED = 40, 200, 1e-5


def close(found: Gradients, exact: Gradients, moved: list[Gradients], scale: float) -> None:
    rounding = DEPTH * math.sqrt(TERMS) * EPS
    spread = max(abs(exact.loss - m.loss) for m in moved)
    assert abs(found.loss - exact.loss) <= rounding * max(scale, abs(exact.loss)) + 2 * spread
    for name, g in exact.gradients.items():
        spread = max(float(np.abs(g - m.gradients[name]).max(initial=0)) for m in moved)
        bound = rounding * scale * max(1.0, float(np.abs(g).max(initial=0))) + 2 * spread
        np.testing.assert_allclose(found.gradients[name], g, rtol=0, atol=bound, err_msg=name)
    for name, value in exact.buffers.items():
        spread = max(float(np.abs(value - m.buffers[name]).max(initial=0)) for m in moved)
        bound = rounding * scale * max(1.0, float(np.abs(value).max(initial=0))) + 2 * spread
        np.testing.assert_allclose(found.buffers[name], value, rtol=0, atol=bound, err_msg=name)


def compare(spec: Spec, data: Data, rows: np.ndarray, how: Settings, *, dropout: float, threads: int) -> None:
    """Loss, every gradient and buffer, outputs; the packed program's bits; and what updates make of the gradients."""
    generator = np.random.default_rng(4)
    exact = FusedEngine(spec, data, how, dtype=np.float64)
    quick = on_all_threads(FusedEngine(spec, data, how), threads)
    state = quick.state()
    for name, value in state.parameters.items():
        state.parameters[name] = value + (0.1 * generator.normal(size=value.shape)).astype(np.float32)
    quick.load(state)
    # The same numbers in double: what float rounded away from them is gone on both sides.
    exact.load(state)
    expected = exact.gradients(rows, epoch=2, dropout=dropout)
    z = exact.outputs(rows)
    oracle = NumpyEngine(spec, data, how)
    oracle.load(state)
    _, scale = gradients_and_scale(oracle, rows, dropout)
    if not (math.isfinite(expected.loss) and scale < 1e3):
        return  # rounding has the last word there
    moved, outputs = [], []
    for _ in range(4):

        def shift(value: np.ndarray) -> np.ndarray:
            return value * (1 + MOVED * generator.choice([-1, 1], size=value.shape))

        other = FusedEngine(spec, replace(data, x=shift(data.x)), how, dtype=np.float64)
        other.load(replace(state, parameters={name: shift(value) for name, value in state.parameters.items()}))
        moved.append(other.gradients(rows, epoch=2, dropout=dropout))
        outputs.append(other.outputs(rows))
    if max(abs(m.loss - expected.loss) for m in moved) > 0.1 * max(1.0, abs(expected.loss)):
        return
    gradients = quick.gradients(rows, epoch=2, dropout=dropout)
    close(gradients, expected, moved, scale)
    found = quick.outputs(rows)
    spread = max(float(np.abs(other - z).max(initial=0)) for other in outputs)
    np.testing.assert_allclose(found, z, rtol=0, atol=DEPTH * math.sqrt(TERMS) * EPS * scale + 2 * spread)
    program = PredictProgram(spec, {**state.parameters, **state.buffers}, threads=threads)
    codes = data.codes[rows] if data.codes is not None and spec.inputs.categories else None
    np.testing.assert_array_equal(program.outputs(data.x[rows], codes), found)
    update(quick, exact, state, gradients)


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


@settings(
    max_examples=1500 if FULL else 250,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
@given(
    spec=specs().filter(lambda spec: why_not(spec) is None),
    loss=st.sampled_from(["mse", "mse", *LOSSES]),
    batch=st.sampled_from([1, 2, 3, 8, 16, 17, 33, 70]),
    dropout=st.sampled_from([0.0, 0.5, 1.0]),
    weighted=st.booleans(),
    threads=st.sampled_from([1, 2, 3]),
    optimizer=st.sampled_from(["sgd", "nesterov", "adam", "adam(beta2=0.99999)"]),
    average=st.sampled_from([None, 0.9, 0.9999]),
)
def test_random_networks_are_the_double_reference_to_rounding(
    spec: Spec,
    loss: str,
    batch: int,
    dropout: float,
    weighted: bool,
    threads: int,
    optimizer: str,
    average: float | None,
) -> None:
    assume(batch > 1 or not has_batch_norm(spec.layers))
    assume(spec.d_out % losses.get(loss).per_target == 0)
    data = table(spec, 80, loss)
    generator = np.random.default_rng(4)
    data = replace(data, x=data.x.astype(np.float32))
    if weighted:
        data = replace(data, weight=generator.uniform(0.1, 3, size=80).astype(np.float32))
    rows = generator.permutation(80)[:batch]
    how = Settings(loss=loss, optimizer=optimizer, average=average, seed=7)
    compare(spec, data, rows, how, dropout=dropout, threads=threads)


@pytest.mark.parametrize("batch", [1, 2, 15, 16, 17, 63, 64, 65, 130])
@pytest.mark.parametrize("widths", [(1, 1, 1), (2, 15, 17), (16, 33, 1), (63, 64, 65), (65, 130, 12), (129, 7, 127)])
def test_awkward_sizes(widths: tuple[int, int, int], batch: int) -> None:
    """One row, one column, one more or less than a vector, a tile, a strip and a panel."""
    d_in, d, d_out = widths
    spec = Spec(d_in, [Linear(d), Activation("tanh"), Linear(d_out)])
    data = table(spec, batch)
    data = replace(data, x=data.x.astype(np.float32))
    compare(spec, data, np.arange(batch), Settings(loss="mse", optimizer="sgd"), dropout=1.0, threads=2)


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
