"""Trackers for TensorBoard, Weights & Biases, trackio, MLflow, Lightning loggers and Keras callbacks.

There are two ways to make a tracker. If it is made by name, `start` creates a run of the tool and `finish` ends it
(`ours` is True). If it is made with `of` from an object of the user, it writes to this object and does not close it.
The library is imported when the tracker is made, so a missing library is reported before training.
"""

from __future__ import annotations

import contextvars
import importlib
import json
import platform
import re
import time as clock
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ...core.formatting import cut
from ...errors import needed_by
from ...runs.events import Message
from .base import Tracker


def library(module: str, *, extra: str) -> Any:
    """Import an optional library. If it is missing, the error says how to install it."""
    with needed_by(f"logging to {extra}"):
        return importlib.import_module(module)


class _EventFile:
    """A new event file in a folder, with the methods of torch's SummaryWriter that a `TensorBoard` tracker calls.

    It needs only the package tensorboard. Events after `purge_step` in older files of the folder are hidden.
    """

    def __init__(self, folder: str, *, purge_step: int | None) -> None:
        self._events = library("tensorboard.compat.proto.event_pb2", extra="tensorboard")
        self._summaries = library("tensorboard.compat.proto.summary_pb2", extra="tensorboard")
        self._file = library("tensorboard.summary.writer.event_file_writer", extra="tensorboard").EventFileWriter(
            folder
        )
        if purge_step is not None:
            started = self._events.SessionLog(status=self._events.SessionLog.START)
            self._file.add_event(self._events.Event(wall_time=clock.time(), step=purge_step, session_log=started))

    def add_scalar(self, tag: str, value: float, step: int, walltime: float | None = None) -> None:
        one = self._summaries.Summary.Value(tag=tag, simple_value=value)
        self._add(self._summaries.Summary(value=[one]), step, walltime)

    def add_text(self, tag: str, text: str, step: int) -> None:
        plugin = library("tensorboard.plugins.text.summary_v2", extra="tensorboard")
        self._add(plugin.text_pb(f"{tag}/text_summary", text), step)

    def add_histogram(self, tag: str, values: NDArray[np.floating[Any]], step: int) -> None:
        plugin = library("tensorboard.plugins.histogram.summary_v2", extra="tensorboard")
        self._add(plugin.histogram_pb(tag, values), step)

    def close(self) -> None:
        self._file.close()

    def _add(self, summary: Any, step: int, walltime: float | None = None) -> None:
        when = clock.time() if walltime is None else walltime
        self._file.add_event(self._events.Event(wall_time=when, step=step, summary=summary))


class TensorBoard(Tracker):
    """Event files for `tensorboard --logdir`. A resumed run hides the values of superseded steps."""

    name: str = "tensorboard"

    def __init__(self, *, folder: str | Path | None = None) -> None:
        self.folder = folder
        self.writer: Any = None
        self.ours = True
        library("tensorboard", extra="tensorboard")

    @classmethod
    def of(cls, writer: Any) -> Self:
        """Wrap a SummaryWriter, or another writer with its `add_scalar`."""
        tracker = cls.__new__(cls)
        tracker.folder, tracker.writer, tracker.ours = None, writer, False
        return tracker

    def start(self, config: Mapping[str, Any], *, resumed_at: int | None = None) -> None:
        if self.ours:
            default = Path("runs", f"{clock.strftime('%b%d_%H-%M-%S')}_{platform.node()}")
            folder = str(self.folder or default)
            self.writer = _EventFile(folder, purge_step=None if resumed_at is None else resumed_at + 1)
        if config:
            text = json.dumps(config, indent=2, ensure_ascii=False, default=str)
            self._text("config", "\n".join(f"    {line}" for line in text.splitlines()), 0)

    def log(self, values: Mapping[str, float], step: int, *, time: float | None = None) -> None:
        for name, value in values.items():
            if self.ours:
                self.writer.add_scalar(name, value, step, walltime=time)
            else:
                self.writer.add_scalar(name, value, step)

    def alert(self, what: Message, step: int) -> None:
        self._text(f"alerts/{what.title}", what.text, step)

    @property
    def has_alerts(self) -> bool:
        return callable(getattr(self.writer, "add_text", None))

    def histogram(self, name: str, values: NDArray[np.floating[Any]], step: int) -> None:
        finite = values[np.isfinite(values)]
        if finite.size and callable(getattr(self.writer, "add_histogram", None)):
            self.writer.add_histogram(name, finite, step)

    def finish(self, status: str) -> None:
        if self.ours:
            self.writer.close()
        elif callable(getattr(self.writer, "flush", None)):
            self.writer.flush()

    def _text(self, tag: str, text: str, step: int) -> None:
        if callable(getattr(self.writer, "add_text", None)):
            self.writer.add_text(tag, text, step)


