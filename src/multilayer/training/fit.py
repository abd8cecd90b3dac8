"""`fit` and `resume`: from data to a trained model, with a run that loses nothing.

    prepare the data → choose network, engine, plan → loop → best parameters → model file

A run without a folder keeps its events and checkpoints in memory; everything else is the same.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack, cast

import numpy as np

from .. import data as tables
from ..engine import State
from ..errors import RunError
from ..events import Checkpoint, End, Event, Resume, Start
from ..predictor import Predictor
from ..runs import RunFolder
from ..spec import Spec
from .config import Config, Options
from .loop import Loop, Outcome, Saver, position_of
from .protocol import Observer
from .session import Session, versions
from .signals import listening


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


def fit(
    spec: Spec | str | None,
    data: Any,
    *,
    target: str | Sequence[str] | None = None,
    group: str | None = None,
    time_column: str | None = None,
    run: str | Path | None = None,
    observers: Sequence[Observer] = (),
    quiet: bool = False,
    **options: Unpack[Options],
) -> Run:
    """Trains a network on a table and gives the run: `run.model.predict(rows)`, `run.metrics`, `run.events`.

    `spec` may be None for the plain recipe. `data` is anything that holds a table, or `(X, y)`. `run` is a folder to
    keep everything in, so that the run survives being killed; without one it lives in memory.
    """
    config = Config(**options)
    source = {"target": target, "group": group, "time": time_column}
    session = Session.make(spec, prepare(data, config, **source), config)
    folder = None
    if run is not None:
        folder = RunFolder.create(
            Path(run),
            config={
                "config": config.to_dict(),
                "spec": session.spec.to_dict(),
                "data": {**source, "path": _place(data)},
                "fingerprint": session.fingerprint(),
            },
        )
    return _driven(session, folder, observers, quiet=quiet)


def resume(path: str | Path, *, data: Any = None, observers: Sequence[Observer] = (), quiet: bool = False) -> Run:
    """Goes on where a run was stopped or killed, to the same bits as if it had not been.

    `data` is needed only where the run was not made from a file or a bundled set.
    """
    with RunFolder.open(path, write=True) as folder:
        saved = folder.config
        config = Config.from_dict(saved["config"], where=str(path))
        described = dict(saved["data"])
        source = described.pop("path")
        if data is None and source is None:
            raise RunError(f"{path} was trained on data in memory: hand it over again, resume(path, data=…)")
        prepared = prepare(source if data is None else data, config, **described)
        session = Session.make(Spec.from_dict(saved["spec"]), prepared, config)
        if session.fingerprint() != saved["fingerprint"]:
            raise RunError(f"the data is not what {path} was trained on: resume needs the same rows in the same order")
        return _driven(session, folder, observers, quiet=quiet, resumed=True)


def prepare(data: Any, config: Config, **source: Any) -> tables.Prepared:
    return tables.prepare(
        data,
        task=config.task,
        loss=None if config.loss == "auto" else config.loss,
        validation=config.validation,
        seed=config.seed,
        class_weight=config.class_weight,
        augment=None if config.augment is None else config.augment.split("+"),
        dtype=np.float64 if config.dtype == "float64" else np.float32,
        **source,
    )


def _driven(
    session: Session, folder: RunFolder | None, observers: Sequence[Observer], *, quiet: bool, resumed: bool = False
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
    )
    with display, folder or nullcontext():
        return drive(session, folder, observers=[display, *observers], resumed=resumed)


def drive(session: Session, folder: RunFolder | None, *, observers: Sequence[Observer], resumed: bool = False) -> Run:
    """Runs the loop and keeps what comes of it."""
    run = Run(path=None if folder is None else folder.path, notes=session.prepared.notes)
    watchers: list[Observer] = [run, *([] if folder is None else [_Log(folder)]), *observers]
    loop = Loop(
        plan=session.plan(),
        engine=session.engine,
        policies=session.policies(),
        observers=watchers,
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
    if outcome.status != "interrupted" and loop.best is not None:
        session.engine.load(loop.best)
    _, metrics = session.evaluate(session.engine)
    state = session.engine.state()
    run.model = Predictor.of(session.spec, session.prepared.encoding, state, averaged=session.averaged)
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
        versions=versions(),
    )


def _go_back(loop: Loop, folder: RunFolder, run: Run) -> None:
    """Puts the loop where the last good checkpoint was; what was told after it did not happen."""
    found = folder.latest()
    if found is None:
        loop.tell(Resume(step=0, checkpoint="", kept=0, notes=[]), counted=False)
        return
    extra = found.extra
    loop.engine.load(found.state)
    loop.position = position_of(extra)
    for policy, state in zip(loop.policies, extra["policies"], strict=True):
        policy.load(state)
    best = None if loop.position.best_step is None else folder.best(at=loop.position.best_step)
    loop.best = None if best is None else best.state
    run.log.extend(folder.events(effective=True)[: extra["told"]])
    loop.told = extra["told"]
    resumed = Resume(step=found.step, checkpoint=found.path, kept=loop.told, notes=list(found.notes))
    loop.tell(resumed, counted=False)
    if extra["scheduled"]:
        loop.tell(found.event)


def _saver(folder: RunFolder | None) -> Saver:
    def save(state: State, extra: dict[str, Any], kind: str) -> Checkpoint | None:
        return None if folder is None else folder.checkpoint(state, extra, cast(Any, kind))

    return save


def _place(data: Any) -> str | None:
    """What names the data in a run's configuration: a file's full path, a bundled set's name, nothing for memory."""
    if not isinstance(data, str | Path):
        return None
    return str(Path(data).resolve()) if Path(data).exists() else str(data)


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
