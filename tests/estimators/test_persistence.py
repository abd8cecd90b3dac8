"""Continue, save and show models: warm starts, partial_fit, files, pickles and HTML."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import multilayer as ml
from multilayer import MLPClassifier, MLPRegressor
from multilayer.errors import OptionError
from support.quick_estimators import QUICK, classes, numbers, people

pytestmark = pytest.mark.filterwarnings("ignore:columns dropped")

# Continued training


def test_warm_start_continues_training() -> None:
    x, y = numbers()
    model = MLPRegressor(**{**QUICK, "epochs": 12, "learning_rate": 0.01}, warm_start=True).fit(x, y)
    first = model.history_["loss"]
    again = model.fit(x, y).history_["loss"]
    assert again[0] < first[0]
    pickled = pickle.dumps(model)
    for other, remedy in (
        ({"hidden": (9,)}, "set hidden, activation, dropout and loss to their earlier values"),
        ({"ensemble": 3}, f"set ensemble={len(model.model_.members)}"),
    ):
        networks = r"\(\d+ members? of .*\), got \d+ members? of .*"
        fault = rf"warm_start needs the current network {networks}: {remedy}, or set warm_start=False"
        with pytest.raises(OptionError, match=fault):
            pickle.loads(pickled).set_params(**other).fit(x, y)
    with pytest.raises(OptionError, match="fit on columns that give the same inputs, or set warm_start=False"):
        model.fit(x[:, :2], y)


def test_a_start_model_must_have_the_network_of_the_run() -> None:
    x, y = numbers(60)
    model = ml.fit("4-3-1", (x, y), epochs=1, quiet=True).model
    with pytest.raises(
        OptionError,
        match="the start model must have the network of the run, 1 × 4-5-1, got 1 × 4-3-1: pass a model of that",
    ):
        ml.fit("4-5-1", (x, y), epochs=1, quiet=True, start=model)


def test_partial_fit_on_batches() -> None:
    x, y = numbers(400)
    model = MLPRegressor(**QUICK)
    for _ in range(10):
        for part in np.array_split(np.arange(400), 4):
            model.partial_fit(x[part], y[part])
    assert model.n_iter_ == 40
    assert model.score(x, y) > 0.7
    whole = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(whole.predict(x), model.predict(x))
    model.partial_fit(x[:100], y[:100])
    whole.partial_fit(x[:100], y[:100])  # a pickle continues like the model
    np.testing.assert_array_equal(whole.predict(x), model.predict(x))


def test_partial_fit_with_classes_that_have_no_rows_yet() -> None:
    x, y = classes(300)
    names = np.array(["a", "b", "c"])[y]
    early = np.flatnonzero(y < 2)[:60]
    model = MLPClassifier(**QUICK).partial_fit(x[early], names[early], classes=["a", "b", "c"])
    assert model.predict_proba(x).shape == (300, 3)
    for _ in range(15):
        model.partial_fit(x, names, sample_weight=np.ones(300))
    assert set(model.predict(x)) == {"a", "b", "c"}
    assert model.score(x, names) > 0.6
    with pytest.raises(OptionError, match=r"classes are \['a', 'b', 'c'\], got .*'d'"):
        model.partial_fit(x[:1], ["d"])
    with pytest.raises(OptionError, match="the first call of partial_fit needs all classes"):
        MLPClassifier(**QUICK).partial_fit(x[:5], ["a"] * 5)


@pytest.mark.parametrize("kind", [MLPClassifier, MLPRegressor])
def test_partial_fit_continues_after_fit(kind: Any) -> None:
    """Columns, scales and parameters are those of fit. A pass with a low learning rate changes predictions, but the
    score stays above that of a new network."""
    x, y = classes(200, count=2) if kind is MLPClassifier else numbers(200)
    model = kind(**{**QUICK, "epochs": 24}).fit(x, y)
    before, score = model.predict(x), model.score(x, y)
    model.partial_fit(x[:50], y[:50])
    assert model.n_iter_ == 1
    assert model.score(x, y) > score - 0.2
    if kind is MLPRegressor:
        assert not np.array_equal(model.predict(x), before)
    from_scratch = kind(**QUICK).partial_fit(x[:50], y[:50])
    assert model.score(x, y) > from_scratch.score(x, y)
    again = pickle.loads(pickle.dumps(model)).partial_fit(x[50:], y[50:])
    model.partial_fit(x[50:], y[50:])
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    fitted = model.fit(x, y)  # starts with new parameters: fit is idempotent
    np.testing.assert_array_equal(fitted.predict(x), before)


def test_a_single_class_has_no_network(tmp_path: Path) -> None:
    model = MLPClassifier(**QUICK).fit(*numbers(60)[:1], np.zeros(60))
    for call in (lambda: model.save(tmp_path / "m"), lambda: model.cost_, lambda: model.spec_):
        with pytest.raises(OptionError, match="there is no network: all training rows had the same class"):
            call()
    assert set(pickle.loads(pickle.dumps(model)).predict(numbers(5)[0])) == {0.0}


# Saving and showing


@pytest.mark.parametrize("kind", [MLPClassifier, MLPRegressor])
def test_save_and_load(kind: Any, tmp_path: Path) -> None:
    frame, y = people()
    target = y if kind is MLPClassifier else frame.pop("income")
    model = kind(**QUICK).fit(frame, target)
    path = tmp_path / "model.safetensors"
    model.save(path)
    for again in (kind.load(path), pickle.loads(pickle.dumps(model))):
        assert type(again) is kind
        np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
        assert list(again.feature_names_in_) == list(model.feature_names_in_)
    np.testing.assert_array_equal(ml.load(path).predict(frame), model.predict(frame))
    if kind is MLPClassifier:
        np.testing.assert_array_equal(kind.load(path).predict_proba(frame), model.predict_proba(frame))
    else:
        np.testing.assert_array_equal(kind.load(path).predict_interval(frame), model.predict_interval(frame))


@pytest.mark.parametrize("way", ["fit", "partial_fit"])
def test_a_target_keeps_its_name(way: str, tmp_path: Path) -> None:
    """A saved model needs the name to find the target in a table."""
    frame, y = people()
    table = frame[["age", "city", "active"]]
    rich = (frame["income"] > 20_000).astype(int)
    frame = frame.assign(outcome=y, rich=rich, poor=1 - rich, debt=-frame["income"])
    for kind, target, stored_names in (
        (MLPClassifier, y, ("outcome",)),
        (MLPClassifier, pl.Series("outcome", y.tolist()), ("outcome",)),
        (MLPClassifier, frame[["rich", "poor"]], ("rich", "poor")),
        (MLPRegressor, frame["income"], ("income",)),
        (MLPRegressor, frame[["income", "debt"]], ("income", "debt")),
        (MLPRegressor, frame["income"].rename("age"), ("y",)),  # the name of a column
        (MLPRegressor, frame["income"].rename(7), ("y",)),
        (MLPRegressor, frame["income"].to_numpy(), ("y",)),
    ):
        model = getattr(kind(**QUICK), way)(table, target)
        assert model.model_.encoding.task.names == stored_names
        plain = getattr(kind(**QUICK), way)(table, np.asarray(target))
        np.testing.assert_array_equal(model.predict(table), plain.predict(table))
        model.save(tmp_path / "m.safetensors")
        if stored_names != ("y",):
            found = ml.load(tmp_path / "m.safetensors").evaluate(frame)
            assert found == model.model_.evaluate((table, np.asarray(target)))
        assert model.partial_fit(table, target).model_.encoding.task.names == stored_names


def test_a_run_folder_is_loaded(tmp_path: Path) -> None:
    x, y = numbers()
    ml.fit("4-8-relu-1", (x, y), epochs=1, run=tmp_path / "run", quiet=True)
    np.testing.assert_array_equal(MLPRegressor.load(tmp_path / "run").predict(x), ml.load(tmp_path / "run").predict(x))


def test_files_and_pickles_are_small() -> None:
    """They contain the float32 parameters of both members, names and calibration, but nothing per row."""
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(20_000, 20)), generator.integers(0, 2, 20_000)
    model = MLPClassifier(**{**QUICK, "epochs": 1, "batch_size": 1024}).fit(x, y)
    size = 2 * 4 * model.spec_.n_parameters
    assert len(pickle.dumps(model)) < size + 40_000 < x.nbytes / 40
    assert len(model.model_.to_bytes()) < size + 30_000


def test_a_saved_model_predicts_without_torch(tmp_path: Path) -> None:
    frame, y = people()
    model = MLPClassifier(**QUICK).fit(frame, y)
    model.save(tmp_path / "m.safetensors")
    frame.to_parquet(tmp_path / "rows.parquet")
    np.save(tmp_path / "p.npy", model.predict_proba(frame))
    program = f"""
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError("there is no torch here")
sys.meta_path.insert(0, NoTorch())
import numpy as np
import pandas as pd
from multilayer import MLPClassifier
model = MLPClassifier.load({str(tmp_path / "m.safetensors")!r})
found = model.predict_proba(pd.read_parquet({str(tmp_path / "rows.parquet")!r}))
np.testing.assert_array_equal(found, np.load({str(tmp_path / "p.npy")!r}))
print("same")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "same\n", done.stderr


def test_html_shows_the_network() -> None:
    model = MLPClassifier(**QUICK)
    assert "<svg" not in model._repr_html_()
    fitted = model.fit(*classes())._repr_html_()
    assert "MLPClassifier" in fitted
    assert "<svg" in fitted


def test_progress_is_shown_if_verbose(capfd: pytest.CaptureFixture[str]) -> None:
    x, y = numbers(80)
    MLPRegressor(**QUICK).fit(x, y)
    assert capfd.readouterr() == ("", "")
    MLPRegressor(**QUICK, verbose=True).fit(x, y)
    assert "epoch" in "".join(capfd.readouterr())


def test_unfitted() -> None:
    from sklearn.exceptions import NotFittedError

    for call in ("predict", "predict_proba"):
        with pytest.raises(NotFittedError):
            getattr(MLPClassifier(), call)([[1.0]])
    with pytest.raises(NotFittedError):
        MLPRegressor().save(io.BytesIO())  # type: ignore[arg-type]
