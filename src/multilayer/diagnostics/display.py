"""The words for findings that pages and commands share. Findings are in their JSON form (`Finding.to_dict`).

described        a finding with its title, place, cost and evidence in words, as data for a page
finding_lines    the findings as lines of text for a terminal
print_findings   print these lines
html_table       the findings as an HTML table for a notebook
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core.formatting import count, number, percent
from ..errors import printable
from ..runs.events import Event, FindingEvent, effective
from .findings import MOST_LISTED, TITLES

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

STYLES = {"info": "cyan", "warning": "yellow", "error": "bold red"}
"""Colors of the severities in a terminal."""

MOST_PRINTED = 3
"""Largest number of findings of one kind whose messages a terminal shows."""
INDENT = "  "

EVIDENCE = {
    "share": "share",
    "flops_share": "share of the FLOPs",
    "z_std": "standard deviation of z",
    "initial_loss": "initial loss",
    "expected_loss": "loss of outputs that are 0",
    "gradient_ratio": "gradient of the first layer / last layer",
    "rises": "share of epochs in which the loss rose",
    "non_finite": "values that are not finite",
    "movement": "relative change of the weights",
    "fall": "relative fall of the training loss",
    "late_fall": "share of the fall in the second half",
    "largest": "size of the largest column",
    "smallest": "size of the smallest column",
    "skill": "skill",
    "next_skill": "skill of the next column",
    "values": "different values of the target",
    "residual_kurtosis": "excess kurtosis of the residuals",
    "train": "skill on training rows",
    "held_out": "skill on held-out rows",
    "reference": "skill of the best simple method",
    "gap": "difference of the losses / loss of outputs that are 0",
    "rebound": "rise of the validation loss / its fall before",
    "best_epoch": "best epoch",
    "batch_size": "batch size",
    "suspects": "rows to check",
}
"""Measured numbers in plain words, in the order in which they are shown. Other names follow, with spaces."""
_ORDER = {name: i for i, name in enumerate(EVIDENCE)}

UNITS = {"dead_units": "dead", "saturated_units": "saturated", "symmetric_units": "identical"}
"""Adjectives for units with a fault."""

_SHARES = frozenset({"share", "flops_share", "rises", "movement", "fall", "late_fall"})
_OF_PLACE = frozenset({"units", "of"})
"""Evidence that is shown as part of the place."""


def findings_in(log: Iterable[Event]) -> list[dict[str, Any]]:
    """Return the findings of a log without superseded events."""
    return [event.finding for event in effective(log) if isinstance(event, FindingEvent)]


def described(finding: Mapping[str, Any]) -> dict[str, Any]:
    """Return the finding with the words that displays show.

    `title` is the kind in plain words, `place` is a list such as layer, units and epoch, `units` is the part about
    units, `unit` is an adjective for one of them, and `numbers` is the evidence as names and values.

    Examples
    --------
    >>> dead = {"kind": "dead_units", "severity": "warning", "message": "40 of 64 units of relu1 are dead.",
    ...     "where": {"layer": "relu1", "units": [0, 3], "epoch": 3},
    ...     "evidence": {"units": 40, "of": 64, "flops_share": 0.4}, "remedies": []}
    >>> found = described(dead)
    >>> found["title"], found["place"], found["numbers"]
    ('Dead units', ['relu1', '40 of 64 units', 'since epoch 3'], [['share of the FLOPs', '40 %']])
    """
    return {
        **finding,
        "title": title(finding["kind"]),
        "place": place(finding),
        "units": _units(finding),
        "unit": UNITS.get(finding["kind"], ""),
        "numbers": [
            [EVIDENCE.get(name) or name.replace("_", " "), _value(name, value)]
            for name, value in sorted(finding["evidence"].items(), key=lambda item: _ORDER.get(item[0], len(_ORDER)))
            if name not in _OF_PLACE and not (name == "share" and "of" in finding["evidence"])
        ],
    }


def title(kind: str) -> str:
    """Return a kind of fault in plain words."""
    return TITLES.get(kind) or kind.replace("_", " ").capitalize()


def place(finding: Mapping[str, Any]) -> list[str]:
    """Return where a fault is: layer, ensemble member, units, column, rows and epoch, as far as they apply."""
    where, units = finding["where"], _units(finding)
    parts = [str(where["layer"])] if "layer" in where else []
    parts += [f"member {where['member']}"] if "member" in where else []
    parts += [units] if units else []
    parts += [f"column {where['column']!r}"] if "column" in where else []
    if where.get("rows"):
        n = len(where["rows"])
        parts.append(count(n, "row") if n < MOST_LISTED else f"{n:,} rows or more")
    return parts + ([f"since epoch {where['epoch']:,}"] if "epoch" in where else [])


def _units(finding: Mapping[str, Any]) -> str:
    """Return the number of units that have the fault, such as "40 of 64 units"."""
    units, evidence = finding["where"].get("units"), finding["evidence"]
    if not units:
        return ""
    n = int(evidence.get("units", len(units)))
    return f"{n:,} of {count(int(evidence['of']), 'unit')}" if "of" in evidence else count(n, "unit")


def finding_lines(findings: Sequence[Mapping[str, Any]]) -> list[Text]:
    """Return the findings as lines for a terminal, by kind: severity and title, messages, remedy and command.

    Examples
    --------
    >>> found = {"kind": "rate_too_high", "severity": "error", "message": "The loss rose from epoch 2.",
    ...     "where": {"epoch": 2}, "evidence": {},
    ...     "remedies": [{"text": "Lower the learning rate.", "command": "mlp train iris --learning-rate 0.001"}]}
    >>> for line in finding_lines([found]):
    ...     print(line)
    error: Learning rate too high (since epoch 2)
      The loss rose from epoch 2.
      remedy: Lower the learning rate.
        mlp train iris --learning-rate 0.001
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for finding in findings:
        groups.setdefault(finding["kind"], []).append(finding)
    return [line for group in groups.values() for line in _lines(group)]


