"""scikit-learn's callbacks, from its version 1.9 on: one task for a fit, and one under it for each epoch.

    MLPClassifier().set_callbacks(ProgressBar()).fit(X, y)

A callback that answers an epoch with True ends the fit; `fitted_estimator` is the model as it is then.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from ..models.trained_model import TrainedModel
from ..training.fit import Now


class _Without:
    """What an estimator has before scikit-learn 1.9: nothing."""


def _unchanged(method: Any) -> Any:
    return method


_theirs: Any = importlib.import_module("sklearn.callback") if importlib.util.find_spec("sklearn.callback") else None
CallbackSupportMixin: Any = getattr(_theirs, "CallbackSupportMixin", _Without)
with_callbacks: Any = getattr(_theirs, "with_callbacks", _unchanged)


class Tasks:
    """Tells an estimator's callbacks where its fit is; called with each epoch, and `end` once it is over."""

    def __init__(self, estimator: Any, given: tuple[Any, Any]) -> None:
        self.about = {"estimator": estimator, "X": given[0], "y": given[1]}
        self.root: Any = None
        self.epoch: Any = None
        self.begun = 0

    def __call__(self, now: Now) -> bool:
        stop = False
        if now.epoch == 0:
            self.root = self.about["estimator"]._init_callback_context(max_subtasks=now.epochs)
            self.root.call_on_fit_task_begin(**self.about)
        elif self.epoch is not None:
            stop = self.epoch.call_on_fit_task_end(**self.about, reconstruction_attributes=lambda: fitted(now.model()))
            self.epoch = None
        if not stop and self.begun < now.epochs:
            self.epoch = self.root.subcontext(task_name="epoch")
            self.epoch.call_on_fit_task_begin(**self.about)
            self.begun += 1
        return stop

    def end(self) -> None:
        """An epoch that had begun when something else ended the run ends with it."""
        if self.epoch is not None:
            self.epoch.call_on_fit_task_end(**self.about, reconstruction_attributes=dict)
        self.root.call_on_fit_task_end(**self.about, reconstruction_attributes=dict)


def fitted(model: TrainedModel) -> dict[str, Any]:
    """What an estimator needs to have to predict with a model."""
    return {"model_": model}


def has_callbacks(estimator: Any) -> bool:
    """Whether any were set, on it or on what it is a part of."""
    return bool(getattr(estimator, "_skl_callbacks", None))
