"""An account of cost as one HTML page: no scripts, no requests, light or dark as the reader's system is.

What the user wrote is escaped. The one style sheet is allowed by its hash and everything else forbidden, so that a page
passed on can do nothing but be read; bars are SVG, because a style attribute would not be allowed.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import fields
from html import escape

from ..core.formatting import flops, signed, size
from ..nn.layers import Backward, Forward
from .count import Cost
from .formulas import Line, legend

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
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 0 0 16px; }
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
    """The page; with `lines` of `explain` the formula stands beside each number."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    name = escape(str(cost.spec))
    chosen = (
        f"batch {cost.batch:,} · {cost.optimizer} · {cost.loss.name} · {cost.dtype} · {cost.engine} engine · "
        f"{cost.convention} convention"
    )
    body = "\n".join(
        [
            f"<h1>{name}</h1>\n<p>{escape(chosen)}</p>",
            _tiles(cost),
            _section("Forward, FLOPs", _forward(cost)),
            _section("Backward, FLOPs", _backward(cost)),
            _section("Totals", _totals(cost)),
            _section("Beside it, the textbook charges", _left_out(cost)) if cost.left_out else "",
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


def _section(title: str, table: str) -> str:
    return f'<section>\n<h2>{escape(title)}</h2>\n<div class="wide">{table}</div>\n</section>'


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


def _row(cells: Iterable[str], kind: str = "") -> str:
    return f'<tr class="{kind}">{"".join(cells)}</tr>' if kind else f"<tr>{''.join(cells)}</tr>"


def _number(value: int) -> str:
    return f"<td>{value:,}</td>" if value else '<td class="zero">0</td>'


def _word(text: str, kind: str = "left") -> str:
    return f'<td class="{kind}">{escape(text)}</td>'


def _head(*names: str, left: tuple[str, ...] = ()) -> str:
    return _row(f'<th class="left">{name}</th>' if name in left else f"<th>{name}</th>" for name in names)


def _parts(cost: Cost, side: str) -> list[str]:
    names = [f.name for f in fields(Forward if side == "forward" else Backward)]
    return [n for n in names if n != "other" or any(int(getattr(row, side).other) for row in cost.layers)]


def _forward(cost: Cost) -> str:
    parts = _parts(cost, "forward")
    rows = [_head("layer", "what", "parameters", *parts, "total", left=("what",))]
    for row in cost.layers:
        numbers = [row.parameters, *(getattr(row.forward, part) for part in parts), row.forward.total]
        rows.append(_row([_word(row.name), _word(row.what), *map(_number, numbers)]))
    blank = "<td></td>" * (len(parts) + 1)
    rows.append(_row([_word("loss"), _word(cost.loss.name), blank, _number(cost.loss.forward)]))
    sums = [sum(int(getattr(row.forward, part)) for row in cost.layers) for part in parts]
    numbers = [cost.parameters, *sums, cost.forward]
    rows.append(_row([_word("total"), _word(""), *map(_number, numbers)], "total"))
    return f"<table>{''.join(rows)}</table>"


def _backward(cost: Cost) -> str:
    parts = _parts(cost, "backward")
    headings = ["σ′" if part == "activation" else part for part in parts]
    rows = [_head("layer", *headings, "total", "of the step", "")]
    for row in cost.layers:
        numbers = [*(getattr(row.backward, part) for part in parts), row.backward.total]
        share = 100 * (row.forward.total + row.backward.total) / cost.step
        shown = f'<td>{share:.1f} %</td><td class="left">{_bar(share)}</td>'
        rows.append(_row([_word(row.name), *map(_number, numbers), shown]))
    sums = [sum(int(getattr(row.backward, part)) for row in cost.layers) for part in parts]
    rows.append(_row([_word("total"), *map(_number, [*sums, cost.backward]), "<td></td><td></td>"], "total"))
    return f"<table>{''.join(rows)}</table>"


def _bar(share: float) -> str:
    return (
        '<svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="track" width="100" height="8"/><rect class="fill" width="{share:.2f}" height="8"/></svg>'
    )


def _totals(cost: Cost) -> str:
    memory = cost.memory
    rows = [_head("", "", "exactly")]
    work = {
        "forward, with the loss": cost.forward,
        "backward, layers only": cost.backward,
        "step = forward + backward": cost.step,
        "loss gradient, beside the step": cost.loss.backward,
        f"{cost.optimizer}, after each step": cost.optimizer_flops,
    }
    if cost.epoch is not None:
        work[f"epoch of {cost.epoch.rows:,} rows, {cost.epoch.steps:,} steps"] = cost.epoch.flops
    for name, value in work.items():
        rows.append(_row([_word(name, "left text"), f"<td>{flops(value)}</td>", _number(value)]))
    held = {f.name: getattr(memory, f.name) for f in fields(memory) if f.name != "temporary"}
    held |= {"in total": memory.total, "temporary, on top for a moment": memory.temporary}
    for name, value in held.items():
        if value:
            numbers = f"<td>{size(value)}</td><td>{value:,} B</td>"
            rows.append(_row([_word(f"memory: {name}", "left text"), numbers]))
    return f"<table>{''.join(rows)}</table>"


def _left_out(cost: Cost) -> str:
    rows = [
        f'<tr><td class="left text"><b>{escape(item.what)}</b><br>{escape(item.why)}</td>'
        f"<td>{signed(item.flops)}</td></tr>"
        for item in cost.left_out
    ]
    return f"<table>{''.join(rows)}</table>"


def _formulas(lines: Sequence[Line]) -> str:
    rows = [_head("layer", "number", "value", "formula", left=("number", "formula"))]
    for line in lines:
        figures = f' <span class="muted">= {escape(line.numbers)}</span>' if line.numbers else ""
        formula = f'<td class="left text"><code>{escape(line.formula)}{figures}</code></td>'
        rows.append(_row([_word(line.where), _word(line.what), f"<td>{line.value:,}</td>", formula]))
    letters = "".join(_row([_word(letter), _word(text, "left text")]) for letter, text in legend(lines).items())
    return f'<table>{"".join(rows)}</table>\n<h2 class="gap">Letters</h2>\n<table>{letters}</table>'
