"""Networks fit random labels, and the construction with 2n + d weights fits any numbers."""

from __future__ import annotations

import numpy as np

from multilayer.lab.experiments.random_labels import interpolating, randomized
from support.experiments import tiny


def test_random_labels_are_fitted_later_and_predict_nothing() -> None:
    rows = tiny("random_labels").rows
    fits = rows.where(kind="fit")
    assert fits.where(share=1.0).mean("training_error") == 0
    assert fits.where(share=1.0).mean("fitted_after") > fits.where(share=0.0).mean("fitted_after")
    assert fits.where(share=1.0).mean("test_error") > 0.8 > 0.4 > fits.where(share=0.0).mean("test_error")
    bits = rows.where(kind="capacity", labels="random")
    assert bits.where(per_row=0.25).mean("training_error") > bits.where(per_row=4.0).mean("training_error")


def test_the_share_of_labels_that_change_is_the_expected_one() -> None:
    y = np.arange(4000) % 4
    changed = (randomized(y, 0.5, 4, seed=0) != y).mean()
    assert abs(changed - 0.5 * 3 / 4) < 4 * np.sqrt(0.25 / 4000)
    assert (randomized(y, 0.0, 4, seed=0) == y).all()


def test_the_construction_fits_random_numbers_with_one_unit_per_row() -> None:
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(20, 3)), generator.normal(size=20)
    network = interpolating(x, y, generator)
    np.testing.assert_allclose(network.outputs(x)[:, 0], y, atol=1e-9)
    weight = network.tensors["linear1.weight"]
    assert weight.shape == (20, 3)
    assert (weight == weight[0]).all(), "all units share one direction, so 3 + 20 + 20 weights are free"
