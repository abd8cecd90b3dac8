"""`fit` and `resume`: from data to a trained model, with a run that loses nothing.

    prepare the data → choose network, engine, plan → loop → best parameters → model file

A run without a folder keeps its events and checkpoints in memory; everything else is the same.
"""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack, cast

import numpy as np

from .. import data as tables
from ..data import bundled
from ..data.sources import means_bundled
from ..data.tables import count, short
from ..engine import State
from ..errors import OptionError, RunError
from ..events import Checkpoint, End, Event, Notice, Resume, Start
from ..metrics import shown
from ..predictor import Predictor
from ..runs import RESTORE, RunFolder
from ..spec import Spec
from . import sinks
from .config import Config, Options
from .loop import Loop, Outcome, Saver, position_of
from .protocol import Observer
from .session import Chooser, Session, check_loader, versions
from .signals import listening
from .sinks import Sink, Tracker


@dataclass(kw_only=True, eq=False)
class Run:
    """A run as it ended: its events, its model, its folder."""

    log: list[Event] = field(default_factory=list[Event])
    path: Path | None = None
    model: Predictor | None = None
    notes: tuple[str, ...] = ()
    """What was decided about the data."""
    signal: int | None = None
    """The signal that ended it early, if one did."""
    failed: bool = False
    """Whether it diverged: it ended because loss, gradient or parameters were not finite, or far out of their band."""

    def __repr__(self) -> str:
        where = "in memory" if self.path is None else str(self.path)
        end = next((event for event in reversed(self.log) if isinstance(event, End)), None)
        if end is None:
            return f"Run({where}: not ended)"
        said = [f"{end.status} after {count(end.epoch, 'epoch')}"]
        said += [f"{name} {value:.4g}" for name, value in shown(end.metrics).items()]
        return f"Run({where}: {', '.join(said)})"

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event.to_dict() for event in self.log]

    @property
    def end(self) -> End:
        return next(event for event in reversed(self.log) if isinstance(event, End))

    @property
    def metrics(self) -> dict[str, float]:
        """Those of the model, on the rows held out."""
        return self.end.metrics

    def notice(self, event: Event) -> None:
        self.log.append(event)

    def _repr_html_(self) -> str | None:
        """The report that the run left, for a notebook, apart from everything else on its page."""
        report = None if self.path is None else self.path / "report.html"
        if report is None or not report.is_file():
            return None
        page = html.escape(report.read_text(encoding="utf-8"))
        return f'<iframe srcdoc="{page}" sandbox="allow-scripts" width="100%" height="720" title="report"></iframe>'


@dataclass(frozen=True, kw_only=True, eq=False)
class Ended:
    """A run that has ended, with the data it was made of still at hand; its folder is still this process's own."""

    run: Run
    session: Session
    source: Any
    validation: Any