class WandB(Tracker):
    """Weights & Biases. Its own step cannot decrease after a rollback, so ours is logged as a metric, train/step."""

    name: str = "wandb"

    def __init__(
        self,
        *,
        project: str = "multilayer",
        name: str | None = None,
        id: str | None = None,
        folder: str | Path | None = None,
    ) -> None:
        self.where: dict[str, Any] = {"project": project, "name": name, "id": id, "dir": folder}
        self.run: Any = None
        self.ours = True
        self._wandb = library("wandb", extra="wandb")

    @classmethod
    def of(cls, run: Any) -> Self:
        """Wrap a run that `wandb.init` returned."""
        tracker = cls.__new__(cls)
        tracker.where, tracker.run, tracker.ours = {}, run, False
        return tracker

    def start(self, config: Mapping[str, Any], *, resumed_at: int | None = None) -> None:
        if self.ours:
            # Without create_new, wandb returns a run that the user has open, and `finish` would end it.
            again = None if resumed_at is None else "allow"
            self.run = self._wandb.init(**self.where, config=dict(config), resume=again, reinit="create_new")
        elif config:
            # A separate key, which does not overwrite `seed` or `epochs` of the user.
            self.run.config.update({"multilayer": dict(config)}, allow_val_change=True)
        self.run.define_metric("train/step")
        for group in ("train/*", "validation/*", "measured/*", "final/*"):
            self.run.define_metric(group, step_metric="train/step")

    def log(self, values: Mapping[str, float], step: int, *, time: float | None = None) -> None:
        self.run.log({**values, "train/step": step})

    def alert(self, what: Message, step: int) -> None:
        self.run.alert(title=what.title, text=f"step {step}: {what.text}", level=what.level.upper())

    def artifact(self, path: Path) -> None:
        self.run.log_artifact(str(path), type="model")

    def histogram(self, name: str, values: NDArray[np.floating[Any]], step: int) -> None:
        finite = values[np.isfinite(values)]
        if finite.size:
            self.run.log({name: library("wandb", extra="wandb").Histogram(finite), "train/step": step})

    def finish(self, status: str) -> None:
        if self.ours:
            self.run.summary["status"] = status
            self.run.finish(exit_code=0 if status in ("finished", "stopped") else 1)


class Trackio(Tracker):
    """Trackio, or another module or run with its `log(metrics, step=…)`."""

    name: str = "trackio"

    def __init__(self, *, project: str = "multilayer", name: str | None = None) -> None:
        self.where: dict[str, Any] = {"project": project, "name": name}
        self.run: Any = None
        self.ours = True
        self._trackio = library("trackio", extra="trackio")

    @classmethod
    def of(cls, run: Any) -> Self:
        """Wrap a run that `trackio.init` returned, or the module, which logs to the active run."""
        tracker = cls.__new__(cls)
        tracker.where, tracker.run, tracker.ours = {}, run, False
        return tracker

    def start(self, config: Mapping[str, Any], *, resumed_at: int | None = None) -> None:
        if self.ours:
            # `init` ends the active run of its context, which may be a run of the user, so it gets an empty context.
            self.run = contextvars.Context().run(
                self._trackio.init,
                **self.where,
                config=dict(config),
                resume="never" if resumed_at is None else "allow",
                embed=False,
            )

    def log(self, values: Mapping[str, float], step: int, *, time: float | None = None) -> None:
        self.run.log(dict(values), step=step)

    def alert(self, what: Message, step: int) -> None:
        if self.ours:
            level = self._trackio.AlertLevel(what.level)
            self.run.alert(title=what.title, text=what.text, level=level, step=step)
        elif callable(getattr(self.run, "alert", None)):
            self.run.alert(title=what.title, text=f"step {step}: {what.text}")

    @property
    def has_alerts(self) -> bool:
        return self.ours or callable(getattr(self.run, "alert", None))

    def artifact(self, path: Path) -> None:
        if callable(getattr(self.run, "log_artifact", None)):
            self.run.log_artifact(str(path), type="model")

    def finish(self, status: str) -> None:
        if self.ours:
            self.run.finish()


