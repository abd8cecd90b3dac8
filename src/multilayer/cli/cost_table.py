"""An account of cost for people: tables of the forward and the backward pass, then totals, memory and an epoch.

Numbers are exact wherever they fit the width, and short (12.8M) where they do not; totals are always both. A table of
very many layers shows its ends and one line that adds up what is between them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ..core.formatting import compact, flops, signed, size
from ..costs.count import Cost
from ..costs.formulas import Line, legend
from ..errors import printable
from ..nn.layers import Backward, Forward
from .drawing import share_bar
from .output import held

MOST_ROWS = 60
_BAR, _SMALL_BAR = 24, 8

Number = Callable[[int], str]


def exact(value: int) -> str:
    return f"{int(value):,}"


def short(value: int) -> str:
    return compact(int(value))


@dataclass(frozen=True)
class Shown:
    """A line of the tables: a row of the account, or several added up."""

    name: str
    what: str
    parameters: int
    forward: Forward
    backward: Backward


def heading(cost: Cost) -> Text:
    chosen = (
        f"batch {cost.batch:,} · {printable(cost.optimizer)} · {cost.loss.name} · {cost.dtype} · {cost.engine} engine"
    )
    name = str(cost.spec)
    name = name if len(name) <= 400 else f"{name[:200]} … {name[-190:]}"
    return Text.assemble((name, "bold"), "\n", (f"{chosen} · {cost.convention} convention", "dim"), overflow="fold")


def account(cost: Cost, console: Console) -> list[RenderableType]:
    rows = shown_rows(cost)
    tables = [
        _fitting(lambda number, _: _forward(cost, rows, number), console),
        _fitting(lambda number, length: _backward(cost, rows, number, length), console),
    ]
    return [heading(cost), "", tables[0], "", tables[1], "", totals(cost), *left_out(cost)]


def shown_rows(cost: Cost) -> list[Shown]:
    """The rows under their tree-drawn names; what is too many is added up in the middle."""
    names = tree([row.name for row in cost.layers])
    rows = [
        Shown(name, row.what, row.parameters, row.forward, row.backward)
        for name, row in zip(names, cost.layers, strict=True)
    ]
    if len(rows) <= MOST_ROWS:
        return rows
    half = MOST_ROWS // 2
    hidden = rows[half:-half]
    middle = Shown(
        "…",
        f"{len(hidden):,} more",
        sum(int(row.parameters) for row in hidden),
        Forward(**_added(hidden, "forward", Forward)),
        Backward(**_added(hidden, "backward", Backward)),
    )
    return [*rows[:half], middle, *rows[-half:]]


def _added(rows: Sequence[Shown], side: str, parts: Any) -> dict[str, int]:
    return {f.name: sum(int(getattr(getattr(row, side), f.name)) for row in rows) for f in fields(parts)}


def tree(names: Sequence[str]) -> list[str]:
    """Names of layers inside a block by their last part, the block drawn beside them and named where its sum stands.

    >>> tree(["linear1", "residual1.norm1", "residual1.linear1", "residual1"])
    ['linear1', '┌ norm1', '│ linear1', '└ residual1']
    """
    found: list[str] = []
    before = ""
    for name in names:
        last = name.rpartition(".")[2]
        depth = name.count(".")
        closes = before.startswith(f"{name}.")
        opens = [i for i in range(depth) if ".".join(name.split(".")[: i + 1]) not in _blocks(before)]
        marks = "".join("┌ " if i in opens else "│ " for i in range(depth))
        found.append(marks + ("└ " if closes else "") + last)
        before = name
    return found


def _blocks(name: str) -> set[str]:
    parts = name.split(".")
    return {".".join(parts[:i]) for i in range(1, len(parts))}


def _fitting(make: Callable[[Number, int], Table], console: Console) -> RenderableType:
    for table in (make(exact, _BAR), make(exact, _SMALL_BAR)):
        if Measurement.get(console, console.options.update(width=10_000), table).maximum <= console.width:
            return held(table)
    return held(make(short, _BAR))


def _table(title: str) -> Table:
    return Table(
        title=title,
        title_style="bold cyan",
        title_justify="left",
        box=None,
        header_style="dim",
        padding=(0, 2, 0, 0),
        pad_edge=False,
    )


def _parts(rows: Sequence[Shown], side: str, kind: Any) -> list[str]:
    """The parts to show: `other` only where something has it."""
    names = [f.name for f in fields(kind)]
    return [n for n in names if n != "other" or any(int(getattr(row, side).other) for row in rows)]


def _cell(value: int, number: Number) -> Text:
    return Text(number(value), style="" if value else "dim")


def _forward(cost: Cost, rows: Sequence[Shown], number: Number) -> Table:
    parts = _parts(rows, "forward", Forward)
    table = _table("Forward, FLOPs")
    for name in ("layer", "what"):
        table.add_column(name, no_wrap=True)
    names = ["σ" if part == "activation" and number is short else part for part in parts]
    for name in ("parameters", *names, "total"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.name,
            row.what,
            _cell(row.parameters, number),
            *(_cell(getattr(row.forward, part), number) for part in parts),
            _cell(row.forward.total, number),
        )
    blanks = [""] * (len(parts) + 1)
    table.add_row("loss", cost.loss.name, *blanks, _cell(cost.loss.forward, number), style="dim")
    added = [number(_total(rows, "forward", part)) for part in parts]
    table.add_row("total", "", number(cost.parameters), *added, number(cost.forward), style="bold")
    return table


def _backward(cost: Cost, rows: Sequence[Shown], number: Number, length: int) -> Table:
    parts = _parts(rows, "backward", Backward)
    table = _table("Backward, FLOPs")
    table.add_column("layer", no_wrap=True)
    for part in (*parts, "total"):
        table.add_column("σ′" if part == "activation" else part, justify="right", no_wrap=True)
    table.add_column("of the step", no_wrap=True)
    for row in rows:
        table.add_row(
            row.name,
            *(_cell(getattr(row.backward, part), number) for part in parts),
            _cell(row.backward.total, number),
            share_bar((row.forward.total + row.backward.total) / cost.step, width=length),
        )
    added = [number(_total(rows, "backward", part)) for part in parts]
    table.add_row("total", *added, number(cost.backward), style="bold")
    return table


def _total(rows: Sequence[Shown], side: str, part: str) -> int:
    return sum(int(getattr(getattr(row, side), part)) for row in rows)


def totals(cost: Cost) -> Table:
    """Every total in a unit and exactly, with what it means."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold cyan", no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(style="bold", justify="right", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(style="dim", overflow="fold")
    ratio = f"{cost.backward / cost.forward:.2f} × forward; layers only" if cost.forward else "layers only"
    updates = printable(cost.optimizer) + (", after each step" if int(cost.optimizer_flops) else "")
    memory = cost.memory
    lines: list[tuple[str, str, str, str, str]] = [
        ("Step", "forward", flops(cost.forward), exact(cost.forward), "with the loss"),
        ("", "backward", flops(cost.backward), exact(cost.backward), ratio),
        ("", "step", flops(cost.step), exact(cost.step), "forward + backward"),
        ("", "loss gradient", flops(cost.loss.backward), exact(cost.loss.backward), "beside the step"),
        ("", "optimizer", flops(cost.optimizer_flops), exact(cost.optimizer_flops), updates),
        ("Memory", "parameters", size(memory.parameters), _bytes(memory.parameters), f"{cost.parameters:,} numbers"),
    ]
    gradients = "" if memory.gradients >= memory.parameters else "of weights not stored: each is used as it is made"
    temporary = "comes on top for a moment" if memory.temporary else "δ takes the place of what it belongs to"
    for name, note in (
        ("buffers", "running statistics, bin edges"),
        ("gradients", gradients),
        ("optimizer", ""),
        ("averages", "of the weights"),
        ("activations", "kept for the backward pass"),
    ):
        value = getattr(memory, name)
        if value or name not in ("buffers", "averages"):
            lines.append(("", name, size(value), _bytes(value), note))
    lines.append(("", "total", size(memory.total), _bytes(memory.total), ""))
    lines.append(("", "temporary", size(memory.temporary), _bytes(memory.temporary), temporary))
    if cost.epoch is not None:
        steps = f"{cost.epoch.rows:,} rows, {cost.epoch.steps:,} steps"
        lines.append(("Epoch", "flops", flops(cost.epoch.flops), exact(cost.epoch.flops), steps))
    for line in lines:
        grid.add_row(*line)
    return held(grid)


def _bytes(value: int) -> str:
    return f"{exact(value)} B"


def left_out(cost: Cost) -> list[RenderableType]:
    """What the textbook charges beside an actual step, and why."""
    if not cost.left_out:
        return []
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    for item in cost.left_out:
        grid.add_row(signed(item.flops), Text.assemble((item.what, "bold"), f"\n{item.why}"))
    book = cost.step + sum(item.flops for item in cost.left_out)
    title = Text("Beside it, the textbook charges", style="bold cyan")
    closing = Text(f"which makes its step {flops(book)} ({book:,})", style="dim")
    return ["", Group(title, held(grid), closing)]


def explanation(lines: Sequence[Line]) -> list[RenderableType]:
    """The formula beside each number, then what its letters mean."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    where = None
    for line in lines:
        if line.where != where:
            if where is not None:
                grid.add_row("", "", "")
            grid.add_row(Text(line.where, style="bold cyan"), "", "")
            where = line.where
        figures = f" = {grouped(line.numbers)}" if line.numbers and line.numbers != line.formula else ""
        grid.add_row(f"  {line.what}", exact(line.value), Text.assemble(line.formula, (figures, "dim")))
    letters = Table.grid(padding=(0, 2, 0, 0))
    for letter, meaning in legend(lines).items():
        letters.add_row(Text(letter, style="bold"), Text(meaning, style="dim"))
    return [held(grid), "", letters]


def grouped(numbers: str) -> str:
    """
    >>> grouped("2·32·12845056")
    '2·32·12,845,056'
    """
    return re.sub(r"[0-9]{4,}", lambda match: f"{int(match[0]):,}", numbers)
