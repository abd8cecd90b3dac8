"""Fake trackers and loggers with the signatures of the real ones. They record their calls."""

from __future__ import annotations

import types
from typing import Any

import pytest


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
