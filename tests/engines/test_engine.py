"""The contract of an engine, tested on the numpy engine: it learns, agrees with PyTorch, and is reproducible."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import multilayer as ml
from multilayer.core import _core, named_options, random
from multilayer.core.random import Purpose
from multilayer.core.sparse import Sparse
from multilayer.data.batches import Batch, Data
from multilayer.engines import Engine, Gradients, Order, Settings, State
from multilayer.engines.ensemble import Ensemble, Member
from multilayer.engines.fused_engine import FusedEngine, PredictProgram
from multilayer.engines.numpy_engine import NumpyEngine
from multilayer.engines.protocol import dropout_layers
from multilayer.engines.torch_engine import TorchEngine
from multilayer.errors import OptionError, StateError
from multilayer.nn import losses
from multilayer.nn.optimizers import OPTIMIZERS
from multilayer.pytorch import Dropout
from multilayer.pytorch.losses import forward as loss_forward
from multilayer.pytorch.model import Model, fill
from multilayer.pytorch.optimizers import torch_optimizer
from multilayer.spec import Spec
from multilayer.spec.initialization import initialise
from multilayer.training import Continue, Rollback, Stop, strongest
from support.cases import ALL, Case
from support.engines import LOSSES, orders, run, table


def train_with_pytorch(
    spec: Spec, data: Data, settings: Settings, work: list[Order], *, rate: float, decay: float = 0.0
) -> tuple[Model, list[float]]:
    """Train with the autograd and the optimizers of PyTorch, and with the dropout masks of the engine."""
    model = Model(spec)
    fill(model, initialise(spec, seed=settings.seed))
    model.train()
    loss = losses.get(settings.loss)
    weights = [p for n, p in model.named_parameters() if spec.parameters[n].decays]
    rest = [p for n, p in model.named_parameters() if not spec.parameters[n].decays]
    optimizer = torch_optimizer(settings.optimizer, [{"params": weights}, {"params": rest}])
    for group, wd in zip(optimizer.param_groups, (decay, 0.0), strict=True):
        group.update(lr=rate, weight_decay=wd)
    y = torch.from_numpy(data.y)
    taken: list[float] = []
    for order in work:
        for rows in order.batches():
            parts = iter(range(100))
            for module in model.modules():
                if isinstance(module, Dropout):
                    module.keep = lambda d, p, rows=rows, epoch=order.epoch, parts=parts: torch.from_numpy(
                        random.keep(
                            settings.seed, Purpose.DROPOUT, rows=rows, units=d, p=p, epoch=epoch, part=next(parts)
                        )
                        / (1 - p)
                    )
            inputs = [torch.from_numpy(data.x[rows])]
            if data.codes is not None:
                inputs.append(torch.from_numpy(data.codes[rows]))
            optimizer.zero_grad()
            value = loss_forward(loss, model(*inputs), y[rows])
            value.backward()
            optimizer.step()
            taken.append(value.item())
    return model, taken


def agree(engine: NumpyEngine, model: Model, *, atol: float = 1e-9) -> None:
    state = engine.state()
    for name, tensor in model.state_dict().items():
        ours = (state.parameters | state.buffers)[name]
        np.testing.assert_allclose(ours, tensor.numpy(), rtol=0, atol=atol * max(1, np.abs(ours).max()), err_msg=name)


@pytest.mark.parametrize("case", [c for c in ALL if c.name != "worked example"], ids=lambda case: case.name)
def test_steps_equal_torch(case: Case) -> None:
    """Compare 12 steps over two epochs with a partial last batch.

    The optimizer is SGD, because its update is linear in the gradient. Adam would make a full step of a gradient of
    1e-17.
    """
    spec = case.spec
    data = table(spec, 17)
    settings = Settings(loss="mse", optimizer="sgd", seed=3)
    engine = NumpyEngine(spec, data, settings)
    work = orders(17, 3, 2)
    taken = np.concatenate([run(engine, order, rate=1e-4).loss for order in work])
    model, expected = train_with_pytorch(spec, data, settings, work, rate=1e-4)
    np.testing.assert_allclose(taken, expected, rtol=1e-9, atol=1e-12)
    agree(engine, model)


@pytest.mark.parametrize("optimizer", [*OPTIMIZERS, "adam(beta2=0.95)", "nesterov(0.5)"])
@pytest.mark.parametrize("loss", LOSSES)
def test_50_steps_equal_torch_for_every_loss_and_optimiser(loss: str, optimizer: str) -> None:
    spec = Spec.parse("5-6:tanh:dropout(0.2)-3")
    data = table(spec, 50, loss)
    settings = Settings(loss=loss, optimizer=optimizer, seed=1)
    engine = NumpyEngine(spec, data, settings)
    work = orders(50, 10, 10)
    decay = 0.1 if optimizer == "adamw" else 0.0
    for order in work:
        run(engine, order, rate=1e-2, decay=decay)
    assert engine.state().step == 50
    agree(engine, train_with_pytorch(spec, data, settings, work, rate=1e-2, decay=decay)[0])


def test_training_through_the_engine_protocol_learns() -> None:
    spec = ml.mlp(2, [16], 3, activation="tanh")
    angle = np.linspace(0.5, 4, 150)
    turn = np.arange(150) % 3
    x = np.stack([angle * np.cos(angle + 2.1 * turn), angle * np.sin(angle + 2.1 * turn)], 1)
    engine: Engine = NumpyEngine(spec, Data(x=x, y=turn), Settings(loss="cross_entropy"))
    losses_seen = [run(engine, order, rate=0.03).loss.mean() for order in orders(150, 30, 150)]
    right = (engine.outputs(np.arange(150)).argmax(1) == turn).mean()
    assert losses_seen[-1] < losses_seen[0] / 2
    assert right > 0.8


@pytest.mark.parametrize("cut", [1, 2, 7])
def test_the_chunk_length_does_not_change_the_result(cut: int) -> None:
    """Chunks of 1, 2 and 7 steps give the same bits as one chunk per epoch."""
    spec = Spec.parse("4-6:batchnorm:relu:dropout(0.3)-3")
    data = table(spec, 50)
    settings = Settings(loss="mse", optimizer="adam", average=0.9, clip_norm=0.5, l2=1e-3)
    whole, pieces = NumpyEngine(spec, data, settings), NumpyEngine(spec, data, settings)
    for order in orders(50, 6, 3):
        expected = run(whole, order, decay=0.01).loss
        seen = []
        for start in range(0, len(order.rows), cut * 6):
            part = Order(epoch=order.epoch, rows=order.rows[start : start + cut * 6], batch=6)
            seen.append(run(pieces, part, decay=0.01).loss)
        np.testing.assert_array_equal(np.concatenate(seen), expected)
    assert whole.state().equals(pieces.state())


def test_training_continues_from_a_saved_state_bit_for_bit() -> None:
    spec = Spec.parse("4-6:batchnorm:prelu:dropout(0.3)-3")
    data = table(spec, 30)
    settings = Settings(loss="mse", average=0.95)
    engine, other = (NumpyEngine(spec, data, settings, init=init) for init in ("auto", "he"))
    first, second = orders(30, 7, 2)
    run(engine, first)
    other.load(State.from_tensors({k: v.copy() for k, v in engine.state().tensors().items()}))
    run(engine, second)
    run(other, second)
    assert engine.state().equals(other.state())
    assert not engine.state().equals(NumpyEngine(spec, data, settings).state())


def test_state_returns_a_copy() -> None:
    spec = ml.linear(3)
    engine = NumpyEngine(spec, table(spec, 8), Settings(loss="mse"))
    before = engine.state()
    kept = {name: value.copy() for name, value in before.tensors().items()}
    run(engine, orders(8, 4, 1)[0])
    for name, value in before.tensors().items():
        np.testing.assert_array_equal(value, kept[name])


def test_dropout_masks_depend_on_the_row_and_the_epoch_only() -> None:
    """The gradient of a row does not depend on its batch, so a batch gradient is the mean of those of its rows."""
    spec = Spec.parse("4-8:tanh:dropout(0.5)-3:dropout(0.25)")
    engine = NumpyEngine(spec, table(spec, 20), Settings(loss="mse", seed=9))
    rows = np.array([3, 11, 7, 19])
    step = engine.gradients(rows, epoch=4)
    together = step.gradients
    singles = [engine.gradients(rows[i : i + 1], epoch=4) for i in range(4)]
    assert step.loss == pytest.approx(np.mean([single.loss for single in singles]), rel=1e-12)
    for name, g in together.items():
        np.testing.assert_allclose(g, np.mean([single.gradients[name] for single in singles], axis=0), atol=1e-13)
    again = engine.gradients(rows[::-1].copy(), epoch=4).gradients
    later = engine.gradients(rows, epoch=5).gradients
    assert all(np.allclose(again[name], g, atol=1e-13) for name, g in together.items())
    assert not all(np.allclose(later[name], g) for name, g in together.items())


@pytest.mark.parametrize("case", [c for c in ALL if c.name != "worked example"], ids=lambda case: case.name)
def test_gradients_and_apply_equal_run_bit_for_bit(case: Case) -> None:
    """The comparison includes running statistics."""
    spec = case.spec
    settings = Settings(loss="mse", clip_norm=0.1, l2=0.01, average=0.9)
    one, two = (NumpyEngine(spec, table(spec, 12), settings) for _ in range(2))
    for epoch in (3, 4):
        chunk = run(one, Order(epoch=epoch, rows=np.arange(12), batch=12), decay=0.1)
        before = two.state()
        found = two.gradients(np.arange(12), epoch=epoch)
        assert two.state().equals(before)
        norm = two.apply(found, rate=0.01, decay=0.1)
        assert (found.loss, norm) == (chunk.loss[0], chunk.gradient_norm[0])
    assert one.state().equals(two.state())


both = pytest.mark.parametrize("make", [NumpyEngine, TorchEngine], ids=["numpy", "torch"])


@both
def test_states_with_and_without_averages_are_not_interchangeable(make: type) -> None:
    spec = ml.linear(3)
    plain, averaged = (make(spec, table(spec, 4), Settings(loss="mse", average=a)) for a in (None, 0.9))
    with pytest.raises(
        StateError, match="an engine with `average` needs a state with averages, got none: continue with"
    ):
        averaged.load(plain.state())
    with pytest.raises(StateError, match="an engine without `average` needs a state with no averages, got some"):
        plain.load(averaged.state())


@both
@pytest.mark.parametrize("which", ["rate_factors", "decay_factors"])
def test_a_factor_for_an_unknown_parameter_is_refused(make: type, which: str) -> None:
    spec = ml.linear(3)
    settings = Settings(loss="mse", **{which: {"linear1.wieght": 0.1}})
    with pytest.raises(OptionError, match=f"in {which} 'linear1.wieght': did you mean 'linear1.weight'"):
        make(spec, table(spec, 4), settings)


@pytest.mark.parametrize(
    ("counters", "got"),
    [
        ([1.5, 1.0], r"\[1.5, 1.0\]"),
        ([-1.0, 1.0], r"\[-1.0, 1.0\]"),
        ([1.0, 0.0], r"\[1.0, 0.0\]"),
        ([math.nan, 1.0], r"\[nan, 1.0\]"),
        ([1.0], r"\[1.0\]"),
        (np.zeros(9), "9 numbers"),
        (["a", "b"], r"\['a', 'b'\]"),
    ],
)
def test_invalid_counters_are_refused(counters: object, got: str) -> None:
    with pytest.raises(
        StateError, match=f"counters must be the step, a whole number .* rate factor above 0, got {got}"
    ):
        State.from_tensors({"counters": np.array(counters)})


def test_gradients_of_two_halves_average_to_those_of_the_batch() -> None:
    spec = Spec.parse("4-8:relu:dropout(0.5)-3")
    data = table(spec, 24, "cross_entropy")
    settings = Settings(loss="cross_entropy")
    one, two = NumpyEngine(spec, data, settings), NumpyEngine(spec, data, settings)
    rows = np.arange(24)
    whole = one.gradients(rows, epoch=0)
    first, second = (two.gradients(part, epoch=0) for part in (rows[:12], rows[12:]))
    one.apply(whole, rate=0.1, decay=0.0)
    mean = {name: (g + second.gradients[name]) / 2 for name, g in first.gradients.items()}
    two.apply(Gradients(loss=(first.loss + second.loss) / 2, gradients=mean), rate=0.1, decay=0.0)
    assert whole.loss == pytest.approx((first.loss + second.loss) / 2, rel=1e-12)
    for name, value in one.state().parameters.items():
        np.testing.assert_allclose(value, two.state().parameters[name], atol=1e-12)


def test_a_sample_weight_equals_repeated_rows() -> None:
    spec = ml.mlp(3, [5], 2, activation="tanh")
    data = table(spec, 4)
    weight = np.array([1.0, 2.0, 3.0, 1.0])
    repeated = np.repeat(np.arange(4), weight.astype(int))
    weighted = NumpyEngine(spec, Data(x=data.x, y=data.y, weight=weight), Settings(loss="mse"))
    plain = NumpyEngine(spec, Data(x=data.x[repeated], y=data.y[repeated]), Settings(loss="mse"))
    found = weighted.gradients(np.arange(4), epoch=0)
    expected = plain.gradients(np.arange(7), epoch=0)
    assert found.loss == pytest.approx(expected.loss, rel=1e-12)
    for name, g in found.gradients.items():
        np.testing.assert_allclose(g, expected.gradients[name], atol=1e-13)


def test_clipping() -> None:
    spec = ml.linear(3, 2)
    data = table(spec, 8)
    rows = np.arange(8)

    def change(**how: float) -> tuple[float, dict[str, np.ndarray]]:
        engine = NumpyEngine(spec, data, Settings(loss="mse", optimizer="sgd", **how))
        before = engine.state().parameters
        norm = engine.apply(engine.gradients(rows, epoch=0), rate=1.0, decay=0.0)
        return norm, {name: before[name] - value for name, value in engine.state().parameters.items()}

    norm, plain = change()
    assert norm == pytest.approx(math.sqrt(sum((g**2).sum() for g in plain.values())))
    _, clipped = change(clip_norm=norm / 2)
    for name, g in plain.items():
        np.testing.assert_allclose(clipped[name], g / 2, atol=1e-14)
    _, limited = change(clip_value=0.05)
    for name, g in plain.items():
        np.testing.assert_allclose(limited[name], np.clip(g, -0.05, 0.05), atol=1e-14)


def test_parameter_averages_and_the_rate_factor() -> None:
    spec = ml.linear(2)
    data = table(spec, 6)
    engine = NumpyEngine(spec, data, Settings(loss="mse", optimizer="sgd", average=0.5))
    first = engine.state().parameters
    run(engine, orders(6, 6, 1)[0], rate=0.1)
    state = engine.state()
    for name, mean in state.averages.items():
        np.testing.assert_allclose(mean, (first[name] + state.parameters[name]) / 2, atol=1e-15)
    assert not np.array_equal(engine.outputs(np.arange(6)), engine.outputs(np.arange(6), averaged=True))
    tenth = NumpyEngine(spec, data, Settings(loss="mse", optimizer="sgd", average=0.5))
    tenth.load(replace(tenth.state(), rate_factor=0.1))
    run(tenth, orders(6, 6, 1)[0], rate=0.1)
    for name, value in tenth.state().parameters.items():
        np.testing.assert_allclose(value - first[name], 0.1 * (state.parameters[name] - first[name]), atol=1e-15)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_non_finite_value_is_reported_before_the_update(value: float) -> None:
    spec = ml.linear(3)
    data = table(spec, 8)
    data.x[5, 1] = value
    engine = NumpyEngine(spec, data, Settings(loss="mse"))
    chunk = run(engine, Order(epoch=0, rows=np.arange(8), batch=2))
    assert chunk.bad == 2
    assert engine.state().step == 2
    assert all(np.isfinite(p).all() for p in engine.state().parameters.values())


def test_float32_engine_stays_float32() -> None:
    spec = Spec.parse("4-6:gelu:layernorm-[6:tanh]-3")
    engine = NumpyEngine(spec, table(spec, 9), Settings(loss="mse", average=0.9), dtype=np.float32)
    run(engine, orders(9, 4, 1)[0])
    for name, value in engine.state().tensors().items():
        assert value.dtype == (np.float64 if name == "counters" else np.float32), name


def test_dropout_layers_are_numbered_in_order() -> None:
    spec = Spec.parse("4-4:dropout(0.1)-4:dropout(0)-[4:dropout(0.2)-4]-4:dropout(0.3)-1")
    assert dropout_layers(spec) == ["dropout1", "residual1.dropout1", "dropout3"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("counters"), "needs its counters, got none"),
        (lambda t: t.update({"weights/x": np.zeros(1)}), "got 'weights/x'"),
        (lambda t: t.pop("parameters/linear1.bias"), r"misses tensor parameters/linear1.bias for the network 3-1"),
        (lambda t: t.update({"parameters/linear9.bias": np.zeros(1)}), "has an unknown tensor parameters/linear9.bias"),
        (lambda t: t.update({"parameters/linear1.bias": np.zeros(2)}), r"must have the shape \(1,\), got \(2,\)"),
        (
            lambda t: [t.pop(k) for k in list(t) if "square" in k],
            "adam keeps mean, square between steps, got a state with mean",
        ),
    ],
)
def test_a_state_of_another_network_is_refused(change, message: str) -> None:
    spec = ml.linear(3)
    engine = NumpyEngine(spec, table(spec, 4), Settings(loss="mse", optimizer="adam"))
    tensors = engine.state().tensors()
    change(tensors)
    with pytest.raises(StateError, match=message):
        engine.load(State.from_tensors(tensors))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clip_norm": 0.0}, "clip_norm must be positive"),
        ({"average": 1.0}, "average must be at least 0 and below 1"),
        ({"seed": -1}, "seed must be from 0"),
        ({"seed": 2**64}, "seed must be from 0"),
        ({"l2": math.nan}, "l2 must be finite and at least 0, got nan"),
        ({"l2": -0.1}, "l2 must be finite and at least 0, got -0.1"),
        ({"l2": math.inf}, "l2 must be finite and at least 0, got inf"),
        ({"rate_factors": {"a": 1.0, "b": math.nan}}, "rate_factors of 'b' must be finite and at least 0, got nan"),
        ({"rate_factors": {"a": math.inf}}, "rate_factors of 'a' must be finite and at least 0, got inf"),
        ({"decay_factors": {"a": -1.0}}, "decay_factors of 'a' must be finite and at least 0, got -1.0"),
    ],
)
def test_invalid_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Settings(loss="mse", **options)


def test_an_order_has_a_partial_last_batch() -> None:
    order = Order(epoch=0, rows=np.arange(10), batch=4)
    assert order.steps == 3
    assert [len(rows) for rows in order.batches()] == [4, 4, 2]


@pytest.mark.parametrize("options", [{"epoch": -1, "batch": 4}, {"epoch": 0, "batch": 0}])
def test_invalid_orders_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(OptionError, match="an order needs batch ≥ 1 and epoch ≥ 0, got"):
        Order(rows=np.arange(10), **options)


def unexpected_augmentation(batch: Batch, data: Data, rows: Any, epoch: int) -> Batch:
    pytest.fail("an empty batch must not be augmented")


def in_form(kind: str, data: Data) -> Data:
    """Return the same rows as a dense table, as a sparse table, or with an augmentation."""
    if kind == "sparse":
        return replace(data, x=Sparse.of_rows(data.x, np.zeros(data.x.shape[1])))
    return replace(data, augment=unexpected_augmentation) if kind == "augmented" else data


@pytest.mark.parametrize("make", [NumpyEngine, TorchEngine, FusedEngine])
@pytest.mark.parametrize("kind", ["plain", "sparse", "augmented"])
def test_the_loss_of_an_empty_batch_is_nan(kind: str, make: type) -> None:
    spec = Spec.parse("3-2-1")
    found = make(spec, in_form(kind, table(spec, 4)), Settings(loss="mse")).gradients(np.arange(0), epoch=0)
    assert math.isnan(found.loss)
    assert not any(value.any() for value in found.gradients.values())


@pytest.mark.parametrize("make", [NumpyEngine, TorchEngine, FusedEngine])
@pytest.mark.parametrize("kind", ["plain", "sparse", "augmented"])
def test_rows_outside_the_table_are_refused(kind: str, make: type) -> None:
    spec = Spec.parse("3-2-1")
    found = make(spec, in_form(kind, table(spec, 4)), Settings(loss="mse"))
    for rows in ([-1, -2], [0, 4]):
        with pytest.raises(IndexError):
            found.gradients(np.array(rows), epoch=0)


@pytest.mark.parametrize("make", [TorchEngine, FusedEngine])
@pytest.mark.parametrize(("threads", "message"), [(0, "at least 1, got 0"), (10**6, "at most 1,024, got 1000000")])
def test_the_number_of_threads_is_validated(threads: int, message: str, make: type) -> None:
    spec = Spec.parse("3-1")
    with pytest.raises(OptionError, match=f"threads must be .*{message}"):
        make(spec, table(spec, 4), Settings(loss="mse"), threads=threads)


def test_the_maximum_number_of_threads_is_that_of_the_core() -> None:
    spec = Spec.parse("3-1")
    with pytest.raises(ValueError, match=f"threads must be from 1 to {named_options.MAX_THREADS}, got"):
        _core.matrix_peak(named_options.MAX_THREADS + 1, 0.0)
    with pytest.raises(OptionError, match=f"threads must be at most {named_options.MAX_THREADS:,}, got"):
        PredictProgram(spec, initialise(spec, seed=0), threads=named_options.MAX_THREADS + 1)
    member = Member(engine=NumpyEngine(spec, table(spec, 4), Settings(loss="mse")), rows=np.arange(4), seed=0)
    with pytest.raises(OptionError, match=f"threads must be at most {named_options.MAX_THREADS:,}, got"):
        Ensemble([member], losses.get("mse"), threads=named_options.MAX_THREADS + 1)


def test_the_strongest_action_wins_and_ties_go_to_the_first() -> None:
    assert strongest([]) == Continue()
    assert strongest([Continue(), Rollback(reason="a"), Rollback(reason="b")]) == Rollback(reason="a")
    assert strongest([Rollback(reason="a"), Stop(reason="b")]) == Stop(reason="b")
