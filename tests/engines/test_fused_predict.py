"""Prediction in compiled code has the bits of the training engine, for any number of rows and threads."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import numpy as np
import pytest

import multilayer as ml
from multilayer.core import _core
from multilayer.engines import Order, Settings
from multilayer.engines.fused_engine import FusedEngine, PredictProgram
from multilayer.engines.fused_program import operations_of
from multilayer.errors import DataError, OptionError, SpecError
from multilayer.spec import Spec
from support.cases import ALL
from support.engines import run, table

pytestmark = pytest.mark.usefixtures("one_thread")

KERNELS = [case for case in ALL if case.kernel == "yes"]
WIDE = (
    "70-130:gelu-65:tanh-17:relu-3",
    "33+cat(2, 9, 40)-columns(pbld)-scale-(linear(80, scale=tangent):blend(selu):dropout(0.15))*3-2",
    "9-columns(plr, n=40)-[layernorm-96:silu-216]*2-swiglu(50)-1",
    "5-columns(piecewise, n=70)-48:prelu(per=unit)-1",
    "200-[batchnorm-[groupnorm(5)-200:mish]-200]-257:blend(learned_swish(per=unit))-100",
)


def trained(spec: Spec, rows: int, core: str = "auto") -> FusedEngine:
    """Train two steps, so that parameters and running statistics differ from their initial values."""
    data = table(spec, rows)
    engine = FusedEngine(spec, data, Settings(loss="mse", seed=3), threads=2, core=core)
    run(engine, Order(epoch=0, rows=np.arange(rows), batch=rows // 2), rate=0.01)
    return engine


def program_of(engine: FusedEngine, **how: Any) -> PredictProgram:
    state = engine.state()
    return PredictProgram(engine.spec, {**state.parameters, **state.buffers}, **how)


def inputs(engine: FusedEngine) -> tuple[np.ndarray, np.ndarray | None]:
    return engine.data.x.astype(np.float32), engine.data.codes


@pytest.mark.parametrize("kernels", _core.fused_kernels())
@pytest.mark.parametrize("spec", [c.spec for c in KERNELS] + [Spec.parse(text) for text in WIDE], ids=str)
def test_outputs_have_the_bits_of_the_training_engine(spec: Spec, kernels: str) -> None:
    engine = trained(spec, 100, core=kernels)
    program = program_of(engine, kernels=kernels)
    x, codes = inputs(engine)
    expected = engine.outputs(np.arange(100))
    np.testing.assert_array_equal(program.outputs(x, codes), expected)
    for rows in (slice(0, 0), slice(7, 8), slice(1, 4), slice(20, 37), slice(3, 52)):
        np.testing.assert_array_equal(program.outputs(x[rows], None if codes is None else codes[rows]), expected[rows])


def test_threads_and_concurrent_calls_do_not_change_the_bits() -> None:
    engine = trained(Spec.parse(WIDE[1]), 2000)
    x, codes = inputs(engine)
    assert codes is not None
    expected = program_of(engine, threads=1).outputs(x, codes)
    program = program_of(engine, threads=3)
    found: list[np.ndarray] = []

    def predict(rows: slice) -> None:
        for _ in range(20):
            found.append(program.outputs(x[rows], codes[rows]) - expected[rows])

    several = [
        threading.Thread(target=predict, args=(rows,)) for rows in (slice(None), slice(5, 6), slice(None), slice(9))
    ]
    for thread in several:
        thread.start()
    for thread in several:
        thread.join()
    assert len(found) == 80
    assert not any(difference.any() for difference in found)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_block_size_does_not_change_the_bits(threads: int) -> None:
    engine = trained(Spec.parse("70-200:gelu-130:tanh-3"), 400)
    program = program_of(engine, threads=threads)
    x, _ = inputs(engine)
    expected = engine.outputs(np.arange(400))
    for n in (*range(1, 14), *range(44, 102), 143, 145, 193, 289, 400):
        np.testing.assert_array_equal(program.outputs(x[:n], None), expected[:n])


@pytest.mark.parametrize("layout", ["columns first", "every other row", "unaligned", "float64", "reversed"])
def test_the_memory_layout_of_rows_does_not_matter(layout: str) -> None:
    engine = trained(Spec.parse("9-20:relu-4"), 60)
    x, _ = inputs(engine)
    given = {
        "columns first": np.asfortranarray(x),
        "every other row": np.repeat(x, 2, axis=0)[::2],
        "unaligned": np.frombuffer(b"0" + x.tobytes(), dtype=np.uint8)[1:].view(np.float32).reshape(x.shape),
        "float64": x.astype(np.float64),
        "reversed": np.ascontiguousarray(x[::-1])[::-1],
    }[layout]
    np.testing.assert_array_equal(program_of(engine).outputs(given), engine.outputs(np.arange(60)))


def test_non_finite_inputs_are_accepted() -> None:
    engine = trained(Spec.parse("5-8:tanh-3"), 20)
    x, _ = inputs(engine)
    x[3, 2], x[4, 1], x[5] = np.nan, np.inf, 1e-42
    z = program_of(engine).outputs(x)
    assert np.isnan(z[3]).all()
    assert np.isfinite(np.delete(z, [3, 4], axis=0)).all()


def test_memory_is_about_the_size_of_the_weights() -> None:
    spec = Spec.parse("784-256-128-10")
    program = program_of(trained(spec, 20))
    assert 4 * spec.n_parameters <= program.bytes < 4 * spec.n_parameters + 500_000


def test_invalid_input_is_refused() -> None:
    engine = trained(Spec.parse("3+cat(2, 4)-columns-4:tanh-2"), 20)
    program = program_of(engine)
    x, codes = inputs(engine)
    assert codes is not None
    wrong = codes.copy()
    wrong[7, 1] = 5
    with pytest.raises(DataError, match=r"category column 1 must hold whole numbers from 0 .* to 4, got 5 in row 7"):
        program.outputs(x, wrong)
    with pytest.raises(ValueError, match="x must have one column for each numeric input"):
        program.outputs(x[:, :2], codes)
    with pytest.raises(ValueError, match="codes must have one column for each categorical input"):
        program.outputs(x)
    with pytest.raises(ValueError, match="codes must have as many rows as x"):
        program.outputs(x, codes[:5])
    with pytest.raises(OptionError, match="kernels"):
        program_of(engine, kernels="mmx")
    with pytest.raises(SpecError, match="kan1 has no kernel"):
        PredictProgram(Spec.parse("3-kan(2)-1"), {})


def test_saved_and_pickled_models_predict_the_same_bits() -> None:
    """Predictions agree with numpy up to rounding. Saving and pickling keep their bits."""
    x = np.random.default_rng(0).normal(size=(300, 6)).astype(np.float32)
    model = ml.fit("6-32:gelu-16:silu-1", (x, (x[:, 0] > 0).astype(int)), epochs=2, quiet=True).model
    assert model is not None
    assert model.members[0].program is not None
    z = model.outputs(x)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.outputs(x), z)
    np.testing.assert_array_equal(model.outputs(x[17:18]), z[17:18])
    np.testing.assert_allclose(z, model.forward_in_numpy(model.read(x)), rtol=0, atol=1e-5)


@pytest.mark.parametrize("text", ["6-kan(4)-1", "6-maxout(8, 4)-1"])
def test_networks_without_kernels_predict_with_numpy(text: str) -> None:
    x = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
    model = ml.fit(text, (x, (x[:, 0] > 0).astype(int)), epochs=1, quiet=True).model
    assert model is not None
    assert model.members[0].program is None
    assert model.outputs(x).shape == (60, 1)


@pytest.mark.parametrize(("how", "option"), [({"device": "cuda"}, "device=cuda"), ({"compile": True}, "compile=True")])
def test_the_fused_engine_refuses_options_of_torch(how: dict[str, Any], option: str) -> None:
    x = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    with pytest.raises(OptionError, match=rf"runs on the CPU only, got {option}: use engine=torch"):
        ml.fit("3-4-1", (x, x[:, 0]), engine="fused", quiet=True, **how)


@pytest.mark.parametrize("kernels", _core.fused_kernels())
@pytest.mark.parametrize("threads", [2, 3, 5])
@pytest.mark.parametrize("text", [*WIDE, "40-320:prelu(per=unit)-192:blend(selu)-330:relu-65", "3-300"])
def test_units_split_among_threads_have_the_same_bits(text: str, threads: int, kernels: str) -> None:
    engine = trained(Spec.parse(text), 60, core=kernels)
    state = engine.state()
    tensors = [[a.reshape(-1) for a in part.values()] for part in (state.parameters, state.buffers)]
    program = _core.PredictionCore(operations_of(engine.spec), *tensors, threads, kernels, all_threads=True)
    x, codes = inputs(engine)
    expected = engine.outputs(np.arange(60))
    for rows in (slice(0, 1), slice(9, 10), slice(5, 12), slice(0, 48), slice(0, 60)) * 3:
        np.testing.assert_array_equal(program.outputs(x[rows], None if codes is None else codes[rows]), expected[rows])


def test_repeated_calls_have_the_same_bits() -> None:
    """More threads may be used after some calls, if that is faster."""
    engine = trained(Spec.parse("300-256:relu-256:relu-3"), 40)
    program = program_of(engine, threads=2)
    x, _ = inputs(engine)
    expected = engine.outputs(np.arange(40))
    for i in range(400):
        np.testing.assert_array_equal(program.core.outputs(x[i % 40 : i % 40 + 1])[0], expected[i % 40])
