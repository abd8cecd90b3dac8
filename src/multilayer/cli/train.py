"""`mlp train`: train a model on a table. The training options are the fields of `Config`."""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from ..core.formatting import listed
from ..errors import OptionError, printable
from ..runs.config import Config, hints
from ..spec.networks import HIDDEN as PLAIN_HIDDEN
from ..training.recipe import ACTIVATION, DROPOUT, HIDDEN, defaults
from . import arch as networks
from .options import (
    DATA,
    MACHINE,
    NETWORK,
    OUTPUT,
    Categorical,
    EventsAsJson,
    Group,
    Quiet,
    SampleWeight,
    Target,
    TimeColumn,
    Track,
    class_weights,
    columns_in,
    flag,
    option,
)
from .output import console

if typing.TYPE_CHECKING:
    from ..training.fit import Run

EXAMPLES = (
    "mlp train digits --live",
    "mlp train people.csv --target income --epochs 50 --run runs/people",
    "mlp train people.csv --target income --hidden 128,128 --activation gelu",
    "mlp train table.parquet --target y --arch 12-64-64-1 --patience 10 --json",
)
NOTE = """Ctrl-C saves the run and stops. mlp resume RUN continues it. The result is bit-identical to an
uninterrupted run."""

_SIGNALLED = 128
_COMMA = re.compile(r",(?![^(]*\))")
"""Matches a comma between two activations, but no comma between the constants of an activation."""

_STEPS, _LENGTH = "Optimization", "Length of training"
PANELS = {
    DATA: ("validation", "augment", "task", "class_weight", "scaling"),
    NETWORK: ("init", "ensemble", "calibrate"),
    _STEPS: (
        *("optimizer", "loss", "learning_rate", "schedule", "weight_decay", "decay_schedule", "dropout_schedule"),
        *("l2", "clip_norm", "clip_value", "average", "batch_size", "on_spike", "rollbacks", "rates"),
    ),
    _LENGTH: ("epochs", "epoch_rows", "metric", "patience", "time_limit"),
    MACHINE: ("engine", "seed", "dtype", "device", "compile", "threads"),
    OUTPUT: ("checkpoint_every", "statistics_every"),
}
"""Fields of `Config` by panel, in the order of the help."""

Network = Annotated[
    str | None,
    option(
        "--arch",
        text="Network to train. Constant columns are dropped, unless it has an input for each of them.",
        metavar="ARCH",
        panel=NETWORK,
        default="by the recipe",
    ),
]
RecipeName = Annotated[
    str | None,
    option(
        "--recipe",
        text="How to choose the network without --arch: tabular, or plain (layers of "
        f"{listed(PLAIN_HIDDEN, 'and')} units).",
        metavar="NAME",
        panel=NETWORK,
        default="tabular for tables, otherwise plain",
    ),
]
Hidden = Annotated[
    str | None,
    option(
        "--hidden",
        text="Widths of the hidden layers in the tabular recipe.",
        metavar="N,N,…",
        panel=NETWORK,
        default=",".join(map(str, HIDDEN)),
    ),
]
HiddenActivation = Annotated[
    str | None,
    option(
        "--activation",
        text="Activation in the tabular recipe, or one per hidden layer, separated by commas.",
        metavar="NAME",
        panel=NETWORK,
        default=" or ".join(dict.fromkeys(ACTIVATION.values())),
    ),
]
HiddenDropout = Annotated[
    float | None,
    option(
        "--dropout",
        text="Dropout rate in the tabular recipe.",
        metavar="X",
        panel=NETWORK,
        default=str(DROPOUT),
    ),
]
"""Options that choose the network, as `fit` takes them."""


