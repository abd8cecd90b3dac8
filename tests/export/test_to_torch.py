"""Trained models as torch modules: outputs, probabilities and predictions equal `TrainedModel`, for every task.

Tolerances: in float32 both sides round sums of at most 64 terms in different orders, which stays below 1e-5 of the
largest output. In float64 the module is compared with the numpy layers on the same rows. 1e-10 is five digits above
the rounding error.
"""

from __future__ import annotations

import copy
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import multilayer as ml
from multilayer import MLPClassifier, MLPRegressor
from multilayer.errors import DataError, OptionError, SpecError
from multilayer.export.torch_module import TrainedNetwork
from multilayer.models.trained_model import TrainedModel
from multilayer.nn.calibration import Calibration
from support.models import with_tensors
from support.quick_estimators import QUICK, classes, numbers, people

pytestmark = pytest.mark.filterwarnings("ignore:columns dropped")


def regression(loss: str | None = None, targets: int = 1) -> tuple[Any, Any]:
    x, y = numbers()
    y = 1000 + 50 * y if loss != "poisson" else np.exp(y).round()
    y = y if targets == 1 else np.stack([y, 3 * y**2], 1)
    return MLPRegressor(**QUICK, loss=loss).fit(x, y), x


def labels() -> tuple[Any, Any]:
    x, y = classes()
    return MLPClassifier(**QUICK).fit(x, np.stack([y > 0, y > 1], 1).astype(int)), x


def strings() -> tuple[Any, Any]:
    frame, y = people()
    return MLPClassifier(**QUICK).fit(frame, y), frame


def three() -> tuple[Any, Any]:
    x, y = classes()
    return MLPClassifier(**QUICK).fit(x, y), x


def scores(loss: str, count: int) -> tuple[Any, Any]:
    x, y = classes(count=count)
    outputs = 1 if count == 2 else count
    return ml.fit(f"4-8-{outputs}", (x, y), loss=loss, task="classification", epochs=2, quiet=True).model, x


MODELS: dict[str, Any] = {
    "binary, table of strings and dates": strings,
    "multiclass": three,
    "multilabel": labels,
    "regression": regression,
    "multioutput": lambda: regression(targets=2),
    "quantiles": lambda: regression("quantile(0.1, 0.5, 0.9)"),
    "counts": lambda: regression("poisson"),
    "classes by squared error": lambda: scores("mse", 3),
    "two classes by squared error": lambda: scores("mse", 2),
    "classes by sigmoid": lambda: scores("binary_cross_entropy", 3),
}


@pytest.fixture(scope="module", params=MODELS)
def fitted(request: pytest.FixtureRequest) -> tuple[TrainedModel, Any]:
    model, rows = MODELS[request.param]()
    return getattr(model, "model_", model), rows


def variants(model: TrainedModel) -> list[TrainedModel]:
    """Return an ensemble and a single network, each with and without calibration."""
    one = replace(model, members=model.members[:1])
    calibration = replace(model.calibration or Calibration(), temperature=1.7)
    return [replace(base, calibration=c) for base in (model, one) for c in (calibration, None)]


def close(found: torch.Tensor, expected: Any, tolerance: float) -> None:
    values = found.detach().numpy()
    assert values.shape == np.shape(expected)
    assert np.abs(values - expected).max() <= tolerance * max(1.0, np.abs(expected).max())


def in_float64(model: TrainedModel, rows: Any) -> np.ndarray:
    """Compute outputs with the numpy layers in float64, on rows encoded in float64."""
    double = with_tensors(model, lambda _, value: value.astype(np.float64))
    return double.forward_in_numpy(model.encoding.encode(rows, dtype=np.float64))


