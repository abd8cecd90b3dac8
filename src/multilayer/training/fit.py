"""`fit` and `resume`: train a model on data, and continue a run that was stopped.

    prepare the data → choose network, engine, plan → loop → best parameters → model file

A run without a folder keeps its events and checkpoints in memory; everything else is the same.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Unpack, cast

import numpy as np

from .. import data as tables
from ..data import bundled
from ..data.encoding_fit import DROPPED, warn_of_dropped
from ..data.readers import means_bundled
from ..data.table import count, short
from ..data.training_data import names_of
from ..errors import DataError, OptionError, RunError, SpecError, called, is_command_line, option, warn
from ..models.trained_model import TrainedModel
from ..runs import RunFolder
from ..runs.config import Config, Options
from ..spec import Spec
from .policies import TimeLimit
from .protocol import Observer
from .recipe import Recipe, choose, raw_outputs
from .run import Now, Run, drive
from .setup import Chooser, Session, check_loader
from .time_budget import Within
from .trackers import Tracker, TrackerObserver, accepted

AUTO = tuple(field.name for field in fields(Config) if field.metadata["auto"])
"""Options of which None is the same as none given."""
FEW_STEPS = 20
"""Steps below which a model has hardly been trained; no choice of epochs is as low without a time limit."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Ended:
    """A run that has ended, with its data still in memory and its folder still locked by this process."""

    run: Run
    session: Session
    source: Any
    validation: Any