def _lines(group: Sequence[Mapping[str, Any]]) -> list[Text]:
    """Return the lines of findings of one kind. Several layers or members often have the same fault."""
    from rich.text import Text

    first = group[0]
    severity = "error" if any(finding["severity"] == "error" for finding in group) else first["severity"]
    where = ", ".join(place(first)) if len(group) == 1 else f"{len(group)} findings"
    lines = [
        Text.assemble(
            (severity, STYLES.get(severity, "")),
            ": ",
            (printable(title(first["kind"])), "bold"),
            (printable(f" ({where})" if where else ""), "dim"),
        )
    ]
    for finding in group[:MOST_PRINTED]:
        member = finding["where"].get("member")
        of_member = f"member {member}: " if member is not None and len(group) > 1 else ""
        lines.append(Text(f"{INDENT}{of_member}{printable(finding['message'])}"))
    if len(group) > MOST_PRINTED:
        lines.append(Text(f"{INDENT}and {count(len(group) - MOST_PRINTED, 'similar finding')}"))
    for remedy in first["remedies"][:1]:
        lines.append(Text.assemble(INDENT, ("remedy", "green"), ": ", printable(remedy["text"])))
        if remedy["command"]:
            lines.append(Text(f"{2 * INDENT}{printable(remedy['command'])}", style="cyan", no_wrap=True))
    return lines


def print_findings(console: Console, findings: Sequence[Mapping[str, Any]]) -> None:
    """Print the findings. A terminal wraps sentences at words, but never commands, so that they can be copied."""
    from rich.padding import Padding

    for line in finding_lines(findings):
        if console.options.ascii_only:
            line = _ascii(line)
        if line.no_wrap or not console.is_terminal:
            console.print(line, soft_wrap=True)
        else:
            left = len(line) - len(line.plain.lstrip())
            console.print(Padding(line[left:], (0, 0, 0, left), expand=False))


def _ascii(line: Text) -> Text:
    from rich.text import Text

    return Text(line.plain.encode("ascii", "replace").decode(), no_wrap=line.no_wrap)


def html_table(findings: Sequence[Mapping[str, Any]]) -> str:
    """Return the findings as an HTML table for a notebook, or an empty string without findings."""
    if not findings:
        return ""
    head = "".join(f"<th>{name}</th>" for name in ("finding", "where", "message", "remedy"))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(map(_html_row, findings))}</tbody></table>"


def _html_row(found: Mapping[str, Any]) -> str:
    finding = described(found)
    remedy = next(iter(finding["remedies"]), {"text": "", "command": ""})
    command = f"<br><code>{html.escape(remedy['command'])}</code>" if remedy["command"] else ""
    cells = [
        f"<b>{html.escape(finding['title'])}</b> ({html.escape(finding['severity'])})",
        html.escape(", ".join(finding["place"])),
        html.escape(finding["message"]),
        f"{html.escape(remedy['text'])}{command}",
    ]
    row = "".join(f'<td style="text-align: left">{cell}</td>' for cell in cells)
    return f"<tr>{row}</tr>"


def _value(name: str, value: float) -> str:
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "infinite"
    if name in _SHARES and 0 <= value <= 1:
        return percent(value)
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) < 1e15 else number(value)