@pytest.mark.parametrize("preprocessing", [False, True])
def test_a_trained_model_becomes_a_module_with_the_same_outputs(fitted: Any, preprocessing: bool) -> None:
    trained, rows = fitted
    for model in variants(trained):
        net = model.to_torch(preprocessing=preprocessing)
        inputs = net.encode(rows)
        close(net(*inputs), model.outputs(rows), 1e-5)
        net = net.double()
        z = in_float64(model, rows)
        close(net(*net.encode(rows)), z, 1e-10)
        predicted = model.encoding.decode(z)
        if model.encoding.task.classifies:
            close(net.predict_proba(*net.encode(rows)), model.encoding.probabilities(z), 1e-10)
            number = net.predict(*net.encode(rows)).numpy()
            if model.encoding.task.kind == "multilabel":
                assert (number == predicted).all()
            else:
                assert (np.array(net.classes)[number] == predicted).all()
        else:
            close(net.predict(*net.encode(rows)), predicted, 1e-10)
            with pytest.raises(DataError, match="has no probabilities: call predict"):
                net.predict_proba(*net.encode(rows))


def test_one_member_is_the_network_without_calibration(fitted: Any) -> None:
    model, rows = fitted
    for i in range(len(model.members)):
        net = model.to_torch(member=i).double()
        alone = replace(model, members=model.members[i : i + 1], calibration=None)
        close(net(*net.encode(rows)), in_float64(alone, rows), 1e-10)
        assert f"member {i} of {len(model.members)}" in repr(net)
    n = len(model.members)
    with pytest.raises(OptionError, match=f"member must be from 0 to {n - 1}, got {n}"):
        model.to_torch(member=n)


@pytest.mark.parametrize("scaling", ["standard", "robust", "none"])
def test_preprocessing_scales_raw_numbers_as_the_encoding_does(scaling: str) -> None:
    x, y = classes()
    x[::5, 1], x[:, 2] = np.nan, 7.0  # missing values, and a column that is dropped
    model = ml.fit("4-8-3", (x, y), task="classification", scaling=scaling, epochs=1, quiet=True).model
    assert model is not None
    net = model.to_torch(preprocessing=True).double()
    far = x.copy()
    far[0, 0], far[1, 3] = 1e30, np.nan
    expected = model.encoding.encode(far, dtype=np.float64)
    np.testing.assert_allclose(net.preprocessing(torch.tensor(far)).numpy(), expected.x, rtol=1e-12, atol=1e-12)
    assert net.columns == ("x0", "x1", "x2", "x3")
    with pytest.raises(DataError, match=r"x must have 4 numbers per row, got shape \(2, 3\)"):
        net(torch.zeros(2, 3))


def test_a_run_an_estimator_and_a_loaded_model_give_the_same_module(tmp_path: Path) -> None:
    run = ml.fit("4-6-3", "iris", epochs=1, quiet=True)
    assert run.model is not None
    run.model.save(tmp_path / "model.safetensors")
    first = ml.to_torch(run).state_dict()
    for other in (run.model, ml.load(tmp_path / "model.safetensors"), MLPClassifier.load(tmp_path)):
        state = ml.to_torch(other).state_dict()
        assert state.keys() == first.keys()
        assert all(torch.equal(value, first[name]) for name, value in state.items())