def fit(
    spec: Spec | str | Chooser | None,
    data: Any,
    *,
    target: str | Sequence[str] | None = None,
    group: Any = None,
    time_column: Any = None,
    sample_weight: Any = None,
    validation_weight: Any = None,
    start: Predictor | None = None,
    keep_constant: bool = False,
    run: str | Path | None = None,
    observers: Sequence[Observer] = (),
    trackers: Sequence[Any] = (),
    quiet: bool = False,
    ended: Callable[[Ended], None] | None = None,
    **options: Unpack[Options],
) -> Run:
    """Trains a network on a table and gives the run: `run.model.predict(rows)`, `run.metrics`, `run.events`.

    `spec` may be None for the plain recipe, or a `Recipe`, which chooses by the data. `data` is anything that
    holds a table, `(X, y)`, or a DataLoader of your own; `validation` is a share of its rows, None, or data of its own.
    `sample_weight` is what each row counts: a column's name, or a number for each row; `validation_weight` a number for
    each row of validation data; `group` and `time_column` are names of columns too, or values for each row. `start` is
    a model whose parameters to begin with; `keep_constant` trains on a table in which nothing varies, which is refused
    otherwise. `run` is a folder to keep everything in, so that the run survives being killed; without one it lives in
    memory. `trackers` are names
    (tensorboard, wandb, trackio, mlflow), or runs, writers and loggers of such tools. `ended` is called once the model
    is there and saved, while the data is still in memory.
    """
    chosen: dict[str, Any] = dict(options)
    chooser = None if spec is None or isinstance(spec, str | Spec) else spec
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
    source = {"target": target, "group": group, "time": time_column}
    named = sample_weight is None or isinstance(sample_weight, str)
    if validation_weight is not None and not own:
        raise OptionError("validation_weight needs validation rows of its own: validation=(X, y)")

    def numbers(config: Config) -> tables.Prepared:
        return prepare(
            read,
            config,
            **source,
            weight=sample_weight,
            validation=held_out,
            validation_weight=validation_weight,
            keep_constant=keep_constant,
        )

    prepared = numbers(config)
    if chooser is not None:
        spec, chosen_config = chooser.network(prepared, config, options.keys())
        if chosen_config.ensemble != config.ensemble:  # other parts to hold out: other rows to look at
            prepared = numbers(chosen_config)
            spec, chosen_config = chooser.network(prepared, chosen_config, {*options, "ensemble"})
        config = chosen_config
    session = Session.make(cast("Spec | str | None", spec), prepared, config)
    if run is not None and (
        start is not None
        or validation_weight is not None
        or not all(one is None or isinstance(one, str) for one in (group, time_column))
    ):
        raise OptionError(
            "a run's folder cannot hold values of rows or a model to begin with: name columns, leave out start"
        )
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
                "data": {**source, **weights, **where},
                "fingerprint": session.fingerprint(),
            },
        )
    after = None if ended is None else lambda run: ended(_ended(run, session, read, held_out))
    return _driven(session, folder, observers, tracking, quiet=quiet, after=after)


def resume(
    path: str | Path,
    *,
    data: Any = None,
    validation: Any = None,
    sample_weight: Any = None,
    observers: Sequence[Observer] = (),
    trackers: Sequence[Any] = (),
    quiet: bool = False,
    ended: Callable[[Ended], None] | None = None,
) -> Run:
    """Goes on where a run was stopped or killed, to the same bits as if it had not been.

    `data`, `validation` and `sample_weight` are needed only where they were in memory, not in files or bundled sets. A
    DataLoader of your own goes on with other batches.
    """
    with RunFolder.open(path, write=True) as folder:
        saved = folder.config
        config = Config.from_dict(saved["config"], where=str(path))
        described = dict(saved["data"])
        source, loader = described.pop("path"), described.pop("loader", False)
        own = described.pop("validation", None) is not None
        if loader and data is None:
            raise RunError(
                f"{path} was trained from a loader of your own: hand it over again, ml.resume(path, data=loader)"
            )
        if data is None and source is None:
            raise RunError(f"{path} was trained on data in memory: hand it over again, resume(path, data=…)")
        if own and validation is None:
            raise RunError(f"{path} was validated on data in memory: hand it over again, resume(path, validation=…)")
        if described.pop("weights", None) is not None:
            if sample_weight is None:
                raise RunError(
                    f"{path} was trained with weights in memory: hand them over again, ml.resume(path, sample_weight=…)"
                )
            described["weight"] = sample_weight
        elif sample_weight is not None:
            raise RunError(f"{path} knows its weights: leave out sample_weight, got {short(sample_weight)}")
        if loader and not tables.is_loader(data):
            raise RunError(f"{path} was trained from a loader: resume needs one, got {type(data).__name__}")
        held_out = validation if own else config.validation
        source = _at(source) if data is None else data
        if ended is not None and not loader:
            source = tables.read(source)
        prepared = prepare(source, config, **described, validation=held_out)
        session = Session.make(Spec.from_dict(saved["spec"]), prepared, config)
        if session.fingerprint() != saved["fingerprint"]:
            raise RunError(f"the data is not what {path} was trained on: resume needs the same rows in the same order")
        after = None if ended is None else lambda run: ended(_ended(run, session, source, held_out))
        tracking = _trackers(trackers, folder.path)
        return _driven(session, folder, observers, tracking, quiet=quiet, resumed=True, after=after)


