"""scikit-learn's callbacks: one task for a fit, with a subtask for each epoch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.callback import ProgressBar, ScoringMonitor
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import multilayer as ml

OLD = """
import importlib.util, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "sklearn.callback" else find(name, *rest)
import multilayer as ml, numpy as np
x = np.random.default_rng(0).normal(size=(60, 2))
print(ml.MLPClassifier(epochs=2, ensemble=1).fit(x, x[:, 0] > 0).n_iter_, hasattr(ml.MLPRegressor, "set_callbacks"))
"""

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
LABELS = np.where(X[:, 0] > 0, "up", "down")


class Recorder:
    """Records every hook, and stops the fit after some epochs."""

    def __init__(self, stop: int | None = None) -> None:
        self.stop, self.lines, self.scores = stop, list[str](), list[float]()

    def setup(self, estimator: Any, context: Any) -> None:
        self.lines.append(f"setup {context.max_subtasks}")

    def teardown(self, estimator: Any, context: Any) -> None:
        self.lines.append("teardown")

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        self.lines.append(f"{context.task_name} {context.task_id} begins")

    def on_fit_task_end(
        self, estimator: Any, context: Any, *, X: Any = None, y: Any = None, fitted_estimator: Any = None
    ) -> bool:
        self.lines.append(f"{context.task_name} {context.task_id} ends")
        self.scores.append(fitted_estimator.score(X, y))
        return context.task_name == "epoch" and context.task_id + 1 == self.stop


@pytest.mark.parametrize("make", [ml.MLPClassifier, ml.MLPRegressor])
def test_every_epoch_is_a_task(make: Any) -> None:
    recorder = Recorder()
    y = LABELS if make is ml.MLPClassifier else X[:, 0]
    model = make(epochs=2, ensemble=2, random_state=0).set_callbacks(recorder).fit(X, y)
    epochs = ["epoch 0 begins", "epoch 0 ends", "epoch 1 begins", "epoch 1 ends"]
    assert recorder.lines == ["setup 2", "fit 0 begins", *epochs, "fit 0 ends", "teardown"]
    assert recorder.scores[-1] == model.score(X, y)


def test_a_callback_can_stop_the_fit() -> None:
    recorder = Recorder(stop=3)
    model = ml.MLPClassifier(epochs=20, ensemble=1, random_state=0).set_callbacks(recorder).fit(X, LABELS)
    assert model.n_iter_ == 3
    assert recorder.lines[-3:] == ["epoch 2 ends", "fit 0 ends", "teardown"]
    assert len(model.history_["loss"]) == 3


def test_callbacks_do_not_change_the_model() -> None:
    plain, watched = (ml.MLPClassifier(epochs=3, ensemble=2, random_state=0) for _ in range(2))
    watched.set_callbacks(Recorder())
    np.testing.assert_array_equal(plain.fit(X, LABELS).predict_proba(X), clone(watched).fit(X, LABELS).predict_proba(X))


def test_teardown_is_called_after_a_failure() -> None:
    class Failing(Recorder):
        def on_fit_task_end(self, estimator: Any, context: Any) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
            raise ZeroDivisionError("theirs")

    recorder = Failing()
    with pytest.raises(ZeroDivisionError, match="theirs"):
        ml.MLPClassifier(epochs=2, ensemble=1).set_callbacks(recorder).fit(X, LABELS)
    assert recorder.lines[-1] == "teardown"


def test_scikit_learn_callbacks_work_in_searches_and_pipelines(capsys: pytest.CaptureFixture[str]) -> None:
    model = ml.MLPClassifier(epochs=2, ensemble=1, random_state=0)
    monitor = ScoringMonitor(scoring="accuracy")
    model.set_callbacks(monitor).fit(X, LABELS)
    scores = monitor.get_logs().data
    assert [line["task_name"] for line in scores] == ["fit", "epoch", "epoch"]
    assert all(0 <= line["accuracy"] <= 1 for line in scores)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), model.set_callbacks()), {"mlpclassifier__epochs": [1, 2]}, cv=2
    )
    search.set_callbacks(ProgressBar()).fit(X, LABELS)
    assert search.best_score_ > 0.4


def test_scikit_learn_versions_without_callbacks_are_supported() -> None:
    done = subprocess.run([sys.executable, "-c", OLD], capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout.split(), done.stderr) == (["2", "False"], "")


def test_an_epoch_ended_by_the_time_limit_is_reported_as_ended() -> None:
    recorder = Recorder()
    ml.MLPClassifier(epochs=20000, ensemble=1, time_limit=4.0, random_state=0).set_callbacks(recorder).fit(X, LABELS)
    begun, ended = (sum(line.endswith(how) for line in recorder.lines) for how in ("begins", "ends"))
    assert begun == ended


def test_a_run_with_an_epoch_callback_is_resumed(tmp_path: Path) -> None:
    """The callback after each epoch is not saved in the run folder."""
    y = X[:, :1]
    asked: list[int] = []

    def each(now: Any) -> bool:
        asked.append(now.epoch)
        if now.epoch == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return False

    how: dict[str, Any] = {"epochs": 4, "quiet": True, "seed": 1}
    run = ml.fit("3-8-1", (X, y), run=tmp_path / "run", each_epoch=each, **how)
    assert (run.end.status, asked) == ("interrupted", [0, 1, 2])
    resumed = ml.resume(tmp_path / "run", data=(X, y), quiet=True)
    whole = ml.fit("3-8-1", (X, y), each_epoch=lambda now: False, **how)
    assert resumed.model is not None
    assert whole.model is not None
    np.testing.assert_array_equal(resumed.model.predict(X), whole.model.predict(X))
