"""Bit-for-bit reproducibility of the fused engine, and which data it copies."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from multilayer.data.batches import Data
from multilayer.engines import Order, Settings, State
from multilayer.engines import fused_engine as module
from multilayer.engines.fused_engine import FusedEngine
from multilayer.spec import Spec
from support.cases import ALL, Case
from support.engines import CORES, FUSED_OPTIMIZERS, every_core, fused_engine, on_all_threads, orders, run, table
from support.training_rows import prepare

RECIPE = "14+cat(3, 12, 2)-columns(pbld)-scale-(linear(16, scale=tangent):blend(selu):dropout(0.15))*3-2"


@every_core
@pytest.mark.parametrize("case", [c for c in ALL if c.kernel == "yes"], ids=lambda case: case.name)
def test_gradients_and_apply_equal_run_bit_for_bit(case: Case, core: str) -> None:
    """The comparison includes running statistics."""
    how = {"rows": 12, "clip_norm": 0.1, "l2": 0.01, "average": 0.9, **CORES[core]}
    one, two = fused_engine(case.text, **how), fused_engine(case.text, **how)
    for epoch in (3, 4):
        chunk = run(one, Order(epoch=epoch, rows=np.arange(12), batch=12), decay=0.1)
        found = two.gradients(np.arange(12), epoch=epoch)
        norm = two.apply(found, rate=0.01, decay=0.1)
        assert (found.loss, norm) == (chunk.loss[0], chunk.gradient_norm[0])
    assert one.state().equals(two.state())


@every_core
@pytest.mark.parametrize("optimizer", ["momentum", "adamw"])
def test_chunks_of_1_7_and_1000_steps_have_the_same_bits(core: str, optimizer: str) -> None:
    states, seen = [], []
    for cut in (1, 7, 1000):
        made = fused_engine(rows=200, optimizer=optimizer, average=0.9, clip_norm=0.5, l2=1e-3, **CORES[core])
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


@every_core
@pytest.mark.parametrize("optimizer", FUSED_OPTIMIZERS)
def test_training_continues_from_a_saved_state_bit_for_bit(optimizer: str, core: str) -> None:
    """Load states from before the first step, from the middle, after predictions, and into an engine that was
    trained."""
    how = {"optimizer": optimizer, "average": 0.95, "rate_factors": {"linear1.bias": 0.1}, **CORES[core]}
    first, second = orders(30, 7, 2)
    made = fused_engine(**how)
    start = made.state()
    run(made, first)
    middle = State.from_tensors({k: v.copy() for k, v in made.state().tensors().items()})
    run(made, second)
    end = made.state()
    other = fused_engine(init="he", **how)
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


def test_reruns_and_engines_in_several_threads_have_the_same_bits() -> None:
    def trained(_: int) -> State:
        made = fused_engine(RECIPE, rows=60, loss="cross_entropy")
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
    "a layer of one unit": ("20-48-1:prelu-3", {"optimizer": "sgd"}),
    "one number for a layer": ("16-64:prelu-16:learned_swish(per=unit)-2", {"clip_norm": 0.1}),
    "one number for all": ("16-40:prelu(per=unit)-33:prelu(per=network)-1:prelu(per=network)-3", {"optimizer": "sgd"}),
}


@pytest.mark.parametrize("batch", [32, 45, 512])  # units split among threads, with a remainder, and rows
@pytest.mark.parametrize("name", SHARED)
def test_any_number_of_threads_gives_the_same_bits(name: str, batch: int) -> None:
    text, how = SHARED[name]
    found = []
    for threads in (1, 2, 3, 4, 8):
        made = on_all_threads(
            fused_engine(text, rows=8 * batch, loss="cross_entropy", statistics_every=1, **how), threads
        )
        chunk = run(made, orders(8 * batch, batch, 1)[0], decay=0.01)
        slopes = [list(one.gradients.values()) for one in chunk.statistics]
        found.append((made.state(), [*chunk.loss, *chunk.gradient_norm, *made.outputs(np.arange(batch)).flat], slopes))
    for state, numbers, slopes in found[1:]:
        assert state.step == 8
        assert slopes == found[0][2]
        assert state.equals(found[0][0])
        assert numbers == found[0][1]


@pytest.mark.parametrize("text", ["20-64:tanh-64:relu:dropout(0.2)-2", "70-(linear(65, scale=tangent):gelu)-3", "3-2"])
@pytest.mark.parametrize("batch", [127, 128, 130, 249, 300, 1023, 1024, 1500])
def test_gradients_of_two_halves_have_the_same_bits_on_any_number_of_threads(text: str, batch: int) -> None:
    """Small networks compute the gradients of each half of a batch separately. The last batch is smaller."""
    found = []
    for threads in (1, 2, 3, 4, 8):
        made = on_all_threads(
            fused_engine(text, rows=batch + batch // 2, loss="cross_entropy", statistics_every=1), threads
        )
        chunks = [run(made, order, decay=0.1) for order in orders(batch + batch // 2, batch, 2)]
        apart = made.gradients(np.arange(batch), epoch=5)
        norm = made.apply(apart, rate=0.01, decay=0.1)
        found.append((chunks, apart, norm, made.state()))
        again = on_all_threads(fused_engine(text, rows=batch + batch // 2, loss="cross_entropy"), threads)
        again.load(found[0][3])
        made.load(found[0][3])
        chunk = run(made, Order(epoch=7, rows=np.arange(batch), batch=batch), decay=0.1)
        step = again.gradients(np.arange(batch), epoch=7)
        assert again.apply(step, rate=0.01, decay=0.1) == chunk.gradient_norm[0]
        assert again.state().equals(made.state())
    for chunks, apart, norm, state in found[1:]:
        for chunk, one in zip(chunks, found[0][0], strict=True):
            np.testing.assert_array_equal(chunk.loss, one.loss)
            np.testing.assert_array_equal(chunk.gradient_norm, one.gradient_norm)
            assert [one.gradients for one in chunk.statistics] == [one.gradients for one in one.statistics]
        for name, values in apart.gradients.items():
            np.testing.assert_array_equal(values, found[0][1].gradients[name])
        assert norm == found[0][2]
        assert state.equals(found[0][3])


@pytest.mark.parametrize("case", [c for c in ALL if c.kernel == "yes"], ids=lambda case: case.name)
def test_every_layer_has_the_same_bits_on_any_number_of_threads(case: Case) -> None:
    found = []
    for threads in (1, 2, 5):
        made = on_all_threads(fused_engine(case.text, rows=37, clip_norm=0.1, average=0.9, statistics_every=1), threads)
        chunk = run(made, orders(37, 17, 1)[0], decay=0.01)
        seen = made.gradients(np.arange(9), epoch=1).gradients
        found.append((made.state(), [list(one.gradients.values()) for one in chunk.statistics], list(seen.values())))
    for state, slopes, gradients in found[1:]:
        assert state.equals(found[0][0])
        assert slopes == found[0][1]
        assert all(map(np.array_equal, gradients, found[0][2]))


def test_denormals_are_flushed_in_whole_and_in_halved_batches() -> None:
    """A running variance halves at each step and becomes denormal. Both code paths must flush it to 0."""
    one, two = (fused_engine("4-6:batchnorm(momentum=0.5):relu-3", rows=12, optimizer="sgd") for _ in range(2))
    start = one.state()
    for name in ("linear1.weight", "linear1.bias"):
        start.parameters[name][0] = 0
    start.buffers["batchnorm1.running_var"][0] = 1e-37
    for made in (one, two):
        made.load(start)
    for _ in range(5):
        run(one, Order(epoch=0, rows=np.arange(12), batch=12), rate=0.0)
        two.apply(two.gradients(np.arange(12), epoch=0), rate=0.0, decay=0.0)
    assert one.state().buffers["batchnorm1.running_var"][0] == 0
    assert one.state().equals(two.state())


def test_state_returns_a_copy() -> None:
    made = fused_engine(average=0.5)
    before = made.state()
    kept = {name: value.copy() for name, value in before.tensors().items()}
    run(made, orders(30, 4, 1)[0])
    made.load(before)
    run(made, orders(30, 4, 1)[0])
    for name, value in before.tensors().items():
        np.testing.assert_array_equal(value, kept[name])


def test_computing_gradients_does_not_change_the_engine() -> None:
    made = fused_engine()
    run(made, orders(30, 5, 1)[0])
    before = made.state()
    found, again = (made.gradients(np.arange(7), epoch=2) for _ in range(2))
    assert found.loss == again.loss
    assert found.buffers.keys() == {"batchnorm1.running_mean", "batchnorm1.running_var"}
    assert all(np.array_equal(g, again.gradients[name]) for name, g in found.gradients.items())
    assert made.state().equals(before)


@every_core
def test_one_row_is_predicted_as_in_a_batch(core: str) -> None:
    made = fused_engine(RECIPE, rows=700, loss="cross_entropy", **CORES[core])
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


@every_core
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_memory_layout_of_the_data_does_not_matter(layout: str, core: str) -> None:
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


@every_core
def test_data_of_the_right_type_is_not_copied(core: str) -> None:
    spec = Spec.parse("3-2")
    wide = np.zeros((8, 5), dtype=CORES[core]["dtype"])
    made = FusedEngine(spec, Data(x=wide[:, 1:4], y=np.zeros((8, 2))), Settings(loss="mse"), **CORES[core])
    before = made.outputs(np.arange(8))
    wide[3, 2] = 1
    changed = made.outputs(np.arange(8)) != before
    assert changed.any(axis=1).tolist() == [i == 3 for i in range(8)]


def test_augmented_rows_have_the_same_bits_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {f"x{i}": np.random.default_rng(i).normal(size=40) for i in range(5)} | {"y": np.arange(40) % 4}
    ready = prepare(columns, target="y", augment="noise+mixup")
    spec = Spec.parse("5-6:tanh:dropout(0.3)-4")
    states = []
    for piece in (module.MAX_ROWS_PER_CALL, 16, 1):
        monkeypatch.setattr(module, "MAX_ROWS_PER_CALL", piece)
        made = FusedEngine(spec, ready.data, Settings(loss="cross_entropy"))
        chunk = run(made, orders(40, 7, 1)[0])
        assert (len(chunk.loss), len(chunk.gradient_norm), chunk.bad) == (6, 6, None)
        states.append(made.state())
    assert states[0].equals(states[1])
    assert states[0].equals(states[2])


@every_core
@pytest.mark.parametrize("text", ["1-1", "3-tanh", "3-[tanh]", "3-identity", "cat(2)-columns-1"])
def test_the_smallest_networks(text: str, core: str) -> None:
    made = fused_engine(text, rows=5, **CORES[core])
    chunk = run(made, Order(epoch=0, rows=np.arange(5), batch=1))
    assert np.isfinite(chunk.loss).all()
    assert made.state().step == 5
    empty = run(made, Order(epoch=0, rows=np.arange(0), batch=4))
    assert (len(empty.loss), empty.bad, made.state().step) == (0, None, 5)


@pytest.mark.parametrize("bad", [None, 1, 15, 16, 17, 39])
def test_calls_that_tune_threads_have_the_bits_of_one_thread(bad: int | None) -> None:
    """A call that tries another number of threads on its first steps is split into two pieces."""
    spec = Spec.parse("20-64:relu:dropout(0.2)-64:relu-2")
    data = table(spec, 32 * 40)
    ones = np.ones(40)

    def calls(threads: int) -> tuple[list[np.ndarray], State]:
        engine = FusedEngine(spec, data, Settings(loss="mse", seed=5, statistics_every=7), threads=threads)
        found: list[np.ndarray] = []
        for epoch in range(5):
            order = Order(epoch=epoch, rows=np.arange(32 * 40), batch=32)
            rate = 1e-3 * ones
            if epoch == 4 and bad is not None:
                rate[bad - 1] = np.nan
            chunk = engine.run(order, rate=rate, decay=0 * ones, dropout=ones)
            statistics = [[*one.gradients.values(), *one.parameters.values(), one.place] for one in chunk.statistics]
            found += [chunk.loss, chunk.gradient_norm, np.array(statistics)]
            assert chunk.bad == (bad if epoch == 4 else None)
        return found, engine.state()

    (alone, one), (together, two) = calls(1), calls(3)
    for a, b in zip(alone, together, strict=True):
        np.testing.assert_array_equal(a, b)
    for name, values in one.parameters.items():
        np.testing.assert_array_equal(values, two.parameters[name])
