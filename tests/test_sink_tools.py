"""Each tool is told what it should be, and whose run is ended.

Fakes have the signatures of the real tools. TensorBoard is real; W&B, trackio, MLflow and Lightning are tried as well
where they are installed, in a folder and without a network.
"""

from __future__ import annotations

import inspect
import math
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multilayer.errors import OptionError
from multilayer.events import Resume, Start
from multilayer.training.sinks import Tracker, adapt, get, replay, values_of
from multilayer.training.sinks.loggers import Keras, Lightning
from multilayer.training.sinks.tools import MLflow, TensorBoard, Trackio, WandB
from multilayer.training.telling import told
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


# Weights & Biases


class FakeConfig(dict[str, Any]):
    def update(self, d: Any, allow_val_change: bool | None = None) -> None:  # type: ignore[override]
        super().update(d)


class FakeWandbRun:
    """The signatures of wandb 0.31."""

    def __init__(self, config: Any = None) -> None:
        self.config, self.summary = FakeConfig(config or {}), dict[str, Any]()
        self.logged: list[dict[str, Any]] = []
        self.alerts: list[tuple[str, str, str]] = []
        self.defined: list[tuple[str, str | None]] = []
        self.files: list[tuple[str, str | None]] = []
        self.exit_code: int | None = None

    def log(self, data: dict[str, Any], step: int | None = None, commit: bool | None = None) -> None:
        assert step is None, "wandb drops a step that goes back"
        self.logged.append(data)

    def alert(self, title: str, text: str, level: str | None = None, wait_duration: int | None = None) -> None:
        assert level in ("INFO", "WARN", "ERROR")
        self.alerts.append((title, text, level))

    def define_metric(
        self,
        name: str,
        step_metric: str | None = None,
        step_sync: bool | None = None,
        hidden: bool | None = None,
        summary: str | None = None,
        overwrite: bool | None = None,
    ) -> None:
        self.defined.append((name, step_metric))

    def log_artifact(self, artifact_or_path: str, name: str | None = None, type: str | None = None) -> None:
        self.files.append((artifact_or_path, type))

    def finish(self, exit_code: int | None = None) -> None:
        assert self.exit_code is None
        self.exit_code = exit_code


def fake_wandb() -> tuple[types.ModuleType, list[dict[str, Any]]]:
    module, made = types.ModuleType("wandb"), list[dict[str, Any]]()

    def init(
        entity: str | None = None,
        project: str | None = None,
        dir: Any = None,
        id: str | None = None,
        name: str | None = None,
        config: dict[str, Any] | None = None,
        reinit: Any = None,
        resume: Any = None,
    ) -> FakeWandbRun:
        run = FakeWandbRun(config)
        made.append({"project": project, "id": id, "name": name, "reinit": reinit, "resume": resume, "run": run})
        return run

    module.__dict__.update(
        init=init,
        run=None,
        log=lambda data, step=None: pytest.fail("no run"),
        define_metric=lambda name: pytest.fail("no run"),
        finish=lambda: pytest.fail("not ours"),
        Histogram=lambda values: ("histogram", len(values)),
    )
    return module, made


