"""Training that goes on: pieces of which some lack classes, models from files, and warm starts on other tables."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import multilayer as ml
from multilayer import MLPClassifier, MLPRegressor
from multilayer.errors import OptionError
from multilayer.training.session import Session
from quick import QUICK, classes, numbers, people

# Pieces


@pytest.mark.parametrize("count", [2, 3])
def test_the_first_piece_may_hold_one_class(count: int) -> None:
    x, y = classes(120, count=count)
    model = MLPClassifier(**QUICK)
    for _ in range(20):
        for c in range(count):
            model.partial_fit(x[y == c], y[y == c], classes=range(count))
    assert model.predict_proba(x).shape == (120, count)
    mixed = MLPClassifier(**QUICK).partial_fit(x, y, classes=range(count))
    assert model.spec_ == mixed.spec_


def test_a_row_at_a_time() -> None:
    """One row has no scale: columns stay in their own units, and none is dropped."""
    x, y = numbers(120)
    model = MLPRegressor(**QUICK)
    labels = MLPClassifier(**QUICK)
    for i in range(120):
        model.partial_fit(x[i : i + 1], y[i : i + 1])
        labels.partial_fit(x[i : i + 1], y[i : i + 1] > 0, classes=[False, True])
    assert model.spec_.inputs.numeric == labels.spec_.inputs.numeric == 4
    assert model.n_iter_ == 120
    assert labels.score(x, y > 0) > 0.6
    frame, left = people(60)
    one = MLPClassifier(**QUICK).partial_fit(frame[1:2], left[1:2], classes=["left", "stayed"])
    assert len(one.partial_fit(frame[1:2], left[1:2]).predict(frame[1:2])) == 1
    assert str(one.spec_).startswith("4+cat(1, 1, 1)-")  # the date by its day alone, the constant too


@pytest.mark.parametrize("loss", ["binary_cross_entropy", "cross_entropy", "mse"])
def test_every_loss_of_classes_goes_on(loss: str) -> None:
    x, y = classes(120, count=2)
    model = MLPClassifier(**QUICK, loss=loss)
    for _ in range(20):
        model.partial_fit(x, y)
    assert model.score(x, y) > 0.8


def test_history_of_pieces() -> None:
    x, y = numbers(200)
    model = MLPRegressor(**QUICK)
    for _ in range(12):
        model.partial_fit(x, y)
    found = model.history_["loss"]
    assert len(found) == model.n_iter_ == 12
    assert np.mean(found[-3:]) < 0.7 * np.mean(found[:3])
    assert model.config_["validation"] is None
    again = pickle.loads(pickle.dumps(model)).partial_fit(x, y)
    assert again.history_["loss"][:12] == found


def test_pieces_with_other_classes_are_refused() -> None:
    x, y = classes(120, count=2)
    for model in (MLPClassifier(**QUICK).partial_fit(x, y, classes=[1, 0]), MLPClassifier(**QUICK).fit(x, y)):
        model.partial_fit(x, y, classes=[0, 1])
        with pytest.raises(OptionError, match=r"classes must be those of the first call, \[0, 1\], got \[0, 1, 2\]"):
            model.partial_fit(x, y, classes=[0, 1, 2])
        with pytest.raises(OptionError, match=r"y: classes are \[0, 1\], got 7 in row 3: all classes are those of"):
            model.partial_fit(x[:3], [0, 1, 7])
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        MLPClassifier(**QUICK).partial_fit(x, x[:, 0])
    with pytest.raises(ValueError, match="Input y contains NaN"):
        MLPClassifier(**QUICK).partial_fit(x, np.where(y == 0, np.nan, y))


@pytest.mark.parametrize("kind", ["numbers", "objects"])
def test_pieces_without_names_have_none(kind: str, tmp_path: Path) -> None:
    x, y = numbers(60)
    table: Any = pd.DataFrame(x)
    if kind == "objects":
        table = np.array([["a", 1.0, 0.5], ["b", 2.0, None]] * 30, dtype=object)
    model = MLPRegressor(**QUICK).partial_fit(table, y)
    assert not hasattr(model.partial_fit(table, y), "feature_names_in_")
    model.save(tmp_path / "m.safetensors")
    again = MLPRegressor.load(tmp_path / "m.safetensors")
    assert not hasattr(again, "feature_names_in_")
    np.testing.assert_array_equal(again.predict(table), model.predict(table))


def test_a_piece_after_fit_does_not_undo_it() -> None:
    """The rows of fit once more leave it as good as it was, with the recipe's own widths; another relation is learned
    all the same."""
    generator = np.random.default_rng(1)
    x = generator.normal(size=(120, 3))
    y = x[:, 0] + 0.1 * generator.normal(size=120)
    model = MLPRegressor(ensemble=2, epochs=60, random_state=0).fit(x, y)
    score = model.score(x, y)
    assert score > 0.9
    for _ in range(3):
        assert model.partial_fit(x, y).score(x, y) > score - 0.05
    other = y + x[:, 1]
    before = model.score(x, other)
    for _ in range(40):
        model.partial_fit(x, other)
    assert 1 - model.score(x, other) < 0.5 * (1 - before)


# Models from files


@pytest.mark.parametrize("kind", ["classes", "labels", "numbers"])
def test_a_loaded_model_goes_on(kind: str, tmp_path: Path) -> None:
    """From the parameters of the file, with the classes' own names: not anew, and not elsewhere."""
    x, y = numbers(200)
    estimator: Any = MLPRegressor if kind == "numbers" else MLPClassifier
    target: Any = {"numbers": y, "classes": np.where(y > 0, "up", "down"), "labels": (x > 0).astype(int)}[kind]
    model = estimator(**{**QUICK, "epochs": 60}).fit(x, target)
    model.save(tmp_path / "m.safetensors")
    again = estimator.load(tmp_path / "m.safetensors")
    score = again.score(x, target)
    again.set_params(random_state=0, learning_rate=1e-6).partial_fit(x, target)
    assert again.spec_ == model.spec_
    assert again.model_.members == 2
    assert again.n_iter_ == 1
    assert again.score(x, target) > score - 0.1
    if kind == "numbers":
        np.testing.assert_allclose(again.predict(x), model.predict(x), atol=0.1)
    else:
        assert list(again.classes_) == list(model.classes_)
    for _ in range(3):
        again.partial_fit(x, target)
    assert again.n_iter_ == 4


