"""Classes without rows or without weight, a single class, several labels, and models of another task."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import multilayer as ml
from multilayer import MLPClassifier, MLPRegressor
from multilayer.errors import DataError, OptionError
from support.quick_estimators import QUICK, classes, numbers
from support.training_rows import prepare

LABELS = np.stack([numbers(120)[0][:, 0] > 0, numbers(120)[0][:, 1] > 0.5, numbers(120)[1] > 0], 1).astype(int)


# Classes without rows or without weight


@pytest.mark.parametrize("absent", [0, 1, 2])
@pytest.mark.parametrize("by", ["sample_weight", "class_weight"])
def test_a_class_whose_rows_all_have_weight_zero_is_kept(absent: int, by: str, tmp_path: Path) -> None:
    x, y = classes(150)
    names = np.array(["a", "b", "c"])
    weight = np.where(y == absent, 0.0, 1.0) if by == "sample_weight" else None
    options = {**QUICK, "epochs": 40, "class_weight": {names[absent]: 0} if by == "class_weight" else None}
    model = MLPClassifier(**options).fit(x, names[y], sample_weight=weight)
    p = model.predict_proba(x)
    assert p.shape == (150, 3)
    assert p[:, absent].mean() < 0.1
    counts = y != absent
    assert model.score(x[counts], names[y][counts]) > 0.8
    model.save(tmp_path / "m.safetensors")
    again = MLPClassifier.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.predict_proba(x), p)
    assert list(again.classes_) == list(names)


@pytest.mark.filterwarnings("ignore:.*far outside the training range")
@pytest.mark.parametrize("validation", ["auto", 0.3, None])
@pytest.mark.parametrize("loss", ["cross_entropy", "binary_cross_entropy"])
def test_one_of_two_classes_without_weight(loss: str, validation: Any) -> None:
    x, y = classes(120, count=2)
    model = MLPClassifier(**QUICK, loss=loss, validation=validation).fit(x, y, sample_weight=1.0 * (y == 1))
    assert model.predict_proba(x).shape == (120, 2)
    assert model.predict(x).mean() > 0.9


def test_balanced_weights_ignore_classes_without_rows() -> None:
    x, y = classes(120)
    model = MLPClassifier(**QUICK, class_weight="balanced").fit(x, y, sample_weight=1.0 * (y < 2))
    assert model.predict_proba(x).shape == (120, 3)


def test_classes_without_rows_can_be_passed() -> None:
    x, y = classes(90, count=2)
    task = prepare((x, y), classes=(0, 1, 2)).encoding.task
    assert (task.kind, task.classes) == ("multiclass", ((0, 1, 2),))
    assert ml.fit("4-3", (x, y), classes=(0, 1, 2), epochs=1, quiet=True).model.predict_proba(x).shape == (90, 3)  # type: ignore[union-attr]
    with pytest.raises(DataError, match=r"must be one of \[0, 2\], got 1"):
        prepare((x, y), classes=(0, 2))


def test_classes_cannot_be_saved_in_a_run_folder(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="per-row arrays cannot be saved in a run folder: pass column names"):
        ml.fit("4-3", classes(90), classes=(0, 1, 2), run=tmp_path / "run", quiet=True)


# Labels


def test_labels_with_separate_validation_rows() -> None:
    x, _ = numbers(120)
    model = MLPClassifier(**QUICK).fit(x[:80], LABELS[:80], X_val=x[80:], y_val=LABELS[80:])
    worse = MLPClassifier(**QUICK).fit(x[:80], LABELS[:80], X_val=x[80:], y_val=1 - LABELS[80:])
    assert min(model.history_["validation_loss"]) < min(worse.history_["validation_loss"])
    for bad, got in (
        (LABELS[80:, :2], r"the shape \(40, 2\)"),
        (2 * LABELS[80:], "2"),
        (LABELS[80:, 0], r"the shape \(40,\)"),
        (np.full((40, 3), "a"), "'a'"),
    ):
        with pytest.raises(OptionError, match=f"y_val must be 0 or 1 for each of 3 labels, got {got}$"):
            MLPClassifier(**QUICK).fit(x[:80], LABELS[:80], X_val=x[80:], y_val=bad)


@pytest.mark.parametrize("value", [0, 1])
def test_a_constant_label(value: int, tmp_path: Path) -> None:
    x, _ = numbers(120)
    labels = LABELS.copy()
    labels[:, 1] = value
    model = MLPClassifier(**{**QUICK, "epochs": 24}).fit(x, labels)
    assert model.predict_proba(x).shape == (120, 3)
    assert (model.predict(x)[:, 1] == value).mean() > 0.95
    model.save(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(MLPClassifier.load(tmp_path / "m.safetensors").predict(x), model.predict(x))
    found = prepare((x, labels), task="multilabel").encoding.task
    assert found.classes == ((0, 1),) * 3
    with pytest.raises(DataError, match="a classification needs at least two classes, got"):
        prepare((x, np.full((120, 2), "a")), task="multilabel")


def test_labels_in_partial_fit() -> None:
    x, _ = numbers(120)
    model = MLPClassifier(**QUICK)
    for _ in range(12):
        for rows in (slice(0, 60), slice(60, 61), slice(61, 120)):
            model.partial_fit(x[rows], LABELS[rows])
    assert (model.predict(x) == LABELS).mean() > 0.8
    fitted = MLPClassifier(**QUICK).fit(x, LABELS).partial_fit(x, LABELS)
    assert fitted.predict(x).shape == (120, 3)
    with pytest.raises(OptionError, match=r"y must be 0 or 1 for each of 3 labels, got the shape \(120, 2\)"):
        model.partial_fit(x, LABELS[:, :2])


# A single class


def test_options_are_checked_with_a_single_class() -> None:
    x, _ = numbers(60)
    y = np.ones(60)
    with pytest.raises(OptionError, match="epochs must be positive, got -5"):
        MLPClassifier(epochs=-5).fit(x, y)
    with pytest.raises(OptionError, match=r"hidden must be a width or widths such as \(256, 256\), got 0.5"):
        MLPClassifier(hidden=0.5).fit(x, y)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="unknown metric 'acuracy': did you mean 'accuracy'"):
        MLPClassifier(metric="acuracy").fit(x, y)
    with pytest.raises(OptionError, match="rmse does not fit a binary task"):
        MLPClassifier(metric="rmse").fit(x, y)
    with pytest.raises(ValueError, match=r"sample_weight.shape == \(2,\), expected \(60,\)"):
        MLPClassifier().fit(x, y, sample_weight=[1, 2])
    for argument, name in (("groups", "group"), ("time_column", "time")):
        with pytest.raises(DataError, match=f"there must be one {name} for each of 60 rows, got 5 values"):
            MLPClassifier().fit(x, y, **{argument: np.arange(5)})
        with pytest.raises(OptionError, match=rf"{argument} must have one value per row, got 'c': pass the column"):
            MLPClassifier().fit(x, y, **{argument: "c"})
    fine = MLPClassifier(metric="auc").fit(x, y, groups=np.arange(60), time_column=np.arange(60))
    assert set(fine.predict(x)) == {1.0}
    frame = pd.DataFrame(x, columns=list("abcd"))
    bad = frame.copy()
    bad.loc[4, "c"] = np.inf
    with pytest.raises(DataError, match="row 5, column 'c': numbers must be finite"):
        MLPClassifier().fit(bad, y)
    with pytest.raises(DataError, match="row 5, column 'c': numbers must be finite"):
        MLPClassifier().fit(frame, y).predict(bad)


def test_a_refit_on_one_class_removes_the_network() -> None:
    x, y = classes(60, count=2)
    model = MLPClassifier(**QUICK).fit(x, y).partial_fit(x, y)
    model.fit(x, np.zeros(60))
    for name in ("spec_", "config_", "cost_"):
        assert not hasattr(model, name)
    assert "<svg" not in model._repr_html_()
    assert set(pickle.loads(pickle.dumps(model)).predict(x)) == {0.0}
    assert model.partial_fit(x, y).predict_proba(x).shape == (60, 2)


# Files of another task, and labels that cannot be saved


def test_a_model_of_another_task_is_refused(tmp_path: Path) -> None:
    x, y = numbers(60)
    MLPRegressor(**QUICK).fit(x, y).save(tmp_path / "r.safetensors")
    MLPClassifier(**QUICK).fit(x, y > 0).save(tmp_path / "c.safetensors")
    with pytest.raises(
        OptionError, match=r"MLPRegressor.load cannot read .*, which contains a classifier: use MLPClassifier.load"
    ):
        MLPRegressor.load(tmp_path / "c.safetensors")
    with pytest.raises(
        OptionError, match=r"MLPClassifier.load cannot read .*, which contains a regressor: use MLPRegressor.load"
    ):
        MLPClassifier.load(tmp_path / "r.safetensors")


def test_classes_of_strings_and_numbers_are_refused() -> None:
    x, _ = classes(60)
    for odd in (7, 1.5, True):
        mixed = np.array(["a", "b"] * 30, dtype=object)
        mixed[4] = odd
        fault = f"must be all strings, or all numbers or booleans, got 'a' in row 1 and {odd} in row 5: use strings"
        for y in (mixed, pd.Series(mixed)):
            with pytest.raises(DataError, match=f"y {fault}"):
                MLPClassifier().fit(x, y)
            with pytest.raises(DataError, match=f"y {fault}"):
                MLPClassifier().partial_fit(x, y, classes=["a", "b"])
            with pytest.raises(DataError, match=f"y_val {fault}"):
                MLPClassifier().fit(x, ["a", "b"] * 30, X_val=x, y_val=y)


OBJECTS = pd.Series(["a", "b"] * 30, dtype=object)


@pytest.mark.parametrize("texts", [OBJECTS, OBJECTS.astype("str"), OBJECTS.to_numpy().astype("U")])
def test_labels_of_another_type_are_unknown_classes(texts: Any) -> None:
    x, _ = numbers(60)
    y = np.arange(60) % 2
    for first, second, fault in (
        (texts, y, r"the classes are \['a', 'b'\], got 0 in row 1"),
        (y, texts, r"the classes are \[0, 1\], got 'a' in row 1"),
        (y == 1, texts, r"the classes are \[False, True\], got 'a' in row 1"),
    ):
        with pytest.raises(OptionError, match=f"y_val: {fault}"):
            MLPClassifier(**QUICK).fit(x, first, X_val=x, y_val=second)
        for way in ("fit", "partial_fit"):
            model = getattr(MLPClassifier(**QUICK), way)(x, first)
            with pytest.raises(OptionError, match=f"y: {fault}: pass all classes in the first call"):
                model.partial_fit(x, second)


NAMED: list[tuple[Any, str]] = [
    (["a", "b", None], "classes: every place must have a class, got none in place 3: drop the place"),
    (["a", "b", np.nan], "classes: every place must have a class, got none in place 3"),
    ([0.0, 1.0, np.nan], "classes: every place must have a class, got none in place 3"),
    (pd.Series(["a", None]), "classes: every place must have a class, got none in place 2"),
    (np.array([0.0, 1.0, np.nan]), "Input classes contains NaN"),
    ([0.0, 1.0, np.inf], "Input classes contains infinity"),
    (
        ["a", "b", 1],
        "classes must be all strings, or all numbers or booleans, got 'a' in place 1 and 1 in place 3: use",
    ),
    (pd.to_datetime(["2020", "2021"]), "classes must be strings, numbers or booleans, got datetime64"),
]


@pytest.mark.parametrize(("named", "fault"), NAMED, ids=range(len(NAMED)))
def test_invalid_classes_are_refused(named: Any, fault: str) -> None:
    x, y = classes(60, count=2)
    for model in (MLPClassifier(**QUICK), MLPClassifier(**QUICK).fit(x, y)):
        with pytest.raises(ValueError, match=fault):
            model.partial_fit(x, y, classes=named)


def test_lists_of_labels_of_mixed_types_are_not_converted_to_strings() -> None:
    """Numpy converts strings and NaN to strings, and NaN to "nan"."""
    x, _ = numbers(60)
    with pytest.raises(DataError, match="y: every row must have a class, got none in row 2: drop the row"):
        MLPClassifier(**QUICK).fit(x, ["a", np.nan] + ["b"] * 58)
    with pytest.raises(
        DataError, match="y must be all strings, or all numbers or booleans, got 'a' in row 1 and 1 in row"
    ):
        MLPClassifier(**QUICK).fit(x, ["a", 1] + ["b"] * 58)


def test_datetimes_are_refused_as_classes() -> None:
    x, y = classes(60, count=2)
    moments = pd.to_datetime(["2020", "2021"])[y]
    with pytest.raises(
        DataError, match=r"y must be strings, numbers or booleans, got datetime64.*: convert them to strings"
    ):
        MLPClassifier(**QUICK).fit(x, moments)
    assert set(MLPClassifier(**QUICK).fit(x, moments.astype(str)).classes_) == {"2020-01-01", "2021-01-01"}


@pytest.mark.parametrize("nothing", [None, np.nan, pd.NA])
def test_a_row_without_a_class_is_refused(nothing: Any) -> None:
    x, _ = numbers(60)
    y = np.array(["a", "b"] * 30, dtype=object)
    y[7] = nothing
    with pytest.raises(DataError, match="y: every row must have a class, got none in row 8: drop the row"):
        MLPClassifier(**QUICK).fit(x, y)
    with pytest.raises(DataError, match="y: every row must have a class, got none in row 8"):
        MLPClassifier(**QUICK).partial_fit(x, pd.Series(y), classes=["a", "b"])
    with pytest.raises(DataError, match="y_val: every row must have a class, got none in row 8"):
        MLPClassifier(**QUICK).fit(x, ["a", "b"] * 30, X_val=x, y_val=y)
