"""Deeper layers are more selective for classes, and the measurements are what they should be."""

from __future__ import annotations

import numpy as np
import pytest

from multilayer.lab.experiments.layer_features import extent, preferred, selectivity, smoothness, value
from multilayer.lab.training import Network
from support.experiments import tiny


def test_training_makes_the_last_layer_selective_for_classes() -> None:
    result = tiny("layer_features")
    rows = result.rows
    assert value(rows, "selectivity", -1) > value(rows, "selectivity", -1, "untrained") + 0.1
    assert value(rows, "selectivity", -1) > value(rows, "selectivity", 1)
    assert value(rows, "smoothness", 1) > value(rows, "smoothness", 1, "untrained") + 0.1
    assert value(rows, "probe", -1) > 0.8
    pixels = rows.having(lambda row: "pixels" in row)[0]["pixels"].split()
    assert max(abs(float(pixel)) for pixel in pixels) == 1
    assert "smoothness" in result.summary


def test_selectivity_is_the_share_of_variance_between_classes() -> None:
    y = np.array([0, 0, 1, 1])
    exact, none, half = np.array([1.0, 1, 5, 5]), np.array([1.0, 2, 1, 2]), np.array([0.0, 2, 2, 4])
    assert selectivity(exact[:, None], y) == 1
    assert selectivity(none[:, None], y) == 0
    assert selectivity(half[:, None], y) == pytest.approx(0.5)
    dead = np.zeros(4)
    assert selectivity(np.column_stack([exact, none, dead]), y) == pytest.approx(0.5)
    assert selectivity(dead[:, None], y) == 0


def test_the_preferred_image_of_a_linear_unit_is_its_weights_times_the_scale() -> None:
    network = Network.initial("9-4:relu-3:relu-2", seed=2)
    scale = np.linspace(0, 2, 9)
    expected = network.tensors["linear1.weight"] * scale
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(preferred(network, 1, scale, 60, 0), expected, atol=1e-8)


def test_no_random_image_excites_a_unit_of_the_second_layer_more() -> None:
    network = Network.initial("9-16:relu-6:relu-2", seed=2)
    scale = np.linspace(0.5, 2, 9)

    def excited(u: np.ndarray) -> np.ndarray:
        return network.values(3 * u * scale)[0]["linear2"].y

    rng = np.random.default_rng(0)
    others = rng.normal(size=(5000, 9))
    others /= np.linalg.norm(others, axis=1, keepdims=True)
    found = np.max([np.diag(excited(preferred(network, 2, scale, 200, seed))) for seed in range(5)], axis=0)
    assert (found >= excited(others).max(axis=0)).all()


def test_smoothness_and_extent_of_known_images() -> None:
    even, one, checked = np.ones((1, 36)), np.zeros((1, 36)), np.indices((6, 6)).sum(0).reshape(1, -1) % 2 * 2.0 - 1
    one[0, 7] = 1
    assert smoothness(even, (6, 6)) == pytest.approx(1)
    assert smoothness(checked, (6, 6)) == pytest.approx(-1)
    assert extent(even, (6, 6)) == extent(checked, (6, 6)) == pytest.approx(1)
    assert extent(one, (6, 6)) == 0
    noise = np.random.default_rng(0).normal(size=(500, 64))
    assert smoothness(noise, (8, 8)) == pytest.approx(0, abs=0.02)
    assert extent(noise, (8, 8)) == pytest.approx(0.98, abs=0.03)
