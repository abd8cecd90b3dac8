"""A network without regularization fits noisy rows and fails on new ones, and the measures are those of the metrics."""

from __future__ import annotations

import signal
import threading

import numpy as np
import pytest

from multilayer.lab.experiments.overfitting import (
    METHODS,
    Settings,
    divide,
    error,
    gain_of_rows,
    gap,
    log_loss,
    noisy,
    trained,
)
from multilayer.lab.tables import classification
from support.experiments import tiny


def test_the_network_overfits_and_early_stopping_reduces_the_gap() -> None:
    rows = tiny("overfitting").rows
    none = rows.where(method="none")
    assert none.mean("training_error") < 0.1 < none.mean("test_error")
    assert gap(rows, "early stopping") < gap(rows, "none")
    assert gain_of_rows(rows) < 0.9
    assert set(rows.where(kind="method").distinct("method")) == {"none", *METHODS}


def test_a_share_of_the_rows_gets_a_random_class() -> None:
    task = classification("digits")
    assert (noisy(task, 0.2, 3).y != task.y).mean() == pytest.approx(0.2 * 0.9, abs=0.03)
    assert (noisy(task, 0.0, 3).y == task.y).all()


def test_the_parts_are_disjoint_and_fewer_training_rows_keep_the_others() -> None:
    task = classification("wine")
    settings = Settings(data="wine", rows=40, validation=20, sizes=(10, 80))
    rows = divide(settings, task, 0)
    assert [len(part) for part in rows] == [80, 20, 78]
    together = np.concatenate([part.x for part in rows])
    assert len(np.unique(together, axis=0)) == len(np.unique(task.x, axis=0))
    assert len(rows.of(10).training) == 10
    assert rows.of(10).test is rows.test


def test_error_and_loss_are_those_of_the_model() -> None:
    settings = Settings(data="wine", width=8, epochs=3)
    rows = divide(settings, classification("wine"), 0)
    model = trained(settings, rows, "none", 0.0, 0)
    found = model.evaluate((rows.training.x, rows.training.y))
    assert error(model, rows.training) == pytest.approx(1 - found["accuracy"])
    assert log_loss(model, rows.training) == pytest.approx(found["log_loss"])


def test_ctrl_c_does_not_leave_a_model_that_was_stopped() -> None:
    settings = Settings(data="wine", rows=40, validation=20, sizes=(10,), width=8, epochs=1_000_000)
    rows = divide(settings, classification("wine"), 0)
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            trained(settings, rows, "none", 0.0, 0)
    finally:
        timer.join()
