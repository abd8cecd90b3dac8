"""`fit` and `resume`: train a model on data, and resume a run that was stopped.

    prepare the data → choose network, engine, plan → loop → best parameters → model file

A run without a folder keeps its events and its best state in memory. Everything else is the same.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack, cast

from ..core.formatting import count
from ..data import DataOptions, TrainingData, is_loader
from ..data.options import DataKeywords
from ..engines.protocol import LossFunction
from ..errors import OptionError, RunError, option, option_name, unknown_name, warn
from ..models.trained_model import TrainedModel
from ..runs import RunFolder
from ..runs.config import Config, Options
from ..runs.events import NO_MISTAKES, End, Event
from ..runs.stored_data import LOSS_FUNCTION, CommandSource, command_source, from_stored, read_once, stored
from ..spec import Spec
from .inputs import check_order, check_storable, encode, in_memory
from .policies import Observer
from .recipe import Network, Recipe, choose, complete, options_for
from .run import Run, TrainingProgress, run_training, write_report
from .setup import Setup

if TYPE_CHECKING:
    from .trackers import Tracker

AUTO = tuple(field.name for field in fields(Config) if field.metadata["auto"])
"""Options for which None means that the program chooses the value, as if the option was not given."""
DATA = frozenset(DataKeywords.__annotations__)
"""Options of `fit` that describe the data."""
FEW_STEPS = 20
"""Number of steps below which a model has hardly been trained. Only a time limit leads to so few steps by default."""


Quiet = bool | Literal["auto"]


class FitOptions(DataKeywords, Options, total=False):
    """The options of `fit` for data and training."""


OPTIONS = DATA | frozenset(field.name for field in fields(Config))
"""Names that `fit` accepts in `options`."""


def fit(
    spec: Spec | str | Recipe | None,
    data: Any = None,
    *,
    recipe: str | None = None,
    hidden: int | Sequence[int] | None = None,
    activation: str | Sequence[str] | None = None,
    dropout: float | None = None,
    start: TrainedModel | None = None,
    run: str | Path | None = None,
    observers: Sequence[Observer] = (),
    trackers: Sequence[Any] = (),
    quiet: Quiet = False,
    report: bool = True,
    each_epoch: Callable[[TrainingProgress], bool] | None = None,
    **options: Unpack[FitOptions],
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
        How to choose the network without a `spec`. ``"plain"`` is ``ml.mlp`` with its default widths, GELU and
        dropout. Images and loaders always get the plain network.
    hidden, activation, dropout : optional
        Changes to the network of the tabular recipe: widths of the hidden layers, activation (one name, or one per
        hidden layer) and dropout rate.
    start : TrainedModel, optional
        Model that provides the initial parameters.
    run : str or Path, optional
        Folder for configuration, events, checkpoints and model. A run with a folder can be resumed after it was
        stopped or killed. By default, the run is kept in memory.
    observers : sequence of Observer
        Objects that receive every event.
    trackers : sequence
        Names of trackers (``"tensorboard"``, ``"wandb"``, ``"trackio"``, ``"mlflow"``), or a run, writer or logger
        that you created with one of these libraries.
    quiet : bool or "auto"
        Whether to print nothing. ``"auto"`` shows only the progress of a run that takes longer than five seconds, with
        the remaining time, and removes it at the end; only in a terminal or a notebook.
    report : bool
        Whether to write the report into the folder `run`.
    each_epoch : callable, optional
        Function called before the first epoch and after each epoch. Its argument has the number of finished epochs as
        ``epoch`` and the current model as ``model()``. Training stops if it returns True.
    target : str or sequence of str, optional
        Target column or columns of the table.
    group, time_column : str or array, optional
        Column, or one value per row. Rows of one group are held out together; with `time_column`, the latest rows are
        held out.
    categorical : str or iterable of str, optional
        Columns to treat as categories, whatever their values are: ``["zip"]``, or ``["0"]`` for the first column of an
        array. None is the same as no columns, but messages do not recommend this option.
    sample_weight, sample_weight_val : str or array, optional
        Sample weights: the name of a column (`sample_weight` only), or one number per row. A weight column is not used
        as an input.
    keep_constant : bool or "all"
        Whether to train on a table in which every column is constant. By default, this is an error. With ``"all"``,
        each constant column is an input that is always 0; by default, this is so only if `spec` is a network that
        takes exactly as many inputs as the data has with its constant columns.
    classes : sequence, optional
        All classes of the target. Use it if the rows may lack some of them.
    **options
        Fields of `Config`, such as ``epochs=20`` or ``learning_rate=0.01``. ``validation`` is a fraction of the rows,
        None, or separate data. ``loss`` may be a function in torch, ``loss(z, y)``, from raw outputs and encoded
        targets to the loss of each row. Only training uses it: the validation loss is that of the task.

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
    check_order(spec, data)
    given = given_options("fit", _PARAMETERS, options)
    if given.loss_function is not None and run is not None:
        raise OptionError("a loss function cannot be saved in a run folder: train without run=, then save the model")
    if run is not None:
        check_storable(given.data, start=start)
    shape = Recipe(hidden=hidden, activation=activation, dropout=dropout)
    table, made = read_and_choose(spec, data, recipe=recipe, shape=shape, given=given, began=began)
    setup = Setup.make(made.spec, made.prepared, made.config, began=began, loss_function=given.loss_function)
    for note in made.prepared.warnings:
        warn(note)
    if made.config.patience is not None and not len(made.prepared.validation):
        warn(f"{option_name('patience')} has no effect: no rows are held out; set {option('validation', '0.2')}")
    if start is not None:
        setup.load_start(start)
    tracking = _trackers(trackers, None if run is None else Path(run))
    folder = None if run is None else RunFolder.create(run, config=_saved(setup, made.options, data))
    with _watching(setup, folder, observers, tracking, quiet=quiet) as watching:
        done = run_training(
            setup,
            folder,
            observers=watching,
            each_epoch=each_epoch,
            source=_command_source(made.options, data, start=start, loss_function=given.loss_function),
            fresh=start is None,
            diagnosed=folder is not None or quiet is False or bool(observers or tracking),
        )
        _warn_of_few_steps(setup, done, planned=made.shortened)
        if report:
            write_report(done, setup, folder, table, made.options.validation(made.config), quiet=bool(quiet))
    return done


def resume(
    path: str | Path,
    *,
    data: Any = None,
    validation: Any = None,
    sample_weight: Any = None,
    observers: Sequence[Observer] = (),
    trackers: Sequence[Any] = (),
    quiet: Quiet = False,
    report: bool = True,
    each_epoch: Callable[[TrainingProgress], bool] | None = None,
) -> Run:
    """Resume a stopped or killed run. The result is bit-identical to that of an uninterrupted run.

    A run that has ended is returned as it is, also if a time limit or `each_epoch` ended it. To train its model
    further, pass it to `fit` as `start`. If the model file of an ended run was deleted, it is rebuilt from the
    checkpoints.

    Parameters
    ----------
    path : str or Path
        Folder of the run.
    data, validation, sample_weight : optional
        The same values as in `fit`. They are needed only if they were in memory, not in files or bundled data sets. A
        DataLoader of your own may give other batches than before; the result then differs.
    observers, trackers, quiet, report, each_epoch
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
    ...     resumed = ml.resume(f"{folder}/iris", quiet=True)      # returned as it is, because it has ended
    >>> resumed.metrics == run.metrics
    True
    """
    began = time.monotonic()
    with RunFolder.open(path, write=True) as folder:
        saved = folder.config_with("config", "data", "fingerprint", "spec")
        config, spec = Config.from_dict(saved["config"], where=str(path)), Spec.from_dict(saved["spec"])
        source, options = from_stored(
            saved["data"], path, data=data, validation=validation, sample_weight=sample_weight
        )
        table = read_once(source)
        options = replace(options, inputs=spec.inputs, outputs=spec.d_out)
        setup = Setup.make(spec, encode(table, options, config), config, began=began)
        if not setup.matches(saved["fingerprint"]):
            raise RunError(
                f"the data differs from the training data of {path}: resume needs the same rows in the same order"
            )
        for note in setup.prepared.warnings:
            warn(note)
        tracking, past = _trackers(trackers, folder.path), folder.events(effective=True)
        _warn_if_ended(path, past)
        with _watching(setup, folder, observers, tracking, quiet=quiet, past=past) as watching:
            done = run_training(
                setup,
                folder,
                observers=watching,
                resumed=True,
                each_epoch=each_epoch,
                source=command_source(saved["data"]),
            )
            _warn_of_few_steps(setup, done, planned=False)
            if report:
                validated = options.validation(config)
                write_report(done, setup, folder, table, validated, quiet=bool(quiet), resumed=True)
        return done


def _warn_if_ended(path: str | Path, events: Sequence[Event]) -> None:
    """Warn that a run which ended before its last epoch is not continued."""
    end = events[-1] if events else None
    if isinstance(end, End) and end.status in ("stopped", "failed") and end.reason != NO_MISTAKES:
        warn(
            f"{path} has ended, {end.reason}, so it is returned as it is: to train its model further, pass it to "
            "ml.fit as start"
        )


_PARAMETERS = [name for name in inspect.signature(fit).parameters if name not in ("spec", "data", "options")]
"""Options of `fit` that are not in `OPTIONS`."""


class GivenOptions(NamedTuple):
    """The options that the user set: those of the data, those of training, and a loss function."""

    data: DataOptions
    training: dict[str, Any]
    loss_function: LossFunction | None


def given_options(function: str, parameters: Sequence[str], options: Mapping[str, Any]) -> GivenOptions:
    """Check and divide the keywords of a function that trains. `parameters` are its keywords besides `OPTIONS`."""
    for name in options:
        if name not in OPTIONS:
            raise OptionError(f"{function}: {unknown_name('option', name, [*parameters, *OPTIONS])}")
    keywords: dict[str, Any] = dict(options)
    data = DataOptions(**cast(Any, {name: keywords.pop(name) for name in DATA if name in keywords}))
    loss_function = keywords.pop("loss") if callable(keywords.get("loss")) else None
    if loss_function is not None and keywords.setdefault("engine", "torch") != "torch":
        raise OptionError(f"a loss function needs the torch engine, got engine={keywords['engine']!r}: omit engine")
    training = {name: value for name, value in keywords.items() if value is not None or name not in AUTO}
    return GivenOptions(data, training, loss_function)


class Choice(NamedTuple):
    """The training data, the network and the options of a run.

    `shortened` is True if the number of epochs was reduced to fit into a time limit. `members` is the number of
    networks that the options ask for, also if only one of them is trained.
    """

    prepared: TrainingData
    spec: Spec
    config: Config
    options: DataOptions
    shortened: bool
    members: int


def read_and_choose(
    spec: Spec | str | Recipe | None,
    data: Any,
    *,
    recipe: str | None,
    shape: Recipe,
    given: GivenOptions,
    began: float,
    single: bool = False,
) -> tuple[Any, Choice]:
    """Return the table, and what a run on it trains: encoded data, network and options.

    With `single`, an ensemble is replaced by one network.
    """
    spec = Spec.parse(spec) if isinstance(spec, str) else spec
    inputs, outputs = (spec.inputs, spec.d_out) if isinstance(spec, Spec) else (None, None)
    network = choose(spec, recipe, shape, loss=str(given.training.get("loss", "auto")), loader=is_loader(data))
    table = read_once(data)
    options = replace(given.data, inputs=inputs, outputs=outputs)
    return table, _choose(network, table, options, given.training, began, single=single)


def _choose(
    network: Network,
    table: Any,
    options: DataOptions,
    set_options: Mapping[str, Any],
    began: float,
    *,
    single: bool,
) -> Choice:
    """Encode the data, and choose the network and all options, with fewer members if the time limit is short."""
    settings: dict[str, Any] = {**options_for(network, table), **set_options}
    members = settings.get("ensemble", 1)
    if single:
        settings["ensemble"] = 1
    if in_memory(settings.get("validation")):
        options, settings["validation"] = replace(options, validation_data=settings["validation"]), None
    elif options.sample_weight_val is not None:
        raise OptionError("sample_weight_val needs separate validation data: pass validation=(X, y)")
    config, shortened, reading = Config.from_dict(settings, where="fit"), False, time.monotonic()
    prepared = encode(table, options, config)
    spec, chosen, note = complete(network, prepared, config, set_options.keys())
    if isinstance(network, Recipe) and not network.trial and config.time_limit is not None:
        from .time_budget import within_limit

        preparing, fewer = time.monotonic() - reading, "ensemble" not in set_options
        found = within_limit(spec, prepared, chosen, began=began, preparing=preparing, fewer=fewer)
        if found.config.ensemble != config.ensemble:  # each member then holds out other rows
            config = replace(config, ensemble=found.config.ensemble)
            prepared = encode(table, options, config)
            spec, chosen, note = complete(network, prepared, config, set_options.keys())
            found = within_limit(
                spec, prepared, chosen, began=began, preparing=preparing, fewer=False, start=found.start
            )
        chosen, shortened = found.config, found.shortened
    prepared = replace(prepared, notes=(*prepared.notes, *([note] if note else [])))
    return Choice(prepared, spec, chosen, options, shortened, members)


def _saved(setup: Setup, options: DataOptions, data: Any) -> dict[str, Any]:
    """Return the configuration of a run folder."""
    return {
        "config": setup.config.to_dict(),
        "effective": setup.effective(),
        "spec": setup.spec.to_dict(),
        "data": stored(options, data),
        "fingerprint": setup.fingerprint(),
    }


def _command_source(
    options: DataOptions, data: Any, *, start: TrainedModel | None, loss_function: LossFunction | None
) -> CommandSource:
    """Return the table as words of a command, and which options the command does not have."""
    only_here = {"classes": options.classes, LOSS_FUNCTION: loss_function, "start": start}
    return command_source(
        stored(options, data), missing=[name for name, value in only_here.items() if value is not None]
    )


def _trackers(given: Sequence[Any], run: Path | None) -> list[Tracker]:
    """Return a tracker for each name or object. A missing library is an error before the run folder exists."""
    if isinstance(given, str):
        raise OptionError(f"trackers must be a list, got {given!r}: trackers=[{given!r}]")
    if not given:
        return []
    from .trackers import accepted

    return accepted(given, run)


@contextmanager
def _watching(
    setup: Setup,
    folder: RunFolder | None,
    observers: Sequence[Observer],
    tracking: Sequence[Tracker],
    *,
    quiet: Quiet,
    past: Iterable[Event] = (),
) -> Generator[list[Observer]]:
    """Open the progress display and the trackers. At the end, close them, the folder and the engine."""
    from .progress import ProgressDisplay

    plan = setup.plan
    display = ProgressDisplay(
        plan.steps,
        plan.epochs,
        plan.steps_per_epoch,
        metric=plan.metric,
        larger=plan.larger,
        quiet=quiet,
        past=past,
        notes=[note for note in setup.prepared.notes if note not in setup.prepared.warnings],
        why=setup.why_torch,
    )
    with ExitStack() as stack:
        stack.callback(setup.engine.close)
        stack.enter_context(display)
        if folder is not None:
            stack.enter_context(folder)
        model = None if folder is None else folder.model
        tracked: list[Observer] = []
        if tracking:
            from .trackers import TrackerObserver

            tracked = [stack.enter_context(TrackerObserver(one, model=model, warn=display.warn)) for one in tracking]
        yield [display, *observers, *tracked]


def _warn_of_few_steps(setup: Setup, run: Run, *, planned: bool) -> None:
    """Warn if a time limit left too few steps. `planned` is True if the number of epochs was reduced to fit into it."""
    limit, plan = setup.config.time_limit, setup.plan
    cut = run.timed_out or (planned and run.end.status == "finished")
    if limit is None or not cut or run.end.step >= max(FEW_STEPS, -(-len(plan.rows) // plan.batch)):
        return
    warn(
        f"{option_name('time_limit')} of {limit:g} s was enough for only {count(run.end.step, 'step')}, so the model "
        "has hardly been trained: allow more time"
    )
