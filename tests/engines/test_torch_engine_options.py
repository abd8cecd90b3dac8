"""The torch engine in low precision, compiled, with data loaders, and with invalid input."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import multilayer as ml
from multilayer.core import random
from multilayer.core.random import Purpose
from multilayer.data.batches import Batch, Data, from_loader
from multilayer.engines import Engine, Order, Settings
from multilayer.engines import torch_engine as module
from multilayer.engines.numpy_engine import NumpyEngine
from multilayer.engines.torch_engine import TorchEngine
from multilayer.errors import BatchError, OptionError, StateError
from multilayer.spec import Spec
from multilayer.spec.initialization import initialise
from support.cases import rows_for
from support.engines import double, orders, run, table

pytestmark = pytest.mark.usefixtures("one_thread")


# Types, devices, compilation


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("text", ["4-6:gelu:layernorm-[6:tanh]-3", "2+cat(3, 12)-columns(pbld)-6:batchnorm:mish-3"])
def test_low_precision_keeps_float32_states_and_similar_losses(text: str, dtype: str) -> None:
    spec = Spec.parse(text)
    data = table(spec, 64, "cross_entropy")
    settings = Settings(loss="cross_entropy", average=0.9)
    engine, exact = TorchEngine(spec, data, settings, dtype=dtype), double(spec, data, settings)
    for order in orders(64, 16, 10):
        found, expected = run(engine, order), run(exact, order)
    for name, value in engine.state().tensors().items():
        assert value.dtype == (np.float64 if name == "counters" else np.float32), name
    # Over 40 steps, the relative rounding error is 2⁻⁸ per operation in bfloat16, and far less in float32.
    np.testing.assert_allclose(found.loss, expected.loss, rtol=0.05 if dtype == "bfloat16" else 1e-4)
    assert engine.outputs(np.arange(64)).dtype == np.float32
    assert bool([n for n in engine.notes if "bfloat16" in n]) == (dtype == "bfloat16")


def test_training_through_the_engine_protocol_learns() -> None:
    spec = ml.mlp(2, [16], 3, activation="tanh")
    angle = np.linspace(0.5, 4, 150)
    turn = np.arange(150) % 3
    x = np.stack([angle * np.cos(angle + 2.1 * turn), angle * np.sin(angle + 2.1 * turn)], 1)
    engine: Engine = TorchEngine(spec, Data(x=x, y=turn), Settings(loss="cross_entropy"))
    for order in orders(150, 30, 150):
        run(engine, order, rate=0.03)
    assert (engine.outputs(np.arange(150)).argmax(1) == turn).mean() > 0.8
    assert engine.outputs(np.arange(0)).shape == (0, 3)


def test_outputs_are_computed_in_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = Spec.parse("4-6:tanh-3")
    engine = double(spec, table(spec, 30), Settings(loss="mse"))
    whole = engine.outputs(np.arange(30))
    monkeypatch.setattr(module, "MAX_ROWS_PER_PASS", 7)
    np.testing.assert_allclose(engine.outputs(np.arange(30)), whole, atol=1e-15)


@pytest.mark.filterwarnings("ignore")  # torch warns while it loads its compiler and traces
def test_a_compiled_model_gives_the_same_results() -> None:
    """Test with a backend that needs no C++ compiler. The compiled function and its masks are the same for all
    backends."""
    spec = Spec.parse("4-6:tanh:dropout(0.3)-3")
    data = table(spec, 40)
    engine = double(spec, data, Settings(loss="mse"), compile=True)
    engine._call = torch.compile(engine.model, backend="aot_eager", dynamic=True)
    plain = double(spec, data, Settings(loss="mse"))
    for order in orders(40, 12, 2):
        expected = run(plain, order, dropout=0.5 + 0.1 * order.epoch)
        found = run(engine, order, dropout=0.5 + 0.1 * order.epoch)
        np.testing.assert_allclose(found.loss, expected.loss, rtol=1e-9)
    assert "compiled" in engine.notes[0]
    np.testing.assert_allclose(engine.outputs(np.arange(40)), plain.outputs(np.arange(40)), atol=1e-9)


def test_augmented_batches_equal_those_of_the_numpy_engine() -> None:
    def noise(batch: Batch, data: Data, rows: np.ndarray, epoch: int) -> Batch:
        shift = random.normal(1, Purpose.AUGMENT, rows=rows, units=batch.x.shape[1], epoch=epoch)
        return replace(batch, x=batch.x + shift, y=np.eye(3)[batch.y] * 0.8 + 0.2 / 3)

    spec = Spec.parse("4-6:tanh-3")
    data = table(spec, 20, "cross_entropy")
    augmented = Data(x=data.x, y=data.y, augment=noise)
    settings = Settings(loss="cross_entropy", optimizer="sgd")
    engine, oracle = double(spec, augmented, settings), NumpyEngine(spec, augmented, settings)
    for order in orders(20, 6, 2):
        np.testing.assert_allclose(run(engine, order).loss, run(oracle, order).loss, rtol=1e-9)
    plain = double(spec, data, settings)
    plain.load(engine.state())
    np.testing.assert_array_equal(engine.outputs(np.arange(20)), plain.outputs(np.arange(20)))


def test_training_with_a_data_loader_equals_training_with_a_table() -> None:
    """The loader does not shuffle. Notes report what a loader cannot guarantee."""
    spec = Spec.parse("4-6:tanh-3")
    data = table(spec, 22, "cross_entropy")
    settings = Settings(loss="cross_entropy")
    pairs = torch.utils.data.TensorDataset(torch.from_numpy(data.x.reshape(22, 2, 2)), torch.from_numpy(data.y))
    loader = torch.utils.data.DataLoader(pairs, batch_size=5)
    read = from_loader(loader)
    np.testing.assert_array_equal(read.x, data.x)
    plain, engine = double(spec, data, settings), double(spec, read, settings)
    for epoch in range(2):
        order = Order(epoch=epoch, rows=np.arange(22), batch=5)
        for rows in (order.rows[:10], order.rows[10:]):
            np.testing.assert_array_equal(
                run(engine, replace(order, rows=rows)).loss, run(plain, replace(order, rows=rows)).loss
            )
    assert plain.state().equals(engine.state())
    assert "the loader determines their order" in engine.notes[0]
    dropping = torch.utils.data.DataLoader(pairs, batch_size=6, drop_last=True)
    with pytest.raises(BatchError, match="gave a batch of 6 rows, expected 5: train with the batch size of the loader"):
        run(double(spec, from_loader(dropping), settings), Order(epoch=0, rows=np.arange(18), batch=5))
    doubled = from_loader(dropping, encode=lambda batch: replace(batch, x=2 * batch.x))
    np.testing.assert_array_equal(doubled.x, 2 * data.x[:18])


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        ([], "at least one batch, got none"),
        ([np.zeros((2, 3))], r"must give \(x, y\) or \(x, codes, y\), got ndarray"),
        ([(1, 2, 3, 4)], "got 4 parts"),
    ],
)
def test_loaders_without_valid_batches_are_refused(loader: list, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        from_loader(loader)


def test_loaders_with_categories() -> None:
    spec = Spec.parse("2+cat(3)-columns-1")
    x, codes = rows_for(spec, 6)
    read = from_loader([(x[:4], codes[:4], np.zeros(4)), (x[4:], codes[4:], np.ones(2))])
    assert read.y.shape == (6, 1)
    np.testing.assert_array_equal(read.codes, codes)
    chunk = run(double(spec, read, Settings(loss="mse")), Order(epoch=0, rows=np.arange(6), batch=4))
    assert np.isfinite(chunk.loss).all()


def test_given_initial_values_and_read_only_tables() -> None:
    spec = Spec.parse("3-columns(piecewise, d_numeric=2, n=4)-1")
    data = table(spec, 8)
    data.x.flags.writeable = False
    edges = np.cumsum(np.ones((3, 5)), axis=1) - 3
    engine = double(spec, data, Settings(loss="mse"), values={"columns1.edges": edges})
    np.testing.assert_array_equal(engine.state().buffers["columns1.edges"], edges)
    rest = initialise(spec)["linear1.weight"]
    np.testing.assert_array_equal(engine.state().parameters["linear1.weight"], rest)


def test_notes_name_the_device() -> None:
    spec = ml.linear(3)
    engine = TorchEngine(spec, table(spec, 4), Settings(loss="mse"))
    assert engine.name == "torch"
    assert engine.device.type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert TorchEngine(spec, table(spec, 4), Settings(loss="mse"), device="cpu").notes == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float16"}, "unknown dtype 'float16'"),
        ({"device": "gpu"}, "device must be auto, cpu or one that torch has, got 'gpu'"),
        ({"values": {"linear9.weight": np.zeros(1)}}, "unknown tensor of the network 'linear9.weight'"),
        ({"values": {"linear1.bias": np.zeros(7)}}, r"linear1.bias must have the shape \(1,\), got \(7,\)"),
    ],
)
def test_invalid_options_are_refused(options: dict, message: str) -> None:
    spec = ml.linear(3)
    with pytest.raises(OptionError, match=message):
        TorchEngine(spec, table(spec, 4), Settings(loss="mse"), **options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.zeros(4)}, r"y must have the shape \(4, 1\) for 3-1, got shape \(4,\)"),
        ({"x": np.zeros((4, 2))}, r"x must have the shape \(4, 3\) for 3-1, got shape \(4, 2\)"),
        ({"weight": np.zeros((4, 1))}, r"weight must have the shape \(4,\)"),
        ({"codes": np.zeros((4, 1), dtype=np.int64)}, r"codes must have the shape \(4, 0\)"),
    ],
)
def test_tables_of_the_wrong_shape_are_refused(change: dict, message: str) -> None:
    spec = ml.linear(3)
    with pytest.raises(OptionError, match=message):
        TorchEngine(spec, replace(table(spec, 4), **change), Settings(loss="mse"))


def test_a_state_of_another_optimizer_is_refused() -> None:
    spec = ml.linear(3)
    engine = double(spec, table(spec, 4), Settings(loss="mse", optimizer="sgd"))
    other = double(spec, table(spec, 4), Settings(loss="mse", optimizer="adam"))
    with pytest.raises(StateError, match="sgd keeps nothing between steps"):
        engine.load(other.state())