def prepare(data: Any, config: Config, *, validation: Any, **source: Any) -> tables.Prepared:
    loss = None if config.loss == "auto" else config.loss
    dtype = np.float64 if config.dtype == "float64" else np.float32
    if tables.is_loader(data):
        check_loader(config)
        for name, value in source.items():
            if value is not None and value is not False:
                got = f"got {name}={short(value)}"
                raise OptionError(f"{name} is for tables, {got}: a loader gives rows with their target")
        return tables.prepare_loader(data, task=config.task, loss=loss, validation=validation, dtype=dtype)
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
        dtype=dtype,
        **source,
    )


def _ended(run: Run, session: Session, source: Any, validation: Any) -> Ended:
    return Ended(run=run, session=session, source=source, validation=validation)


def _in_memory(validation: Any) -> bool:
    """Whether validation is data that no configuration can hold."""
    return not (validation is None or isinstance(validation, str | int | float | np.generic))


def _trackers(given: Sequence[Any], run: Path | None) -> list[Sink]:
    """A sink for each; a library that is missing is told before there is anything of a run."""
    if isinstance(given, str):
        raise OptionError(f"trackers must be a list, got {given!r}: trackers=[{given!r}]")
    return sinks.accepted(given, run)


def _driven(
    session: Session,
    folder: RunFolder | None,
    observers: Sequence[Observer],
    tracking: Sequence[Sink],
    *,
    quiet: bool,
    resumed: bool = False,
    after: Callable[[Run], None] | None = None,
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
        notes=session.prepared.notes,
    )
    with ExitStack() as stack:
        stack.callback(getattr(session.engine, "close", lambda: None))
        stack.enter_context(display)
        if folder is not None:
            stack.enter_context(folder)
        model = None if folder is None else folder.model
        told = [stack.enter_context(Tracker(sink, model=model, warn=display.warn)) for sink in tracking]
        run = drive(session, folder, observers=[display, *observers, *told], resumed=resumed)
        if after is not None:
            after(run)
        return run


def drive(session: Session, folder: RunFolder | None, *, observers: Sequence[Observer], resumed: bool = False) -> Run:
    """Runs the loop and keeps what comes of it."""
    run = Run(path=None if folder is None else folder.path, notes=session.prepared.notes)
    watchers: list[Observer] = [run, *([] if folder is None else [_Log(folder)]), *observers]
    loop = Loop(
        plan=session.plan(),
        engine=session.engine,
        policies=session.policies(),
        observers=[_Stamped(watchers)],
        evaluate=session.evaluate,
        save=_saver(folder),
    )
    started = time.perf_counter()
    if resumed and folder is not None and _over(folder, run):
        return run
    with listening() as heard:
        loop.interrupted = heard
        if resumed and folder is not None:
            _go_back(loop, folder, run)
        if loop.told == 0:
            loop.tell(_start(session))
            for note in getattr(session.engine, "notes", ()):  # promises that do not hold
                loop.tell(Notice(step=0, message=note, remedy=""))
        outcome = loop.run()
    run.signal = heard.signal
    _finish(session, loop, outcome, run, folder, started)
    return run


def _over(folder: RunFolder, run: Run) -> bool:
    """Whether a run came to its end already; then its events and its model are what there is."""
    told = folder.events(effective=True)
    over = bool(told) and isinstance(told[-1], End) and told[-1].status != "interrupted"
    if over:
        run.log.extend(told)
        run.model = Predictor.load(folder.model)
    return over


def _finish(session: Session, loop: Loop, outcome: Outcome, run: Run, folder: RunFolder | None, started: float) -> None:
    """The best parameters become the model, and the last event tells how good it is."""
    run.failed = loop.failed
    if outcome.status != "interrupted" and loop.best is not None:
        session.engine.load(loop.best)
    elif loop.failed:  # finite, but on its way out of its senses: rather the last that was saved
        session.engine.load(loop.good.state)
    calibration = session.calibration(session.engine)
    _, metrics = session.evaluate(session.engine, calibration)
    run.model = Predictor.of(
        session.spec,
        session.prepared.encoding,
        session.engine.state(),
        averaged=session.averaged,
        members=session.members,
        calibration=calibration,
    )
    if folder is not None and outcome.status != "interrupted":
        run.model.save(folder.model)
    loop.tell(
        End(
            step=loop.position.step,
            status=outcome.status,
            reason=outcome.reason,
            epoch=loop.position.epoch,
            seconds=time.perf_counter() - started,
            metrics=metrics,
        )
    )


