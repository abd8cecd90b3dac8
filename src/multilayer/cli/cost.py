"""`mlp cost`: the cost of a training step as a table, JSON, CSV or an HTML page, and questions about it."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..core.formatting import listed
from ..costs import DTYPES, Cost
from ..costs import budget as budgets
from ..costs.budget import quantity
from ..costs.formulas import Line
from ..costs.formulas import explain as explain_
from ..costs.html import page
from ..costs.inverse import parse_sweep
from ..costs.memory import ENGINES
from ..costs.tool_comparison import TOOLS
from ..costs.transformer import parse_context
from ..errors import OptionError, printable, unknown_name
from ..nn.losses import LOSSES
from ..nn.optimizers import OPTIMIZERS
from . import arch as networks
from . import cost_answers as answers_
from .cost_answers import Answer
from .cost_questions import Questions, Step, answer, fixed_options, require_fitting
from .options import OUTPUT, Arch, AsJson, ImpliedActivation, flag, option
from .output import console, show, strict_json

if TYPE_CHECKING:
    from rich.console import RenderableType

_STEP, _CHECK, _ASK = "Training step", "Checks", "Questions"

EXAMPLES = (
    "mlp cost 784-256-128-10 --batch 32 --optimizer adam --rows 60000",
    "mlp cost 784-256-128-10 --convention textbook --explain",
    'mlp cost "13+cat(3,12)-256:gelu-1" --memory 2GB --json',
    "mlp cost 784-256-10 --sweep batch=1..4096 --plot sweep.svg",
    "mlp cost 768-3072:gelu-768 --batch 1 --context 512,heads=12",
    "mlp cost net.json --budget flops=1e9,memory=100MB",
)


def _of_run(name: str) -> str:
    """Return the default of an option that the network of a run has, as text for the help."""
    return f"{next(field.default for field in fields(Step) if field.name == name)}, or as in the run"


def cost(
    arch: Arch,
    activation: ImpliedActivation = "relu",
    batch: Annotated[
        int | None, option("--batch", text="Rows per batch.", metavar="N", panel=_STEP, default=_of_run("batch"))
    ] = None,
    optimizer: Annotated[
        str | None,
        option(
            "--optimizer",
            text=f"Optimizer: {listed(OPTIMIZERS)}.",
            metavar="NAME",
            panel=_STEP,
            default=_of_run("optimizer"),
            complete=OPTIMIZERS,
        ),
    ] = None,
    loss: Annotated[
        str,
        option(
            "--loss",
            text=f"Loss: {listed(LOSSES)}. auto is the loss of a trained model; for a network, it is mse with one "
            "output, otherwise cross_entropy.",
            metavar="NAME",
            panel=_STEP,
            default=True,
            complete=("auto", *LOSSES),
        ),
    ] = "auto",
    engine: Annotated[
        str | None,
        option(
            "--engine",
            text=f"Engine whose memory is counted: {listed(ENGINES)}.",
            metavar="NAME",
            panel=_STEP,
            default=_of_run("engine"),
            complete=ENGINES,
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        option(
            "--dtype",
            text=f"Number format: {listed(DTYPES)}.",
            metavar="NAME",
            panel=_STEP,
            default=_of_run("dtype"),
            complete=DTYPES,
        ),
    ] = None,
    rows: Annotated[
        int | None,
        option("--rows", text="Rows of the training data, to add the cost of an epoch.", metavar="N", panel=_STEP),
    ] = None,
    convention: Annotated[
        str,
        option(
            "--convention",
            text="Convention: actual counts what a step computes, textbook follows the textbook formulas.",
            metavar="NAME",
            panel=_STEP,
            default=True,
            complete=("actual", "textbook"),
        ),
    ] = "actual",
    l2: Annotated[bool, flag("--l2", text="Add an L2 penalty.", panel=_STEP)] = False,
    clip: Annotated[bool, flag("--clip", text="Add gradient clipping by norm.", panel=_STEP)] = False,
    average: Annotated[bool, flag("--average", text="Add a moving average of the weights.", panel=_STEP)] = False,
    memory: Annotated[
        str | None,
        option("--memory", text="Find the largest batch that fits into 2GB, 512MiB, …", metavar="SIZE", panel=_ASK),
    ] = None,
    flops: Annotated[
        str | None,
        option(
            "--flops",
            text="Find the widest and the deepest network within N FLOPs per step, such as 1e9.",
            metavar="N",
            panel=_ASK,
        ),
    ] = None,
    parameters: Annotated[
        str | None,
        option(
            "--parameters",
            text="Find the widest and the deepest network within N parameters, such as 10M.",
            metavar="N",
            panel=_ASK,
        ),
    ] = None,
    epochs: Annotated[
        int | None, option("--epochs", text="Estimate the time for N epochs of --rows.", metavar="N", panel=_ASK)
    ] = None,
    sweep: Annotated[
        str | None,
        option(
            "--sweep",
            text="Compute the cost over a range: batch=1..4096 or width=16..1024.",
            metavar="RANGE",
            panel=_ASK,
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        option("--plot", text="Save a plot of the sweep as .svg, .png or .pdf.", metavar="FILE", panel=_ASK),
    ] = None,
    context: Annotated[
        str | None,
        option(
            "--context",
            text="For a transformer block d → f → d, also count the attention: 512 (tokens), or 512,heads=12.",
            metavar="LENGTH",
            panel=_ASK,
        ),
    ] = None,
    tool: Annotated[
        str | None,
        option(
            "--as",
            text=f"Show what another tool reports, and why it differs: {listed(TOOLS)}.",
            metavar="TOOL",
            panel=_ASK,
            complete=TOOLS,
        ),
    ] = None,
    verify: Annotated[
        bool,
        flag("--verify", text="Compare the counts with PyTorch. Exit with 1 if they differ.", panel=_CHECK),
    ] = False,
    measure: Annotated[
        bool, flag("--measure", text="Compare the predicted and the measured time of a step in PyTorch.", panel=_CHECK)
    ] = False,
    budget: Annotated[
        str | None,
        option(
            "--budget",
            text="Exit with 1 if the cost exceeds a limit: flops=1e9,memory=100MB,parameters=1M.",
            metavar="LIMITS",
            panel=_CHECK,
        ),
    ] = None,
    explain: Annotated[bool, flag("--explain", text="Print the formula next to each number.")] = False,
    as_json: AsJson = False,
    as_csv: Annotated[bool, flag("--csv", text="Print CSV with a line per layer and a total.")] = False,
    html: Annotated[
        Path | None, option("--html", text="Save the tables as an HTML page.", metavar="FILE", panel=OUTPUT)
    ] = None,
) -> None:
    """Compute the parameters, FLOPs and bytes of a training step.

    The numbers are exact counts per layer: forward and backward pass by part, loss, optimizer and memory. With --rows,
    the cost of an epoch is included. If ARCH is a run, the options of its training are the defaults.
    """
    if as_json + as_csv + (html is not None) > 1:
        raise OptionError("at most one of --json, --csv and --html can be used, got several: omit the others")
    if tool is not None and tool not in TOOLS:
        raise OptionError(unknown_name("tool", tool, TOOLS))
    questions = Questions(
        memory=None if memory is None else quantity(memory, what="memory", unit="bytes"),
        flops=None if flops is None else quantity(flops, what="flops", unit="flops"),
        parameters=None if parameters is None else quantity(parameters, what="parameters"),
        epochs=epochs,
        sweep=None if sweep is None else parse_sweep(sweep),
        plot=plot,
        context=None if context is None else parse_context(context),
        tool=tool,
        verify=verify,
        measure=measure,
    )
    if (html is not None or as_csv) and questions.any and not (as_csv and questions.only_sweep):
        raise OptionError("--html and --csv contain only the cost (--csv also a sweep): omit them, or use --json")
    limits = {} if budget is None else budgets.parse(budget)
    named = {"batch": batch, "optimizer": optimizer, "engine": engine, "dtype": dtype}
    given: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    given |= {name: True for name, value in {"l2": l2, "clip": clip, "average": average}.items() if value}
    given |= {"loss": loss} if loss != "auto" else {}
    step = Step(rows=rows, convention=convention, **given)
    require_fitting(step, questions)
    spec, trained = networks.read_network_and_options(arch, activation)
    of_run = {name: value for name, value in trained.items() if name == "loss" or name not in fixed_options(questions)}
    step = replace(step, **{**of_run, **given})
    found = step.cost(spec)
    items = budgets.check(found, limits)
    answers = [*answer(spec, step, questions), *([answers_.budget(items)] if items else [])]
    lines = explain_(found) if explain else ()

    if as_json:
        typer.echo(_json(found, lines, answers), nl=False)
    elif as_csv:
        typer.echo(_csv(_sheet(found, lines, answers if questions.any else [])), nl=False)
    elif html is not None:
        from ..core import atomic_files

        atomic_files.write(html, page(found, lines).encode())
        typer.echo(f"saved: {printable(str(html))}")
    else:
        _print(found, lines, answers, questions=questions.any)
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
    """Return the cost as JSON, with further keys for the formulas and the answers to questions."""
    data = found.to_dict()
    if lines:
        data["explain"] = [asdict(line) for line in lines]
    data |= {item.key: item.data for item in answers}
    return strict_json(data) + "\n"


def _sheet(found: Cost, lines: Sequence[Line], answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """Return the rows of the CSV: a sweep, the formulas, or one row per layer, the loss and the total."""
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
