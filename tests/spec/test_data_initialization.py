"""Data-dependent initialization: unit outputs have standard deviation 1, kinks lie among the rows, values are
finite."""

from __future__ import annotations

import numpy as np
import pytest

from multilayer import MLPRegressor
from multilayer.nn.layers import Columns, Inputs, Linear, Pass, named
from multilayer.spec import Spec
from multilayer.spec.initialization import TURNS_BETWEEN_VALUES, from_rows, initialise
from multilayer.training import recipe as recipe_file
from multilayer.training.recipe import network


def recipe(numeric: int = 4, categories: tuple[int, ...] = (3, 20), outputs: int = 2) -> Spec:
    inputs = Inputs(numeric=numeric, categories=categories)
    return network(inputs, outputs, hidden=(32, 24), activation="selu", dropout=0.1)


def rows(spec: Spec, n: int = 300) -> tuple[np.ndarray, np.ndarray | None]:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(n, spec.inputs.numeric)) * 10.0 ** np.arange(spec.inputs.numeric)
    sizes = spec.inputs.categories
    return x, np.stack([generator.integers(0, k + 1, n) for k in sizes], 1) if sizes else None


def outputs_of_linear_layers(spec: Spec, values: dict, x: np.ndarray, codes: np.ndarray | None) -> list:
    """Return (layer, input, output, parameters) of each linear layer, in order."""
    a = x if codes is None else (x, codes)
    found, run = [], Pass(categories=spec.inputs.categories)
    for name, layer in named(spec.layers):
        values_of_layer = {key.removeprefix(f"{name}."): v for key, v in values.items() if key.startswith(f"{name}.")}
        z, _ = layer.forward(a, values_of_layer, run)
        if isinstance(layer, Linear):
            found.append((layer, a, z, values_of_layer))
        a = z
    return found


@pytest.mark.parametrize("n", [40, 300, 1024])
def test_every_unit_has_standard_deviation_1_over_the_training_rows(n: int) -> None:
    spec = recipe()
    x, codes = rows(spec, n)
    values = from_rows(spec, x, codes, seed=3)
    layers = outputs_of_linear_layers(spec, values, x, codes)
    assert len(layers) == 3
    for _, _, z, _ in layers:
        np.testing.assert_allclose(z.std(0), 1.0, rtol=1e-9)


def test_initialisation_from_a_subsample_of_the_rows() -> None:
    """The initialization uses 1,024 of the 5,000 rows.

    The relative error of a standard deviation estimated from n rows is about 1/√(2n) = 2 %. Five times this is allowed,
    doubled for the heavy tails of the squared inputs.
    """
    spec = recipe(categories=())
    x, _ = rows(spec, 5000)
    values = from_rows(spec, x, None, seed=3)
    for _, _, z, _ in outputs_of_linear_layers(spec, values, x, None):
        assert np.abs(z.std(0) - 1).max() < 0.2


def test_kinks_go_through_the_data() -> None:
    """The bias is b = −s·x̃ Wᵀ for a row x̃, so the rows lie on both sides of each kink. The last layer has bias 0."""
    spec = recipe()
    x, codes = rows(spec)
    *hidden, (_, _, _, last) = outputs_of_linear_layers(spec, from_rows(spec, x, codes, seed=0), x, codes)
    for _, _, z, _ in hidden:
        assert (z.min(0) < 0).all()
        assert (z.max(0) > 0).all()
    np.testing.assert_array_equal(last["bias"], 0)


@pytest.mark.parametrize("case", ["equal rows", "one row", "constant columns"])
def test_units_with_constant_inputs_keep_their_weights(case: str) -> None:
    spec = recipe(categories=())
    x, _ = rows(spec, 1 if case == "one row" else 50)
    if case == "equal rows":
        x[:] = x[0]
    if case == "constant columns":
        x[:, :3] = 0
    values = from_rows(spec, x, None, seed=0)
    for name, value in values.items():
        assert np.isfinite(value).all(), name
        assert np.abs(value).max() < 1e3, name
    if case != "constant columns":
        drawn = from_rows(spec, x + 1, None, seed=0)["linear1.weight"]
        np.testing.assert_array_equal(values["linear1.weight"], drawn)  # N(0, 1), independent of the row


def test_the_values_depend_on_the_seed() -> None:
    spec = recipe()
    x, codes = rows(spec)
    one, again, other = (from_rows(spec, x, codes, seed=seed) for seed in (1, 1, 2))
    assert all(np.array_equal(one[name], again[name]) for name in one)
    assert not np.array_equal(one["linear1.weight"], other["linear1.weight"])


def test_a_network_without_hidden_layers() -> None:
    spec = Spec(3, [Columns("pbld"), Linear(2, scale="tangent")])
    x, _ = rows(spec, 60)
    ((_, _, z, values_of_layer),) = outputs_of_linear_layers(spec, from_rows(spec, x, None, seed=0), x, None)
    np.testing.assert_allclose(z.std(0), 1.0, rtol=1e-9)
    np.testing.assert_array_equal(values_of_layer["bias"], 0)


def test_frequencies_separate_columns_with_few_values() -> None:
    """The frequencies are raised for a column of 12 values with at least 25 rows each.

    They are not raised for a continuous column, for a column of two values, or if the values are rare.
    """
    spec = recipe(numeric=4, categories=())
    generator = np.random.default_rng(0)
    n = 500
    x = np.stack(
        [
            generator.integers(0, 12, n) / 6,
            generator.normal(size=n),
            generator.integers(0, 2, n) * 1.0,
            generator.integers(0, 40, n) / 6,
        ],
        axis=1,
    )
    plain, found = (initialise(spec, "normal(1)", seed=3), from_rows(spec, x, None, seed=3))
    name = next(name for name in found if name.endswith("frequency"))
    ratio = found[name] / plain[name]
    np.testing.assert_allclose(ratio[0, ::2], TURNS_BETWEEN_VALUES / (recipe_file.FREQUENCIES / 6))
    assert (ratio[0, 1::2] == 1).all()
    assert (ratio[1:] == 1).all()
    few = from_rows(spec, x[:300], None, seed=3)  # only 25 rows of each value
    assert (few[name] == plain[name]).all()


def test_numeric_codes_are_learned_as_well_as_categories() -> None:
    """Each of the 12 values of the 4 columns has an independent effect, and R² is as high as with categories."""
    generator = np.random.default_rng(1)
    codes, effects = generator.integers(0, 12, (1500, 4)), generator.normal(size=(4, 12))
    y = effects[np.arange(4), codes].sum(1) + 0.3 * generator.normal(size=1500)
    options = {"hidden": (64, 64), "ensemble": 1, "epochs": 32, "random_state": 0}
    model = MLPRegressor(**options).fit(codes[:1000], y[:1000])
    assert model.score(codes[1000:], y[1000:]) > 0.85