def _start(session: Session) -> Start:
    return Start(
        step=0,
        network=str(session.spec),
        parameters=session.spec.n_parameters,
        rows=len(session.prepared.train),
        engine=session.engine.name,
        seed=session.config.seed,
        config=session.config.to_dict(),
        versions=dict(versions()),
        task=session.prepared.encoding.task.kind,
        metric=session.metric,
        held_out=len(session.prepared.validation),
        dropped=session.prepared.dropped,
        notes=list(session.prepared.notes),
    )


def _go_back(loop: Loop, folder: RunFolder, run: Run) -> None:
    """Puts the loop where the last good checkpoint was; what was told after it did not happen."""
    found = folder.latest()
    if found is None:
        lost = any(isinstance(event, Checkpoint) and event.kind == "last" for event in folder.events())
        notes = [f"the log tells of checkpoints, but {folder.checkpoints} has none: starting anew"] if lost else []
        loop.tell(Resume(step=0, checkpoint="", kept=0, notes=notes), counted=False)
        return
    extra = found.extra
    told = folder.events(effective=True)
    if len(told) < extra["told"]:
        raise RunError(
            f"{folder.log} is cut short: it tells {len(told)} events, but the checkpoint of step {found.step} "
            f"was saved after {extra['told']}: {RESTORE}"
        )
    loop.engine.load(found.state)
    loop.position = position_of(extra)
    for policy, state in zip(loop.policies, extra["policies"], strict=True):
        policy.load(state)
    best = None if loop.position.best_step is None else folder.best(at=loop.position.best_step)
    loop.best = None if best is None else best.state
    run.log.extend(told[: extra["told"]])
    loop.told = extra["told"]
    notes = [*found.notes, *(["the loader goes on with other batches"] if not loop.plan.repeats else [])]
    resumed = Resume(step=found.step, checkpoint=found.path, kept=loop.told, notes=notes)
    loop.tell(resumed, counted=False)
    if extra["scheduled"]:
        loop.tell(found.event)


def _saver(folder: RunFolder | None) -> Saver:
    def save(state: State, extra: dict[str, Any], kind: str) -> Checkpoint:
        if folder is None:  # the loop itself keeps the state
            return Checkpoint(step=state.step, kind=cast(Any, kind), path="", sha256="")
        return folder.checkpoint(state, extra, cast(Any, kind))

    return save


def _place(data: Any) -> str | None:
    """What names the data in a run's configuration: a file's full path, a bundled set's name, nothing for memory."""
    if not isinstance(data, str | Path):
        return None
    return str(data) if means_bundled(data) else str(Path(data).resolve())


def _at(place: str) -> Any:
    """The data that `_place` named: a bundled set stays one, whatever lies where the run is resumed."""
    return bundled.load(place) if bundled.known(place) else place


class _Stamped:
    """Tells several observers of an event with the time of day, the same for all; the loop itself reads no clock."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.observers = observers

    def notice(self, event: Event) -> list[Event]:
        event = event if event.time is not None else replace(event, time=time.time())
        return [answer for observer in self.observers for answer in observer.notice(event) or ()]


class _Log:
    """Writes every event to the run's log."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder

    def notice(self, event: Event) -> None:
        self.folder.append(event)


def free_folder(name: str) -> Path:
    """The first of runs/NAME-001, runs/NAME-002, … that is not there yet."""
    for number in range(1, 1_000_000):
        path = Path("runs") / f"{name}-{number:03d}"
        if not path.exists():
            return path
    raise RunError(f"runs/{name}-… has no number left: name a folder with --run")