def fit(
    spec: Spec | str | Chooser | None,
    data: Any = None,
    *,
    recipe: str | None = None,
    hidden: Sequence[int] | None = None,
    activation: str | Sequence[str] | None = None,
    dropout: float | None = None,
    target: str | Sequence[str] | None = None,
    group: Any = None,
    time_column: Any = None,
    categorical: str | Iterable[str] | None = (),
    sample_weight: Any = None,
    validation_weight: Any = None,
    start: TrainedModel | None = None,
    keep_constant: bool = False,
    classes: Sequence[Any] | None = None,
    run: str | Path | None = None,
    observers: Sequence[Observer] = (),
    trackers: Sequence[Any] = (),
    quiet: bool = False,
    each_epoch: Callable[[Now], bool] | None = None,
    ended: Callable[[Ended], None] | None = None,
    **options: Unpack[Options],
) -> Run:
    """Train a network on a table.

    Parameters
    ----------
    spec : Spec, str or None
        The network, such as ``"4-16-3"``. If None, the tabular recipe chooses the network and the options from the
        data.
    data
        A table (a file, the name of a bundled data set, a DataFrame), a pair ``(X, y)``, or a DataLoader.
    recipe : {"tabular", "plain"}, optional
        How to choose the network if `spec` is None. ``"plain"`` is a network with two hidden layers of 256 and 128 GELU
        units. Images and loaders always get the plain network.
    hidden, activation, dropout : optional
        Changes to the network of the tabular recipe: widths of the hidden layers, activation (one name, or one per
        hidden layer) and dropout rate.
    target : str or sequence of str, optional
        Target column or columns of the table.
    group, time_column : str or array, optional
        Column, or one value per row. Rows of one group are held out together; with `time_column`, the latest rows are
        held out.
    categorical : str or iterable of str, optional
        Columns to treat as categories, whatever their values are: ``["zip"]``, or ``["0"]`` for the first column of an
        array. If None, messages do not recommend this option.
    sample_weight, validation_weight : str or array, optional
        Sample weights: the name of a column (`sample_weight` only), or one number per row. A weight column is not used
        as an input.
    start : TrainedModel, optional
        Model that provides the initial parameters.
    keep_constant : bool
        Whether to train on a table in which every column is constant. By default, this is an error.
    classes : sequence, optional
        All classes of the target. Use it if the rows may lack some of them.
    run : str or Path, optional
        Folder for configuration, events, checkpoints and model. A run with a folder can be resumed after it was
        stopped or killed. By default, the run is kept in memory.
    observers : sequence of Observer
        Objects that receive every event.
    trackers : sequence
        Names (``"tensorboard"``, ``"wandb"``, ``"trackio"``, ``"mlflow"``), or runs, writers or loggers of them.
    quiet : bool
        Whether to print nothing.
    each_epoch : callable, optional
        Function called before the first epoch and after each epoch. Training stops if it returns True.
    ended : callable, optional
        Function called when the model is saved, while the data is still in memory.
    **options
        Fields of `Config`, such as ``epochs=20`` or ``learning_rate=0.01``. ``validation`` is a fraction of the rows,
        None, or separate data.

    Returns
    -------
    Run
        The trained model in `run.model`, validation metrics in `run.metrics`, and all events in `run.events`.

    Raises
    ------
    OptionError
        If an option is invalid, options exclude each other, or the network and the data are swapped.
    SpecError
        If the network is invalid, or does not fit the data.
    DataError
        If the data cannot be used for training.
    RunError
        If the folder `run` is in use.

    Examples
    --------
    >>> import multilayer as ml
    >>> run = ml.fit("4-8-3", "iris", epochs=2, quiet=True)
    >>> sorted(run.metrics)
    ['accuracy', 'log_loss']
    >>> run.model.predict([[5.1, 3.5, 1.4, 0.2]]).shape
    (1,)
    """
    began = time.monotonic()
    chosen: dict[str, Any] = {name: value for name, value in options.items() if value is not None or name not in AUTO}
    asked = set(chosen)
    shape = Recipe(hidden=hidden, activation=activation, dropout=dropout)
    check_order(spec, data)
    spec = Spec.parse(spec) if isinstance(spec, str) else spec
    outputs = spec.d_out if isinstance(spec, Spec) else None
    spec = choose(spec, recipe, shape, loss=chosen.get("loss", "auto"), loader=tables.is_loader(data))
    if spec is shape and chosen.get("time_limit") is not None:
        spec = Within(shape, chosen["time_limit"])
    chooser = None if spec is None or isinstance(spec, Spec) else spec
    read = data
    if chooser is not None or (ended is not None and run is not None and not tables.is_loader(data)):
        read = tables.read(data)  # once: a name may mean another thing when the run has a folder
    if chooser is not None:
        chosen = {**chooser.before(read), **chosen}
    held_out = chosen.get("validation", "auto")
    own = _in_memory(held_out)
    if own:
        chosen["validation"] = None
    config = Config.from_dict(chosen, where="fit")
    held_out = held_out if own else config.validation
    source = {"target": target, "group": group, "time": time_column, "keep_constant": keep_constant}
    categories = None if categorical is None else names_of(categorical)
    named = sample_weight is None or isinstance(sample_weight, str)
    if validation_weight is not None and not own:
        raise OptionError("validation_weight needs separate validation data: pass validation=(X, y)")

    def numbers(config: Config) -> tables.TrainingData:
        return prepare(
            read,
            config,
            **source,
            categorical=categories,
            weight=sample_weight,
            validation=held_out,
            validation_weight=validation_weight,
            classes=classes,
            outputs=outputs,
        )

    prepared = numbers(config)
    if chooser is not None:
        spec, chosen_config = chooser.network(prepared, config, asked)
        if chosen_config.ensemble != config.ensemble:  # other parts to hold out: other rows to look at
            config = replace(config, ensemble=chosen_config.ensemble)
            prepared = numbers(config)
            spec, chosen_config = chooser.network(prepared, config, {*asked, "ensemble"})
        config = chosen_config
    elif isinstance(spec, Spec):
        spec, note = raw_outputs(spec, prepared.encoding)
        prepared = replace(prepared, notes=(*prepared.notes, *([note] if note else [])))
    session = Session.make(cast("Spec | str | None", spec), prepared, config, began=began)
    if run is not None and (
        start is not None
        or classes is not None
        or validation_weight is not None
        or not all(one is None or isinstance(one, str) for one in (group, time_column))
    ):
        raise OptionError(
            "classes, start and per-row arrays cannot be saved in a run folder: pass column names instead, or train "
            "without run"
        )
    warn_of_dropped(prepared.encoding, declarable=categories is not None)
    if config.patience is not None and not len(prepared.validation):
        warn(f"{called('patience')} has no effect: no rows are held out; set {option('validation', '0.2')}")
    if start is not None:
        session.begin(start)
    tracking = _trackers(trackers, None if run is None else Path(run))
    folder = None
    if run is not None:
        weights = {"weight": sample_weight if named else None, "weights": None if named else "memory"}
        where = {"path": _place(data), "loader": tables.is_loader(data), "validation": "memory" if own else None}
        folder = RunFolder.create(
            run,
            config={
                "config": session.config.to_dict(),
                "effective": session.effective(),
                "spec": session.spec.to_dict(),
                "data": {**source, "categorical": categories or None, **weights, **where},
                "fingerprint": session.fingerprint(),
            },
        )
    after = None if ended is None else lambda run: ended(_ended(run, session, read, held_out))
    planned = isinstance(chooser, Within) and chooser.shortened
    return _driven(
        session, folder, observers, tracking, quiet=quiet, each_epoch=each_epoch, after=after, planned=planned
    )


