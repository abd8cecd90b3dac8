"""A cost as an HTML page, and as a table for notebooks.

The page has no scripts and makes no requests. It follows the light or dark mode of the system. All text is escaped. A
content security policy allows only the style sheet of the page, by its hash. It forbids style attributes, so bars are
SVG.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import fields
from html import escape
from typing import TYPE_CHECKING

from ..core.formatting import flops, signed, size
from ..core.html_tables import bar, cut_rows, head, notebook, number, row, table, word
from ..nn.layers import Backward, Forward
from .formulas import Line, legend

if TYPE_CHECKING:
    from .count import Cost
    from .summary import NetworkSummary, Part

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2933; --muted: #5b6672; --line: #dde3e8; --card: #fff; --page: #f5f7f9;
  --accent: #0b66a8; --track: #e6eaee; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaee; --muted: #9aa7b4; --line: #323d48; --card: #1b232b;
  --page: #12181e; --accent: #5fb0ee; --track: #2a343e; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 24px 16px 48px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; }
main { max-width: 1120px; margin: 0 auto; }
h1 { font-size: 22px; margin: 0 0 4px; overflow-wrap: anywhere; font-family: ui-monospace, Menlo, Consolas, monospace; }
h2 { font-size: 15px; margin: 0 0 12px; } .gap { margin-top: 24px; }
p { margin: 0 0 20px; color: var(--muted); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px 18px;
  margin: 0 0 16px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(180px, 1fr)); gap: 12px; margin: 0 0 16px; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 16px; }
.tile b { display: block; font-size: 22px; line-height: 1.25; white-space: nowrap; }
.tile span { display: block; color: var(--muted); font-size: 13px; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 14px; }
th, td { padding: 5px 10px; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { color: var(--muted); font-weight: 500; }
th:first-child, td:first-child { padding-left: 0; position: sticky; left: 0; background: var(--card); }
th:last-child, td:last-child { padding-right: 0; }
.left, th:first-child, td:first-child { text-align: left; }
.text { white-space: normal; overflow-wrap: break-word; min-width: 7em; } code { white-space: nowrap; }
tr.total td { font-weight: 600; border-bottom: 0; }
.zero, .muted { color: var(--muted); }
svg { display: block; width: 90px; height: 8px; }
.track { fill: var(--track); } .fill { fill: var(--accent); }
code { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: 13px; }
@media (max-width: 560px) { body { padding: 16px 10px 32px; } section { padding: 12px; } .tile b { font-size: 19px; } }
"""


