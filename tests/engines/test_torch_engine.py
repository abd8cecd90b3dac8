"""The torch engine equals a plain PyTorch loop bit for bit, and the numpy engine up to rounding."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from multilayer.core import random
from multilayer.core.random import Purpose
from multilayer.engines import Order, Settings
from multilayer.engines.numpy_engine import NumpyEngine
from multilayer.nn import losses, schedules
from multilayer.spec import Spec
from multilayer.spec.initialization import initialise
from support.cases import ALL, LOSS_ROWS, OPTIMIZER_ROWS, Case
from support.engines import LOSSES, OPTIMIZERS, double, orders, run, table

pytestmark = pytest.mark.usefixtures("one_thread")

SCHEDULES = ["constant", "cosine(warmup=0.1)", "one_cycle", "coslog", "flat_cosine", "step(0.25, 0.5)", "linear"]


# Comparison with a plain PyTorch loop


LOSS_BY_HAND = {text: make for row in LOSS_ROWS.values() for text, make in row.by_hand.items()}
OPTIMIZER_BY_HAND = {text: make for row in OPTIMIZER_ROWS.values() for text, make in row.by_hand.items()}


def pytorch_optimizer(text: str, weights: list[torch.Tensor], biases: list[torch.Tensor]) -> torch.optim.Optimizer:
    return OPTIMIZER_BY_HAND[text]([{"params": weights}, {"params": biases, "weight_decay": 0.0}])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("loss", LOSSES)
def test_training_is_bit_equal_to_a_plain_pytorch_loop(loss: str, optimizer: str) -> None:
    """Train 20 steps over 2 epochs, with a smaller last batch, dropout, and a validation pass in between."""
    spec, seed, rate = Spec.parse("5-6:tanh:dropout(0.2)-3"), 4, 0.02
    data, work = table(spec, 58, loss), orders(58, 6, 2)
    x, y = torch.from_numpy(data.x), torch.from_numpy(data.y)
    for text in SCHEDULES:
        factors = schedules.get(text)(np.arange(20), 20)

        W1, b1, W2, b2 = (torch.tensor(v, requires_grad=True) for v in initialise(spec, seed=seed).values())
        by_hand = pytorch_optimizer(optimizer, [W1, W2], [b1, b2])
        expected: list[float] = []
        for order in work:
            for rows in order.batches():
                mask = random.keep(seed, Purpose.DROPOUT, rows=rows, units=6, p=0.2, epoch=order.epoch) / 0.8
                h = torch.tanh(functional.linear(x[rows], W1, b1)) * torch.from_numpy(mask)
                value = LOSS_BY_HAND[loss](functional.linear(h, W2, b2), y[rows])
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
def test_decay_clipping_l2_averages_and_factors_are_bit_equal_to_a_plain_pytorch_loop(optimizer: str) -> None:
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
    by_hand = pytorch_optimizer(optimizer, [W1], [b1, W2, b2])
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


# Comparison with the numpy engine


def agree(case: Case, settings: Settings, *, rate: float, decay: float = 0.0) -> None:
    """Compare states, losses and norms over 50 steps in float64. The tolerance is 1e-9 of the largest value."""
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
    """Compare with SGD and all other options. The update of SGD is linear in the gradient."""
    settings = Settings(loss="mse", optimizer="sgd", seed=3, l2=1e-3, clip_norm=2.0, clip_value=1.0, average=0.9)
    agree(case, settings, rate=1e-3, decay=0.1)


@pytest.mark.parametrize("optimizer", ["momentum", "nesterov", "adam", "adamw"])
@pytest.mark.parametrize(
    "case",
    [c for c in SMALL if c.name in ("linear", "layernorm", "dropout", "residual network", "recipe", "columns pbld")],
    ids=lambda case: case.name,
)
def test_the_numpy_engine_agrees_for_every_optimizer(case: Case, optimizer: str) -> None:
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
