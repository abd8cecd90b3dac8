"""Choose a tracker by its name, or for an object of a tracking library by the methods of the object."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from ...errors import MultilayerError, OptionError, unknown_name
from .base import Tracker, left_out, warn
from .tools import Keras, Lightning, MLflow, Plain, TensorBoard, Trackio, WandB

TRACKERS: dict[str, type[Tracker]] = {
    "mlflow": MLflow,
    "tensorboard": TensorBoard,
    "trackio": Trackio,
    "wandb": WandB,
}
"""The trackers that can be chosen by name. They create a run of the tool."""


def get(name: str, /, **where: Any) -> Tracker:
    """Return the tracker with this name, and import its library. Its run starts when training starts.

    `where` are the arguments of its class, such as `folder` for TensorBoard, or `project` and `name`.
    """
    if name not in TRACKERS:
        raise OptionError(unknown_name("tracker", name, TRACKERS))
    known = inspect.signature(TRACKERS[name]).parameters
    for key in where:
        if key not in known:
            raise OptionError(f"{name}: {unknown_name('option', key, known)}")
    return TRACKERS[name](**where)


def for_run(name: str, run: Path | None) -> Tracker:
    """Return the tracker with this name. It writes files into the run folder, and its run has the folder's name."""
    if run is None or name not in TRACKERS:
        return get(name)
    return get(name, folder=run / name) if name == "tensorboard" else get(name, name=run.name)


def adapt(given: Any) -> Tracker:
    """Return a tracker for a name or an object. The methods of an object show which tool it belongs to.

    An object is a tracker, or a run, writer or logger that the user created. Such a run is not ended.
    """
    if isinstance(given, str):
        return get(given)
    if isinstance(given, Tracker):
        return given
    if isinstance(given, tuple) and len(cast("tuple[Any, ...]", given)) == 2:
        client, run_id = cast("tuple[Any, Any]", given)
        if _has(client, "log_batch"):
            return MLflow.of(client, str(run_id))
    for fits, make in _SHAPES:
        if fits(given):
            tracker = make(given)
            tracker.name = called(given)
            return tracker
    raise OptionError(f"cannot log to {type(given).__name__}: {_ACCEPTED}")


_ACCEPTED = (
    f"give one of {', '.join(TRACKERS)}, a W&B or trackio run, a SummaryWriter, mlflow with an active run, "
    "(MlflowClient, run_id), a Lightning logger, a Keras callback, an object with log(values, step), or a Tracker"
)


def accepted(given: Sequence[Any], run: Path | None) -> list[Tracker]:
    """Return a tracker for each name or object.

    Unknown names and objects, and missing libraries, are errors. If the methods of an object cannot be inspected, it is
    dropped with a warning.
    """
    found: list[Tracker] = []
    for one in given:
        try:
            found.append(for_run(one, run) if isinstance(one, str) else adapt(one))
        except MultilayerError:
            raise
        except Exception as error:  # as in TrackerObserver, an error of a tool must not stop training
            warn(left_out(called(one), error))
    return found


def called(given: object) -> str:
    """Return the name of an object for warnings: its type and library.

    >>> called(Path()), called(inspect)
    ('pathlib.PosixPath', 'inspect')
    """
    if isinstance(given, ModuleType):
        return given.__name__
    kind = type(given)
    library = kind.__module__.partition(".")[0]
    return kind.__name__ if library == "__main__" else f"{library}.{kind.__name__}"


def _has(given: object, *names: str) -> bool:
    return all(callable(getattr(given, name, None)) for name in names)


def _of_mlflow(mlflow: Any) -> Tracker:
    run = mlflow.active_run()
    if run is None:
        raise OptionError("mlflow has no active run: call mlflow.start_run() first, or pass 'mlflow' to create a run")
    return MLflow.of(mlflow.MlflowClient(), run.info.run_id)


def _of_wandb(wandb: Any) -> Tracker:
    if wandb.run is None:
        raise OptionError("wandb has no active run: call wandb.init() first, or pass 'wandb' to create a run")
    return WandB.of(wandb.run)


def _client_without_run(_: Any) -> Tracker:
    raise OptionError("an MlflowClient needs the id of a run: pass (client, run_id)")


_SHAPES: tuple[tuple[Callable[[Any], bool], Callable[[Any], Tracker]], ...] = (
    (lambda o: _has(o, "log_metrics", "log_hyperparams"), Lightning),
    (lambda o: _has(o, "add_scalar"), TensorBoard.of),
    (lambda o: _has(o, "active_run", "log_metrics"), _of_mlflow),
    (lambda o: _has(o, "log_batch"), _client_without_run),
    (lambda o: hasattr(getattr(o, "info", None), "run_id"), lambda o: MLflow.of(None, o.info.run_id)),
    (lambda o: _has(o, "init", "log") and hasattr(o, "define_metric"), _of_wandb),
    (lambda o: _has(o, "log", "define_metric"), WandB.of),
    (lambda o: _has(o, "log", "finish"), Trackio.of),
    (lambda o: _has(o, "on_epoch_end"), Keras),
    (lambda o: _has(o, "log"), Plain),
)
"""The first condition that is true selects the tracker."""
