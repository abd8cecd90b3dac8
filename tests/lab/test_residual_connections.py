"""A residual network with norms keeps its gradient and trains at a depth at which a plain network does neither."""

from __future__ import annotations

import numpy as np
import pytest

from multilayer.lab.experiments.residual_connections import (
    KINDS,
    PLAIN,
    RESIDUAL_NORM,
    constant_loss,
    deepest_loss,
    first_gradient,
    gradient_change,
    network,
)
from multilayer.lab.training import Network, Task
from multilayer.spec import Spec
from support.experiments import tiny


def test_depth_harms_plain_networks_only() -> None:
    rows = tiny("residual_connections").rows
    assert gradient_change(rows, PLAIN) < 1e-3
    assert 0.1 < gradient_change(rows, RESIDUAL_NORM) < 10
    assert deepest_loss(rows, PLAIN) > 0.9 > 3 * deepest_loss(rows, RESIDUAL_NORM)


def test_all_kinds_have_the_same_number_of_layers() -> None:
    for kind in KINDS:
        spec = Spec.parse(network(kind, inputs=8, width=4, depth=6, outputs=2))
        assert sum(name.endswith("weight") and "linear" in name for name in spec.parameters) == 8, kind


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_that_of_torch_in_training_mode(kind: str) -> None:
    torch = pytest.importorskip("torch")
    import multilayer as ml

    rng = np.random.default_rng(0)
    task = Task(x=rng.normal(size=(12, 8)), y=rng.integers(0, 2, 12), loss="cross_entropy")
    own = Network.initial(network(kind, inputs=8, width=4, depth=6, outputs=2), "he", seed=3)
    module = ml.build(own.spec).double().train()
    tensors = {name: torch.tensor(value) for name, value in own.tensors.items()}
    module.load_state_dict(tensors, strict=False)
    torch.nn.functional.cross_entropy(module(torch.tensor(task.x)), torch.tensor(task.y)).backward()
    exact = dict(module.named_parameters())["linear1.weight"].grad
    assert first_gradient(own, task) == pytest.approx(float(exact.norm()), rel=1e-9)


def test_the_constant_prediction_has_the_entropy_of_the_classes_as_its_loss() -> None:
    task = Task(x=np.zeros((4, 1)), y=np.array([0, 1, 1, 1]), loss="cross_entropy")
    z = np.log(np.array([0.25, 0.75]))
    assert constant_loss(task) == pytest.approx(-float(np.mean(z[task.y])))