@pytest.mark.parametrize(("status", "code"), [("finished", 0), ("stopped", 0), ("interrupted", 1), ("failed", 1)])
def test_wandb_makes_and_ends_its_own_run(status: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module, made = fake_wandb()
    monkeypatch.setitem(sys.modules, "wandb", module)
    sink = get("wandb", project="digits", id="abc")
    assert not made
    feed(sink, [*RUN[:-1], end(status)])
    (call,) = made
    run: FakeWandbRun = call.pop("run")
    assert call == {"project": "digits", "id": "abc", "name": None, "reinit": "create_new", "resume": None}
    assert run.config["network"] == "4-8-3"
    assert run.logged[1]["train/step"] == 10
    assert run.logged[1]["validation/accuracy"] == 0.9
    assert ("validation/*", "train/step") in run.defined
    assert ("spike", f"step 12: {told(RUN[4]).text}", "WARN") in run.alerts  # type: ignore[union-attr]
    assert (run.exit_code, run.summary) == (code, {"status": status})


def test_wandb_goes_on_in_a_run_that_was_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    module, made = fake_wandb()
    monkeypatch.setitem(sys.modules, "wandb", module)
    feed(get("wandb", id="abc"), [Resume(step=10, checkpoint="c", kept=1, notes=[]), epoch(1), end()])
    assert made[0]["resume"] == "allow"


def test_a_users_wandb_run_is_written_to_and_left_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module, made = fake_wandb()
    monkeypatch.setitem(sys.modules, "wandb", module)
    with pytest.raises(OptionError, match=r"wandb has no active run: call wandb.init\(\) first"):
        adapt(module)
    run = FakeWandbRun({"seed": 1})
    module.__dict__["run"] = run
    model = tmp_path / "model.safetensors"
    model.write_bytes(b"")
    for given in (run, module):
        sink = adapt(given)
        assert isinstance(sink, WandB)
        replay(RUN, sink, model=model)
    sink.histogram("linear1/weight", np.array([1.0, math.nan]), 20)
    assert run.logged[-1] == {"linear1/weight": ("histogram", 1), "train/step": 20}
    assert (run.exit_code, made, run.summary) == (None, [], {})
    assert run.config["seed"] == 1
    assert run.config["multilayer"]["seed"] == 7
    assert run.files[0] == (str(model), "model")


# trackio


class FakeTrackioRun:
    """The signatures of trackio 0.43."""

    def __init__(self) -> None:
        self.logged: list[tuple[dict[str, Any], int | None]] = []
        self.alerts: list[tuple[str, str | None, Any]] = []
        self.files: list[str] = []
        self.finished = 0

    def log(self, metrics: dict[str, Any], step: int | None = None) -> None:
        self.logged.append((metrics, step))

    def alert(
        self,
        title: str,
        text: str | None = None,
        level: Any = "WARN",
        step: int | None = None,
        webhook_url: str | None = None,
    ) -> None:
        self.alerts.append((title, text, level))

    def log_artifact(
        self,
        artifact_or_path: Any,
        name: str | None = None,
        type: str | None = None,
        aliases: list[str] | None = None,
        overwrite: bool = False,
    ) -> None:
        self.files.append(artifact_or_path)

    def finish(self) -> None:
        self.finished += 1


def test_trackio_makes_and_ends_its_own_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run, made = FakeTrackioRun(), list[dict[str, Any]]()

    def init(
        project: str,
        name: str | None = None,
        config: dict[str, Any] | None = None,
        resume: str = "never",
        embed: bool = True,
    ) -> FakeTrackioRun:
        made.append({"project": project, "name": name, "resume": resume, "config": config})
        return run

    module = types.ModuleType("trackio")
    module.__dict__.update(init=init, AlertLevel=lambda value: ("level", value))
    monkeypatch.setitem(sys.modules, "trackio", module)
    model = tmp_path / "model.safetensors"
    model.write_bytes(b"")
    replay(RUN, get("trackio", project="digits", name="one"), model=model)
    assert {key: made[0][key] for key in ("project", "name", "resume")} == {
        "project": "digits",
        "name": "one",
        "resume": "never",
    }
    assert made[0]["config"]["optimizer"] == "adam"
    assert run.logged[1] == (values_of(epoch(0)), 10)
    assert run.alerts[1] == ("spike", told(RUN[4]).text, ("level", "warn"))  # type: ignore[union-attr]
    assert (run.finished, run.files) == (1, [str(model)])
    feed(get("trackio", name="one"), [Resume(step=10, checkpoint="c", kept=1, notes=[]), epoch(1)])
    assert made[1]["resume"] == "allow"


def test_a_users_trackio_run_or_module_is_left_open() -> None:
    run = FakeTrackioRun()
    module = types.ModuleType("trackio")

    def alert(title: str, text: str | None = None, level: Any = "WARN", webhook_url: str | None = None) -> None:
        run.alert(title, text, level)

    module.__dict__.update(init=pytest.fail, log=run.log, finish=run.finish, alert=alert)
    for given in (run, module):
        sink = adapt(given)
        assert isinstance(sink, Trackio)
        feed(sink, RUN)
    assert run.finished == 0
    assert run.logged[1] == (values_of(epoch(0)), 10)
    assert run.alerts[1][:2] == ("spike", f"step 12: {told(RUN[4]).text}")  # type: ignore[union-attr]


# MLflow


class FakeMlflowClient:
    """The signatures of mlflow 3.17."""

    def __init__(self, tracking_uri: str | None = None, registry_uri: str | None = None) -> None:
        self.uri = tracking_uri
        self.batches: list[tuple[str, list[Any], list[Any], list[Any]]] = []
        self.tags: dict[str, str] = {}
        self.files: list[str] = []
        self.ended: list[tuple[str, str | None]] = []
        self.experiments: list[str] = []

    def get_experiment_by_name(self, name: str) -> Any:
        return types.SimpleNamespace(experiment_id="7") if name in self.experiments else None

    def create_experiment(self, name: str, artifact_location: str | None = None, tags: Any = None) -> str:
        assert name not in self.experiments
        self.experiments.append(name)
        return "7"

    def create_run(
        self, experiment_id: str, start_time: int | None = None, tags: Any = None, run_name: str | None = None
    ) -> Any:
        assert experiment_id == "7"
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=f"id of {run_name}"))

    def log_batch(
        self, run_id: str, metrics: Any = (), params: Any = (), tags: Any = (), synchronous: bool | None = None
    ) -> None:
        self.batches.append((run_id, list(metrics), list(params), list(tags)))

    def set_tag(self, run_id: str, key: str, value: Any, synchronous: bool | None = None) -> None:
        self.tags[key] = value

    def log_artifact(self, run_id: str, local_path: str, artifact_path: str | None = None) -> None:
        self.files.append(local_path)

    def set_terminated(self, run_id: str, status: str | None = None, end_time: int | None = None) -> None:
        self.ended.append((run_id, status))


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module, entities = types.ModuleType("mlflow"), types.ModuleType("mlflow.entities")
    client = FakeMlflowClient()

    def make(tracking_uri: str | None = None, registry_uri: str | None = None) -> FakeMlflowClient:
        client.uri = tracking_uri
        return client

    entities.__dict__.update(
        Metric=lambda key, value, timestamp, step: (key, value, timestamp, step),
        Param=lambda key, value: (key, value),
        RunTag=lambda key, value: (key, value),
    )
    module.__dict__.update(
        MlflowClient=make,
        client=client,
        active_run=lambda: None,
        log_metrics=pytest.fail,
        start_run=pytest.fail,
        entities=entities,
    )
    monkeypatch.setitem(sys.modules, "mlflow", module)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    return module


