"""The fused engine: what must not change a bit, values that are not finite, what it refuses, Ctrl-C, and no torch."""

from __future__ import annotations

import math
import subprocess
import sys
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cases import ALL, Case
from engines import OPTIMIZERS, orders, run, table
from multilayer import _core
from multilayer.data import prepare
from multilayer.engine import Data, Order, Settings, State
from multilayer.engine import fused_engine as module
from multilayer.engine.fused_engine import FusedEngine
from multilayer.engine.fused_program import program_of
from multilayer.errors import BatchError, DataError, OptionError, SpecError, StateError
from multilayer.spec import Spec

RECIPE = "14+cat(3, 12, 2)-columns(pbld)-scale-(linear(16, scale=tangent):blend(selu):dropout(0.15))*3-2"
MIXED = "4-6:batchnorm:prelu:dropout(0.3)-3"
CORES = {
    "double": {"dtype": "float64"},
    "plain loops": {"dtype": "float32", "core": "reference"},
    "kernels": {"dtype": "float32"},
}
every = pytest.mark.parametrize("core", CORES)


def engine(text: str = MIXED, rows: int = 30, loss: str = "mse", **how: Any) -> FusedEngine:
    spec = Spec.parse(text)
    made = {k: how.pop(k) for k in ("dtype", "core", "threads", "init") if k in how}
    return FusedEngine(spec, table(spec, rows, loss), Settings(loss=loss, **how), **made)


# What must not matter


@every
@pytest.mark.parametrize("case", [c for c in ALL if c.kernel == "yes"], ids=lambda case: case.name)
def test_gradients_and_apply_are_a_step_bit_for_bit(case: Case, core: str) -> None:
    """Running statistics are part of the step."""
    how = {"rows": 12, "clip_norm": 0.1, "l2": 0.01, "average": 0.9, **CORES[core]}
    one, two = engine(case.text, **how), engine(case.text, **how)
    for epoch in (3, 4):
        chunk = run(one, Order(epoch=epoch, rows=np.arange(12), batch=12), decay=0.1)
        found = two.gradients(np.arange(12), epoch=epoch)
        norm = two.apply(found, rate=0.01, decay=0.1)
        assert (found.loss, norm) == (chunk.loss[0], chunk.gradient_norm[0])
    assert one.state().equals(two.state())


@every
@pytest.mark.parametrize("optimizer", ["momentum", "adamw"])
def test_chunks_of_1_7_and_1000_steps_are_the_same_bits(core: str, optimizer: str) -> None:
    states, seen = [], []
    for cut in (1, 7, 1000):
        made = engine(rows=200, optimizer=optimizer, average=0.9, clip_norm=0.5, l2=1e-3, **CORES[core])
        parts = []
        for order in orders(200, 6, 2):
            for start in range(0, 200, cut * 6):
                parts.append(run(made, replace(order, rows=order.rows[start : start + cut * 6]), decay=0.01))
        states.append(made.state())
        seen.append([np.concatenate([getattr(c, name) for c in parts]) for name in ("loss", "gradient_norm")])
    assert len(seen[0][0]) == 68
    for state, found in zip(states[1:], seen[1:], strict=True):
        assert state.equals(states[0])
        np.testing.assert_array_equal(found, seen[0])


@every
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_saved_state_goes_on_bit_for_bit(optimizer: str, core: str) -> None:
    """From before the first step, from the middle, after rows were looked at, and into an engine that has gone on."""
    how = {"optimizer": optimizer, "average": 0.95, "rate_factors": {"linear1.bias": 0.1}, **CORES[core]}
    first, second = orders(30, 7, 2)
    made = engine(**how)
    start = made.state()
    run(made, first)
    middle = State.from_tensors({k: v.copy() for k, v in made.state().tensors().items()})
    run(made, second)
    end = made.state()
    other = engine(init="he", **how)
    other.load(middle)
    other.outputs(np.arange(30))
    other.gradients(np.arange(5), epoch=9)
    run(other, second)
    assert other.state().equals(end)
    for order, saved in ((first, start), (second, middle)):
        other.load(saved)
        assert other.state().equals(saved)
        run(other, order)
    assert other.state().equals(end)


