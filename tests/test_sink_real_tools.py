"""The real tools, in a folder and without a network: TensorBoard always, the others where they are installed."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fake_tools import FakeLogger, FakeMlflowClient, FakeTrackioRun, FakeWandbRun, fake_wandb
from multilayer.events import Resume
from multilayer.training.sinks import Tracker, adapt, get, replay
from multilayer.training.sinks.tools import MLflow, TensorBoard, WandB
from tracked import RUN, START, end, epoch, feed

# TensorBoard, real


def scalars(folder: Path) -> dict[str, list[tuple[float, int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0, "histograms": 0})
    read.Reload()
    return {tag: [(e.wall_time, e.step, e.value) for e in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


def texts(folder: Path) -> dict[str, str]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    read.Reload()
    return {tag: read.Tensors(tag)[0].tensor_proto.string_val[0].decode() for tag in read.Tags()["tensors"]}


@pytest.fixture
def tensorboard() -> None:
    pytest.importorskip("tensorboard")


@pytest.mark.usefixtures("tensorboard")
def test_tensorboard_reads_back(tmp_path: Path) -> None:
    replay(RUN, get("tensorboard", folder=tmp_path))
    read = scalars(tmp_path)
    assert read["train/loss"] == [(1000.0, 10, pytest.approx(0.4)), (1001.0, 20, pytest.approx(0.4))]
    assert [(step, math.isnan(value)) for _, step, value in read["validation/loss"]] == [(10, False), (20, True)]
    assert math.isinf(read["train/gradient_norm"][0][2])
    assert read["final/accuracy"][0][1:] == (20, pytest.approx(0.95))
    found = texts(tmp_path)
    assert '"optimizer": "adam"' in found["config/text_summary"]
    assert "raise the rate" in found["alerts/notice/text_summary"]
    assert "train/gradient_norm is inf" in found["alerts/not finite/text_summary"]


@pytest.mark.usefixtures("tensorboard")
def test_tensorboard_hides_what_a_resume_took_back(tmp_path: Path) -> None:
    killed = Tracker(get("tensorboard", folder=tmp_path), warn=pytest.fail)
    for event in (START, epoch(0), epoch(1, accuracy=0.1)):
        killed.notice(event)
    killed.close()
    feed(
        get("tensorboard", folder=tmp_path),
        [Resume(step=10, checkpoint="c", kept=2, notes=[]), epoch(1, accuracy=0.8), end()],
    )
    read = [(step, round(value, 6)) for _, step, value in scalars(tmp_path)["validation/accuracy"]]
    assert read == [(10, 0.9), (20, 0.8)]


@pytest.mark.usefixtures("tensorboard")
def test_a_users_writer_stays_open(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(tmp_path))
    sink = adapt(writer)
    assert isinstance(sink, TensorBoard)
    feed(sink, RUN)
    sink.histogram("linear1/weight", np.array([1.0, math.nan, 2.0]), 20)
    sink.histogram("linear1/none", np.array([math.nan]), 20)
    assert scalars(tmp_path)["train/loss"][0][1] == 10
    writer.add_scalar("mine", 1.0, 1)
    writer.close()
    assert scalars(tmp_path)["mine"][0][2] == 1.0


def test_a_writer_with_add_scalar_alone_will_do() -> None:
    class Writer:
        def __init__(self) -> None:
            self.seen: list[tuple[str, float, int]] = []

        def add_scalar(self, tag: str, data: float, step: int, *, wall_time: float | None = None) -> None:
            self.seen.append((tag, data, step))

    writer = Writer()
    feed(adapt(writer), RUN)
    assert ("validation/accuracy", 0.9, 10) in writer.seen


# The real tools, where they are installed


def same_signature(fake: Callable[..., Any], real: Callable[..., Any]) -> None:
    """A fake takes nothing that the real one does not."""
    theirs = inspect.signature(real).parameters
    assert [name for name in inspect.signature(fake).parameters if name not in theirs] == []


@pytest.mark.filterwarnings("default")
def test_real_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    for name in ("log", "alert", "define_metric", "log_artifact", "finish"):
        same_signature(getattr(FakeWandbRun, name), getattr(wandb.sdk.wandb_run.Run, name))
    same_signature(fake_wandb()[0].init, wandb.init)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    theirs = wandb.init(project="theirs", dir=tmp_path)
    model = tmp_path / "model.safetensors"
    model.write_bytes(b"model")
    sink = get("wandb", project="ours", folder=tmp_path)
    assert isinstance(sink, WandB)
    replay(RUN, sink, model=model)
    assert sink.run.id != theirs.id
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
    trackio = pytest.importorskip("trackio")
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
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    for name in ("create_run", "log_batch", "set_tag", "set_terminated", "log_artifact", "create_experiment"):
        same_signature(getattr(FakeMlflowClient, name), getattr(mlflow.MlflowClient, name))
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    mlflow.set_tracking_uri(uri)
    client = mlflow.MlflowClient(tracking_uri=uri)
    client.create_experiment("multilayer", artifact_location=(tmp_path / "files").as_uri())
    client.create_experiment("theirs", artifact_location=(tmp_path / "theirs").as_uri())
    model = tmp_path / "model.safetensors"
    model.write_bytes(b"model")
    sink = get("mlflow", name="one", uri=uri)
    assert isinstance(sink, MLflow)
    replay(RUN, sink, model=model)
    run = client.get_run(sink.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params["optimizer"] == "adam"
    assert run.data.metrics["validation/accuracy"] == 0.9
    history = client.get_metric_history(sink.run_id, "validation/loss")
    assert [(m.step, m.timestamp, math.isnan(m.value)) for m in history] == [
        (10, 1_000_000, False),
        (20, 1_001_000, True),
    ]
    assert run.data.tags["alert/step 12/spike"].startswith("the loss 9")
    assert [file.path for file in client.list_artifacts(sink.run_id)] == ["model.safetensors"]
    mlflow.set_experiment("theirs")
    with mlflow.start_run() as theirs:
        for given in (mlflow, theirs, (client, theirs.info.run_id)):
            feed(adapt(given), RUN)
        assert client.get_run(theirs.info.run_id).info.status == "RUNNING"
        mlflow.log_metric("mine", 1.0)
    assert client.get_run(theirs.info.run_id).data.tags["multilayer.optimizer"] == "adam"


@pytest.mark.filterwarnings("default")
def test_real_lightning(tmp_path: Path) -> None:
    loggers = pytest.importorskip("lightning.pytorch.loggers")
    for name in ("log_hyperparams", "log_metrics", "save", "finalize"):
        same_signature(getattr(FakeLogger, name), getattr(loggers.CSVLogger, name))
    logger = loggers.CSVLogger(str(tmp_path), flush_logs_every_n_steps=1000)
    feed(adapt(logger), RUN)
    rows = (Path(logger.log_dir) / "metrics.csv").read_text().splitlines()
    assert "validation/accuracy" in rows[0]
    assert any("0.9" in row for row in rows[1:])
    assert "adam" in (Path(logger.log_dir) / "hparams.yaml").read_text()
