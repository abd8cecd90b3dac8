"""Continued training: batches without rows of some classes, models from files, and warm starts on other tables."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

import multilayer as ml
from multilayer import MLPClassifier, MLPRegressor
from multilayer.data import read
from multilayer.errors import DataError, OptionError
from multilayer.training.setup import Setup
from support.quick_estimators import QUICK, classes, numbers, people

# Batches


@pytest.mark.parametrize("count", [2, 3])
def test_the_first_batch_may_have_one_class(count: int) -> None:
    x, y = classes(120, count=count)
    model = MLPClassifier(**QUICK)
    for _ in range(20):
        for c in range(count):
            model.partial_fit(x[y == c], y[y == c], classes=range(count))
    assert model.predict_proba(x).shape == (120, count)
    mixed = MLPClassifier(**QUICK).partial_fit(x, y, classes=range(count))
    assert model.spec_ == mixed.spec_


def test_a_model_of_images_continues_from_its_file(tmp_path: Path) -> None:
    table = read("digits")
    frame = pd.DataFrame({name: table.column(name).to_numpy() for name in table.names})
    model = ml.fit("64-16-10", "digits", epochs=5, quiet=True).model
    assert model is not None
    model.save(tmp_path / "digits.safetensors")
    loaded = MLPClassifier.load(tmp_path / "digits.safetensors")
    x, y = frame.drop(columns="digit"), frame["digit"]
    before = loaded.score(x, y)
    assert loaded.partial_fit(x, y).score(x, y) > before - 0.01


def test_single_rows() -> None:
    """Columns of a single row are not standardized, and no column is dropped."""
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
    assert str(one.spec_).startswith("4+cat(1, 1, 1)-")  # a date has one input, its day; the constant column is kept


@pytest.mark.parametrize("loss", ["binary_cross_entropy", "cross_entropy", "mse"])
def test_all_classification_losses_continue(loss: str) -> None:
    x, y = classes(120, count=2)
    model = MLPClassifier(**QUICK, loss=loss)
    for _ in range(20):
        model.partial_fit(x, y)
    assert model.score(x, y) > 0.8


def test_history_of_batches() -> None:
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


def test_batches_with_other_classes_are_refused() -> None:
    x, y = classes(120, count=2)
    for model in (MLPClassifier(**QUICK).partial_fit(x, y, classes=[1, 0]), MLPClassifier(**QUICK).fit(x, y)):
        model.partial_fit(x, y, classes=[0, 1])
        with pytest.raises(OptionError, match=r"classes must be those of the first call, \[0, 1\], got \[0, 1, 2\]"):
            model.partial_fit(x, y, classes=[0, 1, 2])
        with pytest.raises(OptionError, match=r"y: the classes are \[0, 1\], got 7 in row 3: pass all classes"):
            model.partial_fit(x[:3], [0, 1, 7])
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        MLPClassifier(**QUICK).partial_fit(x, x[:, 0])
    with pytest.raises(ValueError, match="Input y contains NaN"):
        MLPClassifier(**QUICK).partial_fit(x, np.where(y == 0, np.nan, y))


@pytest.mark.parametrize("kind", ["numbers", "objects"])
def test_batches_without_column_names(kind: str, tmp_path: Path) -> None:
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


def test_partial_fit_after_fit_keeps_the_score() -> None:
    """A pass over the rows of fit does not lower the score of a network with the widths of the recipe. A different
    relation is still learned."""
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


@pytest.mark.parametrize("kind", ["classes", "labels", "numbers", "counts", "frame"])
def test_rows_with_weight_zero_have_no_effect_in_partial_fit(kind: str) -> None:
    """The results are bit-identical. A batch with only weights of 0 does not change the model."""
    x, y = numbers(90)
    given: Any = pd.DataFrame(x).assign(z=["p", "q", "r"] * 30).rename(columns=str) if kind == "frame" else x
    many = {"classes": np.digitize(y, [-1, 1]), "labels": (x > 0).astype(int), "counts": np.abs(y)}
    target = many.get(kind, y)
    make: Any = MLPClassifier if kind in ("classes", "labels") else MLPRegressor
    options = {**QUICK, "batch_size": 8, "loss": "poisson" if kind == "counts" else None}
    weight = np.where(np.arange(90) < 70, 0.0, 1.0 + np.arange(90))
    strange = np.where(weight == 0, -7, target) if kind == "counts" else target
    with_zero, without = (make(**options).partial_fit(given, target) for _ in range(2))
    for _ in range(2):
        with_zero.partial_fit(given, strange, sample_weight=weight)
        without.partial_fit(given[70:], target[70:], sample_weight=weight[70:])
    assert with_zero.model_.to_bytes() == without.model_.to_bytes()
    assert with_zero.history_ == without.history_
    assert np.isfinite(with_zero.history_["loss"]).all()


def test_a_batch_with_only_zero_weights_is_refused() -> None:
    x, y = classes(60, count=2)
    model = MLPClassifier(**QUICK, class_weight={0: 0.0}).partial_fit(x, y, classes=[0, 1])
    before = model.model_.to_bytes()
    nothing = "the array: no row has a target and a weight above 0: check the target and the weights"
    for one in (model, MLPClassifier(**QUICK, class_weight={0: 0.0})):
        with pytest.raises(DataError, match=nothing):
            one.partial_fit(x[y == 0], y[y == 0], classes=[0, 1])
    assert model.model_.to_bytes() == before


@pytest.mark.parametrize("ensemble", [1, 2])
def test_a_diverged_partial_fit_is_undone(ensemble: int) -> None:
    x, y = numbers(60)
    diverged = "partial_fit: loss, gradient or parameters were not finite, so the model was not changed; try a lower"
    far = {**QUICK, "ensemble": ensemble, "learning_rate": 1e30}
    first = MLPRegressor(**far)
    for _ in range(4):
        with pytest.warns(ConvergenceWarning, match=diverged):
            first.partial_fit(x, y)
        assert np.isfinite(first.predict(x)).all()
    assert (first.n_iter_, first.history_) == (1, {"loss": []})
    model = MLPRegressor(**{**QUICK, "ensemble": ensemble}).partial_fit(x, y)
    known = model.model_.to_bytes(), model.history_, model.n_iter_
    with pytest.warns(ConvergenceWarning, match=diverged):
        model.set_params(learning_rate=1e30).partial_fit(x, y)
    assert (model.model_.to_bytes(), model.history_, model.n_iter_) == known
    again = MLPRegressor(**{**QUICK, "ensemble": ensemble, "learning_rate": 0.01}).partial_fit(x, y)
    once = pickle.loads(pickle.dumps(again))
    with pytest.warns(ConvergenceWarning, match=diverged):
        again.set_params(learning_rate=1e30).partial_fit(x, y)
    again.set_params(learning_rate=0.01).partial_fit(x, y)  # continues as if it had not diverged
    np.testing.assert_array_equal(again.predict(x), once.partial_fit(x, y).predict(x))


def test_a_diverged_partial_fit_does_not_change_a_fit() -> None:
    x, y = numbers(60)
    model = MLPRegressor(**QUICK).fit(x, y)
    before = pickle.dumps(model.set_params(learning_rate=1e30))
    with pytest.warns(ConvergenceWarning, match="so the model was not changed"):
        model.partial_fit(x, y)
    assert pickle.dumps(model) == before  # its calibration and history too


# Options changed between batches


@pytest.mark.parametrize("way", ["fit", "partial_fit", "load"])
@pytest.mark.parametrize(
    "asked", [{"learning_rate": 0.5}, {"weight_decay": 0.3}, {"batch_size": 7}, {"n_threads": 1}, {"device": "cpu"}]
)
def test_changed_options_apply_from_the_next_batch(way: str, asked: dict[str, Any], tmp_path: Path) -> None:
    x, y = numbers(60)
    options = {name: value for name, value in QUICK.items() if name != "batch_size"}
    model = (MLPRegressor(**options).partial_fit if way == "partial_fit" else MLPRegressor(**options).fit)(x, y)
    if way == "load":
        model.save(tmp_path / "m.safetensors")
        model = MLPRegressor.load(tmp_path / "m.safetensors").set_params(random_state=0)
    other = pickle.loads(pickle.dumps(model)).set_params(**asked)
    before, found = model.partial_fit(x, y), other.partial_fit(x, y)
    (name, value), called = next(iter(asked.items())), {"n_threads": "threads"}
    assert found.config_[called.get(name, name)] == value
    same = {**before.config_, called.get(name, name): value}
    assert found.config_ == same
    assert np.array_equal(found.predict(x), before.predict(x)) == (name in ("n_threads", "device"))
    again = found.partial_fit(x, y).config_
    assert again == same


def test_a_given_learning_rate_is_not_adapted(tmp_path: Path) -> None:
    x, y = classes(60, count=2)
    asked, plain = (MLPClassifier(**QUICK, learning_rate=rate).fit(x, y) for rate in (0.01, None))
    assert asked.partial_fit(x, y).config_["learning_rate"] == 0.01
    assert plain.partial_fit(x, y).config_["learning_rate"] == pytest.approx(0.04 / 100)
    assert MLPClassifier(**QUICK).partial_fit(x, y).config_["learning_rate"] == pytest.approx(0.04 / 10)


@pytest.mark.parametrize("way", ["fit", "partial_fit"])
def test_options_that_a_model_cannot_change(way: str) -> None:
    x, y = numbers(60)
    for name, value, had in (("ensemble", 3, "2"), ("loss", "mae", "'mse'")):
        model = getattr(MLPRegressor(**QUICK), way)(x, y)
        with pytest.raises(
            OptionError, match=f"continues with the current model, {name}={had}, got {name}={value!r}: omit {name}"
        ):
            model.set_params(**{name: value}).partial_fit(x, y)
    with pytest.raises(OptionError, match="learning_rate must be positive, got -1"):
        getattr(MLPRegressor(**QUICK), way)(x, y).set_params(learning_rate=-1).partial_fit(x, y)
    auto = getattr(MLPRegressor(**QUICK, loss="auto"), way)(x, y)
    assert np.isfinite(auto.partial_fit(x, y).predict(x)).all()


def test_another_device_needs_another_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The current engine may not support the device."""
    x, y = numbers(60)
    model = MLPRegressor(**QUICK).partial_fit(x, y)
    chosen: list[str] = []
    make = Setup.make

    def noted(spec: Any, prepared: Any, config: Any, **options: Any) -> Setup:
        chosen.append(config.engine)
        return make(spec, prepared, config, **options)

    monkeypatch.setattr(Setup, "make", staticmethod(noted))
    model.partial_fit(x, y).set_params(device="cpu").partial_fit(x, y)
    assert chosen == ["fused", "auto"]