def resume(
    path: str | Path,
    *,
    data: Any = None,
    validation: Any = None,
    sample_weight: Any = None,
    observers: Sequence[Observer] = (),
    trackers: Sequence[Any] = (),
    quiet: bool = False,
    each_epoch: Callable[[Now], bool] | None = None,
    ended: Callable[[Ended], None] | None = None,
) -> Run:
    """Resume a stopped or killed run. The result is bit-identical to that of an uninterrupted run.

    A run that has ended is returned as it is. If its model file was deleted, the file is rebuilt from the checkpoints.

    Parameters
    ----------
    path : str or Path
        Folder of the run.
    data, validation, sample_weight : optional
        The same values as in `fit`. They are needed only if they were in memory, not in files or bundled data sets. A
        DataLoader of your own may give other batches than before; the result then differs.
    observers, trackers, quiet, each_epoch, ended
        As in `fit`.

    Returns
    -------
    Run
        The completed run, with the events from before the interruption.

    Raises
    ------
    RunError
        If the folder is not a run or is in use, its data is needed and not given, or the data has changed.

    Examples
    --------
    >>> import tempfile
    >>> import multilayer as ml
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = ml.fit("4-8-3", "iris", epochs=2, run=f"{folder}/iris", quiet=True)
    ...     resumed = ml.resume(f"{folder}/iris", quiet=True)      # it has ended, so nothing is left to train
    >>> resumed.metrics == run.metrics
    True
    """
    began = time.monotonic()
    with RunFolder.open(path, write=True) as folder:
        saved = folder.config
        config = Config.from_dict(saved["config"], where=str(path))
        described = dict(saved["data"])
        source, loader = described.pop("path"), described.pop("loader", False)
        own = described.pop("validation", None) is not None
        if loader and data is None:
            raise RunError(f"{path} was trained from a loader of your own: pass it again, ml.resume(path, data=loader)")
        if data is None and source is None:
            raise RunError(f"{path} was trained on data in memory: pass it again, ml.resume(path, data=…)")
        if own and validation is None:
            raise RunError(f"{path} was validated on data in memory: pass it again, ml.resume(path, validation=…)")
        if described.pop("weights", None) is not None:
            if sample_weight is None:
                raise RunError(
                    f"{path} was trained with weights in memory: pass them again, ml.resume(path, sample_weight=…)"
                )
            described["weight"] = sample_weight
        elif sample_weight is not None:
            raise RunError(f"{path} has its weights in the data: omit sample_weight, got {short(sample_weight)}")
        if loader and not tables.is_loader(data):
            raise RunError(f"{path} was trained from a loader: resume needs one, got {type(data).__name__}")
        held_out = validation if own else config.validation
        source = _at(source) if data is None else data
        if ended is not None and not loader:
            source = tables.read(source)
        spec = Spec.from_dict(saved["spec"])
        described["categorical"] = described.get("categorical") or []
        prepared = prepare(source, config, **described, validation=held_out, outputs=spec.d_out)
        session = Session.make(spec, prepared, config, began=began)
        if session.fingerprint() != saved["fingerprint"]:
            raise RunError(
                f"the data differs from the training data of {path}: resume needs the same rows in the same order"
            )
        warn_of_dropped(prepared.encoding)
        after = None if ended is None else lambda run: ended(_ended(run, session, source, held_out))
        tracking = _trackers(trackers, folder.path)
        return _driven(
            session, folder, observers, tracking, quiet=quiet, resumed=True, each_epoch=each_epoch, after=after
        )


