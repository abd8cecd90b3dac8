"""Callbacks of scikit-learn 1.9 and later: each fit is a task, and each epoch is a subtask of it.

    MLPClassifier().set_callbacks(ProgressBar()).fit(X, y)

A fit ends if a callback returns True at the end of an epoch. `fitted_estimator` has the model after that epoch.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from ..models.trained_model import TrainedModel
from ..training.fit import TrainingProgress


class _NoCallbacks:
    """Replacement for scikit-learn's mixin before version 1.9."""


def _unchanged(method: Any) -> Any:
    return method


_sklearn: Any = importlib.import_module("sklearn.callback") if importlib.util.find_spec("sklearn.callback") else None
CallbackSupportMixin: Any = getattr(_sklearn, "CallbackSupportMixin", _NoCallbacks)
with_callbacks: Any = getattr(_sklearn, "with_callbacks", _unchanged)


class CallbackBridge:
    """Call the callbacks of an estimator during a fit.

    The training loop calls the bridge before the first epoch and after each epoch. The call returns whether a callback
    stops the fit. `end` is called after the fit.
    """

    def __init__(self, estimator: Any, given: tuple[Any, Any]) -> None:
        self.arguments = {"estimator": estimator, "X": given[0], "y": given[1]}
        self.fit_task: Any = None
        self.epoch_task: Any = None
        self.started_epochs = 0

    def __call__(self, now: TrainingProgress) -> bool:
        stop = False
        if now.epoch == 0:
            self.fit_task = self.arguments["estimator"]._init_callback_context(max_subtasks=now.epochs)
            self.fit_task.call_on_fit_task_begin(**self.arguments)
        elif self.epoch_task is not None:
            stop = self.epoch_task.call_on_fit_task_end(
                **self.arguments, reconstruction_attributes=lambda: fitted_attributes(now.model())
            )
            self.epoch_task = None
        if not stop and self.started_epochs < now.epochs:
            self.epoch_task = self.fit_task.subcontext(task_name="epoch")
            self.epoch_task.call_on_fit_task_begin(**self.arguments)
            self.started_epochs += 1
        return stop

    def end(self) -> None:
        """End the tasks of the fit, also that of an epoch that was not completed."""
        if self.epoch_task is not None:
            self.epoch_task.call_on_fit_task_end(**self.arguments, reconstruction_attributes=dict)
        self.fit_task.call_on_fit_task_end(**self.arguments, reconstruction_attributes=dict)


def fitted_attributes(model: TrainedModel) -> dict[str, Any]:
    """Return the attributes that an estimator needs in order to predict with a model."""
    return {"model_": model}


def has_callbacks(estimator: Any) -> bool:
    """Return whether callbacks were set on the estimator, or on a pipeline or search that contains it."""
    return bool(getattr(estimator, "_skl_callbacks", None))
