"""Initialization: variances of the schemes, reproducible values, and predicted variance through depth."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

import multilayer as ml
from multilayer.errors import OptionError, SpecError
from multilayer.nn.activations import catalogue, get, properties
from multilayer.spec import Spec
from multilayer.spec.initialization import (
    SCHEMES,
    Fan,
    feeding_gains,
    initialise,
    scheme,
    weight_deviations,
    weight_variances,
)
from support.cases import ALL, Case

by_name = pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)


@pytest.mark.parametrize(
    ("text", "name", "std"),
    [
        ("he", "linear1", 0.0505),
        ("he", "linear2", 0.0884),
        ("he", "linear3", 0.125),
        ("xavier", "linear1", 0.0438),
        ("xavier_uniform", "linear1", 0.0438),
        ("lecun", "linear1", 1 / 28),
        ("torch", "linear1", 1 / math.sqrt(3 * 784)),
        ("he(fan_out)", "linear1", math.sqrt(2 / 256)),
        ("width", "linear1", 1 / 16),
        ("normal(0.25)", "linear1", 0.5),
        ("uniform(0.25)", "linear1", 0.5),
    ],
)
def test_standard_deviations(text: str, name: str, std: float) -> None:
    """The tolerance for drawn weights is five standard errors of a sample standard deviation."""
    spec = ml.mlp(784, [256, 128], 10)
    predicted = math.sqrt(weight_variances(spec, text)[f"{name}.weight"])
    assert predicted == pytest.approx(std, abs=1e-4)
    weight = initialise(spec, text, seed=0)[f"{name}.weight"]
    assert weight.std() == pytest.approx(std, rel=5 / math.sqrt(2 * weight.size))


@pytest.mark.parametrize(
    "row",
    json.loads((Path(__file__).parents[1] / "golden" / "init_schemes.json").read_text()),
    ids=lambda row: f"{row['scheme']} {row['n_in']}-{row['n_out']}",
)
def test_python_and_the_explorer_use_the_same_variance(row: dict[str, object]) -> None:
    """The tests of the explorer page use the same table."""
    spec = Spec.parse(f"{row['n_in']}-{row['n_out']}")
    text, variance = str(row["scheme"]), float(str(row["variance"]))
    assert weight_variances(spec, text)["linear1.weight"] == pytest.approx(variance, rel=1e-14)
    assert weight_deviations(spec, text)["linear1"] == pytest.approx(math.sqrt(variance), rel=1e-14)


@pytest.mark.parametrize(
    "text",
    ["he", "normal(0.01)", "uniform(0.01)", "xavier_uniform", "torch", "orthogonal", "width", "constant(2)", "zeros"],
)
def test_the_stated_standard_deviation_is_that_of_the_weights(text: str) -> None:
    """The tolerance is five standard errors of a sample standard deviation, for every kind of layer with weights."""
    spec = Spec.parse("64-256-swiglu(32)-maxout(40)-kan(30)-linear(50,scale=3)-20")
    values = initialise(spec, text, seed=1)
    deviations = weight_deviations(spec, text)
    assert list(deviations) == ["linear1", "swiglu1", "maxout1", "kan1", "linear2", "linear3"]
    for name, std in deviations.items():
        weight = values[f"{name}.weight"]
        assert weight.std() == pytest.approx(std, rel=5 / math.sqrt(2 * weight.size)), name


def test_he_and_torch_standard_deviations_for_512_inputs() -> None:
    spec = ml.linear(512, 512)
    assert math.sqrt(weight_variances(spec, "he")["linear1.weight"]) == pytest.approx(0.0625, abs=1e-4)
    assert math.sqrt(weight_variances(spec, "torch")["linear1.weight"]) == pytest.approx(0.0255, abs=1e-4)


def test_a_scheme_must_be_a_string() -> None:
    for refused in (ml.build, ml.variance):
        with pytest.raises(OptionError, match="an initialization scheme must be a string such as 'he', got None"):
            refused("4-3", init=None)


def test_xavier_uniform_bound() -> None:
    weight = initialise(ml.linear(30, 20), "xavier_uniform")["linear1.weight"]
    bound = math.sqrt(6 / 50)
    assert np.abs(weight).max() < bound
    assert np.abs(weight).max() > 0.98 * bound


def test_only_the_torch_scheme_draws_biases() -> None:
    spec = ml.mlp(16, [64], 1)
    assert np.abs(initialise(spec, "torch")["linear1.bias"]).max() == pytest.approx(0.25, rel=0.1)
    assert not initialise(spec, "he")["linear1.bias"].any()


def test_orthogonal() -> None:
    for text in ("8-8", "8-5", "5-8"):
        weight = initialise(Spec.parse(text), "orthogonal", seed=4)["linear1.weight"]
        small = weight @ weight.T if weight.shape[0] <= weight.shape[1] else weight.T @ weight
        np.testing.assert_allclose(small, np.eye(len(small)), atol=1e-14)


def test_auto_uses_the_gain_of_the_preceding_activation() -> None:
    for name in catalogue:
        gain = properties.gain(get(name)) or 1.0
        variances = weight_variances(Spec.parse(f"50-40:{name}-1"), "auto")
        assert variances["linear1.weight"] == pytest.approx(1 / 50)
        assert variances["linear2.weight"] == pytest.approx(gain**2 / 40)
    for text, variance in {
        "50-40:relu:layernorm-1": 1 / 40,
        "50-40:layernorm:relu-1": 2 / 40,
        "50-40:relu:dropout(0.5)-1": 1 / 40,
        "50-40:relu:scale-1": 2 / 40,
        "50-40:none-[40:relu]-1": 1 / 40,
        "50-swiglu(40)-1": properties.gain(get("silu")) ** 2 / 40,  # type: ignore[operator]
    }.items():
        found = weight_variances(Spec.parse(text))
        assert list(found.values())[-2] == pytest.approx(variance), text


def test_gains_of_a_deep_network() -> None:
    """Check 3,000 layers in equal groups, with layers that change the gain and layers that do not."""
    gelu, tanh, half = properties.gain(get("gelu")), properties.gain(get("tanh")), math.sqrt(0.5)
    assert gelu
    assert tanh
    group = {
        "scale": tanh,  # of the previous group
        "dropout(0.5)": tanh,
        "40": tanh * half,
        "gelu": 1,
        "scale:dropout(0.5):scale:40": [gelu, gelu, gelu * half, gelu * half],
        "none:layernorm:dropout(0.5):40": [1, 1, half],
        "relu:[40:relu]:40": [1, 1, 1, 1, 1],  # linear, ReLU and sum of the block, and the next layer
        "tanh": 1,
    }
    expected = np.hstack(list(group.values()))
    found = list(feeding_gains(Spec.parse(f"40-({':'.join(group)})*200-1").entries))
    assert len(found) > 3000
    assert found[:3] == pytest.approx([1, 1, half])
    for i in range(len(expected), len(found) - 1, len(expected)):
        assert found[i : i + len(expected)] == pytest.approx(expected)
    assert found[-1] == pytest.approx(tanh)


def test_deep_networks_can_be_built_and_analysed() -> None:
    spec = Spec.parse("8-(8:tanh:dropout(0.1))*1000-1")
    assert len(spec.entries) > 3000
    weights = [p for name, p in ml.build(spec).named_parameters() if name.endswith("weight")]
    assert len(weights) == 1001
    assert len(ml.variance(spec, rows=2).layers) == len(spec.entries)


@pytest.mark.parametrize(
    "name", ["relu", "gelu", "silu", "mish", "tanh", "sigmoid", "softplus", "elu", "selu", "leaky_relu"]
)
def test_auto_keeps_the_variance_at_any_depth(name: str) -> None:
    layers = ml.variance(f"256-(256:{name})*50-256", "auto", rows=8).layers
    linear = [layer.predicted_forward for layer in layers if layer.name.startswith("linear")]
    assert linear == pytest.approx([1.0] * 51, rel=1e-6)


def test_weights_compensate_a_fixed_scale() -> None:
    spec = Spec.parse("400-linear(300, scale=tangent):relu-1")
    weight = initialise(spec, "he")["linear1.weight"]
    assert weight.std() == pytest.approx(math.sqrt(2), rel=0.02)


def test_depth_divides_by_the_number_of_layers() -> None:
    spec = ml.mlp(10, [10] * 3, 10, activation="none")
    assert weight_variances(spec, "depth")["linear1.weight"] == pytest.approx(1 / 10 / 4)


@by_name
def test_every_tensor_has_an_initial_value(case: Case) -> None:
    spec = case.spec
    for text in ("auto", "zeros", "torch", "orthogonal"):
        values = initialise(spec, text, seed=1)
        assert set(values) == set(spec.parameters) | set(spec.buffers)
        for name, parameter in (spec.parameters | spec.buffers).items():
            assert values[name].shape == parameter.shape
            assert values[name].dtype == np.float64
            assert np.isfinite(values[name]).all()


def test_known_answers() -> None:
    """A seed gives the same float64 values on any platform. The expected values come from the random stream."""
    values = initialise(ml.mlp(3, [2], 1), "normal(1)", seed=7)
    from multilayer.core import random

    np.testing.assert_array_equal(
        values["linear1.weight"], random.normal(7, random.Purpose.INIT, rows=2, units=3, part=0)
    )
    np.testing.assert_array_equal(
        values["linear2.weight"], random.normal(7, random.Purpose.INIT, rows=1, units=2, part=2)
    )
    assert [value.hex() for value in values["linear1.weight"][0]] == KNOWN


KNOWN = ["-0x1.5803a5591b7f1p-1", "-0x1.b132442c4ac96p-1", "-0x1.68a6a7d3b651cp-4"]


def test_equal_seeds_give_equal_values() -> None:
    spec = ml.mlp(5, [4], 3)
    a, b, c = (initialise(spec, seed=seed)["linear1.weight"] for seed in (0, 0, 1))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hee", "unknown initialization scheme 'hee': did you mean 'he'"),
        ("normal", r"normal needs variance: normal\(variance\), got 'normal'"),
        ("normal(x)", "constants of normal must be finite numbers, got 'x'"),
        ("normal(-1)", "variance must be at least 0, got -1"),
        ("constant(inf)", "constants of constant must be finite numbers, got 'inf'"),
        ("he(3)", "^he takes fan_in or fan_out in brackets, got '3'$"),
        ("he(fan_ot)", "^he takes fan_in or fan_out in brackets, got 'fan_ot'$"),
        ("he_uniform(fan_ot)", "^he_uniform takes fan_in or fan_out in brackets, got 'fan_ot'$"),
        ("lecun(3)", "^lecun takes nothing in brackets, got '3'$"),
        ("nrmal(3)", "unknown initialization scheme 'nrmal': did you mean 'normal'"),
    ],
)
def test_invalid_schemes_are_refused(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        scheme(text)


def test_aliases_of_schemes() -> None:
    fan = Fan(n_in=8, n_out=4, gain=1.0, depth=1)
    for other, name in (
        ("kaiming", "he"),
        ("he_normal", "he"),
        ("glorot_uniform", "xavier_uniform"),
        ("he(fan_in)", "he"),
        ("kaiming_normal(fan_out)", "he(fan_out)"),
    ):
        assert scheme(other).variance(fan) == scheme(name).variance(fan)
    assert len(SCHEMES) > 10


def test_a_constant_may_be_close_to_the_largest_float() -> None:
    assert weight_variances(Spec.parse("4-4-1"), "constant(1e308)")["linear1.weight"] == math.inf
    assert ml.variance("4-4-1", "constant(1e308)").verdict.startswith("activations explode, gradients explode")


# Variance through depth


def test_activations_of_width_64_explode_with_variance_1_and_vanish_with_variance_0_01() -> None:
    spec = ml.mlp(64, [64] * 20, 64)
    assert "activations explode" in ml.variance(spec, "normal(1)").verdict
    vanishing = ml.variance(spec, "normal(0.01)")
    assert "activations vanish" in vanishing.verdict
    assert "depends on the width" in vanishing.note
    steady = ml.variance(spec, "he")
    assert steady.verdict.startswith("activations stay steady, gradients stay steady")


def test_predictions_for_orthogonal_weights_of_widening_layers() -> None:
    for layer in ml.variance("64-256:none-100:none-200", "orthogonal").layers:
        assert layer.predicted_forward == pytest.approx(layer.measured_forward, rel=0.15), layer.name
        assert layer.predicted_backward == pytest.approx(layer.measured_backward, rel=0.15), layer.name


@pytest.mark.parametrize(
    ("network", "init", "remedy"),
    [
        ("64-64*20-10", "he", "this scheme suits the network"),
        ("784-256-128-10", "auto", "this scheme suits the network"),
        ("64-64*20-10", "normal(1)", "use the scheme 'auto'"),
        ("64-64*20-10", "normal(0.01)", "use the scheme 'auto'"),
        ("784-256-128-10", "torch", "use the scheme 'auto'"),
        ("64-kan(8)-2", "zeros", "use the scheme 'auto'"),
        ("64-(64:sigmoid)*20-10", "auto", "use residual blocks or fewer layers"),
        ("64-(64:relu:layernorm)*40-10", "auto", "use residual blocks or fewer layers"),
        ("64-[64-64]*30-10", "auto", "add a norm such as layernorm at the start of each residual block"),
        ("64-[layernorm-64-64]*30-10", "auto", "this does not harm training"),
        ("64-[layernorm-64-64]*30-10", "normal(1)", "use the scheme 'auto'"),
        ("8-8*60-8", "he", "use wider layers"),
        ("10-(64:tanh)*20-1", "auto", "'he': the largest change measured with it is 7.1-fold instead of 41-fold"),
    ],
)
def test_the_remedy_matches_the_cause(network: str, init: str, remedy: str) -> None:
    assert remedy in ml.variance(network, init, rows=64).verdict


@pytest.mark.parametrize("text", ["10-(64:tanh)*20-1", "16-(16:sigmoid)*9-4", "8-(8:relu)*30-8", "4-(16:gelu)*40-1"])
@pytest.mark.parametrize("init", ["auto", "depth", "he", "lecun", "normal(1)", "torch"])
def test_a_scheme_that_mlp_init_recommends_is_measured_to_be_better(text: str, init: str) -> None:
    def largest(name: str) -> float:
        layers = ml.variance(text, name, rows=64).layers
        forward, backward = layers[-1].measured_forward, layers[0].measured_backward
        width = int(layers[0].what.split("→")[1]) / int(text.rpartition("-")[2])
        return max(max(size, 1 / size) if size else math.inf for size in (forward, backward * width))

    verdict = ml.variance(text, init, rows=64).verdict
    recommended = re.search("use the scheme '(.+?)'", verdict)
    if recommended is not None:
        assert largest(recommended[1]) < largest(init)
        assert f"{largest(recommended[1]):.2g}-fold" in verdict


@pytest.mark.parametrize("block", ["16:sigmoid", "16:relu:layernorm", "16:batchnorm", "[16-16]", "[rmsnorm-16-16]"])
def test_remedies_suggest_nothing_that_the_network_already_has(block: str) -> None:
    for init in ("auto", "depth", "he", "xavier", "lecun", "normal(1)", "zeros", "torch"):
        for depth in (2, 40):
            verdict = ml.variance(f"16-({block})*{depth}-4", init, rows=16).verdict
            assert f"scheme {init!r}" not in verdict
            assert not ("add a norm" in verdict and "norm" in block)
            assert not ("use residual blocks" in verdict and "[" in block)


def test_growth_by_a_factor_of_22_is_not_steady() -> None:
    verdict = ml.variance("64-64*3-64", "normal(0.08)", rows=256).verdict
    assert verdict.startswith("activations grow")
    assert "steady, " not in verdict


def test_activations_of_width_512_explode_with_variance_0_01() -> None:
    wide = ml.mlp(512, [512] * 12, 512)
    assert "explode" in ml.variance(wide, "normal(0.01)", rows=64).verdict


def test_relu_halves_the_mean_square() -> None:
    layers = ml.variance(ml.mlp(256, [256], 256), "lecun", rows=2000).layers
    assert layers[0].predicted_forward == pytest.approx(1.0)
    assert layers[1].predicted_forward == pytest.approx(0.5, rel=1e-6)
    assert layers[1].measured_forward == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize(
    "activation", ["relu", "tanh", "gelu", "silu", "selu", "sigmoid", "leaky_relu", "mish", "softplus"]
)
@pytest.mark.parametrize("init", ["auto", "xavier", "normal(0.01)"])
def test_theory_agrees_with_measurement(activation: str, init: str) -> None:
    """The prediction treats units as independent, so its error is about 1/√width per layer. The width is 400."""
    spec = ml.mlp(400, [400] * 3, 400, activation=activation)
    for layer in ml.variance(spec, init, rows=256, seed=2).layers:
        assert layer.predicted_forward == pytest.approx(layer.measured_forward, rel=0.25), layer.name
        assert layer.predicted_backward == pytest.approx(layer.measured_backward, rel=0.25), layer.name


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_theory_includes_the_random_biases_of_pytorch(activation: str) -> None:
    """Deep inside, the activations come from the biases alone: without them, they would shrink to 1/3^8 and less."""
    for layer in ml.variance(ml.mlp(400, [400] * 8, 400, activation=activation), "torch", rows=64).layers:
        assert layer.predicted_forward == pytest.approx(layer.measured_forward, rel=0.35), layer.name


def test_theory_for_norms_residuals_gates_and_dropout() -> None:
    spec = Spec.parse("300-300:none-[layernorm-300:relu:dropout(0.2)-300]*2-swiglu(300)-300")
    for layer in ml.variance(spec, "auto", rows=256).layers:
        assert layer.predicted_forward == pytest.approx(layer.measured_forward, rel=0.3), layer.name
        assert layer.predicted_backward == pytest.approx(layer.measured_backward, rel=0.3), layer.name


@pytest.mark.parametrize(
    "text",
    [
        "300-(300:relu:batchnorm)*6-300",
        "300-(300:relu:layernorm)*4-300",
        "300-(300:relu:rmsnorm)*4-300",
        "300-[batchnorm-300:relu]*5-300",
        "300-300:none-[layernorm-300:relu]*5-300",
        "300-[300:gelu]*4-300",
    ],
)
def test_theory_for_activations_with_a_nonzero_mean(text: str) -> None:
    for layer in ml.variance(text, "he", rows=512, seed=1).layers:
        assert layer.predicted_forward == pytest.approx(layer.measured_forward, rel=0.35), layer.name
        assert layer.predicted_backward == pytest.approx(layer.measured_backward, rel=0.35), layer.name


def test_the_note_reports_the_scatter_of_a_deep_narrow_network() -> None:
    narrow, wide = (ml.variance(f"{n}-{n}*40-{n}", "he", rows=16) for n in (64, 1024))
    assert narrow.scatter > 3 > wide.scatter > 1
    assert "factor of about" in narrow.note


def test_sigmoid_gradients_vanish_with_depth() -> None:
    layers = ml.variance(ml.mlp(64, [64] * 10, 64, activation="sigmoid"), "xavier", rows=64).layers
    assert layers[0].measured_backward < 1e-9
    assert layers[0].predicted_backward < 1e-9


def test_layers_without_a_rule_have_no_prediction() -> None:
    layers = ml.variance("8-maxout(8)-8:layernorm-8").layers
    by_name = {layer.name: layer for layer in layers}
    assert by_name["maxout1"].predicted_forward is None
    assert by_name["layernorm1"].predicted_forward == 1.0
    assert ml.variance("8-8-8", "constant(0.1)").layers[0].predicted_forward is None


def test_variance_refuses_categories() -> None:
    with pytest.raises(SpecError, match="needs plain numeric inputs, got categories"):
        ml.variance("3+cat(2)-4-1")
    with pytest.raises(OptionError, match="rows must be at least 2, got 1"):
        ml.variance("3-1", rows=1)
