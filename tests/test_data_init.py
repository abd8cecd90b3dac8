"""First values that look at the data: every unit varies by 1, its kink lies among the rows, nothing is divided by 0."""

from __future__ import annotations

import numpy as np
import pytest

from multilayer.data_init import from_rows
from multilayer.layers import Columns, Inputs, Linear, Pass, named
from multilayer.spec import Spec
from multilayer.tabular.recipe import network


def recipe(numeric: int = 4, categories: tuple[int, ...] = (3, 20), outputs: int = 2) -> Spec:
    inputs = Inputs(numeric=numeric, categories=categories)
    return network(inputs, outputs, hidden=(32, 24), activation="selu", dropout=0.1)


def rows(spec: Spec, n: int = 300) -> tuple[np.ndarray, np.ndarray | None]:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(n, spec.inputs.numeric)) * 10.0 ** np.arange(spec.inputs.numeric)
    sizes = spec.inputs.categories
    return x, np.stack([generator.integers(0, k + 1, n) for k in sizes], 1) if sizes else None


def outputs_of_linear_layers(spec: Spec, values: dict, x: np.ndarray, codes: np.ndarray | None) -> list:
    """(layer, its input, its output) for each linear layer, in order."""
    a = x if codes is None else (x, codes)
    found, run = [], Pass(categories=spec.inputs.categories)
    for name, layer in named(spec.layers):
        own = {key.removeprefix(f"{name}."): v for key, v in values.items() if key.startswith(f"{name}.")}
        z, _ = layer.forward(a, own, run)
        if isinstance(layer, Linear):
            found.append((layer, a, z, own))
        a = z
    return found


@pytest.mark.parametrize("n", [40, 300, 1024])
def test_every_unit_varies_by_one_over_training_rows(n: int) -> None:
    spec = recipe()
    x, codes = rows(spec, n)
    values = from_rows(spec, x, codes, seed=3)
    layers = outputs_of_linear_layers(spec, values, x, codes)
    assert len(layers) == 3
    for _, _, z, _ in layers:
        np.testing.assert_allclose(z.std(0), 1.0, rtol=1e-9)


def test_more_rows_than_are_looked_at() -> None:
    """1,024 of 5,000 rows: a deviation estimated from n rows is off by about 1/√(2n) = 2 %; five of these are allowed,
    and the tails of the inputs' own squares double it."""
    spec = recipe(categories=())
    x, _ = rows(spec, 5000)
    values = from_rows(spec, x, None, seed=3)
    for _, _, z, _ in outputs_of_linear_layers(spec, values, x, None):
        assert np.abs(z.std(0) - 1).max() < 0.2


def test_kinks_go_through_the_data() -> None:
    """b = −s·x̃ Wᵀ with x̃ among the rows: some rows lie on each side of every unit's kink, save for the last layer."""
    spec = recipe()
    x, codes = rows(spec)
    *hidden, (_, _, _, last) = outputs_of_linear_layers(spec, from_rows(spec, x, codes, seed=0), x, codes)
    for _, _, z, _ in hidden:
        assert (z.min(0) < 0).all()
        assert (z.max(0) > 0).all()
    np.testing.assert_array_equal(last["bias"], 0)


@pytest.mark.parametrize("case", ["all rows alike", "one row", "some columns alike"])
def test_units_that_see_nothing_vary_keep_their_weights(case: str) -> None:
    spec = recipe(categories=())
    x, _ = rows(spec, 1 if case == "one row" else 50)
    if case == "all rows alike":
        x[:] = x[0]
    if case == "some columns alike":
        x[:, :3] = 0
    values = from_rows(spec, x, None, seed=0)
    for name, value in values.items():
        assert np.isfinite(value).all(), name
        assert np.abs(value).max() < 1e3, name
    if case != "some columns alike":
        drawn = from_rows(spec, x + 1, None, seed=0)["linear1.weight"]
        np.testing.assert_array_equal(values["linear1.weight"], drawn)  # N(0, 1), whatever the row


def test_a_seed_fixes_it_and_another_changes_it() -> None:
    spec = recipe()
    x, codes = rows(spec)
    one, again, other = (from_rows(spec, x, codes, seed=seed) for seed in (1, 1, 2))
    assert all(np.array_equal(one[name], again[name]) for name in one)
    assert not np.array_equal(one["linear1.weight"], other["linear1.weight"])


def test_a_network_without_hidden_layers() -> None:
    spec = Spec(3, [Columns("pbld"), Linear(2, scale="tangent")])
    x, _ = rows(spec, 60)
    ((_, _, z, own),) = outputs_of_linear_layers(spec, from_rows(spec, x, None, seed=0), x, None)
    np.testing.assert_allclose(z.std(0), 1.0, rtol=1e-9)
    np.testing.assert_array_equal(own["bias"], 0)
