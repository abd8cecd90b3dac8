"""`mlp train`: from a table to a trained model in one command. Its options are the fields of `Config`."""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from ..errors import OptionError, printable
from ..runs.config import Config, hints
from ..training.recipe import defaults
from . import arch as networks
from .output import console

if typing.TYPE_CHECKING:
    from ..training.fit import Run

EPILOG = """Examples:

mlp train digits

mlp train people.csv --target income --epochs 50 --run runs/people

mlp train people.csv --target income --hidden 128,128 --activation gelu --dropout 0.1

mlp train table.parquet --target y --arch 12-64-64-1 --patience 10 --json

mlp train digits --live

Ctrl-C saves and stops; mlp resume RUN continues, with a bit-identical result."""

_SIGNALLED = 128
_COMMA = re.compile(r",(?![^(]*\))")
"""Between activations, not between the constants of one."""

Categorical = Annotated[
    list[str] | None,
    typer.Option(metavar="COL", help="A column of categories, whatever it looks like; may be repeated."),
]
Track = Annotated[
    list[str] | None,
    typer.Option(metavar="TRACKER", help="Log to tensorboard, wandb, trackio or mlflow too; may be repeated."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress: only what was decided and how it ended.")]
AsJson = Annotated[bool, typer.Option("--json", help="Stream every event as a line of JSON.")]


def _options() -> list[inspect.Parameter]:
    """One option for each field of Config; None means: as the TOML file or the default has it."""
    known, tables = hints(), {name: _shown(value) for name, value in defaults().items()}
    found: list[inspect.Parameter] = []
    for field in fields(Config):
        kind = _plain(known[field.name])
        default = "auto" if field.metadata["auto"] else _shown(field.default)
        if tables.get(field.name, default) != default:
            default = f"tables: {tables[field.name]}, otherwise {default}"
        name = field.name.replace("_", "-")
        option = typer.Option(
            f"--{name}/--no-{name}" if kind is bool and field.default is not False else f"--{name}",
            help=f"{field.metadata['help']}  [default: {default}]".replace("[default", "\\[default"),
            show_default=False,
            metavar={int: "N", float: "X", str: "TEXT", bool: None}[kind],
            rich_help_panel="Training",
        )
        found.append(
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
            )
        )
    return found


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return " or ".join(map(_shown, cast("tuple[Any, ...]", value)))
    return "none" if value is None else str(value)


def _plain(hint: Any) -> Any:
    """The one type that the command line reads for a field; `validation` is read as text and then as what it is."""
    options = [option for option in typing.get_args(hint) or (hint,) if option is not type(None)]
    return str if str in options else options[0]


def _with_options(function: Callable[..., None]) -> Callable[..., None]:
    """The function with the fields of Config as options of its own, for typer to read."""
    own = [p for p in inspect.signature(function, eval_str=True).parameters.values() if p.kind is not p.VAR_KEYWORD]
    own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    function.__signature__ = inspect.Signature([*own, *_options()])  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in (*own, *_options())}
    return function


def train(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A table, or the name of a bundled set.")] = "digits",
    target: Annotated[str | None, typer.Option(metavar="COL", help="The column to predict; several by commas.")] = None,
    arch: Annotated[str | None, typer.Option(metavar="ARCH", help="The network; from the task unless given.")] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Without --arch: tabular, or plain (one network, 256 and 128 GELU units).  \\[default: tabular]",
            show_default=False,
        ),
    ] = None,
    hidden: Annotated[
        str | None, typer.Option(metavar="N,N,…", help="Widths of the tabular recipe's hidden layers.")
    ] = None,
    activation: Annotated[
        str | None, typer.Option(metavar="NAME", help="The recipe's activation, or one for each layer by commas.")
    ] = None,
    dropout: Annotated[float | None, typer.Option(metavar="X", help="The recipe's dropout.")] = None,
    run: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where to keep everything; runs/NAME-001, …")
    ] = None,
    group: Annotated[str | None, typer.Option(metavar="COL", help="Rows of a group stay on one side.")] = None,
    time_column: Annotated[str | None, typer.Option("--time", metavar="COL", help="Hold out the latest rows.")] = None,
    weight: Annotated[str | None, typer.Option(metavar="COL", help="What each row counts; no input.")] = None,
    categorical: Categorical = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE.toml", help="Options from a file.")] = None,
    track: Track = None,
    live: Annotated[bool, typer.Option("--live", help="Open the report in the browser while it trains.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Trains a network on a table and keeps the run: model, report, log, checkpoints.

    The data is read, typed and split; the task is inferred and said. What is held out tells how good the model is.
    """
    from ..runs import numbered
    from ..training.fit import fit

    chosen: dict[str, Any] = Config.from_toml(config) if config is not None else {}
    chosen |= {name: _value(name, value) for name, value in options.items() if value is not None}
    categories = chosen.pop("categorical", ())
    Config.from_dict(chosen, where=str(config) if config is not None else "options")
    targets: Any = target if target is None or "," not in target else [part.strip() for part in target.split(",")]
    name = Path(data).name.split(".")[0] or "run"
    with numbered(name) if run is None else nullcontext(run) as folder, watched(folder) if live else nullcontext():
        done = fit(
            None if arch is None else networks.read_network(arch),
            data,
            recipe=recipe,
            hidden=None if hidden is None else _widths(hidden),
            activation=None if activation is None else _functions(activation),
            dropout=dropout,
            target=targets,
            group=group,
            time_column=time_column,
            sample_weight=weight,
            categorical=categorical or categories,
            run=folder,
            observers=events_as_json(as_json),
            trackers=track or (),
            quiet=quiet or as_json,
            **typing.cast(Any, chosen),
        )
    tell(done, quiet=quiet, as_json=as_json)


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
    """What a text of the command line means where a field takes more than text."""
    if name != "validation":
        return value
    if value in ("none", "auto"):
        return None if value == "none" else value
    try:
        return float(value)
    except ValueError:
        return value


def events_as_json(wanted: bool) -> Sequence[Any]:
    if not wanted:
        return ()
    from ..training.progress import JsonLines

    return (JsonLines(sys.stdout),)


def watched(folder: Path) -> AbstractContextManager[None]:
    """A page that shows the run while it trains."""
    import webbrowser

    from ..pages.report.live import watching

    return watching(folder, say=lambda text: typer.echo(printable(text), err=True), open_page=webbrowser.open)


def tell(done: Run, *, quiet: bool, as_json: bool) -> None:
    """How a run ended: how good it is, what it cost, where it is. Exits with the code of the signal that stopped it,
    and with 1 where it diverged."""
    if not as_json:
        out = console()
        for line in _summary(done, quiet=quiet):
            out.print(printable(line), soft_wrap=True)
    if done.signal is not None:
        raise typer.Exit(_SIGNALLED + done.signal)
    if done.failed:
        raise typer.Exit(1)


def _summary(done: Run, *, quiet: bool) -> list[str]:
    """What the display has not said; everything where there was none."""
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
        lines.append(f"go on with: mlp resume {done.path}")
    return lines


train = _with_options(train)
