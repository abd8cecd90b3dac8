"""One run of the loop: its events, its model and its report, and where a killed run resumes.

The report is written last, while the data is in memory and the folder is locked. If it cannot be written, a warning is
raised, and the run is not affected.
"""

from __future__ import annotations

import html
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..core import atomic_files
from ..core.formatting import clock, count, number
from ..data.targets import Class
from ..diagnostics import Diagnosis, Finding, diagnose
from ..diagnostics.display import findings_in, html_table
from ..diagnostics.history import History
from ..diagnostics.rows import Samples
from ..engines import State
from ..errors import MultilayerError, RunError, warn
from ..models.evaluation_rows import EvaluationRows, held_out_rows
from ..models.importance import most_rows
from ..models.metrics import shown
from ..models.trained_model import TrainedModel
from ..runs import RESTORE, RunFolder
from ..runs.checkpoints import Kind
from ..runs.events import (
    NO_MISTAKES,
    Checkpoint,
    End,
    EpochEnd,
    Event,
    FindingEvent,
    NonFinite,
    Notice,
    Resume,
    Spike,
    Start,
)
from ..runs.stored_data import ANY_TABLE, CommandSource
from .loop import Loop, Outcome, position_of
from .policies import Action, Continue, Observer, Stop, any_measures
from .setup import Setup, versions
from .signals import catch_signals

_LARGEST_PAGE = 1 << 28
"""Largest report that a notebook shows, in bytes."""