def test_reruns_and_engines_in_several_threads_are_the_same_bits() -> None:
    def trained(_: int) -> State:
        made = engine(RECIPE, rows=60, loss="cross_entropy")
        for order in orders(60, 16, 4):
            run(made, order)
        return made.state()

    alone = trained(0)
    with ThreadPoolExecutor(4) as pool:
        assert all(state.equals(alone) for state in pool.map(trained, range(8)))


SHARED = {
    "dropout": ("64-256:gelu:dropout(0.1)-384:relu-10", {}),
    "batch norm": ("64-256:batchnorm:gelu:dropout(0.1)-384:prelu-10", {"optimizer": "momentum", "l2": 1e-3}),
    "residual": ("64-256-[256:layernorm:gelu-256]-256:rmsnorm-10", {"clip_norm": 0.1}),
    "gated": ("64-swiglu(256)-384:relu-10", {"average": 0.9}),
    "columns": ("20+cat(3, 12)-columns(pbld)-256:gelu-384:blend(selu):dropout(0.1)-10", {"clip_value": 0.01}),
}
"""Networks so large that a step is worth eight threads even at 32 rows, as Fused::threads_for counts."""


@pytest.mark.parametrize("batch", [32, 45, 512])  # units are shared out, then with a tail, then rows
@pytest.mark.parametrize("name", SHARED)
def test_any_number_of_threads_gives_the_same_bits(name: str, batch: int) -> None:
    text, how = SHARED[name]
    assert _products(Spec.parse(text)) * batch >= 8 * 400_000
    found = []
    for threads in (1, 2, 3, 4, 8):
        made = engine(text, rows=3 * batch, loss="cross_entropy", threads=threads, **how)
        chunk = run(made, orders(3 * batch, batch, 1)[0], decay=0.01)
        found.append((made.state(), [*chunk.loss, *chunk.gradient_norm, *made.outputs(np.arange(batch)).flat]))
    for state, numbers in found[1:]:
        assert state.step == 3
        assert state.equals(found[0][0])
        assert numbers == found[0][1]


def _products(spec: Spec) -> int:
    return sum(math.prod(p.shape) for name, p in spec.parameters.items() if name.endswith("weight"))


def test_a_state_handed_out_is_a_copy() -> None:
    made = engine(average=0.5)
    before = made.state()
    kept = {name: value.copy() for name, value in before.tensors().items()}
    run(made, orders(30, 4, 1)[0])
    made.load(before)
    run(made, orders(30, 4, 1)[0])
    for name, value in before.tensors().items():
        np.testing.assert_array_equal(value, kept[name])


def test_looking_at_gradients_changes_nothing() -> None:
    made = engine()
    run(made, orders(30, 5, 1)[0])
    before = made.state()
    found, again = (made.gradients(np.arange(7), epoch=2) for _ in range(2))
    assert found.loss == again.loss
    assert found.buffers.keys() == {"batchnorm1.running_mean", "batchnorm1.running_var"}
    assert all(np.array_equal(g, again.gradients[name]) for name, g in found.gradients.items())
    assert made.state().equals(before)


@every
def test_one_row_is_predicted_as_in_a_batch(core: str) -> None:
    made = engine(RECIPE, rows=700, loss="cross_entropy", **CORES[core])
    together = made.outputs(np.arange(700))
    rows = np.array([0, 255, 256, 699, 3, 3])
    np.testing.assert_array_equal(made.outputs(rows), together[rows])
    for row in rows:
        np.testing.assert_array_equal(made.outputs(np.array([row]))[0], together[row])
    assert made.outputs(np.arange(0)).shape == (0, 2)


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "columns of a wider table": lambda x: np.hstack([x, x])[:, : x.shape[1]],
    "every other row": lambda x: np.repeat(x, 2, axis=0)[::2],
    "read only": lambda x: np.frombuffer(x.tobytes(), x.dtype).reshape(x.shape),
    "columns first": np.asfortranarray,
    "backwards": lambda x: np.ascontiguousarray(x[::-1])[::-1],
    "misaligned": lambda x: np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(x.dtype).reshape(x.shape),
    "big endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
    "the other type": lambda x: x.astype(np.float32 if x.dtype == np.float64 else np.float64),
}