def test_the_module_trains_and_leaves_the_model_unchanged() -> None:
    estimator, x = three()
    y = torch.tensor(estimator.predict(x))
    before = estimator.model_.outputs(x)
    net = estimator.to_torch()
    assert not net.training
    inputs = net.encode(x)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    losses = []
    for _ in range(5):
        loss = nn.functional.cross_entropy(net.train()(*inputs), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(nn.functional.cross_entropy(net.eval()(*inputs), y).item())
    assert all(p.grad is not None for p in net.parameters())
    assert losses[-1] < losses[0]
    np.testing.assert_array_equal(estimator.model_.outputs(x), before)


def test_the_module_is_copied_saved_and_exported() -> None:
    estimator, frame = strings()
    net = estimator.to_torch(preprocessing=True)
    inputs = net.encode(frame)
    z = net(*inputs)
    assert torch.equal(copy.deepcopy(net)(*inputs), z)
    stored = io.BytesIO()
    torch.save(net.state_dict(), stored)
    stored.seek(0)
    other = estimator.to_torch(preprocessing=True)
    nn.init.zeros_(next(other.parameters()))
    other.load_state_dict(torch.load(stored, weights_only=True))
    assert torch.equal(other(*inputs), z)
    exported = torch.export.export(net, inputs).module()
    torch.testing.assert_close(exported(*inputs), z, rtol=0, atol=1e-6)


def test_the_repr_of_a_module_describes_its_inputs_and_outputs() -> None:
    estimator, _ = strings()
    net = estimator.to_torch()
    assert "calibrated average of 2 members; scaled numbers in, logits out" in repr(net)
    assert net.category_columns == ("city", "plan", "active")
    assert net.classes == ("left", "stayed")
    model, _ = regression()
    assert "y, standardized; predict() returns the original units" in repr(model.to_torch())


def test_to_torch_of_objects_without_trained_weights_is_an_error() -> None:
    with pytest.raises(OptionError, match=r"a trained model is needed .* got MLPClassifier\(\): call fit first"):
        ml.to_torch(MLPClassifier())
    with pytest.raises(OptionError, match="has no network: it was fitted on a single class"):
        ml.to_torch(MLPClassifier().fit(np.zeros((5, 1)), ["a"] * 5))
    with pytest.raises(SpecError, match=r"got a torch module \(Linear\)"):
        ml.to_torch(nn.Linear(2, 1))
    with pytest.raises(OptionError, match=r"options for trained models, got a network from ml\.build"):
        ml.to_torch(ml.build("2-1"), member=0)
    assert isinstance(ml.to_torch(ml.build("2-1")), nn.Sequential)


# `build` and `cost`


def test_build_of_a_trained_model_is_an_error_that_names_to_torch() -> None:
    run = ml.fit("4-6-3", "iris", epochs=1, quiet=True)
    estimator, _ = three()
    for trained in (run, run.model, estimator):
        with pytest.raises(SpecError, match=r"ml\.to_torch\(model\) converts a trained model to a torch module"):
            ml.build(trained)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match=r"got a Linear: ml\.from_torch\(module\) reads an nn\.Sequential"):
        ml.build(nn.Linear(2, 1))  # type: ignore[arg-type]
    with pytest.raises(SpecError, match=r"it is built already; ml\.build\(model\.spec\)"):
        ml.build(ml.build("2-1"))  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="needs a Spec or a string such as '784-256-10', got 3"):
        ml.build(3)  # type: ignore[arg-type]
    assert isinstance(run.model and run.model.to_torch(), TrainedNetwork)


def test_cost_of_a_torch_module_is_an_error_that_names_from_torch() -> None:
    module = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))
    with pytest.raises(SpecError, match=r"got a torch module \(Sequential\): ml\.from_torch\(module\) reads"):
        ml.cost(module)  # type: ignore[arg-type]
    assert ml.cost(ml.from_torch(module)).step == ml.cost("4-3-1").step


def test_cost_of_a_trained_model_is_that_of_one_member() -> None:
    estimator, _ = three()
    assert ml.cost(estimator).step == ml.cost(estimator.model_).step == ml.cost(estimator.spec_).step
    run = ml.fit("4-6-3", "iris", epochs=1, quiet=True)
    with pytest.raises(SpecError, match=r"pass its \.model"):
        ml.cost(run)  # type: ignore[arg-type]


def test_encode_warns_of_values_that_training_did_not_see() -> None:
    estimator, frame = strings()
    net = estimator.to_torch()
    other = frame.assign(city="Paris")
    with pytest.warns(UserWarning, match="training did not see"):
        _, codes = net.encode(other)
    assert (codes[:, net.category_columns.index("city")] == 0).all()