# Models from files


@pytest.mark.parametrize("kind", ["classes", "labels", "numbers"])
def test_training_of_a_loaded_model_continues(kind: str, tmp_path: Path) -> None:
    """Training continues from the parameters in the file, with the original class names."""
    x, y = numbers(200)
    estimator: Any = MLPRegressor if kind == "numbers" else MLPClassifier
    target: Any = {"numbers": y, "classes": np.where(y > 0, "up", "down"), "labels": (x > 0).astype(int)}[kind]
    model = estimator(**{**QUICK, "epochs": 60}).fit(x, target)
    model.save(tmp_path / "m.safetensors")
    again = estimator.load(tmp_path / "m.safetensors")
    score = again.score(x, target)
    again.set_params(random_state=0, learning_rate=1e-6).partial_fit(x, target)
    assert again.spec_ == model.spec_
    assert len(again.model_.members) == 2
    assert again.n_iter_ == 1
    assert again.score(x, target) > score - 0.1
    if kind == "numbers":
        np.testing.assert_allclose(again.predict(x), model.predict(x), atol=0.1)
    else:
        assert list(again.classes_) == list(model.classes_)
    for _ in range(3):
        again.partial_fit(x, target)
    assert again.n_iter_ == 4


def test_training_of_a_loaded_model_with_string_labels_continues(tmp_path: Path) -> None:
    """Labels of `ml.fit` can have any two values. In an estimator, they are 0 and 1."""
    x, _ = numbers(80)
    frame = pd.DataFrame(x, columns=list("abcd")).assign(p=np.where(x[:, 0] > 0, "yes", "no"), q=x[:, 1] > 0)
    trained = ml.fit("4-8:relu-2", frame, target=["p", "q"], epochs=1, run=tmp_path / "run", quiet=True)
    assert trained.model is not None
    model = MLPClassifier.load(tmp_path / "run" / "model.safetensors")
    labels = (x[:, :2] > 0).astype(int)
    assert model.partial_fit(frame[list("abcd")], labels).predict(frame[list("abcd")]).shape == (80, 2)