@every
@pytest.mark.parametrize("layout", LAYOUTS)
def test_how_the_data_lies_in_memory_does_not_matter(layout: str, core: str) -> None:
    spec = Spec.parse("4+cat(3, 9)-columns-5:tanh-2")
    data = table(spec, 30)
    dtype = CORES[core]["dtype"]
    x, y, weight = (a.astype(np.float32).astype(dtype) for a in (data.x, data.y, np.linspace(1, 2, 30)))
    plain = replace(data, x=x, y=y, weight=weight)
    lie = LAYOUTS[layout]
    other = Data(
        x=lie(x), y=lie(y), codes=np.asfortranarray(data.codes, dtype=np.int32), weight=lie(weight[:, None])[:, 0]
    )
    states = []
    for d in (plain, other):
        made = FusedEngine(spec, d, Settings(loss="mse"), **CORES[core])
        run(made, orders(30, 7, 1)[0])
        states.append(made.state())
    assert states[0].equals(states[1])


@every
def test_data_of_the_right_type_is_not_copied(core: str) -> None:
    spec = Spec.parse("3-2")
    wide = np.zeros((8, 5), dtype=CORES[core]["dtype"])
    made = FusedEngine(spec, Data(x=wide[:, 1:4], y=np.zeros((8, 2))), Settings(loss="mse"), **CORES[core])
    before = made.outputs(np.arange(8))
    wide[3, 2] = 1
    changed = made.outputs(np.arange(8)) != before
    assert changed.any(axis=1).tolist() == [i == 3 for i in range(8)]


def test_augmented_rows_in_pieces_are_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {f"x{i}": np.random.default_rng(i).normal(size=40) for i in range(5)} | {"y": np.arange(40) % 4}
    ready = prepare(columns, target="y", augment="noise+mixup")
    spec = Spec.parse("5-6:tanh:dropout(0.3)-4")
    states = []
    for piece in (module.PIECE, 16, 1):
        monkeypatch.setattr(module, "PIECE", piece)
        made = FusedEngine(spec, ready.data, Settings(loss="cross_entropy"))
        chunk = run(made, orders(40, 7, 1)[0])
        assert (len(chunk.loss), len(chunk.gradient_norm), chunk.bad) == (6, 6, None)
        states.append(made.state())
    assert states[0].equals(states[1])
    assert states[0].equals(states[2])


@every
@pytest.mark.parametrize("text", ["1-1", "3-tanh", "3-[tanh]", "3-identity", "cat(2)-columns-1"])
def test_the_smallest_networks(text: str, core: str) -> None:
    made = engine(text, rows=5, **CORES[core])
    chunk = run(made, Order(epoch=0, rows=np.arange(5), batch=1))
    assert np.isfinite(chunk.loss).all()
    assert made.state().step == 5
    empty = run(made, Order(epoch=0, rows=np.arange(0), batch=4))
    assert (len(empty.loss), empty.bad, made.state().step) == (0, None, 5)


# Values that are not finite