def _options(panels: Mapping[str, Sequence[str]]) -> list[inspect.Parameter]:
    """Return an option for each field of `Config`. None means the value of the TOML file, or else the default."""
    known, tables = hints(), {name: _shown(value) for name, value in defaults().items()}
    options, found = {field.name: field for field in fields(Config)}, list[inspect.Parameter]()
    for panel, field in ((panel, options[name]) for panel, names in panels.items() for name in names):
        kind = _plain(known[field.name])
        default = "auto" if field.metadata["auto"] else _shown(field.default)
        if tables.get(field.name, default) != default:
            default = f"{tables[field.name]} for tables, otherwise {default}"
        name = field.name.replace("_", "-")
        described = typer.Option(
            f"--{name}/--no-{name}" if kind is bool and field.default is not False else f"--{name}",
            help=field.metadata["help"],
            show_default=default,
            metavar={int: "N", float: "X", str: "TEXT", bool: None}[kind],
            rich_help_panel=panel,
        )
        found.append(
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, described]
            )
        )
    return found


def _shown(value: Any) -> str:
    """Return a default as text for the help."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " or ".join(map(_shown, cast("tuple[Any, ...]", value)))
    return "none" if value is None else str(value)


def _plain(hint: Any) -> Any:
    """Return the type that the command line reads for a field. `validation` is read as a string and converted later."""
    options = [option for option in typing.get_args(hint) or (hint,) if option is not type(None)]
    return str if str in options else options[0]


def with_options(function: Callable[..., None], panels: Mapping[str, Sequence[str]]) -> Callable[..., None]:
    """Add fields of `Config` to the signature of the function, which typer reads."""
    declared = inspect.signature(function, eval_str=True).parameters.values()
    own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in declared if p.kind is not p.VAR_KEYWORD]
    order = [None, *dict.fromkeys((*panels, *PANELS))]
    everything = sorted(
        (*own, *_options(panels)), key=lambda p: order.index(p.annotation.__metadata__[0].rich_help_panel)
    )
    function.__signature__ = inspect.Signature(everything)  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in everything}
    return function


def train(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A table, or the name of a bundled data set.")] = "digits",
    target: Target = None,
    group: Group = None,
    time_column: TimeColumn = None,
    sample_weight: SampleWeight = None,
    categorical: Categorical = None,
    arch: Network = None,
    recipe: RecipeName = None,
    hidden: Hidden = None,
    activation: HiddenActivation = None,
    dropout: HiddenDropout = None,
    run: Annotated[
        Path | None,
        option("--run", text="Folder of the run.", metavar="FOLDER", panel=OUTPUT, default="runs/NAME-001, …"),
    ] = None,
    config: Annotated[Path | None, option("--config", text="Read options from a file.", metavar="FILE.toml")] = None,
    track: Track = None,
    live: Annotated[bool, flag("--live", text="Open the report in the browser during training.")] = False,
    quiet: Quiet = False,
    as_json: EventsAsJson = False,
    **options: Any,
) -> None:
    """Train a network on a table, and save the run.

    The command infers the column types and the task, and holds out rows to measure the quality of the model. The folder
    of the run contains the model, a report, the log and checkpoints.
    """
    from ..runs import numbered
    from ..training.fit import fit

    chosen, categories = chosen_options(config, options)
    name = Path(data).name.split(".")[0] or "run"
    with numbered(name) if run is None else nullcontext(run) as folder, watched(folder) if live else nullcontext():
        done = fit(
            None if arch is None else networks.read_network(arch),
            data,
            recipe=recipe,
            **shape(hidden, activation, dropout),
            target=columns_in(target),
            group=group,
            time_column=time_column,
            sample_weight=sample_weight,
            categorical=categorical or categories,
            run=folder,
            observers=events_as_json(as_json),
            trackers=track or (),
            quiet=quiet or as_json,
            **typing.cast(Any, chosen),
        )
    print_result(done, quiet=quiet, as_json=as_json)


def chosen_options(config: Path | None, options: Mapping[str, Any]) -> tuple[dict[str, Any], Sequence[str]]:
    """Return the fields of `Config` from a file and from the command line, and the categorical columns of the file."""
    chosen: dict[str, Any] = Config.from_toml(config) if config is not None else {}
    chosen |= {name: _value(name, value) for name, value in options.items() if value is not None}
    categories = chosen.pop("categorical", ())
    Config.from_dict(chosen, where=str(config) if config is not None else "options")
    return chosen, categories


def shape(hidden: str | None, activation: str | None, dropout: float | None) -> dict[str, Any]:
    """Return the changes to the network of the recipe, as `fit` takes them."""
    return {
        "hidden": None if hidden is None else _widths(hidden),
        "activation": None if activation is None else _functions(activation),
        "dropout": dropout,
    }


def _functions(text: str) -> str | list[str]:
    """Parse one activation, or one for each hidden layer."""
    names = [part.strip() for part in _COMMA.split(text)]
    return names[0] if len(names) == 1 else names


def _widths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise OptionError(f"--hidden must be widths such as 128,128, got {text!r}") from None


def _value(name: str, value: Any) -> Any:
    """Convert the string of an option: --validation is a number, none or auto; --class-weight can be a mapping."""
    if name == "class_weight":
        return class_weights(value)
    if name != "validation":
        return value
    if value in ("none", "auto"):
        return None if value == "none" else value
    try:
        return float(value)
    except ValueError:
        return value


def events_as_json(enabled: bool) -> Sequence[Any]:
    """Return the observer that prints events as JSON, or nothing."""
    if not enabled:
        return ()
    from ..training.progress import JsonLines

    return (JsonLines(sys.stdout),)


def watched(folder: Path) -> AbstractContextManager[None]:
    """Serve a page that shows the run during training."""
    import webbrowser

    from ..pages.report.live import watching

    return watching(folder, say=lambda text: typer.echo(printable(text), err=True), open_page=webbrowser.open)


def print_result(done: Run, *, quiet: bool, as_json: bool) -> None:
    """Print the metrics, the cost and the files of a run. Exit with 1 if it diverged, with 128 + n after signal n."""
    from ..diagnostics.display import findings_in, print_findings

    if not as_json:
        out = console()
        if quiet:  # otherwise, the progress display has printed them
            print_findings(out, findings_in(done.log))
        for line in _summary(done, quiet=quiet):
            out.print(printable(line), soft_wrap=True)
    if done.signal is not None:
        raise typer.Exit(_SIGNALLED + done.signal)
    if done.failed:
        raise typer.Exit(1)


def _summary(done: Run, *, quiet: bool) -> list[str]:
    """Return the lines that the progress display has not printed. With `quiet`, these are all lines."""
    from ..core.formatting import count, flops
    from ..costs import cost
    from ..models.metrics import shown

    end, lines = done.end, list[str]()
    if quiet:
        lines += [f"data: {note}" for note in done.notes]
        if done.model is not None:
            times = f"{len(done.model.members)} × " if len(done.model.members) > 1 else ""
            lines.append(f"network: {times}{done.model.spec}, {times}{done.model.spec.n_parameters:,} parameters")
        lines.append(f"{end.status}: {end.reason}, after {count(end.epoch, 'epoch')} and {count(end.step, 'step')}")
    if figures := shown(done.metrics):
        lines.append("on held-out rows: " + ", ".join(f"{name} {value:.4g}" for name, value in figures.items()))
    if done.model is not None:
        row = len(done.model.members) * cost(done.model.spec, batch=1).forward
        lines.append(f"cost: {flops(row)} to predict a row, {end.seconds:.1f} s to train")
    if done.path is not None and done.signal is None:
        lines.append(f"model: {done.path / 'model.safetensors'}")
        lines += [f"report: {done.path / 'report.html'}"] if (done.path / "report.html").exists() else []
    elif done.path is not None:
        lines.append(f"to continue: mlp resume {done.path}")
    return lines


train = with_options(train, PANELS)