def test_the_model_has_the_names_of_the_data_from_the_first_batch(tmp_path: Path) -> None:
    """The trained model has the classes, the target and its labels from the start. They are not renamed later."""
    x, _ = numbers(80)
    y = pd.Series(np.where(x[:, 0] > 0, "yes", "no"), name="bought")
    for model in (MLPClassifier(**QUICK), MLPClassifier(**QUICK).fit(x, y)):
        for _ in range(2):
            model.partial_fit(x, y, classes=["no", "yes"])
            assert model.model_ is model._partial.model
            assert model.model_.encoding.task.names == ("bought",)
            assert model.model_.encoding.task.classes == (("no", "yes"),)
    both = pd.DataFrame({"p": y, "q": x[:, 1] > 0})
    frame = pd.DataFrame(x, columns=list("abcd")).join(both)
    ml.fit("4-8:relu-2", frame, target=["p", "q"], epochs=1, run=tmp_path / "run", quiet=True)
    loaded = MLPClassifier.load(tmp_path / "run").partial_fit(frame[list("abcd")], (x[:, :2] > 0).astype(int))
    assert loaded.model_.encoding.task.classes == (("no", "yes"), (False, True))


def test_options_that_a_loaded_model_cannot_have(tmp_path: Path) -> None:
    x, y = numbers(60)
    MLPRegressor(**QUICK).fit(x, y).save(tmp_path / "m.safetensors")
    for name, value, had in (("ensemble", 3, "2"), ("loss", "mae", "'mse'")):
        model = MLPRegressor.load(tmp_path / "m.safetensors").set_params(**{name: value})
        with pytest.raises(OptionError, match=f"continues with the current model, {name}={had}, got {name}={value!r}"):
            model.partial_fit(x, y)


