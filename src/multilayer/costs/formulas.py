"""The formula of each number of a cost.

A number that is computed from sizes has its formula (`core.counts.Count`). The formula of a total lists its parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from ..core.counts import Count
from ..nn.layers import KINDS

if TYPE_CHECKING:
    from .count import Cost, Row

_TERMS = 8  # for a sum with more terms, only their number is shown

LETTERS = {
    "B": "rows in a batch",
    "I": "inputs of the layer",
    "O": "outputs of the layer",
    "C": "outputs of the network",
    "n": "width of the activation (in columns: frequencies or bins per number)",
    "c": "FLOPs of the activation per element",
    "c′": "FLOPs of its derivative per element",
    **{letter: meaning for layer in KINDS.values() for letter, meaning in layer.letters.items()},
    "P": "parameters",
    "Q": "numbers that the fused engine stores for them: rows of matrices are padded to multiples of 16",
    "R": "rows in a batch, padded to multiples of 16",
    "W": "parameters with weight decay",
    "s": "bytes of a number",
    "m": "numbers that the optimizer stores per parameter",
    "Σn": "widths of the tensors kept for the backward pass, each once",
    "e": "further numbers kept per row (masks, statistics, log-probabilities)",
    "f": "further numbers kept per batch",
}


@dataclass(frozen=True, kw_only=True)
class Line:
    """A number with its formula. `where` is a layer or a part of the cost. `numbers` is the formula with the sizes."""

    where: str
    what: str
    value: int
    formula: str
    numbers: str


def explain(cost: Cost) -> tuple[Line, ...]:
    """Return every number of a cost with its formula, layers first. Parts that are 0 are left out."""
    found: list[Line] = []
    for row in cost.layers:
        found += _row(row, actual=cost.convention == "actual")
    found += [line("loss", "forward", cost.loss.forward), line("loss", "backward", cost.loss.backward)]
    forward = [row.forward.total for row in cost.layers]
    backward = [row.backward.total for row in cost.layers]
    found += [
        _sum("step", "parameters", cost.parameters, "Σ layers", [row.parameters for row in cost.layers]),
        _sum("step", "forward", cost.forward, "Σ layers + loss.forward", [*forward, cost.loss.forward]),
        _sum("step", "backward", cost.backward, "Σ layers", backward),
        _sum("step", "step", cost.step, "forward + backward", [cost.forward, cost.backward]),
        line("step", "optimizer", cost.optimizer_flops),
    ]
    kept = {field.name: int(getattr(cost.memory, field.name)) for field in fields(cost.memory)}
    found += [line("memory", name, getattr(cost.memory, name)) for name, value in kept.items() if value]
    parts = [name for name, value in kept.items() if value and name != "temporary"]
    found.append(_sum("memory", "total", cost.memory.total, " + ".join(parts), [kept[name] for name in parts]))
    if cost.epoch is not None:
        found.append(line("epoch", "flops", cost.epoch.flops))
    return tuple(found)


def legend(lines: Iterable[Line], letters: Mapping[str, str] = LETTERS) -> dict[str, str]:
    """Return the symbols that the formulas use, with their meaning."""
    used = {letter for line in lines for letter in re.findall(r"Σn|[A-Za-z]+′?", line.formula)}
    return {letter: meaning for letter, meaning in letters.items() if letter in used}


def _row(row: Row, *, actual: bool) -> list[Line]:
    found = [line(row.name, "parameters", row.parameters)] if row.parameters else []
    for side, flops in (("forward", row.forward), ("backward", row.backward)):
        parts: dict[str, Any] = {f.name: getattr(flops, f.name) for f in fields(flops) if int(getattr(flops, f.name))}
        found += [line(row.name, f"{side}.{name}", value) for name, value in parts.items()]
        if side == "backward" and actual and "dW" in parts and "dA" not in parts:
            why = "not computed: nothing below has parameters"
            found.append(Line(where=row.name, what="backward.dA", value=0, formula=why, numbers=""))
        if len(parts) > 1:
            found.append(_sum(row.name, f"{side}.total", flops.total, " + ".join(parts), list(parts.values())))
    return found


def line(where: str, what: str, value: int) -> Line:
    exact = isinstance(value, Count)
    formula, numbers = (value.formula, value.numbers) if exact else (str(value), "")
    return Line(where=where, what=what, value=int(value), formula=formula, numbers=numbers)


def _sum(where: str, what: str, value: int, formula: str, terms: list[int]) -> Line:
    numbers = " + ".join(str(int(t)) for t in terms) if len(terms) <= _TERMS else f"Σ of {len(terms)} figures"
    return Line(where=where, what=what, value=int(value), formula=formula, numbers=numbers)
