"""HTML tables: their cells and rows, and tables that a notebook displays.

Text is escaped. Columns of numbers are right-aligned, cells of the class `left` are left-aligned. A page has its own
style sheet; `notebook` adds one that works on light and dark backgrounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

MOST_ROWS = 60
LONGEST_TITLE = 400

_STYLE = """
.multilayer-table { overflow-x: auto; font-size: 13px; }
.multilayer-table p { margin: 0 0 6px; overflow-wrap: anywhere; }
.multilayer-table table { border-collapse: collapse; margin: 0 0 14px; font-variant-numeric: tabular-nums; }
.multilayer-table th, .multilayer-table td { padding: 3px 14px 3px 0; text-align: right; white-space: nowrap;
  vertical-align: middle; color: inherit; border: 0; border-bottom: 1px solid rgba(128, 128, 128, 0.3); }
.multilayer-table .left, .multilayer-table th:first-child, .multilayer-table td:first-child { text-align: left; }
.multilayer-table th { font-weight: 500; }
.multilayer-table th, .multilayer-table .muted, .multilayer-table .zero { opacity: 0.65; }
.multilayer-table .total td { font-weight: 600; }
.multilayer-table svg { display: block; width: 90px; height: 8px; }
.multilayer-table .track { fill: rgba(128, 128, 128, 0.25); } .multilayer-table .fill { fill: #2f81c7; }
"""


def number(value: int) -> str:
    """Return a cell with a number. Zeros are pale.

    >>> number(1290)
    '<td>1,290</td>'
    """
    return f"<td>{value:,}</td>" if value else '<td class="zero">0</td>'


def word(text: str, kind: str = "left") -> str:
    return f'<td class="{kind}">{escape(text)}</td>'


def row(cells: Iterable[str], kind: str = "") -> str:
    return f'<tr class="{kind}">{"".join(cells)}</tr>' if kind else f"<tr>{''.join(cells)}</tr>"


def head(*names: str, left: tuple[str, ...] = ()) -> str:
    """Return the row of headings. Those in `left` are left-aligned."""
    return row(f'<th class="left">{name}</th>' if name in left else f"<th>{name}</th>" for name in names)


def bar(share: float) -> str:
    """Return a cell with a bar for a share from 0 to 1. It is an SVG, because pages forbid style attributes."""
    return (
        '<td class="left"><svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="100" height="8"/>'
        f'<rect class="fill" width="{100 * share:.2f}" height="8"/></svg></td>'
    )


def table(rows: Iterable[str]) -> str:
    """Return a table. It has a class, because sites such as those of MkDocs restyle tables without one."""
    return f'<table class="rows">{"".join(rows)}</table>'


def cut_rows(rows: Sequence[str], columns: int) -> list[str]:
    """Return the first and the last rows of a long table, with a row between them that says how many are left out."""
    if len(rows) <= MOST_ROWS:
        return list(rows)
    half = MOST_ROWS // 2
    middle = f'<tr><td class="left muted" colspan="{columns}">… {len(rows) - 2 * half:,} more rows …</td></tr>'
    return [*rows[:half], middle, *rows[-half:]]


def notebook(title: str, caption: str, *tables: str) -> str:
    """Return tables with a title for a notebook. The HTML is one line, because Markdown ends HTML at a blank line."""
    half = LONGEST_TITLE // 2
    name = title if len(title) <= LONGEST_TITLE else f"{title[:half]} … {title[-half:]}"
    style = " ".join(_STYLE.split())
    return (
        f'<div class="multilayer-table"><style>{style}</style><p><code>{escape(name)}</code></p>'
        f'<p class="muted">{escape(caption)}</p>{"".join(tables)}</div>'
    )
