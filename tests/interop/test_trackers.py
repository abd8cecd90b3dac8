"""Tests with the real trackers, offline and in a temporary folder. `make interop` installs them and runs the tests."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
import wandb
from lightning.pytorch import loggers

from multilayer.training.trackers import adapt, get, replay
from multilayer.training.trackers.tools import MLflow, WandB
from support.fake_trackers import FakeLogger, FakeMlflowClient, FakeTrackioRun, FakeWandbRun, fake_wandb
from support.tracked_runs import RUN, feed


def same_signature(fake: Callable[..., Any], real: Callable[..., Any]) -> None:
    """Check that every parameter of a fake also exists in the real function."""
    theirs = inspect.signature(real).parameters
    assert [name for name in inspect.signature(fake).parameters if name not in theirs] == []


@pytest.mark.filterwarnings("default")
def test_real_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("log", "alert", "define_metric", "log_artifact", "finish"):
        same_signature(getattr(FakeWandbRun, name), getattr(wandb.sdk.wandb_run.Run, name))
    same_signature(fake_wandb()[0].init, wandb.init)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    theirs = wandb.init(project="theirs", dir=tmp_path)
    model = tmp_path / "model.safetensors"
    model.write_bytes(b"model")
    tracker = get("wandb", project="ours", folder=tmp_path)
    assert isinstance(tracker, WandB)
    replay(RUN, tracker, model=model)
    assert tracker.run.id != theirs.id
    assert wandb.run is theirs
    feed(adapt(wandb), RUN)
    adapt(theirs).histogram("linear1/weight", np.array([1.0, 2.0]), 20)
    theirs.log({"mine": 1})
    summary = dict(theirs.summary)
    theirs.finish()
    assert summary["validation/accuracy"] == 0.9
    assert math.isnan(float(summary["validation/loss"]))
    assert len(list((tmp_path / "wandb").glob("offline-run-*"))) == 2


@pytest.mark.filterwarnings("default")
def test_real_trackio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    import trackio  # reads TRACKIO_DIR when imported

    for name in ("log", "alert", "log_artifact", "finish"):
        same_signature(getattr(FakeTrackioRun, name), getattr(trackio.Run, name))
    theirs = trackio.init(project="theirs", name="theirs", embed=False)
    ended: list[str] = []
    monkeypatch.setattr(theirs, "finish", lambda finish=theirs.finish: (ended.append("theirs"), finish()))
    model = tmp_path / "model.safetensors"
    model.write_bytes(b"model")
    replay(RUN, get("trackio", project="ours", name="one"), model=model)
    assert ended == []
    feed(adapt(trackio), RUN)
    feed(adapt(theirs), RUN)
    assert ended == []
    trackio.finish()
    assert ended == ["theirs"]
    from trackio.sqlite_storage import SQLiteStorage

    logged = {entry["step"]: entry for entry in SQLiteStorage.get_logs("ours", "one") if "train/loss" in entry}
    assert logged[10]["validation/accuracy"] == 0.9
    assert math.isnan(float(logged[20]["validation/loss"]))
    assert any("train/loss" in entry for entry in SQLiteStorage.get_logs("theirs", "theirs"))
    assert [alert["title"] for alert in SQLiteStorage.get_alerts("ours")]


@pytest.mark.filterwarnings("default")
def test_real_mlflow(tmp_path: Path) -> None:
    for name in ("create_run", "log_batch", "set_tag", "set_terminated", "log_artifact", "create_experiment"):
        same_signature(getattr(FakeMlflowClient, name), getattr(mlflow.MlflowClient, name))
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    mlflow.set_tracking_uri(uri)
    client = mlflow.MlflowClient(tracking_uri=uri)
    client.create_experiment("multilayer", artifact_location=(tmp_path / "files").as_uri())
    client.create_experiment("theirs", artifact_location=(tmp_path / "theirs").as_uri())
    model = tmp_path / "model.safetensors"
    model.write_bytes(b"model")
    tracker = get("mlflow", name="one", uri=uri)
    assert isinstance(tracker, MLflow)
    replay(RUN, tracker, model=model)
    run = client.get_run(tracker.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params["optimizer"] == "adam"
    assert run.data.metrics["validation/accuracy"] == 0.9
    history = client.get_metric_history(tracker.run_id, "validation/loss")
    assert [(m.step, m.timestamp, math.isnan(m.value)) for m in history] == [
        (10, 1_000_000, False),
        (20, 1_001_000, True),
    ]
    assert run.data.tags["alert/step 12/spike"].startswith("the loss 9")
    assert [file.path for file in client.list_artifacts(tracker.run_id)] == ["model.safetensors"]
    mlflow.set_experiment("theirs")
    with mlflow.start_run() as theirs:
        for given in (mlflow, theirs, (client, theirs.info.run_id)):
            feed(adapt(given), RUN)
        assert client.get_run(theirs.info.run_id).info.status == "RUNNING"
        mlflow.log_metric("mine", 1.0)
    assert client.get_run(theirs.info.run_id).data.tags["multilayer.optimizer"] == "adam"


@pytest.mark.filterwarnings("default")
def test_real_lightning(tmp_path: Path) -> None:
    for name in ("log_hyperparams", "log_metrics", "save", "finalize"):
        same_signature(getattr(FakeLogger, name), getattr(loggers.CSVLogger, name))
    logger = loggers.CSVLogger(str(tmp_path), flush_logs_every_n_steps=1000)
    feed(adapt(logger), RUN)
    rows = (Path(logger.log_dir) / "metrics.csv").read_text().splitlines()
    assert "validation/accuracy" in rows[0]
    assert any("0.9" in row for row in rows[1:])
    assert "adam" in (Path(logger.log_dir) / "hparams.yaml").read_text()
