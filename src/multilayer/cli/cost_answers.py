"""Answers to the questions of `mlp cost`: each as data for JSON, and as a table or text to print."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..core.formatting import duration, flops, percent, size
from ..costs import inverse
from ..costs.budget import Item
from ..costs.count import Cost
from ..costs.inverse import Sweep
from ..costs.transformer import LETTERS, TransformerContext
from ..spec import Spec
from .cost_table import explanation
from .output import uncut

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..costs.tool_comparison import ToolReport
    from ..costs.torch_speed import Measurement
    from ..costs.verification import Verification

Account = Callable[..., Cost]
"""A function that returns the cost of a network, optionally for another batch size."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer to a question. In JSON, it is `data` under `key`. If `ok` is false, the command exits with 1."""

    key: str
    data: Any
    shown: RenderableType
    ok: bool = True


def _titled(title: str, body: RenderableType, note: str = "") -> Group:
    parts = [Text(title, style="bold cyan"), uncut(body) if isinstance(body, Table) else body]
    return Group(*parts, Text(note, style="dim")) if note else Group(*parts)


def _grid(*columns: str) -> Table:
    """Return a table without headings. Columns: l left-aligned, r right-aligned, w left-aligned and wrapped."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    for kind in columns:
        justify = "right" if kind == "r" else "left"
        grid.add_column(justify=justify, no_wrap=kind != "w", overflow="fold")
    return grid


def _headed(*columns: tuple[str, str]) -> Table:
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    for name, kind in columns:
        table.add_column(name, justify="right" if kind == "r" else "left", no_wrap=kind != "w", overflow="fold")
    return table


# What fits


def largest_batch(limit: int, batch: int, safe: int, account: Account, spec: Spec) -> Answer:
    """Return the answer for the largest batch: `batch` without temporary memory, and `safe` with it."""
    memory = account(spec, batch or 1).memory
    data = {"limit": limit, "batch": batch, "with_temporary": safe, "memory": memory.total}
    title = f"Largest batch within {limit:,} B ({size(limit)})"
    if not batch:
        why = f"none: a batch of one row takes {size(memory.total)} ({memory.total:,} B)"
        return Answer(key="largest_batch", data=data, shown=_titled(title, Text(why)))
    if batch == inverse.MAX_BATCH:
        figures = f"{batch:,} rows take {size(memory.total)}"
        why = f"{figures} and fit into the limit; larger batches were not tried"
        if account(spec, 1).memory.total == memory.total:
            why = f"any: {figures}, because this network stores nothing per row"
        return Answer(key="largest_batch", data=data, shown=_titled(title, Text(why)))
    grid = _grid("r", "l", "r", "w")
    grid.add_row(Text(f"{batch:,}", style="bold"), "rows", size(memory.total), f"{memory.total:,} B in total")
    peak = account(spec, safe or 1).memory
    if safe and peak.temporary:
        top = peak.total + int(peak.temporary)
        grid.add_row(f"{safe:,}", "rows", size(top), f"{top:,} B with temporary memory")
    return Answer(key="largest_batch", data=data, shown=_titled(title, grid))


def _limits(flops_limit: int | None, parameters: int | None) -> str:
    parts = [f"{flops(flops_limit)} per step"] if flops_limit is not None else []
    return " and ".join([*parts, *([f"{parameters:,} parameters"] if parameters is not None else [])])


def _fit(
    key: str, title: str, found: Spec | None, costs: tuple[int, int], how: str, data: dict[str, Any] | None = None
) -> Answer:
    """Return the answer with the network that fits, or with the cost of the smallest network tried if none fits."""
    parameters, step = costs
    both = f"{parameters:,} parameters, {step:,} FLOPs per step ({flops(step)})"
    if found is None:
        return Answer(key=key, data=None, shown=_titled(title, Text(f"none: {how} takes {both}")))
    network = str(found)
    text = network if len(network) <= 300 else f"{network[:150]} … {network[-140:]}"
    shown = Group(Text(text, style="bold", overflow="fold"), Text(both))
    data = {"network": network, **(data or {}), "parameters": parameters, "flops": step}
    return Answer(key=key, data=data, shown=_titled(title, shown, how))


def widest(
    spec: Spec, found: inverse.Widest | None, *, limits: tuple[int | None, int | None], account: Account
) -> Answer:
    title = f"Widest within {_limits(*limits)}"
    if found is None:
        narrow = account(inverse.with_width(spec, 1))
        return _fit("widest", title, None, (narrow.parameters, narrow.step), f"even {narrow.spec}")
    how = f"hidden widths × {found.width / found.base:.4g} ({found.base:,} → {found.width:,}), same inputs and outputs"
    how += "; wider networks were not tried" if found.at_limit else ""
    data = {"width": found.width, "base": found.base, "at_limit": found.at_limit}
    cost = account(found.spec)
    return _fit("widest", title, found.spec, (cost.parameters, cost.step), how, data)


def deepest(
    spec: Spec, found: inverse.Deepest | None, *, limits: tuple[int | None, int | None], account: Account
) -> Answer:
    title = f"Deepest within {_limits(*limits)}"
    if found is None:
        cost = account(spec)
        return _fit("deepest", title, None, (cost.parameters, cost.step), "the network as it is")
    times = "once" if found.copies == 1 else f"{found.copies:,} times"
    end = "; this is the largest number of layers" if found.at_limit else ""
    how = f"{found.repeated} occurs {times}{end}"
    data = {"copies": found.copies, "repeated": found.repeated, "at_limit": found.at_limit}
    return _fit("deepest", title, found.spec, (found.parameters, found.step), how, data)


def time(found: inverse.Time, *, epochs: int, rows: int, batch: int, machine: str, how: str | None = None) -> Answer:
    """Return the answer about training time. `how` describes the source of the step time."""
    steps, seconds, least = epochs * -(-rows // batch), found.seconds, found.lower_bound
    grid = _grid("l", "w")
    grid.add_row(Text(duration(seconds), style="bold"), f"{steps:,} steps of {duration(seconds / steps)}")
    title = f"Time for {epochs:,} epochs of {rows:,} rows" + (", at least" if least else "")
    how = how or (
        "lower bound from the measured roofline of" if least else "PyTorch, predicted from an earlier measurement on"
    )
    more = "; --measure times a real step" if least else ""
    data = {"epochs": epochs, "rows": rows, "steps": steps, "seconds": seconds, "machine": machine}
    data["lower_bound"] = least
    return Answer(key="time", data=data, shown=_titled(title, grid, f"{how} {machine}{more}"))


# A sweep


def sweep_rows(sweep: Sweep) -> list[dict[str, int]]:
    return [
        {
            sweep.over: point.value,
            "parameters": point.cost.parameters,
            "forward": point.cost.forward,
            "backward": point.cost.backward,
            "step": point.cost.step,
            "activations": int(point.cost.memory.activations),
            "memory": point.cost.memory.total,
        }
        for point in sweep.points
    ]


def sweep_table(sweep: Sweep) -> Answer:
    first = (("batch", "r"),) if sweep.over == "batch" else (("width", "r"), ("parameters", "r"))
    table = _headed(*first, ("step", "r"), ("FLOPs", "r"), ("memory", "r"), ("bytes", "r"))
    for row, point in zip(sweep_rows(sweep), sweep.points, strict=True):
        start = [f"{row[sweep.over]:,}"] + ([] if sweep.over == "batch" else [f"{row['parameters']:,}"])
        step, total = row["step"], point.cost.memory.total
        table.add_row(*start, flops(step), f"{step:,}", size(total), f"{total:,}")
    note = (
        "width is that of the widest hidden layer; the others are scaled in proportion" if sweep.over == "width" else ""
    )
    title = {"batch": "Cost by batch size", "width": "Cost by width of the hidden layers"}[sweep.over]
    return Answer(key="sweep", data=sweep_rows(sweep), shown=_titled(title, table, note))


def sweep_figure(sweep: Sweep) -> Figure:
    """Return a plot of the FLOPs and the memory of a step over the batch size or width."""
    from ..drawing.plots.lines import Line, Panel, lines_figure

    x = [float(point.value) for point in sweep.points]
    costs = [point.cost for point in sweep.points]
    work = {
        "step": [c.step for c in costs],
        "backward": [c.backward for c in costs],
        "forward": [c.forward for c in costs],
        "optimizer": [int(c.optimizer_flops) for c in costs],
    }
    memory = {
        "total": [c.memory.total for c in costs],
        "activations": [int(c.memory.activations) for c in costs],
        "other": [c.memory.total - int(c.memory.activations) for c in costs],
    }
    label = {"batch": "rows in a batch", "width": "width of the widest hidden layer"}[sweep.over]

    def panel(title: str, values: dict[str, list[int]], unit: str) -> Panel:
        lines = [Line(name=name, x=x, y=[float(v) for v in y], points=True) for name, y in values.items()]
        return Panel(title=title, lines=lines, x_label=label, unit=unit, log_x=True, log_y=True)

    first = costs[0]
    network = str(first.spec) if sweep.over == "batch" else f"{costs[0].spec} … {costs[-1].spec}"
    chosen = f"{first.optimizer} · {first.dtype} · {first.engine} engine · {first.convention} convention"
    panels = (panel("FLOPs of a step", work, "FLOP"), panel("Memory", memory, "B"))
    return lines_figure(panels, title=network if len(network) <= 90 else f"{network[:87]}…", subtitle=chosen)


# In a transformer


def context(found: TransformerContext) -> Answer:
    """Return the answer with a block, the attention of the same layer, and two other layers for comparison."""
    table = _headed(("", "l"), ("parameters", "r"), ("forward FLOPs", "r"), ("share", "r"), ("per parameter", "r"))
    shares = {"block": found.block_share, "attention": 1 - found.block_share}
    parts = {
        "block": found.block,
        "attention": found.attention,
        "convolution": found.convolution,
        "embedding": found.embedding,
    }
    for name, part in parts.items():
        share = percent(shares[name]) if name in shares else ""
        table.add_row(name, f"{part.parameters:,}", f"{part.flops:,}", share, f"{found.per_parameter(part):,.0f}")
    note = Text(
        f"share of the block in the matrix products: {percent(found.matmul_share)}, also in a training step\n"
        f"convolution: {found.convolution.what}; embedding: {found.embedding.what}",
        style="dim",
    )
    sequences = f"{found.batch:,} sequences" if found.batch > 1 else "1 sequence"
    title = f"In a transformer: {sequences} of {found.sequence_length:,} tokens, {found.heads:,} heads"
    lines = found.lines()
    data = {**found.to_dict(), "formulas": [asdict(line) for line in lines]}
    shown = Group(uncut(table), note, "", *explanation(lines, LETTERS))
    return Answer(key="context", data=data, shown=_titled(title, shown))


# Checks


def budget(items: Sequence[Item]) -> Answer:
    table = _headed(("", "l"), ("", "l"), ("cost", "r"), ("limit", "r"), ("used", "r"))
    for item in items:
        mark = Text("ok", style="green") if item.ok else Text("over", style="bold red")
        used = f"{100 * item.value / item.limit:,.1f} %"
        table.add_row(mark, item.name, f"{item.value:,}", f"{item.limit:,}", used)
        if item.ok and item.peak > item.limit:
            peak = f"{100 * item.peak / item.limit:,.1f} %"
            note = Text("note", style="yellow")
            table.add_row(note, "memory with temporary memory", f"{item.peak:,}", f"{item.limit:,}", peak)
    data = [
        {"name": item.name, "cost": int(item.value), "limit": item.limit, "ok": item.ok}
        | ({"with_temporary": int(item.peak)} if item.peak != item.value else {})
        for item in items
    ]
    return Answer(key="budget", data=data, shown=_titled("Budget", table))


def verification(found: Verification) -> Answer:
    table = _headed(("", "l"), ("", "l"), ("closed form", "r"), ("counted by PyTorch", "r"))
    for check in found.checks:
        mark = Text("ok", style="green") if check.ok else Text("differs", style="bold red")
        table.add_row(mark, check.what, f"{int(check.closed_form):,}", f"{check.counted:,}")
    data = [
        {"what": c.what, "closed_form": int(c.closed_form), "counted": int(c.counted), "ok": c.ok} for c in found.checks
    ]
    ok = all(check.ok for check in found.checks)
    return Answer(key="verify", data=data, shown=_titled("Closed forms compared with PyTorch", table), ok=ok)


def measurement(found: Measurement) -> Answer:
    table = _headed(("layer", "l"), ("what", "l"), ("predicted", "r"), ("bound", "l"), ("measured", "r"))
    for row in found.rows:
        measured = "" if row.measured is None else duration(row.measured)
        table.add_row(row.name, row.what, duration(row.predicted), row.bound, measured)
    table.add_row("step", "", duration(found.predicted), "", duration(found.measured), style="bold")
    note = Text.assemble(
        f"error of the prediction: {100 * found.error:+.1f} %\n".replace("-", "−"),
        f"fusing each linear map with its activation would make the layers {found.fused_saving:.2f} × as fast\n",
        (found.machine, "dim"),
        ("\nother processes were running: measure again when the machine is idle" if found.busy else "", "yellow"),
    )
    names = ("predicted", "measured", "error", "fused_saving", "machine", "busy")
    data = {"rows": [asdict(row) for row in found.rows], **{name: getattr(found, name) for name in names}}
    return Answer(
        key="measure", data=data, shown=_titled("One step, predicted and measured", Group(uncut(table), note))
    )


def tool_report(found: ToolReport) -> Answer:
    table = _headed(("", "l"), (found.tool, "r"), ("ours", "r"))
    whys: list[RenderableType] = []
    for line in found.lines:
        figures = (f"{n:,}" if n is not None else "unknown" for n in (line.figure, line.ours))
        table.add_row(line.what, *figures)
        if line.figure is None or line.figure != line.ours:
            whys += ["", Text(line.what, style="bold"), Text(line.why)]
    title = f"What {found.tool} {found.version} would report"
    return Answer(key="as", data=asdict(found), shown=_titled(title, Group(uncut(table), *whys)))
