"""`ml.trace` compared with PyTorch's autograd in float64: z, a, δ, gradients and updates, for every kind of layer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import multilayer as ml
from multilayer.errors import DataError, OptionError, SpecError
from support.quick_estimators import QUICK, classes, numbers, people

pytestmark = pytest.mark.filterwarnings("ignore:columns dropped")

LOSSES: dict[str, Any] = {
    "mse": nn.functional.mse_loss,
    "binary_cross_entropy": nn.functional.binary_cross_entropy_with_logits,
    "cross_entropy": nn.functional.cross_entropy,
}
OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1),
}
NETWORKS = [
    "2-1",
    "2-3:tanh-1",
    "3-4:gelu-4:mish-2",
    "4-5:sigmoid:dropout(0.3)-3",
    "3-4:layernorm:silu-[rmsnorm-6:relu-4]*2-2",
    "4-6:batchnorm:elu-6:groupnorm(2):softplus-1",
    "3-swiglu(4)-maxout(3)-2",
    "3-4:prelu(per=network)-4:prelu(per=network)-2",
    "4-4:blend(selu)-2",
]


def rows(spec: ml.Spec, loss: str, n: int = 5) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(3)
    x = draw.normal(size=(n, spec.inputs.numeric))
    if loss == "cross_entropy":
        return x, draw.integers(0, spec.d_out, n)
    y = draw.normal(size=(n, spec.d_out))
    return x, y if loss == "mse" else (y > 0).astype(float)


# Sums of at most a few dozen products in float64. 1e-12 is 100 times their rounding error.
def same(mine: Any, theirs: torch.Tensor) -> None:
    np.testing.assert_allclose(mine, theirs.detach().numpy(), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("text", NETWORKS)
@pytest.mark.parametrize("loss", LOSSES)
def test_every_number_equals_autograd(text: str, loss: str) -> None:
    model = ml.build(text, seed=4, dtype=torch.float64).eval()
    x, y = rows(model.spec, loss)
    found = ml.trace(model, x, y, loss=loss)
    outputs: dict[str, torch.Tensor] = {}

    def watch(name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, out: torch.Tensor) -> None:
            out.retain_grad()
            outputs[name] = out

        return hook

    for entry in model.spec.entries:
        model.get_submodule(entry.name).register_forward_hook(watch(entry.name))
    total = LOSSES[loss](model(torch.from_numpy(x).requires_grad_()), torch.from_numpy(y))
    total.backward()
    assert math.isclose(found.loss, total.item(), rel_tol=1e-12)
    gradients = {name: p.grad for name, p in model.named_parameters()}
    for step in found.steps:
        same(step.y, outputs[step.name])
        if (
            not text.startswith("4-5") or "dropout" not in step.name
        ):  # dropout is off and returns its input, so both have one gradient
            same(step.dy, outputs[step.name].grad)
        for name, g in step.gradients.items():
            if (
                model.spec.tensor_names[f"{step.name}.{name}"] == f"{step.name}.{name}"
            ):  # the gradient of a shared parameter is a sum
                same(g, gradients[f"{step.name}.{name}"])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("text", ["2-3:tanh-1", "3-4:prelu(per=network)-4:prelu(per=network)-2"])
def test_the_update_equals_that_of_torch(text: str, optimizer: str) -> None:
    model = ml.build(text, seed=1, dtype=torch.float64).eval()
    x, y = rows(model.spec, "mse")
    found = ml.trace(model, x, y, loss="mse", optimizer=optimizer, learning_rate=0.1)
    stepper = OPTIMIZERS[optimizer](model.parameters())
    nn.functional.mse_loss(model(torch.from_numpy(x)), torch.from_numpy(y)).backward()
    stepper.step()
    values = model.state_dict()
    for step in found.steps:
        for name, after in step.after.items():
            same(after, values[model.spec.tensor_names[f"{step.name}.{name}"]])


def test_a_torch_sequential_and_a_model_give_equal_traces() -> None:
    theirs = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)).double()
    x, y = np.array([[1.0, -1.0], [0.5, 2.0]]), np.array([[1.0], [0.0]])
    one, two = ml.trace(theirs, x, y), ml.trace(ml.from_torch(theirs), x, y)
    assert one.to_dict() == two.to_dict()
    assert one["tanh1"].kind == "tanh"
    with pytest.raises(KeyError, match="valid: linear1, linear2, tanh1"):
        one["nothing"]


def test_a_trained_model_takes_its_table() -> None:
    run = ml.fit("4-3:relu-3", "iris", epochs=1, quiet=True)
    found = ml.trace(run.model, "iris")
    assert found.output.shape == (150, 3)
    assert ml.trace(run, "iris").loss == found.loss


def test_typed_inputs() -> None:
    model = ml.build("2+cat(3, 12)-columns(pbld)-4:relu-1", seed=0, dtype=torch.float64)
    x, codes = np.array([[0.1, 0.2], [1.0, -1.0]]), np.array([[1, 12], [0, 3]])
    found = ml.trace(model, (x, codes), [[0.0], [1.0]])
    same(found.output, model(torch.from_numpy(x), torch.from_numpy(codes)))


def test_rows_and_targets_of_the_wrong_shape_are_errors() -> None:
    model = ml.build("2-3:tanh-2")
    with pytest.raises(DataError, match=r"x must be rows of 2 numbers"):
        ml.trace(model, [[1.0]], [0])
    with pytest.raises(DataError, match=r"class numbers from 0 to 1"):
        ml.trace(model, [[1.0, 2.0]], [2])
    with pytest.raises(DataError, match=r"y must be \(1, 2\) numbers"):
        ml.trace(model, [[1.0, 2.0]], [1.0], loss="mse")
    with pytest.raises(DataError, match="trace needs targets"):
        ml.trace(model, [[1.0, 2.0]])
    with pytest.raises(SpecError, match="a network with its weights is needed"):
        ml.trace(ml.Spec.parse("2-1"), [[1.0, 2.0]], [[1.0]])


# Trained models


def species() -> tuple[Any, np.ndarray, np.ndarray]:
    """Return a trained network, and raw rows with labels as arrays."""
    from sklearn.datasets import load_iris

    data = load_iris()
    model = ml.fit("4-8-3", "iris", epochs=60, learning_rate=0.02, quiet=True).model
    return model, data.data, data.target_names[data.target]


def test_tracing_a_network_with_one_output_accepts_flat_targets() -> None:
    network, x, y = ml.build("2-3:tanh-1"), [[1.0, -1.0], [0.5, 2.0]], [1.0, 0.0]
    flat, column = ml.trace(network, x, y), ml.trace(network, x, [[1.0], [0.0]])
    assert flat.to_dict() == column.to_dict()
    with pytest.raises(DataError, match=r"y must be \(2, 1\) numbers, got shape \(3,\)"):
        ml.trace(network, x, [1.0, 0.0, 0.0])
    with pytest.raises(DataError, match=r"y must be \(2, 2\) numbers, got shape \(2,\)"):
        ml.trace(ml.build("2-2"), x, y, loss="mse")


def test_a_trained_model_scales_the_rows_it_is_traced_with() -> None:
    model, X, y = species()
    found = ml.trace(model, X, y)
    accuracy = model.evaluate("iris")["accuracy"]
    assert accuracy > 0.9
    assert (found.prediction == y).mean() == accuracy
    assert (np.array(model.encoding.task.classes[0])[found.output.argmax(1)] == model.predict(X)).all()
    assert found.loss == ml.trace(model, "iris").loss == ml.trace(model, (X, y)).loss
    assert found.model is not None
    np.testing.assert_array_equal(found.model.output, model.outputs(X))
    np.testing.assert_array_equal(found.model.probabilities, model.predict_proba(X))


def test_an_ensemble_is_traced_by_member_next_to_its_calibrated_average() -> None:
    frame, y = people()
    model = ml.MLPClassifier(**QUICK).fit(frame, y)
    first, second = (ml.trace(model, frame, y, member=i) for i in range(2))
    assert not np.allclose(first.output, second.output)
    for i, found in enumerate((first, second)):
        member = model.to_torch(member=i).double()
        same(found.output, member(*member.encode(frame)))
        assert found.model is not None
        np.testing.assert_array_equal(found.model.probabilities, model.predict_proba(frame))
        assert (found.model.prediction == model.predict(frame)).all()
        assert f"member {i} of 2; .model has the calibrated average of 2 members" in repr(found)
        assert found.to_dict()["shows"] == found.shows
        assert (found.to_dict()["member"], found.to_dict()["members"]) == (i, 2)
    assert (first.model.prediction == y).mean() == model.score(frame, y)  # type: ignore[union-attr]
    with pytest.raises(OptionError, match="member must be from 0 to 1, got 2"):
        ml.trace(model, frame, y, member=2)


def test_gradients_of_a_trained_model_are_those_of_its_encoded_rows() -> None:
    model, X, y = species()
    member = model.to_torch(member=0).double()
    numbers = [model.encoding.task.classes[0].index(label) for label in y]
    nn.functional.cross_entropy(member(*member.encode(X)), torch.tensor(numbers)).backward()
    found = ml.trace(model, X, y)
    for name, p in member.members[0].named_parameters():
        layer, _, own = name.rpartition(".")
        same(found[layer].gradients[own], p.grad)


def test_a_regression_is_traced_with_targets_in_their_own_units() -> None:
    x, y = numbers()
    y = 1000 + 50 * y
    model = ml.MLPRegressor(**QUICK).fit(x, y)
    found = ml.trace(model, x, y, member=1)
    assert found.model is not None
    assert found.model.probabilities is None
    np.testing.assert_array_equal(found.model.prediction, model.predict(x))
    member = model.to_torch(member=1).double()
    same(found.prediction, member.predict(*member.encode(x)))
    task = model.model_.encoding.task
    np.testing.assert_allclose(found.rows, (found.output[:, 0] - (y - task.mean[0]) / task.std[0]) ** 2, rtol=1e-10)


@pytest.mark.parametrize("labels", [np.array([False, True]), np.array([3, 7]), np.array(["no", "yes"], dtype=object)])
def test_labels_are_given_as_in_training(labels: np.ndarray) -> None:
    x, y = classes(count=2)
    model = ml.MLPClassifier(**QUICK).fit(x, labels[y])
    found = ml.trace(model, x, labels[y])
    assert found.model is not None
    assert (found.model.prediction == labels[y]).mean() == model.score(x, labels[y])
    with pytest.raises(DataError, match="must be"):
        ml.trace(model, x, ["another"] * len(y))


def test_a_multilabel_model_is_traced() -> None:
    x, y = classes()
    both = np.stack([y > 0, y > 1], 1).astype(int)
    model = ml.MLPClassifier(**QUICK).fit(x, both)
    found = ml.trace(model, x, both)
    assert found.model is not None
    assert (found.model.prediction == both).all(1).mean() == model.score(x, both)


def test_targets_in_y_replace_those_in_the_table() -> None:
    frame, y = people()
    model = ml.fit(None, frame.assign(outcome=y), target="outcome", epochs=1, quiet=True).model
    other = np.roll(y.to_numpy(), 1)
    apart = ml.trace(model, frame.assign(outcome=y), other)
    assert apart.loss == ml.trace(model, frame, other).loss != ml.trace(model, frame.assign(outcome=y)).loss


def test_rows_that_do_not_fit_a_trained_model_are_errors() -> None:
    model, X, y = species()
    with pytest.raises(DataError, match="the target 'species' is missing"):
        ml.trace(model, X)
    with pytest.raises(DataError, match="must have the same number of rows, got 150 and 5"):
        ml.trace(model, X, y[:5])
    with pytest.raises(DataError, match="must have 4 columns as in training, got 3"):
        ml.trace(model, X[:, :3], y)
    with pytest.raises(SpecError, match=r"got MLPClassifier\(\): call fit first"):
        ml.trace(ml.MLPClassifier(), X, y)
    with pytest.raises(OptionError, match="it was fitted on a single class"):
        ml.trace(ml.MLPClassifier().fit(X, np.zeros(len(X))), X, y)


def test_a_notebook_shows_a_trace_as_a_table() -> None:
    found = ml.trace(ml.fit("4-5:tanh-3", "iris", epochs=1, quiet=True), "iris")
    text = found._repr_html_()
    assert text.startswith("<table><caption>Trace(150 rows, 3 layers")
    assert text.count("<tr>") == 1 + 3
    assert "<td>linear1</td><td>linear</td><td>150 × 5</td>" in text
