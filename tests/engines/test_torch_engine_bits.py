"""Bit-for-bit reproducibility of the torch engine, dropout masks, and non-finite values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import multilayer as ml
from multilayer.data.batches import Data
from multilayer.engines import Order, Settings, State
from multilayer.engines.numpy_engine import NumpyEngine
from multilayer.engines.torch_engine import TorchEngine
from multilayer.errors import BatchError
from multilayer.spec import Spec
from support.cases import ALL, Case
from support.engines import OPTIMIZERS, double, orders, run, table

pytestmark = pytest.mark.usefixtures("one_thread")


# Reproducibility


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("optimizer", ["momentum", "adamw"])
def test_chunks_of_1_7_and_1000_steps_have_the_same_bits(dtype: str, optimizer: str) -> None:
    spec = Spec.parse("4-6:batchnorm:relu:dropout(0.3)-3")
    data = table(spec, 200)
    settings = Settings(loss="mse", optimizer=optimizer, average=0.9, clip_norm=0.5, l2=1e-3)
    states, seen = [], []
    for cut in (1, 7, 1000):
        engine = TorchEngine(spec, data, settings, dtype=dtype)
        parts = []
        for order in orders(200, 6, 2):
            for start in range(0, 200, cut * 6):
                part = replace(order, rows=order.rows[start : start + cut * 6])
                chunk = run(engine, part, decay=0.01)
                parts += [chunk.loss, chunk.gradient_norm]
        states.append(engine.state())
        seen.append((np.concatenate(parts[::2]), np.concatenate(parts[1::2])))
    assert len(seen[0][0]) == 68
    for state, (loss, norm) in zip(states[1:], seen[1:], strict=True):
        assert state.equals(states[0])
        np.testing.assert_array_equal(loss, seen[0][0])
        np.testing.assert_array_equal(norm, seen[0][1])


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_continues_from_a_saved_state_bit_for_bit(optimizer: str, dtype: str) -> None:
    """Load states from before the first step, from the middle, after predictions, and into an engine that was
    trained."""
    spec = Spec.parse("4-6:batchnorm:prelu:dropout(0.3)-3")
    data = table(spec, 30)
    settings = Settings(loss="mse", optimizer=optimizer, average=0.95, rate_factors={"linear1.bias": 0.1})
    engine = TorchEngine(spec, data, settings, dtype=dtype)
    first, second = orders(30, 7, 2)
    start = engine.state()
    run(engine, first)
    middle = State.from_tensors({k: v.copy() for k, v in engine.state().tensors().items()})
    run(engine, second)
    end = engine.state()
    other = TorchEngine(spec, data, settings, dtype=dtype, init="he")
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


def test_a_rerun_has_the_same_bits() -> None:
    spec = Spec.parse("14+cat(3, 12, 2)-columns(pbld)-scale-(linear(16, scale=tangent):blend(selu):dropout(0.15))*3-2")
    data = table(spec, 60, "cross_entropy")
    states = []
    for _ in range(5):
        engine = TorchEngine(spec, data, Settings(loss="cross_entropy"))
        for order in orders(60, 16, 2):
            run(engine, order)
        states.append(engine.state())
    assert all(state.equals(states[0]) for state in states)


def test_state_returns_a_copy() -> None:
    spec = Spec.parse("3-4:batchnorm-1")
    engine = double(spec, table(spec, 8), Settings(loss="mse", average=0.5))
    before = engine.state()
    kept = {name: value.copy() for name, value in before.tensors().items()}
    run(engine, orders(8, 4, 1)[0])
    for name, value in before.tensors().items():
        np.testing.assert_array_equal(value, kept[name])
    engine.load(before)
    run(engine, orders(8, 4, 1)[0])
    np.testing.assert_array_equal(before.parameters["linear1.weight"], kept["parameters/linear1.weight"])


def test_computing_gradients_does_not_change_the_engine() -> None:
    spec = Spec.parse("4-6:batchnorm:tanh:dropout(0.2)-3")
    engine = double(spec, table(spec, 20), Settings(loss="mse"))
    run(engine, orders(20, 5, 1)[0])
    before = engine.state()
    found = engine.gradients(np.arange(7), epoch=2)
    again = engine.gradients(np.arange(7), epoch=2)
    assert found.loss == again.loss
    assert all(np.array_equal(g, again.gradients[name]) for name, g in found.gradients.items())
    assert engine.state().equals(before)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", [c for c in ALL if c.name != "worked example"], ids=lambda case: case.name)
def test_gradients_and_apply_equal_run_bit_for_bit(case: Case, dtype: str) -> None:
    """The comparison includes running statistics."""
    spec = case.spec
    settings = Settings(loss="mse", clip_norm=0.1, l2=0.01, average=0.9)
    data = table(spec, 12)
    one, two = (TorchEngine(spec, data, settings, dtype=dtype) for _ in range(2))
    for epoch in (3, 4):
        chunk = run(one, Order(epoch=epoch, rows=np.arange(12), batch=12), decay=0.1)
        found = two.gradients(np.arange(12), epoch=epoch)
        norm = two.apply(found, rate=0.01, decay=0.1)
        assert (found.loss, norm) == (chunk.loss[0], chunk.gradient_norm[0])
    assert one.state().equals(two.state())


# Dropout


def test_dropout_masks_depend_on_the_row_and_the_number_of_the_layer_only() -> None:
    spec = Spec.parse("4-8:tanh:dropout(0.5)-3:dropout(0)-[3:dropout(0.25)-3]-2:dropout(0.1)")
    data = table(spec, 20)
    settings = Settings(loss="mse", seed=9)
    engine, oracle = double(spec, data, settings), NumpyEngine(spec, data, settings)
    rows = np.array([3, 11, 7, 19])
    for factor in (1.0, 0.5, 0.0):
        together = engine.gradients(rows, epoch=4, dropout=factor).gradients
        singles = [engine.gradients(rows[i : i + 1], epoch=4, dropout=factor).gradients for i in range(4)]
        expected = oracle.gradients(rows, epoch=4, dropout=factor).gradients
        for name, g in together.items():
            np.testing.assert_allclose(g, np.mean([found[name] for found in singles], axis=0), atol=1e-13)
            np.testing.assert_allclose(g, expected[name], atol=1e-13)


def test_masks_drawn_on_a_device_depend_on_seed_epoch_and_batch_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Test how masks are drawn on an accelerator, with the generator of the CPU."""
    monkeypatch.setattr(TorchEngine, "_mask", TorchEngine._device_mask)
    spec = Spec.parse("4-400:relu:dropout(0.25)-2")
    data = table(spec, 40)
    before = torch.random.get_rng_state()
    engine = double(spec, data, Settings(loss="mse", optimizer="sgd"))
    first = engine.gradients(np.arange(8), epoch=0).loss
    assert engine.gradients(np.arange(8), epoch=1).loss != first
    assert engine.gradients(np.arange(8, 16), epoch=0).loss != first
    assert engine.gradients(np.arange(8), epoch=0).loss == first
    assert torch.equal(torch.random.get_rng_state(), before)
    engine._rows, engine._epoch = np.arange(40), 0
    mask = engine._mask(400, 0.25, 0)
    assert set(mask.unique().tolist()) == {0, 1 / 0.75}
    assert mask.count_nonzero().item() / mask.numel() == pytest.approx(0.75, abs=0.02)
    assert not torch.equal(mask, engine._mask(400, 0.25, 1))