def test_labels_of_texts_go_on_from_a_file(tmp_path: Path) -> None:
    """`ml.fit` has labels of any two values; an estimator has 0 and 1 for them."""
    x, _ = numbers(80)
    frame = pd.DataFrame(x, columns=list("abcd")).assign(p=np.where(x[:, 0] > 0, "yes", "no"), q=x[:, 1] > 0)
    trained = ml.fit("4-8:relu-2", frame, target=["p", "q"], epochs=1, run=tmp_path / "run", quiet=True)
    assert trained.model is not None
    model = MLPClassifier.load(tmp_path / "run" / "model.safetensors")
    labels = (x[:, :2] > 0).astype(int)
    assert model.partial_fit(frame[list("abcd")], labels).predict(frame[list("abcd")]).shape == (80, 2)


def test_options_that_a_loaded_model_cannot_have(tmp_path: Path) -> None:
    x, y = numbers(60)
    MLPRegressor(**QUICK).fit(x, y).save(tmp_path / "m.safetensors")
    for name, value, had in (("ensemble", 3, "2"), ("loss", "mae", "'mse'")):
        model = MLPRegressor.load(tmp_path / "m.safetensors").set_params(**{name: value})
        with pytest.raises(
            OptionError, match=f"goes on with the model that is there, {name}={had}, got {name}={value!r}"
        ):
            model.partial_fit(x, y)


# Warm starts


def test_a_warm_start_needs_the_same_classes() -> None:
    x, y = classes(120, count=2)
    model = MLPClassifier(**QUICK, warm_start=True).fit(x, y)
    with pytest.raises(OptionError, match=r"warm_start goes on with the classes \[0, 1\], got \['u', 'v'\]: fit with"):
        model.fit(x, np.array(["u", "v"])[y])
    assert list(model.classes_) == [0, 1]
    assert set(model.predict(x)) <= {0, 1}


def test_a_warm_start_needs_the_same_columns_and_values() -> None:
    x, y = numbers(120)
    frame = pd.DataFrame(x, columns=list("abcd")).assign(z=["p", "q"] * 60)
    first = MLPRegressor(**QUICK, warm_start=True).fit(frame, y)
    losses = first.history_["loss"]
    assert first.fit(frame, y).history_["loss"][0] < losses[0]
    for other, fault in (
        (frame[["b", "a", "c", "d", "z"]], r"the columns 'a', 'b', 'c', 'd', 'z', got 'b', 'a', 'c', 'd', 'z'"),
        (frame.assign(z=["r", "s"] * 60), r"the values \['p', 'q'\] of 'z', got \['r', 's'\]"),
    ):
        with pytest.raises(OptionError, match=f"begin with a model of {fault}: begin anew, without it"):
            MLPRegressor(**QUICK, warm_start=True).fit(frame, y).fit(other, y)


@pytest.mark.parametrize("count", [2, 3])
def test_a_warm_start_after_pieces(count: int) -> None:
    x, y = classes(120, count=count)
    model = MLPClassifier(**QUICK, warm_start=True).partial_fit(x, y)
    with pytest.warns(UserWarning, match="rows held out are not known to be those of the fit before"):
        model.fit(x, y)
    assert model.predict_proba(x).shape == (120, count)


def test_a_warm_start_holds_out_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that held out others would be judged by rows they have trained on: noise would be taken for certain."""
    x, y = numbers(100)
    parts: list[tuple[Any, ...]] = []
    make = Session.make

    def noted(spec: Any, prepared: Any, config: Any, *, began: Any = None) -> Session:
        parts.append(tuple(part.tobytes() for part in prepared.folds))
        return make(spec, prepared, config, began=began)

    monkeypatch.setattr(Session, "make", staticmethod(noted))
    model = MLPRegressor(**{**QUICK, "random_state": None}, warm_start=True).fit(x, y)
    seed = model.config_["seed"]
    model.fit(x, y)
    model.set_params(random_state=seed + 1).fit(x, y)
    assert len(parts) == 3
    assert len(parts[0]) == 2
    assert parts[0] == parts[1] == parts[2]
    with pytest.warns(UserWarning, match="give X_val and y_val"):
        model.fit(x[:90], y[:90])
    model.fit(x, y, X_val=x[:20], y_val=y[:20])  # rows of one's own: whether they are new is for their owner to know
    assert model.config_["seed"] == seed
    anew = model.set_params(warm_start=False).fit(x, y)
    assert anew.config_["seed"] == seed + 1
