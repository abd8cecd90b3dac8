"""An output activation that the loss applies itself is not applied twice. One that limits the outputs is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import multilayer as ml
from multilayer.cli.main import app
from multilayer.errors import SpecError

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
    """The models are equal. With two sigmoids, every row had a probability of at least 0.5."""
    models = [ml.fit(spec, (CORNERS, y), quiet=True).model for spec in (written, trained)]
    for model in models:
        assert model is not None
        assert model.predict(CORNERS).tolist() == y
        assert str(model.spec) == trained
    assert models[0] is not None
    assert models[1] is not None
    assert np.array_equal(models[0].predict_proba(CORNERS), models[1].predict_proba(CORNERS))


@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid", "gelu", "softmax"])
def test_an_output_activation_that_limits_the_outputs_is_refused(activation: str) -> None:
    numbers = np.linspace(-2, 2, 40)
    with pytest.raises(SpecError, match=rf"mse must be able to take any value.*{activation}.*write spec='1-4-1'"):
        ml.fit(f"1-4-1:{activation}", (numbers[:, None], numbers), quiet=True)
    if activation != "softmax":
        with pytest.raises(SpecError, match=r"cross_entropy must be able to take any value.*write spec='4-8-3'"):
            ml.fit(f"4-8-3:{activation}", "iris", quiet=True)


def test_an_output_activation_without_limits_is_trained() -> None:
    run = ml.fit("2-8:tanh-1:leaky_relu", (CORNERS, XOR), epochs=2, quiet=True)
    assert run.model is not None
    assert str(run.model.spec) == "2-8:tanh-1:leaky_relu"


def test_the_command_line_shows_the_network_to_write(tmp_path: Path) -> None:
    arguments = ["train", "iris", "--arch", "4-8-3:relu", "--run", str(tmp_path / "run")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "write --arch '4-8-3'" in result.stderr
    assert not (tmp_path / "run").exists()