@dataclass(kw_only=True, eq=False)
class Run:
    """The result of `ml.fit` and `ml.resume`: a trained model, its metrics, and the events of training.

    A notebook shows the report of a run with a folder, and a table for a run in memory.

    Attributes
    ----------
    model : TrainedModel
        The trained model: the parameters of the best epoch.
    metrics : dict
        Metrics of the model on the held-out rows. Empty if no rows are held out.
    events : list of dict
        All events of the run in order, as in ``events.jsonl``.
    path : Path or None
        Folder of the run. None for a run in memory.
    notes : tuple of str
        Decisions about the data, such as dropped columns.
    end : End
        The last event, with the status, the reason and the number of epochs.
    untrained : tuple
        Classes without a training row after the split.
    failed : bool
        Whether training diverged.
    timed_out : bool
        Whether the time limit stopped training.
    signal : int or None
        Number of the signal that stopped the run, if any.

    Examples
    --------
    >>> import multilayer as ml
    >>> run = ml.fit("4-8-3", "iris", epochs=2, quiet=True)
    >>> run.end.status, run.end.epoch
    ('finished', 2)
    >>> [event["event"] for event in run.events if event["event"] != "progress"]
    ['start', 'epoch', 'epoch', 'checkpoint', 'end']
    """

    log: list[Event] = field(default_factory=list[Event])
    """The events as objects."""
    path: Path | None = None
    model: TrainedModel | None = None
    notes: tuple[str, ...] = ()
    signal: int | None = None
    failed: bool = False
    timed_out: bool = False
    untrained: tuple[Class, ...] = ()
    held_out: EvaluationRows | None = field(default=None, repr=False)
    """Some of the held-out rows, encoded, for the importance of the columns."""
    samples: Samples | None = field(default=None, repr=False)
    """Some of the training and held-out rows, encoded, for the diagnosis."""
    source: CommandSource = field(default=ANY_TABLE, repr=False)
    """The table and its columns as words of a command."""
    fresh: bool = field(default=True, repr=False)
    """Whether training began with the initial weights of the configuration."""

    def __repr__(self) -> str:
        where = "in memory" if self.path is None else str(self.path)
        end = next((event for event in reversed(self.log) if isinstance(event, End)), None)
        if end is None:
            return f"Run({where}: not ended)"
        parts = [f"{end.status} after {count(end.epoch, 'epoch')}"]
        parts += [f"{name} {value:.4g}" for name, value in shown(end.metrics).items()]
        return f"Run({where}: {', '.join(parts)})"

    @property
    def events(self) -> list[dict[str, Any]]:
        """All events of the run in order, as dictionaries."""
        return [event.to_dict() for event in self.log]

    @property
    def end(self) -> End:
        """The last event of the run."""
        return next(event for event in reversed(self.log) if isinstance(event, End))

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of the model on the held-out rows."""
        return self.end.metrics

    @cached_property
    def diagnosis(self) -> Diagnosis | None:
        """What went wrong in training, as from `ml.check`. None for a run that was interrupted or loaded."""
        if self.samples is None or self.model is None:
            return None
        return diagnose(
            self.model, self.samples, History.of(self.log), source=self.source, fresh=self.fresh, full=False
        )

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What went wrong in training. Empty for a healthy run."""
        if self.samples is None:  # the run had ended before
            return tuple(Finding.from_dict(event.finding) for event in self.log if isinstance(event, FindingEvent))
        return () if self.diagnosis is None else self.diagnosis.findings

    def _repr_html_(self) -> str:
        """Return the report for a notebook, in a sandboxed frame, or a table if the run has no report."""
        report = None if self.path is None else self.path / "report.html"
        if report is None or report.is_symlink() or not report.is_file():
            return self._html_table()
        page = html.escape(atomic_files.read(report, limit=_LARGEST_PAGE, root=self.path).decode("utf-8"))
        return f'<iframe srcdoc="{page}" sandbox="allow-scripts" width="100%" height="720" title="report"></iframe>'

    def _html_table(self) -> str:
        """Return tables with the network, the result, the metrics and the findings."""
        start = next((event for event in self.log if isinstance(event, Start)), None)
        end = next((event for event in reversed(self.log) if isinstance(event, End)), None)
        lines: dict[str, str] = {"run": "in memory" if self.path is None else str(self.path)}
        if start is not None:
            lines["network"] = start.network if self.model is None else self.model.networks
            lines["rows"] = f"{start.rows:,} for training, {start.held_out or 0:,} held out"
        if end is not None:
            lines["result"] = f"{end.status} after {count(end.epoch, 'epoch')} in {clock(end.seconds)}"
            lines |= {name: number(value) for name, value in shown(end.metrics).items()}
        rows = [f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>" for name, text in lines.items()]
        return f"<table>{''.join(rows)}</table>{html_table(findings_in(self.log))}"


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingProgress:
    """Argument of the callback `each_epoch`.

    `epoch` of `epochs` are done. `model()` returns the model with the current parameters.
    """

    epoch: int
    epochs: int
    model: Callable[[], TrainedModel]


def run_training(
    setup: Setup,
    folder: RunFolder | None,
    *,
    observers: Sequence[Observer],
    resumed: bool = False,
    each_epoch: Callable[[TrainingProgress], bool] | None = None,
    source: CommandSource = ANY_TABLE,
    fresh: bool = True,
    diagnosed: bool = True,
) -> Run:
    """Run the loop, and return the run with its model and events.

    `source` and `fresh` are those of `Run`. `diagnosed` is whether the findings become events. Otherwise, they are
    computed when `run.findings` is first read.
    """
    callbacks = [] if each_epoch is None else [_EpochCallback(setup, each_epoch)]
    run = Run(
        path=None if folder is None else folder.path,
        notes=setup.prepared.notes,
        untrained=setup.prepared.untrained,
        source=source,
        fresh=fresh,
    )
    loop = Loop(
        plan=setup.plan,
        spec=setup.spec,
        engine=setup.engine,
        policies=setup.policies(),
        callbacks=[one.decide for one in callbacks],
        observers=[_Recorder(run, folder, observers)],
        evaluate=setup.evaluate,
        save=_keep_in_memory if folder is None else folder.checkpoint,
    )
    started = time.perf_counter()
    if resumed and folder is not None and _load_if_ended(setup, loop, folder, run):
        return run
    for one in callbacks:
        one.begin()
    with catch_signals() as caught:
        loop.interrupted = caught
        if resumed and folder is not None:
            _restore_checkpoint(loop, folder, run)
        if loop.emitted == 0:
            loop.emit(_start(setup, folder))
            for note in setup.engine.notes:  # guarantees that this engine cannot give
                loop.emit(Notice(step=0, message=note, remedy=""))
        outcome = loop.run()
    run.signal = caught.signal
    _finish(setup, loop, outcome, run, folder, started, diagnosed=diagnosed)
    return run


def _load_if_ended(setup: Setup, loop: Loop, folder: RunFolder, run: Run) -> bool:
    """Return whether the run has ended. If so, load its events and its model; rebuild a model file that was deleted."""
    emitted = folder.events(effective=True)
    end = emitted[-1] if emitted else None
    if not isinstance(end, End) or end.status == "interrupted":
        return False
    if not any(isinstance(event, Start) for event in emitted):
        raise RunError(f"{folder.log} must begin with a start event, got only an end event: {RESTORE}")
    if os.path.lexists(folder.model):
        run.model = TrainedModel.load(folder.model, root=folder.path)
        if run.model.spec != setup.spec:
            raise RunError(f"{folder.model} must contain the network {setup.spec}, got {run.model.spec}: {RESTORE}")
    else:
        _load_final(setup, loop, folder, [one for one in emitted if not isinstance(one, FindingEvent)], end)
        run.model = setup.model(setup.calibration(setup.engine))
        run.model.save(folder.model)
    run.log.extend(emitted)
    return True


def _load_final(setup: Setup, loop: Loop, folder: RunFolder, emitted: list[Event], end: End) -> None:
    """Load the state from which the model of an ended run was made."""
    saved = [event for event in emitted if isinstance(event, Checkpoint) and event.kind == "best"]
    if saved and end.reason != NO_MISTAKES:
        found = folder.best(at=end.step)
        if found is None or found.event.sha256 != saved[-1].sha256:
            raise RunError(f"{folder.path}: the model cannot be rebuilt without {saved[-1].path}: {RESTORE}")
        setup.engine.load(found.state)
        return
    # If no epoch was evaluated, the model is the last state, or the last checkpoint if training diverged.
    found = folder.latest()
    if found is not None:
        setup.engine.load(found.state)
        loop.position = position_of(found.extra)
    if len(emitted) > 1 and isinstance(emitted[-2], NonFinite | Spike):
        return
    if loop.position.step < end.step:
        plan = replace(loop.plan, checkpoint_every=end.step)  # training stops exactly at this step
        again = replace(loop, plan=plan, policies=(), callbacks=(), observers=(), save=lambda *_: None)
        again.interrupted = lambda: signal.SIGTERM if again.position.step >= end.step else None
        again.run()


def _finish(
    setup: Setup, loop: Loop, outcome: Outcome, run: Run, folder: RunFolder | None, started: float, *, diagnosed: bool
) -> None:
    """Make the model from the best parameters, evaluate and save it, and emit the last event."""
    run.failed, run.timed_out = loop.failed, outcome.timed_out
    if loop.best is not None and outcome.reason != NO_MISTAKES:
        setup.engine.load(loop.best)
    elif loop.failed:  # the current parameters are finite, but training has diverged; the last checkpoint is better
        setup.engine.load(loop.good.state)
    calibration = setup.calibration(setup.engine)
    _, metrics = setup.evaluate(setup.engine, calibration)
    run.model = setup.model(calibration)
    run.held_out = held_out_rows(run.model, setup.prepared, most=most_rows(setup.prepared.data.x.shape[1]))
    if outcome.status != "interrupted":
        if folder is not None:
            run.model.save(folder.model)
        for finding in _found(run, setup, diagnosed=diagnosed):
            loop.emit(FindingEvent(step=loop.position.step, finding=finding.to_dict()))
    loop.emit(
        End(
            step=loop.position.step,
            status=outcome.status,
            reason=outcome.reason,
            epoch=loop.position.epoch,
            seconds=time.perf_counter() - started,
            metrics=metrics,
        )
    )


def _found(run: Run, setup: Setup, *, diagnosed: bool) -> tuple[Finding, ...]:
    """Keep rows for the diagnosis, and return its findings if `diagnosed`. An error in it never destroys a training."""
    assert run.model is not None
    try:
        run.samples = Samples.of_training(run.model, setup.prepared)
        return run.findings if diagnosed else ()
    except (Exception, KeyboardInterrupt) as error:
        run.samples = None
        warn(f"the model is complete, but its training could not be checked: {type(error).__name__}: {error}")
        return ()


class _EpochCallback:
    """Call a function of the user after each epoch. It can stop training."""

    def __init__(self, setup: Setup, each_epoch: Callable[[TrainingProgress], bool]) -> None:
        self.setup, self.each_epoch = setup, each_epoch
        self.epochs = setup.plan.epochs

    def begin(self) -> None:
        self._stops(0)

    def decide(self, event: Event) -> Action:
        stops = isinstance(event, EpochEnd) and self._stops(event.epoch)
        return Stop(reason="a callback stopped training") if stops else Continue()

    def _stops(self, epoch: int) -> bool:
        setup = self.setup
        model = lambda: setup.model(setup.calibration(setup.engine))  # noqa: E731
        return bool(self.each_epoch(TrainingProgress(epoch=epoch, epochs=self.epochs, model=model)))


def _start(setup: Setup, folder: RunFolder | None) -> Start:
    return Start(
        step=0,
        network=str(setup.spec),
        parameters=setup.spec.n_parameters,
        rows=len(setup.prepared.train),
        engine=setup.engine.name,
        seed=setup.config.seed,
        config=setup.config.to_dict(),
        versions=dict(versions()),
        task=setup.prepared.encoding.task.kind,
        metric=setup.metric,
        held_out=len(setup.prepared.validation),
        dropped=setup.prepared.dropped,
        notes=list(setup.prepared.notes),
        run="" if folder is None else folder.id,
    )


def _restore_checkpoint(loop: Loop, folder: RunFolder, run: Run) -> None:
    """Set the loop to the last valid checkpoint, and emit a `Resume` event that supersedes later events."""
    found = folder.latest()
    folder.rewind(0 if found is None else found.step)
    if found is None:
        lost = any(isinstance(event, Checkpoint) and event.kind == "last" for event in folder.events())
        notes = [f"the log lists checkpoints, but {folder.checkpoints} has none: training starts again"] if lost else []
        loop.emit(Resume(step=0, checkpoint="", kept=0, notes=notes), counted=False)
        return
    extra = found.extra
    emitted = folder.events(effective=True)
    if len(emitted) < extra["told"]:
        raise RunError(
            f"{folder.log} is incomplete: it has {len(emitted)} events, but the checkpoint of step {found.step} "
            f"was saved after {extra['told']} events: {RESTORE}"
        )
    loop.engine.load(found.state)
    loop.position = position_of(extra)
    for policy, state in zip(loop.policies, extra["policies"], strict=True):
        policy.load(state)
    best = None if loop.position.best_step is None else folder.best(at=loop.position.best_step)
    loop.best = None if best is None else best.state
    run.log.extend(emitted[: extra["told"]])
    loop.emitted = extra["told"]
    notes = [*found.notes, *(["the data loader returns other batches than before"] if not loop.plan.repeats else [])]
    resumed = Resume(step=found.step, checkpoint=found.path, kept=loop.emitted, notes=notes)
    loop.emit(resumed, counted=False)
    if extra["scheduled"]:
        loop.emit(found.event)


def _keep_in_memory(state: State, extra: dict[str, Any], kind: Kind) -> Checkpoint:
    """Save nothing: the loop itself keeps the state."""
    return Checkpoint(step=state.step, kind=kind, path="", sha256="")


class _Recorder:
    """Add every event to the run and to the log of its folder, then pass it to the observers.

    The event gets its time here, so that all of them receive the same time.
    """

    def __init__(self, run: Run, folder: RunFolder | None, observers: Sequence[Observer]) -> None:
        self.run, self.folder, self.observers = run, folder, observers
        self.measures = any_measures(observers)

    def notice(self, event: Event) -> list[Event]:
        event = event if event.time is not None else replace(event, time=time.time())
        self.run.log.append(event)
        if self.folder is not None:
            self.folder.append(event)
        return [answer for observer in self.observers for answer in observer.notice(event) or ()]


# Report

REPORT_MESSAGE_SECONDS = 1.0
"""Seconds after which a message says that the report is still being written."""
IMPORTANCE_SECONDS_AFTER_SIGNAL = 0.1
"""Seconds for column importance if a signal stopped the run."""


def write_report(
    run: Run,
    setup: Setup,
    folder: RunFolder | None,
    source: Any,
    validation: Any,
    *,
    quiet: bool,
    resumed: bool = False,
) -> None:
    """Write report.json and report.html into the run's folder, if it has one.

    The log file of a `resumed` run is read, because it also has the events that were superseded.
    """
    if folder is None or run.model is None:
        return
    message = threading.Timer(
        REPORT_MESSAGE_SECONDS, print, args=["writing the report …"], kwargs={"file": sys.stderr, "flush": True}
    )
    message.daemon = True
    if not quiet:
        message.start()
    try:
        from ..pages.report import report

        found = report.of_run(
            run.model,
            setup.prepared,
            source,
            validation,
            metric=setup.metric,
            seconds=report.SECONDS if run.signal is None else IMPORTANCE_SECONDS_AFTER_SIGNAL,
        )
        found["predicted"] = report.predicted_seconds(
            setup.spec, setup.config.to_dict(), setup.effective(), setup.engine.name, setup.members
        )
        report.write(folder, folder.events() if resumed else run.log, run.model, found)
    except (MultilayerError, OSError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        warn(f"the run is complete, but its report could not be written: {error}")
    except (KeyboardInterrupt, MemoryError) as error:
        warn(f"the run is complete, but has no report: {type(error).__name__}; mlp report {run.path} makes it")
    finally:
        message.cancel()