def check_order(spec: Any, data: Any) -> None:
    """Raise an error if the network and the data are swapped, or if one of them is missing."""
    if data is None:
        if isinstance(spec, Spec) or _is_network(spec):
            network = spec if isinstance(spec, Spec) else Spec.parse(spec)
            raise OptionError(
                f"fit needs data to train on, got the network {network} alone: ml.fit({str(network)!r}, data)"
            )
        raise OptionError(
            f"fit takes the network first, then the data, got {type(spec).__name__} alone: ml.fit(None, data) chooses "
            "the network"
        )
    if isinstance(data, Spec) or _is_network(data):
        if spec is None or isinstance(spec, Spec):
            raise DataError(f"data must be a table, got the network {data}: {_call(data)}")
        raise OptionError(f"fit takes the network first, then the data, got them swapped: {_call(data, spec)}")
    if isinstance(spec, str) and not _is_network(spec) and (means_bundled(spec) or Path(spec).is_file()):
        raise OptionError(f"the network comes first, got the data {spec!r} in its place: ml.fit(None, {spec!r})")
    if spec is not None and not isinstance(spec, str | Spec) and not hasattr(spec, "before"):
        torch = sys.modules.get("torch")
        write = "ml.fit(None, (X, y)), or ml.fit('4-16-3', (X, y))"
        if isinstance(getattr(spec, "spec", None), Spec):
            write = "ml.fit(model.spec, data) to train a new network like it"
        elif torch is not None and isinstance(spec, torch.nn.Module):
            write = "ml.fit(ml.from_torch(module).spec, data) to train a network like a nn.Sequential"
        raise OptionError(
            f"the network must be a string such as '4-16-3', a Spec or None, got {type(spec).__name__}: write {write}"
        )


def _is_network(text: Any) -> bool:
    """Return whether a string describes a network and is not the name of a data set or file."""
    if not isinstance(text, str) or means_bundled(text) or Path(text).exists():
        return False
    try:
        Spec.parse(text)
    except SpecError:
        return False
    return True


def _call(network: Any, data: Any = None) -> str:
    """Return the correct call, for the error message."""
    if called("spec") != "spec":
        return f"mlp train DATA --arch {network}"
    return f"ml.fit({str(network)!r}, {repr(data) if isinstance(data, str) else 'data'})"


def prepare(
    data: Any, config: Config, *, validation: Any, outputs: int | None = None, **source: Any
) -> tables.TrainingData:
    loss = None if config.loss == "auto" else config.loss
    dtype = np.float64 if config.dtype == "float64" else np.float32
    if tables.is_loader(data):
        check_loader(config)
        for name, value in source.items():
            if value is not None and value is not False and not (isinstance(value, list) and not value):
                got = f"got {name}={short(value)}"
                raise OptionError(f"{name} is for tables, {got}: a loader gives rows with their target")
        return tables.prepare_loader(
            data, task=config.task, loss=loss, validation=validation, outputs=outputs, dtype=dtype
        )
    return tables.prepare(
        data,
        task=config.task,
        loss=loss,
        validation=validation,
        seed=config.seed,
        class_weight=config.class_weight,
        augment=None if config.augment is None else config.augment.split("+"),
        scaling=config.scaling,
        folds=config.ensemble,
        outputs=outputs,
        dtype=dtype,
        **source,
    )


