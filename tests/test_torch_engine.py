"""The torch engine: bit for bit what PyTorch written by hand does, to rounding what the numpy engine does."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

import multilayer as ml
from cases import ALL, Case, rows_for
from multilayer import losses, random, schedules
from multilayer.engine import Batch, Chunk, Data, Engine, Order, Settings, State
from multilayer.engine import torch_engine as module
from multilayer.engine.numpy_engine import NumpyEngine
from multilayer.engine.torch_engine import TorchEngine
from multilayer.engine.torch_loader import from_loader
from multilayer.errors import BatchError, OptionError, StateError
from multilayer.init import initialise
from multilayer.random import Purpose
from multilayer.spec import Spec

LOSSES = [
    *losses.LOSSES,
    "cross_entropy(label_smoothing=0.1)",
    "binary_cross_entropy(0.2)",
    "huber(0.3)",
    "quantile(0.1, 0.5, 0.9)",
]
OPTIMIZERS = ["sgd", "momentum", "nesterov", "adam", "adamw", "adam(beta2=0.95)", "nesterov(0.5)"]
SCHEDULES = ["constant", "cosine(warmup=0.1)", "one_cycle", "coslog", "flat_cosine", "step(0.25, 0.5)", "linear"]


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def table(spec: Spec, rows: int, loss: str = "mse", seed: int = 0) -> Data:
    x, codes = rows_for(spec, rows, seed)
    generator = np.random.default_rng(seed + 1)
    if losses.get(loss).classes:
        return Data(x=x, codes=codes, y=generator.integers(0, spec.d_out, size=rows))
    targets = spec.d_out // losses.get(loss).per_target
    return Data(x=x, codes=codes, y=generator.integers(0, 2, size=(rows, targets)).astype(float))


def orders(rows: int, batch: int, epochs: int, seed: int = 0) -> list[Order]:
    return [Order(epoch=e, rows=random.permutation(rows, seed=seed, epoch=e), batch=batch) for e in range(epochs)]


def run(engine: Engine, order: Order, *, rate: float = 0.01, decay: float = 0.0, dropout: float = 1.0) -> Chunk:
    steps = np.ones(order.steps)
    return engine.run(order, rate=rate * steps, decay=decay * steps, dropout=dropout * steps)


def double(spec: Spec, data: Data, settings: Settings, **how) -> TorchEngine:
    return TorchEngine(spec, data, settings, dtype="float64", **how)


# Against PyTorch written by hand


def loss_by_hand(text: str, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    several = "quantile(" in text  # three of one target, or the median of three targets
    q = torch.tensor([0.1, 0.5, 0.9] if several else [0.5, 0.5, 0.5], dtype=z.dtype)
    e = (y.repeat_interleave(3, dim=1) if several else y) - z if "quantile" in text else z
    return {
        "cross_entropy": lambda: functional.cross_entropy(z, y),
        "cross_entropy(label_smoothing=0.1)": lambda: functional.cross_entropy(z, y, label_smoothing=0.1),
        "binary_cross_entropy": lambda: functional.binary_cross_entropy_with_logits(z, y),
        "binary_cross_entropy(0.2)": lambda: functional.binary_cross_entropy_with_logits(z, 0.8 * y + 0.1),
        "mse": lambda: functional.mse_loss(z, y),
        "mae": lambda: functional.l1_loss(z, y),
        "huber": lambda: functional.huber_loss(z, y),
        "huber(0.3)": lambda: functional.huber_loss(z, y, delta=0.3),
        "quantile": lambda: torch.maximum(q * e, (q - 1) * e).mean(),
        "quantile(0.1, 0.5, 0.9)": lambda: torch.maximum(q * e, (q - 1) * e).mean(),
        "poisson": lambda: functional.poisson_nll_loss(z, y),
        "perceptron": lambda: functional.relu(-(2 * y - 1) * z).mean(),
    }[text]()


def optimizer_by_hand(text: str, weights: list[torch.Tensor], biases: list[torch.Tensor]) -> torch.optim.Optimizer:
    groups = [{"params": weights}, {"params": biases, "weight_decay": 0.0}]
    return {
        "sgd": lambda: torch.optim.SGD(groups, lr=1.0),
        "momentum": lambda: torch.optim.SGD(groups, lr=1.0, momentum=0.9),
        "nesterov": lambda: torch.optim.SGD(groups, lr=1.0, momentum=0.9, nesterov=True),
        "nesterov(0.5)": lambda: torch.optim.SGD(groups, lr=1.0, momentum=0.5, nesterov=True),
        "adam": lambda: torch.optim.Adam(groups, fused=True),
        "adam(beta2=0.95)": lambda: torch.optim.Adam(groups, betas=(0.9, 0.95), fused=True),
        "adamw": lambda: torch.optim.AdamW(groups, weight_decay=0.1, fused=True),
    }[text]()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_trajectory_is_bit_equal_to_torch_by_hand(loss: str, optimizer: str) -> None:
    """For every schedule: 20 steps over 2 epochs with a smaller last batch, dropout, a validation pass in between."""
    spec, seed, rate = Spec.parse("5-6:tanh:dropout(0.2)-3"), 4, 0.02
    data, work = table(spec, 58, loss), orders(58, 6, 2)
    x, y = torch.from_numpy(data.x), torch.from_numpy(data.y)
    for text in SCHEDULES:
        factors = schedules.get(text)(np.arange(20), 20)

        W1, b1, W2, b2 = (torch.tensor(v, requires_grad=True) for v in initialise(spec, seed=seed).values())
        by_hand = optimizer_by_hand(optimizer, [W1, W2], [b1, b2])
        expected: list[float] = []
        for order in work:
            for rows in order.batches():
                mask = random.keep(seed, Purpose.DROPOUT, rows=rows, units=6, p=0.2, epoch=order.epoch) / 0.8
                h = torch.tanh(functional.linear(x[rows], W1, b1)) * torch.from_numpy(mask)
                value = loss_by_hand(loss, functional.linear(h, W2, b2), y[rows])
                for group in by_hand.param_groups:
                    group["lr"] = rate * factors[len(expected)]
                by_hand.zero_grad()
                value.backward()
                by_hand.step()
                expected.append(value.item())

        engine = double(spec, data, Settings(loss=loss, optimizer=optimizer, seed=seed))
        decay = (0.1 if optimizer == "adamw" else 0.0) * np.ones(10)
        taken: list[float] = []
        for order in work:
            now = rate * factors[len(taken) : len(taken) + 10]
            taken += engine.run(order, rate=now, decay=decay, dropout=np.ones(10)).loss.tolist()
            engine.outputs(order.rows)
        assert taken == expected, text
        for ours, theirs in zip(engine.state().parameters.values(), (W1, b1, W2, b2), strict=True):
            np.testing.assert_array_equal(ours, theirs.detach().numpy(), err_msg=text)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_decay_clipping_l2_averages_and_factors_are_bit_equal_to_torch_by_hand(optimizer: str) -> None:
    spec, rate, decay, l2 = Spec.parse("4-5:relu-2"), 0.05, 0.3, 0.01
    data, order = table(spec, 40), orders(40, 8, 1)[0]
    settings = Settings(
        loss="mse",
        optimizer=optimizer,
        l2=l2,
        clip_norm=0.4,
        clip_value=0.1,
        average=0.9,
        rate_factors={"linear1.weight": 0.5},
        decay_factors={"linear2.bias": 2.0},
    )
    engine = double(spec, data, settings)
    W1, b1, W2, b2 = parameters = [torch.tensor(v, requires_grad=True) for v in initialise(spec).values()]
    by_hand = optimizer_by_hand(optimizer, [W1], [b1, W2, b2])
    averages = [p.detach().clone() for p in parameters]
    for rows in order.batches():
        by_hand.zero_grad()
        h = functional.linear(torch.from_numpy(data.x[rows]), W1, b1).relu()
        functional.mse_loss(functional.linear(h, W2, b2), torch.from_numpy(data.y[rows])).backward()
        with torch.no_grad():
            norm = math.hypot(*[p.grad.norm().item() for p in parameters])
            for p, factor, shrink in zip(parameters, (0.5, 1, 1, 1), (1, 0, 1, 2), strict=True):
                p.grad.mul_(0.4 / norm if norm > 0.4 else 1).clamp_(-0.1, 0.1)
                if shrink:
                    p.grad.add_(p, alpha=l2 * shrink)
                    p.mul_(1 - rate * factor * decay * shrink)
            by_hand.param_groups[0]["lr"], by_hand.param_groups[1]["lr"] = rate * 0.5, rate
            by_hand.step()
            for mean, p in zip(averages, parameters, strict=True):
                mean.mul_(0.9).add_(p, alpha=1 - 0.9)
    run(engine, order, rate=rate, decay=decay)
    state = engine.state()
    for i, name in enumerate(spec.parameters):
        np.testing.assert_array_equal(state.parameters[name], parameters[i].detach().numpy(), err_msg=name)
        np.testing.assert_array_equal(state.averages[name], averages[i].numpy(), err_msg=name)


# Against the numpy engine


def agree(case: Case, settings: Settings, *, rate: float, decay: float = 0.0) -> None:
    """50 steps in float64: states to 1e-9 of each tensor's largest number, losses and norms too."""
    data = table(case.spec, 17)
    oracle, engine = NumpyEngine(case.spec, data, settings), double(case.spec, data, settings)
    for order in [*orders(17, 3, 8), Order(epoch=8, rows=np.arange(6), batch=3)]:
        expected, found = (run(e, order, rate=rate, decay=decay) for e in (oracle, engine))
        np.testing.assert_allclose(found.loss, expected.loss, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found.gradient_norm, expected.gradient_norm, rtol=1e-9, atol=1e-12)
    assert engine.state().step == 50
    theirs = engine.state().tensors()
    for name, ours in oracle.state().tensors().items():
        scale = max(1, np.abs(ours).max(initial=0))
        np.testing.assert_allclose(theirs[name], ours, rtol=0, atol=1e-9 * scale, err_msg=name)
    everything = np.arange(17)
    for averaged in (False, True):
        np.testing.assert_allclose(
            engine.outputs(everything, averaged=averaged), oracle.outputs(everything, averaged=averaged), atol=1e-9
        )


