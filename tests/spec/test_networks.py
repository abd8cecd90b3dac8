"""Ready-made networks and their parameter counts; XOR, collapse of linear layers, symmetry, and the perceptron."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import multilayer as ml
from multilayer.data.batches import Data
from multilayer.engines import Order, Settings
from multilayer.engines.numpy_engine import NumpyEngine
from multilayer.errors import SpecError
from multilayer.nn.layers import Pass
from multilayer.nn.layers.base import forward_through
from multilayer.spec.initialization import initialise

XOR = np.array([[0.0, 0], [0, 1], [1, 0], [1, 1]])
XOR_TARGET = np.array([0.0, 1, 1, 0])


@pytest.mark.parametrize(
    ("spec", "parameters"),
    [
        (ml.mlp(784, [256, 128], 10), 235_146),
        (ml.mlp(100, [64, 32], 1, activation="relu", output="sigmoid"), 8_577),
        (ml.mlp(2, [2], 1), 9),
        (ml.residual_mlp(20, 10), 7_105_930),
        (ml.feed_forward_block(768), 4_722_432),
        (ml.neuron(7), 8),
        (ml.linear(784, 10), 7_850),
        (ml.mlp(784), 784 * 256 + 256 + 256 * 128 + 128 + 128 + 1),
    ],
)
def test_the_number_of_parameters(spec: ml.Spec, parameters: int) -> None:
    assert spec.n_parameters == parameters


def test_parameters_per_layer_of_the_worked_example() -> None:
    assert [row.parameters for row in ml.cost("784-256-128-10").layers] == [200_960, 32_896, 1_290]


def test_the_parameters_of_a_residual_block() -> None:
    two, one = ml.residual_mlp(20, 10, blocks=2), ml.residual_mlp(20, 10, blocks=1)
    assert two.n_parameters - one.n_parameters == 1_182_336


def test_a_residual_network_without_blocks_has_two_layers() -> None:
    assert str(ml.residual_mlp(20, 10, blocks=0, hidden=4)) == "20-4:none-10"


def test_one_activation_per_layer() -> None:
    assert str(ml.mlp(3, [4, 5], 1, activation=["tanh", "gelu"])) == "3-4:tanh-5:gelu-1"
    with pytest.raises(SpecError, match="one for each of 2 hidden layers, got 1"):
        ml.mlp(3, [4, 5], 1, activation=["tanh"])


def test_an_invalid_width_is_reported_with_its_position() -> None:
    with pytest.raises(SpecError, match=r"at least 1, got hidden\[1\]=0"):
        ml.mlp(3, [4, 0], 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ml.mlp(4, 256, 1), r"hidden must be a sequence of widths, got 256: write \[256\]"),
        (lambda: ml.mlp(4, "256", 1), r"hidden must be a sequence of widths, got '256': write \[256, 128\]"),
        (lambda: ml.Residual(ml.Linear(3)), r"must hold a sequence of layers, got Linear.*: write \[Linear\(10\)\]"),
        (lambda: ml.Residual(3), "must hold a sequence of layers, got 3"),
        (lambda: ml.mlp(4, [8], 1, dropout="x"), "dropout must be at least 0 and below 1, got 'x'"),
        (lambda: ml.mlp(4, [8], 1, activation=5), "activation must be a name, or one for each hidden layer, got 5"),
        (lambda: ml.mlp(4, [8], 1, activation=[5]), "an activation must be a name such as 'relu' .* got 5"),
        (lambda: ml.mlp(4, [8], 1, norm=["batchnorm"]), r"norm must be one of .* got \['batchnorm'\]"),
        (lambda: ml.residual_mlp(4, 2, blocks=1.5), "blocks must be a whole number of at least 0, got 1.5"),
        (lambda: ml.residual_mlp(4, 2, blocks=10**9), "blocks must be at most 100,000, got 1000000000"),
        (lambda: ml.feed_forward_block(4, expansion=1.5), "expansion must be a whole number of at least 1, got 1.5"),
        (lambda: ml.Spec(4, ml.Linear(3)), r"layers must be a sequence of layers, got Linear\(d_out=3.*: write \["),
        (lambda: ml.Spec(4, 3), "layers must be a sequence of layers, got 3"),
        (lambda: ml.Spec.parse(784), "Spec.parse needs a string such as '784-256-10', got 784"),
        (lambda: ml.Inputs(categories=3), r"categories must be one number for each column, got 3: write \(3, 12\)"),
        (lambda: ml.build(784), "ml.build needs a Spec or a string such as '784-256-10', got 784"),
        (lambda: ml.Activation("elu(1, 2)"), r"elu takes at most 1 positional options, got 'elu\(1, 2\)'"),
        (lambda: ml.Activation("elu(1, alpha=2)"), "alpha of elu is given twice"),
        (lambda: ml.Activation("elu(x)"), "elu needs alpha to be a finite number, got alpha='x'"),
        (lambda: ml.Activation("elu(1)", {"alpha": 2}), "options of an activation must be in its name or separate"),
        (lambda: ml.BatchNorm(momentum="x"), "momentum must be above 0 and at most 1, got 'x'"),
        (lambda: ml.LayerNorm(eps="x"), "eps must be a positive number, got 'x'"),
    ],
)
def test_invalid_networks_are_refused_with_an_explanation(make, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make()


def test_gated_block() -> None:
    assert str(ml.feed_forward_block(8, gate="swiglu")) == "8-swiglu(32)-8"


def outputs(spec: ml.Spec, values: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    return forward_through(spec.layers, x, values, Pass())[0]


def test_xor_with_given_weights_is_exact() -> None:
    """Goodfellow et al. 2016, section 6.1: h = max(0, x·1 + [0, −1]), y = h · [1, −2]."""
    spec = ml.mlp(2, [2], 1)
    values = {
        "linear1.weight": np.ones((2, 2)),
        "linear1.bias": np.array([0.0, -1.0]),
        "linear2.weight": np.array([[1.0, -2.0]]),
        "linear2.bias": np.zeros(1),
    }
    assert spec.n_parameters == 9
    np.testing.assert_array_equal(outputs(spec, values, XOR)[:, 0], XOR_TARGET)


def test_linear_models_solve_at_most_three_of_four_xor_rows() -> None:
    """The grid of weights contains every way in which a line can separate the four points."""
    grid = np.linspace(-2, 2, 41)
    best = 0
    for w1, w2, b in itertools.product(grid, grid, grid):
        decisions = (XOR @ np.array([w1, w2]) + b) > 0
        best = max(best, int((decisions == (XOR_TARGET > 0.5)).sum()))
    assert best == 3


@pytest.mark.parametrize("depth", [0, 1, 5, 100])
def test_linear_layers_collapse_to_one_linear_map(depth: int) -> None:
    spec = ml.mlp(6, [8] * depth, 3, activation="none")
    values = initialise(spec, "lecun", seed=1)
    W, b = ml.collapse(spec, values)
    x = np.random.default_rng(0).normal(size=(20, 6))
    direct = outputs(spec, values, x)
    scale = np.abs(direct).max()
    np.testing.assert_allclose(x @ W.T + b, direct, rtol=0, atol=1e-12 * (depth + 1) * max(scale, 1))
    assert W.shape == (3, 6)


def test_collapse_supports_scales_residual_blocks_and_models() -> None:
    spec = ml.Spec.parse("4-scale-[linear(6, scale=tangent):none-4]-dropout(0.5)-linear(3, bias=no)")
    model = ml.build(spec, seed=2, dtype=torch.float64).eval()
    W, b = ml.collapse(spec, model.state_dict())
    x = torch.randn(5, 4, dtype=torch.float64)
    np.testing.assert_allclose(x.numpy() @ W.T + b, model(x).detach().numpy(), atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_collapse_accepts_strings_parameters_and_any_float_type(dtype: torch.dtype) -> None:
    model = ml.build("4-3:none-2", dtype=dtype)
    W, _ = ml.collapse("4-3:none-2", dict(model.named_parameters()))
    expected = model.get_parameter("linear2.weight").double() @ model.get_parameter("linear1.weight").double()
    np.testing.assert_allclose(W, expected.detach().numpy(), atol=1e-15)


def test_collapse_reports_missing_tensors_and_wrong_shapes() -> None:
    values = initialise(ml.linear(4, 2))
    with pytest.raises(SpecError, match=r"weights must hold linear1.bias for 4-2, got linear1.weight"):
        ml.collapse("4-2", {"linear1.weight": values["linear1.weight"]})
    with pytest.raises(SpecError, match=r"linear1.weight must have the shape \(2, 5\) for 5-2, got \(2, 4\)"):
        ml.collapse("5-2", values)


def test_networks_with_activations_do_not_collapse() -> None:
    spec = ml.mlp(4, [5], 3)
    with pytest.raises(SpecError, match=r"only layers without an activation collapse .* got relu1"):
        ml.collapse(spec, initialise(spec))


def train(spec: ml.Spec, x: np.ndarray, y: np.ndarray, *, init: str, steps: int, loss: str = "mse", rate: float = 0.1):
    engine = NumpyEngine(spec, Data(x=x, y=y), Settings(loss=loss, optimizer="adam"), init=init)
    for epoch in range(steps):
        order = Order(epoch=epoch, rows=np.arange(len(x)), batch=len(x))
        engine.run(order, rate=np.array([rate]), decay=np.zeros(1), dropout=np.ones(1))
    return engine


@pytest.mark.parametrize("init", ["zeros", "constant(0.5)"])
def test_units_with_equal_weights_stay_equal_during_training(init: str) -> None:
    spec = ml.mlp(2, [5, 4], 1, activation="tanh")
    values = train(spec, XOR, XOR_TARGET[:, None], init=init, steps=20).state().parameters
    for name in ("linear1.weight", "linear2.weight"):
        weight = values[name]
        np.testing.assert_array_equal(weight, np.broadcast_to(weight[0], weight.shape), err_msg=name)


def test_a_linear_model_trained_on_xor_predicts_a_constant() -> None:
    engine = train(ml.linear(2), XOR, XOR_TARGET[:, None], init="he", steps=3000, rate=0.02)
    np.testing.assert_allclose(engine.outputs(np.arange(4))[:, 0], 0.5, atol=1e-6)


def test_a_hidden_layer_learns_xor() -> None:
    engine = train(ml.mlp(2, [8], 1, activation="tanh"), XOR, XOR_TARGET[:, None], init="auto", steps=400, rate=0.05)
    np.testing.assert_allclose(engine.outputs(np.arange(4))[:, 0], XOR_TARGET, atol=0.05)


def test_the_perceptron_rule() -> None:
    """With batch size 1 and rate 1, w ← w + t x for misclassified rows only. Separable data is learned."""
    generator = np.random.default_rng(3)
    x = generator.normal(size=(40, 2))
    y = (x @ np.array([1.0, -2.0]) + 0.3 > 0).astype(float)[:, None]
    keep = np.abs(x @ np.array([1.0, -2.0]) + 0.3) > 0.2
    x, y = x[keep], y[keep]
    spec = ml.linear(2)
    engine = NumpyEngine(spec, Data(x=x, y=y), Settings(loss="perceptron", optimizer="sgd"), init="zeros")
    n = len(x)
    w, b = np.zeros(2), 0.0
    for epoch in range(30):
        one = np.ones(n)
        engine.run(Order(epoch=epoch, rows=np.arange(n), batch=1), rate=one, decay=0 * one, dropout=one)
        for row, target in zip(x, 2 * y[:, 0] - 1, strict=True):
            if target * (w @ row + b) <= 0:
                w, b = w + target * row, b + target
    state = engine.state().parameters
    np.testing.assert_allclose(state["linear1.weight"][0], w, atol=1e-12)
    np.testing.assert_allclose(state["linear1.bias"], [b], atol=1e-12)
    assert ((engine.outputs(np.arange(n)) > 0) == (y > 0.5)).all()


def test_the_perceptron_is_the_limit_of_the_sigmoid() -> None:
    x = np.linspace(-2, 2, 41)[:, None] + 1e-3
    weights = {"linear1.weight": np.array([[1.5]]), "linear1.bias": np.array([-0.6])}
    step = outputs(ml.neuron(1), weights, x)
    soft = outputs(ml.Spec.parse("1-1:sigmoid(a=10000)"), weights, x)
    np.testing.assert_allclose(soft, step, atol=1e-6)


def test_hyperplane() -> None:
    plane = ml.hyperplane([3.0, 4.0], -10.0)
    np.testing.assert_allclose(plane.normal, [0.6, 0.8])
    point = plane.normal * plane.offset
    assert np.dot([3.0, 4.0], point) - 10.0 == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(SpecError, match="all weights 0 has no plane"):
        ml.hyperplane([0.0, 0.0], 1.0)


def test_a_linear_model_cannot_learn_n_bit_parity() -> None:
    bits = np.array(list(itertools.product([0.0, 1.0], repeat=4)))
    parity = bits.sum(1, keepdims=True) % 2
    linear = train(ml.linear(4), bits, parity, init="he", steps=1500, rate=0.02)
    assert np.allclose(linear.outputs(np.arange(16)), 0.5, atol=1e-4)
    hidden = train(ml.mlp(4, [16], 1, activation="tanh"), bits, parity, init="auto", steps=800, rate=0.03)
    assert ((hidden.outputs(np.arange(16)) > 0.5) == (parity > 0.5)).all()


def test_a_linear_model_cannot_learn_an_interaction() -> None:
    """The sign of the effect of income depends on age."""
    young, low = XOR[:, 0], XOR[:, 1]
    bought = np.where(low == 1, young, 1 - young)[:, None]
    linear = train(ml.linear(2), XOR, bought, init="he", steps=3000, rate=0.02).outputs(np.arange(4))
    assert int(((linear > 0.5) == (bought > 0.5)).sum()) <= 3
    hidden = train(ml.mlp(2, [8], 1, activation="tanh"), XOR, bought, init="auto", steps=400, rate=0.05)
    assert ((hidden.outputs(np.arange(4)) > 0.5) == (bought > 0.5)).all()
