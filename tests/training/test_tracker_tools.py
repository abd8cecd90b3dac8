"""The calls that each tool receives, and which runs are ended. The tools are fakes with the real signatures."""

from __future__ import annotations

import math
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multilayer.errors import OptionError
from multilayer.runs.events import FindingEvent, Resume, Start, message_for
from multilayer.training.trackers import adapt, get, replay, values_of
from multilayer.training.trackers.tools import Keras, Lightning, MLflow, TensorBoard, Trackio, WandB
from support.fake_trackers import FakeLogger, FakeMlflowClient, FakeTrackioRun, FakeWandbRun, fake_wandb
from support.findings import DEAD, LEAKAGE, event_of
from support.tracked_runs import RUN, START, end, epoch, feed

# Weights & Biases


@pytest.mark.parametrize(("status", "code"), [("finished", 0), ("stopped", 0), ("interrupted", 1), ("failed", 1)])
def test_wandb_creates_and_ends_a_run(status: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module, made = fake_wandb()
    monkeypatch.setitem(sys.modules, "wandb", module)
    tracker = get("wandb", project="digits", id="abc")
    assert not made
    feed(tracker, [*RUN[:-1], end(status)])
    (call,) = made
    run: FakeWandbRun = call.pop("run")
    assert call == {"project": "digits", "id": "abc", "name": None, "reinit": "create_new", "resume": None}
    assert run.config["network"] == "4-8-3"
    assert run.logged[1]["train/step"] == 10
    assert run.logged[1]["validation/accuracy"] == 0.9
    assert ("validation/*", "train/step") in run.defined
    assert ("spike", f"step 12: {message_for(RUN[4]).text}", "WARN") in run.alerts  # type: ignore[union-attr]
    assert (run.exit_code, run.summary) == (code, {"status": status})


def test_wandb_resumes_a_run_that_was_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    module, made = fake_wandb()
    monkeypatch.setitem(sys.modules, "wandb", module)
    feed(get("wandb", id="abc"), [Resume(step=10, checkpoint="c", kept=1, notes=[]), epoch(1), end()])
    assert made[0]["resume"] == "allow"


def test_a_users_wandb_run_is_used_and_not_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module, made = fake_wandb()
    monkeypatch.setitem(sys.modules, "wandb", module)
    with pytest.raises(OptionError, match=r"wandb has no active run: call wandb.init\(\) first"):
        adapt(module)
    run = FakeWandbRun({"seed": 1})
    module.__dict__["run"] = run
    model = tmp_path / "model.safetensors"
    model.write_bytes(b"")
    for given in (run, module):
        tracker = adapt(given)
        assert isinstance(tracker, WandB)
        replay(RUN, tracker, model=model)
    tracker.histogram("linear1/weight", np.array([1.0, math.nan]), 20)
    assert run.logged[-1] == {"linear1/weight": ("histogram", 1), "train/step": 20}
    assert (run.exit_code, made, run.summary) == (None, [], {})
    assert run.config["seed"] == 1
    assert run.config["multilayer"]["seed"] == 7
    assert run.files[0] == (str(model), "model")


# trackio


def test_trackio_creates_and_ends_a_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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
    assert run.alerts[1] == ("spike", message_for(RUN[4]).text, ("level", "warn"))  # type: ignore[union-attr]
    assert (run.finished, run.files) == (1, [str(model)])
    feed(get("trackio", name="one"), [Resume(step=10, checkpoint="c", kept=1, notes=[]), epoch(1)])
    assert made[1]["resume"] == "allow"


def test_a_users_trackio_run_or_module_is_not_ended() -> None:
    run = FakeTrackioRun()
    module = types.ModuleType("trackio")

    def alert(title: str, text: str | None = None, level: Any = "WARN", webhook_url: str | None = None) -> None:
        run.alert(title, text, level)

    module.__dict__.update(init=pytest.fail, log=run.log, finish=run.finish, alert=alert)
    for given in (run, module):
        tracker = adapt(given)
        assert isinstance(tracker, Trackio)
        feed(tracker, RUN)
    assert run.finished == 0
    assert run.logged[1] == (values_of(epoch(0)), 10)
    assert run.alerts[1][:2] == ("spike", f"step 12: {message_for(RUN[4]).text}")  # type: ignore[union-attr]


# MLflow


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
def test_mlflow_creates_and_ends_a_run(status: str, theirs: str, mlflow: Any, tmp_path: Path) -> None:
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
    assert client.tags["alert/step 12/spike"].startswith("the loss 9 exceeds")
    assert client.ended == [("id of one", theirs)] * 2
    assert client.files == [str(model)] * 2


def test_a_users_mlflow_run_is_not_ended(mlflow: Any) -> None:
    client: FakeMlflowClient = mlflow.client
    with pytest.raises(OptionError, match=r"mlflow has no active run: call mlflow.start_run\(\) first"):
        adapt(mlflow)
    with pytest.raises(OptionError, match=r"needs the id of a run: pass \(client, run_id\)"):
        adapt(client)
    run = types.SimpleNamespace(info=types.SimpleNamespace(run_id="theirs"))
    mlflow.__dict__["active_run"] = lambda: run
    for given in (mlflow, run, (client, "theirs")):
        client.batches.clear()
        tracker = adapt(given)
        assert isinstance(tracker, MLflow)
        feed(tracker, RUN)
        assert {batch[0] for batch in client.batches} == {"theirs"}
        assert client.batches[0][2] == []
        assert ("multilayer.optimizer", "adam") in client.batches[0][3]
    assert client.ended == []


def test_findings_are_tags_in_mlflow_and_texts_or_numbers_in_tensorboard(mlflow: Any) -> None:
    tags = mlflow.client.tags
    column = LEAKAGE.to_dict() | {"where": {"column": "<ä>" * 100}}
    replay([START, event_of(DEAD), FindingEvent(step=50, finding=column), end()], get("mlflow"))
    assert tags["alert/step 50/dead units: relu1"].endswith("Use gelu instead of relu.")
    (key,) = (key for key in tags if "leakage" in key)
    assert len(key) == 250
    assert set(key) <= set("alert/step 50/leakage: _ä")
    texts, numbers = [], []
    full = types.SimpleNamespace(add_scalar=lambda *_: None, add_text=lambda tag, text, step: texts.append(tag))
    bare = types.SimpleNamespace(add_scalar=lambda tag, value, step: numbers.append((tag, value, step)))
    for writer in (full, bare):
        feed(TensorBoard.of(writer), [START, event_of(DEAD), end()])
    assert "alerts/dead units: relu1" in texts
    assert ("findings/dead_units", 1.0, 50) in numbers


def test_invalid_characters_in_mlflow_names_are_replaced(mlflow: Any) -> None:
    tracker = get("mlflow")
    tracker.start({})
    tracker.log({"validation/f1(macro)": 0.5}, 1)
    assert mlflow.client.batches[-1][1][0][0] == "validation/f1_macro_"


# Loggers of other trainers


def test_a_lightning_logger() -> None:
    logger = FakeLogger()
    tracker = adapt(logger)
    assert isinstance(tracker, Lightning)
    feed(tracker, RUN)
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

    tracker = adapt(Callback())
    assert isinstance(tracker, Keras)
    feed(tracker, [START, RUN[1], epoch(0), epoch(1, validation=None), end()])
    assert seen == ["begin", (0, {"loss": 0.4, "val_loss": 0.5, "val_accuracy": 0.9}), (1, {"loss": 0.4}), "end"]