SMALL = [case for case in ALL if case.name != "worked example"]


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_the_numpy_engine_agrees(case: Case) -> None:
    """SGD, with everything else on. Its update is linear in the gradient, so agreement is that of gradients."""
    settings = Settings(loss="mse", optimizer="sgd", seed=3, l2=1e-3, clip_norm=2.0, clip_value=1.0, average=0.9)
    agree(case, settings, rate=1e-3, decay=0.1)


@pytest.mark.parametrize("optimizer", ["momentum", "nesterov", "adam", "adamw"])
@pytest.mark.parametrize(
    "case",
    [c for c in SMALL if c.name in ("linear", "layernorm", "dropout", "residual network", "recipe", "columns pbld")],
    ids=lambda case: case.name,
)
def test_the_numpy_engine_agrees_for_every_optimiser(case: Case, optimizer: str) -> None:
    agree(case, Settings(loss="mse", optimizer=optimizer, seed=3, average=0.9), rate=1e-3, decay=0.01)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_numpy_engine_agrees_on_weights_and_mixed_targets(loss: str) -> None:
    spec = Spec.parse("5-6:tanh-3")
    plain = table(spec, 20, loss)
    generator = np.random.default_rng(5)
    data = replace(plain, weight=generator.uniform(0.1, 3, size=20))
    if losses.get(loss).classes:
        data = replace(data, y=generator.dirichlet(np.ones(3), size=20))
    settings = Settings(loss=loss, optimizer="sgd")
    for d in (data, replace(plain, weight=data.weight)):
        oracle, engine = NumpyEngine(spec, d, settings), double(spec, d, settings)
        expected = oracle.gradients(np.arange(20), epoch=0)
        found = engine.gradients(np.arange(20), epoch=0)
        assert found.loss == pytest.approx(expected.loss, rel=1e-12)
        for name, g in expected.gradients.items():
            np.testing.assert_allclose(found.gradients[name], g, atol=1e-13, err_msg=name)


