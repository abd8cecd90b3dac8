"""Constant columns and a network of the user's own: kept if the network has an input for each, otherwise dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits
from typer.testing import CliRunner

import multilayer as ml
from multilayer.cli.main import app
from multilayer.errors import DataError, SpecError
from support.onnx_sessions import feed, session_of

FAST: dict[str, Any] = {"epochs": 1, "quiet": True}
GENERATOR = np.random.default_rng(0)
X = np.insert(GENERATOR.normal(size=(60, 3)), [1, 3], 7.0, axis=1)  # columns 1 and 4 are constant
Y = (X[:, 0] > 0).astype(int)


def test_digits_of_scikit_learn_train_a_network_with_an_input_for_each_pixel(tmp_path: Path) -> None:
    images, labels = load_digits(return_X_y=True)
    run = ml.fit("64-64-10", (images, labels), run=tmp_path / "run", **FAST)
    assert run.model.spec.inputs.numeric == 64
    assert "3 constant columns kept, because the network has an input for each" in run.notes
    assert run.metrics["accuracy"] > 0.5
    path = tmp_path / "model.safetensors"
    run.model.save(path)
    np.testing.assert_array_equal(ml.load(path).predict_proba(images), run.model.predict_proba(images))
    found = run.model.to_torch(preprocessing=True).predict_proba(torch.tensor(images)).detach().numpy()
    np.testing.assert_allclose(found, run.model.predict_proba(images), atol=1e-5)


def test_a_network_without_inputs_for_constant_columns_drops_them() -> None:
    with pytest.warns(UserWarning, match="columns dropped"):
        run = ml.fit("3-4-2", (X, Y), **FAST)
    assert run.model.spec.inputs.numeric == 3


@pytest.mark.filterwarnings("ignore:columns dropped")
def test_the_recipe_drops_constant_columns() -> None:
    assert ml.fit(None, (X, Y), **FAST).model.spec.inputs.numeric == 3


@pytest.mark.parametrize("scaling", ["standard", "robust", "none"])
def test_a_kept_constant_column_does_not_influence_predictions(scaling: str, tmp_path: Path) -> None:
    run = ml.fit("5-4-2", (X, Y), scaling=scaling, **FAST)
    other = X.copy()
    other[:, [1, 4]] = [[-3.0, 1e6]]
    np.testing.assert_array_equal(run.model.predict_proba(other), run.model.predict_proba(X))
    session = session_of(run.model, tmp_path / "model.onnx")
    found = session.run(None, feed(session, other))[1]
    np.testing.assert_allclose(found, run.model.predict_proba(X), atol=1e-5)


def test_a_constant_category_has_an_input_if_the_network_takes_it() -> None:
    frame = pd.DataFrame({"a": X[:, 0], "b": ["u"] * 60, "c": [3] * 60, "y": Y})
    with pytest.warns(UserWarning, match="columns dropped"):
        assert ml.fit("1-2", frame, target="y", **FAST).model.spec.inputs.numeric == 1
    run = ml.fit("2+cat(1)-columns-4-2", frame, target="y", **FAST)
    assert run.model.spec.inputs.categories == (1,)
    assert len(run.model.predict(frame)) == 60


def test_a_run_with_kept_constant_columns_resumes_to_the_same_model(tmp_path: Path) -> None:
    whole = ml.fit("5-4-2", (X, Y), epochs=3, quiet=True, run=tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    again = ml.resume(tmp_path / "run", data=(X, Y), quiet=True)
    np.testing.assert_array_equal(again.model.predict_proba(X), whole.model.predict_proba(X))


def test_a_network_that_does_not_fit_is_told_how_many_constant_columns_were_dropped() -> None:
    message = (
        r"the data has 3 numbers after encoding, without 2 constant columns \(a network with an input for each keeps "
        r"them\), but the network takes 4 numbers: write spec='3-4-2'"
    )
    with pytest.raises(SpecError, match=message):
        ml.fit("4-4-2", (X, Y), **FAST)
    with pytest.raises(SpecError, match="the data has 5 numbers after encoding, but the network takes 4 numbers"):
        ml.fit("4-4-2", (X, Y), keep_constant="all", **FAST)


def test_a_table_of_constant_columns_only_remains_an_error() -> None:
    with pytest.raises(DataError, match="all columns were dropped"):
        ml.fit("5-2", (np.ones((60, 5)), Y), **FAST)


def test_mlp_train_keeps_constant_columns_if_the_network_has_an_input_for_each(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    pd.DataFrame(X).assign(y=Y).to_csv(path, index=False)
    arguments = ["train", str(path), "--target", "y", "--epochs", "1", "--run", str(tmp_path / "run"), "--arch"]
    fails = CliRunner().invoke(app, [*arguments, "4-2"])
    assert fails.exit_code == 2
    expected = "without 2 constant columns (a network with an input for each keeps them)"
    assert expected in " ".join(fails.output.split())
    result = CliRunner().invoke(app, [*arguments, "5-2"])
    assert result.exit_code == 0, result.output
    assert "2 constant columns kept" in result.output
    predicted = CliRunner().invoke(app, ["predict", str(tmp_path / "run"), str(path)])
    assert predicted.exit_code == 0, predicted.output