class MLflow(Tracker):
    """MLflow, with a client and the id of a run. The active run of the process is not used.

    The configuration is logged as parameters. In a run of the user it is logged as tags, because parameters cannot be
    set twice. Alerts are tags. A resumed run is a new run.
    """

    name: str = "mlflow"
    _STATUS: ClassVar[dict[str, str]] = {
        "finished": "FINISHED",
        "stopped": "FINISHED",
        "interrupted": "KILLED",
        "failed": "FAILED",
    }
    _LONGEST: ClassVar[dict[str, int]] = {"param": 6000, "tag": 5000, "key": 250}

    def __init__(self, *, experiment: str = "multilayer", name: str | None = None, uri: str | None = None) -> None:
        self.experiment, self.run_name = experiment, name
        self.client: Any = library("mlflow", extra="mlflow").MlflowClient(tracking_uri=uri)
        self.run_id = ""
        self.ours = True

    @classmethod
    def of(cls, client: Any, run_id: str) -> Self:
        """Wrap a run of the user. Without a client, it is on the configured tracking server."""
        tracker = cls.__new__(cls)
        tracker.client = library("mlflow", extra="mlflow").MlflowClient() if client is None else client
        tracker.run_id, tracker.ours = run_id, False
        return tracker

    def start(self, config: Mapping[str, Any], *, resumed_at: int | None = None) -> None:
        flat = {_mlflow_key(key): value for key, value in _flat(config).items()}
        entities = library("mlflow.entities", extra="mlflow")
        if self.ours:
            found = self.client.get_experiment_by_name(self.experiment)
            experiment = self.client.create_experiment(self.experiment) if found is None else found.experiment_id
            self.run_id = self.client.create_run(experiment, run_name=self.run_name).info.run_id
            params = [entities.Param(key, cut(value, self._LONGEST["param"])) for key, value in flat.items()]
            self.client.log_batch(self.run_id, params=params)
        else:
            longest = self._LONGEST["tag"]
            tags = [entities.RunTag(f"multilayer.{key}", cut(value, longest)) for key, value in flat.items()]
            self.client.log_batch(self.run_id, tags=tags)

    def log(self, values: Mapping[str, float], step: int, *, time: float | None = None) -> None:
        metric = library("mlflow.entities", extra="mlflow").Metric
        at = int(1000 * (clock.time() if time is None else time))
        metrics = [metric(_mlflow_key(name), value, at, step) for name, value in values.items()]
        self.client.log_batch(self.run_id, metrics=metrics)

    def alert(self, what: Message, step: int) -> None:
        key = _mlflow_key(cut(f"alert/step {step}/{what.title}", self._LONGEST["key"]))
        self.client.set_tag(self.run_id, key, cut(what.text, self._LONGEST["tag"]))

    def artifact(self, path: Path) -> None:
        self.client.log_artifact(self.run_id, str(path))

    def finish(self, status: str) -> None:
        if self.ours:
            self.client.set_terminated(self.run_id, status=self._STATUS[status])


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as one mapping, with dots in its keys.

    >>> _flat({"a": 1, "b": {"c": 2}})
    {'a': 1, 'b.c': 2}
    """
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _mlflow_key(name: str) -> str:
    """Replace the characters that MLflow does not allow in names."""
    return re.sub(r"[^\w. /:-]", "_", name)


class Lightning(Tracker):
    """A Lightning logger. `finalize` is not called, because it would end the experiment."""

    name: str = "the Lightning logger"

    def __init__(self, logger: Any) -> None:
        self.logger = logger

    def start(self, config: Mapping[str, Any], *, resumed_at: int | None = None) -> None:
        if config:
            self.logger.log_hyperparams(dict(config))

    def log(self, values: Mapping[str, float], step: int, *, time: float | None = None) -> None:
        self.logger.log_metrics(dict(values), step=step)

    def finish(self, status: str) -> None:
        if callable(getattr(self.logger, "save", None)):
            self.logger.save()


class Keras(Tracker):
    """A Keras callback. It receives epochs with the names of Keras: loss, val_loss, val_accuracy. It has no model."""

    name: str = "the Keras callback"

    def __init__(self, callback: Any) -> None:
        self.callback = callback

    def start(self, config: Mapping[str, Any], *, resumed_at: int | None = None) -> None:
        self._call("on_train_begin")

    def log(self, values: Mapping[str, float], step: int, *, time: float | None = None) -> None:
        if "train/epoch" not in values:
            return
        logs = {f"val_{name.removeprefix('validation/')}": v for name, v in values.items() if "validation/" in name}
        self.callback.on_epoch_end(int(values["train/epoch"]) - 1, {"loss": values["train/loss"], **logs})

    def finish(self, status: str) -> None:
        self._call("on_train_end")

    def _call(self, name: str) -> None:
        method = getattr(self.callback, name, None)
        if callable(method):
            method()


class Plain(Tracker):
    """Any object with `log(values, step)`."""

    name: str = "the logger"

    def __init__(self, logger: Any) -> None:
        self.logger = logger

    def start(self, config: Mapping[str, Any], *, resumed_at: int | None = None) -> None:
        return

    def log(self, values: Mapping[str, float], step: int, *, time: float | None = None) -> None:
        self.logger.log(dict(values), step)

    def finish(self, status: str) -> None:
        return