@pytest.mark.parametrize(
    ("status", "theirs"),
    [("finished", "FINISHED"), ("stopped", "FINISHED"), ("interrupted", "KILLED"), ("failed", "FAILED")],
)
def test_mlflow_makes_and_ends_its_own_run(status: str, theirs: str, mlflow: Any, tmp_path: Path) -> None:
    client: FakeMlflowClient = mlflow.client
    model = tmp_path / "model.safetensors"
    model.write_bytes(b"")
    long = Start(**{**vars(START), "network": "4-" * 5000 + "1"})
    for _ in range(2):
        replay([long, *RUN[1:-1], end(status)], get("mlflow", name="one", uri="http://there"), model=model)
    assert (client.uri, client.experiments) == ("http://there", ["multilayer"])
    run, _, params, _ = client.batches[0]
    assert run == "id of one"
    assert ("versions.numpy", "2") in params
    assert len(dict(params)["network"]) == 6000
    assert ("validation/accuracy", 0.9, 1_000_000, 10) in client.batches[2][1]
    assert client.tags["alert/step 12/spike"].startswith("the loss 9 is over")
    assert client.ended == [("id of one", theirs)] * 2
    assert client.files == [str(model)] * 2


def test_a_users_mlflow_run_is_left_running(mlflow: Any) -> None:
    client: FakeMlflowClient = mlflow.client
    with pytest.raises(OptionError, match=r"mlflow has no active run: call mlflow.start_run\(\) first"):
        adapt(mlflow)
    with pytest.raises(OptionError, match=r"does not say which run: give \(client, run_id\)"):
        adapt(client)
    run = types.SimpleNamespace(info=types.SimpleNamespace(run_id="theirs"))
    mlflow.__dict__["active_run"] = lambda: run
    for given in (mlflow, run, (client, "theirs")):
        client.batches.clear()
        sink = adapt(given)
        assert isinstance(sink, MLflow)
        feed(sink, RUN)
        assert {batch[0] for batch in client.batches} == {"theirs"}
        assert client.batches[0][2] == []
        assert ("multilayer.optimizer", "adam") in client.batches[0][3]
    assert client.ended == []


def test_mlflow_names_have_no_letters_it_refuses(mlflow: Any) -> None:
    sink = get("mlflow")
    sink.start({})
    sink.log({"validation/f1(macro)": 0.5}, 1)
    assert mlflow.client.batches[-1][1][0][0] == "validation/f1_macro_"


# Loggers of other trainers


class FakeLogger:
    """Lightning's CSVLogger, in 2.6."""

    def __init__(self) -> None:
        self.params: dict[str, Any] = {}
        self.logged: list[tuple[dict[str, float], int | None]] = []
        self.saved = 0

    def log_hyperparams(self, params: dict[str, Any]) -> None:
        self.params = params

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.logged.append((metrics, step))

    def save(self) -> None:
        self.saved += 1

    def finalize(self, status: str) -> None:
        pytest.fail("the logger's experiment is not ours to end")


def test_a_lightning_logger() -> None:
    logger = FakeLogger()
    sink = adapt(logger)
    assert isinstance(sink, Lightning)
    feed(sink, RUN)
    assert logger.params["network"] == "4-8-3"
    assert logger.logged[1] == (values_of(epoch(0)), 10)
    assert logger.saved == 1


def test_a_keras_callback() -> None:
    seen: list[Any] = []

    class Callback:
        def on_train_begin(self, logs: Any = None) -> None:
            seen.append("begin")

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            seen.append((epoch, logs))

        def on_train_end(self, logs: Any = None) -> None:
            seen.append("end")

    sink = adapt(Callback())
    assert isinstance(sink, Keras)
    feed(sink, [START, RUN[1], epoch(0), epoch(1, validation=None), end()])
    assert seen == ["begin", (0, {"loss": 0.4, "val_loss": 0.5, "val_accuracy": 0.9}), (1, {"loss": 0.4}), "end"]


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
