"""Print a cost: tables of the forward and the backward pass, then totals, memory and an epoch.

Numbers are exact if the table fits the terminal, otherwise short (12.8M). Totals are printed in both forms. A table
with more than `MOST_ROWS` layers shows the first and the last, and one line with the sum of the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ..core.formatting import compact, flops, signed, size
from ..costs.count import Cost
from ..costs.formulas import LETTERS, Line, legend
from ..errors import printable
from ..nn.layers import Backward, Forward
from .drawing import share_bar
from .output import uncut

MOST_ROWS = 60
_BAR, _SMALL_BAR = 24, 8

Number = Callable[[int], str]


def exact(value: int) -> str:
    return f"{int(value):,}"


def short(value: int) -> str:
    return compact(int(value))


@dataclass(frozen=True)
class Shown:
    """A line of the tables: one layer, or the sum of several."""

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
    """Return the lines of the tables. If there are too many, one line is the sum of those in the middle."""
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
    """Return the last part of each name, with lines that connect the layers of a block to the sum of the block.

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
            return uncut(table)
    return uncut(make(short, _BAR))


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
    """Return the parts to show. `other` is omitted if it is 0 for every layer."""
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
    """Return a table of the totals: each with a unit, as an exact number, and with a remark."""
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
        ("Step", "forward", flops(cost.forward), exact(cost.forward), "including the loss"),
        ("", "backward", flops(cost.backward), exact(cost.backward), ratio),
        ("", "step", flops(cost.step), exact(cost.step), "forward + backward"),
        ("", "loss gradient", flops(cost.loss.backward), exact(cost.loss.backward), "not part of the step"),
        ("", "optimizer", flops(cost.optimizer_flops), exact(cost.optimizer_flops), updates),
        ("Memory", "parameters", size(memory.parameters), _bytes(memory.parameters), f"{cost.parameters:,} numbers"),
    ]
    gradients = (
        "" if memory.gradients >= memory.parameters else "the optimizer uses each weight gradient without storing it"
    )
    temporary = "extra memory at the peak of a step" if memory.temporary else "δ overwrites the activations"
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
    return uncut(grid)


def _bytes(value: int) -> str:
    return f"{exact(value)} B"


def left_out(cost: Cost) -> list[RenderableType]:
    """Return the operations that the textbook convention counts and an actual step does not run, with reasons."""
    if not cost.left_out:
        return []
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    for item in cost.left_out:
        grid.add_row(signed(item.flops), Text.assemble((item.what, "bold"), f"\n{item.why}"))
    book = cost.step + sum(item.flops for item in cost.left_out)
    title = Text("The textbook convention also counts", style="bold cyan")
    closing = Text(f"step by the textbook convention: {flops(book)} ({book:,})", style="dim")
    return ["", Group(title, uncut(grid), closing)]


def explanation(lines: Sequence[Line], letters: Mapping[str, str] = LETTERS) -> list[RenderableType]:
    """Return each number with its formula, then the meaning of the symbols."""
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
    symbols = Table.grid(padding=(0, 2, 0, 0))
    for letter, meaning in legend(lines, letters).items():
        symbols.add_row(Text(letter, style="bold"), Text(meaning, style="dim"))
    return [uncut(grid), "", symbols]


def grouped(numbers: str) -> str:
    """Insert commas into the numbers of a formula.

    >>> grouped("2·32·12845056")
    '2·32·12,845,056'
    """
    return re.sub(r"[0-9]{4,}", lambda match: f"{int(match[0]):,}", numbers)
