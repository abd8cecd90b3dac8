"""Loggers that a trainer calls: Lightning's, Keras' and any with a `log`. They are always the user's, so they are
never ended here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .base import Tracker


class Lightning(Tracker):
    """`log_hyperparams`, `log_metrics`, `save`. `finalize` ends the experiment and is left to its owner."""

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
    """A callback that hears of epochs, under Keras' names: loss, val_loss, val_accuracy. It gets no Keras model."""

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
    """Anything with `log(values, step)`."""

    name: str = "the logger"

    def __init__(self, logger: Any) -> None:
        self.logger = logger

    def start(self, config: Mapping[str, Any], *, resumed_at: int | None = None) -> None:
        return

    def log(self, values: Mapping[str, float], step: int, *, time: float | None = None) -> None:
        self.logger.log(dict(values), step)

    def finish(self, status: str) -> None:
        return
