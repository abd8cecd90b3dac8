"""A trained model with weighted members and one calibration: all predictions use the weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import multilayer as ml
from multilayer.core import tensor_file
from multilayer.data import Encoding
from multilayer.errors import FileError, OptionError
from multilayer.export.onnx.model import encode
from multilayer.models.members import Member
from multilayer.models.model_file import to_parts
from multilayer.models.trained_model import TrainedModel
from multilayer.nn.calibration import Calibration

TASKS: dict[str, dict[str, Any]] = {
    "softmax": {"spec": "4-6:tanh-3"},
    "sigmoid": {"spec": "4-6:tanh-1", "classes": 2},
    "exp": {"spec": "4-6:tanh-1", "loss": "poisson"},
    "none": {"spec": "4-6:tanh-1", "loss": "mse"},
}


def trained(name: str) -> tuple[TrainedModel, np.ndarray]:
    given = dict(TASKS[name])
    x = np.random.default_rng(1).normal(size=(60, 4)).astype(np.float32)
    y = np.abs(np.round(10 * x[:, 0], 1)) if "loss" in given else np.arange(60) % given.pop("classes", 3)
    task = "regression" if "loss" in given else "classification"
    model = ml.fit(given.pop("spec"), (x, y), task=task, ensemble=3, epochs=4, quiet=True, **given).model
    assert model is not None
    return model, x


def weighted(model: TrainedModel, *weights: float) -> TrainedModel:
    members = tuple(replace(one, weight=weight) for one, weight in zip(model.members, weights, strict=True))
    return replace(model, members=members)


@pytest.mark.parametrize("name", TASKS)
def test_all_predictions_use_the_weights_of_the_members(name: str, tmp_path: Path) -> None:
    """A member of weight 2 is equivalent to two equal members, in numpy, torch and ONNX, and after saving."""
    import onnxruntime
    import torch

    model, x = trained(name)
    heavy = weighted(model, 2.0, 1.0, 1.0)
    twice = replace(model, members=(model.members[0], *model.members))
    assert model.weights is None
    expected = twice.outputs(x)
    assert not np.allclose(model.outputs(x), expected, rtol=1e-4)
    np.testing.assert_allclose(heavy.outputs(x), expected, rtol=1e-12, atol=1e-12)
    assert weighted(model, 3.0, 3.0, 3.0).to_bytes() == model.to_bytes()

    heavy.save(tmp_path / "model.safetensors")
    again = ml.load(tmp_path / "model.safetensors")
    assert again.weights == (2.0, 1.0, 1.0)
    np.testing.assert_array_equal(again.outputs(x), heavy.outputs(x))

    net = heavy.to_torch()
    np.testing.assert_allclose(net(*net.encode(x)).detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(*(one.to_torch(member=0)(*net.encode(x)) for one in (heavy, model)))

    heavy.to_onnx(tmp_path / "model.onnx")
    found = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(None, {"x": x.astype(np.float64)})
    answer = twice.predict_proba(x) if twice.encoding.task.classifies else twice.predict(x)
    np.testing.assert_allclose(found[-1], answer, rtol=1e-4, atol=1e-5)


def test_a_file_needs_one_positive_weight_for_each_member(tmp_path: Path) -> None:
    model, _ = trained("none")
    path = tmp_path / "model.safetensors"
    tensors, meta = to_parts(model)
    for wrong in ([1.0, 1.0], [1.0, 1.0, 0.0], [1.0, 1.0, "a"], 3):
        tensor_file.save(path, tensors, {**meta, "weights": wrong})
        with pytest.raises(FileError, match="the weights of a model must be 3 positive numbers, one for each member"):
            ml.load(path)


def test_the_page_refuses_members_of_different_weights() -> None:
    model, x = trained("none")
    with pytest.raises(OptionError, match=r"members of equal weight, got the weights \(1\.0, 2\.0, 1\.0\)"):
        ml.explore(weighted(model, 1.0, 2.0, 1.0), x)


def test_a_file_whose_only_member_is_numbered_is_refused(tmp_path: Path) -> None:
    model = ml.fit("4-3", "iris", epochs=1, quiet=True).model
    assert model is not None
    tensors, meta = to_parts(model)
    renamed = {name.replace("network/", "network/member1/"): value for name, value in tensors.items()}
    tensor_file.save(tmp_path / "model.safetensors", renamed, meta)
    with pytest.raises(FileError, match=r"linear1\.weight must have the shape \(3, 4\), got none"):
        ml.load(tmp_path / "model.safetensors")


@dataclass
class Custom:
    """Has only the attributes that exporters may read: see `export.protocol`."""

    members: tuple[Member, ...]
    encoding: Encoding
    calibration: Calibration | None
    weights: tuple[float, ...] | None = None


def test_exporters_accept_any_class_with_the_protocol() -> None:
    model, x = trained("softmax")
    custom = Custom(members=model.members, encoding=model.encoding, calibration=model.calibration)
    assert encode(custom) == encode(model)
    nets = [ml.to_torch(one) for one in (custom, model)]
    np.testing.assert_array_equal(*(net(*net.encode(x)).detach().numpy() for net in nets))
