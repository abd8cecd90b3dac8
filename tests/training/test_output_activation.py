"""An output activation that the loss already applies is not applied twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import multilayer as ml

CORNERS, AND, XOR = [[0, 0], [0, 1], [1, 0], [1, 1]], [0, 0, 0, 1], [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("written", "trained", "y"),
    [
        (ml.neuron(2, activation="sigmoid"), "2-1", AND),
        ("2-8:tanh-1:sigmoid", "2-8:tanh-1", XOR),
        ("2-8:tanh-2:softmax", "2-8:tanh-2", XOR),
    ],
)
def test_the_output_function_of_the_loss_may_be_written_into_the_network(written: Any, trained: str, y: Any) -> None:
    """The models are equal. Two sigmoids would give every row a probability of at least 0.5."""
    models = [ml.fit(spec, (CORNERS, y), quiet=True).model for spec in (written, trained)]
    for model in models:
        assert model is not None
        assert model.predict(CORNERS).tolist() == y
        assert str(model.spec) == trained
    assert models[0] is not None
    assert models[1] is not None
    assert np.array_equal(models[0].predict_proba(CORNERS), models[1].predict_proba(CORNERS))


def test_an_output_activation_without_limits_is_trained() -> None:
    run = ml.fit("2-8:tanh-1:leaky_relu", (CORNERS, XOR), epochs=2, quiet=True)
    assert run.model is not None
    assert str(run.model.spec) == "2-8:tanh-1:leaky_relu"