# Non-finite values


@pytest.mark.parametrize("where", ["x", "y", "weight"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("cut", [1, 2, 4])
def test_a_non_finite_value_is_reported_before_the_update(value: float, where: str, cut: int) -> None:
    spec = Spec.parse("3-4:batchnorm:tanh-1")
    data = replace(table(spec, 8), weight=np.ones(8))
    getattr(data, where)[5] = value
    engine = TorchEngine(spec, data, Settings(loss="mse", average=0.9))
    clean = TorchEngine(spec, table(spec, 8), Settings(loss="mse", average=0.9))
    run(clean, Order(epoch=0, rows=np.arange(4), batch=2))
    for start in range(0, 8, 2 * cut):
        chunk = run(engine, Order(epoch=0, rows=np.arange(start, min(start + 2 * cut, 8)), batch=2))
        if chunk.bad is not None:
            assert start // 2 + chunk.bad == 2
            break
    else:
        pytest.fail("the bad step was not flagged")
    state = engine.state()
    assert state.step == 2
    assert all(np.isfinite(v).all() for v in state.tensors().values())
    for name, b in clean.state().buffers.items():
        np.testing.assert_allclose(state.buffers[name], b, rtol=1e-6)


def test_a_finite_gradient_whose_squares_overflow_is_not_reported() -> None:
    spec = ml.linear(1)
    data = Data(x=np.full((2, 1), 1e10), y=np.full((2, 1), -1e14))
    engine = TorchEngine(spec, data, Settings(loss="mse", optimizer="sgd"), init="zeros")
    chunk = run(engine, Order(epoch=0, rows=np.arange(2), batch=2), rate=1e-30)
    assert chunk.bad is None
    assert chunk.gradient_norm[0] == pytest.approx(2e24, rel=1e-6)


def test_batchnorm_refuses_one_row_and_keeps_its_statistics() -> None:
    spec = Spec.parse("3-4:batchnorm-1")
    engine = double(spec, table(spec, 5), Settings(loss="mse"))
    with pytest.raises(BatchError, match="needs at least 2 rows"):
        run(engine, Order(epoch=0, rows=np.arange(5), batch=4))
    assert engine.state().step == 1
