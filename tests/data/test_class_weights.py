"""Class weights: scikit-learn's definition, and the same result in `mlp train`, `ml.fit` and the estimator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.utils.class_weight import compute_class_weight
from typer.testing import CliRunner

import multilayer as ml
from multilayer import MLPClassifier
from multilayer.cli.main import app
from multilayer.data.weights import factors
from multilayer.errors import DataError
from multilayer.models.trained_model import TrainedModel
from multilayer.training.fit import fit
from multilayer.training.recipe import Recipe
from support.training_rows import prepare

ROWS = 90
G = np.random.default_rng(0)
FRAME = pd.DataFrame({"a": G.normal(size=ROWS), "b": G.normal(size=ROWS)}).round(3)
LABELS = np.where(FRAME["a"] + 0.3 * FRAME["b"] > 0.8, "rare", np.where(FRAME["b"] > 0, "some", "usual"))
WEIGHT = G.uniform(0.2, 3, ROWS).round(2)
WEIGHT[::11] = 0
QUICK: dict[str, Any] = {"epochs": 3, "ensemble": 2}


def tensors(model: TrainedModel | None) -> dict[str, bytes]:
    assert model is not None
    return {name: values.tobytes() for name, values in model.tensors.items()}


@pytest.mark.parametrize("times", [None, G.integers(0, 4, ROWS)], ids=["without weights", "with weights"])
def test_balanced_equals_scikit_learn(times: Any) -> None:
    """A row of weight n is equivalent to n rows."""
    names, place = np.unique(LABELS, return_inverse=True)
    theirs = compute_class_weight("balanced", classes=names, y=np.repeat(LABELS, 1 if times is None else times))
    np.testing.assert_allclose(factors("balanced", names.tolist(), place, times), theirs, rtol=1e-12)


@pytest.mark.parametrize("validation", [None, "0.2"], ids=["folds", "a fraction"])
@pytest.mark.parametrize("weighed", [False, True], ids=["without weights", "with weights"])
def test_the_command_line_and_the_estimator_are_bit_identical(
    tmp_path: Path, weighed: bool, validation: str | None
) -> None:
    FRAME.assign(w=WEIGHT, out=LABELS).drop(columns=[] if weighed else ["w"]).to_csv(tmp_path / "t.csv", index=False)
    options = [
        "--epochs",
        "3",
        "--ensemble",
        "2",
        "--class-weight",
        "balanced",
        *(["--sample-weight", "w"] if weighed else []),
    ]
    options += [] if validation is None else ["--validation", validation]
    command = ["train", str(tmp_path / "t.csv"), "--target", "out", "--run", str(tmp_path / "run"), "-q", *options]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    held_out: Any = "auto" if validation is None else float(validation)
    model = MLPClassifier(**QUICK, class_weight="balanced", random_state=0, validation=held_out)
    model.fit(FRAME, LABELS, WEIGHT if weighed else None)
    assert tensors(ml.load(tmp_path / "run")) == tensors(model.model_)


@pytest.mark.parametrize("given", ["balanced", {"rare": 5.0}, {"usual": 0}], ids=str)
def test_class_weights_apply_to_separate_validation_data(given: Any) -> None:
    train, judge = slice(0, 60), slice(60, None)
    model = MLPClassifier(**QUICK, class_weight=given, random_state=0)
    model.fit(FRAME[train], LABELS[train], X_val=FRAME[judge], y_val=LABELS[judge])
    own = (FRAME[judge], LABELS[judge])
    run = fit(Recipe(), (FRAME[train], LABELS[train]), validation=own, class_weight=given, quiet=True, **QUICK)
    assert tensors(run.model) == tensors(model.model_)
    names, place = np.unique(LABELS, return_inverse=True)
    factor = factors(given, names.tolist(), place[train], None)
    by_hand = MLPClassifier(**QUICK, random_state=0)
    by_hand.fit(
        FRAME[train],
        LABELS[train],
        factor[place[train]],
        X_val=FRAME[judge],
        y_val=LABELS[judge],
        sample_weight_val=factor[place[judge]],
    )
    assert tensors(by_hand.model_) == tensors(model.model_)
    assert by_hand.history_["validation_loss"] == model.history_["validation_loss"]


def test_rows_of_a_class_of_weight_0_are_dropped_but_the_class_remains() -> None:
    ready = prepare((FRAME, LABELS), class_weight={"some": 0, "rare": 2})
    assert f"{(LABELS == 'some').sum()} rows of classes of weight 0 left out" in ready.notes
    assert "class weights of all rows, also held-out ones: 'rare' 2, 'some' 0, 'usual' 1" in ready.notes
    assert ready.encoding.outputs == 3
    assert ready.dropped == (LABELS == "some").sum()
    assert set(LABELS[ready.origin]) == {"rare", "usual"}
    grouped = prepare((FRAME, LABELS), class_weight={"some": 0}, group=np.arange(ROWS) // 3)
    assert len(grouped.data) == ready.origin.size
    with pytest.raises(DataError, match="no row has a class of weight above 0: pass a class weight"):
        prepare((FRAME, LABELS), class_weight=dict.fromkeys(["rare", "some", "usual"], 0))
    only = LABELS == "some"
    with pytest.raises(DataError, match="validation weights must not all be 0, got rows of classes of weight 0 only"):
        prepare((FRAME, LABELS), class_weight={"some": 0}, validation=(FRAME[only], LABELS[only]))