# What must not matter


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("optimizer", ["momentum", "adamw"])
def test_chunks_of_1_7_and_1000_steps_are_the_same_bits(dtype: str, optimizer: str) -> None:
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
def test_a_saved_state_goes_on_bit_for_bit(optimizer: str, dtype: str) -> None:
    """From before the first step, from the middle, after rows were looked at, and into an engine that has gone on."""
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


def test_a_rerun_is_the_same_bits() -> None:
    spec = Spec.parse("14+cat(3, 12, 2)-columns(pbld)-scale-(linear(16, scale=tangent):blend(selu):dropout(0.15))*3-2")
    data = table(spec, 60, "cross_entropy")
    states = []
    for _ in range(5):
        engine = TorchEngine(spec, data, Settings(loss="cross_entropy"))
        for order in orders(60, 16, 2):
            run(engine, order)
        states.append(engine.state())
    assert all(state.equals(states[0]) for state in states)


def test_a_state_handed_out_is_a_copy() -> None:
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


def test_looking_at_gradients_changes_nothing() -> None:
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
def test_gradients_and_apply_are_a_step_bit_for_bit(case: Case, dtype: str) -> None:
    """Running statistics are part of the step."""
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


def test_masks_are_keyed_by_the_row_alone_and_by_the_ordinal_of_the_layer() -> None:
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


def test_a_device_draws_masks_that_depend_on_seed_epoch_and_batch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No accelerator here: its way of drawing masks, on the CPU's own generator."""
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


# Values that are not finite


