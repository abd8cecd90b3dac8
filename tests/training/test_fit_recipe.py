"""`ml.fit` without a network, `mlp train` and the estimators train the same model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import multilayer as ml
from multilayer.cli.main import app
from multilayer.errors import OptionError
from support.run_folders import contents

G = np.random.default_rng(0)
ROWS = 120
NUMBERS = pd.DataFrame(G.normal(size=(ROWS, 3)), columns=["a", "b", "c"])
MIXED = NUMBERS.assign(
    shop=G.choice(["north", "south", "west"], ROWS),
    code=G.choice(list("abcdefghijkl"), ROWS),
    gaps=np.where(G.random(ROWS) < 0.2, np.nan, G.normal(size=ROWS)),
    open=G.random(ROWS) > 0.5,
)
MIXED.loc[G.random(ROWS) < 0.1, "shop"] = None
TABLES: dict[str, tuple[pd.DataFrame, type[Any], dict[str, Any]]] = {
    "two classes": (NUMBERS.assign(y=(NUMBERS.a > NUMBERS.b).astype(int)), ml.MLPClassifier, {}),
    "words": (
        MIXED.assign(y=np.array(["low", "mid", "high"])[np.digitize(NUMBERS.a, [-0.5, 0.5])]),
        ml.MLPClassifier,
        {"class_weight": "balanced"},
    ),
    "numbers": (MIXED.assign(y=NUMBERS.a * 30 + 7), ml.MLPRegressor, {"dropout": 0.05, "activation": "relu"}),
    "too few rows to hold out": (NUMBERS[:8].assign(y=[0, 1] * 4), ml.MLPClassifier, {}),
    "a share held out": (NUMBERS.assign(y=NUMBERS.a.gt(0)), ml.MLPClassifier, {"validation": 0.25}),
}
QUICK: dict[str, Any] = {"epochs": 2, "ensemble": 2, "hidden": (16,)}


@pytest.mark.parametrize("name", TABLES)
def test_the_same_rows_and_seed_give_the_same_model_everywhere(name: str, tmp_path: Path) -> None:
    frame, estimator, options = TABLES[name]
    frame.to_csv(tmp_path / "t.csv", index=False)
    X, y = frame.drop(columns="y"), frame["y"]
    how = {**QUICK, **options}
    words = [part for key, value in how.items() for part in (f"--{key.replace('_', '-')}", str(value).strip("(),"))]
    command = ["train", str(tmp_path / "t.csv"), "--target", "y", "--seed", "3", "--run", str(tmp_path / "run"), "-q"]
    done = CliRunner().invoke(app, [*command, *words])
    assert done.exit_code == 0, done.output
    expected = contents(ml.load(tmp_path / "run"))
    assert contents(ml.fit(None, frame, target="y", seed=3, quiet=True, **how).model) == expected
    assert contents(ml.fit(None, (X, y), seed=3, quiet=True, **how).model) == expected
    assert contents(estimator(random_state=3, **how).fit(X, y).model_) == expected
    assert contents(estimator(random_state=3, **how).fit(X.to_numpy(), y.to_numpy()).model_) == expected


def test_without_a_network_the_tabular_recipe_is_the_default() -> None:
    run = ml.fit(None, "iris", epochs=1, quiet=True)
    assert run.model is not None
    assert len(run.model.members) == 4
    assert run.model.spec == ml.MLPClassifier(epochs=1, random_state=0).fit(*bundled("iris")).spec_


def bundled(name: str) -> tuple[pd.DataFrame, np.ndarray]:
    from multilayer.data import read

    table = read(name)
    columns = {one: np.asarray(table.column(one)) for one in table.names}
    target = columns.pop(table.targets[0])
    return pd.DataFrame(columns), target


def test_the_plain_recipe_is_one_network_of_two_layers() -> None:
    run = ml.fit(None, "iris", recipe="plain", epochs=1, quiet=True)
    assert run.model is not None
    assert (len(run.model.members), str(run.model.spec)) == (1, "4-256:gelu:dropout(0.1)-128:gelu:dropout(0.1)-3")


def test_images_get_the_plain_network_by_default(tmp_path: Path) -> None:
    plain = contents(ml.fit(None, "digits", recipe="plain", epochs=1, quiet=True).model)
    assert contents(ml.fit(None, "digits", epochs=1, quiet=True).model) == plain
    done = CliRunner().invoke(app, ["train", "digits", "--epochs", "1", "--run", str(tmp_path / "run"), "-q"])
    assert done.exit_code == 0, done.output
    assert contents(ml.load(tmp_path / "run")) == plain
    with pytest.raises(OptionError, match="hidden and dropout apply to tables, got images: write the network, spec=…"):
        ml.fit(None, "digits", hidden=(8,), dropout=0.1, quiet=True)


def test_a_time_limit_is_planned_without_a_network() -> None:
    run = ml.fit(None, "iris", hidden=(16,), epochs=10**6, time_limit=2.0, quiet=True)
    assert run.events[0]["config"]["epochs"] < 10**6
    assert run.end.seconds < 2.5


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"recipe": "tabula"}, "unknown recipe 'tabula': did you mean 'tabular'"),
        ({"recipe": "plain", "hidden": (4,)}, "hidden can only be used with the tabular recipe, got recipe=plain too"),
        ({"activation": [3]}, "activation must be a name such as 'relu', or one for each layer, got"),
    ],
)
def test_invalid_recipes_and_combinations_with_a_recipe(how: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        ml.fit(None, "iris", quiet=True, **how)


def test_a_torch_module_as_the_start_is_an_error() -> None:
    with pytest.raises(
        OptionError, match=r"start must be a trained model, as ml\.fit\(…\)\.model or ml\.load\(path\), got Model"
    ):
        ml.fit("4-8-3", "iris", start=ml.build("4-8-3"), epochs=1, quiet=True)