def _ended(run: Run, session: Session, source: Any, validation: Any) -> Ended:
    return Ended(run=run, session=session, source=source, validation=validation)


def _in_memory(validation: Any) -> bool:
    """Whether validation is data that no configuration can hold."""
    return not (validation is None or isinstance(validation, str | int | float | np.generic))


def _trackers(given: Sequence[Any], run: Path | None) -> list[Tracker]:
    """A tracker for each; a library that is missing is told before there is anything of a run."""
    if isinstance(given, str):
        raise OptionError(f"trackers must be a list, got {given!r}: trackers=[{given!r}]")
    return accepted(given, run)


def _driven(
    session: Session,
    folder: RunFolder | None,
    observers: Sequence[Observer],
    tracking: Sequence[Tracker],
    *,
    quiet: bool,
    resumed: bool = False,
    each_epoch: Callable[[Now], bool] | None = None,
    after: Callable[[Run], None] | None = None,
    planned: bool = False,
) -> Run:
    from .progress import Progress as Display

    plan = session.plan()
    past = folder.events(effective=True) if resumed and folder is not None else ()
    display = Display(
        plan.steps,
        plan.epochs,
        plan.steps_per_epoch,
        metric=plan.metric,
        larger=plan.larger,
        quiet=quiet,
        past=past,
        notes=[note for note in session.prepared.notes if not note.startswith(DROPPED) or is_command_line()],
        why=session.why_torch,
    )
    with ExitStack() as stack:
        stack.callback(session.engine.close)
        stack.enter_context(display)
        if folder is not None:
            stack.enter_context(folder)
        model = None if folder is None else folder.model
        told = [stack.enter_context(TrackerObserver(tracker, model=model, warn=display.warn)) for tracker in tracking]
        run = drive(session, folder, observers=[display, *observers, *told], resumed=resumed, each_epoch=each_epoch)
        _warn_of_few_steps(session, run, planned=planned)
        if after is not None:
            after(run)
        return run


def _warn_of_few_steps(session: Session, run: Run, *, planned: bool) -> None:
    """Warn of a model that a time limit left with hardly any training. `planned` means epochs were chosen to fit it."""
    limit, plan = session.config.time_limit, session.plan()
    cut = TimeLimit.reason in run.end.reason or (planned and run.end.status == "finished")
    if limit is None or not cut or run.end.step >= max(FEW_STEPS, -(-len(plan.rows) // plan.batch)):
        return
    warn(
        f"{called('time_limit')} of {limit:g} s was enough for only {count(run.end.step, 'step')}, so the model has "
        "hardly been trained: allow more time"
    )


def _place(data: Any) -> str | None:
    """What names the data in a run's configuration: a file's full path, a bundled set's name, nothing for memory."""
    if not isinstance(data, str | Path):
        return None
    return str(data) if means_bundled(data) else str(Path(data).resolve())


def _at(place: str) -> Any:
    """The data that `_place` named: a bundled set stays one, whatever lies where the run is resumed."""
    return bundled.load(place) if bundled.known(place) else place


def free_folder(name: str) -> Path:
    """The first of runs/NAME-001, runs/NAME-002, … that is not there yet."""
    for number in range(1, 1_000_000):
        path = Path("runs") / f"{name}-{number:03d}"
        if not path.exists():
            return path
    raise RunError(f"runs/{name}-… has no number left: name a folder with --run")