@pytest.mark.parametrize("where", ["x", "y", "weight"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("cut", [1, 2, 4])
def test_a_value_that_is_not_finite_is_flagged_before_the_update(value: float, where: str, cut: int) -> None:
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


def test_a_finite_gradient_whose_squares_overflow_is_not_flagged() -> None:
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


# Types, devices, compilation


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("text", ["4-6:gelu:layernorm-[6:tanh]-3", "2+cat(3, 12)-columns(pbld)-6:batchnorm:mish-3"])
def test_narrow_types_keep_float32_and_learn_the_same(text: str, dtype: str) -> None:
    spec = Spec.parse(text)
    data = table(spec, 64, "cross_entropy")
    settings = Settings(loss="cross_entropy", average=0.9)
    engine, exact = TorchEngine(spec, data, settings, dtype=dtype), double(spec, data, settings)
    for order in orders(64, 16, 10):
        found, expected = run(engine, order), run(exact, order)
    for name, value in engine.state().tensors().items():
        assert value.dtype == (np.float64 if name == "counters" else np.float32), name
    # 40 steps: rounding of 2⁻⁸ a number in bfloat16, and far less in float32.
    np.testing.assert_allclose(found.loss, expected.loss, rtol=0.05 if dtype == "bfloat16" else 1e-4)
    assert engine.outputs(np.arange(64)).dtype == np.float32
    assert bool([n for n in engine.notes if "bfloat16" in n]) == (dtype == "bfloat16")


def test_it_learns_through_the_protocol() -> None:
    spec = ml.mlp(2, [16], 3, activation="tanh")
    angle = np.linspace(0.5, 4, 150)
    turn = np.arange(150) % 3
    x = np.stack([angle * np.cos(angle + 2.1 * turn), angle * np.sin(angle + 2.1 * turn)], 1)
    engine: Engine = TorchEngine(spec, Data(x=x, y=turn), Settings(loss="cross_entropy"))
    for order in orders(150, 30, 150):
        run(engine, order, rate=0.03)
    assert (engine.outputs(np.arange(150)).argmax(1) == turn).mean() > 0.8
    assert engine.outputs(np.arange(0)).shape == (0, 3)


def test_outputs_in_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = Spec.parse("4-6:tanh-3")
    engine = double(spec, table(spec, 30), Settings(loss="mse"))
    whole = engine.outputs(np.arange(30))
    monkeypatch.setattr(module, "SLAB", 7)
    np.testing.assert_allclose(engine.outputs(np.arange(30)), whole, atol=1e-15)


@pytest.mark.filterwarnings("ignore")  # of torch's own, while it loads its compiler and traces
def test_compiled() -> None:
    """The backend that needs no compiler: what is compiled and how masks reach it is the same for all."""
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


def test_augmented_batches_are_those_of_the_table() -> None:
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


def test_a_loader_of_ones_own() -> None:
    """Without shuffling it is the same run as the table's; what it cannot promise is said."""
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
    assert "order is its own" in engine.notes[0]
    dropping = torch.utils.data.DataLoader(pairs, batch_size=6, drop_last=True)
    with pytest.raises(BatchError, match="gave a batch of 6 rows where 5 were due: train with its own batch size"):
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
def test_loaders_that_give_no_batches(loader: list, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        from_loader(loader)


def test_loaders_of_categories_and_numbers() -> None:
    spec = Spec.parse("2+cat(3)-columns-1")
    x, codes = rows_for(spec, 6)
    read = from_loader([(x[:4], codes[:4], np.zeros(4)), (x[4:], codes[4:], np.ones(2))])
    assert read.y.shape == (6, 1)
    np.testing.assert_array_equal(read.codes, codes)
    chunk = run(double(spec, read, Settings(loss="mse")), Order(epoch=0, rows=np.arange(6), batch=4))
    assert np.isfinite(chunk.loss).all()


def test_first_values_by_name_and_tables_that_may_not_be_written_to() -> None:
    spec = Spec.parse("3-columns(piecewise, d_numeric=2, n=4)-1")
    data = table(spec, 8)
    data.x.flags.writeable = False
    edges = np.cumsum(np.ones((3, 5)), axis=1) - 3
    engine = double(spec, data, Settings(loss="mse"), values={"columns1.edges": edges})
    np.testing.assert_array_equal(engine.state().buffers["columns1.edges"], edges)
    rest = initialise(spec)["linear1.weight"]
    np.testing.assert_array_equal(engine.state().parameters["linear1.weight"], rest)


def test_the_device_is_said() -> None:
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
def test_bad_options(options: dict, message: str) -> None:
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
def test_tables_that_do_not_fit(change: dict, message: str) -> None:
    spec = ml.linear(3)
    with pytest.raises(OptionError, match=message):
        TorchEngine(spec, replace(table(spec, 4), **change), Settings(loss="mse"))


def test_a_state_that_does_not_fit_is_refused() -> None:
    spec = ml.linear(3)
    engine = double(spec, table(spec, 4), Settings(loss="mse", optimizer="sgd"))
    other = double(spec, table(spec, 4), Settings(loss="mse", optimizer="adam"))
    with pytest.raises(StateError, match="sgd keeps nothing between steps"):
        engine.load(other.state())
