"""`mlp cost`: what a network costs, as a table, JSON, CSV or a page, and the questions around it."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..costs import DTYPES, Cost
from ..costs import budget as budgets
from ..costs.budget import quantity
from ..costs.formulas import Line
from ..costs.formulas import explain as explain_
from ..costs.html import page
from ..costs.inverse import parse_sweep
from ..costs.peers import TOOLS
from ..errors import OptionError, printable, unknown_name
from ..nn.losses import LOSSES
from ..nn.optimizers import OPTIMIZERS
from . import arch as networks
from . import cost_answers as answers_
from .cost_answers import Answer
from .cost_questions import Questions, Step, answer, require_fitting
from .output import console, show, strict_json

if TYPE_CHECKING:
    from rich.console import RenderableType

_STEP, _OUTPUT, _ASK, _CHECK = "The step", "Output", "Questions", "Checks"

EPILOG = """Examples:

mlp cost 784-256-128-10 --batch 32 --optimizer adam --rows 60000

mlp cost 784-256-128-10 --convention textbook --explain

mlp cost "13+cat(3,12)-256:gelu-1" --memory 2GB --json

mlp cost 784-256-10 --sweep batch=1..4096 --plot sweep.svg

mlp cost net.json --budget flops=1e9,memory=100MB"""


def _names(names: Iterable[str]) -> Callable[[str], list[str]]:
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}."


def _flag(name: str, text: str, panel: str) -> Any:
    return typer.Option(name, help=text, rich_help_panel=panel, metavar="")


def cost(
    arch: Annotated[str, typer.Argument(metavar="ARCH", help=networks.HELP, show_default=False)],
    batch: Annotated[int, typer.Option(metavar="N", help="Rows in a batch.", rich_help_panel=_STEP)] = 32,
    optimizer: Annotated[
        str,
        typer.Option(
            metavar="NAME", help=_listed(OPTIMIZERS), autocompletion=_names(OPTIMIZERS), rich_help_panel=_STEP
        ),
    ] = "adam",
    loss: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=f"{_listed(LOSSES)} auto is cross_entropy, or mse for one output.",
            autocompletion=_names(("auto", *LOSSES)),
            rich_help_panel=_STEP,
        ),
    ] = "auto",
    engine: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="torch or fused: whose memory is counted.",
            autocompletion=_names(("torch", "fused")),
            rich_help_panel=_STEP,
        ),
    ] = "torch",
    dtype: Annotated[
        str,
        typer.Option(metavar="NAME", help=_listed(DTYPES), autocompletion=_names(DTYPES), rich_help_panel=_STEP),
    ] = "float32",
    rows: Annotated[
        int | None, typer.Option(metavar="N", help="Rows of the data: adds an epoch.", rich_help_panel=_STEP)
    ] = None,
    convention: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="actual counts what a step does, textbook what textbooks charge.",
            autocompletion=_names(("actual", "textbook")),
            rich_help_panel=_STEP,
        ),
    ] = "actual",
    activation: Annotated[
        str,
        typer.Option(metavar="NAME", help="The one implied between plain widths.", rich_help_panel=_STEP),
    ] = "relu",
    l2: Annotated[bool, _flag("--l2", "With an L2 penalty.", _STEP)] = False,
    clip: Annotated[bool, _flag("--clip", "With gradients clipped by norm.", _STEP)] = False,
    average: Annotated[bool, _flag("--average", "With an average of the weights.", _STEP)] = False,
    as_json: Annotated[bool, _flag("--json", "Print JSON.", _OUTPUT)] = False,
    as_csv: Annotated[bool, _flag("--csv", "Print CSV: a line per layer and a total.", _OUTPUT)] = False,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page that needs nothing else.", rich_help_panel=_OUTPUT),
    ] = None,
    explain: Annotated[bool, _flag("--explain", "The formula beside each number.", _OUTPUT)] = False,
    verify: Annotated[
        bool, _flag("--verify", "Check the closed forms against PyTorch; exit 1 if they differ.", _CHECK)
    ] = False,
    measure: Annotated[bool, _flag("--measure", "Time a real step and predict it.", _CHECK)] = False,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="LIMITS",
            help="Exit 1 if over, such as flops=1e9,memory=100MB,parameters=1M.",
            rich_help_panel=_CHECK,
        ),
    ] = None,
    tool: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="TOOL",
            help=f"What a tool would report, and why: {_listed(TOOLS)}",
            autocompletion=_names(TOOLS),
            rich_help_panel=_CHECK,
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="The largest batch within it: 2GB, 512MiB.", rich_help_panel=_ASK),
    ] = None,
    flops: Annotated[
        str | None,
        typer.Option(metavar="N", help="The widest and deepest network within 1e9 a step.", rich_help_panel=_ASK),
    ] = None,
    parameters: Annotated[
        str | None,
        typer.Option(metavar="N", help="The widest and deepest network within 10M.", rich_help_panel=_ASK),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(metavar="N", help="Time for so many epochs of --rows.", rich_help_panel=_ASK),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(metavar="RANGE", help="batch=1..4096 or width=16..1024.", rich_help_panel=_ASK),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the sweep: .svg, .png or .pdf.", rich_help_panel=_ASK)
    ] = None,
) -> None:
    """What one training step of a network costs: parameters, FLOPs, bytes.

    Counted, not estimated, layer by layer: forward and backward by part, loss, optimiser, memory and an epoch.
    """
    if as_json + as_csv + (html is not None) > 1:
        raise OptionError("at most one of --json, --csv and --html may be given")
    if tool is not None and tool not in TOOLS:
        raise OptionError(unknown_name("tool", tool, TOOLS))
    asked = Questions(
        memory=None if memory is None else quantity(memory, what="memory", unit="bytes"),
        flops=None if flops is None else quantity(flops, what="flops", unit="flops"),
        parameters=None if parameters is None else quantity(parameters, what="parameters"),
        epochs=epochs,
        sweep=None if sweep is None else parse_sweep(sweep),
        plot=plot,
        tool=tool,
        verify=verify,
        measure=measure,
    )
    if (html is not None or as_csv) and asked.any and not (as_csv and asked.only_sweep):
        raise OptionError("--html and --csv hold the account (--csv also a sweep); print other answers or use --json")
    limits = {} if budget is None else budgets.parse(budget)
    step = Step(
        batch=batch,
        optimizer=optimizer,
        loss=loss,
        engine=engine,
        dtype=dtype,
        rows=rows,
        convention=convention,
        l2=l2,
        clip=clip,
        average=average,
    )
    require_fitting(step, asked)
    spec = networks.read_network(arch, activation)
    found = step.cost(spec)
    items = budgets.check(found, limits)
    answers = [*answer(spec, step, asked), *([answers_.budget(items)] if items else [])]
    lines = explain_(found) if explain else ()

    if as_json:
        typer.echo(_json(found, lines, answers), nl=False)
    elif as_csv:
        typer.echo(_csv(_sheet(found, lines, answers if asked.any else [])), nl=False)
    elif html is not None:
        from ..core import atomic_files

        atomic_files.write(html, page(found, lines).encode())
        typer.echo(f"wrote {printable(str(html))}")
    else:
        _print(found, lines, answers, questions=asked.any)
    budgets.require(items)
    if not all(item.ok for item in answers):
        raise typer.Exit(1)


def _print(found: Cost, lines: Sequence[Line], answers: Sequence[Answer], *, questions: bool) -> None:
    from . import cost_table

    out = console()
    parts: list[RenderableType] = []
    if lines:
        parts += [cost_table.heading(found), "", *cost_table.explanation(lines)]
    elif questions:
        parts.append(cost_table.heading(found))
    else:
        parts += cost_table.account(found, out)
    for item in answers:
        parts += ["", item.shown]
    show(out, *parts)


def _json(found: Cost, lines: Sequence[Line], answers: Sequence[Answer]) -> str:
    """The account, and under keys of their own the formulas and the answers that were asked for."""
    data = found.to_dict()
    if lines:
        data["explain"] = [asdict(line) for line in lines]
    data |= {item.key: item.data for item in answers}
    return strict_json(data) + "\n"


def _sheet(found: Cost, lines: Sequence[Line], answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """Rows of equal keys: a sweep, the formulas, or a line per layer, the loss and a total."""
    if answers:
        return answers[0].data
    if lines:
        return [asdict(line) for line in lines]
    rows: list[dict[str, Any]] = []
    for row in found.to_dict()["layers"]:
        sides = {f"{s}.{part}": value for s in ("forward", "backward") for part, value in row[s].items()}
        rows.append({"layer": row["name"], "what": row["what"], "parameters": row["parameters"], **sides})
    numbers = [key for key in rows[0] if key not in ("layer", "what")]
    total = {key: sum(row[key] for row in rows) for key in numbers}
    loss = dict.fromkeys(numbers, 0) | {"forward.total": int(found.loss.forward)}
    total["forward.total"] = found.forward
    rows.append({"layer": "loss", "what": found.loss.name, **loss})
    rows.append({"layer": "total", "what": str(found.spec), **total})
    return rows


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
