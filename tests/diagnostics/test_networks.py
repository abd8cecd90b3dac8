"""Measurements of a network: brute-force passes over the rows, and gradients of PyTorch in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import multilayer as ml
from multilayer.diagnostics.networks import NetworkMeasurement, measure_network
from multilayer.nn import losses


def measured(text: str, tensors: dict[str, Any] | None = None, *, rows: int = 50, **options: Any) -> NetworkMeasurement:
    spec = ml.Spec.parse(text)
    values = ml.initialise(spec, "auto", seed=1) if tensors is None else tensors
    x, y = inputs(spec, rows)
    return measure_network(spec, values, x, None, y, losses.get("mse"), **options)


def inputs(spec: ml.Spec, rows: int) -> tuple[np.ndarray, np.ndarray]:
    g = np.random.default_rng(0)
    return g.normal(size=(rows, spec.inputs.numeric)), g.normal(size=(rows, spec.d_out))


def test_dead_units_are_those_without_output_on_every_row() -> None:
    spec = ml.Spec.parse("3-8-1")
    values = dict(ml.initialise(spec, "auto", seed=1))
    values["linear1.bias"] = np.where(np.arange(8) % 3 == 0, -100.0, 0.0)
    found = measured("3-8-1", values)
    x, _ = inputs(spec, 50)
    a = np.maximum(x @ values["linear1.weight"].T + values["linear1.bias"], 0)
    (layer,) = found.activations
    assert layer.dead.tolist() == np.flatnonzero(~a.any(0)).tolist()
    assert {0, 3, 6} <= set(layer.dead.tolist())
    assert layer.sparsity == pytest.approx((a == 0).mean())
    assert (layer.a_mean, layer.a_std) == pytest.approx((a.mean(), a.std()))


def test_saturated_units_have_a_flat_slope_on_nearly_all_rows() -> None:
    spec = ml.Spec.parse("3-4:sigmoid-1")
    values = dict(ml.initialise(spec, "auto", seed=1))
    values["linear1.bias"] = np.array([0.0, 50.0, 0.0, -50.0])
    (layer,) = measured("3-4:sigmoid-1", values).activations
    assert layer.saturated.tolist() == [1, 3]
    assert layer.dead.tolist() == []


@pytest.mark.parametrize("text", ["3-8-8-1", "3-6:tanh-[6:gelu]*2-1", "3-8:layernorm-8:batchnorm-1"])
def test_gradients_are_those_of_pytorch(text: str) -> None:
    spec = ml.Spec.parse(text)
    model = ml.build(text, seed=1).double().eval()
    values = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    x, y = inputs(spec, 50)
    loss = ((model(torch.from_numpy(x)) - torch.from_numpy(y)) ** 2).mean(1).mean()
    loss.backward()
    found = measure_network(spec, values, x, None, y, losses.get("mse"))
    assert found.loss == pytest.approx(loss.item())
    for layer in found.weights:
        gradient = model.get_parameter(f"{layer.name}.weight").grad
        assert layer.gradient == pytest.approx(gradient.norm().item())


def test_the_gradient_slope_of_sigmoid_layers_is_negative() -> None:
    deep = "-".join(["3", *["16:sigmoid"] * 8, "1"])
    found = measured(deep)
    assert found.delta_ratio < 1e-3
    # At initialization, each sigmoid layer multiplies the gradient by at most 1/4 times the size of its weights.
    assert -1.0 < found.gradient_slope < -0.3


def test_movement_is_the_relative_change_of_the_weights() -> None:
    spec = ml.Spec.parse("3-8-1")
    first = dict(ml.initialise(spec, "auto", seed=1))
    now = {name: value * 1.5 for name, value in first.items()}
    found = measured("3-8-1", now, initial=first)
    assert found.movement == pytest.approx(0.5)
    assert math.isnan(measured("3-8-1").movement)


@pytest.mark.parametrize(("weights", "share"), [("equal", 1.0), ("pairs", 1.0), ("random", 0.0), ("zero", 1.0)])
def test_identical_units(weights: str, share: float) -> None:
    values = dict(ml.initialise(ml.Spec.parse("3-8-1"), "auto", seed=1))
    own = values["linear1.weight"]
    changed = {"equal": own[:1].repeat(8, 0), "pairs": own[:4].repeat(2, 0), "random": own, "zero": own * 0}
    values["linear1.weight"] = changed[weights]
    assert measured("3-8-1", values).weights[0].identical == share


def test_one_unit_removed_by_weight_decay_is_not_identical() -> None:
    values = dict(ml.initialise(ml.Spec.parse("3-8-1"), "auto", seed=1))
    values["linear1.weight"][2:5] = 0
    assert measured("3-8-1", values).weights[0].identical == 0


def test_effective_rank_and_duplicates() -> None:
    values = dict(ml.initialise(ml.Spec.parse("3-8:none-1"), "auto", seed=1))
    values["linear1.weight"] = np.eye(8, 3)
    values["linear1.weight"][3:] = [2.0, 0.0, 0.0]
    (layer,) = measured("3-8:tanh-1", values, rows=4000).activations
    assert layer.duplicates == 4  # units 4 to 7 equal unit 3
    assert 1 < layer.effective_rank < 3.1


def test_unused_inputs() -> None:
    values = dict(ml.initialise(ml.Spec.parse("3-8-1"), "auto", seed=1))
    values["linear1.weight"][:, 1] = 0
    assert measured("3-8-1", values).unused_inputs == (1,)


@pytest.mark.parametrize("text", ["3-1", "3-1-1", "1-2-1"])
@pytest.mark.parametrize("rows", [1, 2])
def test_small_networks(text: str, rows: int) -> None:
    assert math.isfinite(measured(text, rows=rows).loss)