# Warm starts


def test_a_warm_start_needs_the_same_classes() -> None:
    x, y = classes(120, count=2)
    model = MLPClassifier(**QUICK, warm_start=True).fit(x, y)
    with pytest.raises(
        OptionError, match=r"warm_start continues with the classes \[0, 1\], got \['u', 'v'\]: set warm"
    ):
        model.fit(x, np.array(["u", "v"])[y])
    assert list(model.classes_) == [0, 1]
    assert set(model.predict(x)) <= {0, 1}


def test_a_warm_start_on_one_class_keeps_the_network() -> None:
    x, y = classes(120, count=2)
    model = MLPClassifier(**QUICK, warm_start=True).fit(x, y)
    before = model.predict_proba(x)
    with pytest.raises(OptionError, match=r"warm_start continues with the classes \[0, 1\], got \[0\]: set warm"):
        model.fit(x, np.zeros(120, dtype=int))
    np.testing.assert_array_equal(model.predict_proba(x), before)
    alone = MLPClassifier(**QUICK, warm_start=True).fit(x, np.zeros(120)).fit(x, np.zeros(120))
    assert alone.predict_proba(x).shape == (120, 1)
    assert alone.fit(x, y).predict_proba(x).shape == (120, 2)


def test_a_warm_start_needs_the_same_columns_and_values() -> None:
    x, y = numbers(120)
    frame = pd.DataFrame(x, columns=list("abcd")).assign(z=["p", "q"] * 60)
    first = MLPRegressor(**QUICK, warm_start=True).fit(frame, y)
    losses = first.history_["loss"]
    assert first.fit(frame, y).history_["loss"][0] < losses[0]
    for other, fault in (
        (
            frame[["b", "a", "c", "d", "z"]],
            r"the columns 'a', 'b', 'c', 'd', 'z', but the data has 'b', 'a', 'c', 'd', 'z'",
        ),
        (frame.assign(z=["r", "s"] * 60), r"the values \['p', 'q'\] of 'z', but the data has \['r', 's'\]"),
    ):
        with pytest.raises(OptionError, match=f"the start model has {fault}: train without it"):
            MLPRegressor(**QUICK, warm_start=True).fit(frame, y).fit(other, y)


@pytest.mark.parametrize("count", [2, 3])
def test_a_warm_start_after_partial_fit(count: int) -> None:
    x, y = classes(120, count=count)
    model = MLPClassifier(**QUICK, warm_start=True).partial_fit(x, y)
    with pytest.warns(UserWarning, match="rows that are held out now may have been used for training"):
        model.fit(x, y)
    assert model.predict_proba(x).shape == (120, count)


def test_a_warm_start_holds_out_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """If members held out other rows, they would be evaluated on training rows and be overconfident."""
    x, y = numbers(100)
    parts: list[tuple[Any, ...]] = []
    make = Setup.make

    def noted(spec: Any, prepared: Any, config: Any, **options: Any) -> Setup:
        parts.append(tuple(part.tobytes() for part in prepared.folds))
        return make(spec, prepared, config, **options)

    monkeypatch.setattr(Setup, "make", staticmethod(noted))
    model = MLPRegressor(**{**QUICK, "random_state": None}, warm_start=True).fit(x, y)
    seed = model.config_["seed"]
    model.fit(x, y)
    model.set_params(random_state=seed + 1).fit(x, y)
    assert len(parts) == 3
    assert len(parts[0]) == 2
    assert parts[0] == parts[1] == parts[2]
    with pytest.warns(UserWarning, match="pass X_val and y_val"):
        model.fit(x[:90], y[:90])
    model.fit(x, y, X_val=x[:20], y_val=y[:20])  # no warning: the caller chose the validation rows
    assert model.config_["seed"] == seed
    reseeded = model.set_params(warm_start=False).fit(x, y)
    assert reseeded.config_["seed"] == seed + 1