@every
@pytest.mark.parametrize("where", ["x", "y", "weight"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("cut", [1, 2, 4])
def test_a_value_that_is_not_finite_is_flagged_before_the_update(value: float, where: str, cut: int, core: str) -> None:
    spec = Spec.parse("3-4:batchnorm:tanh-1")
    data = replace(table(spec, 8), weight=np.ones(8))
    untouched = replace(data, **{where: getattr(data, where).copy()})
    getattr(data, where)[5] = value
    how = Settings(loss="mse", average=0.9)
    clean, made = (FusedEngine(spec, d, how, **CORES[core]) for d in (untouched, data))
    run(clean, Order(epoch=0, rows=np.arange(4), batch=2))
    for start in range(0, 8, 2 * cut):
        chunk = run(made, Order(epoch=0, rows=np.arange(start, min(start + 2 * cut, 8)), batch=2))
        if chunk.bad is not None:
            assert start // 2 + chunk.bad == 2
            assert len(chunk.loss) == len(chunk.gradient_norm) == chunk.bad + 1
            break
    else:
        pytest.fail("the bad step was not flagged")
    if core != "kernels":  # which update as they go: the loop loads the state from before
        assert made.state().equals(clean.state())


@every
@pytest.mark.parametrize("case", [c for c in ALL if c.kernel == "yes"], ids=lambda case: case.name)
def test_nan_in_any_number_is_flagged_by_every_layer(case: Case, core: str) -> None:
    spec = case.spec
    if not spec.inputs.numeric or "step" in case.text or "hard_tanh" in case.text:
        return  # no number to spoil; or flat wherever it goes, so that PyTorch has no NaN to pass on either
    data = table(spec, 6)
    data.x[4, 0] = np.nan
    made = FusedEngine(spec, data, Settings(loss="mse"), **CORES[core])
    assert run(made, Order(epoch=0, rows=np.arange(6), batch=3)).bad == 1


@every
def test_a_finite_gradient_whose_squares_overflow(core: str) -> None:
    """Flagged by the kernels alone, which add squares in float: beyond a norm of 1.8e19 they have no number for it."""
    data = Data(x=np.full((2, 1), 1e10), y=np.full((2, 1), -1e14))
    how = Settings(loss="mse", optimizer="sgd")
    made = FusedEngine(Spec.parse("1-1"), data, how, init="zeros", **CORES[core])
    chunk = run(made, Order(epoch=0, rows=np.arange(2), batch=2), rate=1e-30)
    if core == "kernels":
        assert chunk.bad == 0
        return
    assert chunk.bad is None
    assert chunk.gradient_norm[0] == pytest.approx(2e24, rel=1e-6)


# What is refused


@pytest.mark.parametrize("text", ["2-kan(3)-1", "2-maxout(3)-1", "2-4:apl-1", "2-3:softmax"])
def test_a_network_without_kernels_is_refused_with_what_to_do(text: str) -> None:
    with pytest.raises(SpecError, match=r"has no kernel in the fused engine: train 2-.* with engine=torch"):
        engine(text)


@pytest.mark.parametrize("text", ["2+cat(2, 3)-1", "2+cat(2, 12)-columns(d_category=3)-1"])
@pytest.mark.parametrize(("column", "code"), [(0, -1), (0, 3), (1, -1), (1, 13), (1, 0.5), (0, np.nan)])
def test_codes_outside_their_values_are_refused(text: str, column: int, code: float) -> None:
    spec = Spec.parse(text)
    n = spec.inputs.categories[column]
    codes = np.ones((4, 2), dtype=np.int64 if isinstance(code, int) else np.float64)
    codes[2, column] = code
    data = Data(x=np.zeros((4, 2)), codes=codes, y=np.zeros((4, 1)))  # type: ignore[arg-type]
    message = rf"category column {column} must hold .* from 0 \(missing or unknown\) to {n}, got {code} in row 2"
    with pytest.raises(DataError, match=message):
        FusedEngine(spec, data, Settings(loss="mse"))


@pytest.mark.parametrize("label", [-1.0, 3.0, 0.5, np.nan])
def test_class_numbers_without_an_output_are_refused(label: float) -> None:
    data = Data(x=np.zeros((3, 2)), y=np.array([0, 2, label]))
    with pytest.raises(DataError, match=f"y must hold class numbers from 0 to 2, got {label} in row 2"):
        FusedEngine(Spec.parse("2-3"), data, Settings(loss="cross_entropy"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros((8, 3))}, r"x must have the shape \(8, 2\) .* got shape \(8, 3\)"),
        ({"y": np.zeros(8)}, r"y must have the shape \(8, 1\)"),
        ({"codes": None}, r"codes must have the shape \(8, 1\) .* got none"),
        ({"weight": np.ones((8, 1))}, r"weight must have the shape \(8,\)"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    spec = Spec.parse("2+cat(3)-columns-1")
    with pytest.raises(OptionError, match=message):
        FusedEngine(spec, replace(table(spec, 8), **change), Settings(loss="mse"))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"dtype": "bfloat16"}, "computes in float32 or float64, got 'bfloat16': use engine=torch"),
        ({"dtype": np.float16}, "computes in float32 or float64, got 'float16'"),
        ({"core": "referense"}, "did you mean 'reference'"),
        ({"threads": 0}, "threads must be a whole number of at least 1, got 0"),
        ({"rate_factors": {"linear9.bias": 1.0}}, "unknown parameter in rate_factors 'linear9.bias'"),
    ],
)
def test_options_outside_what_they_take_are_refused(how: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        engine(**how)


def test_a_state_of_another_network_is_refused() -> None:
    other = engine("4-5:batchnorm:prelu:dropout(0.3)-3").state()
    with pytest.raises(StateError, match=r"parameters/linear1.weight must have the shape \(6, 4\), got \(5, 4\)"):
        engine().load(other)


def test_batch_norm_refuses_one_row_before_any_step() -> None:
    made = engine(rows=13)
    before = made.state()
    with pytest.raises(BatchError, match="at least 2 rows in a training batch, got 1"):
        run(made, Order(epoch=0, rows=np.arange(13), batch=4))
    with pytest.raises(BatchError, match="drop the last batch, or use layernorm"):
        made.gradients(np.arange(1), epoch=0)
    assert made.state().equals(before)


def test_dropout_of_everything_is_refused() -> None:
    with pytest.raises(OptionError, match=r"dropout times its factor must be at least 0 and below 1, got 1\.2"):
        run(engine(), Order(epoch=0, rows=np.arange(4), batch=2), dropout=4.0)
    with pytest.raises(OptionError, match="dropout times its factor"):
        engine().gradients(np.arange(4), epoch=0, dropout=-0.5)


def test_rows_outside_the_table_are_refused() -> None:
    made = engine()
    for rows in (np.array([0, 30]), np.array([-1, 1])):
        for call in (made.outputs, lambda rows: made.gradients(rows, epoch=0)):
            with pytest.raises(IndexError, match=r"row (30|-1) is not in a table of 30"):
                call(rows)
        with pytest.raises(IndexError, match="is not in a table of 30"):
            run(made, Order(epoch=0, rows=rows, batch=2))


def test_the_core_does_not_read_past_an_array() -> None:
    """What the engine always passes right: the binding's own checks."""
    program = program_of(Spec.parse("2-3"), Settings(loss="mse", optimizer="sgd"))
    core = _core.reference_double(program)
    x, y = np.zeros((4, 2)), np.zeros((4, 3))
    whole = _core.TableDouble(x, None, None, y, None)
    rows, one = np.arange(4), np.ones(1)
    with pytest.raises(ValueError, match="y must have a row for each of x"):
        _core.TableDouble(x, None, None, y[:3], None)
    with pytest.raises(ValueError, match="the numbers of a row must stand side by side"):
        _core.TableDouble(np.asfortranarray(x), None, None, y, None)
    for other, message in (
        (_core.TableDouble(np.zeros((4, 1)), None, None, y, None), "x must have the network's numbers"),
        (_core.TableDouble(x, np.zeros((4, 1), np.int64), None, y, None), "the network's category columns"),
        (_core.TableDouble(x, None, np.zeros(4, np.int64), None, None), "the loss needs class numbers or targets"),
        (_core.TableDouble(x, None, None, y[:, :2].copy(), None), "y must have the network's targets"),
    ):
        with pytest.raises(ValueError, match=message):
            core.run(other, rows, rows, 4, 0, one, one, one)
    with pytest.raises(ValueError, match="must have one number a step"):
        core.run(whole, rows, rows, 2, 0, one, one, one)
    with pytest.raises(ValueError, match="this program keeps no such tensors"):
        core.read(_core.Group["slot0"])
    with pytest.raises(IndexError):
        core.write(_core.Group["parameters"], 2, np.zeros(5))
    with pytest.raises(ValueError, match="a tensor must have its size"):
        core.write(_core.Group["parameters"], 0, np.zeros(5))
    with pytest.raises(ValueError, match="every gradient and every buffer"):
        core.apply([np.zeros(6)], [], 0.1, 0.0)
    with pytest.raises(TypeError):
        _core.TableDouble(x.astype(np.float32), None, None, y, None)


# Ctrl-C, and what is imported


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("call", ["run", "outputs"])
@pytest.mark.parametrize("core", ["auto", "reference"])
def test_ctrl_c_is_heard_within_100_ms_after_a_whole_step(call: str, core: str) -> None:
    out = python(f"""
        import os, signal, threading, time
        import numpy as np
        from multilayer.engine import Data, Order, Settings
        from multilayer.engine.fused_engine import FusedEngine
        from multilayer.spec import Spec

        n, batch = 100_000, 8
        x = np.random.default_rng(0).normal(size=(n, 20))
        data = Data(x=x, y=x[:, :2])

        def made():
            return FusedEngine(Spec.parse("20-128-128-2"), data, Settings(loss="mse"), core={core!r})

        def run(engine, steps):
            ones = np.ones(steps)
            order = Order(epoch=0, rows=np.arange(steps * batch), batch=batch)
            engine.run(order, rate=0.001 * ones, decay=0 * ones, dropout=ones)

        times = []
        for _ in range(3):
            engine, sent = made(), []

            def send():
                sent.append(time.perf_counter())
                os.kill(os.getpid(), signal.SIGINT)

            threading.Timer(0.2, send).start()
            try:
                while True:
                    engine.outputs(np.arange(n)) if {call!r} == "outputs" else run(engine, n // batch)
            except KeyboardInterrupt:
                times.append(time.perf_counter() - sent[0])
            again, taken = made(), engine.state().step
            for start in range(0, taken, n // batch):
                run(again, min(n // batch, taken - start))
            assert again.state().equals(engine.state())
        print(min(times))
    """)
    assert float(out) < 0.1


def test_a_handler_that_does_not_raise_lets_the_steps_go_on() -> None:
    out = python("""
        import os, signal, threading
        import numpy as np
        from multilayer.engine import Data, Order, Settings
        from multilayer.engine.fused_engine import FusedEngine
        from multilayer.spec import Spec

        heard = []
        signal.signal(signal.SIGINT, lambda *_: heard.append(1))
        n = 20_000
        engine = FusedEngine(Spec.parse("20-64-2"), Data(x=np.zeros((n, 20)), y=np.zeros((n, 2))), Settings(loss="mse"))
        threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        steps = np.ones(n // 4)
        for epoch in range(100):
            engine.run(Order(epoch=epoch, rows=np.arange(n), batch=4), rate=0 * steps, decay=0 * steps, dropout=steps)
            if heard:
                break
        print(heard, engine.state().step % len(steps))
    """)
    assert out.split() == ["[1]", "0"]


def test_training_and_predicting_import_no_torch() -> None:
    out = python("""
        import sys
        import numpy as np
        from multilayer.engine import Data, Order, Settings
        from multilayer.engine.fused_engine import FusedEngine
        from multilayer.spec import Spec

        spec = Spec.parse("3+cat(2, 12)-columns(pbld)-8:gelu:batchnorm:dropout(0.1)-2")
        data = Data(x=np.zeros((9, 3)), codes=np.ones((9, 2), dtype=np.int64), y=np.zeros(9, dtype=np.int64))
        engine = FusedEngine(spec, data, Settings(loss="cross_entropy"))
        engine.run(Order(epoch=0, rows=np.arange(9), batch=3), rate=np.ones(3), decay=np.ones(3), dropout=np.ones(3))
        engine.outputs(np.arange(9))
        print(sorted({name.split(".")[0] for name in sys.modules} & {"torch", "sklearn", "pandas", "scipy"}))
    """)
    assert out.strip() == "[]"


def test_fit_trains_with_it_by_name_without_torch() -> None:
    out = python("""
        import sys
        import numpy as np
        import multilayer as ml

        x = np.random.default_rng(0).normal(size=(300, 4))
        how = {"engine": "fused", "epochs": 10, "quiet": True, "learning_rate": 0.01, "augment": "noise(0.1)"}
        runs = [ml.fit(None, (x, (x[:, 0] > 0).astype(int)), **how) for _ in range(2)]
        print(runs[0].metrics["accuracy"] > 0.9, runs[0].metrics == runs[1].metrics, "torch" in sys.modules)
    """)
    assert out.split() == ["True", "True", "False"]