def page(cost: Cost, lines: Sequence[Line] = ()) -> str:
    """Return the page of a cost. With the lines of `formulas.explain`, it also has the formula of each number."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    name = escape(str(cost.spec))
    body = "\n".join(
        [
            f"<h1>{name}</h1>\n<p>{escape(_options(cost))}</p>",
            _tiles(cost),
            _section("Forward, FLOPs", _forward(cost)),
            _section("Backward, FLOPs", _backward(cost)),
            _section("Totals", _totals(cost)),
            _section("The textbook convention also counts", _left_out(cost)) if cost.left_out else "",
            _section("Formulas", _formulas(lines)) if lines else "",
        ]
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'sha256-{digest}'">
<title>Cost of {name[:200]}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def cost_table(cost: Cost) -> str:
    """Return a table of a cost for notebooks: the layers, then the totals."""
    rows = [
        row(
            [
                *(word(layer.name), word(layer.what), number(layer.parameters)),
                *(number(layer.forward.total), number(layer.backward.total)),
                *_share((layer.forward.total + layer.backward.total) / cost.step),
            ]
        )
        for layer in cost.layers
    ]
    headings = head("layer", "what", "parameters", "forward", "backward", "of the step", "", left=("what",))
    loss = row([word("loss"), word(cost.loss.name), "<td></td>", number(cost.loss.forward), "<td></td>" * 3])
    sums = map(number, (cost.parameters, cost.forward, cost.backward))
    total = row([word("total"), word(""), *sums, "<td></td><td></td>"], "total")
    layers = table([headings, *cut_rows(rows, 7), loss, total])
    return notebook(str(cost.spec), _options(cost), layers, _totals(cost))


def summary_table(summary: NetworkSummary) -> str:
    """Return a table of a network summary for notebooks. The parts of a block are indented."""
    rows = [
        row(
            [
                word("\u2003" * depth + _heading(part)),
                word(" ".join(filter(None, (part.detail, "" if part.kind == "activation" else part.function)))),
                *(f"<td>{part.width_in:,} → {part.d_out:,}</td>", number(part.parameters), number(part.flops)),
                *_share(summary.share(part)),
            ]
        )
        for part, depth in _nested(summary.parts, 0)
    ]
    cost = summary.cost
    headings = head("layer", "options", "width", "parameters", "FLOPs", "of the step", "", left=("options",))
    loss = row([word("loss"), word(cost.loss.name), "<td></td>" * 2, number(cost.loss.forward), "<td></td>" * 2])
    sums = [number(cost.parameters), number(cost.step)]
    total = row([word("total"), "<td></td>" * 2, *sums, "<td></td>" * 2], "total")
    return notebook(str(summary.spec), _options(cost), table([headings, *cut_rows(rows, 7), loss, total]))


def _heading(part: Part) -> str:
    name = "repeat" if part.kind == "group" else part.heading
    return f"{name} ×{part.times}" if part.times > 1 else name


def _nested(parts: Sequence[Part], depth: int) -> list[tuple[Part, int]]:
    """Return all parts with their depth, each block before the parts inside it."""
    return [pair for part in parts for pair in [(part, depth), *_nested(part.parts, depth + 1)]]


def _options(cost: Cost) -> str:
    return (
        f"batch {cost.batch:,} · {cost.optimizer} · {cost.loss.name} · {cost.dtype} · {cost.engine} engine · "
        f"{cost.convention} convention"
    )


def _section(title: str, content: str) -> str:
    return f'<section>\n<h2>{escape(title)}</h2>\n<div class="wide">{content}</div>\n</section>'


def _tiles(cost: Cost) -> str:
    found = [
        ("parameters", f"{cost.parameters:,}", size(cost.memory.parameters)),
        ("forward", flops(cost.forward), f"{cost.forward:,}"),
        ("backward", flops(cost.backward), f"{cost.backward:,}"),
        ("step", flops(cost.step), f"{cost.step:,}"),
        ("memory", size(cost.memory.total), f"{cost.memory.total:,} B"),
    ]
    if cost.epoch is not None:
        found.append((f"epoch of {cost.epoch.steps:,} steps", flops(cost.epoch.flops), f"{cost.epoch.flops:,}"))
    tiles = (f'<div class="tile"><span>{a}</span><b>{b}</b><span>{c}</span></div>' for a, b, c in found)
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _parts(cost: Cost, side: str) -> list[str]:
    names = [f.name for f in fields(Forward if side == "forward" else Backward)]
    return [n for n in names if n != "other" or any(int(getattr(layer, side).other) for layer in cost.layers)]


def _forward(cost: Cost) -> str:
    parts = _parts(cost, "forward")
    rows = [head("layer", "what", "parameters", *parts, "total", left=("what",))]
    for layer in cost.layers:
        numbers = [layer.parameters, *(getattr(layer.forward, part) for part in parts), layer.forward.total]
        rows.append(row([word(layer.name), word(layer.what), *map(number, numbers)]))
    blank = "<td></td>" * (len(parts) + 1)
    rows.append(row([word("loss"), word(cost.loss.name), blank, number(cost.loss.forward)]))
    sums = [sum(int(getattr(layer.forward, part)) for layer in cost.layers) for part in parts]
    rows.append(row([word("total"), word(""), *map(number, [cost.parameters, *sums, cost.forward])], "total"))
    return table(rows)


def _backward(cost: Cost) -> str:
    parts = _parts(cost, "backward")
    headings = ["σ′" if part == "activation" else part for part in parts]
    rows = [head("layer", *headings, "total", "of the step", "")]
    for layer in cost.layers:
        numbers = [*(getattr(layer.backward, part) for part in parts), layer.backward.total]
        share = (layer.forward.total + layer.backward.total) / cost.step
        rows.append(row([word(layer.name), *map(number, numbers), *_share(share)]))
    sums = [sum(int(getattr(layer.backward, part)) for layer in cost.layers) for part in parts]
    rows.append(row([word("total"), *map(number, [*sums, cost.backward]), "<td></td><td></td>"], "total"))
    return table(rows)


def _share(share: float) -> tuple[str, str]:
    return f"<td>{100 * share:.1f} %</td>", bar(share)


def _totals(cost: Cost) -> str:
    memory = cost.memory
    rows = [head("", "", "exact")]
    work = {
        "forward, including the loss": cost.forward,
        "backward, layers only": cost.backward,
        "step = forward + backward": cost.step,
        "loss gradient, not part of the step": cost.loss.backward,
        f"{cost.optimizer}, after each step": cost.optimizer_flops,
    }
    if cost.epoch is not None:
        work[f"epoch of {cost.epoch.rows:,} rows, {cost.epoch.steps:,} steps"] = cost.epoch.flops
    for name, value in work.items():
        rows.append(row([word(name, "left text"), f"<td>{flops(value)}</td>", number(value)]))
    parts = {f.name: getattr(memory, f.name) for f in fields(memory) if f.name != "temporary"}
    parts |= {"total": memory.total, "temporary, not part of the total": memory.temporary}
    for name, value in parts.items():
        if value or name == "total":
            numbers = f"<td>{size(value)}</td><td>{value:,} B</td>"
            rows.append(row([word(f"memory: {name}", "left text"), numbers]))
    return table(rows)


def _left_out(cost: Cost) -> str:
    return table(
        f'<tr><td class="left text"><b>{escape(item.what)}</b><br>{escape(item.why)}</td>'
        f"<td>{signed(item.flops)}</td></tr>"
        for item in cost.left_out
    )


def _formulas(lines: Sequence[Line]) -> str:
    rows = [head("layer", "number", "value", "formula", left=("number", "formula"))]
    for line in lines:
        figures = f' <span class="muted">= {escape(line.numbers)}</span>' if line.numbers else ""
        formula = f'<td class="left text"><code>{escape(line.formula)}{figures}</code></td>'
        rows.append(row([word(line.where), word(line.what), f"<td>{line.value:,}</td>", formula]))
    symbols = table(row([word(symbol), word(meaning, "left text")]) for symbol, meaning in legend(lines).items())
    return f'{table(rows)}\n<h2 class="gap">Symbols</h2>\n{symbols}'
